# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether an object still lies where it was seen: two images of one camera, compared in a region.

Single pixels have noise, and exposure and white balance drift. So the means of grid cells are
compared, after the gain of each channel that most of the picture shares is taken out.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box

Rgb = npt.NDArray[np.uint8]
Cells = npt.NDArray[np.float32]

AROUND = 0.25  # margin around the box, as a share of its sides; at least MARGIN pixels
MARGIN = 8.0
CELLS = 12  # along the longer side of the region
LEAST_CELL = 4.0  # pixels of its side: noise of 12 levels is one of 3 in the mean
OVERVIEW, SAMPLES = 48, 6.0  # cells along the picture, pixels along a cell, for the gain
FULL = 255.0
DARK, BRIGHT = 12.0, 250.0  # levels; darker and brighter cells tell no gain
MOST_GAIN = 2.0
DIFFERS = 18.0  # levels of 255 by which a cell's mean differs where something else is seen
SHARE = 0.06  # of the cells that may differ
BINS = 8  # of each channel, for the colours of an object
ALIKE = 0.4  # Bhattacharyya distance of two objects' colours, 0 (the same) to 1


def unchanged(before: Rgb, after: Rgb, box: Box) -> bool:
    """Whether the region of a box looks the same in two images, uint8 RGB (H, W, 3)."""
    if before.shape != after.shape:
        return False
    height, width = before.shape[:2]
    across, down = (max(MARGIN, AROUND * side) for side in (box.width, box.height))
    region = box.grown(across, down).clipped(width, height)
    longest = max(region.width, region.height)
    cell = max(longest / CELLS, LEAST_CELL)
    old, new = _lit(_cut(before, region), _gain(before, after)), _cut(after, region)
    differs = np.abs(_cells(new, cell) - _cells(old, cell)).max(axis=2) > DIFFERS
    return float(differs.mean()) <= SHARE


def alike(before: Rgb, box_before: Box, after: Rgb, box_after: Box) -> bool:
    """Whether two boxes, each of its own image, show a thing of the same colours."""
    old = _lit(_cut(before, box_before), _gain(before, after))
    new = _cut(after, box_after)
    distance = cv2.compareHist(_colors(old), _colors(new), cv2.HISTCMP_BHATTACHARYYA)
    return float(distance) <= ALIKE


def _cut(image: Rgb, box: Box) -> Rgb:
    """The pixels of a box, at least one."""
    height, width = image.shape[:2]
    left, right = (int(np.clip(x, 0, width - 1)) for x in (box.x_min, box.x_max))
    top, bottom = (int(np.clip(y, 0, height - 1)) for y in (box.y_min, box.y_max))
    return image[top : max(bottom, top + 1), left : max(right, left + 1)]


def _cells(pixels: Rgb, cell: float) -> Cells:
    """The mean of each cell, float32 (rows, columns, 3); cell: its side in pixels."""
    rows, columns = (max(1, round(side / cell)) for side in pixels.shape[:2])
    cells = cv2.resize(
        np.ascontiguousarray(pixels, np.float32), (columns, rows), interpolation=cv2.INTER_AREA
    )
    return np.asarray(cells, np.float32).reshape(rows, columns, 3)


def _lit(pixels: Rgb, gain: Cells) -> Rgb:
    """The pixels under the other image's exposure, which saturates them as well."""
    return np.clip(pixels * gain, 0, FULL).astype(np.uint8)


def _gain(before: Rgb, after: Rgb) -> Cells:
    """Return the gain of each channel, (3,): the median over the picture, from 1/2 to 2."""
    gains = np.ones(3, np.float32)
    if before.shape == after.shape:
        # Every so many pixels will do: the median is over many cells.
        step = max(1, round(max(before.shape[:2]) / (OVERVIEW * SAMPLES)))
        old, new = (_cells(image[::step, ::step], SAMPLES) for image in (before, after))
        for channel in range(3):
            tells = (old[..., channel] > DARK) & (new[..., channel] < BRIGHT)
            if tells.any():
                gains[channel] = np.median(new[tells, channel] / old[tells, channel])
    return np.clip(gains, 1 / MOST_GAIN, MOST_GAIN)


def _colors(pixels: Rgb) -> npt.NDArray[np.float32]:
    """The smoothed histogram of an object's colours (BINS, BINS, BINS), without the box's rim."""
    height, width = pixels.shape[:2]
    rows, columns = height // 8, width // 8
    inner = pixels[rows : height - rows, columns : width - columns]
    lab = cv2.cvtColor(cv2.blur(inner, (3, 3)), cv2.COLOR_RGB2LAB)
    bins = cv2.calcHist([lab], [0, 1, 2], None, [BINS] * 3, [0, 256, *[64, 192] * 2])
    for axis in range(3):  # a colour at the edge of a bin must not jump to the next one
        bins = np.apply_along_axis(np.convolve, axis, bins, (0.25, 0.5, 0.25), "same")
    return np.asarray(bins / max(float(bins.sum()), 1.0), np.float32)
