# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Transforms between frames: tf2, and a small reader of its topics where tf2_ros is missing.

ROS 2 from wheels has no tf2_ros; tf2_msgs, the type of the topics, is then built by itself
(scripts/extra_ros). Nothing here waits but `Transforms.lookup`, which runs in the model's thread.
"""

from __future__ import annotations

import importlib
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.subscription import Subscription
from rclpy.time import Time

from clue_ros.errors import NoPoseError
from clue_ros.nodes.pinhole import Array
from clue_ros.nodes.pose_from_depth import rotation
from clue_ros.nodes.topics import Perception

KEPT = 30.0  # seconds of moving transforms to keep: a model may load so long
SETTLE = 0.3  # seconds to wait for a transform that is on its way
LOOK = 0.02  # seconds between looks
# Turns optical coordinates (x right, y down, z forward) into a body's (x forward, y left, z up).
BODY = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
OPTICAL = "optical"  # in the names of optical frames (REP 103: the suffix _optical)
BESIDE = 0.1  # metres from a camera's body frame to its optical frame, at most
ALIKE = 1e-3  # largest difference of two rotation matrices that are the same


@dataclass(frozen=True)
class Transform:
    """A point p of frame `source` is at turn (3, 3) p + shift (3,) metres in frame `target`."""

    turn: Array
    shift: Array

    def after(self, first: Transform) -> Transform:
        """Return the transform that does `first` and then this one."""
        return Transform(self.turn @ first.turn, self.turn @ first.shift + self.shift)

    def inverse(self) -> Transform:
        """Return the transform back."""
        return Transform(self.turn.T, -self.turn.T @ self.shift)


SAME = Transform(np.eye(3), np.zeros(3))


class TooEarlyError(NoPoseError):
    """The transform of this time has not come yet."""


def transform_of(message: Any) -> Transform:
    """Return a geometry_msgs/Transform. Raises NoPoseError for numbers that are no rotation."""
    q, t = message.rotation, message.translation
    turn = np.array([q.x, q.y, q.z, q.w])
    shift, length = np.array([t.x, t.y, t.z]), float(np.linalg.norm(turn))
    if not (np.isfinite(shift).all() and abs(length - 1) < 0.01):
        raise NoPoseError("tf holds a transform that is no rotation and translation")
    x, y, z, w = map(float, turn / length)
    return Transform(rotation((x, y, z, w)), shift)


class TransformTree:
    """The frames of /tf and /tf_static, used where tf2_ros is missing; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parents: dict[str, str] = {}
        self._fixed: dict[str, Any] = {}  # by child: a geometry_msgs/Transform
        self._moving: dict[str, list[tuple[int, int, Any]]] = {}  # by child, sorted by time
        self._count = 0

    def put(self, transforms: Iterable[Any], *, fixed: bool) -> None:
        """Take geometry_msgs/TransformStamped messages, of /tf_static if `fixed`."""
        with self._lock:
            for message in transforms:
                child = message.child_frame_id.lstrip("/")
                self._parents[child] = message.header.frame_id.lstrip("/")
                if fixed:
                    self._fixed[child] = message.transform
                    continue
                stamp = nanoseconds(message.header.stamp)
                line = self._moving.setdefault(child, [])
                if line and stamp < line[-1][0] - KEPT * 1e9:
                    line.clear()  # time has gone back: a bag begins again
                self._count += 1  # so that messages of one time are never compared
                insort(line, (stamp, self._count, message.transform))
                oldest = line[-1][0] - int(KEPT * 1e9)
                del line[: bisect_left(line, (oldest,))]

    def names(self) -> tuple[str, ...]:
        """Return every frame that hangs on another one."""
        with self._lock:
            return tuple(self._parents)

    def lookup(self, target: str, source: str, stamp: int) -> Transform:
        """Return the transform from `source` to `target` at a time in nanoseconds; 0: the newest.

        Raises NoPoseError: unknown, not connected or too old; TooEarlyError: it may come yet.
        """
        with self._lock:
            down, up = self._ancestors(source), self._ancestors(target)
            common = next((frame for frame in down if frame in up), None)
            if common is not None:
                here, there = (self._to(common, line, stamp) for line in (down, up))
                return there.inverse().after(here)
            known = {*self._parents, *self._parents.values()}
        for frame in (source, target):
            if frame not in known:
                raise NoPoseError(f"tf has no frame {frame[:80]!r}")
        raise NoPoseError(f"tf does not connect {source[:80]!r} and {target[:80]!r}")

    def _ancestors(self, frame: str) -> list[str]:
        """Return a frame, its parent and so on."""
        found = [frame]
        while (parent := self._parents.get(found[-1])) is not None and parent not in found:
            found.append(parent)
        return found

    def _to(self, ancestor: str, line: list[str], stamp: int) -> Transform:
        """Return the transform from the first frame of a line of ancestors to one of them."""
        found = SAME
        for frame in line[: line.index(ancestor)]:
            found = self._step(frame, stamp).after(found)
        return found

    def _step(self, child: str, stamp: int) -> Transform:
        """Return the transform from a frame to its parent, between two messages' in proportion."""
        if child in self._fixed:
            return transform_of(self._fixed[child])
        line = self._moving[child]
        if stamp == 0:
            return transform_of(line[-1][2])
        if stamp > line[-1][0]:
            raise TooEarlyError(
                f"the newest transform of {child[:80]!r} in tf is "
                f"{(stamp - line[-1][0]) * 1e-9:.3f} s older than the image"
            )
        if stamp < line[0][0]:
            raise NoPoseError(
                f"the oldest transform of {child[:80]!r} in tf is "
                f"{(line[0][0] - stamp) * 1e-9:.3f} s newer than the image"
            )
        place = bisect_left(line, (stamp,))
        if line[place][0] == stamp:
            return transform_of(line[place][2])
        (before, _, one), (later, _, two) = line[place - 1 : place + 1]
        return _between(one, two, (stamp - before) / (later - before))


