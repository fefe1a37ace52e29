# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A client for other nodes and scripts, as nav2_simple_commander is for navigation.

    from clue_ros.nodes.client import CommandGrounder, GroundingError

    with CommandGrounder() as grounder:
        grounder.wait_until_active(timeout=60.0)
        try:
            result = grounder.ground("the red mug", on_question=lambda asked: input(asked.text))
        except GroundingError as error:
            print(error)
        else:
            print(result.target.box, result.target.pose)

It has a node and a thread of its own, so its calls may block anywhere: in a script, or in a
callback of a node that another executor spins. `on_question` runs in the caller's thread.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy
from action_msgs.msg import GoalStatus
from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import (
    BoundingBox,
    ClarificationQuestion,
    DialogueState,
    GroundingResult,
    TaughtObject,
    TrackedObject,
)
from clue_msgs.srv import (
    AnswerClarification,
    ForgetObject,
    Ground,
    ListObjects,
    TeachObject,
    Track,
)
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.action import ActionClient
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, Image

from clue_ros.nodes.messages import duration
from clue_ros.nodes.topics import Perception

__all__ = ["CommandGrounder", "GroundingError", "GroundingTask", "OnQuestion"]

OnQuestion = Callable[[ClarificationQuestion], str | int | None]

TICK = 0.1  # seconds between looks at the clock, and at whether ROS has been shut down
LEAVE = 5.0  # seconds for the thread to end
PROBE = 5.0  # seconds between questions to the server whether it still knows the goal
GONE = 3.0  # seconds without the server in the graph after which it is lost
ANSWERS = 3  # attempts of `on_question` at one question when its text cannot be used
SETTLE = 5.0  # seconds for a cancellation to end a dialogue whose caller has left


class GroundingError(Exception):
    """Why there is no grounding.

    Attributes:
        code: an error of the action (ANSWER_TIMEOUT, BUSY, ...; docs/errors.md has all), or
            NO_SERVER: perception does not run; SERVER_LOST: it died during the dialogue;
            NO_RESULT: the goal ended without a result;
            REJECTED: it did not take the goal; TIMEOUT: the caller's time is up; SHUTDOWN: ROS has
            been shut down.
        message: the problem and how to solve it, one line.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def error_name(number: int, kind: Any = GroundWithDialogue.Result) -> str:
    """Return the name of an error_code of a kind of result or response."""
    names = [name for name in dir(type(kind)) if name.isupper()]
    return next((n for n in names if getattr(kind, n) == number), f"error {number}")


def read_result(status: int, result: GroundWithDialogue.Result) -> GroundingResult | GroundingError:
    """Return the grounding of an ended goal, or why there is none.

    status: of action_msgs/GoalStatus. It must be looked at: error_code is NONE in an empty result,
    which rclpy sends for a goal that it does not know, or whose result it has dropped.
    """
    if result.error_code != result.NONE:
        return GroundingError(error_name(result.error_code), result.error_msg)
    if status == GoalStatus.STATUS_SUCCEEDED:
        return result.grounding
    if status == GoalStatus.STATUS_UNKNOWN:
        return GroundingError(
            "SERVER_LOST",
            "perception does not know the goal: it was started anew in the dialogue, or the "
            "dialogue ended over a minute ago",
        )
    name = {GoalStatus.STATUS_CANCELED: "canceled", GoalStatus.STATUS_ABORTED: "aborted"}
    how = name.get(status, f"ended with status {status}")
    return GroundingError("NO_RESULT", f"the goal was {how} without a result")


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


class Caller:
    """Calls services and sends goals from any thread but the one that spins the node."""

    def __init__(self, node: Node, executor: Executor) -> None:
        self.node, self._executor = node, executor
        self._context = node.context
        self._closed = threading.Event()

    @property
    def alive(self) -> bool:
        """Whether the node is open and ROS runs."""
        return not self._closed.is_set() and bool(self._context.ok())

    def check(self) -> None:
        """Raise GroundingError (SHUTDOWN) unless it is alive."""
        if not self.alive:
            raise GroundingError("SHUTDOWN", "ROS has been shut down")

    def call(self, client: Any, request: Any, timeout: float) -> Any:
        """Call a service. Raises GroundingError: NO_SERVER, TIMEOUT."""
        deadline = _deadline(timeout)
        self.wait_for(client.service_is_ready, timeout, client.srv_name)
        responses: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def send() -> None:
            client.call_async(request).add_done_callback(lambda f: responses.put(f.result()))

        self.soon(send)
        while True:
            with contextlib.suppress(queue.Empty):
                return responses.get(timeout=TICK)
            self.check()
            if time.monotonic() > deadline:
                raise GroundingError("TIMEOUT", f"{client.srv_name}: no answer in {timeout:g} s")

    def wait_for(self, ready: Callable[[], bool], timeout: float | None, name: str) -> None:
        """Wait until `ready`, of the service or action `name`. Raises GroundingError: NO_SERVER."""
        deadline = _deadline(timeout)
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                full = self.node.resolve_service_name(name)
                raise GroundingError(
                    "NO_SERVER", f"nobody offers {full} after {timeout:g} s: is perception running?"
                )
            time.sleep(TICK)

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run in the thread that spins; an error is logged and ends nothing else."""

        def run() -> None:
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001 - it would end the thread that spins
                self.node.get_logger().error(f"{type(error).__name__}: {error}")

        self._executor.create_task(run)


