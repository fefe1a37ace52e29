"""`clue:` beside a detector: what the robot does where the two agree, and where they differ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import write_random_model

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import ModelError
from clue_ros.grounders import load_grounder
from clue_ros.wrapper.clue_source import (
    CHOOSER_WEIGHT,
    SURE,
    ClueSource,
    agreed_probability,
    agreed_thing,
)
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.sources import CallableSource, DetectedObjects

LEFT, RIGHT, PLATE = Box(10, 10, 40, 40), Box(60, 10, 90, 40), Box(20, 60, 80, 95)
ELSEWHERE = Box(2, 70, 18, 98)
IMAGE = np.full((100, 100, 3), (150, 120, 90), np.uint8)


class ScriptedClue(ClueSource):
    """A fake of the model: one probability, one box, one thing to say, whatever it hears."""

    def __init__(
        self,
        probability: float,
        box: Box = LEFT,
        score: float = 0.9,
        *,
        said: str = "the left one or the right one ?",
        known: bool = True,
    ) -> None:
        self.name = "clue:scripted"
        self.probability, self.box, self.score = probability, box, score
        self.said, self.known, self.asked = said, known, 0

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def knows(self, dialogue: Dialogue) -> bool:
        """As it was scripted."""
        return self.known

    def ambiguity(self, image: Any, dialogue: Dialogue) -> AmbiguityEstimate:
        """The scripted probability, with a threshold of 0.4."""
        self.asked += 1
        return AmbiguityEstimate(self.probability, 0.4, np.zeros((4, 4), np.float32), (), 0.0)

    def reply(self, image: Any, dialogue: Dialogue) -> Question | Grounding:
        """The scripted sentence from its threshold on; "i don't see" is NotFound."""
        estimate = self.ambiguity(image, dialogue)
        if not estimate.is_ambiguous:
            return self.point(image, dialogue)
        if self.said.startswith("i don't see"):
            return NotFound(self.said, (), (), estimate, "a mug")
        return Question(self.said, (), (), estimate)

    def point(self, image: Any, dialogue: Dialogue) -> Grounding:
        """The scripted box."""
        return Grounding(self.box, "mug", self.score, self.ambiguity(image, dialogue))


def reply(
    clue: ClueSource, request: str, *labels: str, force: bool = False
) -> Question | Grounding:
    """The reply with a detector that lists things with these labels at LEFT, RIGHT and PLATE."""
    boxes = (LEFT, RIGHT, PLATE)
    listed = [(box, label, 0.8) for box, label in zip(boxes, labels, strict=False)]
    detector = CallableSource(lambda image, nouns: listed, "detector", open_vocabulary=False)
    wrapper = Wrapper([detector, clue])
    return wrapper.reply(wrapper.look(IMAGE), Dialogue(request), force_grounding=force)


def pointed(found: Question | Grounding) -> Box:
    assert isinstance(found, Grounding), found
    return found.box


def test_where_both_are_certain_the_detectors_box_is_pointed_at() -> None:
    near = Box(12, 11, 41, 42)
    assert pointed(reply(ScriptedClue(0.05, near), "the mug", "mug", "bowl", "plate")) == LEFT


def test_of_several_that_match_a_certain_clue_means_the_one_under_its_box() -> None:
    found = reply(ScriptedClue(0.02, RIGHT), "the mug next to the plate", "mug", "mug", "plate")
    assert pointed(found) == RIGHT


def test_clue_asks_about_what_the_detector_overlooks() -> None:
    found = reply(ScriptedClue(0.9), "the mug", "mug")
    assert isinstance(found, Question)
    assert found.text == "the left one or the right one ?"
    assert found.ambiguity.probability < 0.9, "the detector lists only one"


def test_the_detector_asks_in_its_own_words_where_it_lists_several() -> None:
    found = reply(ScriptedClue(0.9, said="which ?"), "the mug", "mug", "mug", "plate")
    assert isinstance(found, Question)
    assert found.text != "which ?"
    assert {LEFT, RIGHT} == set(found.candidates)


def test_a_sure_box_elsewhere_replaces_the_only_thing_and_an_unsure_one_does_not() -> None:
    sure, unsure = (ScriptedClue(0.05, ELSEWHERE, SURE + d) for d in (0.05, -0.05))
    assert pointed(reply(sure, "the mug", "mug")) == ELSEWHERE
    assert pointed(reply(unsure, "the mug", "mug")) == LEFT


def test_what_the_detector_lists_is_not_denied_and_what_nobody_sees_is() -> None:
    denies = ScriptedClue(0.97, said="i don't see a mug .")
    found = reply(denies, "the mug", "mug")
    assert pointed(found) == LEFT
    assert found.ambiguity.probability < 0.5
    found = reply(denies, "the mug", "bowl", "spoon")
    assert isinstance(found, NotFound)
    assert found.text == "i don't see a mug ."


def test_clue_points_at_what_the_detector_calls_otherwise() -> None:
    found = reply(ScriptedClue(0.05, RIGHT), "the mug", "bowl", "vase")
    assert pointed(found) == RIGHT, "the box of the detector, whatever its label"


def test_a_forced_robot_points() -> None:
    assert pointed(reply(ScriptedClue(0.9, RIGHT), "the mug", "mug", "mug", force=True)) == RIGHT


def test_a_model_that_lacks_a_word_has_no_say() -> None:
    ignorant = ScriptedClue(0.99, ELSEWHERE, known=False)
    assert pointed(reply(ignorant, "the stapler", "stapler", "mug")) == LEFT
    assert ignorant.asked == 0


def test_the_probability_is_between_the_two_and_compared_with_the_choosers_threshold() -> None:
    clue = AmbiguityEstimate(0.4, 0.4, np.zeros((4, 4), np.float32), (), 0.0)
    assert agreed_probability(0.5, 0.5, clue) == pytest.approx(0.5)
    assert agreed_probability(0.7, 0.7, clue) == pytest.approx(0.7)
    over = math.log(0.95 / 0.05) * CHOOSER_WEIGHT
    assert agreed_probability(0.95, 0.5, clue) == pytest.approx(1 / (1 + math.exp(-over)))
    for certain in (0.0, 1.0):
        assert 0 < agreed_probability(certain, 0.5, clue) < 1


def test_of_what_is_left_the_surest_stands_where_clue_is_unsure() -> None:
    estimate = AmbiguityEstimate(0.4, 0.4, np.zeros((4, 4), np.float32), (), 0.0)
    two = [Candidate(LEFT, "mug", 0.6), Candidate(RIGHT, "mug", 0.7)]
    unsure = Grounding(PLATE, "mug", SURE - 0.1, estimate)
    assert agreed_thing(two, two, unsure).box == RIGHT
    assert agreed_thing([], [], unsure).box == PLATE


def test_a_line_names_it_and_it_is_no_detector(tmp_path: Path) -> None:
    write_random_model(tmp_path / "model")
    line = f"clue:{tmp_path / 'model'}"
    with pytest.raises(ModelError, match="list no boxes: name a detector beside it"):
        load_grounder("wrapper", candidates=[line])
    with pytest.raises(ModelError, match="lists no objects"):
        DetectedObjects([line])
    (tmp_path / "boxes.json").write_text('[{"box": [10, 10, 40, 40], "label": "block"}]')
    wrapper = Wrapper.load([f"json:{tmp_path / 'boxes.json'}", line])
    with pytest.raises(ModelError, match="name one of them"):
        Wrapper([*wrapper.sources, wrapper.sources[1]])
    assert line in wrapper.model_name
    assert wrapper.memory_bytes() > 0
    wrapper.warm_up()
    view = wrapper.look(IMAGE)
    found = wrapper.reply(view, Dialogue("the red block"), force_grounding=True)
    assert isinstance(found, Grounding)
    estimate = wrapper.ambiguity(view, "the red block")
    assert 0 < estimate.probability < 1
    assert [c.source for c in wrapper.candidates(view, Dialogue("the red block"))] == ["json"]
