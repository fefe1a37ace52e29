"""The perception node's entry point: `ros2 run clue_ros perception_node`.

The node is in perception_node.py. This module imports it only in `main`, so that a missing
clue_msgs ends in one line that says how to get it instead of a traceback.
"""

from __future__ import annotations

import os
import sys

from clue_ros import heap

HOW_TO_GET_CLUE_MSGS = (
    "clue_msgs, the interface package of clue_ros, cannot be imported ({error}). It lies inside "
    "the clue_ros repository and colcon does not look inside a package: link it into the workspace "
    "(ln -s clue_ros/clue_msgs src/), run `colcon build --packages-select clue_msgs`, and source "
    "install/setup.bash; without a workspace, scripts/run builds it"
)
KEEP = "--keep"


def clue_msgs_missing(node: str) -> bool:
    """Say how to get clue_msgs if it cannot be imported."""
    try:
        # By name: run from the repo root, a bare import finds the source folder as an empty
        # package.
        from clue_msgs.msg import GroundingResult  # noqa: F401
    except ImportError as error:
        print(f"{node}: {HOW_TO_GET_CLUE_MSGS.format(error=error)}", file=sys.stderr)
        return True
    return False


def leave_a_core_free() -> None:
    """Give torch all cores but one, unless OMP_NUM_THREADS says how many; before it is imported.

    DDS, the executor and the other nodes need one: with more threads than free cores torch's
    threads wait for each other most of the time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) - 1)))


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop; returns the process's exit status.

    With `--keep` before `--ros-args` the node is forked by a keeper (keeper.py), which starts it
    again at once when a signal ends it.
    """
    if clue_msgs_missing("perception"):
        return 1
    leave_a_core_free()
    heap.share_the_heap()
    given = list(sys.argv if args is None else args)
    keep = KEEP in given
    given = [argument for argument in given if argument != KEEP]
    from clue_ros.nodes.perception_node import PerceptionNode
    from clue_ros.nodes.process import run_node

    def node() -> int:
        return run_node("perception", PerceptionNode, given, threads=4)

    if not keep:
        return node()
    from clue_ros.nodes.keeper import Keeper, import_model_code

    import_model_code()
    return Keeper("perception", node).run()


if __name__ == "__main__":
    sys.exit(main())
