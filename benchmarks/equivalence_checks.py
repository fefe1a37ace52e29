# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Our code path against transformers' own on any PaliGemma 2: same prompts, map and tokens.

Ours: `encode_prompts`, `TorchModel.look`, `attention_at` (half depth), `reply_to` (our decoder).
Theirs: PaliGemmaProcessor, the whole model from pixels in eager attention with
`output_attentions=True`, `GenerationMixin.generate`. Equations 1 and 2 are written a second time
here, in float64, so that the map is compared as well as the weights it is made of.

Our vision tower runs in PyTorch's fused attention. In float32 the reference's runs in plain (eager)
attention all the same. In 16 bits those two round differently, and every block above makes more of
it; so there the reference keeps the tower's fused attention, and what the plain one would have
changed is measured, not judged, beside what 16 bits change at all (`precision`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.model.adapters import Adapters
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.config import half_depth_block
from clue_ros.model.decoding import Generation, Vocabulary, read_prompts, reply_to
from clue_ros.model.prompts import BOS, NEWLINE, encode_prompts
from clue_ros.model.torch_backbone import ATTENTION, TorchBackbone, TorchModel

MAP_LIMITS = {torch.float32: 1e-3, torch.bfloat16: 1e-2, torch.float16: 1e-2}
DETECT, CLARIFY = "disambiguate", "clarify"
CONTEXTS = (
    "pick up the red block on the left",
    "the block assistant: do you mean the red one or the blue one? user: the left one",
    "which one?",
)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Check:
    """One thing that must hold: what was compared, through which adapter, what came out."""

    name: str
    subject: str
    found: str
    wanted: str
    holds: bool


@dataclass
class EquivalenceReport:
    """All checks, and what was measured beside them (seconds, spreads), by name."""

    checks: list[Check] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every check holds; a report without checks shows nothing."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    def equal(self, name: str, subject: str, same: bool, found: str) -> None:
        """Add a check that asks for equality."""
        self.checks.append(Check(name, subject, found, "equal", same))

    def below(self, name: str, subject: str, error: float, limit: float) -> None:
        """Add a check on a relative error; NaN does not hold."""
        holds = error < limit
        self.checks.append(Check(name, subject, f"{error:.2e}", f"< {limit:g}", holds))

    def timed(self, name: str, call: Callable[[], _T]) -> _T:
        """What `call` returns; its seconds are kept under `name`."""
        start = time.perf_counter()
        result = call()
        self.measured[name] = self.measured.get(name, 0.0) + time.perf_counter() - start
        return result


def picture(side: int, seed: int = 0) -> Image.Image:
    """An RGB picture with coarse and fine structure everywhere, so that no two patches agree."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    large = np.asarray(Image.fromarray(coarse).resize((side, side)), dtype=np.int64)
    fine = random.integers(-40, 41, (side, side, 3))
    return Image.fromarray(np.clip(large + fine, 0, 255).astype(np.uint8))


def compare(
    backbone: TorchModel, processor: Any, adapters: Adapters, *, new_tokens: int = 8, seed: int = 0
) -> EquivalenceReport:
    """Run every comparison on the bare base and through both adapters (loaded beforehand).

    One picture; sequences are its image tokens and one sentence. Leaves no adapter active.
    """
    report = EquivalenceReport()
    image = picture(backbone.config.vision_config.image_size, seed)
    for context in CONTEXTS:
        _compare_prompts(report, processor, image, context)
    pixels = _theirs(processor, image, DETECT)["pixel_values"]
    with torch.inference_mode():  # once for all, as `Clue.look` does
        features = report.timed("seconds: look, ours", lambda: backbone.look(pixels))
    engine = TorchBackbone(backbone, adapters)
    case = _Case(report, backbone, engine, processor, image, features)
    maps = {}
    for subject in (None, DETECTOR):
        adapters.use(subject)
        maps[subject] = _compare_maps(case, subject or "base")
    # Beside the checks: an adapter that is never applied would pass them.
    report.measured["map: detector from base"] = _distance(maps[DETECTOR], maps[None])
    for subject in (None, IVG):
        adapters.use(subject)
        _compare_tokens(case, subject, new_tokens)
    adapters.use(None)
    return report


@dataclass(frozen=True)
class _Case:
    """What every comparison of one run shares."""

    report: EquivalenceReport
    backbone: TorchModel
    engine: TorchBackbone
    processor: Any
    image: Image.Image
    features: torch.Tensor


def precision(
    backbone: TorchModel, processor: Any, adapters: Adapters, widen: Callable[[TorchModel], None]
) -> dict[str, float]:
    """How far 16 bits move the bare base's map (relative error), and which part of it is whose.

    Compares our path in 16 bits, the same with transformers' plain attention in the vision tower,
    and our path on the very same weights in float32, to which `widen` converts the model.
    """
    adapters.use(None)
    image = picture(backbone.config.vision_config.image_size)
    inputs = _theirs(processor, image, f"{DETECT} {CONTEXTS[0]}")
    prompts = encode_prompts(processor, DETECT, [CONTEXTS[0]]).to(backbone.device)
    queries = _queries(processor, inputs["input_ids"][0].tolist())

    @torch.inference_mode()
    def mapped() -> npt.NDArray[np.float64]:
        features = backbone.look(inputs["pixel_values"])
        attention = backbone.attention_at(half_depth_block(backbone.blocks), features, prompts)
        return _reference_map(attention, queries, backbone.grid)

    fused = mapped()
    with _reference(backbone, plain=True):
        plain = mapped()
    widen(backbone)
    exact = mapped()
    return {
        "map: fused tower from plain tower": _distance(fused, plain),
        "map: fused tower from float32": _distance(fused, exact),
        "map: plain tower from float32": _distance(plain, exact),
    }


def _theirs(processor: Any, image: Image.Image, text: str) -> dict[str, torch.Tensor]:
    """What PaliGemmaProcessor makes of "<image>text"."""
    inputs = processor(images=image, text=f"<image>{text}", return_tensors="pt")
    return {name: value for name, value in inputs.items() if name != "labels"}


def _compare_prompts(
    report: EquivalenceReport, processor: Any, image: Image.Image, context: str
) -> None:
    """Ids, mask and token types; <bos> after the image, one newline at the end."""
    ours = encode_prompts(processor, DETECT, [context]).to("cpu")
    theirs = _theirs(processor, image, f"{DETECT} {context}")
    names = ("input_ids", "attention_mask", "token_type_ids")
    same = all(torch.equal(getattr(ours, name), theirs[name]) for name in names)
    ids = ours.input_ids[0].tolist()
    tokenizer, start = processor.tokenizer, processor.image_seq_length
    bos, newline = tokenizer.convert_tokens_to_ids([BOS, NEWLINE])
    framed = ids[start] == bos and ids[-1] == newline
    framed &= ids.count(bos) == ids.count(newline) == 1
    framed &= ids[:start] == [processor.image_token_id] * start
    found = f"{start} image tokens, <bos> {bos}, {len(ids) - start - 2} pieces, newline {newline}"
    report.equal("prompt tokens", "processor", same and framed, found)


def _compare_maps(case: _Case, subject: str) -> npt.NDArray[np.float64]:
    """Attention weights and map of the half-depth block; positions. Returns our map."""
    report, backbone, processor = case.report, case.backbone, case.processor
    context, block = CONTEXTS[0], half_depth_block(backbone.blocks)
    inputs = _theirs(processor, case.image, f"{DETECT} {context}")
    prompts = encode_prompts(processor, DETECT, [context]).to(backbone.device)
    with _positions(backbone) as ours_at, torch.inference_mode():
        ours = report.timed(
            "seconds: half depth, ours",
            lambda: backbone.attention_at(block, case.features, prompts),
        )
    with _positions(backbone) as theirs_at, _reference(backbone):
        theirs = report.timed("seconds: full depth, theirs", lambda: _full(backbone, inputs)[block])
    length = prompts.input_ids.shape[1]
    same = ours_at == theirs_at == [list(range(1, length + 1))]
    report.equal("positions", subject, same, f"{ours_at[0][0]} .. {ours_at[0][-1]}")
    limit = MAP_LIMITS[backbone.dtype]
    # Our equations, on our weights and the mask of queries that the detector uses.
    mine = image_attention(ours, prompts.query_mask, backbone.grid)
    queries = _queries(processor, inputs["input_ids"][0].tolist())
    reference = _reference_map(theirs, queries, backbone.grid)
    name = f"block {block}"
    report.below(f"{name} attention", subject, _distance(_array(ours), _array(theirs)), limit)
    report.below(f"{name} map (eq. 2)", subject, _distance(_array(mine)[0], reference), limit)
    stretched: npt.NDArray[np.float64] = _array(min_max(mine))[0]
    low, high = reference.min(), reference.max()
    wanted = (reference - low) / (high - low)
    report.below(f"{name} map, 0 to 1", subject, _distance(stretched, wanted), limit)
    report.measured[f"map: {subject} highest over mean"] = float(high / reference.mean())
    return stretched


def _compare_tokens(case: _Case, adapter: str | None, new_tokens: int) -> None:
    """Greedy decoding without constraints."""
    subject = adapter or "base"
    report, backbone, processor = case.report, case.backbone, case.processor
    context = CONTEXTS[1]
    inputs = _theirs(processor, case.image, f"{CLARIFY} {context}")
    prompts = encode_prompts(processor, CLARIFY, [context])
    vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size)
    features = _array(case.features).astype(np.float32)

    def reply() -> Generation:
        """The greedy reply of our decoding."""
        prefill = read_prompts(case.engine, features, prompts, adapter)
        return reply_to(
            case.engine, vocabulary, prefill, "unconstrained", max_new_tokens=new_tokens
        )[0]

    said = report.timed("seconds: greedy tokens, ours", reply)
    with torch.inference_mode(), _reference(backbone):
        whole = report.timed(
            "seconds: greedy tokens, theirs",
            lambda: backbone.model.generate(
                **_on(backbone, inputs), max_new_tokens=new_tokens, do_sample=False
            ),
        )
    theirs = whole[0, prompts.input_ids.shape[1] :].tolist()
    if vocabulary.eos in theirs:
        theirs = theirs[: theirs.index(vocabulary.eos)]
    same = list(said.tokens) == theirs
    found = " ".join(str(token) for token in said.tokens) or "(nothing)"
    report.equal("greedy tokens", subject, same, found if same else f"{found} not {theirs}")
    report.measured[f"tokens: {subject} different ones"] = float(len(set(said.tokens)))


def _full(backbone: TorchModel, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with torch.inference_mode():
        out = backbone.model(**_on(backbone, inputs), output_attentions=True, logits_to_keep=1)
    attentions: tuple[torch.Tensor, ...] = out.attentions
    return attentions


def _on(backbone: TorchModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The processor's tensors on the model's device, pixels in its dtype."""
    placed = {name: value.to(backbone.device) for name, value in inputs.items()}
    placed["pixel_values"] = placed["pixel_values"].to(backbone.dtype)
    return placed


@contextmanager
def _reference(backbone: TorchModel, *, plain: bool | None = None) -> Iterator[None]:
    """Transformers' eager attention; in the vision tower too if `plain` (default: in float32)."""
    if plain if plain is not None else backbone.dtype == torch.float32:
        backbone.model.set_attn_implementation("eager")
    try:
        yield
    finally:
        backbone.model.set_attn_implementation(ATTENTION)


@contextmanager
def _positions(backbone: TorchModel) -> Iterator[list[list[int]]]:
    """The positions that the decoder's first block is given, call by call."""
    seen: list[list[int]] = []

    def note(_: Any, __: Any, named: dict[str, Any]) -> None:
        seen.append(named["position_ids"][0].tolist())

    first = backbone.model.model.language_model.layers[0]
    handle = first.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def _queries(processor: Any, ids: Sequence[int]) -> list[int]:
    """Where the words after the conditioning word are: what follows "<bos>disambiguate"."""
    tokenizer = processor.tokenizer
    lead = tokenizer(f"{tokenizer.bos_token}{DETECT}", add_special_tokens=False)["input_ids"]
    return list(range(processor.image_seq_length + len(lead), len(ids) - 1))


def _reference_map(
    attention: torch.Tensor, queries: Sequence[int], grid: int
) -> npt.NDArray[np.float64]:
    """Equations 1 and 2 as the paper writes them, one head and one query at a time."""
    weights = _array(attention)[0]
    rows = []
    for head in weights:
        for query in queries:
            row = head[query, : grid * grid]
            rows.append(row / (row.sum() + 1e-8))
    total: npt.NDArray[np.float64] = np.mean(rows, axis=0).reshape(grid, grid)
    return total


def _array(tensor: torch.Tensor) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = tensor.detach().double().cpu().numpy()
    return values


def _distance(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> float:
    """Relative error: the length of the difference over the length of theirs."""
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
