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

import torch

from clue_ros.dialogue.words import noun_phrase
from clue_ros.model.adapters import IVG, Adapters
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.backbone import Backbone
from clue_ros.model.config import half_depth_block
from clue_ros.model.decoding import Vocabulary, generate, question_share, read_prompts
from clue_ros.model.detector import CnnHead, Detector, DetectorSettings, answer_head
from clue_ros.model.location_tokens import STEPS
from clue_ros.model.prompts import Prompts, encode_prompts

LISTED_TOKENS = 24  # of a "detect" answer: two boxes with their names and more


class YesNo(Detector):
    """The base model, asked in PaliGemma's form for questions: "answer en QUESTION"."""

    def __init__(self, backbone: Backbone, adapters: Adapters, tokenizer: Any) -> None:
        settings = DetectorSettings(backbone.blocks - 1, "answer en", "ar")
        super().__init__(backbone, adapters, answer_head(tokenizer), settings, None)

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """One question a context."""
        asked = [f'is "{context}" ambiguous?' for context in contexts]
        return encode_prompts(processor, self.settings.instruction, asked).to(self.backbone.device)


class _Decoding(Detector):
    """A baseline that decodes: its map is read apart, by the same weights."""

    def __init__(
        self,
        backbone: Backbone,
        adapters: Adapters,
        tokenizer: Any,
        instruction: str,
        adapter: str | None,
    ) -> None:
        settings = DetectorSettings(half_depth_block(backbone.blocks), instruction)
        super().__init__(backbone, adapters, CnnHead(), settings, adapter)
        self.vocabulary = Vocabulary(tokenizer, backbone.text.vocab_size, backbone.device)

    def chance(self, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """Probability of ambiguity (B,)."""
        raise NotImplementedError

    def __call__(
        self, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities (B,), and maps (B, g, g) in 0..1 that no head reads."""
        self.adapters.use(self.adapter)
        chance = self.chance(features, prompts)
        attention, words = self.backbone.word_attention(self.settings.block, features, prompts)
        return chance, min_max(image_attention(attention, words, self.backbone.grid))


class CandidateCount(_Decoding):
    """PaliGemma's "detect NAME": ambiguous (1.0) unless exactly one box is listed (0.0)."""

    def __init__(self, backbone: Backbone, adapters: Adapters, tokenizer: Any) -> None:
        super().__init__(backbone, adapters, tokenizer, "detect", None)

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """What the request names, without its verb; later turns are not used."""
        names = [noun_phrase(context.split(" assistant: ")[0]) for context in contexts]
        return encode_prompts(processor, self.settings.instruction, names).to(self.backbone.device)

    def chance(self, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """0.0 or 1.0 (B,)."""
        said = generate(
            self.backbone,
            self.vocabulary,
            features,
            prompts,
            "unconstrained",
            max_new_tokens=LISTED_TOKENS,
        )
        counts = [self._boxes(generation.tokens) for generation in said]
        return torch.tensor([float(n != 1) for n in counts], device=self.backbone.device)

    def _boxes(self, tokens: Sequence[int]) -> int:
        """Whole boxes: runs of four location tokens."""
        first, run, boxes = self.vocabulary.first_location, 0, 0
        for token in tokens:
            run = run + 1 if first <= token < first + STEPS else 0
            if run == 4:
                boxes, run = boxes + 1, 0
        return boxes


class FirstToken(_Decoding):
    """Algorithm 1's own decision: the share of adapter B's first token that is no location."""

    def __init__(self, backbone: Backbone, adapters: Adapters, tokenizer: Any) -> None:
        super().__init__(backbone, adapters, tokenizer, "clarify", IVG)

    def chance(self, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """1 - the probability of all location tokens (B,)."""
        prefill = read_prompts(self.backbone, features, prompts)
        return question_share(self.vocabulary, prefill)


FIRST_TOKEN = "decoder-first"
BASELINES: dict[str, Callable[[Backbone, Adapters, Any], Detector]] = {
    "decoder-yes-no": YesNo,
    "candidate-count": CandidateCount,
    FIRST_TOKEN: FirstToken,
}
