"""The paper's figures (section IV): accuracy, precision, recall, F1, and how well boxes agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.lab.evaluation.report import COLORS, GREY, MARKERS, new_figure, save_figure


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


# -------------------------------------------------------------------------------------------------
# Does 0.8 mean eight in ten? How far the detector's probabilities are from how often it is so.

BINS = 10
EPS = 1e-7  # a probability of exactly 0 or 1 that is wrong costs -log(EPS), not infinity


@dataclass(frozen=True)
class Bin:
    """Predictions from `low` (inclusive) to `high`, `n` of them.

    confidence: their mean; frequency: the share that was ambiguous; NaN both where n is 0.
    """

    low: float
    high: float
    n: int
    confidence: float
    frequency: float


@dataclass(frozen=True)
class Calibration:
    """How well probabilities are calibrated; 0 is perfect for all four errors.

    ece: expected calibration error, sum over bins of n_b / n * |frequency - confidence|, in bins
    of equal width. adaptive_ece: the same in bins of (nearly) equal count. brier: mean squared
    error. nll: mean negative log-likelihood in nats. bins: those of equal width, empty ones too.
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
    bins: int = BINS,
) -> Calibration:
    """Measure probabilities (n,) of "ambiguous" against whether it was so, (n,) of 0 or 1.

    Raises ValueError for no samples, for lengths that differ and for numbers outside 0..1.
    """
    chance = np.asarray(probabilities, dtype=np.float64).ravel()
    truth = np.asarray(labels, dtype=np.float64).ravel()
    if len(chance) != len(truth) or len(chance) == 0:
        raise ValueError(f"{len(chance)} probabilities for {len(truth)} labels")
    if not ((chance >= 0) & (chance <= 1)).all() or not np.isin(truth, (0, 1)).all():
        raise ValueError("probabilities must lie in 0..1 and labels be 0 or 1")
    equal = _bins(chance, truth, np.linspace(0, 1, bins + 1))
    # Equal predictions share a bin: the result does not depend on the samples' order.
    edges = np.unique(np.quantile(chance, np.linspace(0, 1, bins + 1)))
    counted = _bins(chance, truth, edges if len(edges) > 1 else np.array([0.0, 1.0]))
    safe = np.clip(chance, EPS, 1 - EPS)
    return Calibration(
        ece=_expected_error(equal),
        adaptive_ece=_expected_error(counted),
        brier=float(((chance - truth) ** 2).mean()),
        nll=float(-(truth * np.log(safe) + (1 - truth) * np.log1p(-safe)).mean()),
        n=len(chance),
        bins=equal,
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
        confidence = float(chance[inside].mean()) if n else np.nan
        frequency = float(truth[inside].mean()) if n else np.nan
        out.append(Bin(float(edges[i]), float(edges[i + 1]), n, confidence, frequency))
    return tuple(out)


def _expected_error(bins: tuple[Bin, ...]) -> float:
    total = sum(b.n for b in bins)
    return sum(b.n / total * abs(b.frequency - b.confidence) for b in bins if b.n)


def plot_reliability(path: Path, measured: Mapping[str, Calibration], title: str = "") -> None:
    """The reliability diagram: how often it was ambiguous over what was predicted.

    One curve a name, with Wilson's 95 % intervals; below it, how many predictions each bin holds.
    Raises ClueError where it cannot be drawn or written.
    """
    figure = new_figure(5.6, 6.2)
    upper, lower = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    upper.plot((0, 1), (0, 1), color=GREY, linestyle="--", linewidth=1, label="perfect")
    for i, (name, result) in enumerate(measured.items()):
        _curve(upper, result, f"{name} (ECE {result.ece:.3f})", i)
        edges = [b.low for b in result.bins] + [1.0]
        counts = [b.n for b in result.bins]
        color = COLORS[i % len(COLORS)]
        lower.stairs(counts, edges, color=color, linewidth=1.6, fill=len(measured) == 1)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share that was ambiguous")
    figure.legend(loc="outside lower center", fontsize="small")
    lower.set(xlabel="predicted probability of ambiguity", ylabel="predictions")
    for axes in (upper, lower):
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    if title:
        upper.set_title(title)
    save_figure(figure, path)


def _curve(axes: Any, result: Calibration, name: str, index: int) -> None:
    """One curve over the bins that hold something."""
    filled = [b for b in result.bins if b.n]
    ends = [wilson(round(b.frequency * b.n), b.n) for b in filled]
    # At a share of 0 or 1 rounding can put an interval's end on the wrong side by 1e-17.
    errors = [
        [max(0.0, b.frequency - low) for b, (low, _) in zip(filled, ends, strict=True)],
        [max(0.0, high - b.frequency) for b, (_, high) in zip(filled, ends, strict=True)],
    ]
    axes.errorbar(
        [b.confidence for b in filled],
        [b.frequency for b in filled],
        yerr=errors,
        color=COLORS[index % len(COLORS)],
        marker=MARKERS[index % len(MARKERS)],
        capsize=3,
        linewidth=1.4,
        label=name,
    )
