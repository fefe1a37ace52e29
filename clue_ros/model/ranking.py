# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The box that words mean: the decoder's own, or one that the box head proposes.

The decoder points well and misjudges extents; the head knows extents and no words. So each
candidate of the head, and each box that the decoder said, is worth

    sum over views (log decoder's score) + QUALITY log (head's score) + SHARE log (share of the map)

and one that the decoder said SAID more, as its sides are finer. The decoder rates a candidate as if
it had said it (`decoding.rate_boxes`); the map is equation 2's. The best one is the answer, and
`BoxScore` makes its evidence a probability. Where the decoder leaves no doubt the head is not
asked: on simulated validation scenes and on photographs it makes no such box better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import ModelError
from clue_ros.model.box_head import BoxMap, candidates, overlaps
from clue_ros.model.loading import is_number, read_settings

# Chosen on five photographs (docs/training-details.md) and on simulated validation scenes.
QUALITY, SHARE = 1.0, 2.0  # weights of the head's score and of the map's share in a box
SAID = 1.0  # what a box of the decoder's own is worth more
RATED = 6  # candidates that the decoder rates; more change nothing on photographs
NOT_SHOWN = float(np.log(1e-3))  # rating of a box that a view does not show
SURE_QUALITY = -0.35
"""Quality in the evidence of a box that the decoder was sure of, so that the head was not asked:
the median of what it says of such boxes on photographs and on simulated validation scenes."""
_LEAST = 1e-3  # added before logarithms

SETTINGS_FILE = "box_head.json"

Array = npt.NDArray[np.float32]


class Evidence(NamedTuple):
    """The evidence for a box, logarithms: the decoder's mean score, the head's, the map's share."""

    rating: float
    quality: float
    share: float


@dataclass(frozen=True)
class BoxScore:
    """Weights of `Evidence` and what is added: log odds that a box is right and was to be shown.

    `clue train score` fits them on photographs.
    """

    bias: float
    rating: float
    quality: float
    share: float

    def of(self, evidence: Evidence) -> float:
        """The probability, 0..1.

        >>> BoxScore(1.0, 2.0, 0.0, 0.0).of(Evidence(-0.5, -9.0, -9.0))
        0.5
        """
        weights = self.rating, self.quality, self.share
        odds = self.bias + sum(w * e for w, e in zip(weights, evidence, strict=True))
        return 1 / (1 + math.exp(-min(max(odds, -30.0), 30.0)))


@dataclass(frozen=True)
class Shortlist:
    """n boxes that may be meant, in fractions of the picture; logarithms (n,) as in `Evidence`.

    said: how many of them, the first ones, the decoder said.
    """

    boxes: list[Box]
    said: int
    quality: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]

    @property
    def worth(self) -> npt.NDArray[np.float64]:
        """The worth of each box before the decoder rates it, (n,)."""
        own = SAID * (np.arange(len(self.boxes)) < self.said)
        return np.asarray(QUALITY * self.quality + SHARE * self.share + own, np.float64)

    def best(self, rated: npt.NDArray[np.float64]) -> tuple[int, Evidence]:
        """The place of the best one, and what speaks for it. rated: (V, n), of V views."""
        at = int((self.worth + rated.sum(0)).argmax())
        evidence = rated[:, at].mean(), self.quality[at], self.share[at]
        return at, Evidence(*map(float, evidence))


def shortlist(found: BoxMap, attention: Array, own: Sequence[Box]) -> Shortlist:
    """Boxes that may be meant, `own` first.

    found: of the box head. attention: the map (g, g) in 0..1. own: what the decoder said, one box
    at least, in fractions of the picture.
    """
    said = np.array([box.as_tuple() for box in own], np.float64)
    boxes, scores = candidates(found)
    quality = np.zeros(len(said))
    if len(boxes):  # the decoder's boxes are as good as the head's that resemble them
        quality = np.max([scores * overlaps(boxes, box) for box in said], 1)
    every = np.concatenate([said, boxes])
    whole = Shortlist(
        [Box(*map(float, box)) for box in every],
        len(said),
        np.log(np.concatenate([quality, scores]) + _LEAST),
        np.log(shares(attention, every) + _LEAST),
    )
    best = np.argsort(-whole.worth[len(said) :], kind="stable")[:RATED] + len(said)
    kept = [*range(len(said)), *best.tolist()]
    listed = [whole.boxes[i] for i in kept]
    return Shortlist(listed, len(said), whole.quality[kept], whole.share[kept])


def said_alone(score: float, attention: Array, box: Box) -> Evidence:
    """Return the evidence for a box of the decoder that was not compared with others.

    score: of what it said, 0..1. attention: the map (g, g) in 0..1. box: in fractions of the
    picture.
    """
    share = shares(attention, np.array([box.as_tuple()]))[0]
    return Evidence(math.log(max(score, _LEAST)), SURE_QUALITY, math.log(share + _LEAST))


def shares(attention: Array, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The share of a map (g, g) that lies in each of n boxes, (n,); cells count by their parts.

    >>> shares(np.ones((4, 4), np.float32), np.array([[0, 0, 1, 1], [0, 0.5, 0.125, 1]]))
    array([1.    , 0.0625])
    """
    rows, columns = attention.shape
    x, y = (boxes[:, 0::2] * columns).clip(0, columns), (boxes[:, 1::2] * rows).clip(0, rows)
    across = (x[:, 1:] - np.arange(columns)).clip(0, 1) - (x[:, :1] - np.arange(columns)).clip(0, 1)
    down = (y[:, 1:] - np.arange(rows)).clip(0, 1) - (y[:, :1] - np.arange(rows)).clip(0, 1)
    whole = max(float(attention.sum()), 1e-9)
    inside = np.einsum("nr,rc,nc->n", down, attention, across)
    return np.asarray(inside / whole, np.float64)


def load_box_score(base: Path) -> BoxScore | None:
    """The fit in a base's folder; None where there is none. Raises ModelError."""
    path = base / SETTINGS_FILE
    if not path.is_file():
        return None
    score = read_settings(path, BoxScore)
    for name in ("bias", "rating", "quality", "share"):
        if not is_number(getattr(score, name), -100, 100):
            raise ModelError(f"{path}: {name} {getattr(score, name)!r}, want -100 to 100")
    return score
