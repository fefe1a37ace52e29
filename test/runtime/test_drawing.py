"""The one drawing function: everything lands where it should, any text is safe."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from clue_ros.dialogue.types import Box, Peak
from clue_ros.drawing import draw

GREEN = (57, 255, 136)


@pytest.fixture
def table() -> npt.NDArray[np.uint8]:
    return np.full((480, 640, 3), 60, np.uint8)


def green(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return np.asarray((picture == GREEN).all(axis=-1))


def test_the_box_is_drawn_at_its_place_and_nowhere_else(table: npt.NDArray[np.uint8]) -> None:
    drawn = draw(table, box=Box(100, 200, 180, 260))
    rows, columns = np.nonzero(green(drawn))
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (100, 200, 179, 259)
    assert (drawn[100:150] == 60).all()


def test_a_small_picture_is_enlarged_with_its_boxes() -> None:
    drawn = draw(np.full((250, 250, 3), 60, np.uint8), box=Box(25, 50, 100, 125))
    assert drawn.shape == (640, 640, 3)
    rows, columns = np.nonzero(green(drawn))
    found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert np.abs(np.subtract(found, (64, 128, 256, 320))).max() <= 2


def test_a_large_picture_is_reduced() -> None:
    assert draw(np.zeros((3648, 5472, 3), np.uint8)).shape == (1067, 1600, 3)


def test_the_heat_is_where_the_attention_is(table: npt.NDArray[np.uint8]) -> None:
    attention = np.zeros((14, 14), np.float32)
    attention[2, 10] = 1.0
    drawn = draw(table, attention=attention).astype(int)
    redness = drawn[..., 0] - drawn[..., 2]
    row, column = np.unravel_index(redness.argmax(), redness.shape)
    assert 2 <= row / 480 * 14 < 3
    assert 10 <= column / 640 * 14 < 11
    assert drawn[400, 50].max() < 60


def test_attention_that_is_not_a_number_is_drawn_as_none(table: npt.NDArray[np.uint8]) -> None:
    drawn = draw(table, attention=np.full((4, 4), np.nan, np.float32))
    assert (drawn == draw(table, attention=np.zeros((4, 4), np.float32))).all()


def test_peaks_are_outlined_and_numbered_in_order(table: npt.NDArray[np.uint8]) -> None:
    peaks = (Peak(Box(50, 50, 150, 150), 0.9), Peak(Box(300, 300, 400, 400), 0.7))
    drawn = draw(table, peaks=peaks)
    white = (drawn == 255).all(axis=-1)
    for left, top in ((50, 50), (300, 300)):
        assert white[top, left : left + 100].all()
        assert white[top + 99, left : left + 100].all()
    first, second = drawn[50:80, 50:80], drawn[300:330, 300:330]
    assert (first != second).any()


def test_what_a_grounding_led_past_is_outlined_in_its_colour(table: npt.NDArray[np.uint8]) -> None:
    box, passed = Box(300, 300, 400, 400), (Box(50, 50, 150, 150), Box(160, 50, 260, 150))
    drawn = draw(table, via=passed, box=box)
    alone = draw(table, box=box)
    green = alone[300, 350]
    for left in (50, 160):
        assert (drawn[149, left : left + 100] == green).all()
    first, second = drawn[50:80, 50:80], drawn[50:80, 160:190]
    assert (first != second).any(), "another number"
    assert (drawn[280:] == alone[280:]).all()


@pytest.mark.parametrize(
    "caption",
    [
        "You: pick up the left block\nRobot: the yellow one or the blue one?",
        "Größe, naïve, пример, 日本語, 😀, \u202eright to left",
        "\x00\x07\x1b[31m control \udcff",
        "a" * 10_000,
        "word " * 2_000,
        "\n\n\n",
    ],
    ids=["dialogue", "alphabets", "control", "one long word", "long", "blank lines"],
)
def test_any_caption_is_drawn_under_the_picture(table: npt.NDArray[np.uint8], caption: str) -> None:
    drawn = draw(table, caption=caption)
    assert (drawn[:480] == table).all()
    assert drawn.shape[1] == 640
    assert drawn.shape[0] < 480 + 260


def test_a_caption_shows_its_lines(table: npt.NDArray[np.uint8]) -> None:
    one = draw(table, caption="pick up the left block")
    two = draw(table, caption="pick up the left block\nthe yellow one?")
    assert one[480:].max() > 200
    assert two.shape[0] > one.shape[0] > 480


def test_the_input_is_left_as_it_was(table: npt.NDArray[np.uint8]) -> None:
    before = table.copy()
    draw(table, attention=np.eye(4, dtype=np.float32), box=Box(1, 1, 50, 50), caption="x")
    assert (table == before).all()


def test_boxes_beyond_the_edge_or_turned_are_drawn(table: npt.NDArray[np.uint8]) -> None:
    drawn = draw(table, box=Box(700, 500, -20, -10), peaks=[Peak(Box(-9, -9, -4, -4), 1.0)])
    assert drawn.shape == table.shape


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((10, 10), np.uint8),
        np.zeros((10, 10, 3), np.float32),
        np.zeros((0, 10, 3), np.uint8),
        np.zeros((10, 10, 4), np.uint8),
    ],
)
def test_another_kind_of_image_is_refused(image: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="uint8 RGB"):
        draw(image)


def test_another_kind_of_attention_is_refused(table: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="attention map"):
        draw(table, attention=np.zeros(16, np.float32))
