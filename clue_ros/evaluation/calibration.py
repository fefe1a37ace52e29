"""Does 0.8 mean eight in ten? How far the detector's probabilities are from how often it is so.

Everything is about the one probability that is predicted, that of "ambiguous" (section III-B.1):
a bin's confidence is its mean prediction, its frequency the share of it that was ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.evaluation.metrics import wilson
from clue_ros.evaluation.plots import COLORS, GREY, MARKERS, new_figure, save_figure

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
