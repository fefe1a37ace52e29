# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A camera made of files: it publishes a picture, a folder, a video or a webcam.

Topics: image, camera_info, image/compressed with the parameter `compressed`, and depth where there
is a depth picture. `source` and `depth` may be set while it runs.
"""

from __future__ import annotations

import array
import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from clue_ros.errors import BadCalibrationError, BadImageError
from clue_ros.images import load_image
from clue_ros.nodes import topics
from clue_ros.nodes.image_conversion import Rgb, fill_image
from clue_ros.nodes.parameter_tables import IMAGE_SOURCE
from clue_ros.nodes.parameters import Value, declare, guard

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".gif")
VIDEOS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".mpg", ".mpeg", ".m4v", ".wmv", ".ogv")


class Pictures:
    """A source of pictures; as it stands, one picture without end."""

    def __init__(self, image: Rgb | None = None) -> None:
        self._image = image

    def next(self) -> Rgb | None:
        """Return uint8 RGB (H, W, 3), or None at the end. Raises BadImageError for a broken one."""
        return self._image

    def close(self) -> None:
        """Release files and devices."""


class Folder(Pictures):
    """The pictures of a folder in the order of their names."""

    def __init__(self, path: Path, loop: bool) -> None:
        super().__init__()
        self._files = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURES)
        if not self._files:
            raise BadImageError(f"folder {path} holds no picture ({', '.join(PICTURES)})")
        self._loop = loop
        self._turn: Iterator[Path] = iter(self._files)

    def next(self) -> Rgb | None:
        """Return the next picture, or None after the last one."""
        path = next(self._turn, None)
        if path is None and self._loop:
            self._turn = iter(self._files)
            path = next(self._turn)
        return None if path is None else load_image(path)


class Capture(Pictures):
    """A video file or a webcam, through OpenCV."""

    def __init__(self, device: int | str, name: str, loop: bool) -> None:
        super().__init__()
        self._loop = loop
        self._capture: Any = cv2.VideoCapture(device)
        hint = "is it plugged in, and free?" if isinstance(device, int) else "is the file whole?"
        opened = self._capture.isOpened()
        self._first = self._read() if opened else None
        if self._first is None:
            self._capture.release()
            problem = "gives no picture" if opened else f"cannot be opened: {hint}"
            raise BadImageError(f"{name} {problem}")

    def next(self) -> Rgb | None:
        """Return the next frame, or None at the video's end (or when the webcam is unplugged)."""
        frame, self._first = self._first, None
        if frame is None:
            frame = self._read()
        if frame is None and self._loop:
            self._capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
            frame = self._read()
        return frame

    def close(self) -> None:
        """Release the device."""
        self._capture.release()

    def _read(self) -> Rgb | None:
        good, frame = self._capture.read()
        if not good or frame is None:
            return None
        return np.ascontiguousarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def open_source(source: str, loop: bool) -> Pictures:
    """Open a webcam by its number, or a folder, a video or a picture by its path.

    Raises BadImageError: it does not exist or cannot be read; the message names it.
    """
    if not source:
        raise BadImageError(
            "no source is given: set the parameter `source` to a picture, a folder, a video or "
            "a webcam's number"
        )
    if source.isdecimal():
        return Capture(int(source), f"webcam {source}", loop=False)
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            return Folder(path, loop)
        if path.suffix.lower() in VIDEOS and path.is_file():
            return Capture(str(path), f"video {path}", loop)
        return Pictures(load_image(path))
    except (OSError, RuntimeError) as error:  # no permission; ~ of an unknown user
        raise BadImageError(f"{source} cannot be opened: {error}") from error


def load_depth(path: str) -> NDArray[np.uint16]:
    """Return a depth picture, uint16 (H, W) in millimetres, 0 where there is no reading.

    Raises BadImageError: it cannot be read, or is no 16-bit picture of one channel.
    """
    picture = None
    with contextlib.suppress(cv2.error, RuntimeError):  # the latter: ~ of an unknown user
        picture = cv2.imread(str(Path(path).expanduser()), cv2.IMREAD_UNCHANGED)
    if picture is None:
        raise BadImageError(f"depth picture {path} cannot be read")
    if picture.dtype != np.uint16 or picture.ndim != 2:
        raise BadImageError(f"depth picture {path} is no 16-bit grey PNG (millimetres)")
    return np.asarray(picture, dtype=np.uint16)


