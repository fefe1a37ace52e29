# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A behaviour tree that finds an object by talking, and follows it until the person ends it.

    scripts/run python examples/fetch_tree.py "the red mug"

Perception runs already (``ros2 launch clue_ros clue.launch.py``). Put your gripper's behaviours
behind `Track`: the blackboard has the newest message of the followed object.
"""

import sys
import time

import py_trees

from clue_ros.behaviours import TRACKED, Track, dialogue
from clue_ros.nodes.client import CommandGrounder


class Reach(py_trees.behaviour.Behaviour):
    """Prints where a gripper would go; a robot's own behaviour stands here."""

    def __init__(self) -> None:
        super().__init__("reach")
        self._board = self.attach_blackboard_client()
        self._board.register_key(TRACKED, py_trees.common.Access.READ)

    def update(self) -> py_trees.common.Status:
        """Print the object's box, and its position where there is depth."""
        seen = self._board.get(TRACKED).object
        print(seen.label, seen.box, seen.pose.pose.position if seen.has_pose else "")
        return py_trees.common.Status.SUCCESS


def main() -> int:
    """Tick the tree ten times a second until it fails or the person ends it."""
    with CommandGrounder() as grounder:
        grounder.wait_until_active(timeout=60.0)
        root = py_trees.composites.Sequence("fetch", memory=True)
        root.add_child(dialogue(sys.argv[1], grounder, lambda asked: input(f"{asked.text} ")))
        approach = py_trees.composites.Sequence("approach", memory=False)
        approach.add_children([Track(grounder), Reach()])
        root.add_child(py_trees.decorators.SuccessIsRunning("until it is lost", approach))
        tree = py_trees.trees.BehaviourTree(root)
        try:
            while root.status in (py_trees.common.Status.INVALID, py_trees.common.Status.RUNNING):
                tree.tick()
                time.sleep(0.1)
        except KeyboardInterrupt:
            return 130
        finally:
            tree.shutdown()
        print(py_trees.display.unicode_tree(root, show_status=True))
        return 0 if root.status is py_trees.common.Status.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(main())
