"""Policy "zero-shot": a base without adapters asks and points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from clue_ros.dialogue import Box, Dialogue, Grounding, NotFound, Question, Turn
from clue_ros.dialogue.candidates import Candidate, with_label_attributes
from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.types import AmbiguityEstimate
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.images import load_image
from clue_ros.model.loading import DEFAULT_MODEL, find_model
from clue_ros.model.tasks import WHAT_COLOR, WHAT_IS, Detection
from clue_ros.model.zero_shot import (
    Evidence,
    ZeroShotSettings,
    judge,
    load_zero_shot,
    reply_to,
    save_zero_shot,
    share_of_map,
)

PHOTOS = Path(__file__).parents[2] / "demo" / "photos"


def box(x: float, y: float, side: float = 40) -> Box:
    """A square around a point in pixels."""
    return Box(x - side / 2, y - side / 2, x + side / 2, y + side / 2)


LEFT, MIDDLE, RIGHT = box(60, 100), box(150, 100), box(240, 100)


class ScriptedBase:
    """A fake base: what it detects by name, what it answers by question and box."""

    size = (300, 200)

    def __init__(
        self,
        boxes: Mapping[str, Sequence[tuple[Box, str]]],
        answers: Mapping[str, Sequence[str]] | None = None,
        odds: Mapping[str, Sequence[float | None]] | None = None,
        going_on: float = 0.02,
        score: float = 0.9,
    ) -> None:
        self.boxes, self.answers, self.odds = boxes, answers or {}, odds or {}
        self.going_on, self.score = going_on, score
        self.asked: list[str] = []

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """The boxes in the script; none for another name."""
        found = []
        for name in names:
            listed = [
                with_label_attributes(Candidate(b, label, self.score, "scripted"))
                for b, label in self.boxes.get(name, ())
            ]
            found.append(Detection(tuple(listed), self.going_on))
        return found

    def answer(self, question: str, boxes: Sequence[Box]) -> list[str]:
        """The answers in the script; prose for another question."""
        self.asked.append(question)
        return list(self.answers.get(question, ["i am a picture, not a person"] * len(boxes)))

    def yes_or_no(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        """The log odds in the script; no opinion about another question."""
        self.asked.append(question)
        return list(self.odds.get(question, [None] * len(boxes)))

    def map(self, text: str) -> npt.NDArray[np.float32]:
        """One peak at the upper right."""
        attention = np.zeros((8, 8), np.float32)
        attention[1, 6] = 1
        return attention


def reply(
    base: ScriptedBase, request: str, *turns: Turn, force: bool = False
) -> Question | Grounding:
    """The reply to a dialogue."""
    judged = judge(base, Dialogue(request, turns), ZeroShotSettings())
    estimate = AmbiguityEstimate(judged.probability, 0.5, judged.attention, judged.peaks, 0.0)
    return reply_to(base, judged.standing, estimate, ZeroShotSettings(), force_grounding=force)


def heard(question: Question | Grounding, answer: str) -> tuple[Turn, Turn]:
    """The turns of a question and its answer."""
    assert isinstance(question, Question)
    return Turn("robot", question.text), Turn("user", answer)


TWO = {"mug": [(LEFT, "red mug"), (RIGHT, "blue mug")]}


def test_one_box_is_pointed_at_and_its_probability_is_low() -> None:
    found = reply(ScriptedBase({"mug": [(LEFT, "mug")]}), "pick up the mug")
    assert isinstance(found, Grounding)
    assert (found.box, found.label, found.score) == (LEFT, "mug", 0.9)
    assert 0 < found.ambiguity.probability < 0.5


def test_an_answer_that_nearly_went_on_is_less_sure() -> None:
    sure, unsure = (
        judge(
            ScriptedBase({"mug": [(LEFT, "mug")]}, going_on=p),
            Dialogue("the mug"),
            ZeroShotSettings(),
        ).probability
        for p in (0.01, 0.9)
    )
    assert sure < unsure


def test_two_boxes_are_asked_about_by_the_colours_of_their_labels() -> None:
    base = ScriptedBase(TWO)
    question = reply(base, "the mug")
    assert isinstance(question, Question)
    assert question.text == "The red one or the blue one?"
    assert question.candidates == (LEFT, RIGHT)
    assert question.suggested_answers == ("the red one", "the blue one")
    assert not base.asked
    found = reply(base, "the mug", *heard(question, "the blue one"))
    assert isinstance(found, Grounding)
    assert found.box == RIGHT


def test_colours_are_asked_of_the_base_where_labels_lack_them() -> None:
    boxes = {"mug": [(LEFT, "mug"), (RIGHT, "mug")]}
    colors = {"what color is the mug?": ["Green", "white."]}
    question = reply(ScriptedBase(boxes, colors), "the mug")
    assert isinstance(question, Question)
    assert question.text == "The green one or the white one?"
    for answer in ("not green", "the second one", "white", "the white mug please"):
        answered = reply(ScriptedBase(boxes, colors), "the mug", *heard(question, answer))
        assert isinstance(answered, Grounding), answer
        assert answered.box == RIGHT


def test_prose_in_place_of_a_colour_is_left_out_and_geometry_asks() -> None:
    question = reply(ScriptedBase({"mug": [(LEFT, "mug"), (RIGHT, "mug")]}), "the mug")
    assert isinstance(question, Question)
    assert question.text == "The left one or the right one?"


def test_nothing_found_is_said_and_another_request_is_heard() -> None:
    base = ScriptedBase({"bowl": [(MIDDLE, "bowl")]})
    missing = reply(base, "pick up the apple")
    assert isinstance(missing, NotFound)
    assert (missing.text, missing.missing) == ("I don't see an apple.", "an apple")
    assert missing.ambiguity.is_ambiguous
    found = reply(base, "pick up the apple", *heard(missing, "then the bowl"))
    assert isinstance(found, Grounding)
    assert (found.box, found.label) == (MIDDLE, "bowl")


def test_where_the_base_says_that_there_is_one_the_map_is_proposed() -> None:
    base = ScriptedBase({}, odds={"is there a mug in the image?": [3.0]})
    question = reply(base, "the mug")
    assert isinstance(question, Question)
    assert question.suggested_answers == ("yes", "no")
    (proposed,) = question.candidates
    assert proposed.x_min >= 200
    no = ScriptedBase({}, odds={"is there a mug in the image?": [-3.0]})
    assert isinstance(reply(no, "the mug"), NotFound)


def test_an_answer_in_other_words_is_found_by_detecting_it() -> None:
    base = ScriptedBase(
        {"mug": [(LEFT, "mug"), (RIGHT, "mug")], "mug chipped": [(RIGHT, "mug")],
         "chipped mug": [(RIGHT, "mug")]}
    )  # fmt: skip
    question = reply(base, "the mug")
    found = reply(base, "the mug", *heard(question, "the chipped one"))
    assert isinstance(found, Grounding)
    assert found.box == RIGHT


def test_an_answer_in_other_words_is_found_by_yes_or_no_on_the_crops() -> None:
    boxes = {"mug": [(LEFT, "mug"), (MIDDLE, "mug"), (RIGHT, "mug")]}
    base = ScriptedBase(boxes, odds={"is this chipped mug?": [2.0, -3.0, 1.0]})
    question = reply(base, "the mug")
    second = reply(base, "the mug", *heard(question, "the chipped one"))
    assert isinstance(second, Question)
    assert second.candidates == (LEFT, RIGHT)


def test_after_an_answer_that_changes_nothing_it_asks_again() -> None:
    base = ScriptedBase({"mug": [(LEFT, "mug"), (RIGHT, "mug")]})
    question = reply(base, "the mug")
    again = reply(base, "the mug", *heard(question, "the chipped one"))
    assert isinstance(again, Question)
    assert isinstance(question, Question)
    assert again.text == question.text
    forced = reply(base, "the mug", *heard(question, "the chipped one"), force=True)
    assert isinstance(forced, Grounding)


def test_forced_with_nothing_found_points_where_the_map_is_highest() -> None:
    found = reply(ScriptedBase({}), "the mug", force=True)
    assert isinstance(found, Grounding)
    assert found.score == 0
    assert found.box.center[0] > 150


def test_refusing_all_is_no_crash_and_says_that_there_is_no_other() -> None:
    base = ScriptedBase(TWO)
    answered = reply(base, "the mug", *heard(reply(base, "the mug"), "neither"))
    assert isinstance(answered, NotFound)
    assert answered.text == "I don't see another mug."


def test_peaks_are_the_candidates_with_their_share_of_the_map() -> None:
    judged = judge(
        ScriptedBase({"mug": [(LEFT, ""), (box(240, 40, 60), "")]}),
        Dialogue("the mug"),
        ZeroShotSettings(),
    )
    assert [round(peak.score, 3) for peak in judged.peaks] == [0.0, 1.0]
    assert share_of_map(np.zeros((4, 4), np.float32), LEFT, 300, 200).score == 0.0


def test_places_are_the_bases_own_only_where_it_was_found_to_know_them() -> None:
    boxes = {"mug": [(LEFT, "mug"), (RIGHT, "mug")], "leftmost mug": [(RIGHT, "mug")]}
    request = Dialogue("the leftmost mug")
    for knows, want in ((False, LEFT), (True, RIGHT)):
        judged = judge(ScriptedBase(boxes), request, ZeroShotSettings(knows_places=knows))
        assert [c.box for c in judged.standing.candidates] == [want]


def test_settings_are_read_and_checked(tmp_path: Path) -> None:
    assert load_zero_shot(tmp_path) == ZeroShotSettings()
    settings = ZeroShotSettings(bias=-1.5, threshold=0.4)
    save_zero_shot(settings, tmp_path / "zero_shot.json", world="rich")
    assert load_zero_shot(tmp_path) == settings
    for wrong in ({"bias": "x"}, {"threshold": 2}, {"knows_places": 1}):
        (tmp_path / "zero_shot.json").write_text(json.dumps(wrong))
        with pytest.raises(ModelError, match=r"zero_shot\.json"):
            load_zero_shot(tmp_path)


def test_a_probability_rises_with_each_doubt() -> None:
    settings = ZeroShotSettings()
    one = settings.probability(Evidence(-4, 0, 0.1, 0, 0))
    assert one < settings.probability(Evidence(0, 0.8, 0.1, 0, 0))
    assert one < settings.probability(Evidence(0, 0, 0, 1, 0))


# -------------------------------------------------------------------------------------------------
# The embedded bases, without their adapters.


def base_alone(name: str, folder: Path) -> Path:
    """A model folder with links to a model's base and nothing else."""
    for path in find_model(name).iterdir():
        if path.is_file():
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def clue(tmp_path_factory: pytest.TempPathFactory) -> Clue:
    """The embedded base without adapters."""
    return Clue.load(base_alone(DEFAULT_MODEL, tmp_path_factory.mktemp("base")))


