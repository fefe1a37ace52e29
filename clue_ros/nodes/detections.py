# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A reply's objects in the messages of other packages: detections, annotations, markers, MoveIt.

vision_msgs, foxglove_msgs and moveit_msgs are optional: they are imported when perception is
configured.
"""

from __future__ import annotations

import array
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from clue_msgs.msg import GroundedObject
from geometry_msgs.msg import (
    Point,
    Pose,
    PoseWithCovarianceStamped,
    Quaternion,
    Vector3,
)
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import PointCloud2, PointField
from shape_msgs.msg import SolidPrimitive
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from clue_ros.nodes.messages import box_of
from clue_ros.nodes.pose_from_depth import Place, from_above
from clue_ros.nodes.topics import OptionalOutput, Perception

TARGET = "target"  # the id of the collision object: a new one replaces the last
CANDIDATE = "candidate"  # the class id of an object without a label: a question's candidate
CANDIDATE_COLOR, TARGET_COLOR = (1.0, 0.6, 0.0), (0.1, 0.8, 0.2)
OPACITY = 0.4  # of a box
TEXT_HEIGHT, AXIS_LENGTH, AXIS_WIDTH, THINNEST = 0.03, 0.05, 0.004, 0.001  # metres


def detections_2d_msg(vision: Any, header: Header, objects: Sequence[GroundedObject]) -> Any:
    """Return a vision_msgs/Detection2DArray: the boxes, in pixels of the header's image.

    `vision` is the module vision_msgs.msg. `id` of a detection is its place among the question's
    candidates, from 0.
    """
    array = vision.Detection2DArray(header=header)
    for number, found in enumerate(objects):
        detection = vision.Detection2D(header=header, id=str(number))
        box, bbox = box_of(found.box), detection.bbox
        bbox.center.position.x, bbox.center.position.y = box.center
        bbox.size_x, bbox.size_y = box.width, box.height
        detection.results = [_hypothesis(vision, found, header)]
        array.detections.append(detection)
    return array


def detections_3d_msg(vision: Any, header: Header, objects: Sequence[GroundedObject]) -> Any:
    """Return a vision_msgs/Detection3DArray: the objects whose pose is known.

    Its header is that of the poses, which parameter `target_frame` may put into another frame.
    """
    placed = [(number, found) for number, found in enumerate(objects) if found.has_pose]
    header = placed[0][1].pose.header if placed else header
    array = vision.Detection3DArray(header=header)
    for number, found in placed:
        detection = vision.Detection3D(header=header, id=str(number))
        detection.bbox.center, detection.bbox.size = found.pose.pose, found.size
        detection.results = [_hypothesis(vision, found, header)]
        array.detections.append(detection)
    return array


def _hypothesis(vision: Any, found: GroundedObject, header: Header) -> Any:
    """Return a detection's one hypothesis, with the pose where it is in the header's frame.

    Its covariance of zeros means unknown.
    """
    result = vision.ObjectHypothesisWithPose()
    result.hypothesis.class_id = found.label or CANDIDATE
    result.hypothesis.score = float(found.score)
    if found.has_pose and found.pose.header.frame_id == header.frame_id:
        result.pose.pose = found.pose.pose
    return result


def grasp_pose_msg(found: GroundedObject, place: Place) -> PoseWithCovarianceStamped:
    """Return a grasp from above at the object's middle, and how sure its place is.

    z points into the object and the fingers close along y, over its shorter side.
    """
    message = PoseWithCovarianceStamped(header=found.pose.header)
    message.pose.pose.position = found.pose.pose.position
    x, y, z, w = from_above(place.orientation)
    message.pose.pose.orientation = Quaternion(x=x, y=y, z=z, w=w)
    message.pose.covariance = place.covariance.ravel()
    return message


def cloud_msg(header: Header, place: Place) -> PointCloud2:
    """Return the object's points as x, y, z (float32, metres) in the frame of its pose."""
    points = np.ascontiguousarray(place.points, dtype="<f4")
    kind = PointField.FLOAT32
    return PointCloud2(
        header=header,
        height=1,
        width=len(points),
        fields=[
            PointField(name=n, offset=4 * i, datatype=kind, count=1) for i, n in enumerate("xyz")
        ],
        is_bigendian=False,
        point_step=12,
        row_step=12 * len(points),
        data=array.array("B", points.tobytes()),
        is_dense=True,
    )


