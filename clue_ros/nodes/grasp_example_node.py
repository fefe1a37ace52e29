"""What a grasp planner does with a grounding: `ros2 run clue_ros grasp_example_node`.

An example to start from. It takes `grounding` and publishes `grasp_pose` and `pregrasp_pose`, in
the camera's optical frame and at the image's time, so that tf2 can bring them into the robot's.
The grasp is from above, over the shorter side; nothing is said about collisions or reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node

from clue_ros.errors import NoPoseError
from clue_ros.nodes.parameter_tables import GRASP_EXAMPLE
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.pose_from_depth import quaternion, rotation

# -------------------------------------------------------------------------------------------------
# A two-finger grasp from above, from an object's pose and size: the example of a grasp planner.

Array = npt.NDArray[np.float64]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grasp:
    """Where the gripper's fingertips go, in the frame of the object's pose, metres.

    Attributes:
        position, standoff: (3,) of the fingertips at the grasp, and where to come from.
        orientation: quaternion (x, y, z, w) of the gripper: z points from the gripper into the
            object, y is the way the fingers close.
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
    """Close over the object's shorter side, along its z axis.

    position (3,), orientation, size (3,): as GroundedObject has them. max_opening: of the gripper.
    finger_length: how deep the object may reach between the fingers. standoff: how far above the
    grasp to come from. All in metres. Raises NoPoseError: the object is too wide.
    """
    width = float(size[1])
    if width > max_opening:
        raise NoPoseError(
            f"the object is {width * 1000:.0f} mm wide and the gripper opens to "
            f"{max_opening * 1000:.0f} mm"
        )
    axes = rotation(orientation)
    up = axes[:, 2]
    # At the middle, or less deep where the fingers are short.
    tips = position + up * max(0.0, float(size[2]) / 2 - finger_length)
    gripper = np.stack([-axes[:, 0], axes[:, 1], -up], axis=1)
    return Grasp(tips, tips + up * standoff, quaternion(gripper), width)


class GraspExample(Node):
    """See the module's first lines. Raises (on construction): BadParameterError."""

    def __init__(self, **kwargs: Any) -> None:
        from clue_msgs.msg import GroundingResult

        super().__init__("grasp_example", **kwargs)
        declare(self, GRASP_EXAMPLE)
        guard(self, GRASP_EXAMPLE)
        self._grasp = self.create_publisher(PoseStamped, "grasp_pose", 10)
        self._pregrasp = self.create_publisher(PoseStamped, "pregrasp_pose", 10)
        self.create_subscription(GroundingResult, "grounding", self._on_grounding, 10)
        self.get_logger().info(f"waiting for {self.resolve_topic_name('grounding')}")

    def _on_grounding(self, message: Any) -> None:
        target = message.target
        name = target.label or message.expression
        try:
            if not target.has_pose:
                raise NoPoseError(target.no_pose_reason)
            grasp = self._plan(target)
        except NoPoseError as error:
            self.get_logger().warning(f"no grasp of {name!r}: {error}")
            return
        self._pregrasp.publish(_pose(target.header, grasp.standoff, grasp))
        self._grasp.publish(_pose(target.header, grasp.position, grasp))
        x, y, z = grasp.position
        self.get_logger().info(
            f"grasp {name!r} at x {x:.3f} y {y:.3f} z {z:.3f} m in {target.header.frame_id}, "
            f"{grasp.width * 1000:.0f} mm between the fingers"
        )

    def _plan(self, target: Any) -> Grasp:
        at, q = target.pose.pose.position, target.pose.pose.orientation
        names = ("max_opening", "finger_length", "standoff")
        return grasp_from_above(
            np.array([at.x, at.y, at.z]),
            (q.x, q.y, q.z, q.w),
            np.array([target.size.x, target.size.y, target.size.z]),
            **{name: self.get_parameter(name).value for name in names},
        )


def _pose(header: Any, position: Array, grasp: Grasp) -> PoseStamped:
    pose = PoseStamped(header=header)
    pose.pose.position.x, pose.pose.position.y, pose.pose.position.z = map(float, position)
    q = pose.pose.orientation
    q.x, q.y, q.z, q.w = grasp.orientation
    return pose
