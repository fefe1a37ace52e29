# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Parameters: a node declares them from a table, and refuses bad changes.

The tables are in parameter_tables.py. No ROS is needed to import this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from clue_ros.dialogue.words import TAG

if TYPE_CHECKING:
    from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
    from rclpy.node import Node
    from rclpy.parameter import Parameter as RosParameter

Value = bool | int | float | str

LANGUAGE_TAG = TAG.pattern
FRAME = r"[A-Za-z_][A-Za-z0-9_/]*"  # tf2: no slash in front

_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number with a decimal point",
    str: "text",
}


class BadParameterError(Exception):
    """A value given at start (YAML, command line) that the table refuses; the message names it."""


class Change(Enum):
    """When a parameter may change after the node has started."""

    ANY_TIME = "any time"
    NOT_ACTIVE = "while not active"
    UNCONFIGURED = "while unconfigured"
    NEVER = "read-only"


@dataclass(frozen=True)
class Parameter:
    """One parameter; the type of the default is the parameter's type.

    Attributes:
        range: lowest and highest value of a number, both allowed.
        special: one more value that a number may have, outside `range`.
        unit: of a number; "1" for none.
        choices: the values that a text may have.
        pattern: a regular expression that a whole text must match.
        change: when it may change.
        at_most: the name of another number of the table that this one may not exceed.
    """

    name: str
    default: Value
    description: str
    range: tuple[float, float] | None = None
    special: float | None = None
    choices: tuple[str, ...] = ()
    change: Change = Change.ANY_TIME
    unit: str = ""
    pattern: str = ""
    at_most: str = ""

    @property
    def limits(self) -> tuple[float, float] | None:
        """The range, widened to include the special value, as a ROS descriptor needs it."""
        if self.range is None or self.special is None:
            return self.range
        return min(self.range[0], self.special), max(self.range[1], self.special)

    def problem(self, value: object) -> str | None:
        """Return why the parameter cannot have this value, or None."""
        if type(value) is not type(self.default):
            return f"{self.name} must be {_TYPE_NAMES[type(self.default)]}, got {value!r}"
        if isinstance(value, str) and self.choices and value not in self.choices:
            return f"{self.name} must be one of {', '.join(self.choices)}; got {value!r}"
        if isinstance(value, str) and self.pattern and not re.fullmatch(self.pattern, value):
            return f"{self.name} cannot be {value!r:.60}: {self.description}"
        if self.range is not None and isinstance(value, (int, float)) and value != self.special:
            low, high = self.range
            if not low <= value <= high:  # true of NaN too
                special = "" if self.special is None else f", or {self.special:g}"
                return f"{self.name} must be from {low:g} to {high:g}{special}; got {value!r}"
        return None


def find(table: Sequence[Parameter], name: str) -> Parameter | None:
    """Return the table's parameter of that name, or None."""
    return next((parameter for parameter in table if parameter.name == name), None)


def disorder(table: Sequence[Parameter], values: Mapping[str, object]) -> str | None:
    """Return which two of a node's values contradict each other (`at_most`), or None.

    `values` has every number of the table.
    """
    for parameter in table:
        if parameter.at_most:
            value, most = values[parameter.name], values[parameter.at_most]
            assert isinstance(value, (int, float))
            assert isinstance(most, (int, float))
            if value > most:
                return (
                    f"{parameter.name} ({value:g}) must not be over {parameter.at_most} ({most:g})"
                )
    return None


def declare(node: Node, table: Sequence[Parameter]) -> None:
    """Declare every parameter of `table` on `node`.

    Raises BadParameterError: a given value has the wrong type or is out of range, or two
    contradict each other.
    """
    for parameter in table:
        try:
            made = node.declare_parameter(
                parameter.name, parameter.default, _descriptor(parameter)
            ).value
        except Exception as error:  # rclpy has one exception class for each kind of bad override
            raise BadParameterError(f"parameter {parameter.name}: {error}") from error
        problem = parameter.problem(made)
        if problem:
            raise BadParameterError(f"parameter {problem}")
    problem = disorder(table, _values(node, table))
    if problem:
        raise BadParameterError(f"parameter {problem}")


def _values(node: Node, table: Sequence[Parameter]) -> dict[str, Value]:
    return {p.name: node.get_parameter(p.name).value for p in table}


def _descriptor(parameter: Parameter) -> ParameterDescriptor:
    """Return the ROS descriptor: description, range, and whether it is read-only."""
    from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

    constraints = [f"one of {', '.join(parameter.choices)}"] if parameter.choices else []
    if parameter.unit:
        constraints.append(f"unit: {parameter.unit}")
    if parameter.at_most:
        constraints.append(f"not over {parameter.at_most}")
    if parameter.change is not Change.ANY_TIME:
        constraints.append(f"may change: {parameter.change.value}")
    made = ParameterDescriptor(
        description=parameter.description,
        read_only=parameter.change is Change.NEVER,
        additional_constraints="; ".join(constraints),
    )
    if parameter.limits is not None:
        low, high = parameter.limits
        if isinstance(parameter.default, int):
            made.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=0)]
        else:
            made.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    return made


def guard(
    node: Node,
    table: Sequence[Parameter],
    state: Callable[[], str] = lambda: "active",
    take: Callable[[Mapping[str, Value]], str | None] = lambda _changes: None,
) -> None:
    """Check changes while the node runs: those of one request are all accepted or all refused.

    state: returns the label of the lifecycle state.
    take: the node's own check of all changes, called last; it returns a reason to refuse them, or
        None when it has applied them.
    """
    from rcl_interfaces import msg as interfaces

    def on_set(changes: list[RosParameter]) -> SetParametersResult:
        reason = refusal(changes)
        return interfaces.SetParametersResult(successful=reason is None, reason=reason or "")

    def refusal(changes: list[RosParameter]) -> str | None:
        given = {change.name: change.value for change in changes}
        new: dict[str, Value] = {}
        for parameter in table:
            if parameter.name not in given:
                continue
            new[parameter.name] = given[parameter.name]
            reason = _refusal(parameter, new[parameter.name], state())
            if reason:
                return reason
        return disorder(table, _values(node, table) | new) or take(new)

    node.add_on_set_parameters_callback(on_set)


def _refusal(parameter: Parameter, value: object, state: str) -> str | None:
    if parameter.change is Change.UNCONFIGURED and state != "unconfigured":
        return (
            f"{parameter.name} is read when the model is loaded and the node is {state}: "
            "deactivate and clean up first"
        )
    if parameter.change is Change.NOT_ACTIVE and state == "active":
        return f"{parameter.name} cannot change while the node is active: deactivate it first"
    return parameter.problem(value)
