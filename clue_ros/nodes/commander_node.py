"""A node with a thread of its own: what CommandGrounder calls services with, and its errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy
from clue_msgs.action import GroundWithDialogue
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

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
