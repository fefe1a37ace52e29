# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Detectors that need no training, to compare with (section IV-A): what the decoder says anyway.

decoder-yes-no     the base model is asked whether the sentence is ambiguous, and says yes or no
candidate-count    the base model lists what it detects; more or fewer than one box is ambiguous
decoder-first      adapter B's first token: a question, or a location (Algorithm 1)

Each is used like a trained detector, by its name: `Clue.load(..., detector="candidate-count")`.
Their maps are the middle block's, of the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clue_ros.dialogue.words import noun_phrase
from clue_ros.model.backbone import IVG, Array, Backbone
from clue_ros.model.config import half_depth_block
from clue_ros.model.decoding import Vocabulary, question_share, read_prompts, reply_to
from clue_ros.model.detector import ANSWER, Detector, DetectorSettings, answer_tokens
from clue_ros.model.location_tokens import STEPS
from clue_ros.model.prompts import Prompts, encode_prompts

LISTED_TOKENS = 24  # of a "detect" answer: two boxes with their names and more


class YesNo(Detector):
    """The base model, asked in PaliGemma's form for questions: "answer en QUESTION"."""

    def __init__(self, backbone: Backbone, tokenizer: Any) -> None:
        last = backbone.config.text_config.num_hidden_layers - 1
        settings = DetectorSettings(last, "answer en", ANSWER)
        super().__init__(backbone, settings, None, answers=answer_tokens(tokenizer))

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """One question a context."""
        asked = [f'is "{context}" ambiguous?' for context in contexts]
        return encode_prompts(processor, self.settings.instruction, asked)


class _Decoding(Detector):
    """A baseline that decodes: its map is read apart, by the same weights."""

    def __init__(
        self, backbone: Backbone, tokenizer: Any, instruction: str, adapter: str | None
    ) -> None:
        text = backbone.config.text_config
        settings = DetectorSettings(half_depth_block(text.num_hidden_layers), instruction)
        super().__init__(backbone, settings, adapter)
        self.vocabulary = Vocabulary(tokenizer, text.vocab_size)

    def chance(self, features: Array, prompts: Prompts) -> Array:
        """Probability of ambiguity (B,)."""
        raise NotImplementedError

    def __call__(self, features: Array, prompts: Prompts) -> tuple[Array, Array]:
        """Probabilities (B,), and maps (B, g, g) in 0..1 that no head reads."""
        chance = self.chance(features, prompts)
        return chance, self.backbone.attend(features, prompts, self.reader).map


class CandidateCount(_Decoding):
    """PaliGemma's "detect NAME": ambiguous (1.0) unless exactly one box is listed (0.0)."""

    def __init__(self, backbone: Backbone, tokenizer: Any) -> None:
        super().__init__(backbone, tokenizer, "detect", None)

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """Return the request's phrase without its verb; later turns are not used."""
        names = [noun_phrase(context.split(" assistant: ")[0]) for context in contexts]
        return encode_prompts(processor, self.settings.instruction, names)

    def chance(self, features: Array, prompts: Prompts) -> Array:
        """0.0 or 1.0 (B,)."""
        prefill = read_prompts(self.backbone, features, prompts, None)
        said = reply_to(
            self.backbone, self.vocabulary, prefill, "unconstrained", max_new_tokens=LISTED_TOKENS
        )
        counts = [self.boxes(generation.tokens) for generation in said]
        return np.array([float(n != 1) for n in counts], np.float32)

    def boxes(self, tokens: Sequence[int]) -> int:
        """Number of whole boxes in an answer: runs of four location tokens."""
        first, run, boxes = self.vocabulary.first_location, 0, 0
        for token in tokens:
            run = run + 1 if first <= token < first + STEPS else 0
            if run == 4:
                boxes, run = boxes + 1, 0
        return boxes


class FirstToken(_Decoding):
    """Algorithm 1's own decision: the share of adapter B's first token that is no location."""

    def __init__(self, backbone: Backbone, tokenizer: Any) -> None:
        super().__init__(backbone, tokenizer, "clarify", IVG)

    def chance(self, features: Array, prompts: Prompts) -> Array:
        """1 - the probability of all location tokens (B,)."""
        prefill = read_prompts(self.backbone, features, prompts, IVG)
        return question_share(self.vocabulary, prefill)


FIRST_TOKEN = "decoder-first"
BASELINES: dict[str, Callable[[Backbone, Any], Detector]] = {
    "decoder-yes-no": YesNo,
    "candidate-count": CandidateCount,
    FIRST_TOKEN: FirstToken,
}
