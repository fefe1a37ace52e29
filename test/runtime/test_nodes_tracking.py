"""Following over DDS: the service `track`, the goal's field, the topic `tracked`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.msg import BoundingBox, TrackedObject  # noqa: E402
from clue_msgs.srv import Track  # noqa: E402
from ros_fixtures import REQUEST  # noqa: E402
from ros_helpers import Client, Process, picture, wait_until  # noqa: E402

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding  # noqa: E402
from clue_ros.nodes.camera import Frame  # noqa: E402
from clue_ros.nodes.client import CommandGrounder, GroundingError  # noqa: E402
from clue_ros.nodes.follower import Follower  # noqa: E402

SIDE = 40  # of a square with a pattern of its own


class MovingSquare:
    """A camera over a table on which a square moves, unless it is hidden."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = picture(320, 240) // 4 + np.uint8(90)
        self._square = picture(SIDE, SIDE, seed=7) // 2
        self._square[..., 0] = 200
        self.x, self.y, self.hidden, self.moves = 60.0, 80.0, False, 0.0

    def __call__(self) -> None:
        """Publish the next frame."""
        self.x += self.moves
        frame = self._table.copy()
        if not self.hidden:
            x, y = round(self.x), round(self.y)
            frame[y : y + SIDE, x : x + SIDE] = self._square
        self._client.images.publish(self._client.image(frame))

    @property
    def box(self) -> BoundingBox:
        """Where the square is."""
        x, y = self.x, self.y
        return BoundingBox(x_min=x, y_min=y, x_max=x + SIDE, y_max=y + SIDE)


@pytest.fixture(scope="module")
def track(shared: Client) -> Any:
    return shared.node.create_client(Track, "track")


@pytest.fixture
def square(client: Client, track: Any) -> Iterator[MovingSquare]:
    if "tracked" not in client.heard:
        client.listen(TrackedObject, "tracked", 10)
    square = MovingSquare(client)
    client.start_camera(square)
    wait_until(lambda: client.ground(REQUEST).grounding.target.image_width == 320, "its picture")
    client.clear()
    yield square
    client.call(track, Track.Request(command=Track.Request.STOP))
    client.set(masks=False, look_again_after=2.0)


def test_a_box_is_followed_with_the_header_of_each_frame(
    client: Client, track: Any, square: MovingSquare
) -> None:
    assert client.set(masks=True) == ""
    response = client.call(track, Track.Request(box=square.box))
    assert (response.error_code, response.error_msg) == (0, "")
    square.moves = 1.0
    client.next("tracked", 12)
    square.moves = 0.0
    where = square.box.x_min
    heard = client.heard["tracked"]
    wait_until(lambda: abs(heard[-1].object.box.x_min - where) < 3, "it where it stands now")
    last = heard[-1]
    assert {m.track_id for m in heard} == {response.track_id}
    assert not last.lost
    assert abs(last.object.box.y_max - (square.y + SIDE)) < 3
    assert last.object.score > 0.8
    assert (last.object.mask.width, last.object.mask.height) == (320, 240)
    assert last.header.frame_id == "test_camera" == last.object.header.frame_id
    stamps = [m.header.stamp.sec + m.header.stamp.nanosec * 1e-9 for m in heard]
    assert stamps == sorted(set(stamps))  # each frame once, in order
    stop = Track.Request(command=Track.Request.STOP, track_id=response.track_id)
    assert client.call(track, stop).error_code == 0
    again = client.call(track, stop)
    assert again.error_code == Track.Response.UNKNOWN_TRACK
    assert "nothing is" in again.error_msg


def test_a_goal_may_ask_to_follow_what_it_finds(client: Client, square: MovingSquare) -> None:
    """With masks, one a frame: ask first, then segment what was found from frame to frame."""
    client.set(masks=True)
    handle = client.goal(REQUEST, track=True)
    result = client.result(handle).result
    assert result.error_code == 0
    followed = client.next("tracked", 3)
    assert (followed.object.mask.width, followed.object.mask.encoding) == (320, "mono8")
    assert any(followed.object.mask.data)
    assert followed.dialogue_id == result.grounding.dialogue_id
    assert followed.object.label == result.grounding.target.label


