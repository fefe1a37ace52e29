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
from clue_msgs.msg import ClarificationQuestion, GroundingResult
from clue_msgs.srv import AnswerClarification, Ground
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, Image

from clue_ros.nodes.messages import duration

# -------------------------------------------------------------------------------------------------
# A node with a thread of its own: what CommandGrounder calls services with, and its errors.

TICK = 0.1  # seconds between looks at the clock, and at whether ROS has been shut down
LEAVE = 5.0  # seconds for the thread to end


class GroundingError(Exception):
    """Why there is no grounding.

    Attributes:
        code: an error of the action (ANSWER_TIMEOUT, BUSY, MAX_TURNS, ...; docs/ros.md has all), or
            NO_SERVER: perception is not there; SERVER_LOST: it died during the dialogue;
            REJECTED: it did not take the goal; TIMEOUT: the caller's time is up; SHUTDOWN: ROS is.
        message: what was wrong and what to do about it, one line.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def error_name(number: int) -> str:
    """Return the name of an error_code."""
    names = [name for name in dir(type(GroundWithDialogue.Result)) if name.isupper()]
    return next(
        (n for n in names if getattr(GroundWithDialogue.Result, n) == number), f"error {number}"
    )


class BackgroundNode:
    """A node that spins in a thread of its own, so that whoever calls through it may block.

    context: None is the default one, which is initialised, and shut down by `close`, if nobody has.
    """

    def __init__(self, name: str, namespace: str, context: Any) -> None:
        self._context = context or rclpy.get_default_context()
        self._owns_context = not self._context.ok()
        if self._owns_context:
            # Ctrl-C is Python's, so that there still is a context to cancel the dialogue with.
            rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(name, namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._spin, name=name, daemon=True)

    def start(self) -> None:
        """Spin. What the node needs is made before: rclpy's lists are not for two threads."""
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

    @property
    def alive(self) -> bool:
        """Whether it is open, and ROS is."""
        return not self._closed.is_set() and bool(self._context.ok())

    def check(self) -> None:
        """Raise GroundingError (SHUTDOWN) unless it is alive."""
        if not self.alive:
            raise GroundingError("SHUTDOWN", "ROS has been shut down")

    def call(self, client: Any, request: Any, timeout: float) -> Any:
        """Call a service. Raises GroundingError: NO_SERVER, TIMEOUT."""
        deadline = time.monotonic() + timeout
        self.wait_for(client.service_is_ready, timeout, client.srv_name)
        ended = threading.Event()
        responses: list[Any] = []

        def send() -> None:
            client.call_async(request).add_done_callback(received)

        def received(future: Any) -> None:
            responses.append(future.result())
            ended.set()

        self.soon(send)
        while not ended.wait(TICK):
            self.check()
            if time.monotonic() > deadline:
                raise GroundingError("TIMEOUT", f"{client.srv_name}: no answer in {timeout:g} s")
        return responses[0]

    def wait_for(self, ready: Callable[[], bool], timeout: float | None, name: str) -> None:
        """Wait until `ready`, of the service or action `name`. Raises GroundingError: NO_SERVER."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            self.check()
            if deadline is not None and time.monotonic() > deadline:
                full = self.node.resolve_service_name(name)
                raise GroundingError(
                    "NO_SERVER", f"nobody offers {full} after {timeout:g} s: is perception running?"
                )
            time.sleep(TICK)

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run in the thread that spins. What fails there is logged and ends nothing else."""

        def run() -> None:
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001 - it would end the thread that spins
                self.node.get_logger().error(f"{type(error).__name__}: {error}")

        self._executor.create_task(run)

    def _spin(self) -> None:
        while not self._closed.is_set() and self._context.ok():
            try:
                self._executor.spin_once(timeout_sec=1.0)
            except ExternalShutdownException:
                return
            except Exception as error:  # noqa: BLE001 - one callback's failure is not the client's
                if self._context.ok():
                    self.node.get_logger().error(f"{type(error).__name__}: {error}")
                self._closed.wait(TICK)


# -------------------------------------------------------------------------------------------------
# One dialogue that CommandGrounder has begun: its questions, its answers, and how it ends.

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


__all__ = ["CommandGrounder", "GroundingError", "GroundingTask", "OnQuestion"]


