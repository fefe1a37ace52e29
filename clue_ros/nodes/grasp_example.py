"""What a grasp planner does with a grounding: `ros2 run clue_ros grasp_example_node`.

An example to start from. It takes `grounding` and publishes `grasp_pose` and `pregrasp_pose`, in
the camera's optical frame and at the image's time, so that tf2 can bring them into the robot's.
The grasp is from above, over the shorter side; nothing is said about collisions or reach.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node

from clue_ros.errors import NoPoseError
from clue_ros.nodes.declare import declare, guard
from clue_ros.nodes.parameters import GRASP_EXAMPLE
from clue_ros.nodes.perception import clue_msgs_missing
from clue_ros.nodes.process import run_node
from clue_ros.spatial.grasp import Array, Grasp, grasp_from_above


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


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop; returns the process's exit status."""
    if clue_msgs_missing("grasp_example"):
        return 1
    return run_node("grasp_example", lambda _executor: GraspExample(), args)


if __name__ == "__main__":
    sys.exit(main())