def collision_object_msg(moveit: Any, found: GroundedObject) -> Any:
    """Return the object's box as a moveit_msgs/CollisionObject, to be added as TARGET.

    `moveit` is the module moveit_msgs.msg.
    """
    sides = [max(side, THINNEST) for side in (found.size.x, found.size.y, found.size.z)]
    return moveit.CollisionObject(
        header=found.pose.header,
        pose=found.pose.pose,
        id=TARGET,
        primitives=[SolidPrimitive(type=SolidPrimitive.BOX, dimensions=sides)],
        primitive_poses=[Pose()],
        operation=moveit.CollisionObject.ADD,
    )


def markers_msg(
    header: Header, objects: Sequence[GroundedObject], *, candidates: bool
) -> MarkerArray:
    """Return markers that replace all earlier ones: a box, axes and a label for each known pose.

    candidates: the objects are a question's and get numbers; else the one object pointed at.
    """
    # The array begins with DELETEALL, so that nothing of an earlier reply remains.
    found = [Marker(header=header, action=Marker.DELETEALL)]
    red, green, blue = CANDIDATE_COLOR if candidates else TARGET_COLOR
    for number, one in enumerate(objects):
        if not one.has_pose:
            continue
        own = {"header": one.pose.header, "id": number, "action": Marker.ADD}
        box = Marker(ns="box", type=Marker.CUBE, pose=one.pose.pose, **own)
        sides = (max(side, THINNEST) for side in (one.size.x, one.size.y, one.size.z))
        box.scale = Vector3(**dict(zip("xyz", sides, strict=True)))
        box.color = ColorRGBA(r=red, g=green, b=blue, a=OPACITY)
        axes = Marker(ns="axes", type=Marker.LINE_LIST, pose=one.pose.pose, **own)
        axes.scale.x = AXIS_WIDTH
        for axis, channel in zip("xyz", "rgb", strict=True):
            axes.points += [Point(), Point(**{axis: AXIS_LENGTH})]
            axes.colors += [ColorRGBA(**{channel: 1.0}, a=1.0)] * 2
        text = _name(one, number + 1 if candidates else 0)
        label = Marker(ns="label", type=Marker.TEXT_VIEW_FACING, text=text, **own)
        label.pose = _above(one.pose.pose, one.size.z / 2 + TEXT_HEIGHT)
        label.scale.z = TEXT_HEIGHT
        label.color = ColorRGBA(r=1.0, g=1.0, b=1.0, a=1.0)
        found += [box, axes, label]
    return MarkerArray(markers=found)


def _above(pose: Pose, distance: float) -> Pose:
    """Return the pose moved by metres along its own z axis, away from the supporting surface."""
    q, at = pose.orientation, pose.position
    x, y, z = (  # third column of the rotation matrix
        2 * (q.x * q.z + q.w * q.y),
        2 * (q.y * q.z - q.w * q.x),
        1 - 2 * (q.x * q.x + q.y * q.y),
    )
    moved = Point(x=at.x + distance * x, y=at.y + distance * y, z=at.z + distance * z)
    return Pose(position=moved, orientation=q)


def annotations_msg(
    foxglove: Any, header: Header, objects: Sequence[GroundedObject], *, candidates: bool
) -> Any:
    """Return a foxglove_msgs/ImageAnnotations: boxes and labels, in pixels of the header's image.

    `foxglove` is the module foxglove_msgs.msg. candidates: as for `markers_msg`. The header is in
    the message only as the stamp of each annotation; without objects, nothing remains drawn.
    """
    message = foxglove.ImageAnnotations()
    red, green, blue = CANDIDATE_COLOR if candidates else TARGET_COLOR
    color = foxglove.Color(r=red, g=green, b=blue, a=1.0)
    for number, found in enumerate(objects, 1):
        thickness = max(2.0, found.image_width / 400)
        left, top, right, bottom = box_of(found.box).as_tuple()
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        message.points.append(
            foxglove.PointsAnnotation(
                timestamp=header.stamp,
                type=foxglove.PointsAnnotation.LINE_LOOP,
                points=[foxglove.Point2(x=float(x), y=float(y)) for x, y in corners],
                outline_color=color,
                thickness=thickness,
            )
        )
        message.texts.append(
            foxglove.TextAnnotation(
                timestamp=header.stamp,
                position=foxglove.Point2(x=float(left), y=float(top)),
                text=_name(found, number if candidates else 0),
                font_size=8 * thickness,
                text_color=foxglove.Color(r=0.0, g=0.0, b=0.0, a=1.0),
                background_color=color,
            )
        )
    return message


