"""The depth image and the calibration that belong to a colour image: aligned by time, in metres."""

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
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image

from clue_ros.dialogue.types import MAX_PIXELS
from clue_ros.errors import NoPoseError
from clue_ros.nodes.image_conversion import ImageLike
from clue_ros.nodes.messages import Locate, no_depth
from clue_ros.nodes.pose_from_depth import Pinhole, locate

# Sensor-data QoS. Unlike the colour image's, its queue may hold a few: a late one is still the one.
DEPTH_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST, depth=5, reliability=ReliabilityPolicy.BEST_EFFORT
)
KEPT = 8  # depth images, for a colour image that comes after its depth, and the other way round
SETTLE = 0.3  # seconds to wait for the depth of an image, while depth images come
ALIVE = 1.0  # seconds since the last depth image in which more are expected
SAME = 1_000_000  # nanoseconds between stamps of one exposure
UNITS = {"16UC1": (np.uint16, 0.001), "mono16": (np.uint16, 0.001), "32FC1": (np.float32, 1.0)}


@dataclass(frozen=True)
class Settings:
    """The parameters of the same names, in metres and seconds."""

    use_depth: bool = True
    depth_slop: float = 0.05
    min_depth: float = 0.1
    max_depth: float = 10.0
    rectified: bool = False


def metres(msg: ImageLike, nearest: float, farthest: float) -> NDArray[np.float32]:
    """Return a depth image (H, W) in metres, NaN where it has none from nearest to farthest.

    Raises NoPoseError: not 16UC1 (mm), mono16 (mm) or 32FC1 (m), empty, or too few bytes.
    """
    if msg.encoding not in UNITS:
        raise NoPoseError(
            f"the depth image is {msg.encoding[:40]!r}: want 16UC1 (mm) or 32FC1 (m), raw"
        )
    kind, unit = UNITS[msg.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if msg.is_bigendian else "<")
    row = msg.width * dtype.itemsize
    if not 0 < msg.width * msg.height <= MAX_PIXELS:
        raise NoPoseError(f"the depth image has {msg.width}x{msg.height} pixels")
    need = msg.step * (msg.height - 1) + row
    if msg.step < row or len(msg.data) < need:
        raise NoPoseError(
            f"the depth image holds {len(msg.data)} bytes in rows of {msg.step}, but "
            f"{msg.width}x{msg.height} {msg.encoding} needs {need}"
        )
    data = np.frombuffer(msg.data, dtype=np.uint8)
    rows = np.lib.stride_tricks.as_strided(data, (msg.height, row), (msg.step, 1), writeable=False)
    depth = np.ascontiguousarray(rows).view(dtype).astype(np.float32) * np.float32(unit)
    with np.errstate(invalid="ignore"):  # NaN is in neither range
        depth[~((depth >= nearest) & (depth <= farthest))] = np.nan
    return depth


