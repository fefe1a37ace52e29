# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The depth image and the calibration that belong to a colour image: matched by time, in metres."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image

from clue_ros.errors import BadImageError, NoPoseError
from clue_ros.nodes import topics
from clue_ros.nodes.camera_subscription import CameraSubscription
from clue_ros.nodes.image_conversion import ImageLike, read_rows
from clue_ros.nodes.messages import Locate, no_depth
from clue_ros.nodes.pose_from_depth import Pinhole, locate

KEPT = 8  # depth images and colour images, to match whichever of the two comes later
SETTLE = 0.3  # seconds to wait for the depth of an image, while depth images come
ALIVE = 1.0  # seconds since the last depth image in which more are expected
SAME = 1_000_000  # nanoseconds between stamps of one exposure
UNITS = {"16UC1": (np.uint16, 0.001), "mono16": (np.uint16, 0.001), "32FC1": (np.float32, 1.0)}


@dataclass(frozen=True)
class DepthSettings:
    """The parameters of the same names, in metres and seconds."""

    use_depth: bool = True
    depth_slop: float = 0.05
    min_depth: float = 0.1
    max_depth: float = 10.0
    rectified: bool = False


def metres(msg: ImageLike, nearest: float, farthest: float) -> NDArray[np.float32]:
    """Return a depth image (H, W) in metres, NaN where a reading is not from nearest to farthest.

    Raises NoPoseError: not 16UC1 (mm), mono16 (mm) or 32FC1 (m), empty, or too few bytes.
    """
    if msg.encoding not in UNITS:
        raise NoPoseError(
            f"the depth image is {msg.encoding[:40]!r}: want 16UC1 (mm) or 32FC1 (m), raw"
        )
    kind, unit = UNITS[msg.encoding]
    try:
        depth = read_rows(msg, kind).astype(np.float32) * np.float32(unit)
    except BadImageError as error:
        raise NoPoseError(f"the depth image is broken: {error}") from error
    with np.errstate(invalid="ignore"):  # a comparison with NaN is false
        depth[~((depth >= nearest) & (depth <= farthest))] = np.nan
    return depth


def pinhole(info: Any, *, rectified: bool) -> Pinhole:
    """Return the intrinsics of a sensor_msgs/CameraInfo, for its region of interest and binning.

    rectified: read P, as for image_rect; otherwise K and D, as for image_raw. Raises NoPoseError.
    """
    if rectified:
        fx, cx, fy, cy = info.p[0], info.p[2], info.p[5], info.p[6]
    else:
        fx, cx, fy, cy = info.k[0], info.k[2], info.k[4], info.k[5]
    across, down = max(1, info.binning_x), max(1, info.binning_y)
    part = info.roi if info.roi.width and info.roi.height else None
    left, top = (part.x_offset, part.y_offset) if part else (0, 0)
    width, height = (part.width, part.height) if part else (info.width, info.height)
    return Pinhole(
        width // across,
        height // down,
        fx / across,
        fy / down,
        (cx - left) / across,
        (cy - top) / down,
        () if rectified else tuple(float(value) for value in info.d),
        info.distortion_model or "plumb_bob",
    )


def _nanoseconds(header: Any) -> int:
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


class FrameDepth:
    """The depth image of one colour image: the best one so far, kept as long as the image is."""

    def __init__(
        self, source: DepthSubscriber, header: Any, info: CameraInfo | None = None
    ) -> None:
        self.header = header
        self.stamp = _nanoseconds(header)
        self.best: Image | None = None
        self.info = info  # given with the image; None: the newest one of the topic counts
        self.settled = False  # no better one will come
        self._source = source

    @property
    def expected(self) -> bool:
        """Whether depth images are published, so that a missing one deserves a warning."""
        return self.best is not None or self._source.count > 0

    def apart(self, message: Image) -> int:
        """Return the nanoseconds between a depth image and the colour image."""
        return abs(_nanoseconds(message.header) - self.stamp)

    def offer(self, message: Image) -> None:
        """Take a depth image if its stamp is nearer than the best one's."""
        if self.best is None or self.apart(message) < self.apart(self.best):
            self.best = message
        later = _nanoseconds(message.header) >= self.stamp
        self.settled = self.settled or later or self.apart(message) <= SAME

    def locator(self, width: int, height: int) -> Locate:
        """Return a function that locates a box of the colour image (width x height pixels).

        Waits up to SETTLE for a depth image that is on its way. Raises NoPoseError.
        """
        depth, info, settings = self._source.match(self)
        for other, what in ((depth, "the depth image"), (info, "camera_info")):
            image, frame = self.header.frame_id, other.header.frame_id
            if image and frame and image != frame:
                raise NoPoseError(
                    f"{what} is in the frame {frame[:80]!r}, the image in {image[:80]!r}: remap to "
                    "the depth registered to the colour image (aligned_depth_to_color, "
                    "depth_registered)"
                )
        camera = pinhole(info, rectified=settings.rectified)
        camera.resized(width, height)  # it is the calibration of the colour image
        values = metres(depth, settings.min_depth, settings.max_depth)
        camera = camera.resized(values.shape[1], values.shape[0])
        return partial(locate, values, camera, image_size=(width, height))


