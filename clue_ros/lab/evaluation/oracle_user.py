"""The oracle as the person of a dialogue, with one box in mind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clue_ros.dialogue.types import SAME_BOX, Box, Dialogue
from clue_ros.model.location_tokens import Codes, encode_box

if TYPE_CHECKING:
    from clue_ros.model.oracle import Oracle

RATIONALITY = 4.0
"""Weight of an answer's fit to the oracle's box against the other proposals. Chosen on simulated
validation scenes."""
MOST_OTHERS = 15
"""Other proposals compared with an answer: each costs as much as the answer's own prompt."""


class OracleUser:
    """The oracle as the person of a dialogue: it keeps the dialogue and answers each question."""

    def __init__(
        self,
        oracle: Oracle,
        features: Callable[[], Any],
        request: str,
        box: Box,
        proposals: Callable[[], Sequence[Box]],
        rationality: float,
    ) -> None:
        """features: of the image, (1, N, D). request: the person's first words.

        box: of the person's object. proposals: of the image's objects. Boxes are in fractions.
        """
        self._oracle, self._features, self._box = oracle, features, box
        self._proposals, self._rationality = proposals, rationality
        self._dialogue = Dialogue(request)

    def __call__(self, question: str) -> str:
        """Answer a question."""
        self._dialogue.add_question(question)
        said = self._oracle.answer(
            self._features(),
            encode_box(self._box, 1, 1),
            self._dialogue.context(),
            self._others if self._rationality else (),
            self._rationality,
        )
        if not any(c.isalnum() for c in said):
            said = "i am not sure"
        self._dialogue.add_answer(said)
        return said

    @cached_property
    def _others(self) -> list[Codes]:
        """Return the proposals other than the person's object; of many the nearest ones.

        Once for all questions: a detector may propose.
        """

        def distance(other: Box) -> float:
            return math.dist(self._box.center, other.center)

        others = sorted((p for p in self._proposals() if p.iou(self._box) < SAME_BOX), key=distance)
        return [encode_box(other, 1, 1) for other in others[:MOST_OTHERS]]
