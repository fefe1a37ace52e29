"""What a detector reads its decision from (section IV-A.3): the attention map, or the answer.

CnnHead      a CNN over the map of equations 1 and 2 (the paper's proposal)
AnswerHead   the decoder's own "yes" (ambiguous) or "no", read at the same depth (AR)

Both take the same prompts and say two things of each: a logit, above 0 if ambiguous, and where the
words look, so that every detector can show its map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clue_ros.errors import ModelError
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.backbone import Backbone
from clue_ros.model.processor import Prompts
from clue_ros.model.variants import NO, YES


@dataclass(frozen=True)
class Reading:
    """What a head read of B prompts.

    logits: (B,) float32, above 0 if ambiguous. looks: (B, g, g) float32, where the words look, each
    map summing to 1.
    """

    logits: torch.Tensor
    looks: torch.Tensor


class Head(nn.Module):
    """Reads one block of the decoder, with whatever adapter is active. Differentiable."""

    def read(
        self, backbone: Backbone, block: int, features: torch.Tensor, prompts: Prompts
    ) -> Reading:
        """Features (B or 1, N, D) and B prompts without suffixes -> what the head reads there."""
        raise NotImplementedError


def detector_loss(logits: torch.Tensor, is_ambiguous: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy: logits (B,) against 1.0 for ambiguous, 0.0 for clear."""
    return nn.functional.binary_cross_entropy_with_logits(logits, is_ambiguous.to(logits.dtype))


class CnnHead(Head):
    """The CNN over the map, any grid size: (B, g, g) in 0..1 -> logits (B,), above 0 if ambiguous.

    The paper leaves its layout open. Peaks must stay countable, so the map is pooled late and in
    two ways: into 4x4 parts (where the peaks lie) and as the mean and maximum over all (how many,
    how strong).
    """

    PARTS = 4

    def __init__(self, channels: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels // 2, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels // 2, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
        )
        self.parts = nn.AdaptiveAvgPool2d(self.PARTS)
        self.decide = nn.Sequential(
            nn.Linear(channels * (self.PARTS**2 + 2), 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, 1),
        )

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """(B, g, g) float, g at least 2 -> (B,) logits."""
        seen = self.features(maps.unsqueeze(1))
        parts = self.parts(seen).flatten(1)
        logits: torch.Tensor = self.decide(
            torch.cat([parts, seen.mean((2, 3)), seen.amax((2, 3))], 1)
        )
        return logits.squeeze(1)

    def read(
        self, backbone: Backbone, block: int, features: torch.Tensor, prompts: Prompts
    ) -> Reading:
        """The map at `block`, and the CNN's word on it."""
        attention = backbone.attention_at(block, features, prompts)
        looks = image_attention(attention, prompts.query_mask, backbone.grid)
        return Reading(self(min_max(looks)).float(), looks)


class AnswerHead(Head):
    """The decoder answers: the token after the prompt, through the language model's own head.

    At half depth the hidden state of the middle block goes through the final norm and the head as
    if it were the last one. It has no weights of its own. Only the two answers compete, in training
    as in use: among the whole vocabulary a base that was never taught these two words (the embedded
    one) learns to say them at all before it learns when.
    """

    def __init__(self, yes: int, no: int) -> None:
        super().__init__()
        self.yes, self.no = yes, no

    def read(
        self, backbone: Backbone, block: int, features: torch.Tensor, prompts: Prompts
    ) -> Reading:
        """The logit of "yes" over "no", and the map of the same block."""
        hidden, attention = backbone.hidden_at(block, features, prompts)
        looks = image_attention(attention, prompts.query_mask, backbone.grid)
        last = prompts.attention_mask.sum(1) - 1  # the newline that ends the prefix
        answers = backbone.logits(hidden[torch.arange(len(last), device=last.device), last])
        return Reading(answers[:, self.yes] - answers[:, self.no], looks)


def answer_head(tokenizer: Any) -> AnswerHead:
    """The AR head for a tokenizer. Raises ModelError if it has no words for yes and no."""
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in (YES, NO)]
    if ids[0] == ids[1] or tokenizer.unk_token_id in ids:
        raise ModelError(f"the tokenizer has no tokens for {YES!r} and {NO!r}: no AR detector")
    return AnswerHead(*ids)


# By the name that detector.json gives; each is made for a tokenizer.
HEADS: dict[str, Callable[[Any], Head]] = {"cnn": lambda _tokenizer: CnnHead(), "ar": answer_head}
