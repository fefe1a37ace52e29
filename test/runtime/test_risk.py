"""The promise on wrong boxes: tests of a bound by hand, and against simulated requests."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from clue_ros.errors import ModelError
from clue_ros.model.load_options import check_max_risk
from clue_ros.model.risk import (
    THRESHOLDS,
    Calibration,
    binomial_tail,
    conformal_risk,
    learn_then_test,
    load_calibration,
    needed,
    p_value,
    pooled,
    save_calibration,
    supported,
    trust,
)


def some(wrong: int, n: int) -> np.ndarray:
    """Losses of n requests, so many of them 1."""
    return np.array([1.0] * wrong + [0.0] * (n - wrong))


def test_p_values_by_hand() -> None:
    # (1 - 0.05)^45 is the chance that 45 requests at a risk of 0.05 show no loss.
    assert p_value(some(0, 45), 0.05) == pytest.approx(0.95**45)
    one = 0.95**77 + 77 * 0.05 * 0.95**76
    assert p_value(some(1, 77), 0.05) == pytest.approx(one)
    assert p_value(some(3, 60), 0.05) == 1.0
    assert p_value(some(0, 0), 0.05) == 1.0
    # Ten losses of a half in 100, at 0.1: Hoeffding's exp(-n h) against e P(Bin(100, 0.1) <= 5).
    h = 0.05 * math.log(0.05 / 0.1) + 0.95 * math.log(0.95 / 0.9)
    losses = np.array([0.5] * 10 + [0.0] * 90)
    tail = sum(math.comb(100, k) * 0.1**k * 0.9 ** (100 - k) for k in range(6))
    assert p_value(losses, 0.1) == pytest.approx(min(math.exp(-100 * h), math.e * tail))
    assert binomial_tail(0, 10, 0.5) == pytest.approx(0.5**10)
    assert binomial_tail(10, 10, 0.3) == pytest.approx(1.0)


def test_testing_ends_at_the_first_setting_that_fails() -> None:
    counts = [0, 0, 1, 1, 9, 0]  # the last one would pass, and is never tested
    losses = np.stack([some(wrong, 80) for wrong in counts], axis=1)
    assert learn_then_test(losses, 0.05, 0.1) == 3
    assert learn_then_test(losses[:, 4:], 0.05, 0.1) is None
    assert learn_then_test(losses[:40], 0.05, 0.1) is None, "40 requests do not support 0.05"


def test_conformal_risk_by_hand() -> None:
    losses = np.stack([some(wrong, 39) for wrong in (0, 1, 2)], axis=1)
    assert conformal_risk(losses, 0.05) == 1  # (1 + 1) / 40
    assert conformal_risk(losses, 0.024) is None
    with pytest.raises(ValueError, match="must not fall"):
        conformal_risk(losses[:, ::-1], 0.05)


def test_with_the_same_delta_testing_is_the_bolder() -> None:
    """Conformal risk control reaches a delta through Markov's inequality, at max_risk * delta."""
    for n in (50, 200, 1000):
        losses = np.stack([some(wrong, n) for wrong in range(n // 2)], axis=1)
        for delta in (0.05, 0.1, 0.2, 0.5):
            tested, average = (
                learn_then_test(losses, 0.1, delta),
                conformal_risk(losses, 0.1 * delta),
            )
            assert (-1 if tested is None else tested) >= (-1 if average is None else average)


@pytest.mark.parametrize(("max_risk", "delta"), [(0.05, 0.1), (0.1, 0.2), (0.05, None)])
@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_the_number_needed_is_the_smallest(
    max_risk: float, delta: float | None, wrong: int
) -> None:
    def enough(n: int) -> bool:
        losses = some(wrong, n)[:, None]
        if delta is None:
            return conformal_risk(losses, max_risk) == 0
        return learn_then_test(losses, max_risk, delta) == 0

    n = needed(max_risk, delta, wrong)
    assert enough(n)
    assert not enough(n - 1)
    if wrong == 0:
        assert supported(n, delta) <= max_risk < supported(n - 1, delta)


def simulated(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Trust of n requests, and whether their boxes are wrong: the surer the rarer."""
    trusts = rng.beta(2, 1, n).round(4)
    return trusts, rng.random(n) < 0.5 * (1 - trusts) ** 0.7


@pytest.mark.parametrize("n", [60, 150])
def test_the_bound_holds_in_its_share_of_calibrations(n: int) -> None:
    rng = np.random.default_rng(4)
    trusts, wrong = simulated(rng, 200_000)
    order = np.argsort(-trusts)
    cumulative = np.cumsum(wrong[order]) / len(trusts)

    def risk(threshold: float) -> float:
        count = int(np.searchsorted(-trusts[order], -threshold, side="right"))
        return float(cumulative[count - 1]) if count else 0.0

    broken, pointed, average = 0, [], []
    for _ in range(400):
        few, labels = simulated(rng, n)
        rows = tuple(few.tolist()), tuple(labels.tolist())
        found = Calibration(*rows, delta=0.1).bound(0.05)
        broken += found is not None and risk(found) > 0.05
        pointed.append(0.0 if found is None else float((trusts >= found).mean()))
        mean = Calibration(*rows, delta=None).bound(0.05)
        average.append(0.0 if mean is None else risk(mean))
    assert broken <= 0.1 * 400 + 2 * math.sqrt(400 * 0.1 * 0.9)
    assert np.mean(pointed) > 0.15, "a promise that never points is no use"
    assert np.mean(average) <= 0.05


def test_a_calibration_points_above_its_wrong_boxes() -> None:
    trusts = tuple(np.linspace(0.2, 0.99, 60).round(3).tolist())
    wrong = tuple(value in (trusts[20], trusts[30]) for value in trusts)
    calibration = Calibration((*trusts, *[-1.0] * 10), (*wrong, *[False] * 10))
    found = calibration.bound(0.05)
    assert found == pytest.approx(math.ceil(trusts[30] * 1000 + 1) / 1000)
    assert Calibration(trusts[:30], wrong[:30]).bound(0.05) is None
    assert "label 15 more, or promise 0.074" in Calibration(trusts[:30], wrong[:30]).shortage(0.05)
    assert calibration.shortage(0.05) == ""
    assert calibration.losses().shape == (70, len(THRESHOLDS))
    assert calibration.losses()[:, -1].sum() == 2, "a request without a box is never wrong"


def test_trust_is_the_lesser_of_score_and_certainty() -> None:
    assert trust(0.9, 0.3) == pytest.approx(0.7)
    assert trust(0.2, 0.3) == 0.2
    assert trust(math.nan, 0.0) == 0.0
    assert trust(1.0000001, 0.0) == 1.0


def test_a_picture_far_from_all_others_is_unknown() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(30, 16, 8)) * 0.2 + 3.0
    calibration = Calibration((), (), tuple(tuple(pooled(one[None])) for one in table))
    near, far = table[0] + 0.01, table[0] - 3.0
    assert not calibration.is_unknown(near[None])
    assert calibration.is_unknown(far[None])
    spot = near.copy()
    spot[0] += 9.0  # one thing that is unlike all others: the means hardly change
    assert calibration.is_unknown(spot[None])
    assert Calibration((), ()).is_unknown(near[None])
    fresh = rng.normal(size=(400, 16, 8)) * 0.2 + 3.0
    share = np.mean([calibration.is_unknown(one[None]) for one in fresh])
    assert share <= 0.2, "most pictures of the same table are familiar"


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    made = Calibration(
        (0.5, -1.0), (True, False), ((1.5, 2.25), (0.0, -1.0)), 0.1, "both", 0.44, 3, 0.98, "abc",
        data="table", date="2026-01-01",
    )  # fmt: skip
    path = tmp_path / "calibration.json"
    save_calibration(made, path)
    assert load_calibration(path) == made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trusts": [0.5]}, "1 trusts and 2 labels"),
        ({"trusts": [2, 0.1]}, "a trust is no number"),
        ({"trusts": "all"}, "must be lists"),
        ({"wrong": [1, 0]}, "neither true nor false"),
        ({"pictures": [[1.0], [1.0, 2.0]]}, "all of one even length"),
        ({"pictures": [3]}, "all of one even length"),
        ({"delta": 0}, "delta 0"),
        ({"threshold": "high"}, "threshold"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(Calibration((0.5, -1.0), (True, False), ((1.0, 2.0),)), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes), encoding="utf-8")
    with pytest.raises(ModelError, match=reason) as refused:
        load_calibration(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("value", [0, 1, -0.1, math.nan, True, "0.05"])
def test_a_risk_that_is_no_share_is_refused(value: object) -> None:
    with pytest.raises(ModelError, match="max_risk"):
        check_max_risk(value)  # type: ignore[arg-type]
