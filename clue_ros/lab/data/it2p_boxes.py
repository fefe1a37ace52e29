"""Boxes and masks of IT2P's blocks, estimated from the colours around each annotated point.

The data set has points only. `it2p_scene` makes a photograph a scene like the simulator's, so
that every stage of training takes both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from clue_ros.dialogue.types import Box
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import It2pImage, Point, load_it2p
from clue_ros.lab.simulator.optics import instance_grid
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.worlds import BASIC_COLORS

_REACH = 30  # a block reaches at most this many pixels from its point along x and y (widest: 55 px)
_FALLBACK = 36.0  # side of the box where no plausible region is found, in pixels
_SEED = 6  # half side of the square around the point whose colours are the block's
_MIN_SIDE, _MAX_SIDE, _MIN_AREA = 22, 60, 450
_NEAR = 0.38  # share of the way from the table's colour to the block's at which the block begins


@dataclass(frozen=True)
class BlockRegion:
    """One block: box (x_min, y_min, x_max, y_max) in pixels, max exclusive; mask bool (H, W).

    estimated: False where the region was implausible and a fixed square is used instead.
    """

    box: tuple[float, float, float, float]
    mask: NDArray[np.bool_]
    estimated: bool


def block_boxes(image: NDArray[np.uint8], points: Sequence[Point]) -> list[BlockRegion]:
    """Box and mask of the block at each point, in the order of `points`.

    Args:
        image: uint8 RGB (H, W, 3), an IT2P photograph (250 x 250).
        points: (x, y) in pixels.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"expected a uint8 RGB image (H, W, 3), got {image.dtype} {image.shape}")
    if not points:
        return []
    smooth = cv2.medianBlur(np.ascontiguousarray(image), 3)
    scaled = smooth.astype(np.float32) / 255.0
    lab = np.asarray(cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB), np.float32)
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    owner = np.argmin([(columns - x) ** 2 + (rows - y) ** 2 for x, y in points], axis=0)
    return [_region(lab, owner == index, point) for index, point in enumerate(points)]


def _region(lab: NDArray[np.float32], owned: NDArray[np.bool_], point: Point) -> BlockRegion:
    """The region around a point. owned: the pixels that no other point is nearer to."""
    height, width = lab.shape[:2]
    x, y = round(point[0]), round(point[1])
    window = np.zeros((height, width), bool)
    window[max(0, y - _REACH) : y + _REACH + 1, max(0, x - _REACH) : x + _REACH + 1] = True
    seed = lab[max(0, y - _SEED) : y + _SEED + 1, max(0, x - _SEED) : x + _SEED + 1].reshape(-1, 3)
    if len(seed):
        # The blocks carry a dark cross in the middle: the brighter half of the seed is the face.
        face = np.median(seed[seed[:, 0] >= np.median(seed[:, 0])], axis=0)
        hull = _hull_around(_like(lab, face) & window & owned, x, y)
        if hull is not None:
            mask = np.zeros((height, width), np.uint8)
            cv2.fillConvexPoly(mask, hull, 1)
            left, top, wide, high = cv2.boundingRect(hull)
            sides_fit = min(wide, high) >= _MIN_SIDE and max(wide, high) <= _MAX_SIDE
            if sides_fit and mask.sum() >= _MIN_AREA:
                return BlockRegion((left, top, left + wide, top + high), mask.astype(bool), True)
    half = _FALLBACK / 2
    box = (
        max(0.0, point[0] - half),
        max(0.0, point[1] - half),
        min(float(width), point[0] + half),
        min(float(height), point[1] + half),
    )
    square = np.zeros((height, width), bool)
    square[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])] = True
    return BlockRegion(box, square, False)


def _like(lab: NDArray[np.float32], face: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Pixels between the table's colour and the block's: lit faces and shaded ones."""
    pixels = lab.reshape(-1, 3)
    # The table's colour is the median of the darkest half of the picture.
    table = np.median(pixels[pixels[:, 0] <= np.median(pixels[:, 0])], axis=0).astype(np.float32)
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


def it2p_scene(record: It2pImage) -> Scene:
    """The photograph as a scene of the simulator, with one object a block as in `record.blocks`.

    Boxes and masks are those of `block_boxes`. Raises ValueError when a block's colour is unknown
    (no command names it).
    """
    image = load_image(record.path)
    height, width = image.shape[:2]
    instances = np.zeros((height, width), dtype=np.uint8)
    objects: list[SceneObject] = []
    regions = block_boxes(image, [block.point for block in record.blocks])
    for block, region in zip(record.blocks, regions, strict=True):
        if block.color not in BASIC_COLORS:
            raise ValueError(f"{record.path}: the block at {block.point} has no known colour")
        instances[region.mask] = len(objects) + 1
        box = Box(*region.box).in_fractions(width, height).as_tuple()
        objects.append(SceneObject("block", block.color, box))
    return Scene(image, tuple(objects), instance_grid(instances))


def it2p_scenes(root: Path | None, split: str) -> tuple[list[Scene], list[It2pImage]]:
    """IT2P photographs of a split and their records; one with an unknown colour is left out."""
    records: list[It2pImage] = []
    scenes: list[Scene] = []
    if root is not None:
        for record in load_it2p(root).select(split):
            try:
                scenes.append(it2p_scene(record))
                records.append(record)
            except ValueError as error:
                print(f"left out: {error}", file=sys.stderr)
    return scenes, records
