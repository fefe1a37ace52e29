"""Peaks of an attention map: the places in the image that a sentence may mean.

The paper shows that the map marks the candidates; how peaks are cut out of it is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from clue_ros.dialogue.types import Box, Peak

# Chosen on the validation splits with `clue eval localisation --split val`.
FLOOR, SADDLE = 0.35, 0.85
FINER = 4  # times the map's resolution at which a peak's box is drawn


def find_peaks(
    attention: npt.NDArray[np.float32],
    width: int,
    height: int,
    *,
    floor: float = FLOOR,
    saddle: float = SADDLE,
    most: int = 8,
) -> tuple[Peak, ...]:
    """The separate places a map (g, g) in 0..1 points at, as boxes in pixels of the image.

    Every cell climbs to its hill's top; hills lower than `floor` are dropped, and two hills whose
    pass is higher than `saddle` times the lower top are one. A peak's box holds its region: the
    part of the hill around the top where the map, made finer than its cells, is above half the top.
    Strongest first.
    """
    rows, columns = attention.shape
    hills = _merge(attention, _climb(attention), saddle)
    fine = _finer(attention)
    peaks = []
    for top in np.unique(hills):
        score = float(attention.flat[top])
        if score < floor:
            continue
        ys, xs = np.nonzero(_region(fine, hills, int(top), score))
        across, down = width / (columns * FINER), height / (rows * FINER)
        box = Box(
            float(xs.min()) * across,
            float(ys.min()) * down,
            float(xs.max() + 1) * across,
            float(ys.max() + 1) * down,
        )
        y, x = divmod(int(top), columns)
        peaks.append(Peak(box, score, ((x + 0.5) / columns * width, (y + 0.5) / rows * height)))
    peaks.sort(key=lambda peak: -peak.score)
    return tuple(peaks[:most])


def peak_mask(
    attention: npt.NDArray[np.float32],
    peak: Peak,
    width: int,
    height: int,
    *,
    saddle: float = SADDLE,
) -> npt.NDArray[np.bool_]:
    """The pixels of a peak's region, bool (height, width), for the map that `find_peaks` read.

    The peak is found again by its point (its box's centre where it has none).
    """
    return peak_masks(attention, (peak,), width, height, saddle=saddle)[0]


def peak_masks(
    attention: npt.NDArray[np.float32],
    peaks: Sequence[Peak],
    width: int,
    height: int,
    *,
    saddle: float = SADDLE,
) -> tuple[npt.NDArray[np.bool_], ...]:
    """`peak_mask` of each of a map's peaks."""
    rows, columns = attention.shape
    hills, fine = _merge(attention, _climb(attention), saddle), _finer(attention)
    at_y = (np.arange(height) * fine.shape[0]) // height
    at_x = (np.arange(width) * fine.shape[1]) // width
    masks = []
    for peak in peaks:
        x, y = peak.point if peak.point is not None else peak.box.center
        row = min(rows - 1, max(0, int(y / height * rows)))
        column = min(columns - 1, max(0, int(x / width * columns)))
        top = int(hills[row, column])
        region = _region(fine, hills, top, float(attention.flat[top]))
        masks.append(np.asarray(region[at_y[:, None], at_x[None]], dtype=np.bool_))
    return tuple(masks)


def _finer(attention: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The map at FINER times its resolution, bicubic: objects do not end where patches do."""
    values = torch.from_numpy(np.ascontiguousarray(attention, dtype=np.float32))[None, None]
    finer = functional.interpolate(values, scale_factor=FINER, mode="bicubic", align_corners=False)
    return np.asarray(finer[0, 0].numpy(), dtype=np.float32)


def _region(
    fine: npt.NDArray[np.float32], hills: npt.NDArray[np.int64], top: int, score: float
) -> npt.NDArray[np.bool_]:
    """What hangs together around a hill's top above half of it, on the finer grid."""
    inside = np.kron(hills == top, np.ones((FINER, FINER), dtype=np.bool_))
    inside &= fine >= score / 2
    row, column = divmod(top, hills.shape[1])
    region = np.zeros_like(inside)
    # The top's own cell belongs to it, even where bicubic smoothing flattens a lone cell.
    region[row * FINER : (row + 1) * FINER, column * FINER : (column + 1) * FINER] = True
    inside |= region
    while True:
        padded = np.pad(region, 1)
        grown = np.zeros_like(region)
        for dy in range(3):
            for dx in range(3):
                grown |= padded[dy : dy + region.shape[0], dx : dx + region.shape[1]]
        grown &= inside
        if np.array_equal(grown, region):
            return region
        region = grown


def _climb(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """For each cell the flat index of the top that steepest ascent (8 neighbours) leads to."""
    rows, columns = values.shape
    padded = np.pad(values, 1, constant_values=-np.inf)
    index = np.pad(np.arange(rows * columns).reshape(rows, columns), 1, constant_values=-1)
    shifts = [(0, 0)] + [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]

    def stack(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.stack(
            [array[1 + dy : 1 + dy + rows, 1 + dx : 1 + dx + columns] for dy, dx in shifts]
        )

    # Among equals the smallest index wins: no cell can be sent back and forth.
    near, names = stack(padded), stack(index)
    goal = np.where(near == near.max(0), names, rows * columns).min(0).ravel()
    while not np.array_equal(goal, goal[goal]):
        goal = goal[goal]
    return np.asarray(goal, dtype=np.int64).reshape(rows, columns)


def _merge(
    values: npt.NDArray[np.float32], hills: npt.NDArray[np.int64], saddle: float
) -> npt.NDArray[np.int64]:
    """Hills joined by a high pass become one, named by the higher top; highest passes first."""
    passes: dict[tuple[int, int], float] = {}
    for axis_a, axis_b in _neighbours(hills.shape):
        a, b = hills[axis_a].ravel(), hills[axis_b].ravel()
        level = np.minimum(values[axis_a], values[axis_b]).ravel()
        for i in np.nonzero(a != b)[0]:
            pair = (int(min(a[i], b[i])), int(max(a[i], b[i])))
            passes[pair] = max(passes.get(pair, 0.0), float(level[i]))
    height = values.ravel()
    name = {int(top): int(top) for top in np.unique(hills)}

    def find(top: int) -> int:
        while name[top] != top:
            top = name[top]
        return top

    for (a_top, b_top), level_at in sorted(passes.items(), key=lambda item: -item[1]):
        low, high = sorted((find(a_top), find(b_top)), key=lambda top: float(height[top]))
        if low != high and level_at >= saddle * float(height[low]):
            name[low] = high
    merged: npt.NDArray[np.int64] = np.vectorize(find, otypes=[np.int64])(hills)
    return merged


def _neighbours(
    shape: tuple[int, ...],
) -> list[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """Pairs of slices that put every cell beside its right, lower and diagonal neighbours."""
    rows, columns = shape
    pairs = []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = (slice(0, rows - dy), slice(max(0, -dx), columns - max(0, dx)))
        there = (slice(dy, rows), slice(max(0, dx), columns + min(0, dx)))
        pairs.append((here, there))
    return pairs
