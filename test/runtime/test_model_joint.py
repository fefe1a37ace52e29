"""Detector and decoder put together: what is fitted is found again, kept, and used by its pair."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.lab.training.fusion import fit
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.fusion import (
    MEAN,
    SETTINGS_FILE,
    Joint,
    load_joint,
    log_odds,
    save_joint,
    weights_digest,
)


@pytest.fixture
def model(random_model: Path, tmp_path: Path) -> Path:
    """A copy of the random model that a test may change."""
    return Path(shutil.copytree(random_model, tmp_path / "model"))


def fitted(model: Path, **more: Any) -> Joint:
    """A joint of the model's own pair, written where it belongs."""
    numbers: dict[str, Any] = {"detector": 0.25, "decoder": 1.5, "bias": -0.5, "threshold": 0.6}
    joint = Joint(**{**numbers, "ivg": weights_digest(model / IVG), **more})
    save_joint(joint, model / DETECTOR, world="blocks")
    return joint


def test_without_a_file_the_mean_decides_at_the_detectors_threshold(model: Path) -> None:
    assert load_joint(model / DETECTOR, model / IVG) == MEAN
    clue = Clue.load(model, policy="both")
    assert clue.threshold == clue.checkpoint.detector.settings.threshold


def test_log_odds_of_certainty_are_finite() -> None:
    assert log_odds(0.5) == 0
    assert log_odds(0.0) == pytest.approx(-log_odds(1.0))
    assert math.isfinite(log_odds(1.0))


def test_the_engine_uses_what_was_fitted(model: Path, picture: Any) -> None:
    joint = fitted(model)
    clue = Clue.load(model, policy="both")
    assert clue.checkpoint.joint == joint
    view = clue.look(picture)
    features = clue.checkpoint.look(picture)
    alone, _ = clue.checkpoint.judge(features, "the red block")
    own, _ = clue.checkpoint.second_opinion(features, "the red block")
    odds = 0.25 * log_odds(alone) + 1.5 * log_odds(own) - 0.5
    estimate = clue.ambiguity(view, "the red block")
    assert estimate.probability == pytest.approx(1 / (1 + math.exp(-odds)))
    assert estimate.threshold == 0.6
    clue.policy = "detector"
    estimate = clue.ambiguity(view, "the red block")
    assert estimate.probability == pytest.approx(alone)
    assert estimate.threshold == clue.checkpoint.detector.settings.threshold


def test_a_threshold_that_is_given_wins_until_it_is_taken_back(model: Path) -> None:
    fitted(model)
    clue = Clue.load(model, policy="both", threshold=0.9)
    assert clue.threshold == 0.9
    clue.threshold = None
    assert clue.threshold == 0.6


def test_another_adapter_b_was_not_fitted(model: Path, tmp_path: Path) -> None:
    fitted(model)
    other = Path(shutil.copytree(model / IVG, tmp_path / "other"))
    assert load_joint(model / DETECTOR, other) != MEAN, "a copy is the same adapter"
    weights = other / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert load_joint(model / DETECTOR, other) == MEAN
    clue = Clue.load(model, policy="both", ivg=other)
    assert clue.checkpoint.joint == MEAN
    assert clue.threshold == clue.checkpoint.detector.settings.threshold
    assert Clue.load(model, policy="both", detector="decoder-first").checkpoint.joint == MEAN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("detector", "much"),
        ("decoder", True),
        ("bias", 1e9),
        ("threshold", 1.5),
        ("threshold", "x"),
    ],
)
def test_a_broken_file_is_named(model: Path, key: str, value: object) -> None:
    fitted(model)
    path = model / DETECTOR / SETTINGS_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ModelError, match=f"{SETTINGS_FILE}: {key}"):
        Clue.load(model)


def test_the_fit_finds_who_knows_more() -> None:
    """The decoder's odds tell the truth, the detector's are noise; all are 1 too high."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=4000) < 0.5
    knows = np.where(truth, 1.0, -1.0) + rng.normal(size=4000) + 1.0
    odds = np.stack([rng.normal(size=4000), knows], axis=1)
    joint = fit(torch.tensor(odds, dtype=torch.float32), torch.tensor(truth, dtype=torch.float32))
    # of two normal distributions of one width: the distance of their means, and that 1 taken off
    assert joint.detector == pytest.approx(0, abs=0.2)
    assert joint.decoder == pytest.approx(2, rel=0.15)
    assert joint.bias == pytest.approx(-2, rel=0.15)
    assert joint.threshold == pytest.approx(0.5, abs=0.15)
