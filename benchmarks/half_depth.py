# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare half of the decoder with all of it as detectors of ambiguity (Table I).

    scripts/run python benchmarks/half_depth.py --tabletop DIR --run runs/half-depth

Only the block that is read last is tuned, as in the paper's Half-Last and Full-Last, and only the
state of the prompt's last token is read. So what enters that block is computed once for every
sentence, and many small trainings on it compare depth, learning rate, number of scenes, steps, the
head (the language model's own, or a new linear one), and at half depth blocks that another
detector's training has changed ("taught"). Pictures are not augmented. "probe" trains nothing but a
logistic regression on the untouched base.

Resumable: what a training measured is kept in --run. Prints JSON, and judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn
from tqdm import tqdm
from transformers.models.gemma2.modeling_gemma2 import apply_rotary_pos_emb

from benchmarks.common import parse
from clue_ros.lab.evaluation.attention_maps import load_base
from clue_ros.lab.evaluation.in_domain import LabelledImage, labelled_images, require_scenes
from clue_ros.lab.evaluation.options import ModelOptions as BaseOptions
from clue_ros.lab.evaluation.tabletop import tabletop_samples
from clue_ros.lab.metrics import auroc
from clue_ros.lab.options import at_least, option
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.training.detector import f1, fit_threshold
from clue_ros.lab.training.loop import Group, TrainingSettings, train
from clue_ros.lab.training.parallel import autocast
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import DETECTOR
from clue_ros.model.config import half_depth_block
from clue_ros.model.detector import answer_tokens
from clue_ros.model.heads import detector_loss
from clue_ros.model.loading import DEFAULT_MODEL, find_model, read_json, write_json
from clue_ros.model.prompts import Prompts, encode_prompts
from clue_ros.model.torch_backbone import TorchModel

WORD, TAUGHT = "disambiguate", "taught"
SETS = {"train": "rich", "val": "rich", "rich": "rich", "rich-unseen": "rich-unseen",
        "table-unseen": "table-unseen"}  # fmt: skip
TESTS = ("rich", "rich-unseen", "table-unseen")


@dataclass(frozen=True, kw_only=True)
class HalfDepthOptions:
    """The options of this benchmark."""

    model: str = option(DEFAULT_MODEL, "an embedded model's name or folder, with a detector")
    tabletop: Path = option(DEFAULT_FOLDER, "folder of the simulated scenes")
    run: Path = option(Path("runs/half-depth"), "folder of states and results, resumed")
    scenes: int = option(300, "training scenes of rich", type=at_least(5))
    test_scenes: int = option(50, "of validation and of each test set", type=at_least(1))
    steps: int = option(100, "steps of a training", type=at_least(1))
    batch: int = option(32, "sentences a step", type=at_least(1))
    seeds: int = option(3, "seeds of each training", type=at_least(1))


@dataclass(frozen=True)
class Arm:
    """One way to train. block: the last one that is run, and the only one that is tuned.

    taught: the blocks below have the adapter of the model's own detector.
    """

    block: int
    lr: float
    scenes: int
    steps: int
    head: str = "words"
    taught: bool = False

    @property
    def name(self) -> str:
        """The name of its files."""
        taught = "-taught" if self.taught else ""
        sizes = f"block{self.block}-lr{self.lr:g}-scenes{self.scenes}-steps{self.steps}"
        return f"{sizes}-{self.head}{taught}"


def arms(options: HalfDepthOptions, half: int, full: int) -> list[Arm]:
    """The trainings: depth x rate x scenes, then one factor at a time from the recipe's rate."""
    rate, scenes, steps = 7e-4, options.scenes, options.steps
    found = [
        Arm(block, lr, count, steps)
        for count, lr, block in product((scenes, scenes // 5), (rate, 2e-4), (half, full))
    ]
    found += [Arm(block, rate, scenes, steps, "linear") for block in (half, full)]
    found += [Arm(block, rate, scenes, 4 * steps) for block in (half, full)]
    found += [Arm(half, rate, scenes, steps, head, taught=True) for head in ("words", "linear")]
    return found + [Arm(block, rate, scenes, steps) for block in range(half + 1, full)]


# -------------------------------------------------------------------------------------------------
# The states that enter each block, of every sentence, on disk.


@dataclass(frozen=True)
class Bank:
    """n sentences of a set, at most T tokens each.

    states: (n, T, D) float16 on disk, what enters each block that is tuned. probes: (blocks, n, D),
    the last token's state after each block and the final norm. lengths: (n,) tokens. images: (n,)
    index of the picture. ambiguous: (n,) 0. or 1.
    """

    states: dict[str, Any]
    probes: Tensor
    lengths: Tensor
    images: npt.NDArray[np.int64]
    ambiguous: Tensor

    def batch(self, key: str, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """States (B, T, D) and lengths (B,) of some sentences, padding cut off."""
        lengths = self.lengths[torch.tensor(rows)]
        longest = int(lengths.max())
        states = np.stack([self.states[key][row, :longest] for row in rows])
        return torch.from_numpy(states).float(), lengths


def state_keys(half: int, full: int) -> dict[str, int]:
    """The names of the kept states, and the blocks that they enter."""
    return {TAUGHT: half, **{str(block): block for block in range(half, full + 1)}}


@torch.no_grad()
def make_bank(
    parts: Parts, images: Sequence[LabelledImage], keys: Mapping[str, int], folder: Path
) -> Bank:
    """Run every sentence once through the base, or find what was kept in `folder`."""
    texts = [text for image in images for text, _ in image.sentences]
    prompts = encode_prompts(parts.processor, WORD, texts).to("cpu")
    width, blocks = parts.backbone.text.hidden_size, parts.backbone.blocks
    done, shape = folder / "done.json", (len(texts), prompts.input_ids.shape[1], width)
    mode: Any = "r+" if folder.is_dir() else "w+"
    folder.mkdir(parents=True, exist_ok=True)
    states = {key: np.memmap(folder / f"{key}.f16", np.float16, mode, shape=shape) for key in keys}
    probes = np.memmap(folder / "probes.f16", np.float16, mode, shape=(blocks, len(texts), width))
    first = read_json(done)["images"] if done.is_file() else 0
    index = np.repeat(np.arange(len(images)), [len(image.sentences) for image in images])
    for number in tqdm(range(first, len(images)), desc=folder.name, mininterval=10):
        rows = np.flatnonzero(index == number)
        of_image = Prompts(**{name: value[rows] for name, value in vars(prompts).items()})
        with autocast(torch.device("cpu")):
            _one_image(parts, images[number], of_image, keys, states, probes, rows)
        if number % 20 == 19 or number == len(images) - 1:
            write_json(done, {"images": number + 1})
    labels = torch.tensor([float(a) for image in images for _, a in image.sentences])
    lengths = prompts.attention_mask.sum(1)
    return Bank(states, torch.from_numpy(probes[:].astype(np.float32)), lengths, index, labels)


def _one_image(
    parts: Parts, image: LabelledImage, prompts: Prompts, keys: Mapping[str, int],
    states: Mapping[str, Any], probes: Any, rows: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    backbone, seen = parts.backbone, image.load()
    decoder = backbone.model.model.language_model
    pixels = parts.processor.image_processor(Image.fromarray(seen), return_tensors="pt")
    features = backbone.look(pixels["pixel_values"], backbone.image_details(seen))
    last = prompts.attention_mask.sum(1) - 1
    parts.adapters.use(DETECTOR)
    with entering(decoder) as entered:
        backbone.attention_at(keys[TAUGHT], features, prompts)
    states[TAUGHT][rows] = entered[keys[TAUGHT]].half().numpy()
    parts.adapters.use(None)
    with entering(decoder) as entered:
        after, _ = backbone.hidden_at(backbone.blocks - 1, features, prompts)
    for key, block in keys.items():
        if key != TAUGHT:
            states[key][rows] = entered[block].half().numpy()
    for block in range(backbone.blocks):
        whole = after if block + 1 == backbone.blocks else decoder.norm(entered[block + 1])
        probes[block, rows] = whole[torch.arange(len(last)), last].half().numpy()


@contextmanager
def entering(decoder: Any) -> Iterator[dict[int, Tensor]]:
    """Within it: what entered each block (B, T, D), by its number."""
    entered: dict[int, Tensor] = {}
    hooks = [
        layer.input_layernorm.register_forward_pre_hook(
            lambda _norm, given, number=number: entered.update({number: given[0]})
        )
        for number, layer in enumerate(decoder.layers)
    ]
    try:
        yield entered
    finally:
        for hook in hooks:
            hook.remove()


# -------------------------------------------------------------------------------------------------
# A training on them.


class AnswerBlock(nn.Module):
    """Gemma 2's block for the last token of each prompt alone, then the final norm.

    Equal to the whole block at that token: within a prefix every token sees every other one.
    """

    def __init__(self, backbone: TorchModel, block: int) -> None:
        super().__init__()
        decoder = backbone.model.model.language_model
        self.layer, self.norm, self.rotary = decoder.layers[block], decoder.norm, decoder.rotary_emb
        self.cap = float(backbone.text.attn_logit_softcapping)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Map the states before the block, (B, T, D), and B lengths to (B, D)."""
        attention, last = self.layer.self_attn, lengths - 1
        rows, count = torch.arange(len(states)), states.shape[1]
        normed, size = self.layer.input_layernorm(states), attention.head_dim
        places = torch.arange(1, count + 1)[None]
        cos, sin = self.rotary(states, places)
        query = attention.q_proj(normed[rows, last]).view(len(states), 1, -1, size)
        key, value = (
            part(normed).view(len(states), count, -1, size)
            for part in (attention.k_proj, attention.v_proj)
        )
        query, _ = apply_rotary_pos_emb(
            query, query, cos[0, last][:, None], sin[0, last][:, None], unsqueeze_dim=2
        )
        key, _ = apply_rotary_pos_emb(key, key, cos, sin, unsqueeze_dim=2)
        key, value = (x.repeat_interleave(attention.num_key_value_groups, 2) for x in (key, value))
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * attention.scaling
        scores = torch.tanh(scores / self.cap) * self.cap
        hidden = torch.arange(count)[None] >= lengths[:, None]
        weights = scores.float().masked_fill(hidden[:, None, None], float("-inf")).softmax(-1)
        read = torch.einsum("bhqk,bkhd->bqhd", weights.to(value.dtype), value)
        out = states[rows, last] + self.layer.post_attention_layernorm(
            attention.o_proj(read.flatten(1))
        )
        fed = self.layer.mlp(self.layer.pre_feedforward_layernorm(out))
        found: Tensor = self.norm(out + self.layer.post_feedforward_layernorm(fed))
        return found


def train_arm(
    options: HalfDepthOptions, parts: Parts, arm: Arm, seed: int, banks: Mapping[str, Bank]
) -> dict[str, Any]:
    """Train one arm; F1 (threshold of validation) and area under the curve of each test set."""
    torch.manual_seed(seed)
    adapter = f"{arm.name}-seed{seed}".replace(".", "_")
    parts.adapters.add(adapter, lora_config([arm.block]))
    parts.adapters.use(adapter, train=True)
    block = AnswerBlock(parts.backbone, arm.block)
    yes, no = answer_tokens(parts.processor.tokenizer)
    linear = nn.Linear(parts.backbone.text.hidden_size, 1)
    learn, key = banks["train"], TAUGHT if arm.taught else str(arm.block)
    rows = np.flatnonzero(learn.images < arm.scenes)

    def logits(bank: Bank, chosen: Sequence[int]) -> Tensor:
        with autocast(torch.device("cpu")):
            hidden = block(*bank.batch(key, chosen)).float()
        if arm.head == "linear":
            return linear(hidden).squeeze(1)  # type: ignore[no-any-return]
        words = parts.backbone.logits(hidden)
        return words[:, yes] - words[:, no]

    def loss(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((seed, 11, step))
        chosen = rng.choice(rows, options.batch).tolist()
        return {"loss": detector_loss(logits(learn, chosen), learn.ambiguous[chosen])}

    trained = [p for p in parts.adapters.parameters(adapter) if p.requires_grad]
    groups = [Group(trained), *([Group([*linear.parameters()])] if arm.head == "linear" else [])]
    settings = TrainingSettings(arm.steps, options.batch, arm.lr, seed=seed, save_every=100)
    block.train()
    folder = options.run / "trained" / f"{arm.name}-seed{seed}"
    train(loss, groups, settings, folder, notes=asdict(arm))
    block.eval()
    seen = {}
    with torch.no_grad():
        for name, bank in banks.items():
            if name != "train":
                every = np.array_split(np.arange(len(bank.images)), -(-len(bank.images) // 64))
                seen[name] = torch.cat([logits(bank, part.tolist()) for part in every])
    return judged(seen, banks)


def judged(logits: Mapping[str, Tensor], banks: Mapping[str, Bank]) -> dict[str, Any]:
    """F1 at the threshold of the validation scenes, and the area under the curve, of each set."""
    threshold = fit_threshold(logits["val"].sigmoid(), banks["val"].ambiguous)
    return {
        name: {
            "f1": f1(logits[name].sigmoid() >= threshold, banks[name].ambiguous),
            "auroc": auroc(logits[name].tolist(), (banks[name].ambiguous > 0.5).tolist()),
        }
        for name in TESTS
    }


def probe(banks: Mapping[str, Bank], block: int) -> dict[str, Any]:
    """A ridge-penalised logistic regression on the last token's state after a block."""
    x, y = banks["train"].probes[block], banks["train"].ambiguous
    center, scale = x.mean(0), x.std(0) + 1e-6
    decide = nn.Linear(x.shape[1], 1)
    search = torch.optim.LBFGS(decide.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        found = detector_loss(decide((x - center) / scale).squeeze(1), y)
        found = found + 1e-3 * decide.weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        seen = {
            name: decide((bank.probes[block] - center) / scale).squeeze(1)
            for name, bank in banks.items()
        }
    return judged(seen, banks)


# -------------------------------------------------------------------------------------------------
# All of it.


@dataclass(frozen=True)
class Parts:
    """The base with the adapter of the model's own detector, and its processor."""

    backbone: TorchModel
    processor: Any
    adapters: Adapters

    @classmethod
    def load(cls, options: HalfDepthOptions) -> Parts:
        """Load from the model's folder, with every weight frozen."""
        folder = find_model(options.model)
        backbone, processor = load_base(BaseOptions(model=options.model, dtype="float32"))
        backbone.model.requires_grad_(False)
        adapters = Adapters(backbone)
        adapters.load(DETECTOR, folder / DETECTOR)
        return cls(backbone, processor, adapters)


def load_banks(options: HalfDepthOptions, parts: Parts, half: int, full: int) -> dict[str, Bank]:
    """The states of all sets."""
    banks = {}
    for name, world in SETS.items():
        split = name if name in ("train", "val") else "test"
        count = options.scenes if name == "train" else options.test_scenes
        scenes = require_scenes(options.tabletop, split, count, world)
        images = labelled_images(tabletop_samples(scenes, world), "tabletop", split)
        folder = options.run / "states" / name
        banks[name] = make_bank(parts, images, state_keys(half, full), folder)
    return banks


def main() -> None:
    """Run the benchmark."""
    options = parse(HalfDepthOptions, __doc__)
    parts = Parts.load(options)
    half, full = half_depth_block(parts.backbone.blocks), parts.backbone.blocks - 1
    banks = load_banks(options, parts, half, full)
    rows: list[dict[str, Any]] = [
        {"block": block, "probe": probe(banks, block)} for block in range(full + 1)
    ]
    wanted, measured = arms(options, half, full), dict[Arm, list[dict[str, Any]]]()
    runs = product(range(options.seeds), wanted)
    for seed, arm in sorted(runs, key=lambda run: run[1] not in wanted[:2]):  # first all seeds
        path = options.run / "measured" / f"{arm.name}-seed{seed}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, train_arm(options, parts, arm, seed, banks))
        measured.setdefault(arm, []).append(read_json(path))
    rows += [{**asdict(arm), **summary(measured[arm])} for arm in wanted]
    sizes = {name: len(bank.images) for name, bank in banks.items()}
    print(json.dumps({"half": half, "full": full, "sentences": sizes, "rows": rows}, indent=1))


def summary(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every figure."""
    out: dict[str, Any] = {}
    for name, figure in product(TESTS, ("f1", "auroc")):
        values = [row[name][figure] for row in measured]
        spread = stdev(values) if len(values) > 1 else 0.0
        out.setdefault(name, {})[figure] = [round(mean(values), 4), round(spread, 4)]
    return out


if __name__ == "__main__":
    main()
