# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""An example of a grasp planner that uses groundings: `ros2 run clue_ros grasp_example_node`.

It subscribes to `grounding` and publishes `grasp_pose` and `pregrasp_pose`, in the frame of the
object's pose and at the image's time. The grasp is from above, over the shorter side; collisions
and reach are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node

from clue_ros.errors import NoPoseError
from clue_ros.nodes import topics
from clue_ros.nodes.parameter_tables import GRASP_EXAMPLE
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.pose_from_depth import from_above, rotation

Array = npt.NDArray[np.float64]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grasp:
    """A grasp with two fingers, in the frame of the object's pose, metres.

    Attributes:
        position: (3,) of the fingertips at the grasp.
        standoff: (3,) of the fingertips before the approach.
        orientation: quaternion (x, y, z, w) of the gripper: z points from the gripper into the
            object, the fingers close along y.
        width: of the object between the fingers.
    """

    position: Array
    standoff: Array
    orientation: Quaternion
    width: float


def grasp_from_above(
    position: Array,
    orientation: Quaternion,
    size: Array,
    *,
    max_opening: float,
    finger_length: float,
    standoff: float,
) -> Grasp:
    """Close over the object's shorter side, from above along its z axis. All in metres.

    position (3,), orientation, size (3,): the object's, as in GroundedObject. max_opening: of the
    gripper. finger_length: how far the object may reach between the fingers. standoff: height of
    the approach above the grasp. Raises NoPoseError: the object is too wide.
    """
    width = float(size[1])
    if width > max_opening:
        raise NoPoseError(
            f"the object is {width * 1000:.0f} mm wide and the gripper opens to "
            f"{max_opening * 1000:.0f} mm"
        )
    axes = rotation(orientation)
    up = axes[:, 2]
    # At the object's middle, or higher where the fingers are short.
    tips = position + up * max(0.0, float(size[2]) / 2 - finger_length)
    return Grasp(tips, tips + up * standoff, from_above(orientation), width)


class GraspExample(Node):
    """The node; see the module's first lines. Raises (on construction): BadParameterError."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("grasp_example", **kwargs)
        declare(self, GRASP_EXAMPLE)
        guard(self, GRASP_EXAMPLE)
        self._grasp = topics.GraspExample.GRASP_POSE.publisher(self)
        self._pregrasp = topics.GraspExample.PREGRASP_POSE.publisher(self)
        grounding = topics.GraspExample.GROUNDING.subscribe(self, self._on_grounding)
        self.get_logger().info(f"waiting for {grounding.topic_name}")

    def _on_grounding(self, message: Any) -> None:
        target = message.target
        name = target.label or message.expression
        at, q = target.pose.pose.position, target.pose.pose.orientation
        limits = ("max_opening", "finger_length", "standoff")
        try:
            if not target.has_pose:
                raise NoPoseError(target.no_pose_reason)
            grasp = grasp_from_above(
                np.array([at.x, at.y, at.z]),
                (q.x, q.y, q.z, q.w),
                np.array([target.size.x, target.size.y, target.size.z]),
                **{limit: self.get_parameter(limit).value for limit in limits},
            )
        except NoPoseError as error:
            self.get_logger().warning(f"no grasp of {name!r}: {error}")
            return
        header = target.pose.header
        self._pregrasp.publish(_pose(header, grasp.standoff, grasp))
        self._grasp.publish(_pose(header, grasp.position, grasp))
        x, y, z = grasp.position
        self.get_logger().info(
            f"grasp {name!r} at x {x:.3f} y {y:.3f} z {z:.3f} m in {header.frame_id}, "
            f"{grasp.width * 1000:.0f} mm between the fingers"
        )


def _pose(header: Any, position: Array, grasp: Grasp) -> PoseStamped:
    pose = PoseStamped(header=header)
    pose.pose.position.x, pose.pose.position.y, pose.pose.position.z = map(float, position)
    q = pose.pose.orientation
    q.x, q.y, q.z, q.w = grasp.orientation
    return pose
