"""Words and geometry choose among candidates, turn by turn, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_ros.dialogue import Box, Dialogue, Turn
from clue_ros.dialogue.candidates import (
    COLOR,
    SHADES,
    Candidate,
    merge,
    properties_of,
    question_about,
)
from clue_ros.dialogue.chooser import LabelledObjects, Standing, follow, question_for
from clue_ros.dialogue.noun_phrases import read_phrase

SIZE = (640, 480)


def at(x: float, y: float, label: str, side: float = 60, score: float = 0.9) -> Candidate:
    """A square candidate around a point in pixels."""
    half = side / 2
    return Candidate(Box(x - half, y - half, x + half, y + half), label, score, "scripted")


TABLE = (
    at(100, 240, "red mug"),
    at(320, 240, "blue mug"),
    at(540, 240, "red mug", side=100),
    at(320, 400, "green bowl"),
    at(120, 100, "yellow box"),
)


def say(*said: str, objects: Sequence[Candidate] = TABLE) -> tuple[Standing, str]:
    """A request, then answers to whatever the robot asks; the standing, and the next question."""
    finder = LabelledObjects(objects, SIZE)
    dialogue = Dialogue(said[0])
    for answer in said[1:]:
        dialogue.add_question(next_question(follow(dialogue, finder), finder))
        dialogue.add_answer(answer)
    standing = follow(dialogue, finder)
    return standing, next_question(standing, finder)


def next_question(standing: Standing, finder: LabelledObjects) -> str:
    """What the robot says next."""
    return question_for(standing, finder).text if standing.candidates else "I don't see that."


def where(standing: Standing) -> list[tuple[float, float]]:
    """The centres of what is left."""
    return [c.box.center for c in standing.candidates]


@pytest.mark.parametrize(
    ("request_", "centers"),
    [
        ("pick up the bowl", [(320, 400)]),
        ("pick up the red mug", [(100, 240), (540, 240)]),
        ("the red mug on the left", [(100, 240)]),
        ("grab the rightmost mug", [(540, 240)]),
        ("the mug in the middle", [(320, 240)]),
        ("take the second mug from the left", [(320, 240)]),
        ("take the third mug from the right please", [(100, 240)]),
        ("the last mug from the left", [(540, 240)]),
        ("the mug that is not red", [(320, 240)]),
        ("the mug, but not the red one", [(320, 240)]),
        ("the biggest mug", [(540, 240)]),
        ("the mug above the bowl", [(320, 240)]),
        ("the mug left of the blue mug", [(100, 240)]),
        ("the mug below the yellow box", [(100, 240)]),
        ("both red mugs", [(100, 240), (540, 240)]),
        ("the grene bowl", [(320, 400)]),
        ("the bwol", [(320, 400)]),
        ("the bowls", [(320, 400)]),
        ("the owl", []),  # names another thing
        ("the bx", []),  # too short a label for a slip
        ("the banana", []),
    ],
)
def test_a_request_keeps_what_its_words_allow(
    request_: str, centers: list[tuple[float, float]]
) -> None:
    assert where(say(request_)[0]) == centers


@pytest.mark.parametrize(
    ("answers", "centers"),
    [
        (["the blue one"], [(320, 240)]),
        (["blue"], [(320, 240)]),
        (["the red one on the right"], [(540, 240)]),
        (["the red one", "left"], [(100, 240)]),
        (["the red one", "right"], [(540, 240)]),
        (["not the red one"], [(320, 240)]),
        (["not the blue one"], [(100, 240), (540, 240)]),
        (["the second from the left"], [(320, 240)]),
        (["the last one"], [(540, 240)]),
        (["the big one"], [(540, 240)]),
        (["the one next to the bowl"], [(320, 240)]),
        (["both"], [(100, 240), (320, 240), (540, 240)]),
        (["yes"], [(100, 240), (320, 240), (540, 240)]),
        (["right"], [(540, 240)]),
        (["hello world"], [(100, 240), (320, 240), (540, 240)]),
        (["sorry, i mean the bowl"], [(320, 400)]),
        (["pick up the yellow box"], [(120, 100)]),
        (["i want the banana"], []),
        (["neither"], []),
    ],
)
def test_an_answer_narrows(answers: list[str], centers: list[tuple[float, float]]) -> None:
    assert where(say("the mug", *answers)[0]) == centers


def test_a_colour_in_an_answer_means_what_is_partly_of_it_where_nothing_is_mostly() -> None:
    mottled = replace(at(100, 240, "mug"), attributes={SHADES: "black gray"})
    red = replace(at(320, 240, "mug"), attributes={COLOR: "red", SHADES: "red white"})
    white = replace(at(540, 240, "mug"), attributes={COLOR: "white", SHADES: "white"})
    mugs = (mottled, red, white)
    assert where(say("the mug", "the gray one", objects=mugs)[0]) == [(100, 240)]
    assert where(say("the mug", "the white one", objects=mugs)[0]) == [(540, 240)]
    assert where(say("the white mug", objects=mugs)[0]) == [(540, 240)]
    assert where(say("the gray mug", objects=mugs)[0]) == [(100, 240)]
    assert where(say("the blue mug", objects=mugs)[0]) == []


def test_each_of_three_candidates_is_named_in_few_words() -> None:
    _, text = say("the mug")
    assert text == "the left one, the middle one or the right one?"
    _, text = say("the red mug")
    assert text == "the left one or the right one?"


def test_the_same_set_after_an_answer_is_asked_about_again() -> None:
    standing, text = say("the mug", "hmm that one over there maybe")
    assert len(standing.candidates) == 3
    assert text == "the left one, the middle one or the right one?"
    standing, _ = say("the mug", "the nice one", "on the left")
    assert where(standing) == [(100, 240)]


def test_both_is_asked_which_first_and_whatever_is_settled() -> None:
    assert say("the red mug", "both")[1] == "which one first, the left one or the right one?"
    standing, _ = say("the red mug", "whatever")
    assert standing.confirmed
    assert len(standing.candidates) == 1


def test_a_single_candidate_is_proposed_and_no_or_yes_settles_it() -> None:
    finder = LabelledObjects(TABLE, SIZE)
    question = question_for(follow(Dialogue("the bowl"), finder), finder)
    assert question.text == "do you mean the green bowl?"
    assert question.options == ("yes", "no")

    def after(answer: str) -> Standing:
        turns = [Turn("robot", question.text), Turn("user", answer)]
        return follow(Dialogue("the bowl", turns), finder)

    assert after("yes please").confirmed
    assert after("no").candidates == ()
    assert where(after("no, the yellow box")) == [(120, 100)]


def test_no_to_a_proposal_leaves_the_others_and_so_does_the_other_one() -> None:
    finder = LabelledObjects(TABLE, SIZE)
    for answer in ("no", "the other one", "no, the other one", "not that one"):
        turns = [Turn("robot", "is it the left one?"), Turn("user", answer)]
        assert where(follow(Dialogue("the red mug", turns), finder)) == [(540, 240)], answer


def test_right_is_a_place_where_it_is_offered_and_yes_where_it_is_proposed() -> None:
    finder = LabelledObjects(TABLE, SIZE)
    turns = [Turn("robot", "the left one or the right one?"), Turn("user", "right")]
    assert where(follow(Dialogue("the red mug", turns), finder)) == [(540, 240)]
    turns = [Turn("robot", "is it the left one?"), Turn("user", "right")]
    assert where(follow(Dialogue("the red mug", turns), finder)) == [(100, 240)]


def test_many_candidates_are_asked_about_by_colour_or_by_place() -> None:
    row = [at(60 + 100 * n, 200, f"{c} pen") for n, c in enumerate(("red", "blue", "red", "blue"))]
    assert say("the pen", objects=row)[1] == "the red one or the blue one?"
    row = [
        at(60 + 100 * n, 200, f"{c} pen") for n, c in enumerate(("red", "blue", "green", "pink"))
    ]
    assert say("the pen", objects=row)[1] == "the red one, the blue one or the green one?"
    row = [at(60 + 100 * n, 200, "pen") for n in range(5)]
    assert say("the pen", objects=row)[1] == "the left one, the middle one or the right one?"
    assert where(say("the pen", "the second from the right", objects=row)[0]) == [(360, 200)]


def test_options_and_candidates_of_a_question_are_in_one_order() -> None:
    row = (at(500, 100, "red mug"), at(100, 100, "blue mug"))
    asked = question_about(LabelledObjects(row, SIZE).objects)
    assert asked.options == ("the blue one", "the red one")
    assert [group[0].box.center[0] for group in asked.groups] == [100, 500]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ("the left mug", "the big one or the small one?"),  # side by side: no side is asked for
        ("the pink mug", "the left one or the right one?"),
        ("the small pink mug on the left", "do you mean this one?"),
        ("the mug at the top", "the left one or the right one?"),
    ],
)
def test_what_was_said_is_not_asked_for(request_: str, text: str) -> None:
    pair = (at(100, 100, "pink mug", side=100), at(160, 100, "pink mug"))
    asked = question_about(
        LabelledObjects(pair, SIZE).objects, known=properties_of(read_phrase(request_))
    )
    assert asked.text == text
    assert asked.confirm == (text == "do you mean this one?")


def test_one_noun_in_two_forms_is_no_choice() -> None:
    for labels, text in (
        (("jars", "jar"), "the left one or the right one?"),
        (("soup can", "can"), "the left one or the right one?"),
        (("mug", "pen"), "the mug or the pen?"),
    ):
        pair = (at(100, 100, labels[0]), at(300, 100, labels[1]))
        assert question_about(LabelledObjects(pair, SIZE).objects).text == text


def test_a_name_that_fits_several_shows_one_and_the_surest_first() -> None:
    pair = (at(100, 100, "red mug", score=0.8), at(160, 100, "red mug"))
    said = properties_of(read_phrase("the left one"))
    asked = question_about(LabelledObjects(pair, SIZE).objects, known=said)
    assert (asked.text, asked.confirm) == ("do you mean this one?", True)
    assert [c.score for c in asked.groups[0]] == [0.9]
    one = question_about(LabelledObjects(pair[:1], SIZE).objects, known=said)
    assert one.text == "do you mean the red mug?"


def test_boxes_of_one_thing_are_merged_and_the_surer_stays() -> None:
    inside = at(90, 90, "mug", side=30, score=0.5)
    assert merge([at(100, 100, "mug"), inside]) == (at(100, 100, "mug"),)
    assert len(merge([at(100, 100, "plate"), inside])) == 2
    twice = [at(100, 100, "mug", score=0.4), at(104, 100, "mug", score=0.8), at(300, 100, "mug")]
    assert [c.score for c in merge(twice)] == [0.8, 0.9]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_no_words_break_the_chooser(said: list[str]) -> None:
    usable = [text for text in said if any(c.isalnum() for c in text) and text.isprintable()]
    if usable:
        standing, _ = say(*usable)
        assert isinstance(standing, Standing)


WORDS = (
    *("the", "not", "red", "one", "left", "second", "from", "right", "of", "no", "yes", "mug"),
    *("other", "but", "and", "in", "front", "bowl", ",", "both"),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=1, max_size=3))
def test_no_order_of_known_words_breaks_the_chooser(said: list[list[str]]) -> None:
    texts = [" ".join(words) for words in said if any(w.isalpha() for w in words)]
    if texts:
        standing, _ = say(*texts)
        assert len(standing.candidates) <= len(TABLE)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_read_as_a_phrase(text: str) -> None:
    assert isinstance(read_phrase(text).name, str)
