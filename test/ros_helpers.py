"""Real ROS 2 processes for tests.

Start nodes on a DDS domain of their own, and a client that talks to them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
_CONNECTED: weakref.WeakSet[Any] = weakref.WeakSet()  # clients that their server knows
TIMEOUT = 120.0  # seconds to wait for what must come; reached only when a test fails


def need_ros() -> None:
    """Skip the calling test module where there is no ROS 2 or no clue_msgs."""
    for name in ("rclpy", "clue_msgs.msg._grounding_result", "clue_ros.nodes.image_conversion"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            pytest.skip(
                f"{name} is missing ({error}): scripts/test prepares it", allow_module_level=True
            )


@functools.cache
def own_domain() -> tuple[int, socket.socket]:
    """A DDS domain that no other test process on this machine has, and the lock that keeps it.

    The lock is the name of an abstract socket: the kernel frees it when the process ends, however
    it ends, and it is seen wherever this machine's loopback is. Above 101 the ports of a domain
    are among those that Linux gives to anyone.
    """
    for step in range(101):
        domain = 1 + (os.getpid() + step) % 101
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(f"\0clue_ros_test_domain_{domain}")
        except OSError:
            lock.close()
        else:
            return domain, lock
    raise RuntimeError("no DDS domain is free: 101 other test processes are running")


PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")  # Fast DDS 3, 2


def isolate() -> dict[str, str]:
    """Put this process, and children that get the returned environment, on their own domain."""
    os.environ["ROS_DOMAIN_ID"] = str(own_domain()[0])
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ["ROS_LOCALHOST_ONLY"] = "1"
    else:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    profile = str(ROOT / "config" / "fastdds.xml")
    old = os.environ.get("ROS_DISTRO") in ("humble", "iron", "jazzy")
    os.environ.setdefault(PROFILES[old], profile)
    return {**os.environ, "PYTHONFAULTHANDLER": "1"}


def over_udp(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process that a test kills: without shared memory of Fast DDS.

    A process killed while it takes a message there leaves the next one that sends to it in an
    endless loop, in C: https://github.com/eProsima/Fast-DDS/issues/6484.
    """
    kept = {name: value for name, value in environment.items() if name not in PROFILES}
    return {**kept, "FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}


class Process:
    """A node in a process of its own, its output in a file.

    killed: whether the test will kill it (`over_udp`).
    """

    def __init__(
        self,
        module: str,
        log: Path,
        *arguments: str,
        parameters: dict[str, Any] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        killed: bool = False,
    ) -> None:
        command = [sys.executable, "-m", "clue_ros.nodes.executables", module, *arguments]
        if parameters is not None or not arguments:
            command += ["--ros-args"]
        for name, value in (parameters or {}).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["-p", f"{name}:={text}"]
        self.log = log
        self._file = log.open("ab")
        self.popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=over_udp(isolate()) if killed else isolate(),
            cwd=ROOT,
        )

    def text(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> int:
        """End it as Ctrl-C does and return its exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGINT)
            try:
                self.popen.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.popen.send_signal(signal.SIGABRT)  # its log tells where each thread is
                self.popen.wait()
        self._file.close()
        return int(self.popen.returncode)


def wait_until(condition: Callable[[], Any], what: str, timeout: float = TIMEOUT) -> Any:
    """Return the first true value of `condition`.

    Fail the test, saying what was waited for, when none comes.
    """
    return within(timeout, condition) or pytest.fail(f"{what}: not within {timeout:g} s")


def within(timeout: float, condition: Callable[[], Any]) -> Any:
    """Return the first true value of `condition`, None when none comes."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    return None


def picture(width: int = 160, height: int = 120, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return a random picture, uint8 RGB (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)


def action_client(node: Any, kind: Any, name: str, **options: Any) -> Any:
    """Make a client of an action in the thread that spins, to which rclpy 9.1 shows it unfinished.

    Made in another one, now and then it ends that thread: "no attribute '_lock'".
    """
    from rclpy.action import ActionClient

    making = node.executor.create_task(ActionClient, node, kind, name, **options)
    wait_until(making.done, f"a client of {name}")
    return making.result()


def meet_server(node: Any, client: Any, service: str) -> None:
    """Wait until the server of `service` has discovered `client`, once for each client.

    A client that sees the server may not be seen by it yet, and the response to it is lost then.
    DDS tells what a process has made in order: a server that has answered a client made later
    knows the earlier ones. Only the question that is sent for this is sent again.
    """
    if client in _CONNECTED:
        return
    from rcl_interfaces.srv import ListParameters

    service = node.resolve_service_name(service)

    def servers() -> list[str]:
        return [
            f"{space.rstrip('/')}/{name}"
            for name, space in node.get_node_names_and_namespaces()
            if service in dict(offered(name, space))
        ]

    def offered(name: str, space: str) -> Any:
        from rclpy.node import NodeNameNonExistentError

        try:
            return node.get_service_names_and_types_by_node(name, space)
        except NodeNameNonExistentError:  # it ended in between
            return []

    server = wait_until(servers, f"a node that offers {service}")[0]
    probe = node.create_client(ListParameters, f"{server}/list_parameters")
    assert probe.wait_for_service(TIMEOUT), f"no service {probe.srv_name}"

    def answered() -> bool:
        return within(5.0, probe.call_async(ListParameters.Request()).done) is not None

    wait_until(answered, f"{server} to discover the client of {service}")
    node.destroy_client(probe)
    _CONNECTED.add(client)


def send_goal(node: Any, action: Any, goal: Any, feedback: list[Any]) -> Any:
    """Send a goal from the thread that spins and return its handle; `feedback` fills with its own.

    From there because rclpy 9.1 registers what it waits for only after it has sent the goal, and
    loses the acceptance or the feedback that another thread takes meanwhile.

    """
    assert action.wait_for_server(TIMEOUT), "no action server"
    meet_server(node, action, f"{action._action_name}/_action/send_goal")
    sending = node.executor.create_task(
        action.send_goal_async, goal, feedback_callback=lambda m: feedback.append(m.feedback)
    )
    wait_until(sending.done, "the goal to be sent")
    future = sending.result()
    wait_until(future.done, "the goal's acceptance")
    return future.result()


@contextlib.contextmanager
def ros_client(name: str = "tester") -> Iterator[Client]:
    """Give a client that is spun in a background thread."""
    isolate()
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    context = rclpy.Context()
    rclpy.init(context=context)
    executor = SingleThreadedExecutor(context=context)  # one thread: feedback stays in order
    client = Client(name, context)
    executor.add_node(client.node)
    stop = threading.Event()
    errors: list[str] = []

    def spin() -> None:
        while not stop.is_set():
            try:
                executor.spin_once(timeout_sec=1.0)
            except Exception:  # noqa: BLE001 - a thread that is gone lets all who wait for it wait
                errors.append(traceback.format_exc())
                print(errors[-1], file=sys.__stderr__, flush=True)

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield client
    finally:
        client.stop_camera()
        # In this order: what is taken down under a thread that spins raises in it now and then.
        stop.set()
        executor.wake()
        thread.join(TIMEOUT)
        executor.shutdown(timeout_sec=2.0)
        client.node.destroy_node()
        context.try_shutdown()
    assert not errors, "\n".join(errors)


class Client:
    """What a test says to the perception node, and all that it heard from it."""

    def __init__(self, name: str, context: Any) -> None:
        import rclpy
        from clue_msgs.action import GroundWithDialogue
        from clue_msgs.msg import ClarificationQuestion, GroundingResult
        from clue_msgs.srv import AnswerClarification, Ground
        from diagnostic_msgs.msg import DiagnosticArray
        from lifecycle_msgs.srv import ChangeState, GetState
        from rcl_interfaces.srv import SetParameters
        from rclpy.action import ActionClient
        from rclpy.callback_groups import ReentrantCallbackGroup
        from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
        from sensor_msgs.msg import CompressedImage, Image
        from std_msgs.msg import String

        self.node = rclpy.create_node(name, context=context)
        group = ReentrantCallbackGroup()
        self.heard: dict[str, list[Any]] = {}
        latest = QoSProfile(depth=5, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        for kind, topic, qos in (
            (ClarificationQuestion, "question", 10),
            (String, "say", 10),
            (GroundingResult, "grounding", 10),
            (Image, "perception/attention_map", latest),
            (DiagnosticArray, "/diagnostics", 10),
        ):
            self.listen(kind, topic, qos)
        self.images = self.node.create_publisher(Image, "image", qos_profile_sensor_data)
        self._jpeg = self.node.create_publisher(
            CompressedImage, "image/compressed", qos_profile_sensor_data
        )
        self._speech = self.node.create_publisher(String, "speech", 10)
        client = self.node.create_client
        self.ground_service = client(Ground, "ground", callback_group=group)
        self._answer = client(AnswerClarification, "answer", callback_group=group)
        self._change = client(ChangeState, "perception/change_state", callback_group=group)
        self._get_state = client(GetState, "perception/get_state", callback_group=group)
        self._set = client(SetParameters, "perception/set_parameters", callback_group=group)
        self.action = ActionClient(
            self.node, GroundWithDialogue, "ground_with_dialogue", callback_group=group
        )
        self.feedback: list[Any] = []
        self._camera: threading.Thread | None = None
        self._camera_stop = threading.Event()

    def listen(self, kind: Any, topic: str, qos: Any) -> list[Any]:
        """Subscribe, and return the list that fills with what is heard."""
        messages = self.heard.setdefault(topic, [])
        self.node.create_subscription(kind, topic, messages.append, qos)
        return messages

    def clear(self) -> None:
        """Forget what was heard."""
        for messages in self.heard.values():
            messages.clear()
        self.feedback.clear()

    def next(self, topic: str, count: int = 1) -> Any:
        """Wait for message number `count` since `clear` on a topic and return it."""
        messages = self.heard[topic]
        wait_until(lambda: len(messages) >= count, f"message {count} on {topic}")
        return messages[count - 1]

    # The node's life.

    def call(self, client: Any, request: Any) -> Any:
        """Call a service and return its response."""
        assert client.wait_for_service(TIMEOUT), f"no service {client.srv_name}"
        meet_server(self.node, client, client.srv_name)
        future = client.call_async(request)
        wait_until(future.done, f"the response of {client.srv_name}")
        return future.result()

    def transition(self, name: str) -> bool:
        """Ask for a lifecycle transition by name; returns whether it succeeded."""
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState

        number = getattr(Transition, f"TRANSITION_{name.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        return bool(self.call(self._change, request).success)

    def state(self) -> str:
        """Return the lifecycle state's label."""
        from lifecycle_msgs.srv import GetState

        return str(self.call(self._get_state, GetState.Request()).current_state.label)

    def set(self, **values: Any) -> str:
        """Set parameters one by one; returns "" or the first refusal's reason."""
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        for name, value in values.items():
            message = Parameter(name, value=value).to_parameter_msg()
            result = self.call(self._set, SetParameters.Request(parameters=[message])).results[0]
            if not result.successful:
                return str(result.reason)
        return ""

    # What a robot and a person do.

    def image(self, pixels: Any = None, **fields: Any) -> Any:
        """Return an rgb8 Image message stamped now; `fields` overwrite what a test wants broken."""
        from sensor_msgs.msg import Image

        from clue_ros.nodes.image_conversion import fill_image

        message = fill_image(Image(), picture() if pixels is None else pixels, "rgb8")
        message.header.stamp = self.node.get_clock().now().to_msg()
        message.header.frame_id = "test_camera"
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    def start_camera(self, publish: Callable[[], None] | None = None) -> None:
        """Publish a picture 20 times a second, and wait until the node must have one."""
        self.stop_camera()
        self._camera_stop.clear()
        show = publish or (lambda: self.images.publish(self.image()))

        def run() -> None:
            while not self._camera_stop.wait(0.05):
                show()

        self._camera = threading.Thread(target=run, daemon=True)
        self._camera.start()

    def show_jpeg(self, data: bytes) -> None:
        """Publish bytes on image/compressed."""
        import array

        from sensor_msgs.msg import CompressedImage

        message = CompressedImage(format="jpeg", data=array.array("B", data))
        message.header = self.image().header
        self._jpeg.publish(message)

    def stop_camera(self) -> None:
        """Stop publishing pictures."""
        if self._camera is not None:
            self._camera_stop.set()
            self._camera.join()
            self._camera = None

    def speak(self, text: str) -> None:
        """Say something on `speech`."""
        from std_msgs.msg import String

        wait_until(lambda: self._speech.get_subscription_count() > 0, "a listener on speech")
        self._speech.publish(String(data=text))

    def ground(self, text: str, image: Any = None, force: bool = False, **fields: Any) -> Any:
        """Call the service `ground`."""
        from clue_msgs.srv import Ground

        request = Ground.Request(expression=text, force_grounding=force, **fields)
        if image is not None:
            request.image = image
        return self.call(self.ground_service, request)

    def answer(self, text: str, dialogue_id: str = "", candidate: int = -1) -> Any:
        """Call the service `answer`."""
        from clue_msgs.srv import AnswerClarification

        request = AnswerClarification.Request(dialogue_id=dialogue_id, text=text)
        request.candidate = candidate
        return self.call(self._answer, request)

    def goal(self, text: str, **fields: Any) -> Any:
        """Send a goal and return its accepted handle."""
        from clue_msgs.action import GroundWithDialogue

        goal = GroundWithDialogue.Goal(expression=text, **fields)
        handle = send_goal(self.node, self.action, goal, self.feedback)
        assert handle.accepted
        return handle

    def result(self, handle: Any) -> Any:
        """Wait for a goal's end and return its status and result."""
        future = handle.get_result_async()
        wait_until(future.done, "the goal's result")
        return future.result()

    def cancel(self, handle: Any) -> None:
        """Ask for the goal's cancellation."""
        future = handle.cancel_goal_async()
        wait_until(future.done, "the response to the cancellation")
