"""A detector's temperature and threshold, from validation samples only (section IV-A).

The paper leaves both open. The temperature is the one with the best log-likelihood, the threshold
lies in the middle of the best plateau of F1, so that a lucky spike is not taken for skill.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clue_ros.evaluation.calibration import calibration
from clue_ros.model.detector import DetectorSettings, probability
from clue_ros.model.heads import detector_loss

NEIGHBOURS = 5  # hundredths on either side, over which F1 is averaged


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of bool predictions against 0/1 labels, ambiguous being positive."""
    both = float((predicted & (labels > 0.5)).sum())
    return 2 * both / max(1.0, float(predicted.sum()) + float((labels > 0.5).sum()))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the best log-likelihood, of 0.25 .. 4."""
    grid = [float(t) for t in np.geomspace(0.25, 4, 81)]
    return min(grid, key=lambda t: float(detector_loss(logits / t, labels)))


def fit_threshold(chance: Tensor, labels: Tensor) -> float:
    """The threshold of 0.05, 0.06 .. 0.95 in the middle of the best plateau of F1."""
    grid = np.arange(0.05, 0.951, 0.01)
    scores = np.array([f1(chance >= t, labels) for t in grid])
    return round(float(grid[middle_of_best(scores)]), 2)


def middle_of_best(scores: NDArray[np.float64]) -> int:
    """The index whose score, averaged over its five neighbours on either side, is highest.

    Of a plateau, where several are, its middle. Beyond the ends the scores go on as they end.
    """
    padded = np.pad(scores, NEIGHBOURS, mode="edge")
    window = 2 * NEIGHBOURS + 1
    smooth = np.convolve(padded, np.ones(window) / window, mode="valid")
    best = smooth >= smooth.max() - 1e-9
    first = int(best.argmax())
    rest = best[first:]
    length = len(rest) if rest.all() else int(rest.argmin())
    return first + (length - 1) // 2


def calibrate(
    settings: DetectorSettings, seen: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[str, Any]:
    """Set temperature and threshold from logits (n,) and labels (n,) of each validation set.

    Returns the figures found there: F1 of each set, expected calibration error of all before and
    after the temperature.
    """
    logits = torch.cat([logit for logit, _ in seen.values()])
    labels = torch.cat([label for _, label in seen.values()])
    settings.temperature = round(fit_temperature(logits, labels), 3)
    chance = probability(logits, settings.temperature)
    settings.threshold = fit_threshold(chance, labels)
    truth = (labels > 0.5).tolist()
    figures = {
        f"{name}_f1": round(
            f1(probability(logit, settings.temperature) >= settings.threshold, label), 4
        )
        for name, (logit, label) in seen.items()
    }
    for name, values in (("ece_before", probability(logits)), ("ece", chance)):
        figures[name] = round(calibration(values.tolist(), truth).ece, 4)
    return {"validation": {**figures, "n": len(labels)}}
