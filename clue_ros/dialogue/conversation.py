# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
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

The paper's model reads every H as an answer. Here `clue_ros.dialogue.reading` reads it first: a
stop or a refusal ends the dialogue with CANCELED, "wait" keeps the question open, side talk is
ignored, what names nothing that was asked has it asked once more, and a request for another object
starts C over. The model never reads these (docs/reading.md, "To an open question"). Where it is in
doubt whether something is wanted, the model is run, and its box is confirmed before the robot
points: "Should I take the banana?".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from clue_ros.dialogue.grounder import Replier
from clue_ros.dialogue.naming import Named, Naming, read_naming
from clue_ros.dialogue.object_names import same_noun
from clue_ros.dialogue.reading import (
    Kind,
    Reading,
    after_no,
    calls_off,
    is_other,
    leaves_open,
    read,
    wants,
)
from clue_ros.dialogue.sayings import Saying, ending, in_other_words, language_of, say, this_one
from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    Turn,
    asked_about,
    clean_text,
)
from clue_ros.dialogue.words import named_object, offered_answers
from clue_ros.errors import BadExpressionError, ClueError, NothingWantedError

MAX_WAITS = 10  # times that a question is held open by "wait"


class Phase(Enum):
    """The state of a dialogue."""

    THINKING = "thinking"
    WAITING = "waiting for an answer"
    FINISHED = "finished"


@dataclass(frozen=True)
class Think:
    """Run the model on the dialogue; with `force` it must point."""

    force: bool = False


@dataclass(frozen=True)
class Ask:
    """Put this question to the person and wait for `Conversation.answer`.

    Attributes:
        question: what is open.
        instead: empty when the question is new; else it stays open, and the robot says this.
        unanswered: the last answer named nothing that was asked.
    """

    question: Question
    instead: str = ""
    unanswered: bool = False


@dataclass(frozen=True)
class Ignored:
    """The words are no answer and no request: the question stays open, and nothing is said."""

    question: Question
    text: str


