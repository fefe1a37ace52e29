"""Logistic regression with a pull towards zero, by Newton's method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ITERATIONS = 50  # five suffice


def logistic_regression(features: Array, labels: Array, pull: Array) -> Array:
    """Return the weights (k,) of features (n, k) for labels (n,) of 0 and 1.

    pull: weight of half the square of each weight in the loss, (k,), above 0.

    >>> ones = np.ones((4, 1))
    >>> logistic_regression(ones, np.array([1.0, 1.0, 1.0, 0.0]), np.array([1e-9])).round(3)
    array([1.099])
    """
    weights = np.zeros(features.shape[1])
    for _ in range(ITERATIONS):
        chance = 1 / (1 + np.exp(-(features @ weights).clip(-30, 30)))
        slope = features.T @ (chance - labels) + pull * weights
        bend = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(pull)
        weights -= np.linalg.solve(bend, slope)
    return weights
