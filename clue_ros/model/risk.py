# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The promise: at most a share `max_risk` of requests ends in a wrong box without a confirmation.

A box is pointed at where its `trust` reaches a threshold; below it the robot shows the box and asks
"this one?". `clue calibrate` asks a model about labelled requests of one place, and writes
calibration.json: the trust of each reply, and whether it was a wrong box. From it the boldest
threshold follows that keeps the promise on new requests of the same place:

- with probability 1 - delta over calibrations, by Learn-then-Test (Angelopoulos and others, 2021):
  thresholds are tested from the safest to the boldest, and the first that fails ends it;
- or on average over calibrations, by conformal risk control (Angelopoulos and others, 2022).

With the same delta the first is the bolder: the average implies a probability by Markov's
inequality alone, at max_risk times delta.

A picture that is far from all that it was calibrated on is of another place: nothing is promised
there, and every box is confirmed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ModelError
from clue_ros.model.loading import is_number, read_settings, replacing

DELTA = 0.1
THRESHOLDS = np.linspace(1.0, 0.0, 1001).round(3)
"""Of trust, from the safest to the boldest; fixed before any data are seen, as the test needs."""
FAMILIAR = 0.95  # share of the calibration's own pictures that count as of its place
_ENOUGH = 100_000  # labelled requests that nobody will have
Floats = npt.NDArray[np.float64]


def trust(score: float, probability: float) -> float:
    """How far a box is to be trusted, 0..1: the lesser of its score and its certainty.

    score: of the box. probability: of ambiguity. The lesser, because a sure box of an ambiguous
    request is as wrong as an unsure one of a clear request; a score that is not known counts as 0.

    >>> trust(0.75, 0.5), trust(0.5, 0.125), trust(math.nan, 0.0)
    (0.5, 0.5, 0.0)
    """
    found = min(score, 1 - probability)
    return 0.0 if math.isnan(score) else min(max(found, 0.0), 1.0)


def p_value(losses: Floats, max_risk: float) -> float:
    """P-value of the hypothesis that the mean loss is above `max_risk`, 0..1.

    losses: (n,), each 0..1, of n exchangeable requests. By Hoeffding and Bentkus (Bates and others,
    2021, section 3.2): the lesser of exp(-n h(R, a)) and e P(Bin(n, a) <= ceil(n R)) for the mean
    loss R and the risk a, with h(x, a) = x log(x/a) + (1-x) log((1-x)/(1-a)). For losses of 0 and 1
    the binomial tail itself, without e, is exact and smaller.
    """
    n, mean = len(losses), float(losses.mean()) if len(losses) else 1.0
    if mean >= max_risk:
        return 1.0
    tail = binomial_tail(math.ceil(round(n * mean, 9)), n, max_risk)
    if np.isin(losses, (0, 1)).all():
        return tail
    rest = (1 - mean) * math.log((1 - mean) / (1 - max_risk))
    entropy = rest + (mean * math.log(mean / max_risk) if mean else 0.0)
    return min(math.exp(-n * entropy), math.e * tail)


def binomial_tail(k: int, n: int, share: float) -> float:
    """P(Bin(n, share) <= k), for a share between 0 and 1.

    >>> binomial_tail(1, 3, 0.5)
    0.5
    """
    heads, tails = math.log(share), math.log1p(-share)
    whole = math.lgamma(n + 1)
    terms = (
        math.exp(whole - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * heads + (n - i) * tails)
        for i in range(k + 1)
    )
    return min(1.0, round(math.fsum(terms), 12))


def learn_then_test(losses: Floats, max_risk: float, delta: float) -> int | None:
    """The boldest setting whose risk is at most `max_risk` with probability 1 - delta, or None.

    losses: (n, T), of n requests under T settings from the safest to the boldest. Fixed-sequence
    testing (Learn-then-Test, section 2.3): each is tested at delta until the first one fails, so
    that no correction for their number is needed.
    """
    passed = None
    for setting in range(losses.shape[1]):
        if p_value(losses[:, setting], max_risk) > delta:
            break
        passed = setting
    return passed


def conformal_risk(losses: Floats, max_risk: float) -> int | None:
    """The boldest setting whose risk is at most `max_risk` on average over calibrations, or None.

    losses: (n, T) as for `learn_then_test`; none may fall with the setting. Conformal risk control
    (2022, equation 4) for losses of at most 1: (sum of losses + 1) / (n + 1) <= max_risk.

    Raises ValueError for losses that fall.
    """
    sums = losses.sum(0)
    if (np.diff(sums) < 0).any():
        raise ValueError("losses must not fall from the safest to the boldest setting")
    kept = np.flatnonzero((sums + 1) / (len(losses) + 1) <= max_risk)
    return int(kept[-1]) if len(kept) else None


