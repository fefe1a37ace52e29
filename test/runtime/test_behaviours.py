"""Leaves for py_trees, ticked beside a real perception node, and the examples that use them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()
pytest.importorskip("py_trees", reason="py_trees is not installed (extra behaviours)")

import py_trees  # noqa: E402
import rclpy  # noqa: E402
from py_trees.common import Status  # noqa: E402
from ros_fixtures import REQUEST  # noqa: E402
from ros_helpers import TIMEOUT, Client, wait_until  # noqa: E402

from clue_ros.behaviours import GROUNDING, TRACKED, Ground, Track, dialogue  # noqa: E402
from clue_ros.nodes.client import CommandGrounder  # noqa: E402


@pytest.fixture
def grounder(client: Client) -> Iterator[CommandGrounder]:
    py_trees.blackboard.Blackboard.clear()
    with CommandGrounder("tree", context=rclpy.Context()) as grounder:
        grounder.wait_until_active(timeout=TIMEOUT)
        yield grounder
        grounder.unfollow()


def ticked(root: Any, wanted: Status) -> None:
    def reached() -> bool:
        root.tick_once()
        time.sleep(0.02)
        return bool(root.status is wanted)

    wait_until(reached, f"{wanted} of {root.name}")


def board(key: str) -> Any:
    return py_trees.blackboard.Blackboard.get(key)


def test_a_tree_asks_and_finds_and_follows(client: Client, grounder: CommandGrounder) -> None:
    asked: list[str] = []

    def answer(question: Any) -> str | None:
        asked.append(question.text)
        client.set(threshold=1.0)  # with the answer the request is clear
        return None if len(asked) < 3 else "the left one"  # not at once

    assert client.set(threshold=0.0) == ""
    root = py_trees.composites.Sequence("fetch", memory=True)
    root.add_children([dialogue(REQUEST, grounder, answer), Track(grounder)])
    ticked(root, Status.SUCCESS)
    assert len(asked) == 3
    assert board(GROUNDING).dialogue[-1].text == "the left one"
    assert board(TRACKED).dialogue_id == board(GROUNDING).dialogue_id


def test_a_tree_that_turns_elsewhere_ends_the_dialogue(
    client: Client, grounder: CommandGrounder
) -> None:
    assert client.set(threshold=0.0) == ""
    ground = Ground(REQUEST, grounder)
    ground.tick_once()
    wait_until(lambda: ground.task and ground.task.question, "the question")
    ground.tick_once()
    assert ground.status is Status.RUNNING
    assert ground.feedback_message
    task = ground.task
    ground.stop(Status.INVALID)
    assert task is not None
    wait_until(task.done, "the end of the dialogue")
    ticked(ground, Status.RUNNING)  # and it may be started anew
    py_trees.trees.BehaviourTree(ground).shutdown()


def test_why_it_fails_is_in_the_feedback(client: Client, grounder: CommandGrounder) -> None:
    ground = Ground("stop", grounder)
    ticked(ground, Status.FAILURE)
    assert ground.feedback_message.startswith("CANCELED")
    assert client.transition("deactivate")
    assert client.transition("activate")  # and forgets the last grounding
    track = Track(grounder)
    ticked(track, Status.FAILURE)
    assert "UNKNOWN_DIALOGUE" in track.feedback_message


@pytest.mark.parametrize(
    ("name", "arguments", "prints"),
    [
        ("ground_and_grasp.py", [REQUEST], "BoundingBox"),
        ("follow.py", [REQUEST, "1.0"], "BoundingBox"),
        ("teach.py", ["stapler", "20", "20", "90", "80"], "stapler, examples: 1"),
    ],
)
def test_the_examples_run(client: Client, name: str, arguments: list[str], prints: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(ros_helpers.ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        input="yes\n" * 9,  # to what the robot asks
        timeout=TIMEOUT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert prints in ended.stdout
