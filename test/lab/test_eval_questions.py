"""Which questions help, by the data's truth."""

from __future__ import annotations

import numpy as np
import pytest

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Question
from clue_ros.lab.evaluation.questions import judge_question, share_of_helpful

ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
LEFT, MIDDLE, RIGHT = (Box(x, 0, x + 10, 10) for x in (0.0, 20.0, 40.0))
PAIR = "the red one or the blue one?", (LEFT, RIGHT), ("the red one", "the blue one"), ESTIMATE


def judged(question: Question, said: str, *meant: Box) -> tuple[bool, bool]:
    found = judge_question(question, [said], meant)
    return found["offers"], found["new"]


def test_two_answers_that_mean_different_things_help() -> None:
    bound = Question(*PAIR, answer_candidates=((0,), (1,)))
    assert judged(bound, "the mug", LEFT, RIGHT) == (True, True)
    assert judged(bound, "the red mug", LEFT, RIGHT) == (True, False)
    assert judged(bound, "the mug", LEFT, MIDDLE) == (False, True), "one of them is not meant"
    assert judged(Question(*PAIR), "the mug", LEFT, RIGHT) == (True, True), "answers not bound"
    same = Question(*PAIR, answer_candidates=((0, 1), (0, 1)))
    assert judged(same, "the mug", LEFT, RIGHT) == (False, True), "both answers mean both"


def test_open_questions_offer_nothing_and_a_confirmation_shows_one() -> None:
    where = Question("where is it?", (LEFT, RIGHT), (), ESTIMATE)
    assert judged(where, "the mug", LEFT, RIGHT) == (False, True)
    assert judged(where, "the mug on the left", LEFT, RIGHT) == (False, False)
    shown = Question("do you mean this one?", (LEFT,), ("yes", "no"), ESTIMATE, confirm=True)
    assert judged(shown, "the left mug", RIGHT) == (True, True)
    proposed = Question("is it the red one?", (LEFT, RIGHT), ("yes", "no"), ESTIMATE)
    assert judged(proposed, "the mug", LEFT, RIGHT) == (False, True), "it shows two"


def test_shares_of_questions() -> None:
    rows = [
        {"offers": True, "new": True, "confirm": True},
        {"offers": True, "new": False, "confirm": False},
        {"offers": False, "new": True, "confirm": False},
        {"offers": True, "new": True, "confirm": False},
    ]
    assert share_of_helpful(rows) == pytest.approx(
        {"helpful": 0.5, "offers": 0.75, "new": 0.75, "confirm": 0.25, "n": 4}
    )
