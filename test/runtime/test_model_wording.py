"""What a request names and what a question offers."""

import pytest

from clue_ros.dialogue.noun_phrases import read_phrase
from clue_ros.dialogue.types import Dialogue
from clue_ros.dialogue.words import (
    missing_thing,
    named_object,
    noun_phrase,
    offered_answers,
    offers_twice,
)


@pytest.mark.parametrize(
    ("request_text", "label"),
    [
        ("pick up the apple", "apple"),
        ("Could you please hand me the red cup on the left?", "red cup on the left"),
        ("give me a block, please", "block"),
        ("the green ball", "green ball"),
        ("left block", "left block"),
        ("where is my phone", "phone"),
        ("take it", "it"),
        ("pick up", "pick up"),
        ("the", "the"),
        ("hand me the mug, thanks a lot dude", "mug"),
        ("hey dude, hand me the mug", "mug"),
        ("give me the mate", "mate"),
        ("thanks", "thanks"),
    ],
)
def test_the_label_is_the_request_without_its_verb(request_text: str, label: str) -> None:
    assert noun_phrase(request_text) == label


@pytest.mark.parametrize(
    "request_text",
    [
        "hand me the mug, thanks a lot dude",
        "hi buddy, the mug please",
        "the mug, thank you so much",
    ],
)
def test_courtesy_names_no_thing(request_text: str) -> None:
    assert read_phrase(request_text).noun == "mug"


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("do you mean the red one or the blue one?", ("the red one", "the blue one")),
        (
            "do you mean the one on the left or the one on the right?",
            ("the one on the left", "the one on the right"),
        ),
        ("which one, the red, the green or the blue?", ("the red", "the green", "the blue")),
        ("is it red or blue?", ("red", "blue")),
        ("there are two blocks. left or right?", ("left", "right")),
        ("a cup or the ball?", ("a cup", "the ball")),
        ("do you mean the red block?", ("yes", "no")),
        ("the red one ?", ("yes", "no")),
        ("I see two. the left one?", ("yes", "no")),
        ("which one do you mean?", ()),
        ("in which place?", ()),
        ("?", ()),
        ("what colour is it?", ()),
        ("", ()),
        ("or", ()),
        ("or or or", ()),
        (", or ,", ()),
    ],
)
def test_offered_answers(question: str, answers: tuple[str, ...]) -> None:
    assert offered_answers(question) == answers


@pytest.mark.parametrize(
    ("question", "twice"),
    [
        ("the red one or the red one?", True),
        ("the left one, the red one or the left one?", True),
        ("do you mean the Red mug or the red mug?", True),
        ("which one, the red or the red?", True),
        ("the red one or the blue one?", False),
        ("where is it?", False),
        ("or", False),
    ],
)
def test_a_question_that_offers_the_same_twice(question: str, twice: bool) -> None:
    assert offers_twice(question) is twice


def test_a_dialogue_is_about_its_request_whatever_is_answered() -> None:
    dialogue = Dialogue("pick up the block")
    dialogue.add_question("do you mean the red one or the blue one?")
    dialogue.add_answer("the red one")
    assert named_object(dialogue.turns) == "block"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("I don't see a banana.", "a banana"),
        ("i do not see a green block. which one do you mean?", None),
        ("Sorry, I cannot see anything red!", "anything red"),
        ("do you see the red one or the blue one?", None),
        ("the red one or the blue one?", None),
        ("i don't see .", None),
        ("the one that you don't see?", None),
    ],
)
def test_what_the_robot_does_not_see(text: str, missing: str | None) -> None:
    assert missing_thing(text) == missing


def test_what_was_not_seen_is_replaced_by_what_the_person_names_instead() -> None:
    dialogue = Dialogue("hand me the green block")
    dialogue.add_question("i do not see a green block. which one do you mean?")
    dialogue.add_answer("the yellow ball")
    assert named_object(dialogue.turns) == "yellow ball"
