"""Measures of an evaluation: decisions (accuracy, F1), boxes (centre, IoU) and probabilities (ECE).

This module imports nothing else of `clue_ros.lab.evaluation`, so that training can use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box


@dataclass(frozen=True)
class Counts:
    """Confusion matrix of a two-class decision. "Ambiguous" is the positive class."""

    true_positive: int = 0
    false_positive: int = 0
    true_negative: int = 0
    false_negative: int = 0

    @property
    def n(self) -> int:
        """Number of decisions."""
        return self.true_positive + self.false_positive + self.true_negative + self.false_negative

    @property
    def accuracy(self) -> float:
        """Share of correct decisions; NaN when there are none."""
        return ratio(self.true_positive + self.true_negative, self.n)

    @property
    def precision(self) -> float:
        """Share of predicted positives that are positive; 0 when none was predicted."""
        return self.true_positive / max(1, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """Share of positives that were predicted; 0 when there are none."""
        return self.true_positive / max(1, self.true_positive + self.false_negative)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 when there is no true positive."""
        errors = self.false_positive + self.false_negative
        return 2 * self.true_positive / max(1, 2 * self.true_positive + errors)

    def summary(self) -> dict[str, float | None]:
        """The four measures with four digits."""
        return {name: rounded(getattr(self, name)) for name in DECISION_METRICS}


MIN_IOU = 0.5
FIRM = 0.5  # score from which a box is firm
"""A box is right from this IoU on (Acc@0.5)."""

DECISION_METRICS = ("accuracy", "precision", "recall", "f1")


def count(decisions: Iterable[tuple[bool, bool]]) -> Counts:
    """Count (truth, decision) pairs; True means "ambiguous"."""
    cells = {(True, True): 0, (False, True): 0, (False, False): 0, (True, False): 0}
    for truth, decision in decisions:
        cells[bool(truth), bool(decision)] += 1
    return Counts(*cells.values())


def ratio(part: int, whole: int) -> float:
    """Return part / whole; NaN when the whole is 0, because that is not a score of 0."""
    return part / whole if whole else math.nan


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of an empty sequence."""
    return sum(values) / len(values) if values else math.nan


def rounded(value: float) -> float | None:
    """Round to four digits, for JSON; None for NaN, which JSON lacks."""
    return None if math.isnan(value) else round(value, 4)


def wilson(right: int, n: int) -> tuple[float, float]:
    """Wilson score interval of ``right`` in ``n`` (95 %); NaNs when n is 0."""
    z = 1.96
    if n == 0:
        return math.nan, math.nan
    share, square = right / n, z * z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Area under the ROC curve: how often a positive scores above a negative, a tie as a half.

    NaN without both a positive and a negative. Raises ValueError for lengths that differ.
    """
    positive = [score for score, label in zip(scores, labels, strict=True) if label]
    negative = [score for score, label in zip(scores, labels, strict=True) if not label]
    won = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    pairs = len(positive) * len(negative)
    return won / pairs if pairs else math.nan


def mask_iou(found: npt.NDArray[np.bool_], truth: npt.NDArray[np.bool_]) -> float:
    """Intersection over union of two masks of one shape, 0..1; NaN where both are empty."""
    return ratio(int((found & truth).sum()), int((found | truth).sum()))


def center_near(box: Box, point: tuple[float, float], distance: float) -> bool:
    """Return whether the centre of the box is within ``distance`` px of ``point``."""
    return math.dist(box.center, point) <= distance


# -------------------------------------------------------------------------------------------------
# Calibration: does a probability of 0.8 come true eight times in ten?

BINS = 10
EPS = 1e-7  # a wrong probability of exactly 0 or 1 costs -log(EPS), not infinity


@dataclass(frozen=True)
class Bin:
    """Predictions from `low` (inclusive) to `high`, `n` of them.

    confidence: mean prediction. frequency: share of positives. Both NaN when n is 0.
    """

    low: float
    high: float
    n: int
    confidence: float
    frequency: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of probabilities; 0 is perfect for all four errors.

    ece: expected calibration error, sum over bins of n_b / n * |frequency - confidence|, in bins
    of equal width. adaptive_ece: the same in bins of (nearly) equal count. brier: mean squared
    error. nll: mean negative log-likelihood in nats. bins: the bins of equal width, empty ones too.
    """

    ece: float
    adaptive_ece: float
    brier: float
    nll: float
    n: int
    bins: tuple[Bin, ...]

    def summary(self) -> dict[str, float | int]:
        """The errors as JSON numbers."""
        names = ("ece", "adaptive_ece", "brier", "nll")
        return {name: round(float(getattr(self, name)), 4) for name in names} | {"n": self.n}


def calibration(
    probabilities: Sequence[float] | npt.NDArray[Any],
    labels: Sequence[float] | npt.NDArray[Any],
) -> Calibration:
    """Compare probabilities (n,) of the positive class with labels (n,), each 0 or 1.

    Raises ValueError for no samples, for lengths that differ and for numbers outside 0..1.
    """
    chance = np.asarray(probabilities, dtype=np.float64).ravel()
    truth = np.asarray(labels, dtype=np.float64).ravel()
    if len(chance) != len(truth) or len(chance) == 0:
        raise ValueError(f"{len(chance)} probabilities for {len(truth)} labels")
    if not ((chance >= 0) & (chance <= 1)).all() or not np.isin(truth, (0, 1)).all():
        raise ValueError("probabilities must lie in 0..1 and labels be 0 or 1")
    equal_width = _bins(chance, truth, np.linspace(0, 1, BINS + 1))
    # Equal predictions share a bin: the result does not depend on the order of the samples.
    edges = np.unique(np.quantile(chance, np.linspace(0, 1, BINS + 1)))
    equal_count = _bins(chance, truth, edges if len(edges) > 1 else np.array([0.0, 1.0]))
    safe = np.clip(chance, EPS, 1 - EPS)
    return Calibration(
        ece=_expected_error(equal_width),
        adaptive_ece=_expected_error(equal_count),
        brier=float(((chance - truth) ** 2).mean()),
        nll=float(-(truth * np.log(safe) + (1 - truth) * np.log1p(-safe)).mean()),
        n=len(chance),
        bins=equal_width,
    )


def _bins(
    chance: npt.NDArray[np.float64], truth: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]
) -> tuple[Bin, ...]:
    # The last bin holds its upper edge too.
    number = np.clip(np.searchsorted(edges, chance, side="right") - 1, 0, len(edges) - 2)
    out = []
    for i in range(len(edges) - 1):
        inside = number == i
        n = int(inside.sum())
        confidence = float(chance[inside].mean()) if n else math.nan
        frequency = float(truth[inside].mean()) if n else math.nan
        out.append(Bin(float(edges[i]), float(edges[i + 1]), n, confidence, frequency))
    return tuple(out)


def _expected_error(bins: tuple[Bin, ...]) -> float:
    total = sum(b.n for b in bins)
    return sum(b.n / total * abs(b.frequency - b.confidence) for b in bins if b.n)
