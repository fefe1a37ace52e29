# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Peaks of an attention map: the places in the image that a sentence may mean.

The paper shows that the map marks the candidates; how peaks are cut out of it is ours. Each cell
climbs to the top of its hill, and hills that are joined by a high pass count as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Peak

# Chosen on the validation splits with `clue eval localisation --split val`.
FLOOR, SADDLE = 0.35, 0.85
MOST = 8  # peaks
FINER = 4  # times the map's resolution at which a peak's region is drawn


def find_peaks(attention: npt.NDArray[np.float32], width: int, height: int) -> tuple[Peak, ...]:
    """Find the separate peaks of a map (g, g) in 0..1, strongest first.

    Hills lower than FLOOR are dropped. Two hills whose pass is higher than SADDLE times the
    lower top are one. A peak's box, in pixels of the (height, width) image, encloses its region:
    the part of the hill around the top where the map, made finer than its cells, is above half the
    top.
    """
    rows, columns = attention.shape
    hills, fine = _hills(attention), _finer(attention)
    across, down = width / fine.shape[1], height / fine.shape[0]
    peaks = []
    for top in sorted(set(hills.ravel().tolist())):
        score = float(attention.flat[top])
        if score < FLOOR:
            continue
        ys, xs = np.nonzero(_region(fine, hills, top, score))
        box = Box(
            float(xs.min()) * across,
            float(ys.min()) * down,
            float(xs.max() + 1) * across,
            float(ys.max() + 1) * down,
        )
        y, x = divmod(top, columns)
        peaks.append(Peak(box, score, ((x + 0.5) / columns * width, (y + 0.5) / rows * height)))
    peaks.sort(key=lambda peak: -peak.score)
    return tuple(peaks[:MOST])


def peak_masks(
    attention: npt.NDArray[np.float32],
    peaks: Sequence[Peak],
    width: int,
    height: int,
) -> tuple[npt.NDArray[np.bool_], ...]:
    """The pixels of each peak's region, bool (height, width), for the map of `find_peaks`.

    A peak is found again by its point, or by its box's centre where it has none.
    """
    hills, fine = _hills(attention), _finer(attention)
    masks = []
    for peak in peaks:
        top = int(hills[cell_of(peak, width, height, attention.shape)])
        region = _region(fine, hills, top, float(attention.flat[top]))
        masks.append(stretched(region, width, height))
    return tuple(masks)