def needed(max_risk: float, delta: float | None, wrong: int = 0) -> int:
    """Number of labelled requests that support a promise, of which `wrong` may be wrong boxes.

    delta: None for the promise on average.

    >>> needed(0.05, 0.1), needed(0.05, 0.1, wrong=1), needed(0.05, None)
    (45, 77, 19)
    """
    if delta is None:
        return math.ceil(round((wrong + 1) / max_risk, 9)) - 1
    low, high = wrong, _ENOUGH
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if binomial_tail(wrong, middle, max_risk) <= delta else (middle, high)
        )
    return high


def supported(n: int, delta: float | None) -> float:
    """The smallest `max_risk` that n labelled requests without any wrong box support.

    >>> round(supported(45, 0.1), 4), supported(19, None)
    (0.0499, 0.05)
    """
    return 1 / (n + 1) if delta is None else 1 - delta ** (1 / max(n, 1))


def pooled(features: Any) -> Floats:
    """A picture's features (1, N, D) as one vector (2 D,): means over its patches, then maxima."""
    patches = np.asarray(features, dtype=np.float64)[0]
    return np.asarray(np.concatenate([patches.mean(0), patches.max(0)]).round(2))


@dataclass(frozen=True)
class Calibration:
    """calibration.json: what a model made of labelled requests of one place.

    trusts: of each request's box, 0..1; of a request without a box -1, which no threshold reaches.
    wrong: whether the box is none of the objects meant, or the request ambiguous or of an absent
    object. pictures: (m, 2 D), `pooled` features of the pictures. delta: None for the promise on
    average. policy, threshold, num_views, doubtful_score, weights (their hash): of the model, for
    which alone it holds; a lower threshold only asks more. data, date: where it comes from.
    """

    trusts: tuple[float, ...]
    wrong: tuple[bool, ...]
    pictures: tuple[tuple[float, ...], ...] = ()
    delta: float | None = DELTA
    policy: str = ""
    threshold: float = 1.0
    num_views: int = 1
    doubtful_score: float = 1.0
    weights: str = ""
    data: str = field(default="", kw_only=True)
    date: str = field(default="", kw_only=True)

    @property
    def n(self) -> int:
        """Number of labelled requests."""
        return len(self.trusts)

    def losses(self) -> Floats:
        """(n, T): 1 where a request ends in a wrong box without a confirmation, else 0.

        Under each of THRESHOLDS.
        """
        pointed = np.array(self.trusts)[:, None] >= THRESHOLDS
        return np.asarray(pointed & np.array(self.wrong, bool)[:, None], np.float64)

    def bound(self, max_risk: float) -> float | None:
        """The trust from which on boxes need no confirmation; None: every box needs one.

        None is what too few requests give, or wrong boxes among the most trusted ones.
        """
        losses = self.losses()
        if self.delta is None:
            found = conformal_risk(losses, max_risk)
        else:
            found = learn_then_test(losses, max_risk, self.delta)
        return None if found is None else float(THRESHOLDS[found])

    def shortage(self, max_risk: float) -> str:
        """Why it cannot support this promise at all, in one line; empty where it can."""
        wanted = needed(max_risk, self.delta)
        if self.n >= wanted:
            return ""
        how = "on average" if self.delta is None else f"with delta {self.delta:g}"
        least = math.ceil(supported(self.n, self.delta) * 1000) / 1000
        return (
            f"max_risk {max_risk:g} {how} needs {wanted} labelled requests, there are {self.n}:"
            f" label {wanted - self.n} more, or promise {least:g} at most"
        )

    def is_unknown(self, features: Any) -> bool:
        """Whether a picture's features (1, N, D) are far from those of all calibration pictures.

        By their means or by their maxima: farther from the nearest of them than 95 % of these are
        from theirs (leave-one-out nearest neighbours, Euclidean), up to the farthest where they are
        fewer than twenty. Pictures of many places are as far from one another as from a new place:
        only a calibration on one place tells another one apart.
        """
        if not self.pictures:
            return True
        own, seen = self._halves, pooled(features).reshape(2, 1, -1)
        apart = np.linalg.norm(own - seen, axis=-1).min(1)
        return bool((apart > self._farthest).any())

    @cached_property
    def _halves(self) -> Floats:
        """(2, m, D): means and maxima of the pictures."""
        halves = np.array(self.pictures).reshape(len(self.pictures), 2, -1)
        return np.asarray(halves.swapaxes(0, 1))

    @cached_property
    def _farthest(self) -> Floats:
        """(2,): how far apart neighbours are, by means and by maxima."""
        if len(self.pictures) < 2:
            return np.zeros(2)
        apart = np.linalg.norm(self._halves[:, :, None] - self._halves[:, None], axis=-1)
        places = np.arange(len(self.pictures))
        apart[:, places, places] = np.inf
        return np.asarray(np.quantile(apart.min(2), FAMILIAR, axis=1, method="higher"))


