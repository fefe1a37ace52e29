"""An answer that an open question offers is that answer, whatever else its word means."""

from __future__ import annotations

from itertools import permutations

import pytest

from clue_ros.dialogue.reading import Kind, leaves_open, read
from clue_ros.dialogue.words import is_offered, offered_answers
from clue_ros.lab.language.questions import list_options
from clue_ros.lab.language.words import PLACES

SIZES = ("big", "small")
COLORS = ("red", "green", "blue", "yellow", "white", "black", "orange")
KINDS = ("mug", "bowl", "apple", "can")
SIDES = ("left", "middle", "right")
HEIGHTS = ("upper", "middle", "lower")


def questions() -> list[tuple[str, str]]:
    """Every option of every kind of question, with the question."""
    axes = {"size": SIZES, "color": COLORS, "kind": KINDS, "place": SIDES}
    found = []
    for axis, words in axes.items():
        for pair in permutations(words, 2):
            found += [(list_options(axis, dict.fromkeys(pair, (0,))).text, w) for w in pair]
    for three in (SIDES, HEIGHTS):
        found += [(list_options("place", dict.fromkeys(three, (0,))).text, w) for w in three]
    return found


@pytest.mark.parametrize(("question", "word"), questions())
def test_every_offered_answer_is_taken(question: str, word: str) -> None:
    offered = offered_answers(question)
    assert offered, question
    for said in (word, f"{word}.", f"the {word}", f"the {word} one", f"the {word} one please"):
        assert read(said, offered).kind is Kind.OFFERED, (question, said)
    assert read(f"the {word} one").kind is Kind.REQUEST
    assert is_offered(word, offered)
    assert is_offered(f"the {word} one", offered)


@pytest.mark.parametrize("places", PLACES.values())
def test_no_place_is_a_yes_or_a_no(places: tuple[str, ...]) -> None:
    for place in places:
        said = read(place, (), "mug")
        assert not leaves_open(said.kind, ())
        assert said.kind not in (Kind.YES, Kind.NO)


def test_right_answers_left_or_right() -> None:
    offered = offered_answers("the left one or the right one ?")
    assert offered == ("the left one", "the right one")
    assert read("Right.", offered).kind is Kind.OFFERED


@pytest.mark.parametrize("said", ["yes", "no", "nope", "okay", "sure"])
def test_yes_and_no_leave_a_which_question_open(said: str) -> None:
    for offered, is_open in ((("the left one", "the right one"), True), (("yes", "no"), False)):
        assert leaves_open(read(said, offered).kind, offered) is is_open


def test_what_is_part_of_every_option_is_none_of_them() -> None:
    assert not is_offered("the one", ("the left one", "the right one"))
    assert not is_offered("block", ("the left block", "the right block"))
    assert is_offered("left", ("the left block", "the right block"))


def test_french_places_are_answers_too() -> None:
    assert is_offered("à droite", ("celui de gauche", "celui de droite"))
    assert read("droite", ("celui de gauche", "celui de droite")).kind is Kind.OFFERED
