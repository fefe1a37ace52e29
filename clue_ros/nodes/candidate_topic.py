# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Candidates from a ROS topic of any detector node, for `model:=wrapper`.

`topic:NAME` is a vision_msgs/Detection2DArray or yolo_ros's yolo_msgs/DetectionArray, as the topic
is published; `topic:NAME@yolo_msgs` and `topic:NAME@vision_msgs` name one of them, and
`topic:NAME@clue_msgs` is a clue_msgs/ClarificationQuestion, whose candidates count. A detector
answers after the image. So `find` waits for the detections with the image's own stamp. If none
come, it takes the newest ones, unless they are too old.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError, ModelError
from clue_ros.nodes.messages import box_of
from clue_ros.nodes.topics import Input

KEPT = 30  # messages
WAIT = 1.0  # seconds for the detections of the image's own stamp
LOOK_AGAIN = 1.0  # seconds between looks at which type is published
MAX_AGE = 2.0  # seconds since the arrival of detections of another image


class NoDetectionsError(ClueError):
    """The detector's topic is silent."""

    code = "NO_IMAGE"


class CandidateTopic:
    """A `clue_ros.wrapper.sources.Source` of one topic.

    argument: the topic's name; behind it "@clue_msgs", "@vision_msgs" or "@yolo_msgs" where the
    type is known. Raises ModelError where the message's package is not installed.
    """

    open_vocabulary = False

    def __init__(self, node: Node, argument: str) -> None:
        topic, _, package = argument.partition("@")
        self.name = f"topic:{argument}"
        self._node, self._topic = node, topic
        self._held: OrderedDict[tuple[int, int], tuple[float, Any]] = OrderedDict()
        self._news = threading.Condition()
        self._wanted: tuple[int, int] | None = None
        self._subscribe(package or self._published() or _installed())
        self._timer = None
        if not package:
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._timer = node.create_timer(LOOK_AGAIN, self._follow, clock=steady)

    def _subscribe(self, package: str) -> None:
        """Subscribe to a package's type of detections. Raises ModelError."""
        self._package = package
        kind, self._read = TYPES[package]
        try:
            self._subscription = Input(self._topic, kind).subscribe(
                self._node,
                self._put,
                qos=qos_profile_sensor_data,
                callback_group=MutuallyExclusiveCallbackGroup(),
            )
        except (ImportError, AttributeError) as error:
            raise ModelError(
                f"candidates {self.name!r} need the package {package}:"
                f" {INSTALL.get(package, 'build it')} ({error})"
            ) from error

    def _follow(self) -> None:
        """Subscribe to another type if that is published: the detector may start last."""
        package = self._published()
        if not package or package == self._package:
            return
        self._node.destroy_subscription(self._subscription)
        with self._news:
            self._held.clear()
        try:
            self._subscribe(package)
        except ModelError as error:  # a package that is there and broken
            self._node.get_logger().error(str(error))

    def _published(self) -> str:
        """Return the package of the type that is published now; empty if none is known."""
        resolved = self._node.resolve_topic_name(self._topic)
        found = self._node.get_publishers_info_by_topic(resolved)
        kinds = {info.topic_type for info in found}
        return next((p for p in TYPES if TYPES[p][0] in kinds and find_spec(p) is not None), "")

    def close(self) -> None:
        """Unsubscribe."""
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
        self._node.destroy_subscription(self._subscription)

    def expect(self, header: Any) -> None:
        """Note the header of the image that is looked at next."""
        with self._news:
            self._wanted = _stamp(header)

    def _put(self, message: Any) -> None:
        with self._news:
            self._held[_stamp(message.header)] = (time.monotonic(), message)
            while len(self._held) > KEPT:
                self._held.popitem(last=False)
            self._news.notify_all()

    def find(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> Sequence[Candidate]:
        """Return the detections of the expected image, else the newest ones.

        Raises NoDetectionsError.
        """
        with self._news:
            self._news.wait_for(lambda: self._wanted in self._held, timeout=WAIT)
            found = self._held.get(self._wanted) if self._wanted is not None else None
            if found is None and self._held:
                newest = next(reversed(self._held.values()))
                found = newest if time.monotonic() - newest[0] <= MAX_AGE else None
        if found is None:
            raise NoDetectionsError(
                f"no detections came on {self.name} within {WAIT:g} s: is the detector running,"
                " and does it see the same camera?"
            )
        return self._read(found[1], self.name)


def _installed() -> str:
    """Return the package to assume while nobody publishes detections."""
    installed = find_spec("vision_msgs") is None and find_spec("yolo_msgs") is not None
    return "yolo_msgs" if installed else "vision_msgs"


def _stamp(header: Any) -> tuple[int, int]:
    return int(header.stamp.sec), int(header.stamp.nanosec)


def detection_candidates(message: Any, source: str) -> list[Candidate]:
    """The candidates of a vision_msgs/Detection2DArray; the likeliest hypothesis names each."""
    out = []
    for detection in message.detections:
        results = list(detection.results)
        if not results:
            continue
        best = max((_hypothesis(r) for r in results), key=lambda h: float(h.score))
        box = _box(detection.bbox.center, detection.bbox.size_x, detection.bbox.size_y)
        name = getattr(best, "class_id", "") or getattr(best, "id", "")
        out.append(Candidate(box, str(name), float(best.score), source))
    return out


def yolo_candidates(message: Any, source: str) -> list[Candidate]:
    """The candidates of a yolo_msgs/DetectionArray; a class without a name is its id."""
    out = []
    for found in message.detections:
        box = _box(found.bbox.center, found.bbox.size.x, found.bbox.size.y)
        name = found.class_name or str(found.class_id)
        out.append(Candidate(box, name, float(found.score), source))
    return out


def _box(center: Any, width: float, height: float) -> Box:
    """Return the upright box around a box that is turned by `center.theta`, if it has one."""
    middle = getattr(center, "position", center)  # vision_msgs before 4.0 has no position
    theta = float(getattr(center, "theta", 0.0))
    cos, sin = abs(math.cos(theta)), abs(math.sin(theta))
    half_w, half_h = (width * cos + height * sin) / 2, (width * sin + height * cos) / 2
    return Box(middle.x - half_w, middle.y - half_h, middle.x + half_w, middle.y + half_h)


def _hypothesis(result: Any) -> Any:
    """An ObjectHypothesis, which newer versions nest in one with a pose."""
    return getattr(result, "hypothesis", result)


def question_candidates(message: Any, source: str) -> list[Candidate]:
    """The candidates of a clue_msgs/ClarificationQuestion."""
    out = []
    for found in message.candidates:
        score = float(found.score)
        score = score if score == score else 1.0
        out.append(Candidate(box_of(found.box), found.label, score, source))
    return out


TYPES: dict[str, tuple[str, Callable[[Any, str], list[Candidate]]]] = {
    "vision_msgs": ("vision_msgs/msg/Detection2DArray", detection_candidates),
    "yolo_msgs": ("yolo_msgs/msg/DetectionArray", yolo_candidates),
    "clue_msgs": ("clue_msgs/msg/ClarificationQuestion", question_candidates),
}
"""The readers of the known types, by package."""
INSTALL = {
    "vision_msgs": "install ros-$ROS_DISTRO-vision-msgs",
    "yolo_msgs": "build it with yolo_ros in your workspace",
}
