# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The demo's ROS 2 graph: the nodes as processes, and a client that watches their topics."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import rclpy
from clue_msgs.msg import ClarificationQuestion, DialogueState, GroundingResult
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import String

from clue_ros.nodes import messages
from clue_ros.nodes.topics import LATEST

CALL_TIMEOUT = 30.0  # seconds, for a service of another node
ENDS_IN = {
    "configure": "inactive", "activate": "active", "deactivate": "inactive",
    "cleanup": "unconfigured",
}  # fmt: skip
BEGINS_IN = {
    "configure": "unconfigured", "activate": "inactive", "deactivate": "active",
    "cleanup": "inactive",
}  # fmt: skip
AGAIN_AFTER = 10.0  # seconds without a response, after which a request is made again
LOAD_TIMEOUT = 600.0  # seconds; a full-size model on a CPU takes minutes


class GraphError(Exception):
    """A node failed; the message says which, and where its log is."""


class Processes:
    """The nodes, each a process with a log file; ended together."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._files: list[IO[bytes]] = []

    def start(self, module: str, *options: str, typed: bool = False, **parameters: object) -> None:
        """Start a program of `clue_ros.nodes.executables` with its options and parameters.

        typed: whether `type_line` can write to its stdin.
        """
        command = [sys.executable, "-m", "clue_ros.nodes.executables", module]
        command += [*options, "--ros-args"]
        for name, value in parameters.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["-p", f"{name}:={text}"]
        file = (self._logs / f"{module}.log").open("wb")
        self._files.append(file)
        stdin = subprocess.PIPE if typed else subprocess.DEVNULL
        # A session of its own: Ctrl-C reaches the demo alone, which ends the nodes in order.
        self._running[module] = subprocess.Popen(
            command, stdin=stdin, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def type_line(self, module: str, text: str) -> None:
        """Write one line to a node's stdin."""
        pipe = self._running[module].stdin
        assert pipe is not None
        pipe.write(" ".join(text.split()).encode() + b"\n")
        pipe.flush()

    def pid(self, module: str) -> int:
        """Return a node's process id."""
        return self._running[module].pid

    def check(self) -> None:
        """Raise GraphError with the end of its log if a node has ended."""
        for module, process in self._running.items():
            if process.poll() is not None:
                raise GraphError(f"{module} has ended ({process.returncode}): {self.tail(module)}")

    def tail(self, module: str, lines: int = 5) -> str:
        """Return the last lines of a node's log, on one line."""
        path = self._logs / f"{module}.log"
        last = path.read_text(errors="replace").splitlines()[-lines:]
        return f"{' | '.join(last)} (whole log: {path})"

    def stop(self) -> None:
        """End every node: SIGINT, and after five seconds SIGKILL."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 5.0
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for file in self._files:
            file.close()


class Watcher:
    """Collects the messages of the graph.

    `events` gets ("question", msg), ("say", text), ("grounding", msg).
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        # The demo handles Ctrl-C and SIGTERM itself: it ends its processes first.
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node("clue_demo")
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.attention: Image | None = None
        self.newest_stamp = 0.0  # of the camera's newest picture, seconds
        self.perception_sees = 0  # pictures that perception has taken
        self.state = ""
        self.dialogue_id = ""  # of the dialogue that perception has begun last
        self.on_question: Callable[[], object] = lambda: None
        put = self.events.put
        listen = self.node.create_subscription
        listen(ClarificationQuestion, "question", self._on_question, 10)
        listen(GroundingResult, "grounding", lambda m: put(("grounding", m)), 10)
        listen(String, "say", lambda m: put(("say", m.data)), 10)
        listen(Image, "perception/attention_map", self._on_attention, LATEST)
        listen(DialogueState, "dialogue_state", self._on_dialogue, LATEST)
        listen(CameraInfo, "camera_info", self._on_camera, qos_profile_sensor_data)
        listen(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self._change = self.node.create_client(ChangeState, "perception/change_state")
        self._set = self.node.create_client(SetParameters, "image_source/set_parameters")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()

    def _on_question(self, message: ClarificationQuestion) -> None:
        self.on_question()
        self.events.put(("question", message))

    def _on_dialogue(self, message: DialogueState) -> None:
        self.dialogue_id = message.dialogue_id or self.dialogue_id

    def _on_attention(self, message: Image) -> None:
        self.attention = message

    def _on_camera(self, message: CameraInfo) -> None:
        self.newest_stamp = messages.seconds(message.header.stamp)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {value.key: value.value for value in status.values}
            self.state = values.get("state", self.state)
            self.perception_sees = int(values.get("images taken", self.perception_sees))

    def wait(self, condition: Any, what: str, seconds: float) -> None:
        """Wait until `condition()` is true.

        Raises GraphError when a node has ended or time is up.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            self._processes.check()
            if time.monotonic() > deadline:
                raise GraphError(
                    f"{what}: not within {seconds:g} s: {self._processes.tail('perception')}"
                )
            time.sleep(0.02)

    def action_client(self, kind: Any, name: str) -> Any:
        """Make a client of an action in the thread that spins.

        Made in another thread, rclpy 9.1 shows it to the spinning thread before it is complete,
        which sometimes ends that thread.
        """
        making = self._executor.create_task(ActionClient, self.node, kind, name)
        self.wait(making.done, f"a client of {name}", CALL_TIMEOUT)
        return making.result()

    def transition(self, name: str, seconds: float = CALL_TIMEOUT) -> None:
        """Ask perception for a lifecycle transition.

        The state in its diagnostics counts as well as the service's response.

        Raises GraphError when it fails, with its log's end.
        """
        number = getattr(Transition, f"TRANSITION_{name.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        what, self.state = f"perception's {name}", ""
        future = self._call(
            self._change, request, what, seconds,
            has_effect=lambda: self.state == ENDS_IN[name],
            is_lost=lambda: self.state == BEGINS_IN[name],
        )  # fmt: skip
        if future.done() and not future.result().success and self.state != ENDS_IN[name]:
            raise GraphError(f"perception cannot {name}: {self._processes.tail('perception')}")

    def show(self, image: Path) -> None:
        """Set the image source's picture, and wait until the camera sends it."""
        switched = self.node.get_clock().now().nanoseconds * 1e-9
        message = Parameter("source", value=str(image)).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        result = (
            self._call(self._set, request, "the image source", CALL_TIMEOUT).result().results[0]
        )
        if not result.successful:
            raise GraphError(result.reason)
        # Two frames later, nothing from before is on its way any more.
        self.wait(lambda: self.newest_stamp > switched, "a picture from the image source", 20.0)
        first = self.newest_stamp
        self.wait(lambda: self.newest_stamp > first, "the next picture", 20.0)

    def _call(
        self,
        client: Any,
        request: Any,
        what: str,
        seconds: float,
        has_effect: Callable[[], bool] = lambda: False,
        is_lost: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Call a service and return the future: it has the response, or the request `has_effect`.

        Where a server has not discovered a client yet, its response is lost. A request that
        `is_lost` is made again.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.wait(client.service_is_ready, f"{what} to be there", CALL_TIMEOUT)
            future = client.call_async(request)
            again = time.monotonic() + AGAIN_AFTER

            def ended(future: Any = future) -> bool:
                return bool(future.done()) or has_effect()

            self.wait(
                lambda ended=ended, again=again: (
                    ended() or (time.monotonic() > again and is_lost())
                ),
                what,
                max(0.1, deadline - time.monotonic()),
            )
            if ended():
                return future

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown(timeout_sec=1.0)
        rclpy.try_shutdown()
        self._thread.join(2.0)


def start_nodes(
    processes: Processes,
    watcher: Watcher,
    image: Path,
    model: str,
    device: str,
    answer_timeout: float,
    *,
    speech: dict[str, Any],
    tts: dict[str, Any] | None = None,
) -> None:
    """Start image_source, perception, speech and tts, and wait until perception sees the camera.

    speech, tts: arguments of `Processes.start` for these nodes.
    """
    print(
        "starting image_source, perception, speech and tts, each a process of its own", flush=True
    )
    processes.start("image_source", source=image.resolve(), rate=15.0)
    processes.start("tts", **(tts or {}))
    processes.start("speech", **speech)
    processes.start(
        "perception", model=model, device=device, answer_timeout=answer_timeout, max_image_age=10.0
    )
    watcher.transition("configure", LOAD_TIMEOUT)
    watcher.transition("activate")
    watcher.wait(lambda: watcher.perception_sees > 0, "the first picture in perception", 30.0)


def stay_on_this_machine() -> None:
    """Keep the graph, and all its child processes, off other robots' networks and domains."""
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ.setdefault("ROS_LOCALHOST_ONLY", "1")
    else:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("ROS_DOMAIN_ID", str(101 + os.getpid() % 100))
