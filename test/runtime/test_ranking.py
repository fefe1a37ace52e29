"""Which box is meant: the decoder's ratings, the shortlist, the score, and replies with a head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_model import BOX_STEM, write_random_head, write_random_model

from clue_ros.dialogue.types import Box, Dialogue, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model import policies
from clue_ros.model.box_head import BoxMap
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.location_tokens import LAST
from clue_ros.model.multi_view import Window
from clue_ros.model.policies import Detector
from clue_ros.model.ranking import (
    NOT_SHOWN,
    RATED,
    SETTINGS_FILE,
    SURE_QUALITY,
    BoxScore,
    Evidence,
    shortlist,
)

REQUEST = "pick up the red block"
FIT = {"bias": 2.0, "rating": 1.0, "quality": 0.5, "share": 1.5}


def image(seed: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a box head that always points."""
    folder = tmp_path_factory.mktemp("ranked") / "model"
    return write_random_head(write_random_model(folder, seed=4, threshold=1, conv_stem=BOX_STEM))


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_a_rated_box_has_the_score_that_saying_it_has(
    headed: Path, backend: str, fresh_seed: int
) -> None:
    checkpoint = load_checkpoint(headed, backend=backend, dtype="float32", device="cpu")
    features = checkpoint.look(image(fresh_seed, 60, 80), image(fresh_seed + 1, 80, 60))
    prefill = checkpoint.read(features, REQUEST)
    said = checkpoint.point(features, REQUEST, prefill)
    codes = np.array([[reply.codes, (3, 5, 700, 900), (0, 0, LAST, LAST)] for reply in said])
    rated = checkpoint.rate(prefill, codes)
    assert rated.shape == (2, 3)
    assert rated[:, 0] == pytest.approx(np.log([reply.score for reply in said]), abs=1e-3)
    assert np.array_equal(rated, checkpoint.rate(prefill, codes))  # nothing is used up


def test_both_backbones_point_at_the_same_box(headed: Path, fresh_seed: int) -> None:
    picture = image(fresh_seed, 90, 160)
    replies = []
    for backend in ("openvino", "torch"):
        clue = Clue.load(
            headed, backend=backend, dtype="float32", device="cpu", policy="detector", num_views=3
        )
        reply = clue.reply(clue.look(picture), Dialogue(REQUEST), force_grounding=True)
        assert isinstance(reply, Grounding)
        replies.append(reply)
    one, other = replies
    assert one.box.as_tuple() == pytest.approx(other.box.as_tuple(), abs=0.1)
    assert one.score == pytest.approx(other.score, abs=1e-3)
    assert 0 <= one.box.x_min < one.box.x_max <= 160
    assert 0 <= one.box.y_min < one.box.y_max <= 90


def test_the_head_is_asked_where_the_decoder_leaves_a_doubt(headed: Path, fresh_seed: int) -> None:
    picture = image(fresh_seed, 90, 160)
    clue = Clue.load(headed, device="cpu", policy="detector", num_views=3)
    policy = clue.decides
    assert isinstance(policy, Detector)

    def point(doubtful: float) -> tuple[Box, Evidence | None]:
        clue.doubtful_score = doubtful
        found = policy.point(clue.look(picture), REQUEST)[1]
        return found.box, found.evidence

    _, asked = point(1.0)
    box, sure = point(0.0)
    assert asked is not None
    assert sure is not None
    assert (asked.quality == SURE_QUALITY, sure.quality == SURE_QUALITY) == (False, True)
    said = clue.checkpoint.speak(clue.look(picture).features, REQUEST, "grounding")
    assert sure.rating == pytest.approx(np.log(said.score), abs=0.01)
    assert said.codes is not None
    assert box == Window(0, 0, 160, 90, 160, 90).box(said.codes)