def test_the_last_grounding_is_followed_and_no_other(
    client: Client, track: Any, square: MovingSquare
) -> None:
    grounding = client.result(client.goal(REQUEST)).result.grounding
    wrong = client.call(track, Track.Request(dialogue_id="another"))
    assert wrong.error_code == Track.Response.UNKNOWN_DIALOGUE
    assert client.call(track, Track.Request(dialogue_id=grounding.dialogue_id)).error_code == 0
    assert client.next("tracked").dialogue_id == grounding.dialogue_id


def test_a_lost_object_keeps_its_number_when_it_is_seen_again(
    client: Client, track: Any, square: MovingSquare
) -> None:
    number = client.call(track, Track.Request(box=square.box)).track_id
    client.next("tracked", 2)
    square.hidden = True
    wait_until(lambda: client.heard["tracked"][-1].lost, "that it is lost")
    assert client.heard["tracked"][-1].object.no_pose_reason
    square.hidden = False
    wait_until(lambda: not client.heard["tracked"][-1].lost, "that it is seen again")
    assert client.heard["tracked"][-1].track_id == number


def test_a_client_follows_and_is_told_why_it_cannot(client: Client, square: MovingSquare) -> None:
    with CommandGrounder("follower_client", context=rclpy.Context()) as grounder:
        grounder.wait_until_active(timeout=ros_helpers.TIMEOUT)
        assert grounder.tracked == {}  # subscribes
        grounder.ground(REQUEST)
        first, second = grounder.follow(), grounder.follow(square.box)
        wait_until(lambda: {first, second} <= set(grounder.tracked), "both")
        assert grounder.tracked[second].object.box.x_max == pytest.approx(square.box.x_max, abs=3)
        grounder.unfollow(first)
        assert first not in grounder.tracked
        with pytest.raises(GroundingError, match=f"UNKNOWN_TRACK: track {first} is not followed"):
            grounder.unfollow(first)
        grounder.unfollow()
        assert grounder.tracked == {}


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (Track.Request(box=BoundingBox(x_min=900.0, x_max=950.0, y_max=9.0)), "BAD_BOX", "outside"),
        (Track.Request(command=1, track_id=999), "UNKNOWN_TRACK", "999 is not followed"),
    ],
)
def test_what_cannot_be_followed_is_said(
    client: Client, track: Any, square: MovingSquare, request_: Any, code: str, words: str
) -> None:
    response = client.call(track, request_)
    assert response.error_code == getattr(Track.Response, code)
    assert words in response.error_msg


def test_the_model_looks_with_the_dialogue_for_what_stays_lost(client: Client) -> None:
    """The model is pretended: it points at where the object is now, and looks new."""
    table = np.full((120, 160, 3), 120, np.uint8)
    before, after = table.copy(), table.copy()
    before[20:60, 20:60] = picture(40, 40, seed=7)
    after[60:100, 100:140] = picture(40, 40, seed=8)  # another light: not to be known again
    asked: list[Dialogue] = []
    heard: list[TrackedObject] = []

    def look_again(frame: Frame, dialogue: Dialogue, replied: Any) -> None:
        asked.append(dialogue)
        estimate = AmbiguityEstimate(0.1, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
        replied(Grounding(Box(100, 60, 140, 100), "block", 0.9, estimate))

    follower = Follower(heard.append, look_again, print, patience=lambda: 0.01, masks=lambda: False)
    dialogue = Dialogue(REQUEST)
    number = follower.start(
        Frame(client.image(before), 0.0), Box(20, 20, 60, 60), "block", "id", dialogue
    )

    def found() -> bool:
        follower.offer(Frame(client.image(after), 0.0))
        return bool(heard and not heard[-1].lost)

    wait_until(found, "the model's look")
    follower.stop()
    assert asked == [dialogue]
    assert heard[0].lost
    assert {message.track_id for message in heard} == {number}
    assert abs(heard[-1].object.box.x_min - 100) < 3


def test_following_ends_with_the_camera(
    client: Client, track: Any, square: MovingSquare, node: Process
) -> None:
    assert client.call(track, Track.Request(box=square.box)).error_code == 0
    client.next("tracked")
    assert client.transition("deactivate")
    assert client.call(track, Track.Request(box=square.box)).error_code == Track.Response.INACTIVE
    client.clear()
    assert client.transition("activate")
    wait_until(lambda: client.ground(REQUEST).error_code == 0, "the camera again")
    assert client.heard["tracked"] == []
    assert node.popen.poll() is None