def cell_of(peak: Peak, width: int, height: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Row and column of a peak's point in a grid (rows, columns) over a (height, width) image.

    Of its box's centre where it has no point.
    """
    x, y = peak.point if peak.point is not None else peak.box.center
    rows, columns = shape
    row = min(rows - 1, max(0, int(y / height * rows)))
    return row, min(columns - 1, max(0, int(x / width * columns)))


def stretched(mask: npt.NDArray[np.bool_], width: int, height: int) -> npt.NDArray[np.bool_]:
    """A mask (rows, columns) over an image as one of its pixels, bool (height, width)."""
    rows, columns = mask.shape
    at_y = np.arange(height) * rows // height
    at_x = np.arange(width) * columns // width
    return np.asarray(mask[at_y[:, None], at_x[None]], dtype=np.bool_)


def _finer(attention: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The map at FINER times its resolution, bicubic: objects do not end where patches do."""
    down, across = map(_bicubic, attention.shape)
    return np.asarray(down @ attention @ across.T, np.float32)


@cache
def _bicubic(count: int) -> npt.NDArray[np.float32]:
    """The matrix (FINER n, n) that makes n values finer, as OpenCV's INTER_CUBIC does."""
    sharpness = -0.75
    at = (np.arange(FINER * count) + 0.5) / FINER - 0.5
    cells = np.floor(at).astype(np.int64)[:, None] + np.arange(-1, 3)
    x = abs(at[:, None] - cells)
    near = ((sharpness + 2) * x - (sharpness + 3)) * x**2 + 1
    far = ((x - 5) * x + 8) * x * sharpness - 4 * sharpness
    weights = np.zeros((len(at), count))
    rows = np.arange(len(at))[:, None]
    np.add.at(weights, (rows, cells.clip(0, count - 1)), np.where(x <= 1, near, far))
    return weights.astype(np.float32)


def _joined_to(row: int, column: int, inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The cells of a mask that a walk within it, diagonals too, reaches from one of its cells.

    numpy's, as OpenCV's import takes 19 MB and 30 ms, and a reply needs nothing else of it.
    """
    seen = np.zeros_like(inside)
    seen[row, column] = True
    count = 1
    while True:
        seen[:, 1:] |= seen[:, :-1].copy()
        seen[:, :-1] |= seen[:, 1:].copy()
        seen[1:] |= seen[:-1].copy()
        seen[:-1] |= seen[1:].copy()
        seen &= inside
        reached = int(np.count_nonzero(seen))
        if reached == count:
            return seen
        count = reached


def _region(
    fine: npt.NDArray[np.float32], hills: npt.NDArray[np.int64], top: int, score: float
) -> npt.NDArray[np.bool_]:
    """The part of a hill above half its top that is connected to the top, on the finer grid."""
    inside = np.kron(hills == top, np.ones((FINER, FINER), dtype=np.bool_)) & (fine >= score / 2)
    row, column = (FINER * index for index in divmod(top, hills.shape[1]))
    # The top's own cell belongs to it, even where bicubic smoothing flattens a lone cell.
    inside[row : row + FINER, column : column + FINER] = True
    return _joined_to(row, column, inside)


def _hills(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """For each cell (rows, columns) the flat index of the top of its hill, high passes joined."""
    goals = _climb(values)
    heights = values.ravel().tolist()
    joined = {top: top for top in sorted(set(goals.ravel().tolist()))}

    def find(top: int) -> int:
        while joined[top] != top:
            top = joined[top]
        return top

    for level, *pair in _passes(values, goals):
        low, high = sorted(map(find, pair), key=heights.__getitem__)
        if low != high and level >= SADDLE * heights[low]:
            joined[low] = high
    named = np.zeros(values.size, np.int64)
    for top in joined:
        named[top] = find(top)
    return named[goals]


def _passes(
    values: npt.NDArray[np.float32], goals: npt.NDArray[np.int64]
) -> list[tuple[float, int, int]]:
    """The highest pass between each two hills that touch, with their tops; highest first."""
    highest: dict[tuple[int, int], float] = {}
    for here, there in _neighbours(goals.shape):
        a, b = goals[here], goals[there]
        apart = a != b
        sides = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
        levels = np.minimum(values[here], values[there])[apart]
        for low, high, level in zip(*(side.tolist() for side in (*sides, levels)), strict=True):
            highest[low, high] = max(level, highest.get((low, high), 0.0))
    found = [(level, *pair) for pair, level in highest.items()]
    return sorted(found, key=lambda one: -one[0])


def _climb(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """For each cell the flat index of the top that steepest ascent (8 neighbours) leads to."""
    rows, columns = values.shape
    padded = np.pad(values, 1, constant_values=-np.inf)
    index = np.pad(np.arange(rows * columns).reshape(rows, columns), 1, constant_values=-1)
    shifts = [(slice(dy, dy + rows), slice(dx, dx + columns)) for dy in range(3) for dx in range(3)]
    near = np.stack([padded[shift] for shift in shifts])
    names = np.stack([index[shift] for shift in shifts])
    # Among equals the smallest index wins: no cell can be sent back and forth.
    goal = np.where(near == near.max(0), names, rows * columns).min(0).ravel()
    while not np.array_equal(goal, goal[goal]):
        goal = goal[goal]
    return np.asarray(goal, dtype=np.int64).reshape(rows, columns)


def _neighbours(shape: tuple[int, ...]) -> list[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """Pairs of slices that put every cell beside its right, lower and diagonal neighbours."""
    rows, columns = shape
    pairs = []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = (slice(0, rows - dy), slice(max(0, -dx), columns - max(0, dx)))
        there = (slice(dy, rows), slice(max(0, dx), columns + min(0, dx)))
        pairs.append((here, there))
    return pairs
