# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Candidates from a ROS topic: what any detector node publishes, for `model:=wrapper`.

`topic:NAME` is a vision_msgs/Detection2DArray, as yolo_ros and others publish it, and
`topic:NAME@clue_msgs` a clue_msgs/ClarificationQuestion, whose candidates count. A detector
answers after the image: the detections with the image's own stamp are waited for, and where none
come the newest ones stand in, unless they are too old.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError, ModelError
from clue_ros.nodes.messages import box_of
from clue_ros.nodes.topics import Input

KEPT = 30  # messages
WAIT = 1.0  # seconds for the detections of the image's own stamp
MAX_AGE = 2.0  # seconds since the arrival of detections of another image
DETECTIONS, QUESTION = "vision_msgs/msg/Detection2DArray", "clue_msgs/msg/ClarificationQuestion"
OURS = "@clue_msgs"


class NoDetectionsError(ClueError):
    """The detector's topic is silent."""

    code = "NO_IMAGE"


class CandidateTopic:
    """A `clue_ros.wrapper.sources.Source` of one topic.

    argument: the topic's name, with "@clue_msgs" behind it for a ClarificationQuestion. Raises
    ModelError where the message's package is not installed.
    """

    open_vocabulary = False

    def __init__(self, node: Node, argument: str) -> None:
        ours = argument.endswith(OURS)
        topic = argument.removesuffix(OURS)
        self.name = f"topic:{argument}"
        self._read = question_candidates if ours else detection_candidates
        self._held: OrderedDict[tuple[int, int], tuple[float, Any]] = OrderedDict()
        self._news = threading.Condition()
        self._wanted: tuple[int, int] | None = None
        self._node = node
        try:
            self._subscription = Input(topic, QUESTION if ours else DETECTIONS).subscribe(
                node,
                self._put,
                qos=qos_profile_sensor_data,
                callback_group=MutuallyExclusiveCallbackGroup(),
            )
        except (ImportError, AttributeError) as error:
            raise ModelError(
                f"candidates {self.name!r} need the package vision_msgs: install"
                f" ros-$ROS_DISTRO-vision-msgs ({error})"
            ) from error

    def close(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)

    def expect(self, header: Any) -> None:
        """Say whose image is looked at next, by the header of its message."""
        with self._news:
            self._wanted = _stamp(header)

    def _put(self, message: Any) -> None:
        with self._news:
            self._held[_stamp(message.header)] = (time.monotonic(), message)
            while len(self._held) > KEPT:
                self._held.popitem(last=False)
            self._news.notify_all()

    def find(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> Sequence[Candidate]:
        """The detections of the expected image; of the newest one where its own do not come.

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
        center = getattr(detection.bbox.center, "position", detection.bbox.center)  # before 4.0
        half_w, half_h = detection.bbox.size_x / 2, detection.bbox.size_y / 2
        box = Box(center.x - half_w, center.y - half_h, center.x + half_w, center.y + half_h)
        name = getattr(best, "class_id", "") or getattr(best, "id", "")
        out.append(Candidate(box, str(name), float(best.score), source))
    return out


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
