# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask for an object, answer the robot's questions in the terminal, and print what to grasp.

scripts/run python examples/ground_and_grasp.py "pick up the mug"
"""

import sys

from clue_ros.nodes.client import CommandGrounder, GroundingError


def main() -> int:
    """Hold one dialogue."""
    with CommandGrounder() as grounder:
        try:
            grounder.wait_until_active(timeout=60.0)
            result = grounder.ground(sys.argv[1], on_question=lambda asked: input(asked.text + " "))
        except GroundingError as error:
            print(error, file=sys.stderr)
            return 1
        target = result.target
        print(f"{target.label}: box {target.box}")
        if not target.has_pose:
            print(f"no pose: {target.no_pose_reason}")
            return 0
        at, size = target.pose.pose.position, target.size
        print(f"grasp at {at.x:.3f} {at.y:.3f} {at.z:.3f} m in {target.pose.header.frame_id},")
        print(f"open the gripper {1000 * min(size.x, size.y):.0f} mm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