def _name(found: GroundedObject, number: int) -> str:
    """Return an object's caption: its label, with a candidate's number from 1 on."""
    return f"{number}: {found.label or CANDIDATE}" if number else found.label or "object"


class _Optional:
    """Publishers of one package's messages, while a parameter asks for them and it is installed.

    messages: the package's module of messages, None while there are no publishers.
    """

    def __init__(self, parameter: str, *outputs: OptionalOutput) -> None:
        self._parameter, self._outputs = parameter, outputs
        self.publishers: tuple[Any, ...] = ()
        self.messages: Any = None

    def configure(self, node: LifecycleNode) -> None:
        """Create or destroy the publishers, as the parameter says."""
        wanted, log = node.get_parameter(self._parameter).value, node.get_logger()
        names = " and ".join(output.name for output in self._outputs)
        package = self._outputs[0].kind.split("/")[0]
        verb = "are" if len(self._outputs) > 1 else "is"
        self.messages = None
        if wanted and not self.publishers:
            missing = self._outputs[0].missing
            if missing:
                log.info(f"{names} {verb} off, no {package}: {missing}")
                return
            self.publishers = tuple(output.publisher(node) for output in self._outputs)
            log.info(f"{names} ({package}) {verb} on")
        elif not wanted:
            for publisher in self.publishers:
                node.destroy_lifecycle_publisher(publisher)
            self.publishers = ()
            log.info(f"{names} {verb} off ({self._parameter} is false)")
        if self.publishers:
            self.messages = importlib.import_module(f"{package}.msg")


class ObjectPublishers:
    """Publishes each question's and grounding's objects: ~/markers, ~/detections, ~/annotations.

    A grounding with a pose also gives ~/grasp_pose, ~/object_cloud and ~/collision_object.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._markers = Perception.MARKERS.publisher(node)
        self._detections = _Optional("detections", Perception.DETECTIONS, Perception.DETECTIONS_3D)
        self._annotations = _Optional("annotations", Perception.ANNOTATIONS)
        self._collision = _Optional("collision_object", Perception.COLLISION_OBJECT)
        self._grasp = Perception.GRASP_POSE.publisher(node)
        self._cloud = Perception.OBJECT_CLOUD.publisher(node)

    def configure(self) -> None:
        """Create or destroy the publishers of optional packages, as the parameters say."""
        self._detections.configure(self._node)
        self._annotations.configure(self._node)
        self._collision.configure(self._node)

    def point(self, header: Header, target: GroundedObject, place: Place | None) -> None:
        """Publish the object that is pointed at; it replaces all earlier ones."""
        self.show(header, [target], candidates=False)
        if place is None or not target.has_pose:
            return
        self._grasp.publish(grasp_pose_msg(target, place))
        self._cloud.publish(cloud_msg(target.pose.header, place))
        if self._collision.messages is not None:
            (publisher,) = self._collision.publishers
            publisher.publish(collision_object_msg(self._collision.messages, target))

    def show(self, header: Header, objects: Sequence[GroundedObject], *, candidates: bool) -> None:
        """Publish the objects, which replace those of the last call."""
        if self._node.get_parameter("markers").value:
            self._markers.publish(markers_msg(header, objects, candidates=candidates))
        vision = self._detections.messages
        if vision is not None:
            in_2d, in_3d = self._detections.publishers
            in_2d.publish(detections_2d_msg(vision, header, objects))
            in_3d.publish(detections_3d_msg(vision, header, objects))
        self._annotate(header, objects, candidates=candidates)

    def _annotate(
        self, header: Header, objects: Sequence[GroundedObject], *, candidates: bool
    ) -> None:
        if self._annotations.messages is not None:
            message = annotations_msg(
                self._annotations.messages, header, objects, candidates=candidates
            )
            self._annotations.publishers[0].publish(message)

    def clear(self) -> None:
        """Delete all markers and annotations."""
        self._annotate(Header(), [], candidates=False)
        self._markers.publish(MarkerArray(markers=[Marker(action=Marker.DELETEALL)]))
