# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""One open dialogue on the ROS side: the coroutine that runs it, and the slot that it occupies.

The coroutine awaits one future at a time. Whichever comes first resolves it: the worker with a
result, a person's answer, a timer, a cancel, or a deactivation.

A person takes seconds to answer, and the object may move in the meantime. So the image of a reply
is compared with the newest one if it is older than `max_age_at_result` (scene_change.py). If its
boxes have changed, the model looks at the newest image, with the same dialogue. The object that it
then finds counts as the same one if it has the same colours, and lies at the old place or where
nothing like it was before. Otherwise the robot asks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clue_msgs.msg import ClarificationQuestion, GroundingResult
from rclpy.executors import Executor
from rclpy.task import Future

from clue_ros.dialogue.conversation import (
    Ask,
    Conversation,
    Ignored,
    Outcome,
    Phase,
    Step,
    called_off,
    wanted,
)
from clue_ros.dialogue.reading import Reading
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.types import SAME_BOX, Box, Grounding, NotFound, Question
from clue_ros.errors import ClueError, NothingWantedError
from clue_ros.nodes import messages
from clue_ros.nodes.camera import Frame
from clue_ros.nodes.inference_worker import Worker, new_future, until
from clue_ros.nodes.messages import LocatedObject, Source
from clue_ros.nodes.scene_change import alike, unchanged

T = TypeVar("T")
MAX_LOOKS = 3  # at newer images, for one reply


