"""What one simulated picture holds: the image, and every object's kind, colour, box and mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

KINDS: tuple[str, ...] = ("block", "cylinder", "ball")
COLORS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "orange", "white")

Image: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SceneObject:
    """One visible object.

    kind, color: of its world (KINDS and COLORS are the default world's).
    box: (x_min, y_min, x_max, y_max) as fractions of the image's width and height, max exclusive.
    extent: its longest side, metres; 0 where the world does not say. visible: share of it that
    nothing hides, 0..1.
    """

    kind: str
    color: str
    box: tuple[float, float, float, float]
    extent: float = 0.0
    visible: float = 1.0

    @property
    def center(self) -> tuple[float, float]:
        """Centre of the box (x, y), fractions of the image's width and height."""
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2


@dataclass(frozen=True)
class Scene:
    """One picture with its truth.

    image: uint8 RGB (H, W, 3).
    objects: the visible objects, in no particular order.
    instances: uint8 (M, M), a square grid laid over the image: 0 is background, k is
    objects[k - 1].
    masks: the same at the picture's own size, uint8 (H, W); None where it was not kept.
    """

    image: Image
    objects: tuple[SceneObject, ...]
    instances: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8] | None = None

    def coverage(self, grid: int) -> npt.NDArray[np.float32]:
        """Share of each cell of a (grid, grid) raster that each of the n objects covers.

        float32 (n, grid, grid), 0..1; grid is at most the side of `instances`.
        """
        size = self.instances.shape[0]
        rows = np.arange(size) * grid // size
        counts = np.bincount(rows, minlength=grid).astype(np.float32)
        out = np.zeros((len(self.objects), grid, grid), dtype=np.float32)
        for k in range(len(self.objects)):
            mask = (self.instances == k + 1).astype(np.float32)
            by_row = np.add.reduceat(mask, np.searchsorted(rows, np.arange(grid)), axis=0)
            out[k] = np.add.reduceat(by_row, np.searchsorted(rows, np.arange(grid)), axis=1)
        return out / (counts[:, None] * counts[None, :])
