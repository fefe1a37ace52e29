"""Algorithm 1 of the paper: reply, ask, hear the answer, until the robot points.

`Conversation` is the algorithm as a state machine. Its caller feeds it events (a reply of the
model, an answer of the person, an end from outside) and does what the returned step says: run the
model, put a question to the person, or finish. A ROS node drives it step by step, because it must
wait without blocking. `converse` drives it to its end, for the command line and the evaluation.

    Algorithm 1                                       here
    C <- U                                            Conversation(request)
    repeat: R <- model(image, C)                      Think -> clue.reply -> Conversation.reply
        if R is a location: return the box            Outcome("NONE", grounding=...)
        ask R, hear the answer H                      Ask -> Conversation.answer
        C <- C || "assistant: " R "user: " H          Dialogue.context

The paper sets no limit to the questions. Here `max_questions` ends the dialogue with MAX_TURNS, or
with `force_grounding` makes the model point at its best guess.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from clue_ros.dialogue.sayings import ending
from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    Turn,
)
from clue_ros.dialogue.words import asks_yes_or_no, means_yes
from clue_ros.errors import ClueError


class Phase(Enum):
    """What a dialogue is doing."""

    THINKING = "thinking"
    WAITING = "waiting for an answer"
    FINISHED = "finished"


@dataclass(frozen=True)
class Think:
    """Run the model on the dialogue; with `force` it must point."""

    force: bool = False


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

    max_questions: questions before the dialogue ends with MAX_TURNS (NOT_FOUND where the model sees
    no such thing). force_grounding: the model points at its best guess instead. clock: time of each
    turn, in seconds since the epoch. language: of the person's yes and no.

    Raises (on construction): EmptyExpressionError, BadExpressionError from the request's text.
    """

    request: str
    max_questions: int = MAX_QUESTIONS
    clock: Callable[[], float] = time.time
    language: str = "en"
    force_grounding: bool = False
    dialogue: Dialogue = field(init=False)
    phase: Phase = field(init=False, default=Phase.THINKING)
    outcome: Outcome | None = field(init=False, default=None)
    stamps: list[float] = field(init=False, default_factory=list)  # of each turn
    _open: Question | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Open the dialogue with the request."""
        self.dialogue = Dialogue(self.request)
        self.request = self.dialogue.request  # cleaned
        self.stamps.append(self.clock())

    @property
    def spoken(self) -> list[tuple[Turn, float]]:
        """Every turn so far, the request first, with its time in seconds since the epoch."""
        return list(zip(self.dialogue.turns, self.stamps, strict=True))

    def think(self) -> Think:
        """Return how to run the model on the dialogue as it stands."""
        return Think(self.force_grounding and self.dialogue.questions >= self.max_questions)

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
        if self.dialogue.questions >= self.max_questions and isinstance(reply, NotFound):
            return self.end(Outcome("NOT_FOUND", reply.text))
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
        self._open = reply
        self.phase = Phase.WAITING
        return Ask(reply)

    def answer(self, text: str) -> Step:
        """Take the person's answer.

        Yes to a question about a single candidate points at it.

        Raises:
            ClueError: the text is empty or unreadable; the dialogue still waits.
        """
        if self.phase is not Phase.WAITING:
            raise RuntimeError(f"an answer came while the dialogue was {self.phase.value}")
        self.dialogue.add_answer(text)
        self.stamps.append(self.clock())
        self.phase = Phase.THINKING
        asked = self._open
        confirms = asked is not None and offers_yes(asked) and len(asked.candidates) == 1
        if asked is not None and confirms and means_yes(text, self.language):
            found = Grounding(asked.candidates[0], "", math.nan, asked.ambiguity)
            return self.end(Outcome("NONE", grounding=found))
        return self.think()

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


class Grounder(Protocol):
    """The part of `clue_ros.engine.Clue` that a conversation needs."""

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask or point; with `force_grounding` point."""


def converse(
    clue: Grounder,
    view: Any,
    conversation: Conversation,
    answer: Callable[[Question], str | None],
    on_reply: Callable[[Question | Grounding], None] = lambda _reply: None,
) -> Outcome | None:
    """Hold a conversation to its end, and return how it ended.

    answer: what the person says to a question; None leaves the conversation waiting, and so does
    the result. on_reply: told each reply of the model, before the person is.

    Raises ClueError from the model, or from an answer that cannot be used.
    """
    step: Step = conversation.think()
    while not isinstance(step, Outcome):
        if isinstance(step, Ask):
            text = answer(step.question)
            if text is None:
                return None
            step = conversation.answer(text)
        else:
            reply = clue.reply(view, conversation.dialogue, force_grounding=step.force)
            on_reply(reply)
            step = conversation.reply(reply)
    return step


def in_words(outcome: Outcome, language: str = "en") -> str:
    """Return the short sentence the robot says at the end of a dialogue."""
    found = outcome.grounding.label.strip().removeprefix("the ") if outcome.grounding else ""
    code = "" if outcome.code == "NONE" and outcome.grounding is None else outcome.code
    return ending(code, language, found)


def offers_yes(question: Question) -> bool:
    """Whether yes or no answers the question, and not one of several names."""
    return asks_yes_or_no(question.suggested_answers)
