# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Finds taught words (`clue_ros.model.word_memory`) in a picture, on frozen patch features.

A word's classifier is fitted in closed form, as soon as an example is there. With the mean m of an
example's patches, and the mean u and the covariance S of all patches that were ever stored, its
direction is (S + RIDGE I)^-1 (m - u): linear discriminant analysis with a shrunk covariance, which
is ridge regression on the classes' means (Hastie, Tibshirani and Friedman, 2009, section 4.3;
Hariharan and others, 2012, for objects in pictures). The words' own means are among what S is of:
each is a negative of all others, and its own only shortens its direction. A word has the mean of
its examples' directions, scaled so that u scores 0 and the examples' mean 1. All words share S, so
one product of matrices scores them all.

The frozen features are those of a convolutional stem at the picture's own aspect, or a vision
tower's tokens where a model has no stem.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import SAME_BOX, Box
from clue_ros.errors import BadBoxError
from clue_ros.model.details import fine_side, fine_stages
from clue_ros.model.taught_boxes import EDGE, ScoreMap, Sighting, taught_box
from clue_ros.model.word_memory import (
    Example,
    Word,
    WordMemory,
    all_examples,
    packed,
    unpacked,
)

if TYPE_CHECKING:
    from clue_ros.model.backbone import Array

# Chosen on rendered scenes of world "table" (`clue data tabletop`) and on five photographs.
RIDGE = 0.02
FINER_LESS = 0.5  # weight of the finest map beside the others
COLOR = 1.0  # weight of a patch's colour beside its features
OTHERS = 0.5  # weight of the other words' means beside all that lies around
INNER = 0.3  # of a box's sides, left out at its edges: the patches there are half background
MOST_INSIDE, MOST_AROUND = 16, 40  # patches that an example keeps
WINDOW = 0.6  # of the object's sides, over which scores are averaged
MOST_FOUND = 4  # things of one word in a picture
MOST_IN_BOX = 3  # words that are looked for in a box
THUMBNAIL = 96  # pixels of its longer side
MARGIN = 0.2  # of the box's sides, shown around it in a thumbnail


@dataclass(frozen=True)
class Patches:
    """A picture's frozen features: values (rows, columns, C), each of unit length.

    width, height: of the picture in pixels.
    """

    values: Array
    width: int
    height: int

    def cells(self, box: Box, *, shrink: float = 0.0, grow: int = 0) -> tuple[slice, slice]:
        """Rows and columns that a box (pixels) touches, at least one of each.

        shrink: share of its sides left out. grow: patches more on each side.
        """
        rows, columns, _ = self.values.shape
        inner = box.grown(-box.width * shrink / 2, -box.height * shrink / 2)
        x, y = columns / self.width, rows / self.height

        def span(low: float, high: float, count: int) -> slice:
            first = min(max(int(low), 0), count - 1)
            return slice(max(0, first - grow), min(count, max(first, int(high)) + 1 + grow))

        return span(inner.y_min * y, inner.y_max * y, rows), span(
            inner.x_min * x, inner.x_max * x, columns
        )


def patches_of(
    image: npt.NDArray[np.uint8],
    sizes: Mapping[str, Any] | None,
    stages: Callable[[int, tuple[int, ...]], list[Array]],
    features: Array,
) -> Patches:
    """The frozen features of an image (H, W, 3).

    sizes: of the model's stem, whose stages `View.stages` gives; None: it has none, and the vision
    tower's features (1, N, D) of the image are taken.
    """
    if sizes is None:
        side = math.isqrt(features.shape[1])
        tokens = features[0].reshape(side, side, -1)
        return _with_colors(_unit(tokens.astype(np.float32)), image)
    maps = stages(fine_side(sizes), fine_stages(sizes))
    middle = min(1, len(maps) - 1)  # the resolution of the features: stride 16
    size = maps[middle].shape[2:0:-1]
    parts = []
    for place, found in enumerate(maps):
        level = found.transpose(1, 2, 0)
        if place != middle:
            how = cv2.INTER_AREA if place < middle else cv2.INTER_LINEAR
            planes = [cv2.resize(plane, size, interpolation=how) for plane in found]
            level = np.stack(planes, -1)
        parts.append(_unit(level) * np.float32(FINER_LESS if place < middle else 1))
    return _with_colors(_unit(np.concatenate(parts, -1)), image)


def _with_colors(values: Array, image: npt.NDArray[np.uint8]) -> Patches:
    """Features (rows, columns, C), and each patch's mean colour, which they hardly tell."""
    rows, columns, _ = values.shape
    means = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA)
    colors = cv2.cvtColor(means.astype(np.float32) / 255, cv2.COLOR_RGB2Lab) / np.float32(100)
    colors[..., 0] -= np.float32(0.5)
    whole = _unit(np.concatenate([values, colors * np.float32(COLOR)], -1))
    return Patches(whole, image.shape[1], image.shape[0])


