# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The newest frame of the camera, its age, and the reason when there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from clue_ros.nodes import topics
from clue_ros.nodes.camera_subscription import BEST_EFFORT, CameraSubscription
from clue_ros.nodes.depth import DepthSubscriber, FrameDepth
from clue_ros.nodes.image_conversion import Rgb, compressed_to_rgb, to_rgb

FOLLOW = 1.0  # seconds between looks at the publishers' reliability
COMPRESSED = "/compressed"  # image_transport's suffix
FIRST = 2.0  # seconds after activation in which the first image is awaited: DDS finds publishers


@dataclass(frozen=True)
class Frame:
    """One camera message, not yet converted: conversion takes time, so the worker does it."""

    message: Image | CompressedImage
    arrival: float  # seconds, of the Camera's clock; infinity: it came with the request
    depth: FrameDepth | None = None  # the depth image that belongs to it

    @property
    def header(self) -> Any:
        """The message's std_msgs/Header."""
        return self.message.header

    def pixels(self) -> Rgb:
        """Convert to uint8 RGB (H, W, 3). Raises BadImageError."""
        if isinstance(self.message, CompressedImage):
            return compressed_to_rgb(self.message.data, self.message.format)
        return to_rgb(self.message)


class Camera:
    """Subscribes to the camera, keeps the newest frame, and notices silence.

    Age is measured from arrival, not from the header's stamp: the stamps of a camera computer with
    another clock, or of a bag, do not tell whether images still come.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, depths: DepthSubscriber | None = None
    ) -> None:
        self._clock = clock
        self._depths = depths
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._since = clock()
        self._warned_at: float | None = None
        self._subscription: CameraSubscription | None = None
        self._timers: list[Any] = []
        self._node: Node | None = None
        self.count = 0  # frames taken since the node started

    def open(
        self,
        node: Node,
        transport: str,
        callback_group: Any,
        reliability: str = "auto",
        rate: float = 0.0,
    ) -> None:
        """Subscribe to `image` or, with transport "compressed", to `image/compressed`.

        reliability: of all subscriptions, see CameraSubscription. rate: how many images a second
        are taken while nobody asks (`newest` takes one too); 0: each one, as it comes.
        """
        self._node = node
        with self._lock:
            self._frame, self._since, self._warned_at = None, self._clock(), None
        if self._depths is not None:
            self._depths.open(node, callback_group, reliability)
        compressed = transport == "compressed"
        topic = topics.Perception.COMPRESSED if compressed else topics.Perception.IMAGE
        self._subscription = CameraSubscription(
            node,
            topic,
            self.put,
            name=image_topic(node, transport),
            reliability=reliability,
            callback_group=callback_group,
            polled=rate > 0,
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        timed = [(FOLLOW, self._follow)]
        if self._subscription.polled:
            timed.append((1 / rate, self._subscription.take))
        self._timers = [
            node.create_timer(period, call, callback_group=callback_group, clock=steady)
            for period, call in timed
        ]

    def _follow(self) -> None:
        """Follow the publishers, which come and go."""
        if self._subscription is not None:
            self._subscription.follow()
        if self._depths is not None:
            self._depths.follow_publishers()

    def close(self) -> None:
        """Unsubscribe and forget the last frame."""
        for timer in self._timers:
            assert self._node is not None
            self._node.destroy_timer(timer)
        self._timers = []
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        if self._depths is not None:
            self._depths.close()
        with self._lock:
            self._frame = None

    @property
    def topic(self) -> str:
        """The subscribed topic's full name, or "" while closed."""
        return self._subscription.topic_name if self._subscription is not None else ""

    def lacks(self) -> dict[str, str]:
        """Return what diagnostics say of depth and calibration."""
        return self._depths.lacks() if self._depths is not None else {}

    def put(self, message: Image | CompressedImage) -> None:
        """Keep this message as the newest frame."""
        depth = self._depths.follow(message.header) if self._depths is not None else None
        with self._lock:
            self._frame = Frame(message, self._clock(), depth)
            self.count += 1
            self._warned_at = None

    def age(self) -> float | None:
        """Return the seconds since the newest frame arrived, or None when there is none."""
        frame = self._frame
        return None if frame is None else self._clock() - frame.arrival

    def newest(self, max_age: float) -> Frame | tuple[str, str]:
        """Return the newest frame, or an error's name (NO_IMAGE, STALE_IMAGE) and its message."""
        subscription = self._subscription
        if subscription is not None and subscription.polled:
            subscription.take()
        frame = self._frame
        active = self._clock() - self._since
        if frame is None and subscription is not None and active < FIRST:
            return (
                "NO_IMAGE",
                f"no image has arrived on {self.topic} yet: active for {active:.1f} s, the first "
                "one is awaited",
            )
        if frame is None:
            return "NO_IMAGE", f"no image has arrived on {self.topic}: {self.silence_cause()}"
        age = self._clock() - frame.arrival
        if age > max_age:
            return (
                "STALE_IMAGE",
                f"the newest image on {self.topic} arrived {age:.1f} s ago (max_image_age is "
                f"{max_age:g} s): {self.silence_cause()}",
            )
        return frame

    def warning(self, timeout: float) -> str | None:
        """Return a warning after `timeout` s without a frame, then every 10 * timeout; or None."""
        if self._subscription is None:
            return None
        now = self._clock()
        with self._lock:
            frame = self._frame
            silent = now - (frame.arrival if frame else self._since)
            due = self._warned_at is None or now - self._warned_at >= 10 * timeout
            if silent < timeout or not due:
                return None
            self._warned_at = now
        return f"no image on {self.topic} for {silent:.0f} s: {self.silence_cause()}"

    def silence_cause(self) -> str:
        """Return the likely reason that no frame arrives, from the publishers of the topic."""
        subscription = self._subscription  # another thread may close it
        if self._node is None or subscription is None:
            return "the camera subscription is closed"
        publishers = self._node.get_publishers_info_by_topic(self.topic)
        if not publishers:
            other = self._other_transport()
            if other:
                return other
            return (
                "nobody publishes it; is the camera running, and is `image` remapped to its topic "
                "(ros2 topic list)?"
            )
        wanted = subscription.message_type
        for publisher in publishers:
            if publisher.topic_type != wanted:
                return (
                    f"{publisher.node_name} publishes {publisher.topic_type}, not {wanted}: set "
                    "image_transport or remap `image`"
                )
        names = ", ".join(sorted({publisher.node_name for publisher in publishers}))
        if subscription.reliable:
            unreliable = [p for p in publishers if p.qos_profile.reliability == BEST_EFFORT]
            if len(unreliable) == len(publishers):
                return (
                    f"{names} publishes it as best effort, and this node is set to reliable: leave "
                    "image_reliability at auto"
                )
            return f"{names} publishes it as reliable, but sends nothing: the camera has stopped"
        return (
            f"{names} publishes it, but nothing comes through. The camera has stopped, or its "
            "images are lost on the way: have it publish as reliable, or, with Fast DDS, start it "
            "with FASTDDS_DEFAULT_PROFILES_FILE set to config/fastdds.xml, whose shared memory "
            "holds whole images"
        )

    def _other_transport(self) -> str:
        """Return advice where the camera publishes the topic's other transport alone, or ""."""
        assert self._node is not None
        raw = self.topic.removesuffix(COMPRESSED)
        if raw == self.topic:
            other, transport = raw + COMPRESSED, "compressed"
        else:
            other, transport = raw, "raw"
        publishers = self._node.get_publishers_info_by_topic(other)
        if not publishers:
            return ""
        names = ", ".join(sorted({publisher.node_name for publisher in publishers}))
        return (
            f"nobody publishes it, and {names} publishes {other}: set image_transport to "
            f"{transport} (image_transport:={transport})"
        )


def image_topic(node: Node, transport: str) -> str:
    """Return the topic to subscribe: `image`, or image/compressed.

    The latter is, as for image_transport, the name that `image` is remapped to plus /compressed; a
    remapping of `image/compressed` itself comes first.
    """
    image, compressed = topics.Perception.IMAGE.name, topics.Perception.COMPRESSED.name
    if transport != "compressed":
        return image
    if topics.is_remapped(node, compressed):
        return compressed
    return node.resolve_topic_name(image) + COMPRESSED
