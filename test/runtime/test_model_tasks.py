"""Answers of the base model's tasks are read as far as they make sense, and never raise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_ros.model.location_tokens import is_valid
from clue_ros.model.tasks import MAX_BOXES, clean_label, read_boxes, short_answer

W = None  # a token that is no location


def codes(steps: list[int | None]) -> list[tuple[int, int, int, int]]:
    """The codes of an answer's boxes."""
    return [box.codes for box in read_boxes(steps)]


def test_each_box_comes_with_the_tokens_that_say_it_and_its_label() -> None:
    first, second = read_boxes([10, 20, 110, 220, W, W, W, 300, 300, 400, 400, W])
    assert first.codes == (10, 20, 110, 220)
    assert first.at == (0, 1, 2, 3)
    assert first.label == (4, 7)
    assert second.codes == (300, 300, 400, 400)
    assert second.label == (11, 12)


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([], []),
        ([W, W, W], []),  # prose
        ([10, 20, 110], []),  # too few
        ([10, 20, W, 110, 220], []),  # cut by a word
        ([10, 20, 110, 220], [(10, 20, 110, 220)]),  # no label
        ([W, 10, 20, 110, 220, W], [(10, 20, 110, 220)]),  # words first
        ([110, 220, 10, 20, W], [(10, 20, 110, 220)]),  # corners the wrong way round
        ([10, 20, 110, 220, 330, W], [(10, 20, 110, 220)]),  # five in a row
        ([10, 20, 10, 220, W], []),  # no height
        ([10, 20, 2000, 220, W], []),  # out of range
        ([-5, 20, 100, 220, W], []),
        ([10, 20, 30, W, 10, 20, 110, 220, W], [(10, 20, 110, 220)]),
    ],
)
def test_odd_answers_are_read_forgivingly(
    steps: list[int | None], want: list[tuple[int, int, int, int]]
) -> None:
    assert codes(steps) == want


def test_at_most_so_many_boxes_are_read() -> None:
    assert len(read_boxes([10, 20, 110, 220, W] * 30)) == MAX_BOXES


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers(-50, 1100), max_size=80))
def test_any_tokens_make_valid_boxes_or_none(steps: list[int | None]) -> None:
    for box in read_boxes(steps):
        assert is_valid(box.codes)
        assert all(0 <= i < len(steps) for i in box.at)
        assert 0 <= box.label[0] <= box.label[1] <= len(steps)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" red mug ;", "red mug"),
        ("<seg003><seg120> Mug", "mug"),
        ("; ;", ""),
        ("", ""),
        ("mug ; <loc0001> bowl", "mug"),
        ("!!", ""),
    ],
)
def test_a_label_is_the_words_before_the_separator(text: str, label: str) -> None:
    assert clean_label(text) == label


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Red.", "red"),
        ("dark blue", "dark blue"),
        ("the left one, the middle one or the right one?", None),
        ("", None),
        ("<loc0001> red", None),
    ],
)
def test_prose_is_no_answer(text: str, answer: str | None) -> None:
    assert short_answer(text) == answer


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_label_and_an_answer_or_none(text: str) -> None:
    assert "<" not in clean_label(text)
    assert short_answer(text) is None or len((short_answer(text) or "").split()) <= 3
