"""Detections and markers: a reply's objects as other packages read them."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.msg import BoundingBox, GroundedObject  # noqa: E402
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Vector3  # noqa: E402
from interface_definitions import message_packages  # noqa: E402
from sensor_msgs.msg import PointField  # noqa: E402
from shape_msgs.msg import SolidPrimitive  # noqa: E402
from solids import CAMERA, on_table, scene  # noqa: E402
from std_msgs.msg import Header  # noqa: E402
from visualization_msgs.msg import Marker  # noqa: E402

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.nodes.detections import (  # noqa: E402
    annotations_msg,
    cloud_msg,
    collision_object_msg,
    detections_2d_msg,
    detections_3d_msg,
    grasp_pose_msg,
    markers_msg,
)
from clue_ros.nodes.messages import LocatedObject, Source, object_msg  # noqa: E402
from clue_ros.nodes.pose_from_depth import Place, locate, rotation  # noqa: E402

HEADER = Header(frame_id="eye")


@pytest.fixture
def packages() -> Iterator[Callable[[str], Any]]:
    with message_packages() as module:
        yield module


@pytest.fixture
def vision(packages: Callable[[str], Any]) -> Any:
    """Give the module vision_msgs.msg."""
    return packages("vision_msgs")


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
    assert first.results[0].pose.pose == Pose()


def in_base() -> GroundedObject:
    """An object whose pose is in the parameter target_frame's frame."""
    moved = found()
    moved.pose.header = Header(frame_id="base_link")
    return moved


def test_a_pose_in_another_frame_is_in_no_2d_detection_and_brings_its_header_to_3d(
    vision: Any,
) -> None:
    (flat,) = detections_2d_msg(vision, HEADER, [in_base()]).detections
    assert (flat.header.frame_id, flat.results[0].pose.pose) == ("eye", Pose())
    solid = detections_3d_msg(vision, HEADER, [found(has_pose=False), in_base()])
    assert (solid.header.frame_id, solid.detections[0].header.frame_id) == ("base_link",) * 2
    assert solid.detections[0].results[0].pose.pose == found().pose.pose
    _, *drawn = markers_msg(HEADER, [in_base()], candidates=False).markers
    assert {marker.header.frame_id for marker in drawn} == {"base_link"}


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


# What planners take.


def seen() -> Place:
    """A block on a table."""
    picture = scene(*on_table(45, (0.12, 0.05, 0.06), 30))
    return locate(picture.depth, CAMERA, picture.box(0), (640, 480))


def test_a_collision_object_is_the_objects_box(packages: Callable[[str], Any]) -> None:
    moveit = packages("moveit_msgs")
    box = collision_object_msg(moveit, in_base())
    assert (box.header.frame_id, box.pose, box.id) == ("base_link", found().pose.pose, "target")
    (solid,) = box.primitives
    assert solid.type == SolidPrimitive.BOX
    assert list(solid.dimensions) == pytest.approx([0.08, 0.06, 0.1])
    assert (box.primitive_poses, box.operation) == ([Pose()], moveit.CollisionObject.ADD)


def test_a_grasp_points_into_the_object_and_has_the_places_covariance() -> None:
    place = seen()
    target = object_msg(Source(HEADER, 640, 480), LocatedObject(Box(0, 0, 9, 9), place=place))
    message = grasp_pose_msg(target, place)
    at, q = message.pose.pose.position, message.pose.pose.orientation
    assert message.header == target.pose.header
    assert [at.x, at.y, at.z] == pytest.approx(list(place.position))
    gripper, thing = rotation((q.x, q.y, q.z, q.w)), rotation(place.orientation)
    assert gripper == pytest.approx(thing * np.array([-1, 1, -1]))
    covariance = np.array(message.pose.covariance).reshape(6, 6)
    assert covariance == pytest.approx(place.covariance)
    assert np.sqrt(covariance[2, 2]) < 0.01


def test_the_cloud_holds_the_objects_points() -> None:
    place = seen().moved(np.eye(3), np.array([1.0, 0.0, 0.0]), "base_link")
    cloud = cloud_msg(Header(frame_id="base_link"), place)
    assert [(f.name, f.offset, f.datatype) for f in cloud.fields] == [
        (name, offset, PointField.FLOAT32) for name, offset in (("x", 0), ("y", 4), ("z", 8))
    ]
    assert (cloud.height, cloud.point_step, cloud.row_step) == (1, 12, 12 * cloud.width)
    points = np.frombuffer(cloud.data, "<f4").reshape(cloud.width, 3)
    assert points == pytest.approx(place.points, abs=1e-6)
    assert np.abs(points.mean(0) - place.position).max() < 0.06
