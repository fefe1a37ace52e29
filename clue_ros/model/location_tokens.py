# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Boxes as location tokens: G = <locY1><locX1><locY2><locX2> (the paper's section III-A), and back.

A token is one of 1024 steps over the image's height (Y) or width (X): 0 is the first edge, 1023 the
last. Codes are a tuple (y1, x1, y2, x2) of integers 0..1023; a valid box has y1 < y2 and x1 < x2.
"""

from __future__ import annotations

from collections.abc import Sequence

from clue_ros.dialogue.types import Box

STEPS = 1024
LAST = STEPS - 1
BETWEEN = ";"  # boxes of one reply

Codes = tuple[int, int, int, int]
WHOLE: Codes = (0, 0, LAST, LAST)  # all of a picture


def encode_box(box: Box, width: int, height: int) -> Codes:
    """The codes of a box in pixels; clipped to the image, at least one step wide and high."""
    x1, y1, x2, y2 = box.in_fractions(width, height).as_tuple()
    return nearest_valid([round(share * LAST) for share in (y1, x1, y2, x2)])


def decode_box(codes: Sequence[int], width: int, height: int) -> Box:
    """The box in pixels of a (height, width) image.

    Raises ValueError unless the codes make a valid box.
    """
    if not is_valid(codes):
        raise ValueError(f"not a box: {tuple(codes)}; want 0 <= y1 < y2 <= {LAST}, the same for x")
    y1, x1, y2, x2 = codes
    return Box(x1 / LAST, y1 / LAST, x2 / LAST, y2 / LAST).in_pixels(width, height)


def is_valid(codes: Sequence[int]) -> bool:
    """Whether the codes are four steps of 0..1023 that enclose an area."""
    if len(codes) != 4:
        return False
    y1, x1, y2, x2 = codes
    return 0 <= y1 < y2 <= LAST and 0 <= x1 < x2 <= LAST


def nearest_valid(codes: Sequence[int]) -> Codes:
    """The valid box closest to four integers: clipped, sides in order, at least one step thick."""
    y1, x1, y2, x2 = codes
    (top, bottom), (left, right) = _ordered(y1, y2), _ordered(x1, x2)
    return top, left, bottom, right


def to_text(codes: Sequence[int]) -> str:
    """Codes as PaliGemma writes them: "<loc0012><loc0034><loc0056><loc0078>"."""
    return "".join(f"<loc{code:04d}>" for code in codes)


def _ordered(a: int, b: int) -> tuple[int, int]:
    low, high = sorted((min(max(a, 0), LAST), min(max(b, 0), LAST)))
    if low < high:
        return low, high
    return (low, low + 1) if low < LAST else (LAST - 1, LAST)
