"""How an InViG file writes its boxes, told from all of them together and checked on each.

The published copies differ (pixels in the older, fractions of the image in the newer) and none says
so in the file. Two questions: pixels or fractions, and is the second half the lower right corner
(xyxy, as published) or a width and height (xywh, as COCO writes boxes). Each box is tried against
the size of its image; the readings that fit nearly all boxes win. Where boxes contradict each other
in number, no reading is right and the file is refused; a stray one is a bad row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clue_ros.errors import ClueError

Fractions = tuple[float, float, float, float]
Size = tuple[int, int]
"""Width and height in pixels."""

OUTSIDE = 0.02
"""A box may reach beyond the image by this share of its side (annotators' hands); it is clipped."""
_HUGE = 1e300
_STRAY = 0.1  # at most this share of the boxes, or a single one, may be of the other kind


class InvigError(ClueError):
    """There is no such data, or it cannot be used as a whole; the message says which and why."""

    code = "BAD_DATA"


@dataclass(frozen=True)
class BoxForm:
    """How a file writes boxes. pixels: else fractions. corners: x y x y, else x y width height.

    ``told``: False where every box fits both as corners and as width and height.
    """

    pixels: bool
    corners: bool
    told: bool = True

    def fractions(self, box: Sequence[float], size: Size) -> Fractions:
        """The box as (x_min, y_min, x_max, y_max) in 0..1 of an image.

        Raises ValueError with the reason where it is no box in this image.
        """
        if self.pixels == is_fractions(box):
            want = "pixels" if self.pixels else "fractions of the image"
            raise ValueError(f"box {_show(box)} is not in {want} as the others are")
        found = _corners(box, size, pixels=self.pixels, corners=self.corners)
        x_min, y_min, x_max, y_max = found
        if x_min >= x_max or y_min >= y_max:
            raise ValueError(f"box {_show(box)} encloses no area")
        if min(found) < -OUTSIDE or max(found) > 1 + OUTSIDE:
            raise ValueError(f"box {_show(box)} lies outside the {size[0]}x{size[1]} image")
        left, top, right, bottom = (min(max(value, 0.0), 1.0) for value in found)
        if left >= right or top >= bottom:
            raise ValueError(f"box {_show(box)} lies outside the {size[0]}x{size[1]} image")
        return left, top, right, bottom


def four_numbers(value: object) -> tuple[float, float, float, float]:
    """The four finite numbers of a box as a file holds it. Raises ValueError."""
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        raise ValueError(f"bbox is {_kind(value)}, want four numbers")
    if any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in value):
        raise ValueError(f"bbox {list(value)!r:.60} holds something that is no number")
    # Whole numbers in JSON may be too large for a float.
    numbers = tuple(float(item) if abs(item) < _HUGE else math.inf for item in value)
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"bbox {list(value)!r:.60} is not finite")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def box_form(boxes: Sequence[tuple[Sequence[float], Size]], source: str) -> BoxForm:
    """How these boxes are written: of each, its four numbers and its image's size.

    Raises InvigError where they contradict each other. No boxes: as the newer files have them.
    """
    fractions = [is_fractions(box) for box, _ in boxes]
    pixels = _decide(
        fractions.count(False),
        fractions.count(True),
        lambda a, b: (
            f"{source}: {a} boxes are in pixels and {b} in fractions of the image;"
            " one file must use one of them"
        ),
    )
    same = [
        item for item, is_fraction in zip(boxes, fractions, strict=True) if is_fraction != pixels
    ]
    only = {True: 0, False: 0}
    for box, size in same:
        fits = {
            corners: _fits(_corners(box, size, pixels=pixels, corners=corners))
            for corners in (True, False)
        }
        if fits[True] != fits[False]:
            only[fits[True]] += 1
    corners = _decide(
        only[True],
        only[False],
        lambda a, b: (
            f"{source}: {a} boxes fit their image only as two corners (xyxy) and {b} only as a"
            " corner, width and height (xywh); one file must use one of them"
        ),
    )
    return BoxForm(pixels, corners or only[False] == 0, told=any(only.values()) or not same)


def is_fractions(box: Sequence[float]) -> bool:
    """Whether no number is too large for a fraction; a box within the first pixel is none."""
    return max(abs(number) for number in box) <= 1 + OUTSIDE


def _decide(first: int, second: int, conflict: Callable[[int, int], str]) -> bool:
    """Whether the first kind is the file's. Raises InvigError where both are, in number."""
    fewer, total = min(first, second), first + second
    if fewer > max(_STRAY * total, 1 if total > 3 else 0):
        raise InvigError(conflict(first, second))
    return first > second


def _corners(box: Sequence[float], size: Size, *, pixels: bool, corners: bool) -> Fractions:
    x, y, third, fourth = box
    right, bottom = (third, fourth) if corners else (x + third, y + fourth)
    width, height = size if pixels else (1, 1)
    return x / width, y / height, right / width, bottom / height


def _fits(box: Fractions) -> bool:
    inside = min(box) >= -OUTSIDE and max(box) <= 1 + OUTSIDE
    return inside and box[0] < box[2] and box[1] < box[3]


def _show(box: Sequence[float]) -> str:
    return "[" + ", ".join(f"{number:g}" for number in box) + "]"


def _kind(value: object) -> str:
    length = f" with {len(value)} items" if isinstance(value, (list, tuple)) else ""
    return "missing" if value is None else f"of type {type(value).__name__}{length}"
