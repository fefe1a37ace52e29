# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Object masks from an RGB image and a box: GrabCut, with the attention map as a prior.

GrabCut (Rother, Kolmogorov and Blake 2004; OpenCV's implementation) separates the colours inside a
box from those around it. For a grounding the box alone is given: it is tight, and the map adds
nothing (`clue eval masks`). For a candidate of a question, which has no box but a peak of the
attention map (equation 2), the map is the prior: its top is object, its low part probably
background.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Peak

Mask = npt.NDArray[np.bool_]

# Chosen on 60 simulated validation scenes with `clue eval masks --world rich --split val`.
SIDE = 128  # pixels of the longer side of the crop that GrabCut works on; bounds its time
MARGIN = 0.15  # of the box's sides, around the box: the pixels that show the background
ITERATIONS = 2
LOW, HIGH = 0.25, 0.9  # of the map's maximum in the box: probably background; certainly object
GROWTH = 0.15  # of a peak's box, on each side: peaks are narrower than their objects
LEAST = 0.05  # of the box's pixels; a smaller result is a failure, and the box is the mask


def box_mask(box: Box, width: int, height: int) -> Mask:
    """The pixels of a (height, width) image whose centres lie in the box, one pixel at least."""
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[box_slices(box, width, height)] = True
    return mask


def box_slices(box: Box, width: int, height: int) -> tuple[slice, slice]:
    """The rows and columns of the pixels whose centres lie in the box, one of each at least."""
    return _span(box.y_min, box.y_max, height), _span(box.x_min, box.x_max, width)


def grabcut_mask(
    image: npt.NDArray[np.uint8],
    box: Box,
    attention: npt.NDArray[np.float32] | None = None,
) -> Mask:
    """The object in a box, bool (H, W) of the uint8 RGB image (H, W, 3).

    attention: the map (g, g) in 0..1 of the words that mean the object; None: colours alone decide.
    The result lies inside the box and is connected. Where GrabCut finds nothing, or the box has no
    surroundings to learn the background from, it is the whole box. The same input gives the same
    mask.
    """
    height, width = image.shape[:2]
    filled = box_mask(box, width, height)
    rows, columns = box_slices(box, width, height)
    down, across = (round(MARGIN * (part.stop - part.start)) + 2 for part in (rows, columns))
    top, bottom = max(0, rows.start - down), min(height, rows.stop + down)
    left, right = max(0, columns.start - across), min(width, columns.stop + across)
    crop = image[top:bottom, left:right]
    scale = min(1.0, SIDE / max(crop.shape[:2]))
    size = (max(1, round(crop.shape[1] * scale)), max(1, round(crop.shape[0] * scale)))
    inside = cv2.resize(filled[top:bottom, left:right].astype(np.uint8), size) > 0
    if inside.all() or np.count_nonzero(inside) < 4:
        return filled
    labels = np.full(inside.shape, cv2.GC_BGD, dtype=np.uint8)
    labels[inside] = cv2.GC_PR_FGD
    if attention is not None:
        heat = _heat(attention, (left, top, right, bottom), (width, height), size)
        most = float(heat[inside].max())
        if most > 0:
            labels[inside & (heat < LOW * most)] = cv2.GC_PR_BGD
            labels[inside & (heat >= HIGH * most)] = cv2.GC_FGD
    small = np.asarray(cv2.resize(crop, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    found = _grabcut(small, labels) & inside
    found = _main_part(found, inside)
    if np.count_nonzero(found) < LEAST * np.count_nonzero(inside):
        return filled
    whole = np.zeros_like(filled)
    back = (crop.shape[1], crop.shape[0])
    whole[top:bottom, left:right] = cv2.resize(found.astype(np.float32), back) >= 0.5
    whole &= filled
    return whole if whole.any() else filled


def peak_object_mask(
    image: npt.NDArray[np.uint8], peak: Peak, attention: npt.NDArray[np.float32]
) -> Mask:
    """The object under a peak of the map, bool (H, W): GrabCut around the peak, map as prior."""
    height, width = image.shape[:2]
    box = peak.box
    around = box.grown(GROWTH * box.width, GROWTH * box.height).clipped(float(width), float(height))
    return grabcut_mask(image, around, attention)


def _grabcut(image: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Mask:
    """OpenCV's GrabCut from these labels; nothing where it fails."""
    models = np.zeros((2, 1, 65), dtype=np.float64)
    cv2.setRNGSeed(0)  # its k-means starts at random
    try:
        cv2.grabCut(
            np.ascontiguousarray(image[..., ::-1]),
            labels,
            (0, 0, 0, 0),  # not used: the labels say where the object is
            models[0],
            models[1],
            ITERATIONS,
            cv2.GC_INIT_WITH_MASK,
        )
    except cv2.error:  # too few pixels of one kind
        return np.zeros(labels.shape, dtype=np.bool_)
    return np.asarray((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD), dtype=np.bool_)


def _main_part(mask: Mask, inside: Mask) -> Mask:
    """The largest connected part of a mask, with its holes filled."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    if count < 2:
        return mask
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    part = (labels == largest).astype(np.uint8)
    contours, _ = cv2.findContours(part, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(part, contours, -1, 1, cv2.FILLED)
    return np.asarray((part > 0) & inside, dtype=np.bool_)


def _heat(
    attention: npt.NDArray[np.float32],
    window: tuple[int, int, int, int],
    image_size: tuple[int, int],
    size: tuple[int, int],
) -> npt.NDArray[np.float32]:
    """The map in a window (left, top, right, bottom) of the image, at `size` (width, height)."""
    left, top, right, bottom = window
    rows, columns = attention.shape
    x = left + (np.arange(size[0]) + 0.5) * (right - left) / size[0]
    y = top + (np.arange(size[1]) + 0.5) * (bottom - top) / size[1]
    grid: Any = np.meshgrid(x / image_size[0] * columns - 0.5, y / image_size[1] * rows - 0.5)
    at_x, at_y = (part.astype(np.float32) for part in grid)
    heat = cv2.remap(
        np.ascontiguousarray(attention, dtype=np.float32), at_x, at_y, cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )  # fmt: skip
    return np.asarray(heat, dtype=np.float32)


def _span(low: float, high: float, size: int) -> slice:
    """The pixels whose centres lie between two sides, one at least, cut to the image."""
    start = min(size - 1, max(0, round(low)))
    return slice(start, max(start + 1, min(size, round(high))))
