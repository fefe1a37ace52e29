# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The protocol of a PaliGemma 2: a few calls on numpy arrays, whichever engine computes them.

    look(pixels, detailed)              features           vision tower and projector, once an image
    stages(picture, stages)             levels             a stem's frozen features, at full aspect
    attend(features, prompts, reader)   probability, map   adapter A, blocks 0 .. half; eq. 1, eq. 2
    read(features, prompts, adapter)    state, logits      adapter B reads the prompt
    step(state, tokens)                 logits             one more token a row
    follow(state, tokens)               logits             teacher forcing of several continuations
    attend_and_read(...)                all of these       one adapter does both, in one pass

`openvino_backbone` runs them as graphs on a CPU; `torch_backbone` is transformers' PaliGemma with
peft's adapters, on any device and for training. Shapes: B prompts, N image tokens, D the decoder's
width, V the vocabulary, g the grid's side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clue_ros.model.prompts import Prompts

DETECTOR, IVG = "detector", "ivg"  # adapters A and B (section III)
JOINT = "joint"  # one adapter for both; loaded, it has the name IVG
Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Reader:
    """The settings by which `attend` reads one block of the decoder.

    adapter: its name, None for the base alone. block: counted from 0. cnn: the weights of the CNN
    by their names in head.safetensors, None for the map alone. answers: the tokens of yes and no of
    an autoregressive head (IV-A.3), which answers after the prompt. temperature: divides the logit.
    head: a `clue_ros.model.heads.Head` of the user's own, for torch alone.
    """

    adapter: str | None
    block: int
    cnn: Mapping[str, Array] | None = None
    answers: tuple[int, int] | None = None
    temperature: float = 1.0
    head: Any = None


class Attention(NamedTuple):
    """The result of `attend`.

    map: (B, g, g) in 0..1, min-max stretched. probability: (B,) of ambiguity, None without a head.
    """

    map: Array
    probability: Array | None


class Backbone(Protocol):
    """One PaliGemma 2 and its adapters. Not thread-safe: its owner calls it under one lock."""

    config: Any

    @property
    def device(self) -> str:
        """The device, such as "cpu" or "cuda:0"."""

    @property
    def dtype(self) -> str:
        """The number format, such as "float32"; "mixed": matrix products in bfloat16."""

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that were loaded."""

    def load_adapter(self, name: str, folder: Path) -> None:
        """Read an adapter of peft's format under a name of its own. Raises ModelError."""

    def look(self, pixels: Array, detailed: Sequence[Array] = ()) -> Array:
        """(n, 3, S, S) in -1..1 -> features (n, N, D).

        detailed: the same n pictures, (3, h, w) in -1..1 each, for a model whose stem reads details
        (`clue_ros.model.details`).
        """

    def stages(self, picture: Array, stages: Sequence[int]) -> list[Array]:
        """The output of a stem's frozen stages for a picture at its own aspect.

        (3, h, w) in -1..1, sides multiples of 32 -> for each stage (C, h / stride, w / stride),
        each cell of mean 0 and size 1. Raises ValueError for a model without a stem.
        """

    def attend(self, features: Array, prompts: Prompts, reader: Reader) -> Attention:
        """Read one block's attention. features: (B or 1, N, D)."""

    def read(self, features: Array, prompts: Prompts, adapter: str | None) -> tuple[Any, Array]:
        """Read B prompts without suffixes. Returns a state, for `step`, and the logits (B, V)."""

    def attend_and_read(
        self, features: Array, prompts: Prompts, reader: Reader
    ) -> tuple[Attention, Any, Array]:
        """`attend` and `read` with the reader's adapter, in one pass over the prompts.

        The reader has a CNN, or none, and no answers; its block is not the first one.
        """

    def step(self, state: Any, tokens: npt.NDArray[np.int64]) -> Array:
        """One more token (B,) a row -> the logits (B, V) of the next one. Changes the state."""

    def rewind(self, state: Any, count: int) -> None:
        """Forget the last `count` tokens of each row. Changes the state."""

    def follow(self, state: Any, tokens: npt.NDArray[np.int64]) -> Array:
        """Teacher forcing: R continuations of T tokens (R, T) -> the logits (R, T, V) after each.

        R / B of them follow each of the state's B rows, in their order; the state stays as it is.
        """

    def memory_bytes(self) -> int:
        """Bytes of weights."""


def grid_side(config: Any) -> int:
    """Side of the attention map in image patches."""
    return int(config.vision_config.image_size // config.vision_config.patch_size)