def make_example(
    patches: Patches, image: npt.NDArray[np.uint8], box: Box, who: str = ""
) -> Example:
    """An example of the object in a box (pixels) of a picture (H, W, 3), shown now.

    Raises BadBoxError for a box that is empty or not inside the picture.
    """
    width, height = patches.width, patches.height
    sides = box.as_list()
    whole = all(map(math.isfinite, sides)) and box.x_min < box.x_max and box.y_min < box.y_max
    if not whole:
        raise BadBoxError(f"the box {_spelled(box)} is empty: want x_min < x_max and y_min < y_max")
    if min(box.x_min, box.y_min) < -0.5 or box.x_max > width + 0.5 or box.y_max > height + 0.5:
        raise BadBoxError(
            f"the box {_spelled(box)} is not inside the picture, which has {width}x{height} pixels"
        )
    box = box.clipped(width, height)
    if min(box.width, box.height) < 2:
        raise BadBoxError(f"the box {_spelled(box)} is less than 2 pixels wide or high")
    picture = digest_of(image)
    channels = patches.values.shape[2]
    inside = patches.values[patches.cells(box, shrink=INNER)].reshape(-1, channels)
    inside = inside[np.linspace(0, len(inside) - 1, min(len(inside), MOST_INSIDE)).astype(int)]
    away = np.ones(patches.values.shape[:2], np.bool_)
    away[patches.cells(box, grow=1)] = False
    around = patches.values[away]
    chosen = np.random.default_rng(int(picture, 16)).permutation(len(around))[:MOST_AROUND]
    return Example(
        box.in_fractions(width, height),
        width / height,
        packed(inside),
        packed(around[chosen]),
        picture,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        who,
        _thumbnail(image, box),
    )


