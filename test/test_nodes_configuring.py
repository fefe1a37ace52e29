"""While a managed node is being configured, what it is configured from cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.lifecycle import TransitionCallbackReturn  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

from clue_ros.errors import ClueError  # noqa: E402
from clue_ros.nodes.perception_node import PerceptionNode  # noqa: E402
from clue_ros.nodes.speech_node import SpeechNode  # noqa: E402

FAILURE = TransitionCallbackReturn.FAILURE


@pytest.fixture
def executor() -> Iterator[Any]:
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = SingleThreadedExecutor(context=context)
    yield executor
    executor.shutdown(timeout_sec=2.0)
    context.try_shutdown()


def refusal(node: Any, name: str, value: str) -> str:
    """Set a parameter; return why not, or ""."""
    return str(node.set_parameters([Parameter(name, value=value)])[0].reason)


class Loading(PerceptionNode):
    """Somebody sets `model` while it is being loaded."""

    reason = ""

    def _load(self) -> Any:
        self.reason = refusal(self, "model", "other")
        raise ClueError("loaded far enough")


def test_the_model_cannot_change_while_it_is_loaded(executor: Any) -> None:
    node = Loading(executor, context=executor.context)
    try:
        assert node.trigger_configure() == FAILURE
        assert "configuring" in node.reason
        assert node.get_parameter("model").value == "tabletop"
        assert refusal(node, "model", "other") == "", "it failed: now it may"
    finally:
        node.close()
        node.destroy_node()


class Listening(SpeechNode):
    """Somebody sets `engine` while it is being loaded."""

    reason = ""

    def open(self) -> None:
        """Fail as an engine that is not installed does."""
        self.reason = refusal(self, "engine", "vosk")
        raise ClueError("no such engine")


def test_nor_can_the_engine(executor: Any) -> None:
    off = [Parameter("autostart", value=False)]
    node = Listening(executor, context=executor.context, parameter_overrides=off)
    try:
        assert node.trigger_configure() == FAILURE
        assert "configuring" in node.reason
        assert refusal(node, "engine", "vosk") == ""
    finally:
        node.close()
        node.destroy_node()
