"""What a reply's objects come with: scores, masks and places, and what happens without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import ros_helpers
from ros_helpers import isolate, wait_until

ros_helpers.need_ros()
isolate()

import rclpy  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from solids import CAMERA, Scene, on_table, scene  # noqa: E402
from std_msgs.msg import Header  # noqa: E402

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding, Peak, Question  # noqa: E402
from clue_ros.errors import ModelError  # noqa: E402
from clue_ros.nodes.camera import Frame  # noqa: E402
from clue_ros.nodes.dialogue_session import Limits, Session  # noqa: E402
from clue_ros.nodes.image_conversion import fill_image  # noqa: E402
from clue_ros.nodes.inference_worker import Worker  # noqa: E402
from clue_ros.nodes.messages import (  # noqa: E402
    MAX_MASK_PIXELS,
    LocatedObject,
    Source,
    find_objects,
    locator,
    no_depth,
    object_msg,
)
from clue_ros.nodes.pose_from_depth import Place, locate  # noqa: E402

BLOCK, TABLE = on_table(45, (0.12, 0.05, 0.06), 20)
SCENE: Scene = scene(BLOCK, TABLE)
PEAKS = (Peak(SCENE.box(0), 1.0), Peak(Box(10, 10, 60, 50), 0.6))


def estimate(peaks: tuple[Peak, ...] = PEAKS) -> AmbiguityEstimate:
    return AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), peaks, 0.0)


def question(peaks: tuple[Peak, ...] = PEAKS) -> Question:
    boxes = tuple(peak.box for peak in peaks)
    return Question("do you mean the block?", boxes, ("yes", "no"), estimate(peaks))


class FakeView:
    """Knows its size."""

    width, height = 640, 480


class FakeClue:
    """Asks one question, and makes a mask of each peak's box."""

    def __init__(self, reply: Any = None) -> None:
        self._reply = reply
        self.masked = 0

    def look(self, _image: Any) -> FakeView:
        """Look at anything."""
        return FakeView()

    def reply(self, *_: Any, **__: Any) -> Any:
        """Reply as told."""
        return self._reply

    def peak_masks(self, view: Any, judged: AmbiguityEstimate) -> tuple[Any, ...]:
        """Return what is in the boxes."""
        self.masked += 1
        masks = []
        for peak in judged.peaks:
            mask = np.zeros((view.height, view.width), np.bool_)
            mask[int(peak.box.y_min) : int(peak.box.y_max), int(peak.box.x_min)] = True
            masks.append(mask)
        return tuple(masks)


class FakeMasks(FakeClue):
    """Fills a grounding's box, or fails."""

    fails = False

    def mask(self, view: Any, grounding: Grounding) -> Any:
        """Return what is in the box."""
        if self.fails:
            raise ModelError("out of memory")
        mask = np.zeros((view.height, view.width), np.bool_)
        mask[int(grounding.box.y_min) : int(grounding.box.y_max), 0:2] = True
        return mask


def by_depth(box: Box) -> Place:
    return locate(SCENE.depth, CAMERA, box, (640, 480))


def test_candidates_have_the_peaks_scores_and_masks_and_the_depths_places() -> None:
    first, second = find_objects(FakeClue(), FakeView(), question(), by_depth, masks=True)
    assert (first.box, first.score, second.score) == (PEAKS[0].box, 1.0, 0.6)
    assert first.mask is not None
    assert first.place is not None
    assert np.linalg.norm(first.place.position - BLOCK.middle) < 0.003
    message = object_msg(Source(Image().header, 640, 480), first)
    assert (message.mask.width, message.mask.height, message.mask.encoding) == (640, 480, "mono8")
    assert message.has_pose
    assert message.size.z == pytest.approx(0.06, abs=0.003)


def test_a_pose_says_its_own_frame() -> None:
    moved = by_depth(PEAKS[0].box).moved(np.eye(3), np.array([1.0, 0.0, 0.0]), "base_link")
    header = Header(frame_id="eye")
    header.stamp.sec = 7
    message = object_msg(Source(header, 640, 480), LocatedObject(PEAKS[0].box, place=moved))
    assert (message.header.frame_id, message.pose.header.frame_id) == ("eye", "base_link")
    assert message.pose.header.stamp == header.stamp
    assert message.pose.pose.position.x == pytest.approx(BLOCK.middle[0] + 1, abs=0.003)
    without = object_msg(Source(header, 640, 480), LocatedObject(PEAKS[0].box))
    assert without.pose.header == header