@dataclass(frozen=True)
class Heard:
    """A person's words as they were read, with the open question; ignored words too.

    about, offered: see `clue_ros.dialogue.reading.read`. stamp: seconds since the epoch.
    """

    text: str
    kind: str
    confidence: float
    about: str = ""
    offered: tuple[str, ...] = ()
    stamp: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The end of a dialogue.

    Attributes:
        code: NONE, or the name of an error in clue_msgs.
        message: one line for a person; empty when code is NONE.
        grounding: what the request names, only when code is NONE.
        quiet: nobody is answered: what was said did not concern the robot.
    """

    code: str
    message: str = ""
    grounding: Grounding | None = None
    quiet: bool = False


Step = Think | Ask | Ignored | Outcome


@dataclass
class Conversation:
    """The state of one dialogue. Not thread-safe: its owner calls it under one lock.

    max_questions: questions before the dialogue ends with MAX_TURNS (NOT_FOUND where the model sees
    no such thing). force_grounding: the model points at its best guess instead. clock: time of each
    turn, in seconds since the epoch. language: of the robot's own sentences. reading: the
    request as `wanted` read it; None: it is read here.
    heard: all that the person said, as it was read. named: what the person called things in the
    picture; who has the model teaches it (`clue_ros.engine.Clue.teach`).

    Raises (on construction): EmptyExpressionError, BadExpressionError or NothingWantedError from
    the request's text.
    """

    request: str
    max_questions: int = MAX_QUESTIONS
    clock: Callable[[], float] = time.time
    language: str = "en"
    force_grounding: bool = False
    reading: Reading | None = None
    dialogue: Dialogue = field(init=False)
    phase: Phase = field(init=False, default=Phase.THINKING)
    outcome: Outcome | None = field(init=False, default=None)
    heard: list[Heard] = field(init=False, default_factory=list)
    named: list[Named] = field(init=False, default_factory=list)
    _stamps: list[float] = field(init=False, default_factory=list)  # of each turn
    _earlier: tuple[Turn, ...] = field(init=False, default=())  # about an earlier request
    _open: Question | None = field(init=False, default=None)
    _asked_again: bool = field(init=False, default=False)
    _waits: int = field(init=False, default=0)
    _in_doubt: bool = field(init=False, default=False)  # whether anything is wanted
    _held: Grounding | None = field(init=False, default=None)  # until it is confirmed
    _unknown: str = field(init=False, default="")  # the name that the model does not know

    def __post_init__(self) -> None:
        """Open the dialogue with the request."""
        request = self.request
        said = self.reading or wanted(request)
        self._begin(said)
        self._note(request, said, "", ())

    def hold(self, reply: Question | Grounding) -> Question | Grounding:
        """Turn the model's box into a question, where it is in doubt whether anything is wanted.

        The box is the question's only candidate. A model's "this one?" is put in the language of
        the dialogue. It returns any other reply unchanged.
        """
        if isinstance(reply, Question) and reply.confirm and language_of(self.language) != "en":
            return replace(reply, text=this_one("".join(reply.labels), self.language))
        if not isinstance(reply, Grounding):
            return reply
        if self._unknown and not self._in_doubt:
            return asked_about(replace(reply, label=""), this_one("", self.language))
        if not self._in_doubt:
            return reply
        self._held = reply
        return self.confirmation(reply)

    def confirmation(self, reply: Grounding) -> Question:
        """The question whether the model's box is meant. The box is its only candidate."""
        label = f"the {reply.label}" if reply.label else "that"
        text = say(Saying.SHOULD_I, self.language, label=label)
        return asked_about(reply, text)

    @property
    def spoken(self) -> list[tuple[Turn, float]]:
        """Every turn so far, the first request first, with its time in seconds since the epoch."""
        return list(zip((*self._earlier, *self.dialogue.turns), self._stamps, strict=True))

    @property
    def questions(self) -> int:
        """Number of questions asked, those about an earlier request too."""
        return sum(turn.speaker == "robot" for turn, _ in self.spoken)

    def think(self) -> Think:
        """Return how to run the model on the dialogue as it stands."""
        return Think(self.force_grounding and self.questions >= self.max_questions)

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
        if self.questions >= self.max_questions and isinstance(reply, NotFound):
            return self.end(Outcome("NOT_FOUND", reply.text))
        if self.questions >= self.max_questions:
            return self.end(
                Outcome(
                    "MAX_TURNS",
                    f"still unclear after {self.questions} questions (max_questions): "
                    "say it in other words",
                )
            )
        self.dialogue.add_question(reply.text, reply.written)
        self._stamps.append(self.clock())
        self._open, self._asked_again, self._waits = reply, False, 0
        if isinstance(reply, NotFound) and reply.unknown:
            self._unknown = reply.unknown
        self.phase = Phase.WAITING
        return Ask(reply)

    def answer(self, text: str) -> Step:
        """Take what the person says to the open question.

        Yes to a question about a single candidate points at that very box. No to one that asks to
        confirm it leaves it out for the rest of the dialogue (`Dialogue.refused`).

        Raises:
            ClueError: the text is empty or unreadable; the dialogue still waits.
        """
        question = self._awaited()
        naming = read_naming(clean_text(text)) if question.confirm else None
        if naming is not None:
            return self._renamed(question, naming, text)
        offered = question.suggested_answers or offered_answers(question.text)
        about = named_object(self.dialogue.turns)
        said = read(clean_text(text), offered, about)
        self._note(text, said, about, offered)
        if said.kind is Kind.CHAT:
            return Ignored(question, said.text)
        if said.kind is Kind.WAIT:
            return self._wait(question)
        denies = said.kind in (Kind.NO, Kind.NONE)
        rest = "" if is_other(said.text) else after_no(said.text)
        if denies and rest:  # "no, small" narrows, "no, wrong" does not
            denies = read(rest, offered, about).kind is not Kind.ANSWER
            rest = "" if denies else rest
        refuses = question.confirm and (denies or is_other(said.text) or bool(rest))
        if calls_off(said.kind) or (denies and self._held is not None):
            return self.end(_called_off(said))
        if leaves_open(said.kind, offered) and not refuses:
            return self._unanswered(question, said)
        self.phase = Phase.THINKING
        held, self._held = self._held, None
        if said.kind is Kind.REQUEST:
            self._earlier += self.dialogue.turns
            self._begin(said)
            return self.think()
        if refuses:
            self.dialogue.refuse(question.candidates[0], said.text, rest)
        else:
            self.dialogue.add_answer(said.text)
        self._stamps.append(self.clock())
        self._in_doubt = said.confirm
        if said.kind is Kind.YES and len(question.candidates) == 1:
            return self._settled(_chosen(question, 0, held))
        return self.think()

    def _renamed(self, question: Question, naming: Naming, text: str) -> Step:
        """The person names the one thing that was shown: as what is wanted, or as another one."""
        box, about = question.candidates[0], self._unknown or named_object(self.dialogue.turns)
        self.named.append(Named(box, naming.name))
        self._note(text, Reading(Kind.ANSWER, text), about, question.suggested_answers)
        held, self._held = self._held, None
        if same_noun(naming.name, about) and not naming.corrects:
            self.dialogue.add_answer(text)
            self._stamps.append(self.clock())
            return self.end(Outcome("NONE", grounding=_chosen(question, 0, held)))
        self.phase = Phase.THINKING
        self.dialogue.refuse(box, text)
        self._stamps.append(self.clock())
        return self.think()

    def _settled(self, found: Grounding) -> Outcome:
        """End with what the person has settled; a name that nobody knew is now its name."""
        if self._unknown:
            self.named.append(Named(found.box, self._unknown))
            found = replace(found, label=self._unknown)
        return self.end(Outcome("NONE", grounding=found))

    def choose(self, index: int) -> Outcome:
        """Point at a candidate of the open question, counted from 0: the person clicked on it.

        The dialogue hears the words that offer it, or "this one".

        Raises:
            BadExpressionError: the question has no such candidate; the dialogue still waits.
        """
        question = self._awaited()
        count = len(question.candidates)
        if not 0 <= index < count:
            raise BadExpressionError(
                f"candidate {index} is none of the question's {count}, which count from 0"
            )
        held, self._held = self._held, None
        text = _words_for(question, index)
        about = named_object(self.dialogue.turns)
        self.dialogue.add_answer(text)
        self._stamps.append(self.clock())
        self._note(text, Reading(Kind.OFFERED, text), about, question.suggested_answers)
        return self._settled(_chosen(question, index, held))

    def _awaited(self) -> Question:
        """The open question."""
        if self.phase is not Phase.WAITING or self._open is None:
            raise RuntimeError(f"an answer came while the dialogue was {self.phase.value}")
        return self._open

    def _note(self, text: str, said: Reading, about: str, offered: tuple[str, ...]) -> None:
        found = Heard(clean_text(text), said.kind.value, said.confidence, about, offered)
        self.heard.append(replace(found, stamp=self._stamps[-1]))

    def _begin(self, said: Reading) -> None:
        self.dialogue = Dialogue(said.text)
        self.request = self.dialogue.request  # cleaned
        self._in_doubt, self._unknown = said.confirm, ""
        self._stamps.append(self.clock())

    def _wait(self, question: Question) -> Step:
        """Keep the question open."""
        self._waits += 1
        if self._waits > MAX_WAITS:
            return self.end(Outcome("ANSWER_TIMEOUT", f"asked to wait {MAX_WAITS} times"))
        return Ask(question, say(Saying.WAITING, self.language))

    def _unanswered(self, question: Question, said: Reading) -> Step:
        """Ask once more; the second time the dialogue ends, since the model would guess."""
        rejects = said.kind in (Kind.NO, Kind.NONE)
        if not self._asked_again:
            self._asked_again = True
            if rejects:
                again = say(Saying.WHAT_THEN, self.language)
            else:
                again = in_other_words(question.text, self.language, heard=True)
            return Ask(question, again, unanswered=True)
        if rejects:
            return self.end(_called_off(said))
        if self.force_grounding and said.kind is Kind.YES:
            self.phase = Phase.THINKING
            return Think(force=True)
        return self.end(Outcome("MAX_TURNS", f"still unclear: {said.text!r} names nothing"))

    def fail(self, error: Exception) -> Outcome:
        """End the dialogue with the code of a ClueError, or MODEL_ERROR for anything else."""
        if isinstance(error, ClueError):
            return self.end(Outcome(error.code, str(error)))
        return self.end(Outcome("MODEL_ERROR", f"{type(error).__name__}: {error}"))

    def reopen(self) -> None:
        """Take back an end with an object, until it has been seen whether it still lies there."""
        self.outcome, self.phase = None, Phase.THINKING

    def end(self, outcome: Outcome) -> Outcome:
        """End the dialogue from outside (cancel, timeout, deactivation); the first end counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.phase = Phase.FINISHED
        return self.outcome


def _chosen(question: Question, index: int, held: Grounding | None) -> Grounding:
    """A candidate that the person has settled; its score is not known unless it was `held`."""
    label = question.labels[index] if question.labels else ""
    found = held or Grounding(question.candidates[index], label, math.nan, question.ambiguity)
    return replace(found, confirmed=True, max_risk=question.max_risk, taught=question.taught)


def _words_for(question: Question, index: int) -> str:
    """The suggested answer that means this candidate alone; "this one" where none does."""
    bound = zip(question.suggested_answers, question.answer_candidates, strict=False)
    return next((answer for answer, group in bound if group == (index,)), "this one")


def _called_off(said: Reading) -> Outcome:
    why = {
        Kind.STOP: "the person asked to stop",
        Kind.WAIT: "the person asked to wait",
        Kind.CHAT: "this asks the robot for nothing",
        Kind.YES: "no question is open that this answers",
    }.get(said.kind, "the person does not want it")
    return Outcome("CANCELED", f"{why}: {said.text!r}")


def called_off(text: str) -> Outcome | None:
    """How a dialogue ends that hears this while no question is open; None if it goes on.

    Raises EmptyExpressionError or BadExpressionError.
    """
    said = read(clean_text(text))
    ends = calls_off(said.kind) or said.kind in (Kind.NO, Kind.NONE)
    return _called_off(said) if ends else None


def wanted(request: str) -> Reading:
    """Read a request, cleaned, without the part that it refuses.

    Raises EmptyExpressionError or BadExpressionError for a text that cannot be read, and
    NothingWantedError where nothing is wanted: a stop, a refusal, "wait", "yes", side talk.
    """
    said = read(clean_text(request))
    if not wants(said):
        raise NothingWantedError(
            _called_off(said).message, is_chat=said.kind in (Kind.CHAT, Kind.YES)
        )
    return said


def converse(
    clue: Replier,
    view: Any,
    conversation: Conversation,
    answer: Callable[[Question], str | None],
    on_reply: Callable[[Question | Grounding], None] = lambda _reply: None,
    on_say: Callable[[str], None] = lambda _text: None,
) -> Outcome | None:
    """Hold a conversation to its end, and return how it ended.

    answer: what the person says to a question; None leaves the conversation waiting, and so does
    the result. on_reply: told each reply of the model, before the person is. on_say: told what the
    robot says where a question stays open; then the question is given to `answer` again.

    Raises ClueError from the model, or from an answer that cannot be used.
    """
    step: Step = conversation.think()
    while not isinstance(step, Outcome):
        if isinstance(step, Ask | Ignored):
            if isinstance(step, Ask) and step.instead:
                on_say(step.instead)
            text = answer(step.question)
            if text is None:
                return None
            step = conversation.answer(text)
        else:
            reply = clue.reply(view, conversation.dialogue, force_grounding=step.force)
            reply = conversation.hold(reply)
            on_reply(reply)
            step = conversation.reply(reply)
    return step


def in_words(outcome: Outcome, language: str = "en") -> str:
    """Return the short sentence the robot says at the end of a dialogue."""
    found = outcome.grounding.label.strip().removeprefix("the ") if outcome.grounding else ""
    code = "" if outcome.code == "NONE" and outcome.grounding is None else outcome.code
    return ending(code, language, found)
