"""What the speech node knows: the open question, push to talk, what it has read back."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from clue_msgs.action import Listen
from clue_msgs.msg import ClarificationQuestion
from rclpy.action.server import ServerGoalHandle
from rclpy.task import Future

from clue_ros.nodes import messages
from clue_ros.voice.confirm import Action, Confirmer, Decision, Thresholds
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.sphinx import Heard
from clue_ros.voice.words import asks_yes_or_no, means_stop, means_yes_or_no


@dataclass
class Job:
    """A goal of ~/listen: `ended` gets (status, message, transcript or None).

    `seconds`: how long it waits for the person to begin, from `deadline` minus so many on.
    """

    goal: ServerGoalHandle
    ended: Future
    seconds: float
    deadline: float
    expected: tuple[str, ...] = ()
    state: int = field(default=Listen.Feedback.WAITING)


class Listening:
    """Thread-safe; times are seconds of the node's clock."""

    def __init__(self, language: str, thresholds: Thresholds) -> None:
        self.language = language
        self._confirmer = Confirmer(thresholds, language)
        self._lock = threading.RLock()
        self._answers: tuple[str, ...] = ()
        self._asks_which = False  # whether a bare yes or no leaves the question open
        self._question_until = 0.0
        self._confirm_until = 0.0
        self.job: Job | None = None

    # What is known.

    def asked(self, question: ClarificationQuestion, now: float) -> None:
        """The robot asks: its answers are likely until its timeout."""
        labels = [o.label for o in question.candidates if o.label]
        with self._lock:
            self._answers = (*question.suggested_answers, *labels)
            self._asks_which = not asks_yes_or_no(question.suggested_answers)
            self._question_until = now + (messages.seconds(question.answer_timeout) or 30.0)
            self._confirmer.forget()

    def over(self) -> None:
        """The dialogue is over: nothing is asked any more."""
        with self._lock:
            self._question_until = 0.0

    def hints(self, now: float, *, helped: bool) -> Hints:
        """What is likely to be said now."""
        with self._lock:
            if self._confirmer.pending:
                return Hints(Expecting.CONFIRMATION, (), self.language)
            if self.job is not None and self.job.expected:
                return Hints.make(Expecting.ANSWER, self.job.expected, self.language)
            if not helped:
                return Hints(Expecting.ANYTHING, (), self.language)
            if now < self._question_until:
                return Hints.make(Expecting.ANSWER, self._answers, self.language)
            return Hints(Expecting.COMMAND, (), self.language)

    def open(self, now: float) -> bool:
        """Whether push to talk listens now."""
        with self._lock:
            waits = bool(self._confirmer.pending) or now < self._question_until
            return waits or self.job is not None

    def claim(self, job: Job) -> bool:
        """Open a goal of ~/listen; False when another is open."""
        with self._lock:
            if self.job is not None:
                return False
            self.job = job
            return True

    def release(self, only: Job | None = None) -> Job | None:
        """Close the open goal and return it; None when there is none, or another than `only`."""
        with self._lock:
            if only is not None and self.job is not only:
                return None
            job, self.job = self.job, None
            return job

    # What was heard.

    def decide(self, heard: Heard, hints: Hints, thresholds: Thresholds, until: float) -> Decision:
        """Say what to do with a phrase; what is read back waits for its answer until `until`."""
        with self._lock:
            self._confirmer.thresholds = thresholds
            decision = self._confirmer.decide(heard, hints.expecting)
            if decision.action is Action.CONFIRM:
                self._confirm_until = until
            elif decision.action is Action.ACCEPT and not self._asked_once_more(decision.text):
                # The next question sets this again; "stop" means that there is none.
                self._question_until = 0.0
            return decision

    def _asked_once_more(self, text: str) -> bool:
        """Whether perception says the open question again, which is no new `question`."""
        return self._asks_which and means_yes_or_no(text, self.language)

    @property
    def confirming(self) -> bool:
        """Whether something was read back and is not answered yet."""
        with self._lock:
            return bool(self._confirmer.pending)

    def late(self, now: float) -> bool:
        """Whether what was read back was just given up."""
        with self._lock:
            if not self._confirmer.pending or now < self._confirm_until:
                return False
            self._confirmer.forget()
            return True

    def wait_on(self, now: float, seconds: float) -> None:
        """The robot or the person is speaking: what was read back waits on for so many seconds.

        A goal of ~/listen waits on for its own.
        """
        with self._lock:
            self._confirm_until = max(self._confirm_until, now + seconds)
            if self.job is not None:
                self.job.deadline = max(self.job.deadline, now + self.job.seconds)

    def stops(self, text: str) -> bool:
        """Whether a text ends it all."""
        return means_stop(text, self.language)
