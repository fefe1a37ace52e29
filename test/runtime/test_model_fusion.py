"""Detector and decoder put together: what is fitted is found again, kept, and used by its pair."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ros_helpers import ROOT
from tiny_model import BOX_STEM, write_random_head, write_random_model

from clue_ros.dialogue.types import Dialogue, Grounding, NotFound, Question
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.images import load_image
from clue_ros.lab.training.fusion import SPARED, TRUSTED, Pointed, fit, fit_box
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.checkpoint import Checkpoint
from clue_ros.model.fusion import (
    SETTINGS_FILE,
    Fusion,
    load_fusion,
    log_odds,
    save_fusion,
    weights_digest,
)
from clue_ros.model.ranking import SETTINGS_FILE as BOX_SCORE_FILE

REQUEST = "pick up the red block"  # the form in which a model reads every request


@pytest.fixture
def model(random_model: Path, tmp_path: Path) -> Path:
    """A copy of the random model that a test may change."""
    return Path(shutil.copytree(random_model, tmp_path / "model"))


def fitted(model: Path, **more: Any) -> Fusion:
    """A fusion of the model's own pair, written where it belongs."""
    numbers: dict[str, Any] = {"detector": 0.25, "decoder": 1.5, "bias": -0.5, "threshold": 0.6}
    fusion = Fusion(
        **{
            **numbers,
            "detector_sha256": weights_digest(model / DETECTOR),
            "ivg_sha256": weights_digest(model / IVG),
            **more,
        }
    )
    save_fusion(fusion, model / DETECTOR, world="blocks")
    return fusion


def test_without_a_fit_the_detector_decides_and_says_so(model: Path, picture: Any) -> None:
    assert load_fusion(model / DETECTOR) is None
    with pytest.warns(UserWarning, match="not fitted .* the detector alone decides.*train policy"):
        clue = Clue.load(model)
    assert clue.policy == "detector"
    assert clue.threshold == clue.checkpoint.detector.settings.threshold
    # An adapter B that nearly always opens with a question cannot make the robot ask.
    clue.checkpoint.second_opinion = lambda *_: pytest.fail("asked")  # type: ignore[method-assign]
    view = clue.look(picture)
    alone, _ = clue.checkpoint.judge(clue.checkpoint.look(picture), REQUEST)
    assert clue.ambiguity(view, REQUEST).probability == pytest.approx(alone)
    clue.policy = "decoder"
    clue.policy = "both"  # as the node does before each reply
    assert clue.policy == "detector"


def test_a_named_policy_needs_no_fit_and_no_warning(
    model: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for policy in ("detector", "decoder"):
        assert Clue.load(model, policy=policy).policy == policy
    assert not [w for w in recwarn if "not fitted" in str(w.message)]


def test_log_odds_of_certainty_are_finite() -> None:
    assert log_odds(0.5) == 0
    assert log_odds(0.0) == pytest.approx(-log_odds(1.0))
    assert math.isfinite(log_odds(1.0))


def test_the_engine_uses_what_was_fitted(model: Path, picture: Any) -> None:
    fusion = fitted(model)
    clue = Clue.load(model, policy="both")
    assert clue.checkpoint.fusion == fusion
    view = clue.look(picture)
    features = clue.checkpoint.look(picture)
    alone, _ = clue.checkpoint.judge(features, REQUEST)
    own, _ = clue.checkpoint.second_opinion(features, REQUEST)
    odds = 0.25 * log_odds(alone) + 1.5 * log_odds(own) - 0.5
    estimate = clue.ambiguity(view, REQUEST)
    assert estimate.probability == pytest.approx(1 / (1 + math.exp(-odds)))
    assert estimate.threshold == 0.6
    clue.policy = "detector"
    estimate = clue.ambiguity(view, REQUEST)
    assert estimate.probability == pytest.approx(alone)
    assert estimate.threshold == clue.checkpoint.detector.settings.threshold


def test_a_threshold_that_is_given_wins_until_it_is_taken_back(model: Path) -> None:
    fitted(model)
    clue = Clue.load(model, policy="both", threshold=0.9)
    assert clue.threshold == 0.9
    clue.threshold = None
    assert clue.threshold == 0.6


def change_weights(folder: Path, name: str = "adapter_model.safetensors") -> None:
    """Flip a bit of a file, as another training would."""
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (DETECTOR, "adapter_model.safetensors"),
        (DETECTOR, "head.safetensors"),
        (IVG, "adapter_model.safetensors"),
    ],
)
def test_a_fit_of_other_weights_is_refused_with_what_to_run(
    model: Path, folder: str, name: str
) -> None:
    fitted(model)
    change_weights(model / folder, name)
    with pytest.raises(ModelError, match="clue train policy --model"):
        Clue.load(model, policy="both")
    clue = Clue.load(model, policy="detector")
    with pytest.raises(ModelError, match="fitted with other weights"):
        clue.policy = "both"
    assert clue.policy == "detector"


