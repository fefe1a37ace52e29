# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""PaliGemma 2 on a CPU, by OpenVINO: no torch, no transformers, no peft.

The graphs are made of a model folder's safetensors when they are needed first (`openvino_graphs`),
and compiled (`openvino_compiler`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ModelError
from clue_ros.model.backbone import Array, Attention, Reader, grid_side
from clue_ros.model.config import EXPORTED, half_depth_block
from clue_ros.model.details import averaging, details_in, stage_stride
from clue_ros.model.devices import check_dtype
from clue_ros.model.loading import (
    Shapes,
    check_scales,
    check_shapes,
    read_weights,
    weight_files,
)
from clue_ros.model.lora import Lora, read_lora
from clue_ros.model.openvino_compiler import Compiler, Graph, digest
from clue_ros.model.prompts import Prompts
from clue_ros.model.shapes import EMBEDDINGS, HEAD, TEXT, weight_shapes
from clue_ros.model.tensors import Mapped, give_back

STEP = 16
"""Lengths are padded to a multiple of this, and the padding is masked: OpenVINO prepares itself for
each new length, which takes milliseconds."""
ROOM = 32  # tokens that a state has room for at first; it grows
FOLLOWED = 256  # tokens of continuations that are read at once
LONGEST = 2048  # tokens of a dialogue and its reply, which an attention window has to hold
HIDDEN = -1e9  # added to a logit that is to be ignored; float32's lowest is infinite in 16 bits
PRECISIONS = {"float32": "f32", "mixed": "bf16"}
"""What a model computes in, by OpenVINO's names: bf16 has products of 16 bits and sums of 32."""
MERGED_BYTES = 384 * 2**20
"""Size of a decoder, in the type of its products, up to which each adapter is merged into a copy of
it. A larger one is held once, and the adapters' matrices are inputs of its graphs."""
GELU = "gelu_pytorch_tanh"
PART_BYTES = 256 * 2**20
"""Size of a graph's weights, as they are stored, from which on the decoder and the head are cut:
while OpenVINO compiles and arranges a graph, it holds its weights several times."""
_FAST_16 = re.compile(r"\b(avx512_bf16|amx_bf16|bf16)\b")


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 (AVX512-BF16, AMX, or Arm's BF16)."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return _FAST_16.search(flags) is not None


def choose_precision(dtype: str) -> str:
    """The key of PRECISIONS for a dtype of `LoadOptions`. Raises ModelError."""
    check_dtype(dtype)
    if dtype == "auto":
        return "mixed" if has_fast_bfloat16() else "float32"
    if dtype == "bfloat16":
        return "mixed"
    if dtype not in PRECISIONS:
        raise ModelError(
            f"dtype {dtype!r} cannot be used by OpenVINO: want auto, float32, mixed or bfloat16"
        )
    return dtype


def unsupported(config: Any) -> str:
    """Why the graphs cannot be made for a model; empty where they can. config: `read_config`'s."""
    text, vision = config.text_config, config.vision_config
    rotary = text.rope_parameters.get("rope_type", "default")
    reasons = {
        f"its decoder's activation is {text.hidden_activation}": text.hidden_activation != GELU,
        f"its vision tower's activation is {vision.hidden_act}": vision.hidden_act != GELU,
        "its attention has biases": text.attention_bias,
        f"its rotary positions are of type {rotary}": rotary != "default",
        f"its pictures have {vision.num_channels} channels": vision.num_channels != 3,
        f"its attention window of {text.sliding_window} tokens is shorter than a prompt": (
            text.sliding_window is not None
            and text.sliding_window < grid_side(config) ** 2 + LONGEST
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def merged_bytes(shapes: Shapes, dtype: str) -> int:
    """Bytes of the decoder's copy that each adapter has; 0: it is too large to be copied.

    shapes: of the weights by their published names. dtype: of PRECISIONS.
    """
    names = (name for name in shapes if name.startswith(TEXT) and "_proj." in name)
    size = sum(math.prod(shapes[name]) for name in names) * (4 if dtype == "float32" else 2)
    return size if size <= MERGED_BYTES else 0


def is_left_to_torch(config: Any, dtype: str) -> bool:
    """Whether "auto" leaves a model to torch, which holds a large decoder once and in 16 bits.

    OpenVINO would hold it several times while it compiles. An export has no other engine.
    """
    if config.export:
        return False
    return not merged_bytes(weight_shapes(config), choose_precision(dtype))


def fingerprint(paths: Iterable[Path]) -> str:
    """A hash of files by their places, sizes and times: another file is compiled anew."""
    facts = []
    for path in sorted(paths):
        state = path.stat()
        facts.append((str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@dataclass
class State:
    """B prompts that were read.

    spans: the segments' first blocks and ends. keys, values: of each segment, (blocks, B, K, P, d)
    with room for P tokens. length: the tokens in use, with the padding of shorter prompts. mask:
    (B, 1, 1, P + 1), HIDDEN where nothing may look, the last column of the token that looks.
    positions: (B,) of the next token, counted from 1.
    """

    adapter: str | None
    spans: list[tuple[int, int]]
    keys: list[Array]
    values: list[Array]
    length: int
    mask: Array
    positions: npt.NDArray[np.int64]


class OpenVinoBackbone:
    """See `clue_ros.model.backbone.Backbone`."""

    def __init__(self, folder: Path, config: Any, dtype: str = "auto") -> None:
        self._dtype = choose_precision(dtype)
        self.config, self._text = config, config.text_config
        self._stored: Mapping[str, Mapped] = read_weights(folder)
        self._compile = Compiler(PRECISIONS[self._dtype])
        found = {name: tensor.shape for name, tensor in self._stored.items()}
        check_shapes(folder, found, weight_shapes(config))
        if not config.export and any(t.kind in ("I8", "U8") for t in self._stored.values()):
            raise ModelError(
                f"{folder} has the weights of an export and the config.json of another model (no"
                f" {EXPORTED}): write the export again with `clue export`"
            )
        check_scales(folder, self._stored)
        self._made_of = fingerprint([*weight_files(folder), folder / "config.json"])
        self._blocks, self._grid = int(self._text.num_hidden_layers), grid_side(config)
        self._scale = np.float32(math.sqrt(self._text.hidden_size))
        self._merges = not config.export and merged_bytes(found, self._dtype) > 0
        self._cut = half_depth_block(self._blocks)
        first = f"{TEXT}layers.0."
        block = sum(t.values.nbytes for name, t in self._stored.items() if name.startswith(first))
        self._together = max(1, PART_BYTES // block)  # blocks of a graph at most
        self._lora: dict[str, Lora] = {}
        self._inputs: dict[str | None, dict[str, Array]] = {}  # LoRA matrices, unless merged
        self._open: dict[tuple[Any, ...], Graph] = {}

    @property
    def device(self) -> str:
        """See `Backbone`."""
        return "cpu"

    @property
    def dtype(self) -> str:
        """See `Backbone`."""
        return self._dtype

    @property
    def adapters(self) -> tuple[str, ...]:
        """See `Backbone`."""
        return tuple(self._lora)

    def load_adapter(self, name: str, folder: Path) -> None:
        """See `Backbone`."""
        if name in self._lora:
            raise ModelError(f"{folder}: there is an adapter {name} already")
        self._lora[name] = read_lora(folder, self._stored)
        if not self._merges:  # the rank of the graphs' inputs may change
            self._inputs.clear()
            self._open.clear()

    def memory_bytes(self) -> int:
        """See `Backbone`."""
        weights = sum(tensor.values.nbytes for tensor in self._stored.values())
        return weights + sum(lora.nbytes for lora in self._lora.values())

    def look(self, pixels: Array, detailed: Sequence[Array] = ()) -> Array:
        """See `Backbone`."""
        from clue_ros.model.openvino_graphs import Weights, vision_graph

        feed = {"pixels": pixels}
        if detailed:
            feed["details"] = self.details(detailed)
        graph = self._graph(("vision",), lambda: vision_graph(Weights(self._stored), self.config))
        return np.array(graph(feed)["features"])

    def stem_features(self, pixels: Array, detailed: Sequence[Array]) -> Array:
        """All frozen features of a stem with details, (n, C, g, g); arguments as for `look`."""
        from clue_ros.model.openvino_graphs import Weights, levels_graph

        graph = self._graph(("levels",), lambda: levels_graph(Weights(self._stored), self.config))
        return np.concatenate([graph({"pixels": pixels})["levels"], self.details(detailed)], 1)

    def details(self, pictures: Sequence[Array]) -> Array:
        """The stem's second reading of pictures (3, h, w) in -1..1: (n, C, g, g)."""
        from clue_ros.model.openvino_graphs import Weights, details_graph

        read = details_in(self.config.vision_config)
        if read is None:
            raise ValueError("this model's stem reads no details")
        graph = self._graph(("details",), lambda: details_graph(Weights(self._stored), self.config))
        found = []
        for picture in pictures:
            feed = {"picture": picture[None]}
            for place, (stage, fold) in enumerate(read.read):
                reduced = stage_stride(self.config.vision_config.conv_stem, stage)
                for name, side in zip(("rows", "columns"), picture.shape[1:], strict=True):
                    feed[f"{name}{place}"] = averaging(side // reduced, fold * self._grid)
            found.append(np.array(graph(feed)["details"]))
        return np.concatenate(found)

    def stages(self, picture: Array, stages: Sequence[int]) -> list[Array]:
        """See `Backbone`."""
        from clue_ros.model.openvino_graphs import Weights, stages_graph

        if getattr(self.config.vision_config, "conv_stem", None) is None:
            raise ValueError("this model has no stem whose stages could be read")
        graph = self._graph(
            ("stages", *stages), lambda: stages_graph(Weights(self._stored), self.config, stages)
        )
        found = graph({"picture": picture[None]})
        return [found[f"stage{place}"][0] for place in range(len(stages))]

    def attend(self, features: Array, prompts: Prompts, reader: Reader) -> Attention:
        """See `Backbone`."""
        feed = self._feed(features, prompts)
        for first, end in self._spans(0, reader.block):
            feed["hidden"] = self._run(reader.adapter, first, end, feed)["through"]
        return self._attended(feed, prompts, reader)

    def _attended(self, feed: dict[str, Array], prompts: Prompts, reader: Reader) -> Attention:
        """What a reader makes of the hidden states before its block."""
        words = prompts.query_mask.astype(np.float32)
        feed["words"] = np.pad(words, ((0, 0), (0, feed["hidden"].shape[1] - words.shape[1])))
        own = reader.adapter if self._merges else None
        if reader.head is not None:
            raise ModelError(
                "OpenVINO runs no head of one's own and no learned word: choose backend 'torch'"
            )
        head = digest(reader.cnn or {})
        key = ("attend", own, reader.block, head, reader.temperature)
        graph = self._graph(
            key,
            lambda: self._decoder(reader.adapter).attend(
                reader.block, reader.cnn, reader.temperature
            ),
            self._merged(reader.adapter) + head,
        )
        found = graph(feed | self._matrices(reader.adapter))
        maps, chance = found["map"].copy(), found.get("probability")
        if reader.answers is not None:
            chance = self._answer(reader, reader.answers, feed, prompts)
        return Attention(maps, None if chance is None else chance.copy())

    def _answer(
        self, reader: Reader, answers: tuple[int, int], feed: Mapping[str, Array], prompts: Prompts
    ) -> Array:
        """The probability (B,) of yes over no after the block that a reader reads."""
        last, end = prompts.attention_mask.sum(1) - 1, reader.block + 1
        feed = {**feed, "rows": last[:, None]}
        hidden = self._run(reader.adapter, reader.block, end, feed)["through"]
        hidden = hidden[:, 0] if end == self._blocks else hidden[np.arange(len(last)), last]
        yes, no = self._logits(hidden)[:, answers].T
        return np.asarray(1 / (1 + np.exp((no - yes) / np.float32(reader.temperature))))

    def read(self, features: Array, prompts: Prompts, adapter: str | None) -> tuple[State, Array]:
        """See `Backbone`."""
        cut = 0 if self._merges else self._cut
        _, state, logits = self._read(features, prompts, adapter, cut, None)
        return state, logits

    def attend_and_read(
        self, features: Array, prompts: Prompts, reader: Reader
    ) -> tuple[Attention, State, Array]:
        """See `Backbone`. The decoder is cut before the block that is read."""
        if reader.answers is not None or not 0 < reader.block < self._blocks:
            raise ValueError(f"{reader} cannot be read beside a reply")
        found, state, logits = self._read(features, prompts, reader.adapter, reader.block, reader)
        assert found is not None
        return found, state, logits

    def _read(
        self,
        features: Array,
        prompts: Prompts,
        adapter: str | None,
        cut: int,
        reader: Reader | None,
    ) -> tuple[Attention | None, State, Array]:
        feed, keys, values, attention = self._feed(features, prompts), [], [], None
        rows, length = prompts.input_ids.shape
        spans = self._spans(0, cut) + self._spans(cut, self._blocks)
        lengths = prompts.attention_mask.sum(1)
        feed["rows"] = lengths[:, None] - 1
        for first, end in spans:
            if reader is not None and first == reader.block:
                attention = self._attended(dict(feed), prompts, reader)
            found = self._run(adapter, first, end, feed)
            feed["hidden"] = found["through"]
            keys.append(_with_room(found["new_keys"], length))
            values.append(_with_room(found["new_values"], length))
        mask = np.full((rows, 1, 1, keys[0].shape[3] + 1), HIDDEN, np.float32)
        mask[..., :length], mask[..., -1] = feed["mask"][..., :length], 0
        logits = self._logits(feed["hidden"][:, 0])
        state = State(adapter, spans, keys, values, length, mask, lengths + 1)
        return attention, state, logits

    def step(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """See `Backbone`."""
        past = state.keys[0].shape[3]
        if state.length == past:
            state.keys = [_with_room(keys, past) for keys in state.keys]
            state.values = [_with_room(values, past) for values in state.values]
            more = state.keys[0].shape[3] - past
            state.mask = np.insert(state.mask, [past] * more, HIDDEN, 3)
        cos, sin = self._rotary(state.positions[:, None])
        feed = {"hidden": self._embed(tokens[:, None]), "mask": state.mask, "cos": cos, "sin": sin}
        feed["rows"] = np.zeros((len(tokens), 1), np.int64)
        for (first, end), keys, values in zip(state.spans, state.keys, state.values, strict=True):
            found = self._run(state.adapter, first, end, feed, keys, values)
            feed["hidden"] = found["through"]
            keys[:, :, :, state.length] = found["new_keys"][:, :, :, 0]
            values[:, :, :, state.length] = found["new_values"][:, :, :, 0]
        state.mask[..., state.length] = 0
        state.length += 1
        state.positions = state.positions + 1
        return self._logits(feed["hidden"][:, 0])

    def rewind(self, state: State, count: int) -> None:
        """See `Backbone`. What stands in the room that becomes free is masked."""
        state.mask[..., state.length - count : state.length] = HIDDEN
        state.length -= count
        state.positions = state.positions - count

    def follow(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """See `Backbone`. All continuations of a row are one row here, and masked from another."""
        rows, length = len(state.positions), tokens.shape[1]
        each = tokens.reshape(rows, -1, length)
        most = max(1, FOLLOWED // length)
        parts = [each[:, start : start + most] for start in range(0, each.shape[1], most)]
        found = np.concatenate([self._followed(state, part) for part in parts], 1)
        return found.reshape(len(tokens), length, -1)

    def _followed(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """Tokens (B, n, T) after a state -> logits (B, n T, V)."""
        rows, count, length = tokens.shape
        used, past = count * length, state.keys[0].shape[3]
        total = -(-used // STEP) * STEP
        ids = np.zeros((rows, total), np.int64)
        ids[:, :used] = tokens.reshape(rows, used)
        whose, place = np.divmod(np.arange(total), length)
        seen = (whose[:, None] == whose) & (place[:, None] >= place)
        mask = np.empty((rows, 1, total, past + total), np.float32)
        mask[..., :past] = state.mask[..., :past]
        mask[..., past:] = np.where(seen, np.float32(0), np.float32(HIDDEN))
        cos, sin = self._rotary(state.positions[:, None] + place)
        feed = {"hidden": self._embed(ids), "mask": mask, "cos": cos, "sin": sin}
        feed["rows"] = np.broadcast_to(np.arange(total), (rows, total)).copy()
        for (first, end), keys, values in zip(state.spans, state.keys, state.values, strict=True):
            feed["hidden"] = self._run(state.adapter, first, end, feed, keys, values)["through"]
        hidden = feed["hidden"][:, :used].reshape(rows * used, -1)
        return self._logits(hidden).reshape(rows, used, -1)

    # The decoder's inputs.

    def _embed(self, tokens: npt.NDArray[np.int64]) -> Array:
        """Ids (B, T) -> embeddings (B, T, D), scaled as Gemma's are."""
        return np.asarray(self._stored[EMBEDDINGS].float32(tokens) * self._scale)

    def _rotary(self, positions: npt.NDArray[np.int64]) -> tuple[Array, Array]:
        """Cosines and sines (B, 1, T, d) of positions (B, T)."""
        size, base = self._text.head_dim, self._text.rope_parameters["rope_theta"]
        rates = 1.0 / (base ** (np.arange(0, size, 2, dtype=np.float32) / size))
        angles = positions[:, None, :, None].astype(np.float32) * rates.astype(np.float32)
        angles = np.concatenate([angles, angles], -1)
        return np.cos(angles), np.sin(angles)

    def _feed(self, features: Array, prompts: Prompts) -> dict[str, Array]:
        """What every graph takes of whole prompts, padded to a multiple of STEP."""
        rows, length = prompts.input_ids.shape
        is_image = prompts.input_ids == self.config.image_token_id
        if (is_image.sum(1) != features.shape[1]).any() or len(features) not in (1, rows):
            raise ValueError(f"{int(is_image.sum())} image tokens for features {features.shape}")
        total = -(-length // STEP) * STEP
        hidden = np.zeros((rows, total, self._text.hidden_size), np.float32)
        # The real PaliGemma's <image> id lies outside the table; what it gives is overwritten.
        hidden[:, :length] = self._embed(np.where(is_image, 0, prompts.input_ids))
        hidden[:, :length][is_image] = np.broadcast_to(
            features, (rows, *features.shape[1:])
        ).reshape(-1, features.shape[2])
        mask = np.full((rows, 1, 1, total), HIDDEN, np.float32)
        mask[:, 0, 0, :length][prompts.attention_mask > 0] = 0
        cos, sin = self._rotary(np.arange(1, total + 1)[None])  # PaliGemma counts from 1
        return {"hidden": hidden, "mask": mask, "cos": cos, "sin": sin}

    # Graphs.

    def _spans(self, first: int, end: int) -> list[tuple[int, int]]:
        """The segments of blocks first..end - 1: of PART_BYTES at most, or of one block."""
        step = self._together
        return [(start, min(start + step, end)) for start in range(first, end, step)]

    def _run(
        self,
        adapter: str | None,
        first: int,
        end: int,
        feed: Mapping[str, Array],
        keys: Array | None = None,
        values: Array | None = None,
    ) -> dict[str, Array]:
        """Run blocks first..end - 1; keys and values: of the tokens before, if there are any."""
        key = ("segment", adapter if self._merges else None, first, end)
        graph = self._graph(
            key, lambda: self._decoder(adapter).segment(first, end), self._merged(adapter)
        )
        follows = keys is not None  # a token, and more to come
        if keys is None or values is None:
            rows, text = len(feed["hidden"]), self._text
            none = (end - first, rows, text.num_key_value_heads, 0, text.head_dim)
            keys = values = np.zeros(none, np.float32)
        feed = {**feed, "keys": keys, "values": values, **self._matrices(adapter)}
        return graph(feed, hold=follows)

    def _logits(self, hidden: Array) -> Array:
        table = self._stored.get(HEAD, self._stored[EMBEDDINGS]).values
        step = max(1, PART_BYTES // table[0].nbytes)

        def part(start: int, end: int) -> Array:
            rows = slice(start, end)
            graph = self._graph(("head", start, end), lambda: self._decoder(None).head(rows))
            return graph({"hidden": hidden}, hold=True)["logits"]

        edges = [*range(0, len(table), step), len(table)]
        return np.concatenate([part(*rows) for rows in pairwise(edges)], 1)

    def _graph(self, key: tuple[Any, ...], build: Callable[[], Any], made_of: str = "") -> Graph:
        """A graph by its key, built when it is needed first. made_of: names further weights."""
        if key not in self._open:
            rank = "" if self._merges else self._rank()
            self._open[key] = self._compile(build, f"{key} {rank} {self._made_of} {made_of}")
            give_back(self._stored.values())
        return self._open[key]

    def _decoder(self, adapter: str | None) -> Any:
        from clue_ros.model.openvino_graphs import Decoder, Weights

        if not self._merges:
            return Decoder(Weights(self._stored), self.config, self._rank())
        kind = "F32" if self._dtype == "float32" else "BF16"  # of the products
        merged = {} if adapter is None else self._lora[adapter].merged(self._stored, kind)
        return Decoder(Weights(self._stored, merged), self.config, 0)

    def _merged(self, adapter: str | None) -> str:
        """Names the adapter whose weights are in the graphs; empty where none are."""
        return self._lora[adapter].made_of if adapter is not None and self._merges else ""

    def _rank(self) -> int:
        return max((lora.rank for lora in self._lora.values()), default=0)

    def _matrices(self, adapter: str | None) -> dict[str, Array]:
        """The LoRA matrices as inputs of graphs; nothing where they are merged."""
        if self._merges or not self._lora:
            return {}
        if adapter not in self._inputs:
            from clue_ros.model.openvino_graphs import PROJECTIONS

            lora = Lora.none() if adapter is None else self._lora[adapter]
            self._inputs[adapter] = lora.joined(
                self._stored, PROJECTIONS, self._blocks, self._rank()
            )
        return self._inputs[adapter]


def _with_room(cache: Array, length: int) -> Array:
    """Keys or values (blocks, B, K, T, d) of the first `length` tokens, with ROOM for more."""
    total = -(-(length + ROOM) // STEP) * STEP
    made = np.zeros((*cache.shape[:3], total, cache.shape[4]), np.float32)
    made[:, :, :, :length] = cache[:, :, :, :length]
    return made
