"""How a node's process spins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from rclpy.callback_groups import ReentrantCallbackGroup  # noqa: E402
from rclpy.executors import MultiThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.nodes.process import spin  # noqa: E402


class Destroying(Node):  # type: ignore[misc]  # rclpy has no types here
    """Destroys a subscription just when the executor has gathered what it waits for.

    A callback in another thread does that now and then; here it happens again and again.
    """

    doomed: Any = None

    @property
    def guards(self) -> Iterator[Any]:
        """The node's guard conditions, which the executor walks when it has all else."""
        if self.doomed is not None:
            self.doomed, doomed = None, self.doomed
            self.destroy_subscription(doomed)
        yield from super().guards


def test_a_subscription_destroyed_at_the_wrong_moment_does_not_end_the_node() -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Destroying("destroying", context=context)
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(turns))
        if node.doomed is None and len(turns) < 20:
            node.doomed = node.create_subscription(
                String, "doomed", turns.append, 1, callback_group=ReentrantCallbackGroup()
            )
        elif len(turns) >= 20:
            context.try_shutdown()

    node.create_timer(0.01, turn)
    try:
        spin(executor)
    finally:
        executor.shutdown(timeout_sec=2.0)
        context.try_shutdown()
    assert len(turns) >= 20, "the timer went on"


def test_an_error_of_a_callback_still_ends_the_process() -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node("failing", context=context)
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    node.create_timer(0.01, lambda: 1 // 0)
    try:
        with pytest.raises(ZeroDivisionError):
            spin(executor)
    finally:
        executor.shutdown(timeout_sec=2.0)
        context.try_shutdown()