def pinhole(info: Any, *, rectified: bool) -> Pinhole:
    """Return the intrinsics of a sensor_msgs/CameraInfo, for its region of interest and binning.

    rectified: of image_rect, from P; else of image_raw, from K and D. Raises NoPoseError.
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


class Wanted:
    """The depth image of one colour image: the best one so far, kept as long as the image is."""

    def __init__(self, source: Depths, header: Any, info: CameraInfo | None = None) -> None:
        self.header = header
        self.stamp = _nanoseconds(header)
        self.best: Image | None = None
        self.info = info  # given with the image; else the newest one of the topic counts
        self.settled = False  # no better one will come
        self._source = source

    @property
    def expected(self) -> bool:
        """Whether somebody gives depth images, so that having none is worth a word."""
        return self.best is not None or self._source.count > 0

    def apart(self, message: Image) -> int:
        """Return the nanoseconds between a depth image and the colour image."""
        return abs(_nanoseconds(message.header) - self.stamp)

    def offer(self, message: Image) -> None:
        """Take a depth image if it is nearer in time than the one that is had."""
        if self.best is None or self.apart(message) < self.apart(self.best):
            self.best = message
        later = _nanoseconds(message.header) >= self.stamp
        self.settled = self.settled or later or self.apart(message) <= SAME

    def locator(self, width: int, height: int) -> Locate:
        """Return what finds a box of the colour image (width x height pixels) in space.

        Waits up to SETTLE for a depth image that is on its way. Raises NoPoseError.
        """
        depth, info, settings = self._source.match(self)
        _same_frame(self.header.frame_id, depth.header.frame_id, "the depth image")
        _same_frame(self.header.frame_id, info.header.frame_id, "camera_info")
        camera = pinhole(info, rectified=settings.rectified)
        camera.resized(width, height)  # whose calibration it is
        values = metres(depth, settings.min_depth, settings.max_depth)
        camera = camera.resized(values.shape[1], values.shape[0])
        return partial(locate, values, camera, image_size=(width, height))


def _same_frame(image: str, other: str, what: str) -> None:
    if image != other and image and other:
        raise NoPoseError(
            f"{what} is in the frame {other[:80]!r}, the image in {image[:80]!r}: remap to the "
            "depth registered to the colour image (aligned_depth_to_color, depth_registered)"
        )


class Depths:
    """Subscribes to `depth` and `camera_info`, and finds for each colour image the depth of it."""

    def __init__(
        self, settings: Callable[[], Settings], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._clock = settings, clock
        self._news = threading.Condition()
        self._kept: deque[Image] = deque(maxlen=KEPT)
        self._followed: deque[Wanted] = deque(maxlen=KEPT)  # of the newest colour images
        self._info: CameraInfo | None = None
        self._arrival = -math.inf
        self._node: Node | None = None
        self._subscriptions: list[Any] = []
        self.count = 0  # depth images received since the node was activated

    def open(self, node: Node, callback_group: Any) -> None:
        """Subscribe, unless `use_depth` is false."""
        self._forget()
        if not self._settings().use_depth:
            return
        self._node = node
        self._subscriptions = [
            node.create_subscription(kind, topic, put, DEPTH_QOS, callback_group=callback_group)
            for kind, topic, put in (
                (Image, "depth", self.put),
                (CameraInfo, info_topic(node), self.put_info),
            )
        ]

    def close(self) -> None:
        """Unsubscribe and forget what was received."""
        for subscription in self._subscriptions:
            assert self._node is not None
            self._node.destroy_subscription(subscription)
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
            for wanted in self._followed:
                wanted.offer(message)
            self._news.notify_all()

    def put_info(self, message: CameraInfo) -> None:
        """Take the camera's calibration; the newest one counts."""
        self._info = message

    def follow(self, header: Any) -> Wanted:
        """Return the depth of the newest colour image, which has this header.

        It is filled as depth images come, until KEPT colour images later.
        """
        wanted = Wanted(self, header)
        with self._news:
            for message in self._kept:
                wanted.offer(message)
            self._followed.append(wanted)
        return wanted

    def given(self, header: Any, depth: Image, info: CameraInfo) -> Wanted:
        """Return the depth that a request brought with its image."""
        wanted = Wanted(self, header, info)
        if depth.width or depth.height or len(depth.data):
            wanted.best = depth
        wanted.settled = True
        return wanted

    def match(self, wanted: Wanted) -> tuple[Image, CameraInfo, Settings]:
        """Return the depth image and calibration of a colour image. Raises NoPoseError."""
        settings = self._settings()
        if wanted.info is not None:
            if wanted.best is None:
                raise NoPoseError("the request has an image and no depth")
            return wanted.best, wanted.info, settings
        topics = [subscription.topic_name for subscription in self._subscriptions]
        if not topics:
            no_depth()
        depth_topic, of_info = topics
        with self._news:
            if not wanted.settled and self._clock() - self._arrival < ALIVE:
                self._news.wait_for(lambda: wanted.settled, SETTLE)
            best, info = wanted.best, self._info
        if best is None:
            raise NoPoseError(
                f"no depth image has arrived on {depth_topic}: is `depth` remapped to its topic?"
            )
        if wanted.apart(best) > settings.depth_slop * 1e9:
            raise NoPoseError(
                f"the depth image nearest in time on {depth_topic} is "
                f"{wanted.apart(best) * 1e-9:.3f} s from the image (depth_slop is "
                f"{settings.depth_slop:g} s)"
            )
        if info is None:
            raise NoPoseError(
                f"no CameraInfo has arrived on {of_info}: is `camera_info` remapped to its topic?"
            )
        return best, info, settings


def info_topic(node: Node) -> str:
    """Return the topic of the calibration: beside the one `image` is remapped to, as drivers do.

    A remapping of `camera_info` itself comes first.
    """
    name = "camera_info"
    if node.resolve_topic_name(name) != node.resolve_topic_name(name, only_expand=True):
        return name
    folder = str(node.resolve_topic_name("image")).rpartition("/")[0]
    return f"{folder}/{name}"
