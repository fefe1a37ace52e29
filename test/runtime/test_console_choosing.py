"""The options that the page makes of a question, and which candidate a number means."""

import pytest

from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.robot import ShownObject
from clue_ros.dialogue.types import Box

BOX = Box(50, 200, 130, 280)


def question(
    labels: tuple[str, ...], answers: tuple[str, ...] = (), meant: tuple[tuple[int, ...], ...] = ()
) -> ShownQuestion:
    return ShownQuestion(
        "which one?", tuple(ShownObject(BOX, label) for label in labels), answers, meant
    )


def test_a_candidate_is_called_by_the_answer_that_means_it_alone() -> None:
    asked = question(
        ("red mug", "blue mug", "red mug", ""),
        ("the blue one", "a red one", "the one at the left", "none of them"),
        ((1,), (0, 2), (1,), ()),
    )
    assert asked.names == ("red mug", "the blue one", "red mug", "this one")
    assert asked.others == (("a red one", (0, 2)), ("none of them", ()))


def test_answers_that_nobody_bound_are_said() -> None:
    asked = question(("mug", "bowl"), ("left", "right"))
    assert asked.names == ("mug", "bowl")
    assert asked.others == (("left", ()), ("right", ()))


def test_yes_is_the_candidate_and_no_is_said() -> None:
    asked = question(("mug",), ("yes", "no"), ((0,), ()))
    assert (asked.names, asked.others) == (("yes",), (("no", ()),))


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("number 2", 1),
        ("2", 1),
        ("#1", 0),
        ("candidate 1", 0),
        ("no, number 2, please", 1),
        ("number 3", None),
        ("0", None),
        ("the second one", None),  # the dialogue's own words
        ("the blue one", None),
        ("2 mugs", None),
        ("<b>1</b>", None),
    ],
)
def test_a_candidate_is_meant_by_its_number_on_the_page(text: str, index: int | None) -> None:
    assert question(("mug", "bowl")).numbered(text) == index
