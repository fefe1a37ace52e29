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
from typing import Any, TypeAlias

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from clue_ros.dialogue.types import Box
from clue_ros.errors import NoPoseError
from clue_ros.nodes import topics
from clue_ros.nodes.camera_subscription import CameraSubscription
from clue_ros.nodes.depth_image import MILLIMETRE, metres
from clue_ros.nodes.messages import Locate, no_depth
from clue_ros.nodes.pinhole import Pinhole
from clue_ros.nodes.pose_from_depth import Place, locate
from clue_ros.nodes.transforms import BODY, OPTICAL, SAME, Transform, Transforms, nanoseconds

KEPT = 8  # depth images and colour images, to match whichever of the two comes later
SETTLE = 0.3  # seconds to wait for the depth of an image, while depth images come
ALIVE = 1.0  # seconds since the last depth image in which more are expected
EXPOSURE = 1_000_000  # nanoseconds between stamps of one exposure


@dataclass(frozen=True)
class DepthSettings:
    """The parameters of the same names, in metres and seconds."""

    use_depth: bool = True
    depth_slop: float = 0.05
    min_depth: float = 0.1
    max_depth: float = 10.0
    rectified: bool = False
    depth_unit: float = MILLIMETRE
    depth_registered: bool = False
    optical_frame: str = "auto"
    target_frame: str = ""


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
    camera = Pinhole(
        width // across,
        height // down,
        fx / across,
        fy / down,
        (cx - left) / across,
        (cy - top) / down,
        () if rectified else tuple(float(value) for value in info.d),
        info.distortion_model or "plumb_bob",
    )
    whole = (info.width or left + width, info.height or top + height)  # a region may lie beside it
    if not (0 < cx < whole[0] and 0 < cy < whole[1]):
        raise NoPoseError(
            f"camera_info's principal point, {cx:.4g} {cy:.4g}, is not in its picture of "
            f"{whole[0]}x{whole[1]} pixels (K or P is not filled): calibrate the camera"
        )
    return camera


DepthMessage: TypeAlias = Image | CompressedImage  # the latter of compressedDepth


class FrameDepth:
    """The depth image of one colour image: the best one so far, kept as long as the image is."""

    def __init__(
        self, source: DepthSubscriber, header: Any, info: CameraInfo | None = None
    ) -> None:
        self.header = header
        self.stamp = nanoseconds(header.stamp)
        self.best: DepthMessage | None = None
        self.info = info  # given with the image; None: the newest one of the topic counts
        self.settled = False  # no better one will come
        self._source = source
        self._motion: tuple[Transform, str] | None = None

    @property
    def expected(self) -> bool:
        """Whether depth images are published, so that a missing one deserves a warning."""
        return self.best is not None or self._source.count > 0

    def apart(self, message: DepthMessage) -> int:
        """Return the nanoseconds between a depth image and the colour image."""
        return abs(nanoseconds(message.header.stamp) - self.stamp)

    def offer(self, message: DepthMessage) -> None:
        """Take a depth image if its stamp is nearer than the best one's."""
        if self.best is None or self.apart(message) < self.apart(self.best):
            self.best = message
        later = nanoseconds(message.header.stamp) >= self.stamp
        self.settled = self.settled or later or self.apart(message) <= EXPOSURE

    def locator(self, width: int, height: int) -> Locate:
        """Return a function that locates a box of the colour image (width x height pixels).

        Waits up to SETTLE for a depth image that is on its way. Raises NoPoseError.
        """
        depth, info, settings = self._source.match(self)
        for other, what in ((depth, "the depth image"), (info, "camera_info")):
            image, frame = self.header.frame_id, other.header.frame_id
            if image and frame and image != frame and not settings.depth_registered:
                raise NoPoseError(
                    f"{what} is in the frame {frame[:80]!r}, the image in {image[:80]!r}: remap to "
                    "the depth registered to the colour image (aligned_depth_to_color, "
                    "depth_registered); if it is registered under a name of its own, set the "
                    "parameter depth_registered"
                )
        camera = pinhole(info, rectified=settings.rectified)
        camera.resized(width, height)  # it is the calibration of the colour image
        values = metres(depth, settings.min_depth, settings.max_depth, settings.depth_unit)
        camera = camera.resized(values.shape[1], values.shape[0])
        motion, frame = self._frame(settings)
        seen = partial(locate, values, camera, image_size=(width, height))

        def placed(box: Box) -> Place:
            return seen(box).moved(motion.turn, motion.shift, frame)

        return placed if motion is not SAME else seen

    def _frame(self, settings: DepthSettings) -> tuple[Transform, str]:
        """Return the frame of the poses, and the transform to it from the optical frame.

        Looked up once, while tf has the time of the image; a dialogue may last longer.
        """
        if self._motion is None:
            self._motion = self._source.motion(self.header, settings)
        return self._motion


