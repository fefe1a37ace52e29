# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The programs that run on a robot: `ros2 run clue_ros perception_node` and its companions.

`python -m clue_ros.nodes.executables perception` does the same. A node's module is imported only
when its program starts, so that a missing package ends in one line instead of a traceback.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

from clue_ros import memory
from clue_ros.interrupts import ends_at_once
from clue_ros.nodes import programs
from clue_ros.requirements import missing

HOW_TO_GET_CLUE_MSGS = (
    "clue_msgs, the interface package of clue_ros, cannot be imported ({error}). It lies inside "
    "the clue_ros repository and colcon does not look inside a package: link it into the workspace "
    "(ln -s clue_ros/clue_msgs src/), run `colcon build --packages-select clue_msgs`, and source "
    "install/setup.bash; without a workspace, scripts/run builds it"
)
KEEP = "--keep"


def program(run: Callable[[list[str] | None], int]) -> Callable[[list[str] | None], int]:
    """Let signals end a program while it imports; return 2 for a Python package that is missing."""

    @ends_at_once
    @functools.wraps(run)
    def guarded(args: list[str] | None = None) -> int:
        return or_missing(run.__name__, lambda: run(args))

    return guarded


def or_missing(name: str, run: Callable[[], int]) -> int:
    """Return a program's status; 2, and print a line, if a Python package is missing."""
    try:
        return run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("clue_ros"):
            raise
        print(missing(error.name, name), file=sys.stderr)
        return 2


@program
def perception(args: list[str] | None = None) -> int:
    """Run the perception node until it is told to stop; return the exit status.

    With `--keep` before `--ros-args` a supervisor forks the node (supervisor.py) and starts it
    again when a signal ends it. It imports nothing that the node needs.
    """
    leave_a_core_free()
    memory.share_the_heap()
    memory.keep_pages()
    given = list(sys.argv if args is None else args)
    keep = KEEP in given
    given = [argument for argument in given if argument != KEEP]

    def node() -> int:
        if clue_msgs_missing("perception"):
            return 1
        from clue_ros.nodes.lifecycle import run_node
        from clue_ros.nodes.perception_node import PerceptionNode

        return run_node("perception", PerceptionNode, given)

    if not keep:
        return node()
    from clue_ros.nodes.supervisor import Supervisor

    return Supervisor("perception", lambda: or_missing("perception", node)).run()


@program
def console(args: list[str] | None = None) -> int:
    """Serve the operator's page until it is told to stop; 2 when its address cannot be used."""
    if clue_msgs_missing("console"):
        return 1
    from clue_ros.nodes.console_node import ConsoleNode
    from clue_ros.nodes.lifecycle import run_node

    return run_node("console", ConsoleNode, args)


@program
def speech(args: list[str] | None = None) -> int:
    """Run the speech node until it is told to stop; return the exit status."""
    if clue_msgs_missing("speech"):
        return 1
    from clue_ros.nodes.lifecycle import run_node
    from clue_ros.nodes.speech_node import SpeechNode

    return run_node("speech", SpeechNode, args)


@program
def tts(args: list[str] | None = None) -> int:
    """Run the tts node until it is told to stop; return the exit status."""
    if clue_msgs_missing("tts"):
        return 1
    from clue_ros.nodes.lifecycle import run_node
    from clue_ros.nodes.tts_node import TtsNode

    return run_node("tts", TtsNode, args)


@program
def image_source(args: list[str] | None = None) -> int:
    """Run the image_source node until it is told to stop; 2 when its source cannot be used."""
    from clue_ros.nodes.image_source_node import ImageSource
    from clue_ros.nodes.lifecycle import run_node

    return run_node("image_source", lambda _executor: ImageSource(), args)


@program
def grasp_example(args: list[str] | None = None) -> int:
    """Run the grasp_example node until it is told to stop; return the exit status."""
    if clue_msgs_missing("grasp_example"):
        return 1
    from clue_ros.nodes.grasp_example_node import GraspExample
    from clue_ros.nodes.lifecycle import run_node

    return run_node("grasp_example", lambda _executor: GraspExample(), args)


PROGRAMS = {name: globals()[name] for name in programs.PROGRAMS}


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
    """Give the model all cores but one, unless OMP_NUM_THREADS says how many; before it is loaded.

    DDS, the executor and the other nodes need one: with more threads than free cores its threads
    wait for each other most of the time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) - 1)))


def main(args: list[str] | None = None) -> int:
    """Run the program that the first argument names."""
    given = list(sys.argv[1:] if args is None else args)
    if not given or given[0] not in PROGRAMS:
        print(f"usage: executables {{{','.join(PROGRAMS)}}} [--ros-args ...]", file=sys.stderr)
        return 2
    return int(PROGRAMS[given[0]](given))


if __name__ == "__main__":
    sys.exit(main())
