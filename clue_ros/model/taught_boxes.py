# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The box of a taught thing: a closer look at the place where its word scores best.

A word's score map knows where the thing is and not how far it reaches; the sides that were taught
fit as long as the thing is not turned. The box head (`clue_ros.model.box_head`) knows extents and
no words. It reads a square around the taught box, of twice its longer side. Its boxes that hold
the highest place, and the taught box, are each worth

    QUALITY log (head's score) + OVERLAP log (overlap with the map) + CONTRAST (mean of the map
    inside - mean around) - OFF_SIDES (log ratio of each side to a taught one, squared and summed)

and the best is the thing's. A model without a head keeps the taught box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.model.box_head import BoxMap, boxes_at, candidates, overlaps
from clue_ros.model.ranking import SAID
from clue_ros.model.word_memory import Word

if TYPE_CHECKING:
    from clue_ros.model.backbone import Array

# Chosen on rendered tables of thirty recurring objects, six pictures of which were taught, and on
# five photographs of a table, as they are and turned, scaled and relit.
QUALITY, OVERLAP, CONTRAST, OFF_SIDES = 1.0, 2.0, 4.0, 0.3
WIDER = 2.0  # sides of the square that is looked at, in the box's longer side
SIDE = 320  # pixels of the longer side at which it is read; 640 are no better
MOST = 10  # candidates of the head
RING = 0.25  # of a box's sides: what is around it
LOW, HIGH = 0.1, 0.9  # scores that count as background and as the thing
EDGE = 0.5  # score between an object and what is around it
SCALES = (0.7, 0.85, 1.0, 1.2, 1.4)  # of the taught sides that are tried
OFF_SIZE = 0.5  # cost of another size, for each side's log ratio squared
FINER = 2  # times the patches' resolution at which boxes are drawn
_LEAST_SHARE = 0.05  # added before logarithms

Boxes = npt.NDArray[np.float64]
Cells = npt.NDArray[np.intp]
Look = Callable[[Box, int], tuple[Box, BoxMap] | None]
"""`clue_ros.model.view.View.closer`."""


@dataclass(frozen=True)
class Sighting:
    """A place where a taught word may be.

    box: in pixels. score: about 0 for background and 1 for the object as it was shown.
    probability: that a thing of this word is in the box, 0..1. shots: examples of the word. point:
    the highest place, (x, y) in pixels.
    """

    word: Word
    box: Box
    score: float
    probability: float
    shots: int
    point: tuple[float, float]


@dataclass(frozen=True)
class ScoreMap:
    """A word's scores in a picture, (rows, columns), FINER than the patches.

    width, height: of the picture in pixels. Boxes (n, 4) are in pixels too.
    """

    values: Array
    width: int
    height: int

    @classmethod
    def of(cls, scores: Array, width: int, height: int) -> ScoreMap:
        """The map of the scores of a picture's patches."""
        fine = cv2.resize(scores, None, fx=FINER, fy=FINER, interpolation=cv2.INTER_CUBIC)
        return cls(np.asarray(fine, np.float32), width, height)

    @cached_property
    def total(self) -> Boxes:
        """The map's `cv2.integral`."""
        return np.asarray(cv2.integral(self.values), np.float64)

    def cells(self, boxes: Boxes) -> Cells:
        """Boxes in cells of the map, at least one each way."""
        size = np.array(self.values.shape[::-1])
        ends = boxes.reshape(-1, 2, 2) * (size / (self.width, self.height))
        first = np.rint(ends[:, 0]).clip(0, size - 1)
        last = np.maximum(np.rint(ends[:, 1]).clip(0, size), first + 1)
        return np.concatenate([first, last], 1).astype(np.intp)

    def contrasts(self, boxes: Boxes) -> Boxes:
        """The mean score in each box minus that in a ring around it, (n,)."""
        ring = RING * _sides(boxes)
        inside = self.cells(boxes)
        whole = self.cells(boxes + np.concatenate([-ring, ring], 1))
        area, more = _areas(inside), _areas(whole) - _areas(inside)
        own = sums(self.total, inside)
        return np.asarray(own / area - (sums(self.total, whole) - own) / np.maximum(more, 1))

    def contrast(self, box: Box) -> float:
        """`contrasts` of one box."""
        return float(self.contrasts(np.array([box.as_tuple()]))[0])

    def highest(self, box: Box) -> float:
        """The highest score in a box."""
        ((x_min, y_min, x_max, y_max),) = self.cells(np.array([box.as_tuple()]))
        return float(self.values[y_min:y_max, x_min:x_max].max())

    def overlaps(self, boxes: Boxes, point: tuple[float, float], reach: float) -> Boxes:
        """The IoU of each box with what scores high within a reach of a point, in pixels: (n,)."""
        rows, columns = self.values.shape
        x = (np.arange(columns) + 0.5) / columns * self.width - point[0]
        y = (np.arange(rows) + 0.5) / rows * self.height - point[1]
        high = np.clip((self.values - LOW) / (HIGH - LOW), 0, 1)
        high *= np.hypot(x[None], y[:, None]) <= reach
        cells = self.cells(boxes)
        shared = sums(cv2.integral(high), cells)
        return np.asarray(shared / (_areas(cells) + float(high.sum()) - shared))