class Stopped(Exception):
    """The dialogue was ended from outside while it waited."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome


@dataclass(frozen=True)
class Limits:
    """Limits of one dialogue: questions, and seconds for each answer.

    After `ask_again_after` seconds of silence a question is asked once more; 0: never. With
    `force_grounding` the model points at its best guess when the questions are used up. A reply
    about an image that arrived longer ago than `max_age_at_result` seconds is checked.
    """

    max_questions: int
    answer_timeout: float
    ask_again_after: float = 0.0
    force_grounding: bool = False
    max_age_at_result: float = math.inf


class Listener:
    """Is told of each step of a dialogue; subclasses override what they need.

    Called from the coroutine, in the executor; `asked_again` and `spoke` from any thread.
    """

    def looking(self, session: Session) -> None:
        """The model begins to encode the image."""

    def thinking(self, session: Session) -> None:
        """The model begins its next reply."""

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """The model has replied."""

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """A question is put to the person; the answer is awaited from now on."""

    def asked_again(self, session: Session, question: Question, heard: bool) -> None:
        """The question is asked once more; `heard`: something was heard that is no answer."""

    def spoke(self, session: Session, text: str) -> None:
        """The robot says `text`, and the question stays open."""

    def ignored(self, session: Session, text: str) -> None:
        """Side talk was heard; nothing is said, and the question stays open."""


class Session:
    """The dialogue `id`, about one frame."""

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
        masks: bool = False,
        prepare: Callable[[Any], object] = lambda _header: None,
        reading: Reading | None = None,
        newest: Callable[[], Frame | tuple[str, str]] = lambda: ("NO_IMAGE", "there is no camera"),
    ) -> None:
        """Open the dialogue.

        clock: gives the stamp of each turn, in seconds since the epoch. masks: whether objects come
        with their masks. prepare: called with the image's header before each reply of the model.
        reading: the request, if it has been read. newest: gives the camera's newest frame, or an
        error's name and message.

        Raises EmptyExpressionError or BadExpressionError from the request.
        """
        self.id = dialogue_id
        self.limits = limits
        self.conversation = Conversation(
            request,
            limits.max_questions,
            clock=clock,
            language=language,
            force_grounding=limits.force_grounding,
            reading=reading,
        )
        self.listeners: list[Listener] = []
        self.frame = frame
        self.source = Source(frame.header, 0, 0)  # of the image that the model has seen
        self.placed = self.source  # of the image that the objects are in: it may be newer
        self.view: Any = None
        self.objects: tuple[LocatedObject, ...] = ()  # of the last reply
        self.context = self.conversation.request  # C(k) of the last reply
        self.latency = 0.0  # seconds from the request or answer to the model's reply
        self.stages: dict[str, float] = {}  # seconds of each stage of the last reply
        self._asked_at = time.monotonic()
        self._clue = clue
        self._masks = masks
        self._prepare = prepare
        self._newest = newest
        self._worker = worker
        self._executor = executor
        self._lock = threading.Lock()
        self._slot: Future | None = None
        self._stop: Outcome | None = None
        self._question: Question | None = None  # open, and not yet asked again
        self._timers: list[threading.Timer] = []  # of the open question

    @property
    def waiting(self) -> bool:
        """True while a question is open."""
        with self._lock:
            return self._hears is not None

    @property
    def question(self) -> Question | None:
        """The open question, until it has been asked again."""
        return self._question if self.waiting else None

    def stop(self, outcome: Outcome) -> None:
        """End the dialogue with `outcome`, from any thread; a reply under way is dropped."""
        with self._lock:
            if self._stop is None:
                self._stop = outcome
            slot = self._slot
        if slot is not None:
            self._resolve(slot, Stopped(outcome))

    @property
    def _hears(self) -> Future | None:
        """The slot that an answer completes; None while no question is open. Under the lock."""
        slot = self._slot
        waits = self.conversation.phase is Phase.WAITING and slot is not None and not slot.done()
        return slot if waits else None

    def answer(self, text: str) -> Step | None:
        """Take what the person says, from any thread.

        Returns what it leads to: `Ask` or `Ignored` where the question stays open. While no
        question is open, a stop or a refusal ends the dialogue; anything else returns None.

        Raises ClueError: the text is empty or unreadable; an open question stays open.
        """
        step: Step | None
        with self._lock:
            slot = self._hears
            if slot is None:
                step = called_off(text)
            else:
                step = self.conversation.answer(text)
                if isinstance(step, Ask):
                    self._start_timers(slot, step.question)
                elif not isinstance(step, Ignored):
                    slot.set_result(step)
        if isinstance(step, Ask):
            for listener in self.listeners:
                listener.spoke(self, step.instead)
        elif isinstance(step, Ignored):
            for listener in self.listeners:
                listener.ignored(self, step.text)
        elif slot is None and isinstance(step, Outcome):
            self.stop(step)
        return step

    def choose(self, candidate: int) -> Outcome | None:
        """Take the candidate of the open question that the person chose, from any thread.

        candidate: from 0. None: no question is open. Raises BadExpressionError: it has no such
        candidate, and stays open.
        """
        with self._lock:
            slot = self._hears
            if slot is None:
                return None
            outcome = self.conversation.choose(candidate)
            slot.set_result(outcome)
        return outcome

    def ask_again(self, *, heard: bool) -> bool:
        """Ask the open question once more, in other words; False if that was done, or none is open.

        `heard`: something was said that is no answer.
        """
        with self._lock:
            question, self._question = self._question, None
        if question is None or not self.waiting:
            return False
        for listener in self.listeners:
            listener.asked_again(self, question, heard)
        return True

    async def run(self) -> Outcome:
        """Hold the whole dialogue and return how it ended. Never raises."""

        async def dialogue() -> Outcome:
            step: Step = self.conversation.think()
            while not isinstance(step, Outcome):
                if isinstance(step, Ask | Ignored):
                    step = await self._hear(step.question)
                    if isinstance(step, Outcome) and step.grounding is not None:
                        step = await self._still(step, step.grounding)
                else:
                    reply = await self._think(force=step.force)
                    step = self.conversation.reply(await self._current(reply, step.force))
            return step

        return await self._caught(dialogue())

    async def one_shot(self, *, force: bool) -> Question | Outcome:
        """Look once and return the question that would be asked, or the outcome. Never raises."""

        async def reply() -> Question | Outcome:
            reply = await self._think(force=force)
            if isinstance(reply, Question):
                return reply
            return self.conversation.end(Outcome("NONE", grounding=reply))

        return await self._caught(reply())

    async def _caught(self, steps: Coroutine[Any, Any, T]) -> T | Outcome:
        try:
            return await steps
        except Stopped as stopped:
            return self.conversation.end(stopped.outcome)
        except Exception as error:  # noqa: BLE001 - an error ends this dialogue, not the node
            return self.conversation.fail(error)

    def question_msg(self, question: Question, *, one_shot: bool = False) -> ClarificationQuestion:
        """Return a question of the last reply as a message; one_shot: no answer is awaited."""
        return messages.question_msg(
            self.placed,
            question,
            self.objects,
            "" if one_shot else self.id,
            1 if one_shot else self.conversation.questions,
            0.0 if one_shot else self.limits.answer_timeout,
        )

    def grounding_msg(
        self, grounding: Grounding, dialogue_id: str | None = None
    ) -> GroundingResult:
        """Return the grounding as a message, with every turn of the dialogue."""
        # The last reply's object, or the candidate that the person chose.
        known = next(
            (found for found in self.objects if found.box == grounding.box),
            LocatedObject(grounding.box),
        )
        return messages.grounding_msg(
            self.placed,
            grounding,
            replace(known, label=grounding.label, score=grounding.score),
            judged=self.source,
            request=self.conversation.request,
            context=self.context,
            dialogue_id=self.id if dialogue_id is None else dialogue_id,
            turns=self.conversation.spoken,
        )

    async def until(self, condition: Callable[[], bool], seconds: float = 1.0) -> bool:
        """Wait until `condition` is true; False if it is not in time."""
        return await until(condition, self._executor, seconds)

    async def _still(self, end: Outcome, chosen: Grounding) -> Step:
        """The end with the candidate that the person chose, if it still lies there."""
        self.conversation.reopen()
        reply = await self._current(chosen, self.conversation.think().force)
        if reply is chosen:
            return self.conversation.end(end)
        return self.conversation.reply(reply)

    async def _current(self, reply: Question | Grounding, force: bool) -> Question | Grounding:
        """The reply, if it is about the newest image; else the one to another look.

        Raises Stopped: STALE_IMAGE or NO_IMAGE without a camera, and STALE_IMAGE where the object
        lies elsewhere each time that the model has looked.
        """
        first = reply
        for _ in range(MAX_LOOKS):
            newer = await self._changed(reply)
            if newer is None:
                break
            self.frame = newer
            reply = await self._think(force=force, instead_of=(self.view.image, reply))
        else:
            if isinstance(reply, Grounding) and await self._changed(reply) is not None:
                what = f"the picture has changed {MAX_LOOKS} times while I looked"
                raise Stopped(Outcome("STALE_IMAGE", f"{what}: wait until nothing moves any more"))
        if reply is not first and isinstance(reply, Question):
            for listener in self.listeners:
                listener.spoke(self, say(Saying.CHANGED, self.conversation.language))
        return reply

    async def _changed(self, reply: Question | Grounding) -> Frame | None:
        """The newest frame, if something else is seen there at the boxes of the reply.

        None where the reply holds; its objects are then in that frame. Raises Stopped as `_current`
        does, and BadImageError.
        """
        if time.monotonic() - self.frame.arrival <= self.limits.max_age_at_result:
            return None
        newest = self._newest()
        if not isinstance(newest, Frame):
            raise Stopped(Outcome(*newest))
        if newest.message is self.frame.message:
            return None
        holds = await self._done(self._queue(lambda: self._holds(reply, newest)))
        return None if holds else newest

    def _holds(self, reply: Question | Grounding, newest: Frame) -> bool:
        """Whether the boxes of a reply show the same in the newest frame. In the worker's thread.

        If so, the objects are placed there.
        """
        view, pixels = self.view, newest.pixels()
        boxes = (reply.box,) if isinstance(reply, Grounding) else reply.candidates
        whole = Box(0, 0, view.width, view.height)  # of a reply that names nothing
        if not all(unchanged(view.image, pixels, box) for box in boxes or (whole,)):
            return False
        self.frame, self.placed = newest, replace(self.source, header=newest.header)
        locate = messages.locator(newest.depth, view.width, view.height)
        self.objects = messages.placed_again(self.objects, locate)
        return True

    async def _think(
        self,
        *,
        force: bool,
        instead_of: tuple[Any, Question | Grounding] | None = None,
    ) -> Question | Grounding:
        """Look, if this frame has not been seen yet, and reply.

        instead_of: an earlier image, uint8 RGB (H, W, 3), and the reply to it that no longer holds.
        """
        looks = self.view is None or instead_of is not None
        self._prepare(self.frame.header)
        looked = self._queue(self._look) if looks else None
        self.context = self.conversation.dialogue.context()
        # Behind the look in the worker's queue, which does not wait for the executor in between.
        replied = self._queue(lambda: self._reply(force, instead_of))
        if looked is not None:
            if instead_of is None:
                for listener in self.listeners:
                    listener.looking(self)
            await self._done(looked)
        for listener in self.listeners:
            listener.thinking(self)
        reply, self.objects = await self._done(replied)
        self.latency = time.monotonic() - self._asked_at
        whole, judging = self.stages.pop("reply"), reply.ambiguity.seconds
        self.stages.update(ambiguity=judging, decoding=max(0.0, whole - judging))
        for listener in self.listeners:
            listener.replied(self, reply)
        with self._lock:  # a stop may have come after the reply
            stop = self._stop
        if stop is not None:
            raise Stopped(stop)
        return reply

    def _look(self) -> None:
        """Encode the image. In the worker's thread."""
        view = self._timed("image", lambda: self._clue.look(self.frame.pixels()))
        self.source = self.placed = Source(self.frame.header, view.width, view.height)
        self.view = view

    def _reply(
        self, force: bool, instead_of: tuple[Any, Question | Grounding] | None
    ) -> tuple[Question | Grounding, tuple[LocatedObject, ...]]:
        """Return the model's reply and its objects. In the worker's thread."""
        if self._stop is not None or self.view is None:
            raise RuntimeError("nobody waits for this reply: the dialogue has ended")
        view, clue = self.view, self._clue
        dialogue = self.conversation.dialogue
        reply = self._timed("reply", lambda: clue.reply(view, dialogue, force_grounding=force))
        if not force:
            reply = self.conversation.hold(reply)
            if instead_of is not None and isinstance(reply, Grounding):
                same = _same_object(*instead_of, view.image, reply)
                reply = reply if same else self.conversation.confirmation(reply)

        def locate() -> tuple[LocatedObject, ...]:
            places = messages.locator(self.frame.depth, view.width, view.height)
            return messages.find_objects(clue, view, reply, places, masks=self._masks)

        return reply, self._timed("placing", locate)

    def _timed(self, stage: str, job: Callable[[], T]) -> T:
        """Do the job and note its seconds, without the wait for the worker: call it there."""
        begin = time.monotonic()
        result = job()
        self.stages[stage] = time.monotonic() - begin
        return result

    async def _hear(self, question: Question) -> Step:
        """Ask, and wait for the answer and its step. Raises Stopped after `answer_timeout`."""
        slot = self._arm()
        self._question = question
        try:
            message = self.question_msg(question)
            for listener in self.listeners:
                listener.asked(self, message)
            with self._lock:
                self._start_timers(slot, question)
            step: Step = await self._result(slot)
            self._asked_at = time.monotonic()
            return step
        finally:
            self._question = None
            with self._lock:
                self._stop_timers()

    def _start_timers(self, slot: Future, question: Question) -> None:
        """Wait for `answer_timeout` from now on. Under the lock."""
        self._stop_timers()
        seconds = self.limits.answer_timeout
        late = Outcome("ANSWER_TIMEOUT", f"no answer came within {seconds:g} s (answer_timeout)")
        if isinstance(question, NotFound):
            late = Outcome("NOT_FOUND", question.text)
        self._timers = [threading.Timer(seconds, self._resolve, (slot, Stopped(late)))]
        if self.limits.ask_again_after > 0:
            again = self.limits.ask_again_after
            self._timers.append(threading.Timer(again, self.ask_again, (), {"heard": False}))
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    def _queue(self, job: Callable[[], object]) -> Future:
        """Give the worker a job; returns the future of its result, for `_done`."""
        slot = new_future(self._executor)
        self._worker.submit(job, lambda result, error: self._resolve(slot, error or (result,)))
        return slot

    async def _done(self, slot: Future) -> Any:
        """The result of a job, or its error. Raises Stopped if the dialogue is ended first."""
        self._wait_for(slot)
        (result,) = await self._result(slot)
        return result

    def _arm(self) -> Future:
        """Return a new future to wait for; it is done if the dialogue was ended meanwhile."""
        slot = new_future(self._executor)
        self._wait_for(slot)
        return slot

    def _wait_for(self, slot: Future) -> None:
        """Wait for this future next; the end of the dialogue completes it too."""
        with self._lock:
            self._slot = slot
            stop = self._stop
        if stop is not None:
            self._resolve(slot, Stopped(stop))

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


