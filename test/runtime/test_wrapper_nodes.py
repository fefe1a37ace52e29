"""The perception node with model:=wrapper, its boxes from a topic, over DDS between processes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.msg import BoundingBox, ClarificationQuestion, GroundedObject  # noqa: E402
from ros_helpers import Client, Process, ros_client, wait_until  # noqa: E402

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.nodes.candidate_topic import detection_candidates  # noqa: E402


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(
        "perception",
        tmp_path_factory.mktemp("log") / "perception.log",
        parameters={"model": "wrapper", "candidates": "topic:/boxes@clue_msgs"},
    )
    yield process
    assert process.stop() == 0, process.text()


@pytest.fixture(scope="module")
def client(node: Process) -> Iterator[Client]:
    with ros_client() as client:
        assert client.transition("configure"), node.text()
        assert client.transition("activate"), node.text()
        yield client


def question(header: object) -> ClarificationQuestion:
    boxes = {"red mug": (5.0, 5.0, 20.0, 20.0), "blue mug": (30.0, 5.0, 45.0, 20.0)}
    found = [
        GroundedObject(
            label=label,
            score=0.9,
            box=BoundingBox(x_min=b[0], y_min=b[1], x_max=b[2], y_max=b[3]),
        )
        for label, b in boxes.items()
    ]
    return ClarificationQuestion(header=header, candidates=found)


def test_a_robot_asks_and_points_with_the_boxes_of_a_topic(client: Client, node: Process) -> None:
    publisher = client.node.create_publisher(ClarificationQuestion, "/boxes", 10)
    wait_until(lambda: publisher.get_subscription_count() > 0, "the node's subscription")
    image = client.image()
    publisher.publish(question(image.header))
    asked = client.ground("pick up the mug", image=image)
    assert "red" in asked.question.text, (asked, node.text())
    assert len(asked.question.candidates) == 2
    publisher.publish(question(image.header))
    pointed = client.ground("pick up the blue mug", image=image)
    assert pointed.grounding.target.box.x_min == 30, (pointed, node.text())


def test_a_silent_topic_ends_the_request_with_a_reason(client: Client, node: Process) -> None:
    from builtin_interfaces.msg import Time

    image = client.image()
    image.header.stamp = Time(sec=1)
    ros_helpers.within(2.5, lambda: False)  # the last boxes are too old by now
    response = client.ground("pick up the mug", image=image)
    assert response.error_code != 0
    assert "no detections came" in response.error_msg


@pytest.mark.parametrize("nested", [True, False])
def test_detections_of_old_and_new_vision_msgs_are_read(nested: bool) -> None:
    part = SimpleNamespace
    point = part(x=30.0, y=20.0)
    center = part(position=point) if nested else point
    names = [("cup", 0.2), ("mug", 0.7)]
    if nested:
        results = [part(hypothesis=part(class_id=n, score=s)) for n, s in names]
    else:
        results = [part(id=n, score=s) for n, s in names]
    bbox = part(center=center, size_x=20.0, size_y=10.0)
    message = part(detections=[part(bbox=bbox, results=results), part(bbox=bbox, results=[])])
    (found,) = detection_candidates(message, "topic:/yolo")
    assert (found.box, found.label, found.score) == (Box(20, 15, 40, 25), "mug", 0.7)