def digest_of(image: npt.NDArray[np.uint8]) -> str:
    """The start of the SHA-256 of a picture's pixels, which an example keeps."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()[:16]


def _thumbnail(image: npt.NDArray[np.uint8], box: Box) -> bytes:
    height, width = image.shape[:2]
    shown = box.grown(MARGIN * box.width, MARGIN * box.height).clipped(width, height)
    x0, y0, x1, y1 = (round(side) for side in shown.as_list())
    crop = image[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1), ::-1]
    scale = min(1.0, THUMBNAIL / max(crop.shape[:2]))
    size = max(1, round(crop.shape[1] * scale)), max(1, round(crop.shape[0] * scale))
    small = cv2.resize(np.ascontiguousarray(crop), size, interpolation=cv2.INTER_AREA)
    return bytes(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])[1])


def _spelled(box: Box) -> str:
    return "[" + ", ".join(f"{side:g}" for side in box.as_list()) + "]"


class Recogniser:
    """The classifiers of a memory's words as they are now."""

    def __init__(self, memory: WordMemory) -> None:
        self.words = tuple(memory.words.values())
        self.changes = memory.changes
        owners, examples = zip(*all_examples(self.words), strict=True)
        self._place = {word.name: place for place, word in enumerate(self.words)}
        means = np.stack([unpacked(example.inside).mean(0) for example in examples])
        stored = np.concatenate([unpacked(example.around) for example in examples])
        middle = stored.mean(0)
        centred = stored - middle
        covariance = centred.T @ centred / len(stored) + RIDGE * np.eye(len(middle))
        offsets = (means - middle).astype(np.float64)
        self._own = np.array(owners)
        count = len(self.words)
        shares = (self._own == np.arange(count)[:, None]) / np.bincount(self._own)[:, None]
        mean_offsets = shares @ offsets
        covariance += OTHERS / count * mean_offsets.T @ mean_offsets
        directions = np.linalg.solve(covariance, offsets.T).T
        summed = shares @ directions
        self._weights, self._bias = _scaled(summed, mean_offsets, middle)
        self._each, self._each_bias = _scaled(directions, offsets, middle)

    def scores_of(self, patches: Patches, words: Sequence[Word]) -> Array:
        """(words, rows, columns): about 0 for background, 1 for the object as it was shown."""
        rows, columns, channels = patches.values.shape
        own = [self._place[word.name] for word in words]
        found = patches.values.reshape(-1, channels) @ self._weights[own].T + self._bias[own]
        return np.ascontiguousarray(found.T.reshape(-1, rows, columns))

    def map_of(self, patches: Patches, word: Word) -> ScoreMap:
        """A word's scores in a picture, for its boxes."""
        (scores,) = self.scores_of(patches, [word])
        return ScoreMap.of(scores, patches.width, patches.height)

    def chance_in(self, patches: Patches, word: Word, box: Box) -> float:
        """Probability that a thing of a word is in a box (pixels), 0..1."""
        scores = self.map_of(patches, word)
        return probability_of(scores.highest(box), scores.contrast(box), len(word.examples))

    def likest(self, patches: Patches, word: Word, point: tuple[float, float]) -> Example:
        """The example of a word that a place (x, y) in pixels looks most like."""
        cells = patches.cells(Box(*point, *point), grow=1)
        seen = patches.values[cells].reshape(-1, patches.values.shape[2]).mean(0)
        own = np.flatnonzero(self._own == self._place[word.name])
        found = self._each[own] @ seen + self._each_bias[own]
        return word.examples[int(found.argmax())]

    def in_box(self, patches: Patches, box: Box) -> tuple[Sighting, ...]:
        """What the words that score best in a box (pixels) see there, the likeliest first."""
        seen = patches.values[patches.cells(box, shrink=INNER)]
        means = self._weights @ seen.reshape(-1, seen.shape[2]).mean(0) + self._bias
        best = [self.words[place] for place in np.argsort(-means)[:MOST_IN_BOX]]
        return tuple(s for s in self.find(patches, best) if s.box.iou(box) >= SAME_BOX)

    def find(self, patches: Patches, words: Sequence[Word]) -> tuple[Sighting, ...]:
        """Where these words may be in a picture, the likeliest first."""
        scores = self.scores_of(patches, words)
        found = [
            sighting
            for word, own in zip(words, scores, strict=True)
            for sighting in self._sightings(word, own, patches)
        ]
        return tuple(sorted(found, key=lambda sighting: -sighting.score))

    def _sightings(self, word: Word, scores: Array, patches: Patches) -> list[Sighting]:
        """The highest places of a word's score map, and the box at each that fits it best.

        A box has the sides of the example that the place looks most like, upright or lying
        (`clue_ros.model.taught_boxes.taught_box`).
        """
        seen = ScoreMap.of(scores, patches.width, patches.height)
        rows, columns = seen.values.shape
        x_scale, y_scale = patches.width / columns, patches.height / rows  # pixels a cell
        sides = [(e.box.width, e.box.height / e.aspect) for e in word.examples]
        mean = np.exp(np.log(sides).mean(0)) * patches.width
        window = (
            max(1, round(mean[0] / x_scale * WINDOW)),
            max(1, round(mean[1] / y_scale * WINDOW)),
        )
        left = cv2.blur(seen.values, window, borderType=cv2.BORDER_REFLECT)
        total = cv2.integral(seen.values - np.float32(EDGE))
        shots, found = len(word.examples), list[Sighting]()
        for _ in range(MOST_FOUND):
            row, column = divmod(int(left.argmax()), columns)
            score = float(left[row, column])
            if not math.isfinite(score):
                break
            point = (column + 0.5) * x_scale, (row + 0.5) * y_scale
            shown = self.likest(patches, word, point)
            w, h = shown.box.width * patches.width, shown.box.height / shown.aspect * patches.width
            sizes = [(w / x_scale, h / y_scale), (h / x_scale, w / y_scale)]
            x, y, across, down = taught_box(total, (row, column), sizes)
            box = Box(x * x_scale, y * y_scale, (x + across) * x_scale, (y + down) * y_scale)
            chance = probability_of(score, seen.contrast(box), shots)
            found.append(Sighting(word, box, score, chance, shots, point))
            reach_x, reach_y = 0.6 * w / x_scale, 0.6 * h / y_scale
            top, start = max(0, round(row - reach_y)), max(0, round(column - reach_x))
            left[top : round(row + reach_y) + 1, start : round(column + reach_x) + 1] = -np.inf
        return found


def _scaled(
    directions: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.float64],
    middle: npt.NDArray[np.float64],
) -> tuple[Array, Array]:
    """Weights and biases for which the middle scores 0, and the middle and an offset 1."""
    weights = directions / np.maximum((offsets * directions).sum(1, keepdims=True), 1e-9)
    return weights.astype(np.float32), -(weights @ middle).astype(np.float32)


# Logistic regression of "the box is right" (IoU of at least 0.5) in 461 searches on the pictures of
# `clue_ros.model.taught_boxes`: bias, weights of the score, of the contrast and of the logarithm of
# the number of examples, with which scores rise. 70 % of the weight is on things that are there,
# and photographs weigh as much as rendered tables.
BIAS, OF_SCORE, OF_CONTRAST, OF_SHOTS = -3.88, 5.43, 7.25, -0.93


def probability_of(score: float, contrast: float, shots: int) -> float:
    """Probability that a box holds a thing of the word, 0..1.

    score: at the highest place in it. contrast: of the box (`ScoreMap.contrast`). shots: examples.
    """
    odds = BIAS + OF_SCORE * score + OF_CONTRAST * contrast + OF_SHOTS * math.log(shots)
    return 1 / (1 + math.exp(-min(max(odds, -50.0), 50.0)))


def _unit(values: Array) -> Array:
    """Features (..., C) of length 1."""
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.asarray(values / np.maximum(lengths, 1e-6), np.float32)
