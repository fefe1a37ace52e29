"""The asker's half of adapter B: how likely the dialogues' own questions are to it (section IV-B).

Teacher-forced: each question is scored after the true dialogue up to it. A low perplexity says that
the model expects such questions; it says nothing of the questions that it asks itself. So it is
also made to ask, and the share of its questions that go for the same thing as the true one
(colour, kind or place) is counted; only of dialogues in our oracle's words, where that is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from clue_ros.data.invig import reveal_pairs
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError
from clue_ros.evaluation.ivg_data import Told
from clue_ros.evaluation.metrics import ratio
from clue_ros.evaluation.tabletop import question_axis
from clue_ros.model.adapters import IVG
from clue_ros.model.checkpoint import Checkpoint
from clue_ros.model.processor import encode_prompts, escape


def score_questions(
    clue: Clue, told: Sequence[Told], *, axes: bool
) -> dict[str, float | int | None]:
    """Token accuracy, perplexity and, with `axes`, the share of the right axis of all questions.

    told: picture by picture. Pictures that cannot be read are left out. A share of nothing is None.
    """
    checkpoint = clue.checkpoint
    loss, right, tokens, questions, same_axis = 0.0, 0, 0, 0, 0
    seen: tuple[str, torch.Tensor] | None = None
    for item in told:
        sample = item.sample
        if not sample.exchanges:
            continue
        if seen is None or seen[0] != sample.image_id:
            try:
                seen = sample.image_id, checkpoint.look(sample.load())
            except BadImageError:
                continue
        for context, question in reveal_pairs(sample)[:-1]:
            one_loss, one_right, length = _forced(checkpoint, seen[1], context, question)
            loss, right, tokens = loss + one_loss, right + one_right, tokens + length
            questions += 1
            if axes:
                said = checkpoint.words(checkpoint.speak(seen[1], context, "question"))
                same_axis += question_axis(said) == question_axis(question)
    shares: dict[str, float | int | None] = {
        "token_accuracy": _plain(ratio(right, tokens)),
        "perplexity": _plain(math.exp(loss / tokens) if tokens else math.nan),
    }
    if axes:
        shares["right_axis"] = _plain(ratio(same_axis, questions))
    return shares | {"n": questions}


@torch.inference_mode()
def _forced(
    checkpoint: Checkpoint, features: torch.Tensor, context: str, question: str
) -> tuple[float, int, int]:
    """Of a question and its <eos>: summed cross-entropy, tokens that were likeliest, tokens."""
    checkpoint.adapters.use(IVG)
    suffix = escape(question, checkpoint.processor.tokenizer)
    prompts = encode_prompts(
        checkpoint.processor, checkpoint.ivg.instruction, [context], [suffix]
    ).to(checkpoint.backbone.device)
    hidden, _ = checkpoint.backbone.forward(features, prompts)
    labels = prompts.labels[:, 1:]
    asked = labels != -100
    logits = checkpoint.backbone.logits(hidden[:, :-1][asked])
    targets: Any = labels[asked]
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    return float(loss), int((logits.argmax(-1) == targets).sum()), int(asked.sum())


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
