"""The paper's figures (section IV): accuracy, precision, recall, F1, and how well boxes agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clue_ros.dialogue import Box


@dataclass(frozen=True)
class Counts:
    """A two-class confusion table. Positive is "ambiguous"."""

    true_positive: int = 0
    false_positive: int = 0
    true_negative: int = 0
    false_negative: int = 0

    @property
    def n(self) -> int:
        """Decisions counted."""
        return self.true_positive + self.false_positive + self.true_negative + self.false_negative

    @property
    def accuracy(self) -> float:
        """Share of right decisions; NaN of none."""
        return ratio(self.true_positive + self.true_negative, self.n)

    @property
    def precision(self) -> float:
        """Share of the positives that are; 0 when nothing was called positive."""
        return _or_zero(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """Share of the positives found; 0 when there are none."""
        return _or_zero(self.true_positive, self.true_positive + self.false_negative)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 when no positive was found."""
        missed = self.false_positive + self.false_negative
        return _or_zero(2 * self.true_positive, 2 * self.true_positive + missed)


def count(decisions: Iterable[tuple[bool, bool]]) -> Counts:
    """Count (truth, decision) pairs, True being "ambiguous"."""
    table = {(True, True): 0, (False, True): 0, (False, False): 0, (True, False): 0}
    for truth, decision in decisions:
        table[bool(truth), bool(decision)] += 1
    return Counts(*table.values())


def ratio(part: int, whole: int) -> float:
    """A share; NaN of nothing, which is not a score of zero."""
    return part / whole if whole else math.nan


def rounded(value: float) -> float | None:
    """Four digits, as tables and JSON take them; None for NaN, which JSON does not have."""
    return None if math.isnan(value) else round(value, 4)


def mean(values: Sequence[float]) -> float:
    """Their mean, NaN of none."""
    return sum(values) / len(values) if values else math.nan


def _or_zero(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def wilson(right: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share of ``right`` in ``n`` (95 % by default); NaNs of nothing."""
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


def iou(first: Box, second: Box) -> float:
    """Intersection over union of two boxes, 0..1."""
    return first.iou(second)


def center_near(box: Box, point: tuple[float, float], distance: float) -> bool:
    """Whether the box's centre is within ``distance`` px of ``point``."""
    return math.dist(box.center, point) <= distance


def center_inside(box: Box, target: Box) -> bool:
    """Whether the box's centre lies in ``target`` (the max sides exclusive)."""
    x, y = box.center
    return target.x_min <= x < target.x_max and target.y_min <= y < target.y_max
