# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The detector's heads and their losses, in torch: for training, and beside transformers' model.

The CNN reads a map (section III-B.2); the autoregressive head answers yes or no (IV-A.3).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
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
from clue_ros.model.loading import (
    check_shapes,
    first_line,
    imported_function,
    replacing,
    shapes,
    write_json,
)
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
    """The decoder for a head; see `clue_ros.model.torch_backbone.TorchModel`."""

    grid: int

    def attention_at(self, block: int, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """A block's attention (B, H, T, T)."""

    def hidden_at(
        self, block: int, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The hidden states (B, T, D) after a block, normed, and its attention."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) -> logits (..., V)."""

    def saying(self, word: torch.Tensor) -> AbstractContextManager[None]:
        """Within it, the conditioning word's tokens have these embeddings (k, D)."""


class Head(nn.Module):
    """Reads one block of the decoder, with the active adapter. Differentiable.

    A head of one's own is a subclass, or one of `MapHead`, that is made without arguments.
    """

    @classmethod
    def make(cls, tokenizer: Any) -> Head:
        """A new head for a model with this tokenizer."""
        return cls()

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """Run features (B or 1, N, D) and B prompts without suffixes up to `block`."""
        raise NotImplementedError


class MapHead(Head):
    """A head over the map (equations 1 and 2, min-max): (B, g, g) in 0..1 -> logits (B,)."""

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """The head's logits for the map at `block`, and the map."""
        weights = model.attention_at(block, features, prompts)
        attention = image_attention(weights, prompts.query_mask, model.grid)
        return Reading(self(min_max(attention)).float(), attention)


class CnnHead(MapHead):
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


class AnswerHead(Head):
    """The AR head: the decoder answers yes or no, through the language model's own head.

    At half depth the hidden state of the middle block goes through the final norm and the head as
    if it were the last one. It has no weights of its own. In use only the two answers compete, so
    that there is always one, with a probability.
    """

    def __init__(self, yes: int, no: int) -> None:
        super().__init__()
        self.yes, self.no = yes, no

    @classmethod
    def make(cls, tokenizer: Any) -> AnswerHead:
        """The head for a tokenizer. Raises ModelError if it has no words for yes and no."""
        return cls(*answer_tokens(tokenizer))

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


class NewWord(Head):
    """A head whose conditioning word is a new token: its embeddings (k, D) are learned with it.

    The paper's "disambiguate" (IV-A.3), which no pre-training has seen. They stand in place of the
    embeddings of the word's own k tokens, as the decoder takes them (Gemma's scale is in them).
    """

    def __init__(self, head: Head, embeddings: torch.Tensor) -> None:
        super().__init__()
        self.head = head
        self.word = nn.Parameter(embeddings.detach().float().clone())

    def read(self, model: Decoder, block: int, features: torch.Tensor, prompts: Prompts) -> Reading:
        """What the head reads after the learned word."""
        with model.saying(self.word):
            return self.head.read(model, block, features, prompts)


def plain_head(head: Head) -> Head:
    """The head behind a new word, or the head itself."""
    return plain_head(head.head) if isinstance(head, NewWord) else head


HEADS: dict[str, type[Head]] = {"cnn": CnnHead, "ar": AnswerHead}
"""By the name in detector.json."""


def head_class(name: str) -> type[Head]:
    """The class of a head's name: of `HEADS`, or MODULE:CLASS, which is imported.

    Raises ModelError for what is no head.
    """
    if name in HEADS:
        return HEADS[name]
    found: Any = imported_function(name)
    if not (isinstance(found, type) and issubclass(found, Head)):
        raise ModelError(f"{name} is no head: want a subclass of clue_ros.model.heads.Head")
    return found


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
        with replacing(folder / HEAD_FILE) as partial:
            save_file(tensors, partial, metadata={"format": "pt"})
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


def load_head(folder: Path, name: str, tokenizer: Any, *, new_word: bool = False) -> Head:
    """Build the named head and fill it from head.safetensors, if it has weights.

    new_word: whether the file has the embeddings of a conditioning word too (`NewWord`).

    Whoever calls it trusts a name MODULE:CLASS (`detector.check_trusted`). Raises ModelError naming
    file and shape.
    """
    head, path = head_class(name).make(tokenizer), folder / HEAD_FILE
    if not new_word and not head.state_dict():
        return head.eval()
    if not path.is_file():
        raise ModelError(f"{folder} has no {HEAD_FILE}: train it with `clue train detector`")
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    if new_word:
        if "word" not in state or state["word"].ndim != 2:
            raise ModelError(f"{path} lacks the embeddings of the conditioning word")
        head = NewWord(head, state["word"])
    wanted = head.state_dict()
    check_shapes(path, shapes(state), shapes(wanted))
    head.load_state_dict({key: state[key] for key in wanted})
    return head.eval()
