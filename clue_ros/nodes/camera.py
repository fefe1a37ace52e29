"""The newest frame of the camera, its age, and the reason when there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image

from clue_ros.nodes.depth import Depths, Wanted
from clue_ros.nodes.image_conversion import Rgb, compressed_to_rgb, to_rgb

# Sensor-data QoS with depth 1: a queue of frames would only make the newest one older.
SENSOR_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=1, reliability=ReliabilityPolicy.BEST_EFFORT
)


@dataclass(frozen=True)
class Frame:
    """One camera message, not yet converted: conversion costs time and belongs in the worker."""

    message: Image | CompressedImage
    arrival: float  # of the clock the Camera was given, seconds
    depth: Wanted | None = None  # the depth image that belongs to it

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
    """Keeps the newest frame only, and notices silence.

    Age is measured from arrival, not from the header's stamp: a camera computer with another clock,
    or a bag, has stamps that say nothing about whether images still come.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, depths: Depths | None = None
    ) -> None:
        self._clock = clock
        self._depths = depths
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._since = clock()
        self._count = 0
        self._warned_at: float | None = None
        self._subscription: Subscription | None = None
        self._node: Node | None = None

    def open(self, node: Node, transport: str, callback_group: Any) -> None:
        """Subscribe to `image` or, with transport "compressed", to `image/compressed`."""
        kind = CompressedImage if transport == "compressed" else Image
        self._node = node
        with self._lock:
            self._frame, self._since, self._warned_at = None, self._clock(), None
        if self._depths is not None:
            self._depths.open(node, callback_group)
        self._subscription = node.create_subscription(
            kind, image_topic(node, transport), self.put, SENSOR_QOS, callback_group=callback_group
        )

    def close(self) -> None:
        """Unsubscribe and forget the last frame."""
        if self._node is not None and self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
        self._subscription = None
        if self._depths is not None:
            self._depths.close()
        with self._lock:
            self._frame = None

    @property
    def topic(self) -> str:
        """The subscribed topic's full name, or "" while closed."""
        return self._subscription.topic_name if self._subscription is not None else ""

    @property
    def count(self) -> int:
        """Frames received since the node started."""
        return self._count

    def put(self, message: Image | CompressedImage) -> None:
        """Keep this message as the newest frame."""
        depth = self._depths.follow(message.header) if self._depths is not None else None
        with self._lock:
            self._frame = Frame(message, self._clock(), depth)
            self._count += 1
            self._warned_at = None

    def age(self) -> float | None:
        """Seconds since the newest frame arrived, or None when there is none."""
        frame = self._frame
        return None if frame is None else self._clock() - frame.arrival

    def newest(self, max_age: float) -> Frame | tuple[str, str]:
        """Return the newest frame, or the error's name and a message (NO_IMAGE, STALE_IMAGE)."""
        frame = self._frame
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
        """Return a warning after `timeout` s without a frame, repeated ten times rarer, or None."""
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
        """Name the likely reason that no frame arrives, from who publishes the topic and how."""
        subscription = self._subscription  # another thread may close it
        if self._node is None or subscription is None:
            return "the camera subscription is closed"
        infos = self._node.get_publishers_info_by_topic(self.topic)
        if not infos:
            return (
                "nobody publishes it; is the camera running, and is `image` remapped to its topic "
                "(ros2 topic list)?"
            )
        wanted = (
            "sensor_msgs/msg/CompressedImage"
            if subscription.msg_type is CompressedImage
            else "sensor_msgs/msg/Image"
        )
        wrong = [info for info in infos if info.topic_type != wanted]
        if wrong:
            return (
                f"{wrong[0].node_name} publishes {wrong[0].topic_type}, not {wanted}: set "
                "image_transport or remap `image`"
            )
        names = ", ".join(sorted({info.node_name for info in infos}))
        return (
            f"{names} publishes it, but nothing comes through. This node takes any QoS (best "
            "effort, volatile), so the camera has stopped or the images are lost on the way: with "
            "Fast DDS, start the camera too with FASTDDS_DEFAULT_PROFILES_FILE set to "
            "config/fastdds.xml, whose shared memory holds whole images"
        )


def image_topic(node: Node, transport: str) -> str:
    """Return the topic to subscribe.

    `image` or, as image_transport does, what it is remapped to plus /compressed.

    A remapping of `image/compressed` itself comes first.
    """
    if transport != "compressed":
        return "image"
    name = "image/compressed"
    if node.resolve_topic_name(name) != node.resolve_topic_name(name, only_expand=True):
        return name
    return node.resolve_topic_name("image") + "/compressed"
