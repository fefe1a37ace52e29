"""A dialogue as the sequence of its states, for training."""

from __future__ import annotations

from dataclasses import dataclass

from clue_ros.lab.language.references import Candidates

MAX_ASKED = 3
"""Most questions in a generated dialogue."""


@dataclass(frozen=True)
class DialogueState:
    """A dialogue before the robot's next turn, with the turn that the robot should take.

    context: the dialogue so far, C(k). candidates: indices of the objects that the person may mean:
    one when clear, several when ambiguous, none when no object fits. question: the robot's;
    None when it should point. options: the object behind each option of the question, as (index of
    the option's word in the question, object). via: the objects counted before the one meant, in
    order (`references.counted_before`), where the grammar gives them.
    """

    context: str
    candidates: Candidates
    question: str | None
    options: tuple[tuple[int, int], ...] = ()
    via: tuple[int, ...] = ()

    @property
    def ambiguous(self) -> bool:
        """The detector's label: True if a question is needed."""
        return len(self.candidates) != 1
