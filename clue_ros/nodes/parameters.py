"""The parameter table on an rclpy node.

Declaration with descriptors, and refusal of bad changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from clue_ros.dialogue.words import TAG


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


# -------------------------------------------------------------------------------------------------
# What one parameter is: its default, range, unit, and when it may change. No ROS in it.

Value = bool | int | float | str


class Change(Enum):
    """When a parameter may change after the node has started."""

    ANY_TIME = "any time"
    NOT_ACTIVE = "while not active"
    UNCONFIGURED = "while unconfigured"
    NEVER = "read-only"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its default fixes its type.

    `range` is inclusive and for numbers, which have a `unit` ("1": none); `choices`
    is for text, and so is `pattern`, a regular expression that the whole text must match. `at_most`
    names another number of the same table that this one may not be over.
    """

    name: str
    default: Value
    description: str
    range: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    change: Change = Change.ANY_TIME
    unit: str = ""
    pattern: str = ""
    at_most: str = ""

    def problem(self, value: object) -> str | None:
        """Say why `value` cannot be taken, or None.

        A type the default does not have is nonsense too.
        """
        if type(value) is not type(self.default):
            return f"{self.name} must be {_TYPE_NAMES[type(self.default)]}, got {value!r}"
        if isinstance(value, str) and self.choices and value not in self.choices:
            return f"{self.name} must be one of {', '.join(self.choices)}; got {value!r}"
        if isinstance(value, str) and self.pattern and not re.fullmatch(self.pattern, value):
            return f"{self.name} cannot be {value!r:.60}: {self.description}"
        if self.range is not None and isinstance(value, (int, float)):
            low, high = self.range
            if not low <= value <= high:  # NaN ends here too
                return f"{self.name} must be from {low:g} to {high:g}, got {value!r}"
        if self.name == "threshold" and isinstance(value, float) and -1.0 < value < 0.0:
            return f"threshold must be from 0 to 1, or -1 for the model's own; got {value!r}"
        return None


LANGUAGE_TAG = TAG.pattern
FRAME = r"[A-Za-z_][A-Za-z0-9_/]*"  # tf2: no slash in front

_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number with a decimal point",
    str: "text",
}


def disorder(table: Sequence[Parameter], values: Mapping[str, object]) -> str | None:
    """Say which two of a node's values do not fit together, or None.

    `values` has every number of the table; each is in its own range already.
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


def find(table: Sequence[Parameter], name: str) -> Parameter | None:
    """Return the table's parameter of that name, or None."""
    return next((parameter for parameter in table if parameter.name == name), None)
