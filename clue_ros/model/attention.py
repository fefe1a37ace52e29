"""From attention weights to one map of the image: equations 1 and 2 (section III-B.1); peaks.

The image tokens are the first N keys (PaliGemma's layout), N = grid * grid, row by row from the
top.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from clue_ros.dialogue import Box, Peak

EPS = 1e-8  # of equation 1
FLAT = 1e-12  # added to a map's range: real ranges shrink with the grid, to about 1e-5


def image_attention(attention: torch.Tensor, query_mask: torch.Tensor, grid: int) -> torch.Tensor:
    """Equations 1 and 2: where the words look, as a distribution over the image. Differentiable.

    attention (B, H, Q, K) from one block; query_mask (B, Q) bool, the words Qx. Returns (B, grid,
    grid) float32, each sample summing to 1 (to 0 where no query is set).
    """
    over_image = attention[..., : grid * grid].float()
    share = over_image / (over_image.sum(-1, keepdim=True) + EPS)  # eq. 1, per head and query
    weight = query_mask.to(share.dtype)[:, None, :, None]
    total = (share * weight).sum((1, 2))
    count = weight.sum((1, 2)).clamp(min=1) * attention.shape[1]
    return (total / count).view(-1, grid, grid)  # eq. 2


def min_max(maps: torch.Tensor) -> torch.Tensor:
    """Each map of (B, g, g) stretched to 0..1; a flat map becomes 0. Differentiable."""
    flat = maps.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return ((flat - low) / (high - low + FLAT)).view_as(maps)


def attention_map(attention: torch.Tensor, query_mask: torch.Tensor, grid: int) -> torch.Tensor:
    """What the CNN reads: equations 1 and 2, then min-max per sample.

    (B, H, Q, K), (B, Q) -> (B, grid, grid) in 0..1.
    """
    return min_max(image_attention(attention, query_mask, grid))


def find_peaks(
    attention: npt.NDArray[np.float32],
    width: int,
    height: int,
    *,
    floor: float = 0.35,
    saddle: float = 0.8,
    most: int = 8,
) -> tuple[Peak, ...]:
    """The separate places a map (g, g) in 0..1 points at, as boxes in pixels of the image.

    Every cell climbs to its hill's top; hills lower than `floor` are dropped, and two hills whose
    pass is higher than `saddle` times the lower top are one. A peak's box holds the hill's cells
    above half its top. Strongest first.
    """
    rows, columns = attention.shape
    hills = _merge(attention, _climb(attention), saddle)
    peaks = []
    for top in np.unique(hills):
        score = float(attention.flat[top])
        if score < floor:
            continue
        ys, xs = np.nonzero((hills == top) & (attention >= score / 2))
        box = Box(
            float(xs.min()) / columns * width,
            float(ys.min()) / rows * height,
            float(xs.max() + 1) / columns * width,
            float(ys.max() + 1) / rows * height,
        )
        peaks.append(Peak(box, score))
    peaks.sort(key=lambda peak: -peak.score)
    return tuple(peaks[:most])


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
