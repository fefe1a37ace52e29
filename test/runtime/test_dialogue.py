"""What a person may say, and how the dialogue becomes the context C(k)."""

import subprocess
import sys

import numpy as np
import pytest

from clue_ros.dialogue.types import MAX_TEXT, AmbiguityEstimate, Box, Dialogue, Turn, clean_text
from clue_ros.errors import BadExpressionError, ClueError, EmptyExpressionError


def test_context_is_one_line_in_the_papers_format() -> None:
    dialogue = Dialogue("pick up the block")
    assert dialogue.context() == "pick up the block"
    dialogue.add_question("which one?")
    dialogue.add_answer("the red one")
    assert dialogue.context() == "pick up the block assistant: which one? user: the red one"


def test_turns_begin_with_the_request_and_questions_are_counted() -> None:
    dialogue = Dialogue("the cup", [Turn("robot", "which?"), Turn("user", "left")])
    assert [turn.speaker for turn in dialogue.turns] == ["user", "robot", "user"]
    assert dialogue.turns[0].text == dialogue.request == "the cup"
    assert dialogue.questions == 1
    dialogue.add_question("really?")
    assert dialogue.questions == 2


def test_turns_cannot_be_changed_from_outside() -> None:
    dialogue = Dialogue("the cup")
    assert isinstance(dialogue.turns, tuple)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00\x1b", "\u200b\u200e"])
def test_nothing_said_is_empty(text: str) -> None:
    with pytest.raises(EmptyExpressionError) as caught:
        clean_text(text)
    assert caught.value.code == "EMPTY_EXPRESSION"


@pytest.mark.parametrize("text", ["a" * 10_000, "x " * 600, "🙂🙃", "?!", "---", None, 3, b"cup"])
def test_unusable_text_is_refused(text: str) -> None:
    with pytest.raises(BadExpressionError) as caught:
        clean_text(text)
    assert "\n" not in str(caught.value)


def test_the_longest_allowed_text_passes() -> None:
    assert clean_text("a" * MAX_TEXT) == "a" * MAX_TEXT


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  the \n red\tblock ", "the red block"),
        ("the\x00red\x1bblock\x7f", "the red block"),
        ("the red block 🙂", "the red block 🙂"),
        ("<loc0000> <image>", "<loc0000> <image>"),
        ("block\ud800 two", "block two"),
        ("Gib mir den größten Würfel", "Gib mir den größten Würfel"),
        ("2", "2"),
    ],
)
def test_text_is_cleaned_and_kept(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    cleaned.encode("utf-8")


def test_a_bad_answer_leaves_the_dialogue_as_it_was() -> None:
    dialogue = Dialogue("the cup")
    dialogue.add_question("which?")
    with pytest.raises(ClueError):
        dialogue.add_answer("")
    assert len(dialogue.turns) == 2


def test_box_center_and_list() -> None:
    box = Box(10, 20, 30, 60)
    assert box.center == (20, 40)
    assert box.as_list() == [10, 20, 30, 60]


@pytest.mark.parametrize(("probability", "asks"), [(0.49, False), (0.5, True), (1.0, True)])
def test_ambiguous_from_the_threshold_on(probability: float, asks: bool) -> None:
    estimate = AmbiguityEstimate(probability, 0.5, np.zeros((2, 2), np.float32), (), 0.0)
    assert estimate.is_ambiguous is asks


def test_importing_the_package_and_the_engine_loads_no_torch() -> None:
    code = (
        "import sys, clue_ros, clue_ros.engine, clue_ros.dialogue.types;"
        "assert not {'torch', 'transformers', 'rclpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