def test_an_embedded_base_alone_replies_about_photographs(clue: Clue) -> None:
    assert clue.policy == "zero-shot"
    view = clue.look(load_image(PHOTOS / "coffee.jpg"))
    for text in ("pick up the mug", "the left one", "zzz", "<loc0001> ; <eos>"):
        answered = clue.reply(view, Dialogue(text))
        estimate = answered.ambiguity
        assert 0 <= estimate.probability <= 1
        assert estimate.attention.shape == (clue.grid, clue.grid)
        assert isinstance(answered, Question) == estimate.is_ambiguous
        assert len(clue.peak_masks(view, estimate)) == len(estimate.peaks)
    forced = clue.reply(view, Dialogue("pick up the mug"), force_grounding=True)
    assert isinstance(forced, Grounding)


def test_the_base_tells_colours_and_kinds_of_boxes_in_a_picture(clue: Clue) -> None:
    view = clue.look(load_image(PHOTOS.parent / "mugs.png"))
    mugs = sorted(view.base.detect(["mug"])[0].candidates, key=lambda c: c.box.center[0])
    boxes = [c.box for c in mugs]
    assert view.base.answer(WHAT_COLOR.format("mug"), boxes) == ["pink", "purple", "black"]
    assert view.base.answer(WHAT_IS, boxes) == ["mug"] * 3
    outside = Box(-20, 460, -10, 700)  # of a detector that does not know the picture's rim
    assert len(view.base.answer(WHAT_COLOR.format("mug"), [outside])) == 1


def test_what_the_base_has_said_of_a_picture_is_kept_for_the_next_turn(clue: Clue) -> None:
    picture = load_image(PHOTOS.parent / "mugs.png")
    base = clue.look(picture).base
    assert clue.look(picture.copy()).base is base
    assert clue.look(picture[:-1]).base is not base


def test_an_embedded_base_alone_holds_a_conversation(clue: Clue) -> None:
    view = clue.look(load_image(PHOTOS / "coffee.jpg"))
    conversation = Conversation("pick up the mug", force_grounding=True)
    outcome = converse(clue, view, conversation, lambda asked: "the left one")
    assert outcome is not None
    assert outcome.code == "NONE"


def test_a_view_of_another_clue_is_looked_at_again(clue: Clue, picture: Any) -> None:
    other = Clue.load(clue.model_name)
    text = Dialogue("the red block")
    here = clue.reply(clue.look(picture), text)
    there = other.reply(clue.look(picture), text)
    # Up to mixed precision, which ends where a test before has asked for the whole model.
    assert here.ambiguity.probability == pytest.approx(there.ambiguity.probability, abs=1e-3)