class DepthSubscriber:
    """Subscribes to `depth` and `camera_info`, and matches a depth image to each colour image."""

    def __init__(
        self,
        settings: Callable[[], DepthSettings],
        clock: Callable[[], float] = time.monotonic,
        transforms: Transforms | None = None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._news = threading.Condition()
        self._kept: deque[Image] = deque(maxlen=KEPT)
        self._followed: deque[FrameDepth] = deque(maxlen=KEPT)  # of the newest colour images
        self._info: CameraInfo | None = None
        self._arrival = -math.inf
        self._transforms = transforms or Transforms()
        self._node: Node | None = None
        self._depth: CameraSubscription | None = None
        self._calibration: CameraSubscription | None = None
        self._options: dict[str, Any] = {}
        self._told: set[str] = set()  # warnings that were given
        self.count = 0  # depth images received since the node was activated

    def open(self, node: Node, callback_group: Any, reliability: str = "auto") -> None:
        """Subscribe, unless `use_depth` is false; reliability: see CameraSubscription."""
        self._forget()
        if not self._settings().use_depth:
            return
        settings, perception = self._settings(), topics.Perception
        self._node = node
        self._options = {"reliability": reliability, "callback_group": callback_group}
        self._calibration = CameraSubscription(
            node, perception.CAMERA_INFO, self.put_info, name=info_topic(node), **self._options
        )
        self._choose()
        self._transforms.open(
            node,
            callback_group,
            fixed=settings.optical_frame == "auto",
            moving=bool(settings.target_frame),
        )

    def follow_publishers(self) -> None:
        """Subscribe again where publishers offer another reliability or transport than before."""
        if self._depth is None or self._calibration is None:
            return
        self._choose()
        self._depth.follow()
        self._calibration.follow()

    def _choose(self) -> None:
        """Subscribe to compressedDepth where it is published and the raw image is not."""
        assert self._node is not None
        node, perception = self._node, topics.Perception
        raw = node.resolve_topic_name(perception.DEPTH.name)
        own = perception.COMPRESSED_DEPTH.name
        remapped = topics.is_remapped(node, own)
        name = node.resolve_topic_name(own) if remapped else f"{raw}/compressedDepth"
        packed = bool(node.count_publishers(name) and not node.count_publishers(raw))
        topic = perception.COMPRESSED_DEPTH if packed else perception.DEPTH
        if self._depth is not None:
            silent = not (packed or node.count_publishers(raw))
            if self._depth.message_type == topic.kind or silent:
                return
            self._depth.close()
            node.get_logger().info(f"depth comes from {name if packed else raw}")
        self._depth = CameraSubscription(
            node, topic, self.put, name=name if packed else "", **self._options
        )

    def close(self) -> None:
        """Unsubscribe and forget all messages."""
        for subscription in (self._depth, self._calibration):
            if subscription is not None:
                subscription.close()
        self._depth, self._calibration = None, None
        self._transforms.close()
        self._forget()

    def _forget(self) -> None:
        with self._news:
            self._kept.clear()
            self._followed.clear()
            self._info, self._arrival, self.count = None, -math.inf, 0
            self._news.notify_all()

    def put(self, message: DepthMessage) -> None:
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
        if self._depth is None or self._calibration is None:
            no_depth()
        names = (self._depth.topic_name, self._calibration.topic_name)
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

    def motion(self, header: Any, settings: DepthSettings) -> tuple[Transform, str]:
        """Return the frame of an image's poses, and the transform to it from the optical frame.

        The frame is "" where it is the image's and that one is optical. Raises NoPoseError.
        """
        frame, target = header.frame_id, settings.target_frame
        motion, into = SAME, ""
        if self._is_body(frame, settings.optical_frame):
            motion, into = Transform(BODY, np.zeros(3)), frame
        if not target or target == frame:
            return motion, into
        if not frame:
            raise NoPoseError(
                "the image has an empty frame_id, which no transform leads from: set it in the "
                "camera's driver"
            )
        there = self._transforms.lookup(target, frame.lstrip("/"), nanoseconds(header.stamp))
        return there.after(motion), target

    def _is_body(self, frame: str, optical_frame: str) -> bool:
        """Return whether the image's frame has x forward, as a body's; warn where it may be one."""
        if not frame:
            self._warn("the images have an empty frame_id: nobody can tell where a pose is")
        if optical_frame != "auto":
            return optical_frame == "convert"
        if not frame or OPTICAL in frame.lower():
            return False
        twin = self._transforms.optical_frame(frame.lstrip("/"))
        if twin:
            self._warn(
                f"the images are in the frame {frame[:80]!r}, which is no optical one (tf has "
                f"{twin[:80]!r} beside it): poses are turned to its x forward, y left, z up; set "
                "optical_frame to convert, or to given if it is one"
            )
            return True
        self._warn(
            f"the name of the images' frame, {frame[:80]!r}, does not say that it is an optical "
            "one (z forward): poses are given as if it were; set optical_frame to given, or to "
            "convert if its x is forward, as simulators have it"
        )
        return False

    def _warn(self, text: str) -> None:
        """Warn once."""
        if self._node is not None and text not in self._told:
            self._told.add(text)
            self._node.get_logger().warning(text)

    def lacks(self) -> dict[str, str]:
        """Return what diagnostics say of depth and calibration: where they come from, or why not.

        Any thread may ask.
        """
        depth, calibration, settings = self._depth, self._calibration, self._settings()
        if depth is None or calibration is None:
            off = "off (use_depth is false)" if not settings.use_depth else "not subscribed"
            return {"depth": off, "calibration": off}
        told = {}
        for key, subscription, here in (
            ("depth", depth, self.count > 0),
            ("calibration", calibration, self._info is not None),
        ):
            name = subscription.topic_name
            assert self._node is not None
            if here:
                told[key] = f"comes on {name}"
            elif self._node.count_publishers(name):
                told[key] = f"none yet on {name}"
            else:
                told[key] = f"nobody publishes {name}: no poses"
        if self._info is not None:
            try:
                pinhole(self._info, rectified=settings.rectified)
            except NoPoseError as error:
                told["calibration"] = str(error)
        return told


def info_topic(node: Node) -> str:
    """Return the topic of the calibration: beside the one that `image` is remapped to.

    A remapping of `camera_info` itself comes first.
    """
    name = topics.Perception.CAMERA_INFO.name
    if topics.is_remapped(node, name):
        return name
    folder = str(node.resolve_topic_name(topics.Perception.IMAGE.name)).rpartition("/")[0]
    return f"{folder}/{name}"