@dataclass(frozen=True)
class Promise:
    """A bound that a caller asked for, and what supports it.

    max_risk: above 0 and below 1. calibration: None where there is none.
    """

    max_risk: float
    calibration: Calibration | None

    @cached_property
    def _bound(self) -> float | None:
        return None if self.calibration is None else self.calibration.bound(self.max_risk)

    def problem(self, decision: Mapping[str, Any]) -> str:
        """Why no bound is in force for a model that decides like this; empty where one is.

        decision: what `clue_ros.engine.Clue.decision` gives.
        """
        calibration = self.calibration
        if calibration is None:
            return "this model has no calibration: make one with `clue calibrate`"
        for name in ("policy", "num_views", "doubtful_score", "weights"):
            if getattr(calibration, name) != decision[name]:
                other = "other" if name == "weights" else "another"
                return f"the calibration was made with {other} {name}: make a new one"
        if decision["threshold"] > calibration.threshold:
            return (
                f"the calibration was made with threshold {calibration.threshold:g}, and holds up"
                f" to that, not for {decision['threshold']:g}: make a new one"
            )
        return calibration.shortage(self.max_risk)

    def is_known(self, features: Any) -> bool:
        """Whether a picture, by its features (1, N, D), is like those of the calibration."""
        return self.calibration is not None and not self.calibration.is_unknown(features)

    def trusts(self, score: float, probability: float) -> bool:
        """Whether a box needs no confirmation; arguments as of `trust`."""
        return self._bound is not None and trust(score, probability) >= self._bound


def load_calibration(path: Path) -> Calibration:
    """Read calibration.json. Raises ModelError naming the file and what is wrong with it."""
    found = read_settings(path, Calibration)
    for problem in _problems(found):
        raise ModelError(f"{path}: {problem}: calibrate again (clue calibrate)")
    rows = tuple(tuple(map(float, row)) for row in found.pictures)
    values = {**asdict(found), "pictures": rows}
    return Calibration(**values | {"trusts": tuple(found.trusts), "wrong": tuple(found.wrong)})


def _problems(found: Calibration) -> Iterator[str]:
    """What is wrong with the values of a file."""
    lists = found.trusts, found.wrong, found.pictures
    if not all(isinstance(value, (list, tuple)) for value in lists):
        yield "trusts, wrong and pictures must be lists"
        return
    if len(found.trusts) != len(found.wrong):
        yield f"{len(found.trusts)} trusts and {len(found.wrong)} labels"
    if not all(is_number(value, -1, 1) for value in found.trusts):
        yield "a trust is no number from -1 to 1"
    if not all(isinstance(value, bool) for value in found.wrong):
        yield "a label in wrong is neither true nor false"
    sizes = {len(row) if isinstance(row, list) else -1 for row in found.pictures}
    flat = [v for row in found.pictures if isinstance(row, list) for v in row]
    if (
        len(sizes) > 1
        or any(size % 2 for size in sizes)
        or not all(is_number(v, -1e9, 1e9) for v in flat)
    ):
        yield "pictures must be lists of numbers, all of one even length"
    if found.delta is not None and not (is_number(found.delta, 0, 1) and 0 < found.delta < 1):
        yield f"delta {found.delta!r}, want a number above 0 and below 1, or null"
    if not is_number(found.threshold, 0, 1):
        yield f"threshold {found.threshold!r}, want 0 to 1"


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write calibration.json, a value a line. Raises OSError."""
    values = asdict(calibration)
    values["trusts"] = [round(value, 6) for value in calibration.trusts]
    lines = (f'  "{name}": {json.dumps(value)}' for name, value in sorted(values.items()))
    with replacing(path) as partial:
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