def test_a_pair_that_the_caller_chose_is_judged_by_the_detector(
    model: Path, tmp_path: Path
) -> None:
    fitted(model)
    other = Path(shutil.copytree(model / IVG, tmp_path / "other"))
    assert Clue.load(model, policy="both", ivg=other).policy == "both", "a copy"
    change_weights(other)
    for given in ({"ivg": other}, {"detector": "decoder-first"}):
        with pytest.warns(UserWarning, match="not fitted"):
            clue = Clue.load(model, policy="both", **given)
        assert clue.checkpoint.fusion is None
        assert clue.policy == "detector"
        assert clue.threshold == clue.checkpoint.detector.settings.threshold


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("detector", "much"),
        ("decoder", True),
        ("bias", 1e9),
        ("threshold", 1.5),
        ("threshold", "x"),
        ("sure", 0.4),
        ("box", "much"),
        ("box_bias", 1e9),
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
    labels = torch.tensor(truth, dtype=torch.float32)
    fusion = fit(torch.tensor(odds, dtype=torch.float32)[:, None], labels)
    assert fusion.sure == 0.5, "there is one view alone"
    # of two normal distributions of one width: the distance of their means, and that 1 taken off
    assert fusion.detector == pytest.approx(0, abs=0.2)
    assert fusion.decoder == pytest.approx(2, rel=0.15)
    assert fusion.bias == pytest.approx(-2, rel=0.15)
    assert fusion.threshold == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize(("noise", "asks"), [(0.3, True), (8.0, False)])
def test_the_fit_asks_further_views_if_they_help(noise: float, asks: bool) -> None:
    """The first view tells the truth with a noise of 2, the two others with this one."""
    rng = np.random.default_rng(1)
    truth = rng.uniform(size=4000) < 0.5
    signal = np.where(truth, 1.0, -1.0)[:, None]
    knows = signal + rng.normal(size=(4000, 3)) * (2.0, noise, noise)
    odds = np.stack([np.zeros((4000, 3)), knows], axis=2)
    fusion = fit(torch.tensor(odds, dtype=torch.float32), torch.tensor(truth, dtype=torch.float32))
    assert (fusion.sure > 0.5) == asks


def test_the_fit_spares_further_views_that_change_next_to_nothing() -> None:
    """The others correct the first by what is too little where it is sure."""
    rng = np.random.default_rng(2)
    truth = rng.uniform(size=4000) < 0.5
    signal = np.where(truth, 1.0, -1.0)
    first = signal + rng.normal(size=4000)
    knows = np.stack([first, first + signal, first + signal], axis=1)
    odds = torch.tensor(np.stack([np.zeros((4000, 3)), knows], axis=2), dtype=torch.float32)
    fusion = fit(odds, torch.tensor(truth, dtype=torch.float32))
    threshold = fusion.threshold
    assert threshold is not None

    def f1(sure: float) -> float:
        asked = []
        for views in sigmoid(knows):
            for count in (1, 2, 3):
                chance = fusion.agreed([(0.5, view) for view in views[:count]])
                if replace(fusion, sure=sure).is_sure(chance):
                    break
            asked.append(chance >= threshold)
        return float(2 * (truth & asked).sum() / (truth.sum() + sum(asked)))

    assert 0.5 < fusion.sure <= 0.9
    assert f1(1.0) - SPARED < f1(fusion.sure)
    assert f1(fusion.sure) - f1(0.5) > 2 * SPARED, "further views do help where they are asked"


def test_the_fit_of_boxes_points_where_one_in_three_is_right(fresh_seed: int) -> None:
    """The odds that a box is right fall with those of ambiguity and rise with its score's."""
    rng = np.random.default_rng(fresh_seed)
    ambiguity, score = rng.normal(size=(2, 20_000)) * 2
    odds = -1.0 - 0.8 * ambiguity + 0.4 * score
    right = rng.uniform(size=20_000) < sigmoid(odds)
    rows = zip(sigmoid(ambiguity), sigmoid(score), right, strict=True)
    pointed = [Pointed(float(p), float(s), bool(hit)) for p, s, hit in rows]
    fusion = fit_box(Fusion(threshold=0.44), pointed)
    assert fusion.box == pytest.approx(0.5, rel=0.1)
    # On the line where one box in three is right, the probability is the threshold.
    for s in (-2.0, 0.0, 2.0):
        a = (log_odds(TRUSTED) + 1.0 - 0.4 * s) / -0.8
        assert fusion.after(sigmoid(a), sigmoid(s)) == pytest.approx(0.44, abs=0.05)


