"""One open dialogue on the ROS side: the coroutine that runs it, and what may wake or end it.

The coroutine awaits one future at a time. Whoever comes first resolves it: the worker with a
result, a person with an answer, a timer, a cancel, or a deactivation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clue_msgs.msg import GroundingResult
from rclpy.executors import Executor
from rclpy.task import Future

from clue_ros.dialogue.conversation import (
    Ask,
    Conversation,
    Outcome,
    Phase,
    Step,
    Think,
)
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.types import Grounding, NotFound, Question, clean_text
from clue_ros.dialogue.words import leaves_open, means_stop
from clue_ros.errors import ClueError
from clue_ros.nodes.camera import Frame
from clue_ros.nodes.inference_worker import Worker, new_future, until
from clue_ros.nodes.messages import Found, Source, find, grounding_msg, locator

T = TypeVar("T")


class Stopped(Exception):
    """The dialogue was ended from outside while it waited."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


@dataclass(frozen=True)
class Limits:
    """What one dialogue may use: questions, and seconds for each answer.

    After `ask_again_after` seconds of silence a question is asked once more; 0: never.
    """

    max_questions: int
    answer_timeout: float
    ask_again_after: float = 0.0


@dataclass
class Listener:
    """What the node does as a dialogue goes on.

    Each is called from the coroutine, in the executor; `asked_again` from any thread, with whether
    something was heard.
    """

    looking: Callable[[], None] = lambda: None
    thinking: Callable[[], None] = lambda: None
    replied: Callable[[Question | Grounding], None] = lambda _reply: None
    asked: Callable[[Question], None] = lambda _question: None
    asked_again: Callable[[Question, bool], None] = lambda _question, _heard: None


