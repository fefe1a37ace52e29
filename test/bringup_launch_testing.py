"""The launch file under launch_testing: every node is killed, comes back, and works.

    launch_test test/bringup_launch_testing.py        # with a model's folder in CLUE_TEST_MODEL

test_nodes_launch runs it where launch_testing is installed.
"""

from __future__ import annotations

import os
import signal
import sys
import unittest
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import launch_testing
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_testing.actions import ReadyToTest
from robot import recovered
from ros_helpers import ROOT, TIMEOUT, isolate, ros_client, wait_until

from launch import LaunchDescription

NODES = ("tts", "speech", "perception")
isolate()


def generate_test_description() -> LaunchDescription:
    """Return the launch file with voice, and the tests right after its start."""
    arguments = {
        "model": os.environ["CLUE_TEST_MODEL"],
        "voice": "true",
        "speech_source": "topic",
        "record": os.environ["CLUE_TEST_RECORD"],
    }
    source = PythonLaunchDescriptionSource(str(ROOT / "launch" / "clue.launch.py"))
    robot = IncludeLaunchDescription(source, launch_arguments=arguments.items())
    return LaunchDescription([robot, ReadyToTest()])


def child(node: str) -> int | None:
    """Return the process id of a node that this process has started."""
    for tasks in Path("/proc/self/task").iterdir():
        for pid in (tasks / "children").read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:
                continue
            if f"{node}_node" in command:
                return int(pid)
    return None


def replaced(node: str, pid: int) -> bool:
    """Return whether the node runs in another process than `pid`."""
    return child(node) not in (None, pid)


class TestBringUp(unittest.TestCase):
    """While the nodes run."""

    def test_every_node_that_is_killed_comes_back(self, proc_output: Any) -> None:
        """Kill each with SIGKILL; then a request works, and its dialogue is recorded."""
        proc_output.assertWaitFor("active, looking at /image", timeout=TIMEOUT)
        for node in NODES:
            before = wait_until(partial(child, node), f"{node} to run")
            os.kill(before, signal.SIGKILL)
            wait_until(partial(replaced, node, before), f"{node}'s return")
        with ros_client("launch_tester") as client:
            client.start_camera()
            recovered(client)
            client.set(threshold=1.0)
            assert client.result(client.goal("pick up the block")).result.error_code == 0
        folder = Path(os.environ["CLUE_TEST_RECORD"])
        wait_until(lambda: list(folder.glob("episode-*.json")), "an episode")


@launch_testing.post_shutdown_test()
class TestEnd(unittest.TestCase):
    """After Ctrl-C."""

    def test_every_node_ended_in_order(self, proc_info: Any) -> None:
        """Nothing but our own SIGKILL ended a node otherwise."""
        launch_testing.asserts.assertExitCodes(proc_info, allowable_exit_codes=[0, -9])
