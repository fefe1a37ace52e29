"""Parameters as a node declares them: descriptors, refusals at start and while configuring."""

from __future__ import annotations

from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

from rclpy.lifecycle import TransitionCallbackReturn  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

from clue_ros.errors import ClueError  # noqa: E402
from clue_ros.model.loading import DEFAULT_MODEL  # noqa: E402
from clue_ros.nodes.parameter_tables import NODES  # noqa: E402
from clue_ros.nodes.parameters import BadParameterError, Change, declare  # noqa: E402
from clue_ros.nodes.perception_node import PerceptionNode  # noqa: E402
from clue_ros.nodes.speech_node import SpeechNode  # noqa: E402

FAILURE = TransitionCallbackReturn.FAILURE


def refusal(node: Any, name: str, value: Any) -> str:
    """Set a parameter; return why not, or ""."""
    return str(node.set_parameters([Parameter(name, value=value)])[0].reason)


@pytest.mark.parametrize("name", NODES)
def test_every_descriptor_has_what_a_person_needs(executor: Any, name: str) -> None:
    node = Node("declaring", context=executor.context)
    try:
        declare(node, NODES[name])
        for parameter in NODES[name]:
            told = node.describe_parameter(parameter.name)
            assert told.description == parameter.description
            assert told.read_only == (parameter.change is Change.NEVER)
            assert not told.dynamic_typing
            ranges = [*told.integer_range, *told.floating_point_range]
            limits = [(r.from_value, r.to_value) for r in ranges]
            assert limits == ([parameter.limits] if parameter.limits else [])
            for word in (parameter.unit, *parameter.choices, parameter.at_most):
                assert word in told.additional_constraints
            if parameter.change is not Change.ANY_TIME:
                assert parameter.change.value in told.additional_constraints
    finally:
        node.destroy_node()


def test_values_that_do_not_fit_together_are_refused_at_start(executor: Any) -> None:
    given = [Parameter("min_depth", value=5.0), Parameter("max_depth", value=2.0)]
    node = Node("declaring", context=executor.context, parameter_overrides=given)
    try:
        with pytest.raises(BadParameterError, match=r"min_depth \(5\) .* max_depth \(2\)"):
            declare(node, NODES["perception"])
    finally:
        node.destroy_node()


class Loading(PerceptionNode):
    """Somebody sets `model` while it is being loaded."""

    reason = ""

    def load(self) -> Any:
        """Note why the model cannot be changed meanwhile, and fail."""
        self.reason = refusal(self, "model", "other")
        raise ClueError("loaded far enough")


def test_the_model_cannot_change_while_it_is_loaded(executor: Any) -> None:
    node = Loading(executor, context=executor.context)
    try:
        assert node.trigger_configure() == FAILURE
        assert "configuring" in node.reason
        assert node.get_parameter("model").value == DEFAULT_MODEL
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
