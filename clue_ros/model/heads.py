# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The detector's heads and their losses, in torch: for training, and beside transformers' model.

The CNN reads a map (section III-B.2); the autoregressive head answers yes or no (IV-A.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from clue_ros.errors import ModelError
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.detector import HEAD_FILE, SETTINGS_FILE, DetectorSettings, answer_tokens
from clue_ros.model.loading import check_shapes, first_line, shapes, write_json
from clue_ros.model.prompts import Prompts


@dataclass(frozen=True)
class Reading:
    """The output of a head for B prompts.

    logits: (B,) float32, above 0 if ambiguous. attention: (B, g, g) float32, equation 2, each map
    summing to 1. answers: (B, V) float32, the logits of every token as the answer; of an AR head.
    """

    logits: torch.Tensor
    attention: torch.Tensor
    answers: torch.Tensor | None = None


class Decoder(Protocol):
    """What a head reads; see `clue_ros.model.torch_backbone.TorchModel`."""

    grid: int

    def attention_at(self, block: int, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """A block's attention (B, H, T, T)."""

    def hidden_at(
        self, block: int, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The hidden states (B, T, D) after a block, normed, and its attention."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) -> logits (..., V)."""


class Head(nn.Module):
    """Reads one block of the decoder, with the active adapter. Differentiable."""

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """Run features (B or 1, N, D) and B prompts without suffixes up to `block`."""
        raise NotImplementedError


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
        pooled = [self.parts(seen).flatten(1), seen.mean((2, 3)), seen.amax((2, 3))]
        logits: torch.Tensor = self.decide(torch.cat(pooled, 1))
        return logits.squeeze(1)

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """The CNN's logits for the map at `block`, and the map."""
        weights = model.attention_at(block, features, prompts)
        attention = image_attention(weights, prompts.query_mask, model.grid)
        return Reading(self(min_max(attention)).float(), attention)


class AnswerHead(Head):
    """The AR head: the decoder answers yes or no, through the language model's own head.

    At half depth the hidden state of the middle block goes through the final norm and the head as
    if it were the last one. It has no weights of its own. In use only the two answers compete, so
    that there is always one, with a probability.
    """

    def __init__(self, yes: int, no: int) -> None:
        super().__init__()
        self.yes, self.no = yes, no

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """The logit of "yes" over "no" after the prompt, and the map of the same block."""
        hidden, weights = model.hidden_at(block, features, prompts)
        attention = image_attention(weights, prompts.query_mask, model.grid)
        last = prompts.attention_mask.sum(1) - 1  # the newline that ends the prefix
        answers = model.logits(hidden[torch.arange(len(last), device=last.device), last])
        return Reading(answers[:, self.yes] - answers[:, self.no], attention, answers)

    def generation_loss(
        self, answers: torch.Tensor, is_ambiguous: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of generating the answer, as the paper trains it: among the whole vocabulary.

        answers: (B, V) logits. is_ambiguous: (B,) 0. or 1. Returns the cross-entropy of the right
        answer's token, and the probability of "yes" and "no" together, both means over B. A base
        that never saw these words (the embedded one) learns to say them before it learns when;
        `detector_loss` on `Reading.logits` lets the two words alone compete.
        """
        targets = torch.where(is_ambiguous > 0.5, self.yes, self.no)
        log_p = answers.log_softmax(-1)
        said = log_p[:, [self.yes, self.no]].exp().sum(-1).mean()
        return nn.functional.nll_loss(log_p, targets), said


def answer_head(tokenizer: Any) -> AnswerHead:
    """The AR head for a tokenizer. Raises ModelError if it has no words for yes and no."""
    return AnswerHead(*answer_tokens(tokenizer))


# By the name in detector.json; each is made for a tokenizer.
HEADS: dict[str, Callable[[Any], Head]] = {"cnn": lambda _tokenizer: CnnHead(), "ar": answer_head}


def detector_loss(logits: torch.Tensor, is_ambiguous: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy: logits (B,) against 1.0 for ambiguous, 0.0 for clear."""
    return nn.functional.binary_cross_entropy_with_logits(logits, is_ambiguous.to(logits.dtype))


def probability(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """sigmoid(logit / temperature); the temperature calibrates it on validation data."""
    return torch.sigmoid(logits.float() / temperature)


def save_head(head: Head, settings: DetectorSettings, folder: str | Path, **notes: Any) -> None:
    """Write head.safetensors and detector.json, with `notes` (data, scores) beside the settings."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}
    if tensors:
        save_file(tensors, folder / HEAD_FILE, metadata={"format": "pt"})
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


def load_head(folder: Path, name: str, tokenizer: Any) -> Head:
    """Build the named head and fill it from head.safetensors, if it has weights.

    Raises ModelError naming file and shape.
    """
    head, path = HEADS[name](tokenizer), folder / HEAD_FILE
    wanted = head.state_dict()
    if not wanted:
        return head.eval()
    if not path.is_file():
        raise ModelError(f"{folder} has no {HEAD_FILE}: train it with `clue train detector`")
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    check_shapes(path, shapes(state), shapes(wanted))
    head.load_state_dict({key: state[key] for key in wanted})
    return head.eval()
