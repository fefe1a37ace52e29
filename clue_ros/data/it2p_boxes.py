"""Boxes and masks of IT2P's blocks, estimated from the photograph around each annotated point.

IT2P annotates one point a block. Training wants boxes and masks, so the region around each point
that has the block's colour and not the table's is grown, each pixel going to the nearest annotated
point (which parts touching blocks). This is an estimate for training targets; of all measurements
only `clue eval localisation` is held against it, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from clue_ros.data.it2p_targets import Point

REACH = 30
"""A block reaches at most this many pixels from its point along x and y (widest seen: 55 px)."""
FALLBACK = 36.0
"""Side of the box used where no plausible region is found, in pixels."""

_SEED = 6  # half side of the square around the point whose colours are the block's
_MIN_SIDE, _MAX_SIDE, _MIN_AREA = 22, 60, 450
_NEAR = 0.38  # share of the way from the table's colour to the block's at which the block begins


@dataclass(frozen=True)
class BlockRegion:
    """One block: box (x_min, y_min, x_max, y_max) in pixels, max exclusive; mask bool (H, W).

    ``estimated`` is False where the region was implausible and a fixed square stands in.
    """

    box: tuple[float, float, float, float]
    mask: NDArray[np.bool_]
    estimated: bool


def block_boxes(image: NDArray[np.uint8], points: Sequence[Point]) -> list[BlockRegion]:
    """Box and mask of the block at each point, in the order of ``points``.

    Args:
        image: uint8 RGB (H, W, 3), an IT2P photograph (250 x 250).
        points: (x, y) in pixels.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"expected a uint8 RGB image (H, W, 3), got {image.dtype} {image.shape}")
    smooth = cv2.medianBlur(np.ascontiguousarray(image), 3)
    scaled = smooth.astype(np.float32) / 255.0
    lab = np.asarray(cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB), np.float32)
    owner = _nearest_point(image.shape[:2], points)
    return [_region(lab, owner == index, point) for index, point in enumerate(points)]


def _nearest_point(shape: tuple[int, ...], points: Sequence[Point]) -> NDArray[np.int64]:
    """Index of the nearest point for every pixel, (H, W)."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    gaps = [(columns - x) ** 2 + (rows - y) ** 2 for x, y in points]
    return np.argmin(np.stack(gaps), axis=0) if gaps else np.zeros(shape, np.int64)


def _region(lab: NDArray[np.float32], mine: NDArray[np.bool_], point: Point) -> BlockRegion:
    height, width = lab.shape[:2]
    x, y = round(point[0]), round(point[1])
    window = np.zeros((height, width), bool)
    window[max(0, y - REACH) : y + REACH + 1, max(0, x - REACH) : x + REACH + 1] = True
    seed = lab[max(0, y - _SEED) : y + _SEED + 1, max(0, x - _SEED) : x + _SEED + 1].reshape(-1, 3)
    if len(seed) == 0:
        return _fallback(point, height, width)
    # The blocks carry a dark cross in the middle: the brighter half of the seed is the face.
    face = np.median(seed[seed[:, 0] >= np.median(seed[:, 0])], axis=0)
    near = _like(lab, face, _table(lab)) & window & mine
    hull = _hull_around(near, x, y)
    if hull is None:
        return _fallback(point, height, width)
    mask = np.zeros((height, width), np.uint8)
    cv2.fillConvexPoly(mask, hull, 1)
    left, top, wide, high = cv2.boundingRect(hull)
    plausible = (
        min(wide, high) >= _MIN_SIDE and max(wide, high) <= _MAX_SIDE and mask.sum() >= _MIN_AREA
    )
    if not plausible:
        return _fallback(point, height, width)
    return BlockRegion((left, top, left + wide, top + high), mask.astype(bool), True)


def _table(lab: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lab colour of the table: the median of the darkest half of the picture."""
    pixels = lab.reshape(-1, 3)
    dark = pixels[pixels[:, 0] <= np.median(pixels[:, 0])]
    return np.asarray(np.median(dark, axis=0), np.float32)


def _like(
    lab: NDArray[np.float32], face: NDArray[np.float32], table: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Pixels on the way from the table's colour to the block's: lit faces and shaded ones."""
    # Hue tells a dark block from the table better than lightness does.
    weight = np.array([1.0, 2.0, 2.0], np.float32)
    axis = (face - table) * weight
    offset = (lab - table) * weight
    length = float(np.linalg.norm(axis)) + 1e-6
    along = offset @ (axis / length)
    across = np.linalg.norm(offset - along[..., None] * (axis / length), axis=-1)
    return np.asarray((along > _NEAR * length) & (across < 0.55 * np.maximum(along, length * 0.6)))


def _hull_around(near: NDArray[np.bool_], x: int, y: int) -> NDArray[np.int32] | None:
    """Convex hull of the connected region at (x, y), thin whiskers removed, or None."""
    kernel = np.ones((5, 5), np.uint8)
    closed = cv2.morphologyEx(near.astype(np.uint8), cv2.MORPH_CLOSE, kernel)
    solid = cv2.morphologyEx(closed, cv2.MORPH_OPEN, kernel)
    _, labels = cv2.connectedComponents(solid, connectivity=4)
    here = labels[max(0, y - 5) : y + 6, max(0, x - 5) : x + 6]
    here = here[here > 0]
    if here.size == 0:
        return None
    rows, columns = np.nonzero(labels == np.bincount(here).argmax())
    points = np.stack([columns, rows], axis=1).astype(np.int32)
    return np.asarray(cv2.convexHull(points), np.int32)


def _fallback(point: Point, height: int, width: int) -> BlockRegion:
    half = FALLBACK / 2
    box = (
        max(0.0, point[0] - half),
        max(0.0, point[1] - half),
        min(float(width), point[0] + half),
        min(float(height), point[1] + half),
    )
    mask = np.zeros((height, width), bool)
    mask[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])] = True
    return BlockRegion(box, mask, False)
