"""Following an object: from its true mask and from a box, while it is covered, and bad input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from moving_pictures import Clip, cut_out, moving

from clue_ros.dialogue.types import Box
from clue_ros.errors import BadBoxError, BadImageError
from clue_ros.model.tracking import FlowTracker, Step, box_of

BALL = "volleyball.jpg", Box(6, 6, 314, 314)


def iou(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> float:
    return float((a & b).sum() / (a | b).sum())


def follow(clip: Clip, *, from_box: bool = False) -> list[tuple[Step, npt.NDArray[np.bool_]]]:
    tracker = FlowTracker()
    frame, truth = next(clip)
    mask = tracker.start(frame, box_of(truth), mask=None if from_box else truth)
    assert mask.shape == truth.shape
    assert mask.dtype == np.bool_
    return [(tracker.step(frame), truth) for frame, truth in clip]


@pytest.mark.parametrize("from_box", [False, True])
def test_a_moving_turning_object_is_followed_while_the_camera_moves(from_box: bool) -> None:
    ball = cut_out(*BALL, 150)
    for background in ("cutlery.jpg", "pagoda.jpg"):
        steps = follow(moving(ball, background), from_box=from_box)
        assert not any(step.lost for step, _ in steps)
        assert np.mean([iou(step.mask, truth) for step, truth in steps]) > 0.9


def test_a_small_object_is_followed() -> None:
    steps = follow(moving(cut_out(*BALL, 36), "cutlery.jpg", speed=(5.0, 3.0)))
    assert np.mean([iou(step.mask, truth) for step, truth in steps]) > 0.8


def test_a_covered_object_is_lost_and_then_found_again() -> None:
    clip = moving(cut_out(*BALL, 120), "pagoda.jpg", hidden=range(8, 12), speed=(6.0, 2.0))
    steps = follow(clip)
    hidden = [not truth.any() for _, truth in steps]
    assert [step.lost for step, _ in steps][7:11] == [True] * 4 == hidden[7:11]
    last = steps[6][0].mask
    assert all(np.array_equal(step.mask, last) for step, _ in steps[7:11])  # where it was seen last
    assert not any(step.lost for step, _ in steps[-4:])
    assert iou(steps[-1][0].mask, steps[-1][1]) > 0.8


def test_what_left_the_picture_is_lost() -> None:
    clip = moving(cut_out(*BALL, 120), "pagoda.jpg", start=(480.0, 200.0), speed=(25.0, 0.0))
    steps = follow(clip)
    assert steps[-1][0].lost
    assert not steps[0][0].lost


def test_points_tell_which_part_of_the_box_is_meant() -> None:
    frame = np.full((120, 160, 3), 200, np.uint8)
    frame[30:90, 20:70], frame[30:90, 80:140] = (200, 30, 30), (30, 30, 200)
    for x, inside in ((45.0, (60, 45)), (110.0, (60, 110))):
        mask = FlowTracker().start(frame, Box(15, 25, 145, 95), points=[(x, 60.0)])
        assert mask[inside]
        assert not mask[60, round(155 - x)]


def test_bad_input_is_said_in_one_line() -> None:
    frame = np.zeros((60, 80, 3), np.uint8)
    with pytest.raises(BadBoxError, match="outside of this 80x60 frame"):
        FlowTracker().start(frame, Box(90, 10, 120, 40))
    with pytest.raises(BadImageError, match="no pixel of this 80x60 frame"):
        FlowTracker().start(frame, Box(0, 0, 9, 9), mask=np.zeros((60, 80), bool))
    tracker = FlowTracker()
    with pytest.raises(RuntimeError, match="start comes before step"):
        tracker.step(frame)
    tracker.start(frame, Box(10, 10, 40, 40))
    with pytest.raises(BadImageError, match="a frame of 40x30 after some of 80x60"):
        tracker.step(frame[::2, ::2].copy())


def test_a_picture_without_any_texture_does_not_fail() -> None:
    frame = np.full((60, 80, 3), 90, np.uint8)
    tracker = FlowTracker()
    tracker.start(frame, Box(10, 10, 40, 40))
    assert tracker.step(frame).mask.shape == (60, 80)


def test_an_empty_mask_has_no_box() -> None:
    with pytest.raises(ValueError, match="no box"):
        box_of(np.zeros((4, 4), bool))
