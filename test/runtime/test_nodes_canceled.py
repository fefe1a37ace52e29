"""A goal that is canceled before its coroutine has begun ends at once, and as canceled."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import ros_helpers

ros_helpers.need_ros()

from clue_msgs.action import Listen, Say  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

from clue_ros.nodes.lifecycle import SUCCESS  # noqa: E402
from clue_ros.nodes.speech_node import SpeechNode  # noqa: E402
from clue_ros.nodes.tts_node import TtsNode  # noqa: E402


class FakeGoal:
    """Stands in for rclpy's goal handle: what was asked, and how it ended."""

    is_active = True

    def __init__(self, request: Any) -> None:
        self.request = request
        self.goal_id = SimpleNamespace(uuid=list(uuid.uuid4().bytes))
        self.end = ""
        self._looked = 0

    @property
    def is_cancel_requested(self) -> bool:
        """True only some time after the cancel callback has returned, as rclpy's."""
        self._looked += 1
        return self._looked > 3

    def publish_feedback(self, feedback: Any) -> None:
        """Tell nobody."""

    def canceled(self) -> None:
        """End as canceled."""
        self.end = "canceled"

    def abort(self) -> None:
        """End as aborted."""
        self.end = "aborted"


def ends(node: Any, goal: FakeGoal) -> Any:
    """Cancel the goal, then begin it; returns its result."""
    node.on_cancel(goal)
    task = node.spinner.create_task(node.on_goal, goal)
    node.spinner.spin_until_future_complete(task, timeout_sec=20.0)
    assert task.done(), "the goal waits for ever"
    return task.result()


def active(kind: Any, executor: SingleThreadedExecutor, **values: str) -> Any:
    """Return an active node that does not start itself."""
    given = [Parameter(name, value=value) for name, value in values.items()]
    given.append(Parameter("autostart", value=False))
    node = kind(executor, context=executor.context, parameter_overrides=given)
    executor.add_node(node)
    assert node.trigger_configure() == node.trigger_activate() == SUCCESS
    return node


def test_listen(executor: SingleThreadedExecutor) -> None:
    node = active(SpeechNode, executor, source="topic")
    for _ in range(2):  # the first goal leaves nothing open
        goal = FakeGoal(Listen.Goal())
        goal.request.timeout.sec = 1000
        result = ends(node, goal)
        assert (result.status, goal.end) == (Listen.Result.CANCELED, "canceled")
    node.close()
    node.destroy_node()


def test_say(executor: SingleThreadedExecutor) -> None:
    node = active(TtsNode, executor, engine="print")
    for _ in range(2):
        goal = FakeGoal(Say.Goal(text="hello"))
        result = ends(node, goal)
        assert (result.status, goal.end) == (Say.Result.CANCELED, "canceled")
    node.close()
    node.destroy_node()
