"""Depth images of simple solids, by ray casting: the truth that the geometry's tests compare with.

Everything is in the camera's optical frame, in metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.nodes.pinhole import Array, Pinhole

CAMERA = Pinhole(640, 480, 600.0, 600.0, 319.5, 239.5)
Depth = npt.NDArray[np.float32]
FAR = 1e9


def table_axes(elevation: float) -> Array:
    """Axes (3, 3) in columns of a table seen from `elevation` degrees above it.

    x to the right, y away from the camera, z up.
    """
    e = np.deg2rad(elevation)
    up = np.array([0.0, -np.cos(e), -np.sin(e)])
    away = np.array([0.0, -np.sin(e), np.cos(e)])
    return np.stack([[1.0, 0.0, 0.0], away, up], axis=1)


def turned(axes: Array, degrees: float) -> Array:
    """Axes turned about their own z."""
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.asarray(axes @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]))


@dataclass(frozen=True)
class Block:
    """An oriented box."""

    middle: Array
    axes: Array
    size: Array

    def hit(self, rays: Array) -> Array:
        """Depth (...) at which rays (..., 3) from the camera meet it; FAR where they do not."""
        origin, along = -self.middle @ self.axes, rays @ self.axes
        with np.errstate(divide="ignore", invalid="ignore"):
            one, two = (-self.size / 2 - origin) / along, (self.size / 2 - origin) / along
        enter = np.nanmax(np.minimum(one, two), axis=-1)
        leave = np.nanmin(np.maximum(one, two), axis=-1)
        return np.where((enter < leave) & (enter > 0), enter, FAR)


@dataclass(frozen=True)
class Ball:
    """A sphere."""

    middle: Array
    radius: float

    def hit(self, rays: Array) -> Array:
        """As Block.hit."""
        a = (rays * rays).sum(-1)
        b = rays @ self.middle
        inside = b * b - a * (self.middle @ self.middle - self.radius**2)
        return np.where(inside > 0, (b - np.sqrt(np.maximum(inside, 0))) / a, FAR)


@dataclass(frozen=True)
class Sheet:
    """An endless plane through a point."""

    point: Array
    normal: Array

    def hit(self, rays: Array) -> Array:
        """As Block.hit."""
        with np.errstate(divide="ignore"):
            depth = (self.point @ self.normal) / (rays @ self.normal)
        return np.where(depth > 0, depth, FAR)


Solid = Block | Ball | Sheet


@dataclass(frozen=True)
class Scene:
    """What the camera sees.

    depth: float32 (H, W), NaN where nothing is. shown: int (H, W), index of the solid, -1 for none.
    """

    depth: Depth
    shown: npt.NDArray[np.int64]

    def box(self, solid: int, grow: float = 0.0) -> Box:
        """The box around what is seen of a solid, grown by that part of it on each side."""
        ys, xs = np.nonzero(self.shown == solid)
        x, y = grow * (np.ptp(xs) + 1), grow * (np.ptp(ys) + 1)
        return Box(xs.min() - x, ys.min() - y, xs.max() + 1 + x, ys.max() + 1 + y)


def scene(*solids: Solid, camera: Pinhole = CAMERA) -> Scene:
    """Draw solids."""
    x, y = np.meshgrid(np.arange(camera.width, dtype=float), np.arange(camera.height, dtype=float))
    rays = camera.rays(x, y)
    hits = np.stack([solid.hit(rays) for solid in solids])
    depth = hits.min(0)
    seen = depth < 100.0
    return Scene(
        np.where(seen, depth, np.nan).astype(np.float32), np.where(seen, hits.argmin(0), -1)
    )


def on_table(
    elevation: float,
    size: tuple[float, float, float],
    turn: float = 0.0,
    x: float = 0.0,
    y: float = 0.0,
    distance: float = 0.8,
) -> tuple[Block, Sheet]:
    """A block that stands on a table, `x` to the right of where the camera looks and `y` behind."""
    axes = table_axes(elevation)
    point = np.array([0.0, 0.0, distance]) + axes @ np.array([x, y, 0.0])
    table = Sheet(np.array([0.0, 0.0, distance]), axes[:, 2])
    return Block(point + axes[:, 2] * size[2] / 2, turned(axes, turn), np.array(size)), table
