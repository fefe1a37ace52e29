"""Tabletop scenes drawn with plain rectangles and discs, for tests that need no renderer."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.worlds import BASIC_COLORS

RGB: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (230, 210, 40),
    "purple": (120, 50, 150),
    "orange": (240, 130, 20),
    "white": (240, 240, 240),
    "pink": (250, 120, 190),  # and others that the world blocks lacks
    "gray": (120, 120, 120),
}
TABLE = (70, 60, 55)

Pixels = tuple[int, int, int, int]  # x_min, y_min, x_max, y_max, max exclusive


def draw_scene(
    size: int, things: Sequence[tuple[str, str, Pixels]], *, mask: int | None = None
) -> Scene:
    """A picture of (kind, colour, box in pixels), blocks as rectangles and the rest as ellipses.

    mask: side of the instance grid; that of the picture where it is not given.
    """
    image = np.full((size, size, 3), TABLE, dtype=np.uint8)
    full = np.zeros((size, size), dtype=np.uint8)
    objects = []
    for number, (kind, color, (x0, y0, x1, y1)) in enumerate(things, start=1):
        shape = np.zeros((y1 - y0, x1 - x0), dtype=np.uint8)
        if kind == "block":
            shape[:] = 1
        else:
            ys, xs = np.mgrid[0 : y1 - y0, 0 : x1 - x0]
            radius_y, radius_x = (y1 - y0) / 2, (x1 - x0) / 2
            shape[
                ((ys + 0.5 - radius_y) / radius_y) ** 2 + ((xs + 0.5 - radius_x) / radius_x) ** 2
                <= 1
            ] = 1
        inside = shape > 0
        image[y0:y1, x0:x1][inside] = RGB[color]
        full[y0:y1, x0:x1][inside] = number
        box = (x0 / size, y0 / size, x1 / size, y1 / size)
        objects.append(SceneObject(kind, color, box))
    side = size if mask is None else mask
    small = cv2.resize(full, (side, side), interpolation=cv2.INTER_NEAREST)
    return Scene(image, tuple(objects), np.asarray(small, dtype=np.uint8))


def random_scenes(
    count: int, seed: int, *, size: int = 64, colors: Sequence[str] = tuple(BASIC_COLORS)
) -> list[Scene]:
    """Two to four blocks and balls a scene, in different corners, well inside the picture."""
    rng = np.random.default_rng(seed)
    return [_random_scene(rng, size, colors) for _ in range(count)]


def _random_scene(rng: np.random.Generator, size: int, colors: Sequence[str]) -> Scene:
    quarter = size // 2
    corners = [(x, y) for x in (0, quarter) for y in (0, quarter)]
    chosen: npt.NDArray[np.int64] = rng.permutation(4)[: int(rng.integers(2, 5))]
    things: list[tuple[str, str, Pixels]] = []
    for corner in chosen:
        side = int(rng.integers(size // 6, size // 4))
        x, y = (v + int(rng.integers(2, quarter - side - 1)) for v in corners[int(corner)])
        kind = ("block", "ball")[int(rng.integers(2))]
        things.append((kind, str(rng.choice(list(colors))), (x, y, x + side, y + side)))
    return draw_scene(size, things, mask=56)
