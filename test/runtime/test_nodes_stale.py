"""The picture changes while a question is open: what the answer is about then.

Over DDS, with the embedded model, on the demo's picture of two yellow blocks (and one that is not).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.action import GroundWithDialogue  # noqa: E402
from clue_msgs.msg import GroundingResult  # noqa: E402
from ros_helpers import Client, Process, ros_client, wait_until  # noqa: E402

from clue_ros.dialogue.sayings import Saying, say  # noqa: E402
from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.images import load_image  # noqa: E402
from clue_ros.nodes.messages import box_of, seconds  # noqa: E402
from clue_ros.nodes.scene_change import alike, unchanged  # noqa: E402

Pixels = npt.NDArray[np.uint8]
Result = GroundWithDialogue.Result
TABLE = load_image(ros_helpers.ROOT / "demo" / "yellow_blocks.png")
UPPER, OTHER = Box(250, 182, 340, 280), Box(382, 186, 488, 313)
REQUEST, ANSWER = "pick up the yellow block", "the upper one"
MOST_AGE = 1.0  # seconds, max_image_age


def without(box: Box, image: Pixels = TABLE) -> Pixels:
    """Return the picture with the table where the box is."""
    mask = np.zeros(image.shape[:2], np.uint8)
    x_min, y_min, x_max, y_max = map(int, box.grown(6, 6).as_list())
    mask[y_min:y_max, x_min:x_max] = 1
    return np.asarray(cv2.inpaint(image, mask, 3, cv2.INPAINT_TELEA), np.uint8)


def moved(box: Box, right: int, image: Pixels = TABLE) -> Pixels:
    """Return the picture with the box's pixels elsewhere."""
    x_min, y_min, x_max, y_max = map(int, box.as_list())
    changed = without(box, image)
    changed[y_min:y_max, x_min + right : x_max + right] = image[y_min:y_max, x_min:x_max]
    return changed


