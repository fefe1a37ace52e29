"""Frames: where one is in another, by tf, and whether an image's is an optical one."""

from __future__ import annotations

import importlib.util
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from geometry_msgs.msg import Quaternion, TransformStamped, Vector3  # noqa: E402
from ros_helpers import Client, isolate, ros_client, wait_until  # noqa: E402

from clue_ros.errors import NoPoseError  # noqa: E402
from clue_ros.nodes.pose_from_depth import quaternion, rotation  # noqa: E402
from clue_ros.nodes.transforms import (  # noqa: E402
    BODY,
    KEPT,
    TooEarlyError,
    Transforms,
    TransformTree,
)

SECOND = 1_000_000_000
HALF = math.sqrt(0.5)
LEFT = (0.0, 0.0, HALF, HALF)  # a quarter turn about z
FORWARD = quaternion(BODY)


def step(
    parent: str,
    child: str,
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0),
    stamp: int = 0,
) -> TransformStamped:
    """The place of `child` in `parent`; stamp in nanoseconds."""
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, SECOND)
    message.transform.translation = Vector3(**dict(zip("xyz", shift, strict=True)))
    message.transform.rotation = Quaternion(**dict(zip("xyzw", turn, strict=True)))
    return message


def at(found: Any, point: tuple[float, float, float]) -> list[float]:
    return [float(value) for value in found.turn @ np.array(point) + found.shift]


def test_a_chain_goes_up_and_down_again() -> None:
    tree = TransformTree()
    tree.put(
        [
            step("map", "base", (1.0, 0.0, 0.0), LEFT),
            step("base", "eye", (0.0, 0.0, 0.5)),
            step("base", "hand", (0.2, 0.0, 0.0)),
        ],
        fixed=True,
    )
    assert at(tree.lookup("base", "eye", 5), (0.0, 0.0, 0.0)) == pytest.approx([0, 0, 0.5])
    assert at(tree.lookup("map", "eye", 5), (1.0, 0.0, 0.0)) == pytest.approx([1, 1, 0.5])
    assert at(tree.lookup("eye", "map", 5), (1.0, 1.0, 0.5)) == pytest.approx([1, 0, 0])
    assert at(tree.lookup("hand", "eye", 5), (0.2, 0.0, 0.0)) == pytest.approx([0, 0, 0.5])
    assert at(tree.lookup("eye", "eye", 5), (1.0, 2.0, 3.0)) == [1, 2, 3]


def test_a_moving_frame_is_where_it_was_at_that_time() -> None:
    tree = TransformTree()
    late, early = step("base", "eye", (2.0, 0.0, 0.0), LEFT, 2 * SECOND), (0.0, 0.0, 0.0)
    tree.put([late, step("base", "eye", early, stamp=SECOND)], fixed=False)  # in any order
    found = tree.lookup("base", "eye", SECOND + SECOND // 2)
    assert found.shift == pytest.approx([1, 0, 0])
    assert found.turn[:, 0] == pytest.approx([HALF, HALF, 0]), "half of a quarter turn"
    assert tree.lookup("base", "eye", 0).shift == pytest.approx([2, 0, 0]), "0: the newest"
    with pytest.raises(TooEarlyError, match=r"0\.500 s older"):
        tree.lookup("base", "eye", 2 * SECOND + SECOND // 2)
    with pytest.raises(NoPoseError, match=r"0\.500 s newer"):
        tree.lookup("base", "eye", SECOND // 2)


def test_a_frame_above_the_common_one_does_not_matter() -> None:
    tree = TransformTree()
    tree.put([step("odom", "base", stamp=SECOND)], fixed=False)
    tree.put([step("base", "eye", (0.0, 0.0, 0.5))], fixed=True)
    assert tree.lookup("base", "eye", 9 * SECOND).shift == pytest.approx([0, 0, 0.5])


def test_old_transforms_are_dropped_and_a_clock_that_goes_back_starts_anew() -> None:
    tree = TransformTree()
    for second in range(int(KEPT) + 10):
        tree.put(
            [step("base", "eye", (float(second), 0.0, 0.0), stamp=second * SECOND)], fixed=False
        )
    with pytest.raises(NoPoseError, match="newer than the image"):
        tree.lookup("base", "eye", 2 * SECOND)
    tree.put([step("base", "eye", (-1.0, 0.0, 0.0), stamp=SECOND)], fixed=False)
    assert tree.lookup("base", "eye", SECOND).shift == pytest.approx([-1, 0, 0])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "no frame 'eye'"),
        ([step("base", "arm"), step("world", "eye")], "does not connect 'eye' and 'base'"),
        ([step("base", "eye", turn=(0.0, 0.0, 0.0, 0.0))], "no rotation"),
        ([step("base", "eye", (math.nan, 0.0, 0.0))], "no rotation and translation"),
        ([step("eye", "arm"), step("arm", "eye")], "no frame 'base'"),
    ],
)
def test_what_tf_does_not_tell_is_said(messages: list[Any], words: str) -> None:
    tree = TransformTree()
    tree.put(messages, fixed=True)
    with pytest.raises(NoPoseError, match=words):
        tree.lookup("base", "eye", SECOND)


