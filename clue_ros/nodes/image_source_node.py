"""A camera made of files.

Publishes a picture, a folder, a video or a webcam as a camera driver would.

Topics: image (sensor-data QoS), camera_info, image/compressed when asked for, and depth where there
is a depth picture. `source` and `depth` may be set while it runs.
"""

from __future__ import annotations

import array
import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from clue_ros.errors import BadCalibrationError, BadImageError
from clue_ros.images import load_image
from clue_ros.nodes.image_conversion import Rgb, fill_image
from clue_ros.nodes.parameter_tables import IMAGE_SOURCE
from clue_ros.nodes.parameters import Value, declare, guard

# -------------------------------------------------------------------------------------------------
# Where the image source's pictures come from: a file, a folder, a video, a webcam.

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".gif")
VIDEOS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".mpg", ".mpeg", ".m4v", ".wmv", ".ogv")


class Pictures(Protocol):
    """Something to take pictures from."""

    def next(self) -> Rgb | None:
        """Return uint8 RGB (H, W, 3), or None at the end. Raises BadImageError for a broken one."""
        ...

    def close(self) -> None:
        """Release files and devices."""
        ...


def open_source(source: str, loop: bool) -> Pictures:
    """Open what `source` names: a webcam's number, else a path to a folder, a video or a picture.

    Raises:
        BadImageError: nothing there, nothing readable in it, or no such webcam; the message says
        which.
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
        return Still(load_image(path))
    except (OSError, RuntimeError) as error:  # no permission; ~ of somebody unknown
        raise BadImageError(f"{source} cannot be opened: {error}") from error


def load_depth(path: str) -> NDArray[np.uint16]:
    """Return a depth picture, uint16 (H, W) in millimetres, 0 where there is no reading.

    Raises BadImageError: nothing there, or no 16-bit picture of one channel.
    """
    picture = None
    with contextlib.suppress(cv2.error, RuntimeError):  # the latter: ~ of somebody unknown
        picture = cv2.imread(str(Path(path).expanduser()), cv2.IMREAD_UNCHANGED)
    if picture is None:
        raise BadImageError(f"depth picture {path} cannot be read")
    if picture.dtype != np.uint16 or picture.ndim != 2:
        raise BadImageError(f"depth picture {path} is no 16-bit grey PNG (millimetres)")
    return np.asarray(picture, dtype=np.uint16)


class Still:
    """One picture, for ever."""

    def __init__(self, image: Rgb) -> None:
        self._image = image

    def next(self) -> Rgb:
        """Return the same array each time."""
        return self._image

    def close(self) -> None:
        """Nothing is held."""


class Folder:
    """The pictures of a folder in the order of their names.

    Broken ones raise when their turn comes.
    """

    def __init__(self, path: Path, loop: bool) -> None:
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

    def close(self) -> None:
        """Nothing is held."""


class Capture:
    """A video file or a webcam, through OpenCV."""

    def __init__(self, device: int | str, name: str, loop: bool) -> None:
        self._name = name
        self._loop = loop
        self._capture: Any = cv2.VideoCapture(device)
        if not self._capture.isOpened():
            self._capture.release()
            hint = (
                "is it plugged in, and free?" if isinstance(device, int) else "is the file whole?"
            )
            raise BadImageError(f"{name} cannot be opened: {hint}")
        self._first = self._read()
        if self._first is None:
            self._capture.release()
            raise BadImageError(f"{name} gives no picture")

    def next(self) -> Rgb | None:
        """Return the next frame, or None at the video's end (or when the webcam is unplugged)."""
        first, self._first = self._first, None
        if first is not None:
            return first
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


# -------------------------------------------------------------------------------------------------
# CameraInfo from a calibration file (camera_calibration's YAML), or from a field of view.

_SIZES = {"camera_matrix": 9, "rectification_matrix": 9, "projection_matrix": 12}


def from_fov(width: int, height: int, horizontal_fov: float) -> CameraInfo:
    """Return an ideal pinhole camera: square pixels, centre in the middle, no distortion.

    Args:
        width, height: pixels.
        horizontal_fov: degrees, over the whole width.
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
    """Read a file as camera_calibration writes it.

    Raises:
        BadCalibrationError: missing, not YAML, or a part is missing or of the wrong size.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadCalibrationError(
            f"calibration file {path}: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(data, dict):
        raise BadCalibrationError(f"calibration file {path}: it holds no keys")
    try:
        return CameraInfo(
            width=int(data["image_width"]),
            height=int(data["image_height"]),
            distortion_model=str(data.get("distortion_model", "plumb_bob")),
            d=[float(v) for v in data["distortion_coefficients"]["data"]],
            k=_matrix(data, "camera_matrix"),
            r=_matrix(data, "rectification_matrix"),
            p=_matrix(data, "projection_matrix"),
        )
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise BadCalibrationError(f"calibration file {path}: {problem}") from error


def _matrix(data: dict[str, Any], name: str) -> list[float]:
    values = [float(value) for value in data[name]["data"]]
    if len(values) != _SIZES[name]:
        raise ValueError(f"{name} needs {_SIZES[name]} numbers, got {len(values)}")
    return values


class ImageSource(Node):
    """See the module's first lines.

    Raises (on construction): BadImageError, BadCalibrationError, BadParameterError.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("image_source", **kwargs)
        declare(self, IMAGE_SOURCE)
        self._calibration: CameraInfo | None = None
        if self._value("camera_info"):
            self._calibration = from_file(self._value("camera_info"))
        self._pictures: Pictures = open_source(self._value("source"), self._value("loop"))
        self._depth = self._load_depth(self._value("depth"))
        self._shown: Rgb | None = None  # the picture that self._message holds
        self._message = Image()
        self._ended = False
        guard(self, IMAGE_SOURCE, take=self._take)
        self._image = self.create_publisher(Image, "image", qos_profile_sensor_data)
        self._info = self.create_publisher(CameraInfo, "camera_info", qos_profile_sensor_data)
        self._depths = self.create_publisher(Image, "depth", qos_profile_sensor_data)
        self._compressed = None
        if self._value("compressed"):
            topic = self.resolve_topic_name("image") + "/compressed"
            self._compressed = self.create_publisher(
                CompressedImage, topic, qos_profile_sensor_data
            )
        self.create_timer(1.0 / self._value("rate"), self._tick)
        size = "" if self._value("source").isdecimal() else f" at {self._value('rate'):g} Hz"
        self.get_logger().info(
            f"publishing {self._value('source')} on {self._image.topic_name}{size}"
        )

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _take(self, changes: Mapping[str, Value]) -> str | None:
        """Open what is new before it is accepted: if any of it is bad nothing changes."""
        calibration, depth, pictures = self._calibration, self._depth, None
        try:
            if "camera_info" in changes:
                path = str(changes["camera_info"])
                calibration = from_file(path) if path else None
            if "depth" in changes:
                depth = self._load_depth(str(changes["depth"]))
            if "source" in changes:  # last: nothing else can refuse what it has opened
                loop = bool(changes.get("loop", self._value("loop")))
                pictures = open_source(str(changes["source"]), loop)
        except (BadImageError, BadCalibrationError) as error:
            return str(error)
        self._calibration, self._depth = calibration, depth
        if pictures is not None:
            self._pictures.close()
            self._pictures, self._ended = pictures, False
        return None

    @staticmethod
    def _load_depth(path: str) -> Image | None:
        return fill_image(Image(), load_depth(path), "16UC1") if path else None

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
