"""A model that keeps a bound on wrong boxes: what it points at, shows first, and reports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clue_ros.cli import main
from clue_ros.dialogue.conversation import Ask, Conversation, converse
from clue_ros.dialogue.types import Dialogue, Grounding, NotFound, Question
from clue_ros.engine import Clue
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.images import load_image
from clue_ros.model.loading import demo_folder
from clue_ros.model.risk import Calibration, pooled, save_calibration

SURE, UNSURE = "pick up the plate", "give me the white dish"  # of plate.jpg


@pytest.fixture(scope="module")
def plate() -> Any:
    return load_image(demo_folder() / "photos" / "plate.jpg")


@pytest.fixture(scope="module")
def calibrate(tmp_path_factory: pytest.TempPathFactory, plate: Any) -> Callable[..., Clue]:
    """A model with a calibration that points at boxes of a trust above 0.9 with max_risk 0.05."""
    path = tmp_path_factory.mktemp("model") / "calibration.json"
    clue = Clue.load(calibration=path)
    seen = pooled(clue.look(plate).features)
    pictures = tuple(map(tuple, (seen, seen + 0.3)))
    labels = (0.9, *[0.95] * 50), (True, *[False] * 50)
    own = Calibration(*labels, pictures, **clue.decision())

    def made(**changes: Any) -> Clue:
        clue.policy, clue.threshold, clue.num_views = "both", None, None
        save_calibration(replace(own, **changes), path)
        clue.max_risk = 0.05
        return clue

    return made


def test_boxes_that_are_trusted_too_little_are_shown_first(
    calibrate: Callable[..., Clue], plate: Any
) -> None:
    clue = calibrate()
    assert clue.not_promised == ""
    view = clue.look(plate)
    sure, unsure = (clue.reply(view, Dialogue(text)) for text in (SURE, UNSURE))
    assert isinstance(sure, Grounding)
    assert (sure.max_risk, sure.confirmed) == (0.05, False)
    assert isinstance(unsure, Question)
    assert not isinstance(unsure, NotFound)
    assert (unsure.confirm, unsure.max_risk) == (True, 0.05)
    assert unsure.text == "Do you mean this one, the white dish?"
    forced = clue.reply(view, Dialogue(UNSURE), force_grounding=True)
    assert isinstance(forced, Grounding)
    assert unsure.candidates == (forced.box,), "the very box that it would have pointed at"
    assert math.isnan(forced.max_risk), "nothing is promised where it must point"
    clue.max_risk = None
    assert isinstance(clue.reply(view, Dialogue(UNSURE)), Grounding)


def test_yes_points_at_the_box_that_was_shown(calibrate: Callable[..., Clue], plate: Any) -> None:
    clue = calibrate()
    asked: list[Any] = []
    outcome = converse(clue, clue.look(plate), Conversation(UNSURE), lambda _: "yes", asked.append)
    assert outcome is not None
    assert outcome.grounding is not None
    assert outcome.grounding.box == asked[0].candidates[0]
    assert (outcome.grounding.confirmed, outcome.grounding.max_risk) == (True, 0.05)


def test_this_one_is_asked_in_the_language_of_the_dialogue(
    calibrate: Callable[..., Clue], plate: Any
) -> None:
    clue = calibrate()
    conversation = Conversation(UNSURE, language="fr")
    reply = conversation.hold(clue.reply(clue.look(plate), conversation.dialogue))
    step = conversation.reply(reply)
    assert isinstance(step, Ask)
    assert step.question.text == "Voulez-vous dire celui-ci : white dish ?"


def test_after_an_answer_in_words_a_box_is_shown(
    calibrate: Callable[..., Clue], plate: Any
) -> None:
    clue = calibrate()
    dialogue = Dialogue(SURE)
    dialogue.add_question("which one ?")
    dialogue.add_answer("the white one")
    reply = clue.reply(clue.look(plate), dialogue)
    assert isinstance(reply, Question)
    assert reply.confirm


def test_on_an_unknown_table_every_box_is_shown(calibrate: Callable[..., Clue]) -> None:
    clue = calibrate()
    view = clue.look(load_image(demo_folder() / "photos" / "hammer_blue.jpg"))
    reply = clue.reply(view, Dialogue("grab the hammer"))
    assert isinstance(reply, Question)
    assert reply.confirm
    assert math.isnan(reply.max_risk)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policy": "detector"}, "with another policy"),
        ({"num_views": 1}, "another num_views"),
        ({"weights": "0"}, "with other weights"),
        ({"threshold": 0.3}, "holds up to that, not for 0.44"),
        ({"trusts": (0.9,) * 44, "wrong": (False,) * 44}, "needs 45 labelled requests"),
    ],
)
def test_what_was_not_calibrated_is_not_promised(
    calibrate: Callable[..., Clue], plate: Any, changes: dict[str, Any], reason: str
) -> None:
    clue = calibrate(**changes)
    assert reason in clue.not_promised
    reply = clue.reply(clue.look(plate), Dialogue(SURE))
    assert isinstance(reply, Question)
    assert reply.confirm
    assert math.isnan(reply.max_risk)


def test_a_lower_threshold_only_asks_more(calibrate: Callable[..., Clue]) -> None:
    clue = calibrate()
    clue.threshold = 0.2
    assert clue.not_promised == ""
    clue.threshold = 0.9
    assert "make a new one" in clue.not_promised


def test_without_a_calibration_it_says_so_and_shows_every_box(plate: Any) -> None:
    with pytest.warns(ClueWarning, match="clue calibrate"):
        clue = Clue.load(max_risk=0.05)
    reply = clue.reply(clue.look(plate), Dialogue(SURE))
    assert isinstance(reply, Question)
    assert reply.confirm


def test_a_file_that_is_not_there_or_broken_is_named(tmp_path: Path) -> None:
    missing, broken = tmp_path / "none.json", tmp_path / "broken.json"
    broken.write_text('{"trusts": [0.5], "wrong": []}', encoding="utf-8")
    for path in (missing, broken):
        with pytest.raises(ModelError, match=path.name):
            Clue.load(calibration=path, max_risk=0.05)
    with pytest.raises(ModelError, match=r"max_risk 1\.5 is no share"):
        Clue.load(max_risk=1.5)


def test_the_command_shows_a_box_and_points_after_yes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture = str(demo_folder() / "photos" / "plate.jpg")
    words = ["ground", picture, SURE, "--max-risk", "0.05", "--answer", "yes", "--json"]
    with pytest.warns(ClueWarning, match="every box is shown"):
        assert main(words) == 0
    question, grounding = map(json.loads, capsys.readouterr().out.splitlines())
    assert (question["type"], question["confirm"]) == ("question", True)
    assert (grounding["confirmed"], grounding["max_risk"]) == (True, None)
    assert grounding["box"] == question["candidates"][0]
