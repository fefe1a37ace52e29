"""Calibration errors against values worked out by hand, and the plot as a file."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clue_ros.errors import ClueError
from clue_ros.lab.metrics import calibration
from clue_ros.lab.options import FIGURE
from clue_ros.lab.report import new_figure, plot_reliability, save_figure


def test_errors_by_hand() -> None:
    # Bin 0.2..0.3: 4 predictions of 0.25, one ambiguous: perfect. Bin 0.9..1: 2 of 0.95, one.
    result = calibration([0.25] * 4 + [0.95] * 2, [1, 0, 0, 0, 1, 0])
    assert result.n == 6
    assert result.ece == pytest.approx(2 / 6 * 0.45)
    assert result.brier == pytest.approx((0.75**2 + 3 * 0.25**2 + 0.05**2 + 0.95**2) / 6)
    nll = -(math.log(0.25) + 3 * math.log(0.75) + math.log(0.95) + math.log(0.05)) / 6
    assert result.nll == pytest.approx(nll)
    assert [b.n for b in result.bins] == [0, 0, 4, 0, 0, 0, 0, 0, 0, 2]
    assert result.bins[2].frequency == 0.25
    assert result.summary() == {
        "ece": 0.15, "adaptive_ece": 0.15, "brier": 0.2758, "nll": round(nll, 4), "n": 6,
    }  # fmt: skip


def test_the_ends_have_a_bin_and_a_finite_price() -> None:
    result = calibration([0.0, 1.0], [True, False])
    assert (result.bins[0].n, result.bins[-1].n) == (1, 1)
    assert result.ece == 1.0
    assert result.brier == 1.0
    assert result.nll == pytest.approx(-math.log(1e-7))


def test_calibrated_probabilities_have_a_small_error_and_overconfident_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    chance = rng.uniform(size=20_000)
    truth = rng.uniform(size=20_000) < chance
    logit = np.log(chance / (1 - chance))
    good, bold = calibration(chance, truth), calibration(1 / (1 + np.exp(-3 * logit)), truth)
    assert good.ece < 0.02 < 0.1 < bold.ece
    assert good.adaptive_ece < 0.02 < 0.1 < bold.adaptive_ece
    assert good.nll < bold.nll


def test_adaptive_bins_see_what_one_crowded_bin_hides() -> None:
    # All in one bin of equal width: right on average, wrong in both halves.
    chance = [0.51] * 50 + [0.59] * 50
    result = calibration(chance, [1] * 55 + [0] * 45)
    assert result.ece == pytest.approx(0.0, abs=1e-9)
    assert result.adaptive_ece == pytest.approx(0.49)
    mixed = np.random.default_rng(1).permutation(100)
    same = calibration(np.array(chance)[mixed], np.array([1] * 55 + [0] * 45)[mixed])
    assert same.adaptive_ece == pytest.approx(result.adaptive_ece)


@pytest.mark.parametrize(
    ("chance", "truth"),
    [([], []), ([0.5], [1, 0]), ([1.5], [1]), ([math.nan], [1]), ([0.5], [2])],
)
def test_what_cannot_be_measured_is_refused(chance: list[float], truth: list[int]) -> None:
    with pytest.raises(ValueError, match=r"probabilities"):
        calibration(chance, truth)


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chance = rng.uniform(size=200)
    path = tmp_path / "reliability.png"
    one = calibration(chance, rng.uniform(size=200) < chance)
    plot_reliability(path, {"cnn": one, "one sample": calibration([1.0], [1])}, "Held-out data")
    with Image.open(path) as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(100_000) or []) > 20
    assert [p.name for p in tmp_path.iterdir()] == ["reliability.png"]


def test_a_figures_name_is_checked_before_the_work(tmp_path: Path) -> None:
    assert FIGURE(str(tmp_path / "a.svg")) == tmp_path / "a.svg"
    with pytest.raises(argparse.ArgumentTypeError, match=r"must end in .png"):
        FIGURE("figure.jpg")
    with pytest.raises(argparse.ArgumentTypeError, match="no folder"):
        FIGURE(str(tmp_path / "nowhere" / "a.png"))


def test_a_figure_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(ClueError, match=r"cannot write .*taken\.png"):
        save_figure(new_figure(1, 1), tmp_path / "taken.png")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.png"]
