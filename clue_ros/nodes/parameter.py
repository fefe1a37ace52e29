"""What one parameter is: its default, range, unit, and when it may change. No ROS in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from clue_ros.voice.words import TAG

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