def test_a_score_that_tells_nothing_changes_no_decision() -> None:
    rows = [Pointed(p, 0.5, p < 0.5) for p in np.linspace(0.05, 0.95, 40)]
    assert fit_box(Fusion(threshold=0.5), rows) == Fusion(threshold=0.5)
    right = [Pointed(0.1, 0.9, True)] * 9
    assert fit_box(Fusion(threshold=0.5), right) == Fusion(threshold=0.5), "all are right"


def sigmoid(odds: Any) -> Any:
    return 1 / (1 + np.exp(-odds))


def test_a_box_that_is_trusted_too_little_becomes_a_question(tmp_path: Path, picture: Any) -> None:
    model = write_random_head(write_random_model(tmp_path / "model", conv_stem=BOX_STEM))
    numbers = {"bias": 0.0, "rating": 0.0, "quality": 0.0, "share": 0.0}  # each score is 0.5
    (model / BOX_SCORE_FILE).write_text(json.dumps(numbers))
    clear = {"detector": 0.0, "decoder": 0.0, "bias": -1.0, "threshold": 0.5}
    replies = []
    for bias in (0.0, 2.0):
        fitted(model, **clear, box=1.0, box_bias=bias)
        clue = Clue.load(model, policy="both", dtype="float32")
        replies.append(clue.reply(clue.look(picture), Dialogue(REQUEST)))
    trusted, doubted = replies
    assert isinstance(trusted, Grounding)
    assert trusted.score == pytest.approx(0.5)
    assert trusted.ambiguity.probability == pytest.approx(sigmoid(-1.0), abs=1e-3)
    assert isinstance(doubted, Question)
    assert doubted.ambiguity.probability == pytest.approx(sigmoid(1.0), abs=1e-3)
    view = clue.look(picture)
    assert isinstance(clue.reply(view, Dialogue(REQUEST), force_grounding=True), Grounding)
    clue.threshold = 0.9
    assert isinstance(clue.reply(view, Dialogue(REQUEST)), Grounding), "a caller decides"


def test_a_box_that_is_trusted_enough_takes_the_place_of_a_denial(
    tmp_path: Path, picture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_random_head(write_random_model(tmp_path / "model", conv_stem=BOX_STEM))
    numbers = {"bias": 0.0, "rating": 0.0, "quality": 0.0, "share": 0.0}  # each score is 0.5
    (model / BOX_SCORE_FILE).write_text(json.dumps(numbers))
    # Random weights deny nothing: a fake of what adapter B writes.
    monkeypatch.setattr(Checkpoint, "words", lambda *_: "i don't see a red block .")
    asks = {"detector": 0.0, "decoder": 0.0, "bias": 1.0, "threshold": 0.5, "box": 1.0}
    replies = []
    for bias in (0.0, -2.0, -20.0):
        fitted(model, **asks, box_bias=bias)
        clue = Clue.load(model, policy="both", dtype="float32")
        replies.append(clue.reply(clue.look(picture), Dialogue(REQUEST)))
        clue.threshold = 0.01
        assert isinstance(clue.reply(clue.look(picture), Dialogue(REQUEST)), NotFound) == (
            bias > -4.0
        ), "a caller decides"
    denied, *pointed = replies
    assert isinstance(denied, NotFound)
    assert denied.ambiguity.probability == pytest.approx(sigmoid(1.0), abs=1e-3)
    for bias, reply in zip((-2.0, -20.0), pointed, strict=True):
        assert isinstance(reply, Grounding)
        assert reply.score == pytest.approx(0.5)
        assert reply.ambiguity.probability == pytest.approx(sigmoid(1.0 + bias), abs=1e-3)
        assert not reply.ambiguity.is_ambiguous


def test_the_decoder_alone_decides_whatever_the_detector_says(household: Any) -> None:
    """Algorithm 1: its first token asks or points."""
    household.policy = "decoder"
    for name, request, kind in (
        ("mugs", "pick up the mug", Question),
        ("ball_block_can", "pick up the ball", Grounding),
    ):
        view = household.look(load_image(ROOT / "demo" / f"{name}.png"))
        for threshold in (0.0, 1.0):
            household.threshold = threshold
            assert isinstance(household.reply(view, Dialogue(request)), kind), (request, threshold)