def closer(look: Look, seen: Sighting, scores: ScoreMap, also: Sequence[Box] = ()) -> Box:
    """The box of a sighting in pixels.

    look: at the picture. scores: of its word there. also: boxes that others say it has, worth SAID
    more.
    """
    boxes, quality = _looked_at(look, [seen.box, *also], seen.point, scores)
    taught = np.array([(e.box.width, e.box.height / e.aspect) for e in seen.word.examples])
    taught *= scores.width
    both = np.concatenate([taught, taught[:, ::-1]])  # upright or lying
    off = (np.log(_sides(boxes)[:, None] / both) ** 2).sum(2).min(1)
    reach = float(np.hypot(*taught.T).max())
    overlap, contrast = scores.overlaps(boxes, seen.point, reach), scores.contrasts(boxes)
    worth = (
        QUALITY * np.log(quality + _LEAST_SHARE)
        + OVERLAP * np.log(overlap + _LEAST_SHARE)
        + CONTRAST * contrast
        - OFF_SIDES * off
    )
    worth[1 : 1 + len(also)] += SAID
    best = int(worth.argmax())
    return Box(*map(float, boxes[best]))


def _looked_at(
    look: Look, known: Sequence[Box], place: tuple[float, float], scores: ScoreMap
) -> tuple[Boxes, Boxes]:
    """Boxes (n, 4) in pixels that hold a place, and the head's scores of them (n,).

    known: boxes that are rated too, the first ones; the look is around the first.
    """
    own = np.array([box.as_tuple() for box in known])
    half = max(known[0].width, known[0].height) * WIDER / 2
    x, y = known[0].center
    near = Box(x - half, y - half, x + half, y + half).clipped(scores.width, scores.height)
    looked = look(near, SIDE)
    if looked is None:
        return own, np.ones(len(own))
    part, found = looked
    corner, size = np.array(part.as_tuple()[:2]), np.array([part.width, part.height])
    point = (np.array(place) - corner) / size
    boxes, quality = candidates(found, MOST)
    held = ((boxes[:, :2] <= point) & (boxes[:, 2:] > point)).all(1)
    there, score = boxes_at(found, [(float(point[0]), float(point[1]))])
    quality = np.concatenate([score, quality[held]])
    boxes = np.concatenate([there, boxes[held]]) * np.tile(size, 2) + np.tile(corner, 2)
    alike = [(quality * overlaps(boxes, box)).max() for box in own]  # as those that resemble it
    return np.concatenate([own, boxes]), np.array([*alike, *quality], np.float64)


def _sides(boxes: Boxes) -> Boxes:
    return np.maximum(boxes[:, 2:] - boxes[:, :2], 1.0)


def _areas(cells: Cells) -> Cells:
    return np.asarray((cells[:, 2:] - cells[:, :2]).prod(1))


def sums(total: Boxes, cells: Cells) -> Boxes:
    """The sums of a map in n boxes of cells, (n,). total: its `cv2.integral`."""
    x_min, y_min, x_max, y_max = cells.T
    both = total[y_max, x_max] + total[y_min, x_min]
    return np.asarray(both - total[y_min, x_max] - total[y_max, x_min])


def taught_box(
    total: npt.NDArray[np.float64],
    top: tuple[int, int],
    sizes: Sequence[tuple[float, float]],
) -> tuple[int, int, int, int]:
    """The box (x, y, width, height in cells) around a place with the highest sum of scores.

    total: `cv2.integral` of the scores above EDGE. sizes: the taught width and height in cells,
    upright and lying.
    """
    rows, columns = (side - 1 for side in total.shape)
    row, column = top
    best, found = -math.inf, (column, row, 1, 1)
    for (wide, high), across, down in product(sizes, SCALES, SCALES):
        w = min(max(1, round(wide * across)), columns)
        h = min(max(1, round(high * down)), rows)
        xs, ys = _starts(column, w, columns), _starts(row, h, rows)
        below, above = total[ys + h], total[ys]
        sums = below[:, xs + w] - above[:, xs + w] - below[:, xs] + above[:, xs]
        place = int(sums.argmax())
        off = math.log(across) ** 2 + math.log(down) ** 2
        value = float(sums.ravel()[place]) / (wide * high) - OFF_SIZE * off
        if value > best:
            best = value
            found = int(xs[place % len(xs)]), int(ys[place // len(xs)]), w, h
    return found


def _starts(place: int, length: int, count: int) -> npt.NDArray[np.intp]:
    """Where spans of a length may begin that have a place in their middle."""
    first = max(0, min(place - int(0.8 * length), count - length))
    last = max(first, min(place - int(0.2 * length), count - length))
    return np.arange(first, last + 1)