def _same_object(before: Any, was: Question | Grounding, after: Any, found: Grounding) -> bool:
    """Whether an object that was found again is the one of an earlier image.

    An object that lay at the new place before, away from the first one, is another object. True if
    the reply to the earlier image was a question.
    """
    if isinstance(was, Question):
        return True
    moved_here = was.box.iou(found.box) >= SAME_BOX or not unchanged(before, after, found.box)
    return moved_here and alike(before, was.box, after, found.box)


ADVICE = "configure and activate it first"


class DialogueSlot:
    """The place for the one open dialogue, and the lifecycle state; thread-safe.

    `newest` gives the camera's newest frame or an error's name and message; `make` makes a session.
    """

    def __init__(
        self,
        newest: Callable[[], Frame | tuple[str, str]],
        make: Callable[[str, str, Frame, Limits, Reading], Session],
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
        """Enter a lifecycle state; any but "active" ends the open session with INACTIVE."""
        with self._lock:
            self._state = state
            session = self._session
        if session is not None and state != "active":
            session.stop(Outcome("INACTIVE", f"perception became {state} during the request"))

    def refusal(self) -> Outcome | None:
        """Return why no request can be taken in this lifecycle state; None while active."""
        state = self._state
        if state == "active":
            return None
        advice = "it loads the model" if state == "configuring" else ADVICE
        return Outcome("INACTIVE", f"perception is {state}: {advice}")

    def open(
        self, dialogue_id: str, text: str, given: Frame | None, limits: Limits
    ) -> Session | Outcome:
        """Open a session, or return the reason not to. The caller must `close` the session.

        `given`: the request's own image; None: the camera's newest one. BUSY comes last: nothing
        but the open dialogue is in the way.
        """
        with self._lock:
            refusal = self.refusal()
            if refusal is not None:
                return refusal
            try:
                reading = wanted(text)  # before the camera: a refusal needs no image
                frame = given or self._newest()
                if not isinstance(frame, Frame):
                    return Outcome(*frame)
                if self._session is not None:
                    open_one = f"dialogue {self._session.id} is open"
                    return Outcome("BUSY", f"{open_one}: wait, or cancel it")
                self._session = self._make(dialogue_id, text, frame, limits, reading)
            except ClueError as error:
                quiet = isinstance(error, NothingWantedError) and error.is_chat
                return Outcome(error.code, str(error), quiet=quiet)
            return self._session

    async def preempt(self, outcome: Outcome) -> None:
        """End the open session, if there is one, and wait until its slot is free."""
        session = self._session
        if session is not None:
            session.stop(outcome)
            await session.until(lambda: self._session is not session)

    def close(self, session: Session) -> None:
        """Free the slot for the next request."""
        with self._lock:
            if self._session is session:
                self._session = None
