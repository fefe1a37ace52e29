# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Places in an image: the English words for them, and their geometry.

A position is (x, y), x right and y down, in fractions of the image's width and height.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Position = tuple[float, float]

SIDES = ("left", "right", "upper", "lower")
CORNERS = ("upper left", "upper right", "lower left", "lower right")
DIRECTIONS: dict[str, Position] = {
    "left": (-1.0, 0.0), "right": (1.0, 0.0), "upper": (0.0, -1.0), "lower": (0.0, 1.0),
    "upper left": (-0.7, -0.7), "upper right": (0.7, -0.7),
    "lower left": (-0.7, 0.7), "lower right": (0.7, 0.7),
}  # fmt: skip
"""Direction of each place: who is furthest there is called so. "middle" is the only other place."""
RELATION_DIRECTIONS: dict[str, Position] = {
    "left": DIRECTIONS["left"], "right": DIRECTIONS["right"],
    "behind": DIRECTIONS["upper"], "front": DIRECTIONS["lower"],
}  # fmt: skip
"""Direction from a landmark to what lies in a relation to it; "next" is the only other relation."""
COUNTED_FROM: dict[str, str] = {
    "left": "left", "right": "right",
    "top": "upper", "back": "upper", "bottom": "lower", "front": "lower",
}  # fmt: skip
"""The side that things are counted from, as people say it, and its place."""

# Place words before the noun and after it.
BEFORE_NOUN: dict[str, tuple[str, ...]] = {
    "left": ("left",), "right": ("right",), "upper": ("upper",), "lower": ("lower",),
    "leftmost": ("leftmost",), "rightmost": ("rightmost",), "top": ("top",), "bottom": ("bottom",),
    "upper left": ("upper left", "top left", "left upper"),
    "upper right": ("upper right", "top right", "right upper"),
    "lower left": ("lower left", "bottom left", "left lower"),
    "lower right": ("lower right", "bottom right", "right lower"),
    "middle": ("middle", "center"),
}  # fmt: skip
AFTER_NOUN: dict[str, tuple[str, ...]] = {
    "left": ("on the left", "to the left"), "right": ("on the right", "to the right"),
    "upper": ("in the upper part",), "lower": ("in the lower part",),
    "leftmost": ("furthest left",), "rightmost": ("furthest right",),
    "top": ("at the top",), "bottom": ("at the bottom",),
    "upper left": ("on the upper left", "at the top left", "at the upper left corner"),
    "upper right": ("on the upper right", "at the top right", "at the upper right corner"),
    "lower left": ("on the lower left", "at the bottom left", "at the lower left corner"),
    "lower right": ("on the lower right", "at the bottom right", "at the lower right corner"),
    "middle": ("in the middle", "in the center"),
}  # fmt: skip

# Understood phrases: more than simulated people say.
_ENDS = {
    "upper": ("upper", "top", "back", "rear", "far"),
    "lower": ("lower", "bottom", "front", "near"),
}
EXTREMES = frozenset((
    "leftmost", "rightmost", "furthest left", "furthest right", "farthest left", "farthest right",
    "far left", "far right", "topmost", "uppermost", "highest", "bottommost", "lowest", "nearest",
    "closest", "furthest", "farthest", "top", "bottom",
))  # fmt: skip
"""Forms of a place that only the first one in its direction has."""


def _forms() -> dict[str, str]:
    names: dict[str, str] = {}
    for side in ("left", "right"):
        names[side] = side
        for end, forms in _ENDS.items():
            for form in forms:
                names |= {form: end, f"{form} {side}": f"{end} {side}"}
                names[f"{side} {form}"] = f"{end} {side}"
    names |= dict.fromkeys(("middle", "center", "centre", "central"), "middle")
    found = dict(names)
    for form, name in names.items():
        for before in ("on the", "to the", "at the", "in the"):
            for after in ("", " side", " part", " corner", " of the table", " of the image"):
                found[f"{before} {form}{after}"] = name
        found |= {f"{form} side": name, f"{form} corner": name, f"{form} hand": name}
    for side in ("left", "right"):
        for form in (f"{side}most", f"furthest {side}", f"farthest {side}", f"far {side}",
                     f"furthest to the {side}", f"on the far {side}"):  # fmt: skip
            found[form] = side
    found |= {"behind": "upper", "in front": "lower"}
    found |= {
        "topmost": "upper", "uppermost": "upper", "highest": "upper", "furthest": "upper",
        "farthest": "upper", "furthest away": "upper", "farthest away": "upper",
        "bottommost": "lower", "lowest": "lower", "nearest": "lower", "closest": "lower",
        "nearest to me": "lower", "closest to me": "lower",
    }  # fmt: skip
    return found


FORMS: Mapping[str, str] = _forms()
"""Every form of a place, "left", "on the left side", "in the upper right corner" -> the place."""


def along(position: Position, direction: Position) -> float:
    """Return a position's distance in a direction, from the image's upper left corner."""
    return direction[0] * position[0] + direction[1] * position[1]


def beside(position: Position, landmark: Position, relation: str) -> Position:
    """Return a position's distance from a landmark along a relation's direction, and across it."""
    x, y = position[0] - landmark[0], position[1] - landmark[1]
    ax, ay = RELATION_DIRECTIONS[relation]
    return ax * x + ay * y, abs(ay * x) + abs(ax * y)


ACROSS, DOWN = "place across", "place down"
"""The image's two axes, as properties that a place tells: left and right, upper and lower."""
AXES = (ACROSS, DOWN)


def axes_of(place: str) -> tuple[str, ...]:
    """Along which axes a place tells things apart; both for a corner and the middle."""
    x, y = DIRECTIONS.get(place, (1.0, 1.0))
    return ((ACROSS,) if x else ()) + ((DOWN,) if y else ())


def spread_axis(positions: Iterable[Position]) -> int:
    """0 if the positions are spread more in x, 1 if in y."""
    xs, ys = zip(*positions, strict=True)
    return int(max(ys) - min(ys) > max(xs) - min(xs))


def row_of_places(positions: Sequence[Position], axis: int | None = None) -> list[str]:
    """The place of each of positions that are in order along an axis; None: of their spread.

    >>> row_of_places([(0.1, 0.5), (0.4, 0.5), (0.9, 0.5)])
    ['left', 'middle', 'right']
    """
    along_y = spread_axis(positions) if axis is None else axis
    first, last = ("upper", "lower") if along_y else ("left", "right")
    return [first, *["middle"] * (len(positions) - 2), *[last] * (len(positions) > 1)]