def test_a_groundings_mask_is_its_places() -> None:
    reply = Grounding(SCENE.box(0), "block", 0.7, estimate())
    (found,) = find_objects(FakeClue(), FakeView(), reply, by_depth, masks=True)
    assert (found.label, found.score) == ("block", 0.7)
    assert found.mask is not None
    assert (found.mask & (SCENE.shown == 0)).sum() > 0.85 * found.mask.sum()
    (without,) = find_objects(FakeClue(), FakeView(), reply, no_depth)
    assert without.mask is None
    assert without.place is None
    assert "no depth" in without.no_place


def test_without_depth_a_groundings_mask_is_the_models() -> None:
    clue, reply = FakeMasks(), Grounding(SCENE.box(0), "block", 0.7, estimate())
    (found,) = find_objects(clue, FakeView(), reply, no_depth, masks=True)
    assert found.mask is not None
    assert np.array_equal(found.mask, clue.mask(FakeView(), reply))
    (deep,) = find_objects(clue, FakeView(), reply, by_depth, masks=True)
    assert deep.place is not None
    assert deep.mask is not None
    assert np.array_equal(deep.mask, deep.place.mask())
    (without,) = find_objects(clue, FakeView(), reply, no_depth, masks=False)
    assert without.mask is None


def test_a_mask_that_fails_costs_no_grounding() -> None:
    clue, reply = FakeMasks(), Grounding(SCENE.box(0), "block", 0.7, estimate())
    clue.fails = True
    (found,) = find_objects(clue, FakeView(), reply, no_depth, masks=True)
    assert (found.box, found.mask) == (reply.box, None)


def test_masks_that_would_be_too_much_for_one_message_are_left_out() -> None:
    clue, view = FakeClue(), FakeView()
    view.width = MAX_MASK_PIXELS // (len(PEAKS) * view.height) + 1
    found = find_objects(clue, view, question(), masks=True)
    assert [one.mask for one in found] == [None, None]
    assert clue.masked == 0
    view.width *= len(PEAKS)
    reply = Grounding(SCENE.box(0), "block", 0.7, estimate())
    (target,) = find_objects(clue, view, reply, by_depth, masks=True)
    assert target.place is not None
    assert target.mask is None


def test_what_fails_in_the_geometry_costs_the_pose_and_nothing_else() -> None:
    def fails(_box: Box) -> Place:
        raise ZeroDivisionError("by zero")

    found = find_objects(FakeClue(), FakeView(), question(), fails, masks=True)
    assert [f.no_place for f in found] == ["ZeroDivisionError: by zero"] * 2
    assert all(f.mask is not None for f in found)

    class Broken:
        def locator(self, _width: int, _height: int) -> Any:
            raise ValueError("not a matrix")

    found = find_objects(FakeClue(), FakeView(), question(), locator(Broken(), 640, 480))
    assert [f.mask for f in found] == [None, None], "masks are for those who ask for them"
    assert found[0].no_place == "ValueError: not a matrix"


def test_what_is_not_known_is_not_a_number_in_the_message() -> None:
    message = object_msg(Source(Image().header, 640, 480), LocatedObject(Box(1, 2, 3, 4)))
    assert not message.has_pose
    at = message.pose.pose.position
    assert all(map(math.isnan, (at.x, at.y, at.z, message.size.x, message.score)))
    assert message.mask.width == 0


def test_a_candidate_confirmed_by_yes_keeps_its_mask_and_pose() -> None:
    class Depth:
        expected = True

        def locator(self, _width: int, _height: int) -> Any:
            return by_depth

    context = rclpy.Context()
    rclpy.init(context=context)
    executor, worker = SingleThreadedExecutor(context=context), Worker()
    pixels = fill_image(Image(), np.zeros((480, 640, 3), np.uint8), "rgb8")
    frame = Frame(pixels, 0.0, Depth())  # type: ignore[arg-type]
    clue = FakeClue(question(PEAKS[:1]))
    limits = Limits(3, 100.0)
    session = Session("id", "the block", frame, limits, clue, worker, executor, masks=True)
    try:
        task = executor.create_task(session.run())

        def spin() -> bool:
            executor.spin_once(timeout_sec=0.05)
            return session.waiting or bool(task.done())

        wait_until(spin, "the question")
        session.answer("yes")
        wait_until(lambda: spin() and task.done(), "the end")
        target = session.grounding_msg(task.result().grounding).target
        assert target.has_pose
        assert target.mask.width == 640
        assert math.isnan(target.score)
    finally:
        worker.stop()
        executor.shutdown(timeout_sec=2.0)
        context.try_shutdown()
