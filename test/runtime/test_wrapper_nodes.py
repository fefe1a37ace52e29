"""The perception node with model:=wrapper, its boxes from a topic, over DDS between processes."""

from __future__ import annotations

from collections.abc import Iterator
from math import pi
from types import SimpleNamespace
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.msg import BoundingBox, ClarificationQuestion, GroundedObject  # noqa: E402
from ros_helpers import Client, Process, ros_client, wait_until  # noqa: E402

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.nodes.candidate_topic import detection_candidates, yolo_candidates  # noqa: E402


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


def yolo_detections(header: Any, part: Any = SimpleNamespace) -> Any:
    """Two mugs and one object without a name, which is turned, as yolo_ros publishes them."""
    array = part.DetectionArray(header=header) if part is not SimpleNamespace else part()
    array.detections = []
    for name, x, theta in (("red mug", 12.5, 0.0), ("blue mug", 37.5, 0.0), ("", 30.0, pi / 2)):
        if part is SimpleNamespace:
            found = part(bbox=part(center=part(position=part()), size=part()))
        else:
            found = part.Detection()
        found.class_id, found.class_name, found.score = 41, name, 0.9
        found.bbox.center.position.x, found.bbox.center.position.y = x, 20.0
        found.bbox.center.theta = theta
        found.bbox.size.x, found.bbox.size.y = 15.0, 5.0
        array.detections.append(found)
    return array


def test_detections_of_yolo_ros_are_read() -> None:
    red, blue, other = yolo_candidates(yolo_detections(None), "topic:/yolo")
    assert (red.box, red.label, red.score) == (Box(5, 17.5, 20, 22.5), "red mug", 0.9)
    assert (blue.label, other.label) == ("blue mug", "41")
    assert other.box.as_tuple() == pytest.approx((27.5, 12.5, 32.5, 27.5))


def test_a_topic_of_yolo_ros_is_subscribed_to_once_it_is_published(
    client: Client, node: Process
) -> None:
    yolo = pytest.importorskip("yolo_msgs.msg", reason="needs yolo_msgs: scripts/extra_ros")
    assert client.transition("deactivate")
    assert client.transition("cleanup")
    assert client.set(candidates="topic:/yolo/detections") == ""
    assert client.transition("configure"), node.text()
    assert client.transition("activate"), node.text()
    publisher = client.node.create_publisher(yolo.DetectionArray, "/yolo/detections", 10)
    image = client.image()
    message = yolo_detections(image.header, yolo)
    wait_until(lambda: publisher.get_subscription_count() > 0, "the node's subscription")
    timer = client.node.create_timer(0.1, lambda: publisher.publish(message))
    asked = client.ground("pick up the mug", image=image)
    assert "red" in asked.question.text, (asked, node.text())
    pointed = client.ground("pick up the blue mug", image=image)
    assert pointed.grounding.target.box.x_min == 30, (pointed, node.text())
    client.node.destroy_timer(timer)