class CommandGrounder:
    """Asks perception what words mean in the camera's image, and holds the dialogue it may take.

    name, namespace: of its node; the names of topics, services and the action are relative, as
    those of perception are. perception: perception's node name, for `wait_until_active`. context:
    None is the default one, which is initialised (and shut down by `close`) if nobody has; where
    somebody has called rclpy.init, Ctrl-C shuts ROS down before a dialogue can be canceled.
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
        self._client = ActionClient(self.node, GroundWithDialogue, "ground_with_dialogue")
        self._ground = self.node.create_client(Ground, "ground")
        self._answer = self.node.create_client(AnswerClarification, "answer")
        self._state = self.node.create_client(GetState, f"{perception}/get_state")
        self._background.start()

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
        """Wait until perception is there and active (it has loaded its model).

        timeout: seconds, None: as long as it takes. Raises GroundingError: NO_SERVER, or INACTIVE
        when it is there and not active.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = "nobody offers the action"
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                code = "INACTIVE" if seen.startswith("perception is") else "NO_SERVER"
                topic = self.node.resolve_topic_name("ground_with_dialogue")
                raise GroundingError(code, f"{topic}: {seen}, after {timeout:g} s")
            if self._client.server_is_ready() and self._state.service_is_ready():
                seen = "it is there and does not say its state"
                with contextlib.suppress(GroundingError):
                    state = self._background.call(
                        self._state, GetState.Request(), min(left or 5.0, 5.0)
                    )
                    if state.current_state.id == State.PRIMARY_STATE_ACTIVE:
                        return
                    seen = f"perception is {state.current_state.label}"
            self._background.check()
            time.sleep(TICK)

    def ground(
        self,
        expression: str,
        *,
        on_question: OnQuestion | None = None,
        timeout: float | None = None,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
        max_turns: int = 0,
        answer_timeout: float = 0.0,
    ) -> GroundingResult:
        """Hold the whole dialogue and return what the words mean.

        on_question: called with each ClarificationQuestion; the text it returns is the answer, and
        None leaves the answer to the topic `speech`. timeout: seconds for everything, None: as long
        as it takes; then the dialogue is canceled. image, depth, camera_info: instead of the
        camera's. max_turns, answer_timeout (seconds): 0 means perception's parameters.

        Raises GroundingError. An error in on_question or a KeyboardInterrupt cancels the dialogue.
        """
        begun = time.monotonic()
        task = self.start(
            expression,
            timeout=timeout,
            image=image,
            depth=depth,
            camera_info=camera_info,
            max_turns=max_turns,
            answer_timeout=answer_timeout,
        )
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
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
    ) -> GroundingTask:
        """Begin a dialogue and return at once; arguments as of `ground`.

        timeout: seconds to wait for perception to be there. Raises GroundingError: NO_SERVER.
        """
        self._background.wait_for(self._client.server_is_ready, timeout, "ground_with_dialogue")
        goal = GroundWithDialogue.Goal(
            expression=expression, max_turns=max_turns, answer_timeout=duration(answer_timeout)
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
        """Look once: return the grounding, or the question that would have to be asked.

        force: point at the best match instead of asking. timeout: seconds. Raises GroundingError.
        """
        request = Ground.Request(expression=expression, force_grounding=force)
        _fill(request, image, depth, camera_info)
        response = self._background.call(self._ground, request, timeout)
        if response.error_code != response.NONE:
            raise GroundingError(error_name(response.error_code), response.error_msg)
        return response.question if response.is_question else response.grounding

    def answer(self, text: str, dialogue_id: str = "", timeout: float = 10.0) -> bool:
        """Answer an open question, of whoever's dialogue; False if none is open.

        dialogue_id: "" is the one that waits. Raises GroundingError.
        """
        request = AnswerClarification.Request(dialogue_id=dialogue_id, text=text)
        response = self._background.call(self._answer, request, timeout)
        if error_name(response.error_code) == "UNKNOWN_DIALOGUE":
            return False
        if response.error_code != response.NONE:
            raise GroundingError(error_name(response.error_code), response.error_msg)
        return bool(response.accepted)


def _fill(
    request: Any, image: Image | None, depth: Image | None, camera_info: CameraInfo | None
) -> None:
    """Put what is given into a goal or a request."""
    given = {"image": image, "depth": depth, "camera_info": camera_info}
    for name, value in given.items():
        if value is not None:
            setattr(request, name, value)