def from_fov(width: int, height: int, horizontal_fov: float) -> CameraInfo:
    """Return an ideal pinhole camera: square pixels, centre in the middle, no distortion.

    width, height: pixels. horizontal_fov: degrees, over the whole width.
    """
    focal = width / 2 / math.tan(math.radians(horizontal_fov) / 2)
    cx, cy = width / 2, height / 2
    return CameraInfo(
        width=width,
        height=height,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[focal, 0.0, cx, 0.0, focal, cy, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[focal, 0.0, cx, 0.0, 0.0, focal, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    )


def from_file(path: str | Path) -> CameraInfo:
    """Read a calibration file of camera_calibration (YAML).

    Raises BadCalibrationError: missing, not YAML, or a part is missing or of the wrong size.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
        if not isinstance(data, dict):
            raise ValueError("it holds no keys")
        return CameraInfo(
            width=int(data["image_width"]),
            height=int(data["image_height"]),
            distortion_model=str(data.get("distortion_model", "plumb_bob")),
            d=[float(v) for v in data["distortion_coefficients"]["data"]],
            k=_matrix(data, "camera_matrix", 9),
            r=_matrix(data, "rectification_matrix", 9),
            p=_matrix(data, "projection_matrix", 12),
        )
    except KeyError as error:
        problem = f"{error.args[0]!r} is missing"
        raise BadCalibrationError(f"calibration file {path}: {problem}") from error
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:  # ValueError: not UTF-8, too
        problem = " ".join(str(error).split())
        raise BadCalibrationError(f"calibration file {path}: {problem}") from error


def _matrix(data: dict[str, Any], name: str, size: int) -> list[float]:
    values = [float(value) for value in data[name]["data"]]
    if len(values) != size:
        raise ValueError(f"{name} needs {size} numbers, got {len(values)}")
    return values


class ImageSource(Node):
    """The node; see the module's first lines.

    Raises (on construction): BadImageError, BadCalibrationError, BadParameterError.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("image_source", **kwargs)
        declare(self, IMAGE_SOURCE)
        self._calibration = _calibration(self._value("camera_info"))
        self._pictures: Pictures = open_source(self._value("source"), self._value("loop"))
        self._depth = _depth_message(self._value("depth"))
        self._shown: Rgb | None = None  # the picture that self._message holds
        self._message = Image()
        self._ended = False
        guard(self, IMAGE_SOURCE, take=self._take)
        self._image = topics.ImageSource.IMAGE.publisher(self)
        self._info = topics.ImageSource.CAMERA_INFO.publisher(self)
        self._depths = topics.ImageSource.DEPTH.publisher(self)
        self._compressed = None
        if self._value("compressed"):
            name = f"{self._image.topic_name}/compressed"  # it follows the remapping of `image`
            self._compressed = topics.ImageSource.COMPRESSED.publisher(self, name=name)
        self.create_timer(1.0 / self._value("rate"), self._tick)
        rate = "" if self._value("source").isdecimal() else f" at {self._value('rate'):g} Hz"
        self.get_logger().info(
            f"publishing {self._value('source')} on {self._image.topic_name}{rate}"
        )

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _take(self, changes: Mapping[str, Value]) -> str | None:
        """Open the new sources before they are accepted: if one is bad, nothing changes."""
        calibration, depth, pictures = self._calibration, self._depth, None
        try:
            if "camera_info" in changes:
                calibration = _calibration(str(changes["camera_info"]))
            if "depth" in changes:
                depth = _depth_message(str(changes["depth"]))
            if "source" in changes:  # last: after it nothing else can fail
                loop = bool(changes.get("loop", self._value("loop")))
                pictures = open_source(str(changes["source"]), loop)
        except (BadImageError, BadCalibrationError) as error:
            return str(error)
        self._calibration, self._depth = calibration, depth
        if pictures is not None:
            self._pictures.close()
            self._pictures, self._ended = pictures, False
        return None

    def _tick(self) -> None:
        if self._ended:
            return
        try:
            picture = self._pictures.next()
        except BadImageError as error:
            self.get_logger().warning(f"left out: {error}")
            return
        if picture is None:
            self._ended = True
            self.get_logger().info(f"{self._value('source')} has ended")
            return
        self._publish(picture)

    def _publish(self, picture: Rgb) -> None:
        if picture is not self._shown:
            self._message, self._shown = fill_image(Image(), picture, "rgb8"), picture
        header = self._message.header
        header.stamp = self.get_clock().now().to_msg()
        header.frame_id = self._value("frame_id")
        self._image.publish(self._message)
        info = self._camera_info(picture)
        info.header = header
        self._info.publish(info)
        if self._depth is not None:
            self._depth.header = header
            self._depths.publish(self._depth)
        if self._compressed is not None:
            quality = [cv2.IMWRITE_JPEG_QUALITY, self._value("jpeg_quality")]
            _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), quality)
            data = array.array("B", jpeg.tobytes())
            message = CompressedImage(header=header, format="rgb8; jpeg compressed bgr8", data=data)
            self._compressed.publish(message)

    def _camera_info(self, picture: Rgb) -> CameraInfo:
        height, width = picture.shape[:2]
        if self._calibration is None:
            return from_fov(width, height, self._value("horizontal_fov"))
        if (self._calibration.width, self._calibration.height) != (width, height):
            self.get_logger().warning(
                f"the calibration is for {self._calibration.width}x{self._calibration.height} "
                f"pixels, the picture has {width}x{height}",
                once=True,
            )
        return self._calibration


def _calibration(path: str) -> CameraInfo | None:
    return from_file(path) if path else None


def _depth_message(path: str) -> Image | None:
    return fill_image(Image(), load_depth(path), "16UC1") if path else None