class DepthSubscriber:
    """Subscribes to `depth` and `camera_info`, and matches a depth image to each colour image."""

    def __init__(
        self, settings: Callable[[], DepthSettings], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._news = threading.Condition()
        self._kept: deque[Image] = deque(maxlen=KEPT)
        self._followed: deque[FrameDepth] = deque(maxlen=KEPT)  # of the newest colour images
        self._info: CameraInfo | None = None
        self._arrival = -math.inf
        self._subscriptions: list[CameraSubscription] = []
        self.count = 0  # depth images received since the node was activated

    def open(self, node: Node, callback_group: Any, reliability: str = "auto") -> None:
        """Subscribe, unless `use_depth` is false; reliability: see CameraSubscription."""
        self._forget()
        if not self._settings().use_depth:
            return
        perception = topics.Perception
        self._subscriptions = [
            CameraSubscription(
                node,
                topic,
                callback,
                name=name,
                reliability=reliability,
                callback_group=callback_group,
            )
            for topic, callback, name in (
                (perception.DEPTH, self.put, ""),
                (perception.CAMERA_INFO, self.put_info, info_topic(node)),
            )
        ]

    def follow_publishers(self) -> None:
        """Subscribe again where publishers offer another reliability than before."""
        for subscription in self._subscriptions:
            subscription.follow()

    def close(self) -> None:
        """Unsubscribe and forget all messages."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []
        self._forget()

    def _forget(self) -> None:
        with self._news:
            self._kept.clear()
            self._followed.clear()
            self._info, self._arrival, self.count = None, -math.inf, 0
            self._news.notify_all()

    def put(self, message: Image) -> None:
        """Take a depth image."""
        with self._news:
            self._arrival = self._clock()
            self.count += 1
            self._kept.append(message)
            for depth in self._followed:
                depth.offer(message)
            self._news.notify_all()

    def put_info(self, message: CameraInfo) -> None:
        """Take the camera's calibration; the newest one counts."""
        self._info = message

    def follow(self, header: Any) -> FrameDepth:
        """Return the depth of the newest colour image, which has this header.

        It is updated as depth images come, until KEPT colour images later.
        """
        depth = FrameDepth(self, header)
        with self._news:
            for message in self._kept:
                depth.offer(message)
            self._followed.append(depth)
        return depth

    def given(self, header: Any, image: Image, info: CameraInfo) -> FrameDepth:
        """Return the depth that a request brought with its colour image."""
        depth = FrameDepth(self, header, info)
        if image.width or image.height or len(image.data):
            depth.best = image
        depth.settled = True
        return depth

    def match(self, depth: FrameDepth) -> tuple[Image, CameraInfo, DepthSettings]:
        """Return the depth image and calibration of a colour image. Raises NoPoseError."""
        settings = self._settings()
        if depth.info is not None:
            if depth.best is None:
                raise NoPoseError("the request has an image and no depth")
            return depth.best, depth.info, settings
        names = [subscription.topic_name for subscription in self._subscriptions]
        if not names:
            no_depth()
        with self._news:
            if not depth.settled and self._clock() - self._arrival < ALIVE:
                self._news.wait_for(lambda: depth.settled, SETTLE)
            best, info = depth.best, self._info
        if best is None:
            raise NoPoseError(
                f"no depth image has arrived on {names[0]}: is `depth` remapped to its topic?"
            )
        if depth.apart(best) > settings.depth_slop * 1e9:
            raise NoPoseError(
                f"the depth image nearest in time on {names[0]} is "
                f"{depth.apart(best) * 1e-9:.3f} s from the image (depth_slop is "
                f"{settings.depth_slop:g} s)"
            )
        if info is None:
            raise NoPoseError(
                f"no CameraInfo has arrived on {names[1]}: is `camera_info` remapped to its topic?"
            )
        return best, info, settings


def info_topic(node: Node) -> str:
    """Return the topic of the calibration: beside the one that `image` is remapped to.

    A remapping of `camera_info` itself comes first.
    """
    name = topics.Perception.CAMERA_INFO.name
    if topics.is_remapped(node, name):
        return name
    folder = str(node.resolve_topic_name(topics.Perception.IMAGE.name)).rpartition("/")[0]
    return f"{folder}/{name}"