def _between(one: Any, two: Any, part: float) -> Transform:
    """Return the transform `part` of the way from one message to another."""
    first, second = transform_of(one), transform_of(two)
    q, p = one.rotation, two.rotation
    start, end = np.array([q.x, q.y, q.z, q.w]), np.array([p.x, p.y, p.z, p.w])
    if start @ end < 0:  # the same rotation, by the shorter way
        end = -end
    # Normalised interpolation: between two messages a robot turns by a few degrees at most.
    mixed = (1 - part) * start + part * end
    x, y, z, w = map(float, mixed / np.linalg.norm(mixed))
    shift = (1 - part) * first.shift + part * second.shift
    return Transform(rotation((x, y, z, w)), shift)


def nanoseconds(stamp: Any) -> int:
    """Return a builtin_interfaces/Time in nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


class Transforms:
    """Listens to tf while perception is active, as far as its parameters need it."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._subscriptions: list[Subscription] = []
        self._tree = TransformTree()
        self._buffer: Any = None  # of tf2_ros
        self._listener: Any = None
        self.missing = ""  # why there is no tf

    def open(self, node: Node, callback_group: Any, *, fixed: bool, moving: bool) -> None:
        """Subscribe. fixed: to /tf_static, to tell frames apart; moving: to look transforms up."""
        self._node, self._tree = node, TransformTree()
        self.missing = Perception.TF.missing
        if self.missing or not (fixed or moving):
            return
        if moving:
            try:
                tf2_ros = importlib.import_module("tf2_ros")
            except ImportError:
                self._subscribe(Perception.TF, callback_group, fixed=False)
            else:
                self._buffer = tf2_ros.Buffer(cache_time=Duration(seconds=KEPT))
                self._listener = tf2_ros.TransformListener(self._buffer, node, spin_thread=False)
        self._subscribe(Perception.TF_STATIC, callback_group, fixed=True)

    def _subscribe(self, topic: Any, callback_group: Any, *, fixed: bool) -> None:
        assert self._node is not None
        self._subscriptions.append(
            topic.subscribe(
                self._node,
                lambda message: self.put(message.transforms, fixed=fixed),
                callback_group=callback_group,
            )
        )

    def put(self, transforms: Iterable[Any], *, fixed: bool) -> None:
        """Take geometry_msgs/TransformStamped messages, of /tf_static if `fixed`."""
        self._tree.put(transforms, fixed=fixed)

    def close(self) -> None:
        """Unsubscribe and forget all transforms."""
        for subscription in self._subscriptions:
            assert self._node is not None
            self._node.destroy_subscription(subscription)
        if self._listener is not None:
            self._listener.unregister()
        self._subscriptions, self._buffer, self._listener = [], None, None
        self._tree = TransformTree()

    def lookup(self, target: str, source: str, stamp: int) -> Transform:
        """Return the transform from `source` to `target` at a time in nanoseconds; 0: the newest.

        Waits up to SETTLE for one that is on its way. Raises NoPoseError.
        """
        end = time.monotonic() + SETTLE
        try:
            while True:
                try:
                    return self._at(target, source, stamp)
                except TooEarlyError:
                    if time.monotonic() > end:
                        raise
                time.sleep(LOOK)
        except NoPoseError as error:
            why = f"{error} (no tf: {self.missing})" if self.missing else str(error)
            raise NoPoseError(f"no transform to target_frame {target!r}: {why}") from error

    def _at(self, target: str, source: str, stamp: int) -> Transform:
        buffer = self._buffer
        if buffer is None:
            return self._tree.lookup(target, source, stamp)
        tf2_ros = importlib.import_module("tf2_ros")
        try:
            found = buffer.lookup_transform(target, source, Time(nanoseconds=stamp))
        except tf2_ros.ExtrapolationException as error:
            raise TooEarlyError(str(error)) from error
        except tf2_ros.TransformException as error:
            raise NoPoseError(str(error)) from error
        return transform_of(found.transform)

    def optical_frame(self, frame: str) -> str:
        """Return the optical frame of the camera whose body frame this is, as tf says; or "".

        It has "optical" in its name, lies beside the frame and is turned as REP 103 says: its z is
        forward, where the body's x is.
        """
        for name in self._tree.names():
            if OPTICAL not in name.lower():
                continue
            try:
                found = self._tree.lookup(frame, name, 0)
            except NoPoseError:
                continue
            turned = np.abs(found.turn - BODY).max() < ALIKE
            if turned and np.linalg.norm(found.shift) < BESIDE:
                return name
        return ""