def test_a_doubtful_box_is_looked_at_from_farther_off(
    headed: Path, fresh_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = image(fresh_seed, 90, 160)
    path = headed / SETTINGS_FILE
    try:
        path.write_text(json.dumps(FIT))
        clue = Clue.load(headed, device="cpu", policy="detector", num_views=3)
    finally:
        path.unlink()
    policy, view = clue.decides, clue.look(picture)
    assert isinstance(policy, Detector)
    for name, value in (("LARGE", 0.0), ("SMALL", 0.0), ("SEVERAL", 1.1), ("DOUBTED", 0.0)):
        monkeypatch.setattr(policies, name, value)
    near = policy.point(view, REQUEST)[1]
    monkeypatch.setattr(policies, "DOUBTED", 1.1)
    found = policy.point(view, REQUEST)[1]
    afar, window = view.afar
    assert (afar.width, afar.height) == (256, 144)
    assert np.array_equal(afar.image, window.onto(picture))
    assert np.allclose(afar.features, clue.checkpoint.look(afar.image), atol=1e-2)
    monkeypatch.setattr(policies, "DOUBTED", 0.0)
    far = policy.point(afar, REQUEST)[1]
    seen = far.box.moved(window.x_min, window.y_min).clipped(160.0, 90.0)
    is_far = far.score > near.score and seen.area > 0
    assert found.score == pytest.approx(far.score if is_far else near.score, abs=1e-3)
    assert found.box.as_tuple() == pytest.approx((seen if is_far else near.box).as_tuple(), abs=0.1)
    monkeypatch.setattr(policies, "DOUBTED", 1.1)
    for name, value in (("LARGE", 1.1), ("SMALL", 1.1), ("SEVERAL", -0.1)):
        with monkeypatch.context() as spared:
            spared.setattr(policies, name, value)
            assert policy.point(view, REQUEST)[1].score == pytest.approx(near.score, abs=1e-3)
    other = clue.look(picture[::-1].copy())
    clue.num_views = 1  # a robot that has to be fast
    monkeypatch.setattr(clue.checkpoint, "look", None)
    policy.point(other, REQUEST)


def test_a_head_that_knows_the_object_corrects_its_extent() -> None:
    """The decoder said a part; the head has the whole; the map lies on it."""
    whole, elsewhere = [0.2, 0.2, 0.8, 0.4], [0.5, 0.6, 0.9, 0.9]
    boxes = np.array([[whole, elsewhere]], np.float32)
    found = BoxMap(boxes, np.array([[0.9, 0.9]], np.float32), np.ones((1, 2), np.float32))
    attention = np.zeros((10, 10), np.float32)
    attention[2:4, 2:8] = 1
    part = Box(0.2, 0.2, 0.5, 0.4)
    listed = shortlist(found, attention, [part])
    assert [box.as_tuple() for box in listed.boxes[:2]] == [
        part.as_tuple(),
        pytest.approx(whole, abs=1e-6),
    ]
    at, evidence = listed.best(np.array([[-0.3, -0.5, -3.0]]))
    assert at == 1
    assert evidence.rating == -0.5
    assert evidence.share == pytest.approx(0, abs=0.01)
    # A decoder that rules the whole out keeps its own.
    assert listed.best(np.array([[-0.3, -9.0, -9.0]]))[0] == 0


def test_a_shortlist_is_short_and_needs_no_object() -> None:
    rng = np.random.default_rng(0)
    low = rng.random((30, 40, 2)) * 0.9
    boxes = np.concatenate([low, low + 0.05], -1).astype(np.float32)
    scores = rng.random((30, 40)).astype(np.float32)
    attention = rng.random((18, 18)).astype(np.float32)
    own = [Box(0.1, 0.1, 0.3, 0.3), Box(0.2, 0.1, 0.3, 0.3)]
    listed = shortlist(BoxMap(boxes, scores, scores), attention, own)
    assert len(listed.boxes) == RATED + 2
    assert listed.boxes[:2] == own
    nothing = shortlist(BoxMap(boxes, scores, np.zeros_like(scores)), attention, own)
    assert nothing.boxes == own
    assert np.isfinite(nothing.worth).all()


def test_a_view_rates_the_boxes_that_it_shows() -> None:
    window = Window(100, 0, 200, 100, 400, 100)
    assert window.codes(Box(100, 0, 200, 100)) == (0, 0, LAST, LAST)
    assert window.codes(Box(150, 50, 175, 100)) == (512, 512, LAST, 767)
    assert window.codes(Box(0, 0, 90, 50)) is None
    assert window.codes(Box(0, 0, 120, 50)) is None  # a sixth of it
    assert NOT_SHOWN < -6


def test_a_fit_makes_the_score_a_probability(headed: Path) -> None:
    picture = image(7, 90, 160)

    def score() -> float:
        clue = Clue.load(headed, device="cpu", policy="detector")
        reply = clue.reply(clue.look(picture), Dialogue(REQUEST), force_grounding=True)
        assert isinstance(reply, Grounding)
        return reply.score

    path = headed / SETTINGS_FILE
    before = score()
    try:
        path.write_text(json.dumps(FIT))
        after = score()
        assert 0 <= after <= 1
        assert after != before
        path.write_text(json.dumps({**FIT, "bias": FIT["bias"] + 30}))
        assert score() > 0.99
        for broken, wrong in (({"share": "much"}, "share 'much'"), ({"bias": 1e9}, "bias")):
            path.write_text(json.dumps({**FIT, **broken}))
            with pytest.raises(ModelError, match=rf"box_head\.json: {wrong}"):
                load_checkpoint(headed, device="cpu")
        path.write_text("{}")
        with pytest.raises(ModelError, match="does not say bias"):
            load_checkpoint(headed, device="cpu")
    finally:
        path.unlink(missing_ok=True)
    assert BoxScore(**FIT).of(Evidence(-0.5, -1.5, -0.5)) == pytest.approx(0.5)
