# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The ambiguity detector (section III-B): from one block of the decoder to a probability.

A detector is a folder: adapter A, the head's weights (head.safetensors; an AR detector has none)
and detector.json, the settings. `detector_variants` lists the paper's detectors,
`detector_baselines` those that need no training, `heads` has what trains them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.backbone import DETECTOR, Array, Attention, Backbone, Reader
from clue_ros.model.detector_variants import NO, YES
from clue_ros.model.loading import check_shapes, is_number, read_settings, reading
from clue_ros.model.prompts import Prompts, encode_prompts
from clue_ros.model.tensors import read_tensors

SETTINGS_FILE, HEAD_FILE = "detector.json", "head.safetensors"
CNN, ANSWER = "cnn", "ar"
HEADS = (CNN, ANSWER)
CNN_SHAPES: dict[str, tuple[int, ...]] = {
    "features.0.weight": (16, 1, 3, 3), "features.0.bias": (16,),
    "features.2.weight": (32, 16, 3, 3), "features.2.bias": (32,),
    "features.5.weight": (32, 32, 3, 3), "features.5.bias": (32,),
    "decide.0.weight": (64, 576), "decide.0.bias": (64,),
    "decide.3.weight": (1, 64), "decide.3.bias": (1,),
}  # fmt: skip
"""The CNN's weights (`clue_ros.model.heads.CnnHead`)."""


def is_own_head(head: object) -> bool:
    """Whether a head's name is that of a class of one's own, MODULE:CLASS."""
    return isinstance(head, str) and re.fullmatch(r"[\w.]+:\w+", head) is not None


def has_module(settings: DetectorSettings) -> bool:
    """Whether torch alone computes a head: one of one's own, or one behind a learned word."""
    return settings.head not in HEADS or settings.new_word


def check_trusted(head: str, trusted: str | None, place: object) -> None:
    """Raises ModelError for a head of one's own that the user has not named: it is code."""
    if head not in HEADS and head != trusted:
        raise ModelError(
            f"{place}: its head is code, {head}: if you trust it, name it (--head {head}, or"
            " head= of Clue.load)"
        )


@dataclass
class DetectorSettings:
    """detector.json: how this detector was trained, which is how it must be used.

    block: of the decoder, counted from 0. instruction: the conditioning word. head: of `HEADS`, or
    a class of one's own as MODULE:CLASS, which is loaded only where the user names it too.
    threshold: probability from which a sentence counts as ambiguous. temperature: divides the
    logit, which calibrates the probability. new_word: the conditioning word's embeddings are the
    detector's own, in head.safetensors (`clue_ros.model.heads.NewWord`).
    """

    block: int
    instruction: str = "detect"
    head: str = "cnn"
    threshold: float = 0.5
    temperature: float = 1.0
    new_word: bool = False

    def check(self, blocks: int, path: Path) -> None:
        """Raises ModelError if the settings make no sense for a decoder with `blocks` blocks."""
        if self.head not in HEADS and not is_own_head(self.head):
            raise ModelError(f"{path}: unknown head {self.head!r}, want one of {', '.join(HEADS)}")
        if not is_number(self.block, 0, blocks - 1):
            raise ModelError(f"{path}: block {self.block!r} of a decoder with {blocks} blocks")
        if not is_number(self.threshold, 0, 1):
            raise ModelError(f"{path}: threshold {self.threshold!r}, want 0 to 1")
        if not is_number(self.temperature) or not self.temperature > 0:
            raise ModelError(f"{path}: temperature {self.temperature!r}, want a number above 0")
        if not isinstance(self.instruction, str):
            raise ModelError(f"{path}: instruction {self.instruction!r}, want a word")
        if not isinstance(self.new_word, bool):
            raise ModelError(f"{path}: new_word {self.new_word!r}, want true or false")


class Detector:
    """A backbone read at one block through an adapter, by a head. adapter None: the base alone."""

    def __init__(
        self,
        backbone: Backbone,
        settings: DetectorSettings,
        adapter: str | None = DETECTOR,
        *,
        cnn: Mapping[str, Array] | None = None,
        answers: tuple[int, int] | None = None,
        head: Any = None,
    ) -> None:
        self.backbone, self.settings = backbone, settings
        self.reader = Reader(adapter, settings.block, cnn, answers, settings.temperature, head)

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """The detector's prompts for people's words."""
        return encode_prompts(processor, self.settings.instruction, contexts)

    def __call__(self, features: Array, prompts: Prompts) -> tuple[Array, Array]:
        """Features (B or 1, N, D) and B prompts -> probabilities of ambiguity (B,), maps (B, g, g).

        Both float32 in 0..1.
        """
        found: Attention = self.backbone.attend(features, prompts, self.reader)
        assert found.probability is not None
        return found.probability, found.map


def answer_tokens(tokenizer: Any) -> tuple[int, int]:
    """The tokens of yes and no. Raises ModelError where a tokenizer lacks one."""
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in (YES, NO))
    if yes == no or tokenizer.unk_token_id in (yes, no):
        raise ModelError(f"the tokenizer has no tokens for {YES!r} and {NO!r}: no AR detector")
    return yes, no


def load_settings(folder: Path, blocks: int) -> DetectorSettings:
    """Read and check detector.json. Raises ModelError."""
    settings = read_settings(folder / SETTINGS_FILE, DetectorSettings)
    settings.check(blocks, folder / SETTINGS_FILE)
    return settings


def load_cnn(folder: Path) -> dict[str, Array]:
    """The CNN's weights in a detector's folder. Raises ModelError naming file and shape."""
    path = folder / HEAD_FILE
    if not path.is_file():
        raise ModelError(f"{folder} has no {HEAD_FILE}: train it with `clue train detector`")
    with reading(path):
        found = {name: tensor.float32() for name, tensor in read_tensors(path).items()}
    check_shapes(path, {name: array.shape for name, array in found.items()}, CNN_SHAPES)
    return found


def load_detector(
    backbone: Backbone,
    folder: str | Path,
    tokenizer: Any,
    *,
    adapter: str = DETECTOR,
    head: Any = None,
) -> Detector:
    """Adapter A, head and settings from a detector's folder. Raises ModelError.

    adapter: its name among the adapters: several detectors can share one backbone. head: the
    module of `clue_ros.model.heads.load_head`, where `has_module` asks for one.
    """
    folder = Path(folder)
    settings = load_settings(folder, backbone.config.text_config.num_hidden_layers)
    cnn = load_cnn(folder) if settings.head == CNN and head is None else None
    answers = answer_tokens(tokenizer) if settings.head == ANSWER and head is None else None
    backbone.load_adapter(adapter, folder)
    return Detector(backbone, settings, adapter, cnn=cnn, answers=answers, head=head)
