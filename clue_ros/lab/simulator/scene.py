"""A simulated picture with its ground truth: every object's kind, colour, box and mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Image: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SceneObject:
    """One visible object.

    kind, color: names of its world.
    box: (x_min, y_min, x_max, y_max) as fractions of the image's width and height, max exclusive.
    extent: its longest side, metres; 0 where the world does not record it.
    visible: fraction of the object that no other one hides, 0..1.
    names: other nouns that people use for it, its hypernyms among them; () where the world's nouns
    hold for the whole kind.
    colors: all its colours, `color` first; () where it has that one only.
    material: "ceramic", "wood", ...; "" where the world does not record it.
    parts: noun phrases of parts by which it is told apart, ("red lid",).
    """

    kind: str
    color: str
    box: tuple[float, float, float, float]
    extent: float = 0.0
    visible: float = 1.0
    names: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    material: str = ""
    parts: tuple[str, ...] = ()

    @property
    def center(self) -> tuple[float, float]:
        """Centre of the box (x, y), fractions of the image's width and height."""
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2


@dataclass(frozen=True)
class Scene:
    """One picture with its ground truth.

    image: uint8 RGB (H, W, 3).
    objects: the visible objects, in no particular order.
    instances: uint8 (M, M), a square grid over the whole image: 0 is background, k is
    objects[k - 1].
    masks: the same at the picture's own size, uint8 (H, W); None where it was not kept.
    features: a stem's frozen features of this picture, int8 (C, g, g)
    (`clue_ros.lab.training.stored`); None where they were not computed ahead.
    """

    image: Image
    objects: tuple[SceneObject, ...]
    instances: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8] | None = None
    features: npt.NDArray[np.int8] | None = None

    def coverage(self, grid: int) -> npt.NDArray[np.float32]:
        """Fraction of each cell of a (grid, grid) raster that each of the n objects covers.

        float32 (n, grid, grid), 0..1; grid is at most the side of `instances`.
        """
        if not self.objects:  # a photograph without known objects has no grid either
            return np.zeros((0, grid, grid), np.float32)
        rows = np.arange(len(self.instances)) * grid // len(self.instances)
        starts = np.searchsorted(rows, np.arange(grid))
        numbers = np.arange(1, len(self.objects) + 1)[:, None, None]
        masks = (self.instances == numbers).astype(np.float32)
        sums = np.add.reduceat(np.add.reduceat(masks, starts, axis=1), starts, axis=2)
        cells = np.bincount(rows, minlength=grid).astype(np.float32)
        return np.asarray(sums / (cells[:, None] * cells[None, :]), dtype=np.float32)
