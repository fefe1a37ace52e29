"""One dialogue as a state machine: the paper's Algorithm 1 with a person in the loop, without ROS.

The caller feeds events in (a reply of the model, an answer of the person, an end from outside) and
does what the returned step says: run the model, put a question to the person, or finish.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from clue_ros.dialogue import Dialogue, Grounding, Question, Turn
from clue_ros.errors import ClueError


class Phase(Enum):
    """What a dialogue is doing."""

    THINKING = "thinking"
    WAITING = "waiting for an answer"
    FINISHED = "finished"


@dataclass(frozen=True)
class Think:
    """Run the model on the dialogue."""


@dataclass(frozen=True)
class Ask:
    """Put this question to the person and wait for `Conversation.answer`."""

    question: Question


@dataclass(frozen=True)
class Outcome:
    """How a dialogue ended.

    Attributes:
        code: NONE, or the name of an error in clue_msgs.
        message: one line for a person; empty when code is NONE.
        grounding: what the request names, only when code is NONE.
    """

    code: str
    message: str = ""
    grounding: Grounding | None = None


Step = Think | Ask | Outcome


@dataclass
class Conversation:
    """The state of one dialogue. Not thread-safe: its owner calls it under one lock.

    `clock` gives the time of each turn, in seconds since the epoch.

    Raises (on construction): EmptyExpressionError, BadExpressionError from the request's text.
    """

    request: str
    max_questions: int
    clock: Callable[[], float] = time.time
    dialogue: Dialogue = field(init=False)
    phase: Phase = field(init=False, default=Phase.THINKING)
    outcome: Outcome | None = field(init=False, default=None)
    stamps: list[float] = field(init=False, default_factory=list)  # of each turn

    def __post_init__(self) -> None:
        """Open the dialogue with the request."""
        self.dialogue = Dialogue(self.request)
        self.request = self.dialogue.request  # cleaned
        self.stamps.append(self.clock())

    @property
    def spoken(self) -> list[tuple[Turn, float]]:
        """Every turn so far, the request first, with its time in seconds since the epoch."""
        return list(zip(self.dialogue.turns, self.stamps, strict=True))

    def reply(self, reply: Question | Grounding) -> Step:
        """Take the model's reply.

        A question beyond `max_questions` ends the dialogue with MAX_TURNS.
        """
        if self.phase is not Phase.THINKING:
            raise RuntimeError(
                f"a reply of the model came while the dialogue was {self.phase.value}"
            )
        if isinstance(reply, Grounding):
            return self.end(Outcome("NONE", grounding=reply))
        if self.dialogue.questions >= self.max_questions:
            return self.end(
                Outcome(
                    "MAX_TURNS",
                    f"still unclear after {self.dialogue.questions} questions (max_questions): "
                    "say it in other words",
                )
            )
        self.dialogue.add_question(reply.text)
        self.stamps.append(self.clock())
        self.phase = Phase.WAITING
        return Ask(reply)

    def answer(self, text: str) -> Step:
        """Take the person's answer.

        Raises:
            ClueError: the text is empty or unreadable; the dialogue still waits.
        """
        if self.phase is not Phase.WAITING:
            raise RuntimeError(f"an answer came while the dialogue was {self.phase.value}")
        self.dialogue.add_answer(text)
        self.stamps.append(self.clock())
        self.phase = Phase.THINKING
        return Think()

    def fail(self, error: Exception) -> Outcome:
        """End the dialogue with the code of a ClueError, or MODEL_ERROR for anything else."""
        if isinstance(error, ClueError):
            return self.end(Outcome(error.code, str(error)))
        return self.end(Outcome("MODEL_ERROR", f"{type(error).__name__}: {error}"))

    def end(self, outcome: Outcome) -> Outcome:
        """End the dialogue from outside (cancel, timeout, deactivation); the first end counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.phase = Phase.FINISHED
        return self.outcome


def in_words(outcome: Outcome) -> str:
    """Return the short sentence the robot says at the end of a dialogue."""
    if outcome.code == "NONE" and outcome.grounding is not None:
        label = outcome.grounding.label.strip()
        return f"I see the {label.removeprefix('the ')}." if label else "I see it."
    return _SPOKEN.get(outcome.code, "Something went wrong, please try again.")


_SPOKEN = {
    "INACTIVE": "I am not active right now.",
    "NO_IMAGE": "I cannot see anything, the camera sends no image.",
    "STALE_IMAGE": "I cannot see anything new, the camera has stopped.",
    "BAD_IMAGE": "I cannot read the camera image.",
    "EMPTY_EXPRESSION": "I did not hear anything, please say it again.",
    "BAD_EXPRESSION": "I did not understand that, please say it in other words.",
    "BUSY": "One moment, I am still busy.",
    "MODEL_ERROR": "Something went wrong while I was looking, please try again.",
    "ANSWER_TIMEOUT": "I did not hear an answer, so I stop here.",
    "MAX_TURNS": "I still do not know which one you mean, please say it in other words.",
    "CANCELED": "All right, I stop.",
}
