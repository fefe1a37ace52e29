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

from clue_ros.data.invig import reveal_pairs
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError
from clue_ros.evaluation.ivg_data import Told
from clue_ros.evaluation.metrics import ratio, rounded
from clue_ros.evaluation.tabletop import question_axis


def score_questions(
    clue: Clue, told: Sequence[Told], *, axes: bool
) -> dict[str, float | int | None]:
    """Token accuracy, perplexity and, with `axes`, the share of the right axis of all questions.

    told: picture by picture. Pictures that cannot be read are left out. A share of nothing is None.
    """
    checkpoint = clue.checkpoint
    loss, right, tokens, questions, same_axis = 0.0, 0, 0, 0, 0
    seen: tuple[str, Any] | None = None
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
            one_loss, one_right, length = checkpoint.forced(seen[1], context, question)
            loss, right, tokens = loss + one_loss, right + one_right, tokens + length
            questions += 1
            if axes:
                said = checkpoint.words(checkpoint.speak(seen[1], context, "question"))
                same_axis += question_axis(said) == question_axis(question)
    shares: dict[str, float | int | None] = {
        "token_accuracy": rounded(ratio(right, tokens)),
        "perplexity": rounded(math.exp(loss / tokens) if tokens else math.nan),
    }
    if axes:
        shares["right_axis"] = rounded(ratio(same_axis, questions))
    return shares | {"n": questions}
