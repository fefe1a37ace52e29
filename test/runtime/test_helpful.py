"""Questions that help: two things that match what was said, or one to be confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.chooser import LabelledObjects
from clue_ros.dialogue.helpful import LIKELY, asks_again, helpful, told
from clue_ros.dialogue.noun_phrases import Phrase
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Peak,
    Question,
    Turn,
)

SIZE = (640, 480)
LEFT, RIGHT, BELOW = Box(70, 210, 130, 270), Box(510, 210, 570, 270), Box(290, 370, 350, 430)
OBJECTS = (
    Candidate(LEFT, "red mug", 0.9),
    Candidate(RIGHT, "blue mug", 0.95),
    Candidate(BELOW, "green bowl", 0.9),
)


def estimate(probability: float = 0.9) -> AmbiguityEstimate:
    return AmbiguityEstimate(probability, 0.5, np.zeros((4, 4), np.float32), (), 0.0)


def asked(
    written: str,
    *said: str,
    objects: Sequence[Candidate] = OBJECTS,
    refused: Sequence[Box] = (),
    probability: float = 0.9,
) -> Question:
    """What is asked in place of a written question, after a request and answers to "which one?"."""
    later = [
        turn for text in said[1:] for turn in (Turn("robot", "which one?"), Turn("user", text))
    ]
    reply = Question(written, (), (), estimate(probability))
    found = helpful(reply, Dialogue(said[0], later), LabelledObjects(objects, SIZE), refused)
    assert found is not None
    return found


def test_a_question_that_helps_stays_and_its_answers_are_bound() -> None:
    question = asked("the blue one or the red one?", "pick up the mug")
    assert question.text == "The blue one or the red one?"
    assert question.suggested_answers == ("the blue one", "the red one")
    assert question.candidates == (RIGHT, LEFT), "in the order of the answers"
    assert question.answer_candidates == ((0,), (1,))
    assert question.labels == ("blue mug", "red mug")
    assert not question.confirm


@pytest.mark.parametrize(
    "written",
    [
        "where is it?",
        "which color?",
        "the green one or the white one?",
        "the red one or the red one?",
        "the big one or the small one?",
        "the mug or the bowl?",
        "is it the blue one?",
        "the blue one, the red one or the blue one?",
        "",
    ],
)
def test_one_that_offers_too_little_is_replaced(written: str) -> None:
    question = asked(written, "pick up the mug")
    assert question.text == "The red one or the blue one?"
    assert question.answer_candidates == ((0,), (1,))


def test_an_answer_may_mean_several_and_what_none_means_can_still_be_clicked() -> None:
    four = tuple(
        Candidate(Box(x, 200, x + 60, 260), f"{color} pen", 0.9)
        for x, color in zip((0, 150, 300, 450), ("red", "blue", "red", "pink"), strict=True)
    )
    question = asked("the red one or the blue one?", "the pen", objects=four)
    assert question.answer_candidates == ((0, 1), (2,))
    assert question.candidates == tuple(four[i].box for i in (0, 2, 1, 3))


def test_a_single_candidate_is_shown_to_be_confirmed() -> None:
    question = asked("the left one or the right one?", "the red mug")
    assert (question.text, question.candidates) == ("Do you mean this one?", (LEFT,))
    assert question.suggested_answers == ("yes", "no")
    assert question.answer_candidates == ((0,), ())
    assert question.confirm
    assert asked("where is it?", "the bowl").text == "Do you mean the green bowl?"


def test_what_was_refused_is_not_shown_again() -> None:
    question = asked("the blue one or the red one?", "the mug", refused=(RIGHT,))
    assert (question.confirm, question.candidates) == (True, (LEFT,))
    finder = LabelledObjects(OBJECTS, SIZE)
    points = Grounding(RIGHT, "mug", 0.9, estimate())
    other = helpful(points, Dialogue("the mug"), finder, (RIGHT,))
    assert other is not None
    assert other.candidates == (LEFT,), "in place of a box that was refused"
    assert helpful(points, Dialogue("the mug"), finder, (RIGHT, LEFT)) is None


def test_a_second_candidate_in_doubt_is_not_offered() -> None:
    written, request = "the red one or the blue one?", "the mug"
    assert asked(written, request, probability=0.99 * LIKELY / 0.9).candidates == (RIGHT,)
    assert len(asked(written, request, probability=1.01 * LIKELY / 0.9).candidates) == 2


def test_a_second_candidate_that_the_words_do_not_attend_to_is_not_offered() -> None:
    map_, written = np.zeros((4, 4), np.float32), "the red one or the blue one?"
    for points, count in (([LEFT], 1), ([LEFT, RIGHT], 2), ([], 2)):
        peaks = tuple(Peak(box, 1.0, box.center) for box in points)
        reply = Question(written, (), (), AmbiguityEstimate(0.9, 0.5, map_, peaks, 0.0))
        objects = (replace(OBJECTS[0], score=0.99), OBJECTS[1])
        found = helpful(reply, Dialogue("the mug"), LabelledObjects(objects, SIZE))
        assert found is not None
        assert len(found.candidates) == count


def test_one_thing_in_two_boxes_is_no_choice() -> None:
    part = Candidate(Box(75, 215, 110, 265), "blue mug", 0.7)
    question = asked("where is it?", "the mug", objects=(OBJECTS[0], part))
    assert (question.confirm, question.candidates) == (True, (LEFT,))


def test_after_a_no_all_others_are_asked_about() -> None:
    third = Candidate(Box(290, 210, 350, 270), "pink mug", 0.3)
    objects = (*OBJECTS, third)
    assert len(asked("", "the mug", objects=objects).candidates) == 2
    question = asked("", "the mug", objects=objects, refused=(RIGHT,))
    assert question.suggested_answers == ("the red one", "the pink one")


class Looking(LabelledObjects):
    """Candidates without colours, which are known once they are looked at."""

    looked: frozenset[Box] = frozenset()

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """What the label names, as a detector has it."""
        return tuple(replace(c, label="mug", attributes={}) for c in super().find(phrase))

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """With the attributes of the objects."""
        self.looked |= {c.box for c in candidates if attribute not in c.attributes}
        known = {c.box: c.attributes for c in self.objects}
        return tuple(c.known(**known[c.box]) for c in candidates)


@pytest.mark.parametrize(
    ("written", "request_", "looked", "text"),
    [
        ("the left one or the right one?", "the mug", (), "The left one or the right one?"),
        ("the red one or the blue one?", "the mug", (LEFT, RIGHT), "The red one or the blue one?"),
        ("where is it?", "the mug", (LEFT, RIGHT), "The red one or the blue one?"),
        ("where is it?", "the mug on the left", (LEFT,), "Do you mean the red mug?"),
        ("where is it?", "the red mug on the left", (), "Do you mean this one?"),
    ],
)
def test_colours_are_looked_at_where_words_need_them(
    written: str, request_: str, looked: tuple[Box, ...], text: str
) -> None:
    objects = (*OBJECTS[:2], Candidate(BELOW, "pink mug", 0.2))
    finder = Looking(objects, SIZE)
    found = helpful(Question(written, (), (), estimate()), Dialogue(request_), finder)
    assert found is not None
    assert finder.looked == set(looked)
    assert found.text == text
    assert set(found.labels) <= {"mug", "red mug", "blue mug"}


def test_guesses_stand_in_where_nothing_is_found() -> None:
    guesses = [Candidate(BELOW, "cup", 1.0), Candidate(LEFT, "cup", 0.7)]
    written = Question("the left one or the right one?", (), (), estimate())
    finder = LabelledObjects(OBJECTS, SIZE)
    found = helpful(written, Dialogue("the banana"), finder, (), guesses=lambda: guesses)
    assert found is not None
    assert (found.text, found.candidates) == ("The left one or the right one?", (LEFT, BELOW))


@pytest.mark.parametrize(("refused", "shown"), [((), BELOW), ((BELOW,), LEFT)])
def test_where_the_model_points_is_shown_to_be_confirmed(
    refused: tuple[Box, ...], shown: Box
) -> None:
    written = Question("where is it?", (), (), estimate())
    finder = LabelledObjects(OBJECTS[:1], SIZE)
    pointed = Candidate(BELOW, "mug", 1.0)
    found = helpful(written, Dialogue("the mug on the left"), finder, refused, lambda: pointed)
    assert found is not None
    assert (found.confirm, found.candidates) == (True, (shown,))


@pytest.mark.parametrize(
    ("question", "options", "said", "again"),
    [
        ("where is it?", (), ["pick up the mug on the left"], True),
        ("where is it?", (), ["pick up the mug"], False),
        ("which color?", (), ["the red mug"], True),
        ("which one?", (), ["the red mug on the left"], False),
        ("", ("the pink one", "the blue one"), ["the pink mug"], True),
        ("", ("the big one", "the small one"), ["the pink mug"], False),
        ("", ("the big one", "the small one"), ["the mug", "the big one"], True),
        ("", ("the left one", "the right one"), ["the second mug from the left"], True),
        ("", ("the upper one", "the lower one"), ["the mug on the left"], False),
        ("", ("the apple", "the pear"), ["the fruit"], False),
        ("", ("the drill", "the cracker box"), ["pick up the box"], True),
        ("", ("the red mug", "the blue plate"), ["the red thing"], False),
        ("", ("the red one", "the blue one"), ["the mug, not the red one"], True),
        ("is it the red one?", ("yes", "no"), ["the red mug"], False),
    ],
)
def test_what_the_person_said_is_not_asked_for(
    question: str, options: tuple[str, ...], said: list[str], again: bool
) -> None:
    assert asks_again(question, options, said) is again


def test_what_a_person_has_told() -> None:
    assert told(["give me the big red mug", "the upper one"]) == {
        *("size", "color", "kind", "place down")
    }
    assert told(["give me that thing"]) == frozenset()
