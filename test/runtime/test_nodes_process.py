"""How a node's process spins, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ros_helpers
from fast_dds import segment_of

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.srv import Ground  # noqa: E402
from rclpy.callback_groups import ReentrantCallbackGroup  # noqa: E402
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.images import load_image  # noqa: E402
from clue_ros.nodes.lifecycle import spin  # noqa: E402


class Destroying(Node):  # type: ignore[misc]  # rclpy has no types here
    """Destroys a subscription just when the executor has gathered what it waits for.

    A callback in another thread does that now and then; here it happens again and again.
    """

    doomed: Any = None

    @property
    def guards(self) -> Iterator[Any]:
        """The node's guard conditions, which the executor walks when it has all else."""
        if self.doomed is not None:
            self.doomed, doomed = None, self.doomed
            self.destroy_subscription(doomed)
        yield from super().guards


def test_a_subscription_destroyed_at_the_wrong_moment_does_not_end_the_node() -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Destroying("destroying", context=context)
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(turns))
        if node.doomed is None and len(turns) < 20:
            node.doomed = node.create_subscription(
                String, "doomed", turns.append, 1, callback_group=ReentrantCallbackGroup()
            )
        elif len(turns) >= 20:
            context.try_shutdown()

    node.create_timer(0.01, turn)
    try:
        spin(executor)
    finally:
        executor.shutdown(timeout_sec=2.0)
        context.try_shutdown()
    assert len(turns) >= 20, "the timer went on"


def test_an_error_of_a_callback_still_ends_the_process() -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node("failing", context=context)
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    node.create_timer(0.01, lambda: 1 // 0)
    try:
        with pytest.raises(ZeroDivisionError):
            spin(executor)
    finally:
        executor.shutdown(timeout_sec=2.0)
        context.try_shutdown()


def own_segments(pid: int) -> set[Path]:
    """The shared memory that a process made for Fast DDS: it holds the locks of its own."""
    held = {Path(os.readlink(link)) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return {segment for lock in held if (segment := segment_of(lock))}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["image_source", "perception"])
def test_a_node_that_is_told_to_end_gives_its_shared_memory_back(
    tmp_path: Path, random_model: Path, name: str, number: signal.Signals
) -> None:
    """34 MB of RAM each, which Fast DDS leaves behind where a participant is not destroyed."""
    picture = ros_helpers.ROOT / "demo" / "mugs.png"
    given, ready = {
        "image_source": (["--ros-args", "-p", f"source:={picture}"], "publishing"),
        "perception": (
            ["--keep", "--ros-args", "-p", f"model:={random_model}", "-p", "autostart:=true"],
            "active, looking",
        ),
    }[name]
    node = ros_helpers.Process(name, tmp_path / "log", *given)
    try:
        ros_helpers.wait_until(lambda: ready in node.text(), "the node")
        pid = node.popen.pid
        if "--keep" in given:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        segments = own_segments(pid)
        if not segments:
            pytest.skip("this middleware has no shared memory of Fast DDS")
        assert all(path.exists() for path in segments)
        node.popen.send_signal(number)
        node.popen.wait(ros_helpers.TIMEOUT)
    finally:
        node.kill()
    assert not [path for path in segments if path.exists()]


@pytest.fixture
def silent_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Give a hub that takes every call and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name, value in {
            "HF_ENDPOINT": address,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_ETAG_TIMEOUT": "600",
            "HF_HUB_DOWNLOAD_TIMEOUT": "600",
            "HF_HOME": str(tmp_path / "hub"),
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_node_that_is_told_to_end_while_its_model_loads_does_not_wait_for_it(
    tmp_path: Path, silent_hub: socket.socket
) -> None:
    node = ros_helpers.Process(
        "perception",
        tmp_path / "log",
        parameters={"autostart": True, "model": "somebody/some-model"},
    )
    try:
        silent_hub.settimeout(ros_helpers.TIMEOUT)
        call, _ = silent_hub.accept()
        with call:
            segments = own_segments(node.popen.pid)
            node.popen.send_signal(signal.SIGINT)
            assert node.popen.wait(ros_helpers.TIMEOUT) == 0
    finally:
        node.kill()
    assert not [path for path in segments if path.exists()]


def test_a_node_that_is_told_to_end_while_its_model_computes_ends_in_order(tmp_path: Path) -> None:
    """C++ of an engine, cut off by the interpreter's end, would abort the process."""
    context = rclpy.Context()
    ros_helpers.isolate()
    rclpy.init(context=context)
    client = ros_helpers.Client("impatient", context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(client.node)
    threading.Thread(target=executor.spin, daemon=True).start()
    node = ros_helpers.Process(
        "perception", tmp_path / "log", "--ros-args", "-p", "autostart:=true", "-p", "num_views:=5"
    )
    try:
        ros_helpers.wait_until(lambda: "active, looking" in node.text(), "the node")
        segments = own_segments(node.popen.pid)
        image = client.image(load_image(ros_helpers.ROOT / "demo" / "mugs.png"))
        request = Ground.Request(expression="the mug on the left", image=image)
        request.force_grounding = True
        ground = client.node.create_client(Ground, "ground")
        assert ground.wait_for_service(ros_helpers.TIMEOUT)
        ground.call_async(request)
        ros_helpers.wait_until(lambda: "the person asks" in node.text(), "the request")
        node.popen.send_signal(signal.SIGTERM)
        assert node.popen.wait(ros_helpers.TIMEOUT) == 0
    finally:
        node.kill()
        executor.shutdown(timeout_sec=2.0)
        client.node.destroy_node()
        context.try_shutdown()
    assert "Fatal" not in node.text()
    assert not [path for path in segments if path.exists()]


def test_a_node_that_grounds_with_the_embedded_model_holds_no_torch(tmp_path: Path) -> None:
    node = ros_helpers.Process("perception", tmp_path / "log", parameters={"autostart": True})
    try:
        ros_helpers.wait_until(lambda: "active, looking" in node.text(), "the node")
        with ros_helpers.ros_client() as client:
            image = client.image(load_image(ros_helpers.ROOT / "demo" / "mugs.png"))
            response = client.ground("the mug on the left", image=image, force=True)
        assert response.error_code == 0, response.error_msg
        libraries = Path(f"/proc/{node.popen.pid}/maps").read_text()
        assert node.stop() == 0
    finally:
        node.kill()
    assert "libopenvino" in libraries
    assert "libtorch" not in libraries
