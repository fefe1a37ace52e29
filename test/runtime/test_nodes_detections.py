"""Detections and markers: a reply's objects as other packages read them."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.msg import BoundingBox, GroundedObject  # noqa: E402
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Vector3  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from ros_fixtures import REQUEST, client, model, node, shared  # noqa: E402
from ros_helpers import Client, wait_until  # noqa: E402
from std_msgs.msg import Header  # noqa: E402
from visualization_msgs.msg import Marker, MarkerArray  # noqa: E402

from clue_ros.nodes.detections import (  # noqa: E402
    annotations_msg,
    detections_2d_msg,
    detections_3d_msg,
    markers_msg,
)

__all__ = ["client", "model", "node", "shared"]  # fixtures
HEADER = Header(frame_id="eye")


class FakeMessage(SimpleNamespace):
    """A message of vision_msgs as far as the conversion needs one."""

    def __init__(self, **fields: Any) -> None:
        part = SimpleNamespace
        center = part(position=part(x=0.0, y=0.0))
        own: dict[str, Any] = {
            "detections": [],
            "bbox": part(center=center, size_x=0.0, size_y=0.0, size=None),
            "hypothesis": part(class_id="", score=0.0),
            "pose": part(pose=None),
        }
        super().__init__(**own | fields)


class FakeVision:
    """Stands in for the module vision_msgs.msg, which is no wheel."""

    Detection2D = Detection2DArray = Detection3D = Detection3DArray = FakeMessage
    ObjectHypothesisWithPose = FakeMessage


def visions() -> list[Any]:
    """Return the stand-in, and the real module where it is installed."""
    real = importlib.util.find_spec("vision_msgs")
    return [FakeVision, *([importlib.import_module("vision_msgs.msg")] if real else [])]


def found(label: str = "mug", score: float = 0.8, *, has_pose: bool = True) -> GroundedObject:
    box = BoundingBox(x_min=10.0, y_min=20.0, x_max=50.0, y_max=30.0)
    at = math.nan if not has_pose else 0.5
    # Turned by 180 degrees about x: z of the object points along -z of the camera.
    pose = Pose(position=Point(x=0.1, y=0.2, z=at), orientation=Quaternion(x=1.0, w=0.0))
    return GroundedObject(
        header=HEADER,
        label=label,
        score=score,
        box=box,
        has_pose=has_pose,
        pose=PoseStamped(header=HEADER, pose=pose),
        size=Vector3(x=0.08, y=0.06, z=0.1),
    )


OBJECTS = [found("", 1.0, has_pose=False), found("mug", 0.75)]


@pytest.mark.parametrize("vision", visions())
def test_detections_have_box_label_score_and_header(vision: Any) -> None:
    array = detections_2d_msg(vision, HEADER, OBJECTS)
    assert array.header == HEADER
    first, second = array.detections
    assert (first.header, first.id, second.id) == (HEADER, "0", "1")
    assert (first.bbox.center.position.x, first.bbox.center.position.y) == (30.0, 25.0)
    assert (first.bbox.size_x, first.bbox.size_y) == (40.0, 10.0)
    (one,), (other,) = first.results, second.results
    assert (one.hypothesis.class_id, one.hypothesis.score) == ("candidate", 1.0)
    assert (other.hypothesis.class_id, other.hypothesis.score) == ("mug", 0.75)
    assert other.pose.pose == OBJECTS[1].pose.pose


@pytest.mark.parametrize("vision", visions())
def test_3d_detections_are_the_objects_with_a_pose(vision: Any) -> None:
    array = detections_3d_msg(vision, HEADER, OBJECTS)
    (only,) = array.detections
    assert (only.id, only.bbox.center, only.bbox.size) == ("1", found().pose.pose, found().size)
    assert only.results[0].hypothesis.class_id == "mug"
    assert detections_3d_msg(vision, HEADER, []).detections == []


def test_markers_replace_the_earlier_ones_and_show_known_poses_only() -> None:
    first, *rest = markers_msg(HEADER, OBJECTS, candidates=True).markers
    assert first.action == Marker.DELETEALL
    box, axes, label = rest
    assert (box.type, box.pose, box.id) == (Marker.CUBE, OBJECTS[1].pose.pose, 1)
    assert (box.scale.x, box.scale.y, box.scale.z) == pytest.approx((0.08, 0.06, 0.1))
    assert 0 < box.color.a < 1
    assert (axes.type, len(axes.points), len(axes.colors)) == (Marker.LINE_LIST, 6, 6)
    assert (label.type, label.text) == (Marker.TEXT_VIEW_FACING, "2: mug")
    # Beyond the box, away from the surface: towards the camera, as this object stands.
    assert label.pose.position.z < 0.5 - 0.05
    assert all(marker.header == HEADER for marker in (box, axes, label))
    assert len({(marker.ns, marker.id) for marker in rest}) == len(rest)
    *_, target = markers_msg(HEADER, [found()], candidates=False).markers
    assert target.text == "mug"


class FakeFoxglove:
    """Stands in for the module foxglove_msgs.msg, which is no wheel."""

    class ImageAnnotations:
        """Two of its lists."""

        def __init__(self) -> None:
            self.points: list[Any] = []
            self.texts: list[Any] = []

    class PointsAnnotation(SimpleNamespace):
        """The constant that is used, as the package has it."""

        LINE_LOOP = 2

    Color = Point2 = TextAnnotation = SimpleNamespace


def foxgloves() -> list[Any]:
    """Return the stand-in, and the real module where it is installed."""
    real = importlib.util.find_spec("foxglove_msgs")
    return [FakeFoxglove, *([importlib.import_module("foxglove_msgs.msg")] if real else [])]


@pytest.mark.parametrize("foxglove", foxgloves())
def test_annotations_have_a_box_and_a_label_with_the_candidates_number(foxglove: Any) -> None:
    message = annotations_msg(foxglove, HEADER, OBJECTS, candidates=True)
    assert [text.text for text in message.texts] == ["1: candidate", "2: mug"]
    assert len(message.points) == 2
    box = message.points[0]
    assert box.type == foxglove.PointsAnnotation.LINE_LOOP
    assert [(p.x, p.y) for p in box.points] == [(10, 20), (50, 20), (50, 30), (10, 30)]
    assert box.timestamp == HEADER.stamp
    (alone,) = annotations_msg(foxglove, HEADER, [found()], candidates=False).texts
    assert (alone.text, alone.position.x, alone.position.y) == ("mug", 10, 20)
    assert alone.background_color.g > box.outline_color.g
    assert annotations_msg(foxglove, HEADER, [], candidates=False).points == []


def test_a_flat_object_still_has_a_box_to_draw() -> None:
    flat = found()
    flat.size.z = 0.0
    _, box, *_ = markers_msg(HEADER, [flat], candidates=False).markers
    assert box.scale.z > 0


# Over DDS.


@pytest.fixture
def seen(client: Client) -> Iterator[list[MarkerArray]]:
    qos = QoSProfile(depth=20, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    heard = client.heard.get("perception/markers")
    if heard is None:
        heard = client.listen(MarkerArray, "perception/markers", qos)
    client.start_camera()
    wait_until(lambda: client.ground(REQUEST).error_code == 0, "an image")
    client.clear()
    yield heard
    client.stop_camera()


def test_markers_come_with_the_question_and_go_with_the_dialogue(
    client: Client, seen: list[MarkerArray]
) -> None:
    client.set(threshold=0.0)
    handle = client.goal(REQUEST)
    client.next("question")
    wait_until(lambda: len(seen) == 2, "markers deleted at the beginning, and the question's")
    client.cancel(handle)
    client.result(handle)
    wait_until(lambda: len(seen) == 3, "markers deleted at the end")
    for array in seen:
        assert array.markers[0].action == Marker.DELETEALL
    assert len(seen[-1].markers) == 1


def test_markers_can_be_switched_off(client: Client, seen: list[MarkerArray]) -> None:
    assert client.set(markers=False) == ""
    try:
        assert client.ground(REQUEST).error_code == 0
        assert client.ground(REQUEST).error_code == 0
        wait_until(lambda: len(seen) >= 2, "the deletions of two requests")
        assert all(len(array.markers) == 1 for array in seen)
    finally:
        client.set(markers=True)


def test_vision_msgs_is_looked_for_when_perception_is_configured(
    client: Client, node: Any, seen: list[MarkerArray]
) -> None:
    if importlib.util.find_spec("vision_msgs") is None:
        pytest.skip("vision_msgs is not installed (it is no wheel: scripts/extra_ros)")
    from vision_msgs.msg import Detection2DArray, Detection3DArray

    flat = client.listen(Detection2DArray, "perception/detections", 10)
    solid = client.listen(Detection3DArray, "perception/detections_3d", 10)
    topics = ("/perception/detections", "/perception/detections_3d")
    count = client.node.count_publishers
    wait_until(lambda: [count(topic) for topic in topics] == [1, 1], "both publishers")
    target = client.ground(REQUEST, force=True).grounding.target
    wait_until(lambda: flat and solid, "detections")
    (detection,) = flat[0].detections
    assert detection.results[0].hypothesis.class_id == (target.label or "candidate")
    assert detection.bbox.size_x == pytest.approx(target.box.x_max - target.box.x_min)
    assert flat[0].header == target.header
    assert client.transition("deactivate")
    assert client.transition("cleanup")
    assert client.set(detections=False) == ""
    assert client.transition("configure")
    wait_until(lambda: [count(topic) for topic in topics] == [0, 0], "no publisher")
    assert client.transition("cleanup")
    assert client.set(detections=True) == ""
    assert client.transition("configure")
    assert client.transition("activate")
    wait_until(lambda: [count(topic) for topic in topics] == [1, 1], "both publishers again")
