"""The parameter table on an rclpy node.

Declaration with descriptors, and refusal of bad changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from clue_ros.nodes.parameters import Change, Parameter, Value, disorder, find


class BadParameterError(Exception):
    """A value given at start (YAML, command line) that the table refuses; the message names it."""


def declare(node: Node, table: Sequence[Parameter]) -> None:
    """Declare every parameter of `table` on `node`.

    Raises:
        BadParameterError: an override is of the wrong type or out of range, or two do not fit
        together.
    """
    for parameter in table:
        try:
            value = node.declare_parameter(
                parameter.name, parameter.default, descriptor(parameter)
            ).value
        except Exception as error:  # rclpy has one exception class for each kind of bad override
            raise BadParameterError(f"parameter {parameter.name}: {error}") from error
        problem = parameter.problem(value)
        if problem:
            raise BadParameterError(f"parameter {problem}")
    problem = disorder(table, _values(node, table))
    if problem:
        raise BadParameterError(f"parameter {problem}")


def _values(node: Node, table: Sequence[Parameter]) -> dict[str, Value]:
    return {p.name: node.get_parameter(p.name).value for p in table}


def descriptor(parameter: Parameter) -> ParameterDescriptor:
    """Return the ROS descriptor: description, range, and read-only where it never changes."""
    made = ParameterDescriptor(
        description=parameter.description,
        read_only=parameter.change is Change.NEVER,
        additional_constraints=_constraints(parameter),
    )
    if parameter.range is not None:
        low, high = parameter.range
        if isinstance(parameter.default, int):
            made.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=0)]
        else:
            made.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    return made


def _constraints(parameter: Parameter) -> str:
    words = [f"one of {', '.join(parameter.choices)}"] if parameter.choices else []
    if parameter.unit:
        words.append(f"unit: {parameter.unit}")
    if parameter.at_most:
        words.append(f"not over {parameter.at_most}")
    if parameter.change is not Change.ANY_TIME:
        words.append(f"may change: {parameter.change.value}")
    return "; ".join(words)


def guard(
    node: Node,
    table: Sequence[Parameter],
    state: Callable[[], str] = lambda: "active",
    take: Callable[[Mapping[str, Value]], str | None] = lambda _changes: None,
) -> None:
    """Refuse bad changes while the node runs: all that come together, or none.

    `state` returns the lifecycle state's label. `take` is the node's own last word on all changes
    of a request, when nothing else is against them: a reason, or None when it has taken them.
    """

    def refusal(changes: list[RosParameter]) -> str | None:
        for change in changes:
            reason = _refusal(table, change, state())
            if reason:
                return reason
        new = {change.name: change.value for change in changes}
        return disorder(table, _values(node, table) | new) or take(new)

    def on_set(changes: list[RosParameter]) -> SetParametersResult:
        reason = refusal(changes)
        return SetParametersResult(successful=reason is None, reason=reason or "")

    node.add_on_set_parameters_callback(on_set)


def _refusal(table: Sequence[Parameter], change: RosParameter, state: str) -> str | None:
    parameter = find(table, change.name)
    if parameter is None:  # use_sim_time, qos_overrides: not ours to judge
        return None
    if parameter.change is Change.UNCONFIGURED and state != "unconfigured":
        return (
            f"{change.name} is read when the model is loaded and the node is {state}: "
            "deactivate and clean up first"
        )
    if parameter.change is Change.NOT_ACTIVE and state == "active":
        return f"{change.name} cannot change while the node is active: deactivate it first"
    return parameter.problem(change.value)
