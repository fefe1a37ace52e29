"""One dialogue that CommandGrounder has begun: its questions, its answers, and how it ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from action_msgs.msg import GoalStatus
from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import ClarificationQuestion, GroundingResult
from rclpy.action import ActionClient

from clue_ros.nodes.commander_node import TICK, BackgroundNode, GroundingError, error_name

OnQuestion = Callable[[ClarificationQuestion], str | None]

PROBE = 5.0  # seconds between questions to the server whether it still knows the goal
GONE = 3.0  # seconds without the server in the graph after which it is lost
ANSWERS = 3  # tries that `on_question` has for one question when its text cannot be used
SETTLE = 5.0  # seconds for a cancellation to end a dialogue whose caller has left


class GroundingTask:
    """One dialogue under way; made by `CommandGrounder.start`."""

    def __init__(
        self,
        background: BackgroundNode,
        client: ActionClient,
        answer: Callable[[str, str], bool],
        goal: GroundWithDialogue.Goal,
    ) -> None:
        self._background, self._client, self._answer = background, client, answer
        self._news: queue.SimpleQueue[ClarificationQuestion | None] = queue.SimpleQueue()
        self._handle: Any = None
        self._canceled = False
        self._ended = threading.Event()
        self._end: GroundingResult | GroundingError | None = None
        self.feedback: GroundWithDialogue.Feedback | None = None  # the newest
        self.question: ClarificationQuestion | None = None  # the newest, answered or not
        # In the thread that spins: rclpy notes what it waits for only after it has sent the goal,
        # and an acceptance that another thread takes in between is lost.
        background.soon(self._send, goal)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def answer(self, text: str) -> bool:
        """Answer the open question; False if none is open (any more).

        Raises GroundingError: the text cannot be used; the question stays open.
        """
        dialogue_id = self.question.dialogue_id if self.question is not None else ""
        return self._answer(text, dialogue_id)

    def cancel(self) -> None:
        """Ask for the end; `result` then raises GroundingError with CANCELED. Never blocks long."""
        self._canceled = True
        handle = self._handle
        if handle is not None and not self.done():
            self._background.soon(handle.cancel_goal_async)

    def leave(self) -> None:
        """Cancel, and wait a moment for it, so that the next request does not find it BUSY."""
        if not self.done() and self._background.alive:
            self.cancel()
            self._ended.wait(SETTLE)

    def result(
        self, timeout: float | None = None, on_question: OnQuestion | None = None
    ) -> GroundingResult:
        """Wait for the end and return the grounding.

        timeout: seconds, None: as long as it takes. It goes on after a TIMEOUT: cancel it, or call
        again. on_question: called here with each question; the text it returns is the answer, and
        None leaves the answer to whoever else hears the question. Raises GroundingError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        watch = _Watch(self._client)
        while not self.done():
            try:
                news = self._news.get(timeout=TICK)
            except queue.Empty:
                news = None
            if self.done():
                break
            if news is not None and on_question is not None:
                self._ask(news, on_question)
            self._background.check()
            if deadline is not None and time.monotonic() > deadline:
                raise GroundingError("TIMEOUT", f"no grounding within {timeout:g} s")
            if watch.lost():
                self._finish(GroundingError("SERVER_LOST", "perception has left the graph"))
            elif watch.probe_due() and self._handle is not None:
                self._background.soon(self._ask_for_result)
        if isinstance(self._end, GroundingError):
            raise self._end
        assert self._end is not None
        return self._end

    def _ask(self, question: ClarificationQuestion, on_question: OnQuestion) -> None:
        for attempt in range(ANSWERS):
            text = on_question(question)
            if text is None or self.done():
                return
            try:
                self._answer(text, question.dialogue_id)
            except GroundingError as error:
                if error.code not in ("EMPTY_EXPRESSION", "BAD_EXPRESSION"):
                    raise
                if attempt == ANSWERS - 1:
                    raise
            else:
                return

    # From here on in the grounder's own thread.

    def _send(self, goal: GroundWithDialogue.Goal) -> None:
        sent = self._client.send_goal_async(goal, feedback_callback=self._on_feedback)
        sent.add_done_callback(self._on_accepted)

    def _on_accepted(self, future: Any) -> None:
        handle = future.result()
        if not handle.accepted:
            self._finish(GroundingError("REJECTED", "perception did not take the goal"))
            return
        self._handle = handle
        self._ask_for_result()
        if self._canceled:
            handle.cancel_goal_async()

    def _ask_for_result(self) -> None:
        self._handle.get_result_async().add_done_callback(self._on_result)

    def _on_result(self, future: Any) -> None:
        answer = future.result()
        if answer.status == GoalStatus.STATUS_UNKNOWN:  # a new process, which never heard of it
            self._finish(
                GroundingError("SERVER_LOST", "perception has been started anew in the dialogue")
            )
            return
        result = answer.result
        if result.error_code == result.NONE:
            self._finish(result.grounding)
        else:
            self._finish(GroundingError(error_name(result.error_code), result.error_msg))

    def _on_feedback(self, message: Any) -> None:
        self.feedback = message.feedback
        question = message.feedback.question
        waiting = message.feedback.state == GroundWithDialogue.Feedback.WAITING_FOR_ANSWER
        if waiting and (self.question is None or question.turn != self.question.turn):
            self.question = question
            self._news.put(question)

    def _finish(self, end: GroundingResult | GroundingError) -> None:
        if not self.done():
            self._end = end
            self._ended.set()
            self._news.put(None)  # wakes who waits


class _Watch:
    """Notices that the server has left the graph."""

    def __init__(self, client: ActionClient) -> None:
        self._client = client
        self._seen = self._probed = time.monotonic()

    def lost(self) -> bool:
        now = time.monotonic()
        if self._client.server_is_ready():
            self._seen = now
        return now - self._seen > GONE

    def probe_due(self) -> bool:
        now = time.monotonic()
        if now - self._probed < PROBE:
            return False
        self._probed = now
        return True
