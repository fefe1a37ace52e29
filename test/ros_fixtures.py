"""A context of one's own; the perception node in a process, for who talks to it over DDS.

Its model has random weights, so nothing depends on what it answers: threshold 0 makes it ask,
threshold 1 makes it point.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ros_helpers import Client, Process, isolate, ros_client, wait_until

REQUEST = "pick up the block"
LONG = 100.0  # seconds that no test waits for on purpose, however slow the machine


@pytest.fixture
def executor() -> Iterator[Any]:
    """Give an executor of one thread and its context, for a node in the test's own process."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    isolate()
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = SingleThreadedExecutor(context=context)
    yield executor
    executor.shutdown()
    context.try_shutdown()


@pytest.fixture(scope="module")
def model(random_model: Path) -> Path:
    """The model that the node loads; do not write to it."""
    return random_model


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Process]:
    process = Process(
        "perception",
        tmp_path_factory.mktemp("log") / "perception.log",
        parameters={"model": model, "image_timeout": 0.5, "answer_timeout": LONG},
    )
    yield process
    status = process.stop()
    assert status == 0, process.text()


@pytest.fixture(scope="module")
def shared(node: Process) -> Iterator[Client]:
    with ros_client() as client:
        yield client


@pytest.fixture
def client(shared: Client, node: Process) -> Client:
    """Give the client with the node active, the camera running, and nothing heard yet."""
    assert node.popen.poll() is None, f"the node has ended: {node.text()}"
    if shared.state() == "unconfigured":
        assert shared.transition("configure"), node.text()
    if shared.state() == "inactive":
        assert shared.transition("activate"), node.text()
    shared.set(threshold=1.0, image_transport="raw", max_image_age=LONG, answer_timeout=LONG)
    shared.start_camera()
    wait_until(lambda: shared.ground(REQUEST).error_code == 0, "the first image")
    shared.clear()
    return shared


def works(client: Client) -> None:
    """Check that the next good request gets its answer."""
    response = client.ground(REQUEST, image=client.image(), force=True)
    assert response.error_code == 0, response.error_msg


def asking_goal(client: Client, **fields: Any) -> tuple[Any, Any]:
    """Start a dialogue that asks; return the goal's handle and the question."""
    assert client.set(threshold=0.0) == ""
    handle = client.goal(REQUEST, **fields)
    return handle, client.next("question")