def noisy(image: Pixels, seed: int, level: float = 8.0, gain: float = 1.0) -> Pixels:
    """Return the picture as a camera has it in poor light."""
    noise = np.random.default_rng(seed).normal(0, level, image.shape)
    return np.clip(image * gain + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("gain", [0.8, 1.0, 1.5])
def test_noise_and_exposure_change_nothing_and_a_block_that_goes_does(gain: float) -> None:
    before = noisy(TABLE, 1)
    assert unchanged(before, noisy(TABLE, 2, gain=gain), UPPER)
    for changed in (without(UPPER), moved(UPPER, 25), moved(UPPER, -130)):
        assert not unchanged(before, noisy(changed, 2, gain=gain), UPPER)
        assert unchanged(before, noisy(changed, 2, gain=gain), OTHER)
    assert not unchanged(before, TABLE[::2, ::2], UPPER)
    assert alike(before, UPPER, noisy(moved(UPPER, -130), 2, gain=gain), UPPER.moved(-130, 0))
    assert not alike(before, UPPER, noisy(TABLE, 2, gain=gain), UPPER.moved(-130, 0))


BY_WORDS_OR_CHOICE = pytest.mark.parametrize("candidate", [-1, 0], ids=["words", "choice"])


class Scene:
    """What a camera sees, 20 frames a second, each with noise of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.show(TABLE)
        client.start_camera(self._publish)

    def show(self, image: Pixels) -> None:
        """Show this picture from now on."""
        self._frames = [noisy(image, seed) for seed in range(3)]

    def _publish(self) -> None:
        self._frames.append(self._frames.pop(0))
        self._client.images.publish(self._client.image(self._frames[0]))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    log = tmp_path_factory.mktemp("log") / "perception.log"
    given = {"model": "household", "autostart": True, "max_image_age": MOST_AGE, "image_rate": 0.0}
    process = Process("perception", log, parameters=given)
    try:
        with ros_client() as client:
            wait_until(lambda: client.state() == "active", "perception")
            yield client
    finally:
        assert process.stop() == 0, process.text()


@pytest.fixture
def client(shared: Client) -> Client:
    shared.set(max_age_at_result=0.2)
    shared.clear()
    return shared


@pytest.fixture
def scene(client: Client) -> Iterator[Scene]:
    scene = Scene(client)
    wait_until(lambda: client.ground(REQUEST).error_code == Result.NONE, "the first image")
    yield scene
    client.stop_camera()


def asked(client: Client) -> tuple[Any, Any]:
    """Start a dialogue; return its goal's handle and the question, once its image is old."""
    goal = client.goal(REQUEST)
    question = client.next("question")
    assert list(question.suggested_answers) == ["the upper one", "the lower one"]
    time.sleep(0.4)
    return goal, question


def box_in(found: GroundingResult) -> Box:
    return box_of(found.target.box)


def age(client: Client, found: GroundingResult) -> float:
    """Return the seconds since the image of a result was taken."""
    now = client.node.get_clock().now().nanoseconds * 1e-9
    return float(now - seconds(found.header.stamp))


@BY_WORDS_OR_CHOICE
def test_where_nothing_has_changed_the_result_is_about_the_newest_image(
    client: Client, scene: Scene, candidate: int
) -> None:
    goal, question = asked(client)
    client.answer(ANSWER, candidate=candidate)
    found = client.result(goal).result.grounding
    assert found.confirmed == (candidate >= 0)
    assert box_in(found).iou(UPPER) > 0.5
    assert age(client, found) < 0.4
    assert found.target.header == found.header
    stamps = [seconds(m.header.stamp) for m in (found.ambiguity, question, found)]
    assert stamps[0] <= stamps[1] < stamps[2], "the estimate is of the image that was judged"
    assert len(client.heard["question"]) == 1


def test_a_block_that_was_moved_is_found_at_its_new_place(client: Client, scene: Scene) -> None:
    goal, _ = asked(client)
    scene.show(moved(UPPER, -130))
    time.sleep(0.3)
    client.answer(ANSWER)
    end = client.result(goal).result
    assert end.error_code == Result.NONE, end.error_msg
    assert box_in(end.grounding).iou(UPPER.moved(-130, 0)) > 0.5
    assert age(client, end.grounding) < 1.0
    assert len(client.heard["question"]) == 1


@BY_WORDS_OR_CHOICE
def test_a_block_that_is_gone_is_not_replaced_by_another_without_a_question(
    client: Client, scene: Scene, candidate: int
) -> None:
    goal, _ = asked(client)
    scene.show(without(UPPER))
    time.sleep(0.3)
    client.answer(ANSWER, candidate=candidate)
    question = client.next("question", 2)
    said = client.heard["say"]
    wait_until(lambda: said[-1].data == question.text, "the question, aloud")
    assert said[-2].data == say(Saying.CHANGED, "en")
    assert age(client, question) < 2.0
    client.answer("stop")
    assert client.result(goal).result.error_code == Result.CANCELED


@BY_WORDS_OR_CHOICE
def test_without_a_camera_nothing_is_pointed_at(
    client: Client, scene: Scene, candidate: int
) -> None:
    goal, _ = asked(client)
    client.stop_camera()
    time.sleep(MOST_AGE + 0.3)
    client.answer(ANSWER, candidate=candidate)
    end = client.result(goal).result
    assert end.error_code == Result.STALE_IMAGE
    assert "max_image_age" in end.error_msg


def test_the_image_of_a_request_stays_its_image(client: Client, scene: Scene) -> None:
    given = client.image(TABLE)
    goal = client.goal(REQUEST, image=given)
    client.next("question")
    scene.show(without(UPPER))
    client.stop_camera()
    time.sleep(0.4)
    client.answer(ANSWER)
    found = client.result(goal).result.grounding
    assert found.header == given.header
    assert box_in(found).iou(UPPER) > 0.5
