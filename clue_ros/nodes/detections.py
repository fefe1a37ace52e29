# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A reply's objects in the messages of other packages: vision_msgs detections and RViz markers.

vision_msgs is optional: it is imported when perception is configured, and without it only the
markers are published.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from clue_msgs.msg import GroundedObject
from geometry_msgs.msg import Point, Pose, Vector3
from rclpy.lifecycle import LifecycleNode
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from clue_ros.nodes.topics import Perception

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
        box, bbox = found.box, detection.bbox
        bbox.center.position.x = (box.x_min + box.x_max) / 2
        bbox.center.position.y = (box.y_min + box.y_max) / 2
        bbox.size_x, bbox.size_y = box.x_max - box.x_min, box.y_max - box.y_min
        detection.results = [_hypothesis(vision, found)]
        array.detections.append(detection)
    return array


def detections_3d_msg(vision: Any, header: Header, objects: Sequence[GroundedObject]) -> Any:
    """Return a vision_msgs/Detection3DArray: the objects whose pose is known, else as above."""
    array = vision.Detection3DArray(header=header)
    for number, found in enumerate(objects):
        if found.has_pose:
            detection = vision.Detection3D(header=header, id=str(number))
            detection.bbox.center, detection.bbox.size = found.pose.pose, found.size
            detection.results = [_hypothesis(vision, found)]
            array.detections.append(detection)
    return array


def _hypothesis(vision: Any, found: GroundedObject) -> Any:
    """Return a detection's one hypothesis; its covariance of zeros means unknown."""
    result = vision.ObjectHypothesisWithPose()
    result.hypothesis.class_id = found.label or CANDIDATE
    result.hypothesis.score = float(found.score)
    if found.has_pose:
        result.pose.pose = found.pose.pose
    return result


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
        own = {"header": header, "id": number, "action": Marker.ADD}
        box = Marker(ns="box", type=Marker.CUBE, pose=one.pose.pose, **own)
        sides = (max(side, THINNEST) for side in (one.size.x, one.size.y, one.size.z))
        box.scale = Vector3(**dict(zip("xyz", sides, strict=True)))
        box.color = ColorRGBA(r=red, g=green, b=blue, a=OPACITY)
        axes = Marker(ns="axes", type=Marker.LINE_LIST, pose=one.pose.pose, **own)
        axes.scale.x = AXIS_WIDTH
        for axis, channel in zip("xyz", "rgb", strict=True):
            axes.points += [Point(), Point(**{axis: AXIS_LENGTH})]
            axes.colors += [ColorRGBA(**{channel: 1.0}, a=1.0)] * 2
        text = f"{number + 1}: {one.label or CANDIDATE}" if candidates else one.label or "object"
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


class ObjectPublishers:
    """Publishes the objects of each question and grounding on ~/markers and ~/detections."""

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._markers = Perception.MARKERS.publisher(node)
        self._vision: Any = None  # vision_msgs.msg, while both of these exist
        self._detections: tuple[Any, ...] = ()

    def configure(self) -> None:
        """Create or destroy the publishers of vision_msgs, as the parameter `detections` says."""
        wanted, log = self._node.get_parameter("detections").value, self._node.get_logger()
        self._vision = None
        if wanted and not self._detections:
            missing = Perception.DETECTIONS.missing
            if missing:
                log.info(f"~/detections and ~/detections_3d are off, no vision_msgs: {missing}")
                return
            self._detections = tuple(
                topic.publisher(self._node)
                for topic in (Perception.DETECTIONS, Perception.DETECTIONS_3D)
            )
            log.info("~/detections and ~/detections_3d (vision_msgs) are on")
        elif not wanted:
            for publisher in self._detections:
                self._node.destroy_lifecycle_publisher(publisher)
            self._detections = ()
            log.info("~/detections and ~/detections_3d are off (detections is false)")
        if self._detections:
            self._vision = importlib.import_module("vision_msgs.msg")

    def show(self, header: Header, objects: Sequence[GroundedObject], *, candidates: bool) -> None:
        """Publish the objects, which replace those of the last call."""
        if self._node.get_parameter("markers").value:
            self._markers.publish(markers_msg(header, objects, candidates=candidates))
        if self._vision is not None:
            in_2d, in_3d = self._detections
            in_2d.publish(detections_2d_msg(self._vision, header, objects))
            in_3d.publish(detections_3d_msg(self._vision, header, objects))

    def clear(self) -> None:
        """Delete all markers."""
        self._markers.publish(MarkerArray(markers=[Marker(action=Marker.DELETEALL)]))