class BackgroundNode(Caller):
    """A node that spins in a thread of its own, so that its callers may block.

    context: None is the default one; it is initialised, and shut down by `close`, if it is not in
    use.
    """

    def __init__(self, name: str, namespace: str, context: Any) -> None:
        context = context or rclpy.get_default_context()
        self._owns_context = not context.ok()
        if self._owns_context:
            # Ctrl-C is Python's, so that there still is a context to cancel the dialogue with.
            rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
        node = rclpy.create_node(name, namespace=namespace, context=context)
        super().__init__(node, SingleThreadedExecutor(context=context))
        self._executor.add_node(node)
        self._thread = threading.Thread(target=self._spin, name=name, daemon=True)

    def start(self) -> None:
        """Spin, once the node's clients exist: rclpy's lists of them are not thread-safe."""
        self._thread.start()

    def close(self) -> None:
        """Leave the graph."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._context.ok():
            self._executor.wake()
        if self._thread.is_alive():
            self._thread.join(LEAVE)
        self._executor.shutdown(timeout_sec=1.0)
        self.node.destroy_node()
        if self._owns_context:
            rclpy.try_shutdown(context=self._context)

    def _spin(self) -> None:
        while self.alive:
            try:
                self._executor.spin_once(timeout_sec=1.0)
            except ExternalShutdownException:
                return
            except Exception as error:  # noqa: BLE001 - a callback's failure does not end the client
                if self._context.ok():
                    self.node.get_logger().error(f"{type(error).__name__}: {error}")
                self._closed.wait(TICK)


class GroundingTask:
    """One dialogue under way; made by `CommandGrounder.start`.

    Attributes:
        feedback: the newest feedback of the action, or None.
        question: the newest question, answered or not, or None.
    """

    def __init__(
        self,
        background: Caller,
        client: ActionClient,
        answer: Callable[[str | int, str], bool],
        goal: GroundWithDialogue.Goal,
    ) -> None:
        self._background, self._client, self._answer = background, client, answer
        self._news: queue.SimpleQueue[ClarificationQuestion | None] = queue.SimpleQueue()
        self._handle: Any = None
        self._canceled = False
        self._ended = threading.Event()
        self._end: GroundingResult | GroundingError | None = None
        self.feedback: GroundWithDialogue.Feedback | None = None
        self.question: ClarificationQuestion | None = None
        # In the thread that spins: rclpy registers the future only after it has sent the goal, and
        # an acceptance that another thread takes in between is lost.
        background.soon(self._send, goal)

    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def answer(self, answer: str | int) -> bool:
        """Answer the open question, in words or by a candidate's index; False if none is open.

        Raises GroundingError: the answer cannot be used; the question stays open.
        """
        return self._answer(answer, self.question.dialogue_id if self.question is not None else "")

    def cancel(self) -> None:
        """Request the end; `result` then raises GroundingError with CANCELED. Does not block."""
        self._canceled = True
        handle = self._handle
        if handle is not None and not self.done():
            self._background.soon(handle.cancel_goal_async)

    def leave(self) -> None:
        """Cancel, and wait a moment for it, so that the next request is not refused as BUSY."""
        if not self.done() and self._background.alive:
            self.cancel()
            self._ended.wait(SETTLE)

    def result(
        self, timeout: float | None = None, on_question: OnQuestion | None = None
    ) -> GroundingResult:
        """Wait for the end and return the grounding.

        timeout: seconds, None: no limit. The dialogue goes on after a TIMEOUT: cancel it, or call
        again. on_question: called here with each question; it returns the answer, a text or a
        candidate's index, and None leaves the answer to other listeners. Raises GroundingError.
        """
        deadline = _deadline(timeout)
        seen = probed = time.monotonic()  # the server in the graph, and asked for the result
        while not self.done():
            news = None
            with contextlib.suppress(queue.Empty):
                news = self._news.get(timeout=TICK)
            if self.done():
                break
            if news is not None and on_question is not None:
                self._ask(news, on_question)
            self._background.check()
            now = time.monotonic()
            if now > deadline:
                raise GroundingError("TIMEOUT", f"no grounding within {timeout:g} s")
            if self._client.server_is_ready():
                seen = now
            if now - seen > GONE:
                self._finish(GroundingError("SERVER_LOST", "perception has left the graph"))
            elif now - probed >= PROBE and self._handle is not None:
                probed = now
                self._background.soon(self._ask_for_result)
        if isinstance(self._end, GroundingError):
            raise self._end
        assert self._end is not None
        return self._end

    def _ask(self, question: ClarificationQuestion, on_question: OnQuestion) -> None:
        for attempt in range(1, ANSWERS + 1):
            answer = on_question(question)
            if answer is None or self.done():
                return
            try:
                self._answer(answer, question.dialogue_id)
                return
            except GroundingError as error:
                unusable = error.code in ("EMPTY_EXPRESSION", "BAD_EXPRESSION")
                if not unusable or attempt == ANSWERS:
                    raise

    # The rest runs in the thread that spins.

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
        self._finish(read_result(answer.status, answer.result))

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
            self._news.put(None)  # wakes `result`


class CommandGrounder:
    """Asks perception for the object that words name, and holds the dialogue that it may need.

    name, namespace: of its node; the names of topics, services and the action are relative, as
    those of perception are. perception: perception's node name, for `wait_until_active`. context:
    None is the default one, which is initialised (and shut down by `close`) if it is not in use;
    after an rclpy.init of yours, Ctrl-C shuts ROS down before a dialogue can be canceled.
    """

    def __init__(
        self,
        name: str = "command_grounder",
        *,
        namespace: str = "",
        perception: str = "perception",
        context: Any = None,
    ) -> None:
        self._background = BackgroundNode(name, namespace, context)
        self.node = self._background.node
        self._client = Perception.GROUND_WITH_DIALOGUE.client(self.node)
        self._ground = Perception.GROUND.client(self.node)
        self._answer = Perception.ANSWER.client(self.node)
        self._track = Perception.TRACK.client(self.node)
        self._tracked: dict[int, TrackedObject] | None = None
        self._teach = Perception.TEACH.client(self.node)
        self._forget = Perception.FORGET.client(self.node)
        self._list = Perception.LIST_OBJECTS.client(self.node)
        self._state = self.node.create_client(GetState, f"{perception}/get_state")
        self._dialogue_state: DialogueState | None = None
        Perception.DIALOGUE_STATE.subscribe(self.node, self._on_dialogue_state)
        self._background.start()

    def _on_dialogue_state(self, message: DialogueState) -> None:
        self._dialogue_state = message

    @property
    def dialogue_state(self) -> DialogueState | None:
        """The newest state of perception, whoever asked it; None before its first message.

        Its `question` is the open one, also when it was asked before this client was made.
        """
        return self._dialogue_state

    def __enter__(self) -> CommandGrounder:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Leave the graph. Open tasks get no result any more."""
        self._background.close()

    def wait_until_active(self, timeout: float | None = None) -> None:
        """Wait until perception runs and is active (it has loaded its model).

        timeout: seconds, None: no limit. Raises GroundingError: NO_SERVER, or INACTIVE when it runs
        and is not active.
        """
        deadline = _deadline(timeout)
        code, seen = "NO_SERVER", "nobody offers the action"
        while time.monotonic() < deadline:
            if self._client.server_is_ready() and self._state.service_is_ready():
                code, seen = "NO_SERVER", "it is there and does not say its state"
                with contextlib.suppress(GroundingError):
                    left = min(deadline - time.monotonic(), 5.0)
                    state = self._background.call(self._state, GetState.Request(), left)
                    if state.current_state.id == State.PRIMARY_STATE_ACTIVE:
                        return
                    code, seen = "INACTIVE", f"perception is {state.current_state.label}"
            self._background.check()
            time.sleep(TICK)
        name = self.node.resolve_topic_name(Perception.GROUND_WITH_DIALOGUE.name)
        raise GroundingError(code, f"{name}: {seen}, after {timeout:g} s")

    def ground(
        self,
        expression: str,
        *,
        on_question: OnQuestion | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> GroundingResult:
        """Hold the whole dialogue and return the object that the words name.

        on_question: called with each ClarificationQuestion; it returns the answer, as a text or as
        the index of a candidate, and None leaves the answer to the topic `speech`. timeout: seconds
        for everything, None: no limit; then the dialogue is canceled. fields: image, depth,
        camera_info, max_turns, answer_timeout and track, as for `start`.

        Raises GroundingError. An error in on_question or a KeyboardInterrupt cancels the dialogue.
        """
        deadline = _deadline(timeout)
        task = self.start(expression, timeout=timeout, **fields)
        left = None if timeout is None else max(0.0, deadline - time.monotonic())
        try:
            return task.result(left, on_question)
        except BaseException:
            task.leave()
            raise

    def start(
        self,
        expression: str,
        *,
        timeout: float | None = 10.0,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
        max_turns: int = 0,
        answer_timeout: float = 0.0,
        track: bool = False,
    ) -> GroundingTask:
        """Begin a dialogue and return at once.

        timeout: seconds to wait for perception. image, depth, camera_info: instead of the
        camera's. max_turns (questions), answer_timeout (seconds): 0 means perception's parameters.
        track: follow the object once it is found, see `tracked`. Raises GroundingError: NO_SERVER.
        """
        name = Perception.GROUND_WITH_DIALOGUE.name
        self._background.wait_for(self._client.server_is_ready, timeout, name)
        goal = GroundWithDialogue.Goal(
            expression=expression,
            max_turns=max_turns,
            answer_timeout=duration(answer_timeout),
            track=track,
        )
        _fill(goal, image, depth, camera_info)
        return GroundingTask(self._background, self._client, self.answer, goal)

    def ground_once(
        self,
        expression: str,
        *,
        force: bool = False,
        timeout: float = 30.0,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
    ) -> GroundingResult | ClarificationQuestion:
        """Return the grounding, or the question that perception would ask.

        force: point at the best match instead of asking. timeout: seconds. Raises GroundingError.
        """
        request = Ground.Request(expression=expression, force_grounding=force)
        _fill(request, image, depth, camera_info)
        response = self._asked(self._ground, request, timeout)
        return response.question if response.is_question else response.grounding

    @property
    def tracked(self) -> dict[int, TrackedObject]:
        """The newest message of each followed object, by track id; the first use subscribes."""
        if self._tracked is None:
            self._tracked = {}
            Perception.TRACKED.subscribe(self.node, self._on_tracked)
        return dict(self._tracked)

    def _on_tracked(self, message: TrackedObject) -> None:
        assert self._tracked is not None
        self._tracked[message.track_id] = message

    def follow(self, box: BoundingBox | None = None, timeout: float = 10.0) -> int:
        """Follow the object of the last grounding, or of a box of the newest frame.

        box: pixels. Returns the track id of its messages in `tracked`. Raises GroundingError.
        """
        request = Track.Request(command=Track.Request.START)
        if box is not None:
            request.box = box
        return int(self._asked(self._track, request, timeout).track_id)

    def unfollow(self, track_id: int = 0, timeout: float = 10.0) -> None:
        """Follow an object no longer; 0: none at all. Raises GroundingError."""
        request = Track.Request(command=Track.Request.STOP, track_id=track_id)
        self._asked(self._track, request, timeout)
        if self._tracked is not None:
            for number in [track_id] if track_id else list(self._tracked):
                self._tracked.pop(number, None)

    def answer(self, answer: str | int, dialogue_id: str = "", timeout: float = 10.0) -> bool:
        """Answer the open question of any dialogue; False if none is open.

        answer: a text, or the index of one of the question's candidates. dialogue_id: "" is the one
        that waits. Raises GroundingError.
        """
        request = answer_request(answer, dialogue_id)
        response = self._background.call(self._answer, request, timeout)
        if response.error_code == response.UNKNOWN_DIALOGUE:
            return False
        if response.error_code != response.NONE:
            raise GroundingError(error_name(response.error_code), response.error_msg)
        return bool(response.accepted)

    def teach(
        self,
        name: str,
        box: BoundingBox | None = None,
        *,
        image: Image | None = None,
        teacher: str = "",
        timeout: float = 30.0,
    ) -> TaughtObject:
        """Teach the name of an object; return the object as perception knows it now.

        box: pixels of the image; None: the object that perception pointed at last. image: None is
        the camera's newest one. teacher: who shows it. timeout: seconds. Raises GroundingError.
        """
        request = TeachObject.Request(name=name, teacher=teacher)
        for field, value in (("box", box), ("image", image)):
            if value is not None:
                setattr(request, field, value)
        return self._asked(self._teach, request, timeout).object

    def forget(self, name: str, timeout: float = 30.0) -> None:
        """Let perception forget a taught object and all of its examples. Raises GroundingError."""
        self._asked(self._forget, ForgetObject.Request(name=name), timeout)

    def list_objects(self, timeout: float = 30.0) -> list[TaughtObject]:
        """Return the objects that perception was taught, by name. Raises GroundingError."""
        return list(self._asked(self._list, ListObjects.Request(), timeout).objects)

    def _asked(self, client: Any, request: Any, timeout: float) -> Any:
        """Return a response without an error. Raises GroundingError."""
        response = self._background.call(client, request, timeout)
        if response.error_code != response.NONE:
            raise GroundingError(
                error_name(response.error_code, type(response)), response.error_msg
            )
        return response


def answer_request(answer: str | int, dialogue_id: str) -> AnswerClarification.Request:
    """The request of an answer in words, or by the index of a candidate."""
    request = AnswerClarification.Request(dialogue_id=dialogue_id)
    if isinstance(answer, str):
        request.text = answer
    else:
        request.candidate = answer
    return request


def _fill(
    request: Any, image: Image | None, depth: Image | None, camera_info: CameraInfo | None
) -> None:
    """Put the images that are given into a goal or a request."""
    given = {"image": image, "depth": depth, "camera_info": camera_info}
    for name, value in given.items():
        if value is not None:
            setattr(request, name, value)
