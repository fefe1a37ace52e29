"""A click on a candidate, and "the blue one", as words that the dialogue understands."""

import itertools

import numpy as np
import pytest

from clue_ros.console.choosing import COLORS, ShownQuestion, color_of, shown_question
from clue_ros.console.robot import ShownObject
from clue_ros.dialogue.types import Box

SIZE = (640, 480)
LEFT, MIDDLE, RIGHT = (Box(x, 200, x + 80, 280) for x in (50, 280, 500))
UPPER, LOWER = Box(280, 50, 360, 130), Box(280, 350, 360, 430)


def question(
    *boxes: Box, text: str = "which one?", offers: tuple[str, ...] = (), labels: str = ""
) -> ShownQuestion:
    named = labels.split(",") if labels else [""] * len(boxes)
    shown = [ShownObject(box, label) for box, label in zip(boxes, named, strict=True)]
    return shown_question(text, shown, offers, None, SIZE)


def words(asked: ShownQuestion) -> list[str]:
    return [asked.words_for(index) for index in range(len(asked.candidates))]


def test_candidates_without_offered_answers_are_said_by_their_place() -> None:
    assert words(question(RIGHT, LEFT)) == ["the right one", "the left one"]
    assert words(question(MIDDLE, RIGHT, LEFT)) == [
        "the middle one",
        "the right one",
        "the left one",
    ]
    assert words(question(UPPER, LOWER)) == ["the upper one", "the lower one"]


def test_candidates_that_no_place_tells_apart_are_counted() -> None:
    row = [Box(x, 200, x + 60, 260) for x in (20, 90, 400, 470)]
    assert words(question(*row)) == [
        "the leftmost one",
        "the second one from the left",
        "the third one from the left",
        "the rightmost one",
    ]
    column = [Box(200, y, 260, y + 60) for y in (20, 90, 300, 370)]
    assert words(question(*column))[1] == "the second one from the top"


def test_any_candidates_get_different_words() -> None:
    rng = np.random.default_rng(0)
    for count in range(2, 13):
        corners = rng.uniform(0, 400, (count, 2))
        boxes = [Box(x, y, x + 60, y + 60) for x, y in corners.tolist()]
        assert len(set(words(question(*boxes)))) == count


def test_the_offered_answer_that_names_a_candidate_is_used() -> None:
    asked = question(RIGHT, LEFT, text="left or right?", offers=("left", "right"))
    assert words(asked) == ["right", "left"]
    colors = question(
        RIGHT,
        LEFT,
        text="the red one or the green one?",
        offers=("the red one", "the green one"),
        labels="green mug,red mug",
    )
    assert words(colors) == ["the green one", "the red one"]


def test_the_picture_says_which_candidate_has_an_offered_color() -> None:
    image = np.full((480, 640, 3), 200, np.uint8)
    image[200:280, 50:130] = (200, 20, 20)
    image[200:280, 500:580] = (20, 160, 40)
    candidates = [ShownObject(RIGHT), ShownObject(LEFT)]
    offers = ("the red one", "the green one")
    asked = shown_question("the red one or the green one?", candidates, offers, image, SIZE)
    assert words(asked) == ["the green one", "the red one"]
    asked = shown_question("which color?", candidates, (), image, SIZE)
    assert words(asked) == ["the green one", "the red one"]


def test_the_only_answer_left_is_that_of_the_only_candidate_left() -> None:
    # "crimson" is no colour that the picture can be asked for.
    offers = ("the crimson one", "the green one")
    asked = question(RIGHT, LEFT, offers=offers, labels="thing,green thing")
    assert words(asked) == ["the crimson one", "the green one"]


def test_an_offered_answer_that_names_two_candidates_is_not_used() -> None:
    offers = ("the red one", "the green one")
    asked = question(LEFT, MIDDLE, RIGHT, offers=offers, labels="red mug,red mug,green mug")
    assert words(asked) == ["the left one", "the middle one", "the green one"]


def test_a_click_on_the_only_candidate_says_yes() -> None:
    asked = question(MIDDLE, text="do you mean the mug?", offers=("yes", "no"))
    assert words(asked) == ["yes"]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("the blue one", 0),
        ("blue", 0),
        ("The Orange one, please.", 1),
        ("no, the orange one", 1),
        ("number 2", 1),
        ("2", 1),
        ("#1", 0),
        ("candidate 1", 0),
        ("number 3", None),
        ("the green one", None),  # the page has no third candidate
        ("the second one", None),  # the dialogue's own words
        ("the blue mug", None),
        ("the blue one on the left", None),
        ("stop", None),
        ("<b>blue</b>", None),
    ],
)
def test_a_candidate_is_meant_by_the_page_s_color_or_number(text: str, index: int | None) -> None:
    assert question(LEFT, RIGHT).meant(text) == index


def test_a_color_that_the_question_has_means_the_object() -> None:
    offers = ("the blue one", "the red one")
    assert question(LEFT, RIGHT, offers=offers).meant("the blue one") is None
    assert question(LEFT, RIGHT, offers=offers).meant("blue") is None
    asked = question(LEFT, RIGHT, text="is it the blue mug on the left?", offers=("yes", "no"))
    assert asked.meant("the blue one") is None
    assert question(LEFT, RIGHT, labels="red mug,blue mug").meant("the blue one") is None


def test_a_color_that_a_candidate_has_in_the_picture_means_the_object() -> None:
    image = np.full((480, 640, 3), 200, np.uint8)
    image[200:280, 500:580] = (20, 30, 220)
    candidates = [ShownObject(LEFT), ShownObject(RIGHT)]
    asked = shown_question("left or right?", candidates, ("left", "right"), image, SIZE)
    assert asked.meant("the blue one") is None
    assert asked.meant("the orange one") == 1


def test_every_color_has_a_name_of_its_own_and_differs_in_lightness_from_its_neighbour() -> None:
    assert len({name for name, _ in COLORS}) == len({code for _, code in COLORS}) == len(COLORS)
    assert color_of(len(COLORS))[0] == ""

    def seen(code: str) -> np.ndarray:
        """The colour as an eye without red or without green receptors sees it, roughly."""
        red, green, blue = (int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return np.array([0.6 * red + 0.4 * green, blue])

    for (_, a), (_, b) in itertools.combinations(COLORS[:5], 2):
        assert np.linalg.norm(seen(a) - seen(b)) > 0.15, (a, b)