class Session:
    """The dialogue `dialogue_id`, about one frame."""

    def __init__(
        self,
        dialogue_id: str,
        request: str,
        frame: Frame,
        limits: Limits,
        clue: Any,
        worker: Worker,
        executor: Executor,
        clock: Callable[[], float] = time.time,
        language: str = "en",
        *,
        masks: bool = True,
    ) -> None:
        """Open the dialogue; `clock` gives the stamp of each turn, in seconds since the epoch.

        `masks`: whether objects come with their masks.

        Raises EmptyExpressionError or BadExpressionError from the request.
        """
        self.id = dialogue_id
        self.limits = limits
        self.conversation = Conversation(request, limits.max_questions, clock, language)
        self.listener = Listener()
        self.frame = frame
        self.source = Source(frame.header, 0, 0)
        self.view: Any = None
        self.found: tuple[Found, ...] = ()  # the objects of the last reply
        self.context = self.conversation.request  # C(k) that the last reply judged
        self.latency = 0.0  # seconds from the request or answer to the model's reply
        self.stages: dict[str, float] = {}  # seconds that each stage took last
        self._asked_at = time.monotonic()
        self._clue = clue
        self._masks = masks
        self._worker = worker
        self._executor = executor
        self._lock = threading.Lock()
        self._slot: Future | None = None
        self._stop: Outcome | None = None
        self._question: Question | None = None  # open, and not yet asked again

    @property
    def waiting(self) -> bool:
        """True while a question is open."""
        with self._lock:
            slot = self._slot
            return self.conversation.phase is Phase.WAITING and slot is not None and not slot.done()

    def stop(self, outcome: Outcome) -> None:
        """End the dialogue with `outcome`, from any thread.

        A model at work goes on, its result is dropped.
        """
        with self._lock:
            if self._stop is None:
                self._stop = outcome
            slot = self._slot
        if slot is not None:
            self._resolve(slot, Stopped(outcome))

    def answer(self, text: str) -> bool:
        """Give the person's answer. Returns False when no question is open.

        Raises:
            ClueError: the text is empty or unreadable; the question stays open.
        """
        with self._lock:
            slot = self._slot if self.conversation.phase is Phase.WAITING else None
        if slot is None:
            return False
        return self._resolve(slot, clean_text(text))

    @property
    def question(self) -> Question | None:
        """The open question, until it has been asked again."""
        return self._question if self.waiting else None

    def ask_again(self, *, heard: bool) -> bool:
        """Ask the open question once more, in other words; False if that was done, or none is open.

        `heard`: something was said that is no answer.
        """
        with self._lock:
            question, self._question = self._question, None
        if question is None or not self.waiting:
            return False
        self.listener.asked_again(question, heard)
        return True

    async def run(self) -> Outcome:
        """Hold the whole dialogue and return how it ended. Never raises."""
        try:
            await self._look()
            step: Step = Think()
            while not isinstance(step, Outcome):
                if isinstance(step, Ask):
                    step = self.conversation.answer(await self._hear(step.question))
                else:
                    step = self.conversation.reply(await self._think(force=False))
            return step
        except Stopped as stopped:
            return self.conversation.end(stopped.outcome)
        except Exception as error:  # noqa: BLE001 - whatever went wrong ends this dialogue, not the node
            return self.conversation.fail(error)

    async def one_shot(self, *, force: bool) -> Question | Outcome:
        """Look once and return the question that would be asked, or the outcome. Never raises."""
        try:
            await self._look()
            reply = await self._think(force=force)
            if isinstance(reply, Question):
                return reply
            return self.conversation.end(Outcome("NONE", grounding=reply))
        except Stopped as stopped:
            return self.conversation.end(stopped.outcome)
        except Exception as error:  # noqa: BLE001 - as above
            return self.conversation.fail(error)

    def grounding_msg(
        self, grounding: Grounding, dialogue_id: str | None = None
    ) -> GroundingResult:
        """Return the outcome as a message, with everything that was said."""
        # Also of a grounding that is the only candidate of a question, confirmed by yes.
        known = self.found[0] if self.found else Found(grounding.box)
        return grounding_msg(
            self.source,
            grounding,
            replace(known, label=grounding.label, score=grounding.score),
            request=self.conversation.request,
            context=self.context,
            dialogue_id=self.id if dialogue_id is None else dialogue_id,
            turns=self.conversation.spoken,
        )

    async def until(self, condition: Callable[[], bool], seconds: float = 1.0) -> bool:
        """Wait until `condition` is true; False if it is not in time."""
        return await until(condition, self._executor, seconds)

    async def _look(self) -> None:
        self.listener.looking()
        self.view = await self._work(
            lambda: self._timed("image", lambda: self._clue.look(self.frame.pixels()))
        )
        self.source = Source(self.frame.header, self.view.width, self.view.height)

    async def _think(self, *, force: bool) -> Question | Grounding:
        self.listener.thinking()
        self.context = self.conversation.dialogue.context()
        reply, self.found = await self._work(lambda: self._reply(force))
        self.latency = time.monotonic() - self._asked_at
        whole, judging = self.stages.pop("reply"), reply.ambiguity.seconds
        self.stages.update(ambiguity=judging, decoding=max(0.0, whole - judging))
        self.listener.replied(reply)
        return reply

    def _reply(self, force: bool) -> tuple[Question | Grounding, tuple[Found, ...]]:
        """Return the model's reply and what is known of its objects. In the worker's thread."""
        view, clue = self.view, self._clue
        dialogue = self.conversation.dialogue
        reply = self._timed("reply", lambda: clue.reply(view, dialogue, force_grounding=force))

        def place() -> tuple[Found, ...]:
            places = locator(self.frame.depth, view.width, view.height)
            return find(clue, view, reply, places, masks=self._masks)

        return reply, self._timed("placing", place)

    def _timed(self, stage: str, job: Callable[[], T]) -> T:
        """Do the job and note its seconds. In the worker's thread: waiting for a turn is not it."""
        begin = time.monotonic()
        result = job()
        self.stages[stage] = time.monotonic() - begin
        return result

    async def _hear(self, question: Question) -> str:
        slot = self._arm()
        seconds = self.limits.answer_timeout
        late = Outcome("ANSWER_TIMEOUT", f"no answer came within {seconds:g} s (answer_timeout)")
        if isinstance(question, NotFound):
            late = Outcome("NOT_FOUND", question.text)
        timer = threading.Timer(seconds, self._resolve, (slot, Stopped(late)))
        timer.daemon = True
        timer.start()
        again = threading.Timer(self.limits.ask_again_after, self.ask_again, (), {"heard": False})
        again.daemon = True
        self._question = question
        try:
            self.listener.asked(question)
            if self.limits.ask_again_after > 0:
                again.start()
            text = str(await self._result(slot))
            self._asked_at = time.monotonic()
            return text
        finally:
            self._question = None
            timer.cancel()
            again.cancel()

    async def _work(self, job: Callable[[], T]) -> T:
        slot = self._arm()
        self._worker.submit(job, lambda result, error: self._resolve(slot, error or (result,)))
        (result,) = await self._result(slot)
        return result

    def _arm(self) -> Future:
        """Make the future to wait for next.

        It is done already if the dialogue was ended meanwhile.
        """
        slot = new_future(self._executor)
        with self._lock:
            self._slot = slot
            stop = self._stop
        if stop is not None:
            self._resolve(slot, Stopped(stop))
        return slot

    def _resolve(self, slot: Future, value: Any) -> bool:
        """Complete `slot` unless another was first; return whether this value counted."""
        with self._lock:
            if slot.done():
                return False
            slot.set_result(value)
            return True

    @staticmethod
    async def _result(slot: Future) -> Any:
        value = await slot
        if isinstance(value, Exception):
            raise value
        return value