def test_a_transform_on_its_way_is_waited_for_and_a_missing_one_is_not() -> None:
    transforms = Transforms()
    transforms.put([step("base", "eye", stamp=SECOND)], fixed=False)
    late = [step("base", "eye", (0.3, 0.0, 0.0), stamp=3 * SECOND)]
    coming = threading.Timer(0.1, transforms.put, (late,), {"fixed": False})
    coming.start()
    assert transforms.lookup("base", "eye", 3 * SECOND).shift == pytest.approx([0.3, 0, 0])
    coming.join()
    with pytest.raises(NoPoseError, match="target_frame 'table': tf has no frame 'table'"):
        transforms.lookup("table", "eye", SECOND)


def test_a_body_frame_has_its_optical_frame_beside_it() -> None:
    transforms = Transforms()
    other = quaternion(rotation(FORWARD) @ rotation(LEFT))
    transforms.put(
        [
            step("base_link", "camera_link", (0.3, 0.0, 0.4)),
            step("camera_link", "camera_optical_frame", (0.01, 0.0, 0.0), FORWARD),
            step("base_link", "wrist_link", (0.8, 0.0, 0.2)),
            step("wrist_link", "wrist_optical_frame", turn=other),
        ],
        fixed=True,
    )
    assert transforms.optical_frame("camera_link") == "camera_optical_frame"
    assert transforms.optical_frame("base_link") == "", "it lies half a metre away"
    assert transforms.optical_frame("wrist_link") == "", "it is turned otherwise"
    assert transforms.optical_frame("nowhere") == ""


# Over DDS, where the type of /tf can be published.


@pytest.fixture(scope="module")
def teller() -> Iterator[Client]:
    if importlib.util.find_spec("tf2_msgs") is None:
        pytest.skip("tf2_msgs is not installed (it is no wheel: scripts/extra_ros)")
    isolate()
    with ros_client("tf_teller") as client:
        yield client


def test_transforms_come_from_the_topics(teller: Client) -> None:
    from rclpy.callback_groups import ReentrantCallbackGroup
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from tf2_msgs.msg import TFMessage

    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    fixed = teller.node.create_publisher(TFMessage, "/tf_static", latched)
    fixed.publish(TFMessage(transforms=[step("hand", "eye", (0.0, 0.1, 0.0))]))
    moving = teller.node.create_publisher(TFMessage, "/tf", 10)
    transforms = Transforms()
    assert transforms.missing == ""
    transforms.open(teller.node, ReentrantCallbackGroup(), fixed=True, moving=True)

    def found() -> Any:
        for stamp in (SECOND, 2 * SECOND):
            moving.publish(
                TFMessage(
                    transforms=[step("base", "hand", (stamp / SECOND, 0.0, 0.0), stamp=stamp)]
                )
            )
        try:
            return transforms.lookup("base", "eye", SECOND + SECOND // 2)
        except NoPoseError:
            return None

    assert wait_until(found, "a transform").shift == pytest.approx([1.5, 0.1, 0.0])
    with pytest.raises(NoPoseError, match="target_frame 'table'"):
        transforms.lookup("table", "eye", SECOND)
    transforms.close()
