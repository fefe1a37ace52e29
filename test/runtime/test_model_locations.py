"""Boxes as location tokens, and back."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from clue_ros.dialogue.types import Box
from clue_ros.model import location_tokens

SIZES = [(640, 480), (250, 250), (1, 1), (5472, 3648), (3, 2000)]


def random_boxes(width: int, height: int, count: int = 300) -> Iterator[Box]:
    numbers = np.random.default_rng(width * 7919 + height).random((count, 4))
    for x1, y1, x2, y2 in numbers:
        left, right = sorted((x1 * width, x2 * width))
        top, bottom = sorted((y1 * height, y2 * height))
        yield Box(left, top, right, bottom)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_box_survives_within_one_step(width: int, height: int) -> None:
    for box in random_boxes(width, height):
        codes = location_tokens.encode_box(box, width, height)
        assert location_tokens.is_valid(codes)
        again = location_tokens.decode_box(codes, width, height)
        assert again.x_min < again.x_max
        assert again.y_min < again.y_max
        step = np.array([width, height, width, height]) / location_tokens.LAST
        # Half a step for rounding; up to one and a half where a flat box had to be made thicker.
        assert np.all(np.abs(np.subtract(again.as_list(), box.as_list())) <= 1.5001 * step)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_codes_survive_exactly(width: int, height: int) -> None:
    for codes in np.random.default_rng(1).integers(0, 1024, (300, 4)):
        valid = location_tokens.nearest_valid(codes)
        box = location_tokens.decode_box(valid, width, height)
        assert location_tokens.encode_box(box, width, height) == valid


def test_the_order_is_y1_x1_y2_x2_over_height_and_width() -> None:
    codes = location_tokens.encode_box(Box(0, 50, 100, 100), 200, 100)
    assert codes == (512, 0, 1023, 512)
    assert location_tokens.decode_box((0, 0, 1023, 1023), 640, 480) == Box(0, 0, 640, 480)


def test_boxes_outside_the_image_are_clipped() -> None:
    assert location_tokens.encode_box(Box(-50, -50, 900, 900), 640, 480) == (0, 0, 1023, 1023)
    assert location_tokens.is_valid(location_tokens.encode_box(Box(700, 500, 800, 600), 640, 480))


def test_nearest_valid_is_valid_and_changes_no_valid_box() -> None:
    for codes in itertools.product((-5, 0, 7, 1022, 1023, 4000), repeat=4):
        fixed = location_tokens.nearest_valid(codes)
        assert location_tokens.is_valid(fixed)
        if location_tokens.is_valid(codes):
            assert fixed == codes
    assert location_tokens.nearest_valid((30, 40, 10, 20)) == (10, 20, 30, 40)


@pytest.mark.parametrize(
    "codes", [(5, 5, 5, 9), (5, 9, 9, 5), (0, 0, 1024, 5), (-1, 0, 3, 3), (1, 2, 3), ()]
)
def test_what_is_no_box_is_refused(codes: tuple[int, ...]) -> None:
    assert not location_tokens.is_valid(codes)
    with pytest.raises(ValueError, match="not a box"):
        location_tokens.decode_box(codes, 10, 10)


def test_codes_are_written_as_paligemma_writes_them() -> None:
    assert location_tokens.to_text((1, 20, 300, 1023)) == "<loc0001><loc0020><loc0300><loc1023>"