# -------------------------------------------------------------------------------------------------
# The gate of the perception node: one request at a time, and none unless the node is active.

ADVICE = "configure and activate it first"


class Gate:
    """Holds the lifecycle state's label and the open session; thread-safe.

    `newest` gives the camera's newest frame or an error's name and message; `make` makes a session.
    """

    def __init__(
        self,
        newest: Callable[[], Frame | tuple[str, str]],
        make: Callable[[str, str, Frame, Limits], Session],
    ) -> None:
        self._newest, self._make = newest, make
        self._lock = threading.Lock()
        self._state = "unconfigured"
        self._session: Session | None = None

    @property
    def state(self) -> str:
        """The label of the node's lifecycle state."""
        return self._state

    @property
    def session(self) -> Session | None:
        """The open session."""
        return self._session

    def move(self, state: str) -> None:
        """Enter a lifecycle state; leaving "active" ends the open session with INACTIVE."""
        with self._lock:
            self._state = state
            session = self._session
        if session is not None and state != "active":
            session.stop(Outcome("INACTIVE", f"perception became {state} during the request"))

    def open(
        self, dialogue_id: str, text: str, given: Frame | None, limits: Limits
    ) -> Session | Outcome:
        """Open the session, or say why not. Who gets a session must call `close`.

        `given`: the request's own image; None: the camera's newest one.
        """
        with self._lock:
            if self._state != "active":
                advice = "it loads the model" if self._state == "configuring" else ADVICE
                return Outcome("INACTIVE", f"perception is {self._state}: {advice}")
            if self._session is not None:
                return Outcome("BUSY", f"dialogue {self._session.id} is open: wait, or cancel it")
            try:
                clean_text(text)
                frame = given or self._newest()
                if not isinstance(frame, Frame):
                    return Outcome(*frame)
                self._session = self._make(dialogue_id, text, frame, limits)
            except ClueError as error:
                return Outcome(error.code, str(error))
            return self._session

    def close(self, session: Session) -> None:
        """Let the next request in."""
        with self._lock:
            if self._session is session:
                self._session = None


# -------------------------------------------------------------------------------------------------
# Dialogue manners: what a person says that is neither a request nor an answer.


def stopped(session: Session, text: str, language: str) -> bool:
    """End the dialogue where the text asks to stop; whether it did."""
    if not means_stop(text, language):
        return False
    session.stop(Outcome("CANCELED", "the person asked to stop"))
    return True


def settled(
    session: Session | None, text: str, language: str, speak: Callable[[str], object]
) -> bool:
    """Take "stop" in any state, and yes or no to a question that asks which; whether it was that.

    Yes or no to such a question has it asked once more; the second time it passes as an answer.
    """
    if session is None:
        stop = means_stop(text, language)
        if stop:
            speak(say(Saying.NOTHING_TO_STOP, language))
        return stop
    if stopped(session, text, language):
        return True
    question = session.question
    if question is None or not leaves_open(text, question.suggested_answers, language):
        return False
    return session.ask_again(heard=True)
