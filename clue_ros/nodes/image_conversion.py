# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""ROS images to numpy arrays and back.

`to_rgb` uses the robot's own cv_bridge where the compiled one (from apt) is installed, and a
conversion with numpy and OpenCV elsewhere. The cv_bridge on PyPI is not used: it gives wrong pixels
for padded rows and 16-bit images.

Messages are read by their fields, so no ROS is needed to import or test this module.
"""

from __future__ import annotations

import array
import importlib
import importlib.util
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags
from PIL import Image as Pillow

from clue_ros.dialogue.types import MAX_PIXELS
from clue_ros.errors import BadImageError
from clue_ros.images import FORMATS

Rgb = NDArray[np.uint8]


class ImageLike(Protocol):
    """The fields of sensor_msgs/Image."""

    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Any


@dataclass(frozen=True)
class Encoding:
    """Memory layout of one `encoding` string.

    Attributes:
        dtype: numpy type of one value.
        channels: values per pixel.
        code: OpenCV colour conversion to RGB; None where the pixels are RGB already.
        rows: rows of data per row of the picture (1.5 for 4:2:0 layouts).
    """

    dtype: type[np.unsignedinteger[Any]]
    channels: int
    code: int | None = None
    rows: float = 1.0


_U8, _U16 = np.uint8, np.uint16

# OpenCV names a Bayer pattern by its second row and column, ROS by its first: bayer_rggb is
# COLOR_BayerBG.
ENCODINGS: dict[str, Encoding] = {
    "rgb8": Encoding(_U8, 3),
    "bgr8": Encoding(_U8, 3, cv2.COLOR_BGR2RGB),
    "rgba8": Encoding(_U8, 4, cv2.COLOR_RGBA2RGB),
    "bgra8": Encoding(_U8, 4, cv2.COLOR_BGRA2RGB),
    "mono8": Encoding(_U8, 1, cv2.COLOR_GRAY2RGB),
    "8UC1": Encoding(_U8, 1, cv2.COLOR_GRAY2RGB),
    "8UC3": Encoding(_U8, 3, cv2.COLOR_BGR2RGB),
    "8UC4": Encoding(_U8, 4, cv2.COLOR_BGRA2RGB),
    "rgb16": Encoding(_U16, 3),
    "bgr16": Encoding(_U16, 3, cv2.COLOR_BGR2RGB),
    "rgba16": Encoding(_U16, 4, cv2.COLOR_RGBA2RGB),
    "bgra16": Encoding(_U16, 4, cv2.COLOR_BGRA2RGB),
    "mono16": Encoding(_U16, 1, cv2.COLOR_GRAY2RGB),
    "yuv422": Encoding(_U8, 2, cv2.COLOR_YUV2RGB_UYVY),
    "uyvy": Encoding(_U8, 2, cv2.COLOR_YUV2RGB_UYVY),
    "yuv422_yuy2": Encoding(_U8, 2, cv2.COLOR_YUV2RGB_YUY2),
    "yuyv": Encoding(_U8, 2, cv2.COLOR_YUV2RGB_YUY2),
    "nv12": Encoding(_U8, 1, cv2.COLOR_YUV2RGB_NV12, rows=1.5),
    "nv21": Encoding(_U8, 1, cv2.COLOR_YUV2RGB_NV21, rows=1.5),
    "bayer_rggb8": Encoding(_U8, 1, cv2.COLOR_BayerBG2RGB),
    "bayer_bggr8": Encoding(_U8, 1, cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg8": Encoding(_U8, 1, cv2.COLOR_BayerGR2RGB),
    "bayer_grbg8": Encoding(_U8, 1, cv2.COLOR_BayerGB2RGB),
    "bayer_rggb16": Encoding(_U16, 1, cv2.COLOR_BayerBG2RGB),
    "bayer_bggr16": Encoding(_U16, 1, cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg16": Encoding(_U16, 1, cv2.COLOR_BayerGR2RGB),
    "bayer_grbg16": Encoding(_U16, 1, cv2.COLOR_BayerGB2RGB),
}

# Encodings of depth images: their error names the likely mistake, a wrong remapping.
_DEPTH = ("16UC1", "32FC1", "16SC1", "64FC1")


def to_rgb(msg: ImageLike) -> Rgb:
    """Convert a sensor_msgs/Image to uint8 RGB (height, width, 3), C-contiguous.

    Raises BadImageError: zero size, over 64 megapixels, fewer bytes than the size needs, or an
    encoding that is no picture.
    """
    values = _values(msg)
    bridge = real_cv_bridge()
    if bridge is not None and values.dtype == np.uint8:  # it takes 16 bits for full ones
        try:
            return np.ascontiguousarray(bridge(msg), dtype=np.uint8)
        except Exception:  # noqa: BLE001 - cv_bridge raises its own, cv2's and KeyError; ours may know the encoding
            pass
    return _converted(values, msg.encoding)


def _values(msg: ImageLike) -> NDArray[Any]:
    """Return the values as they are in a picture's message. Raises as `to_rgb` does."""
    encoding = ENCODINGS.get(msg.encoding)
    if encoding is None:
        if msg.encoding in _DEPTH:
            raise BadImageError(
                f"{msg.encoding} is a depth encoding: remap `image` to the colour topic"
            )
        known = ", ".join(ENCODINGS)
        raise BadImageError(f"unknown image encoding {msg.encoding[:40]!r}: use one of {known}")
    subsampled = encoding.channels == 2 or encoding.rows != 1.0
    if (subsampled and msg.width % 2) or (encoding.rows != 1.0 and msg.height % 2):
        raise BadImageError(
            f"{msg.encoding} needs an even size, the image has {msg.width}x{msg.height} pixels"
        )
    return read_rows(msg, encoding.dtype, encoding.channels, encoding.rows)


def read_rows(msg: ImageLike, dtype: Any, channels: int = 1, rows: float = 1.0) -> NDArray[Any]:
    """Return a message's values (height * rows, width[, channels]) in native byte order, unpadded.

    Raises BadImageError: zero size, over 64 megapixels, or fewer bytes than the size needs.
    """
    size = f"{msg.width}x{msg.height}"
    if msg.height == 0 or msg.width == 0:
        raise BadImageError(f"the image is empty ({size} pixels): check the camera")
    if msg.height * msg.width > MAX_PIXELS:
        raise BadImageError(f"the image has {size} pixels: the limit is 64 megapixels")
    native = np.dtype(dtype)
    row, height = msg.width * channels * native.itemsize, int(msg.height * rows)
    if msg.step < row:
        raise BadImageError(
            f"step is {msg.step} bytes, but {msg.width} {msg.encoding} pixels need {row}"
        )
    need = msg.step * (height - 1) + row  # the last row may come without its padding
    if len(msg.data) < need:
        raise BadImageError(
            f"the image holds {len(msg.data)} bytes, but {size} {msg.encoding} needs {need}"
        )
    data = np.frombuffer(msg.data, dtype=np.uint8)
    padded = np.lib.stride_tricks.as_strided(data, (height, row), (msg.step, 1), writeable=False)
    order = native.newbyteorder(">" if msg.is_bigendian else "<")
    values = np.ascontiguousarray(padded).view(order).astype(native, copy=False)
    return values.reshape(height, msg.width, channels) if channels > 1 else values


def _converted(values: NDArray[Any], name: str) -> Rgb:
    code = ENCODINGS[name].code
    if code is not None:
        try:
            values = cv2.cvtColor(values, code)
        except cv2.error as error:  # e.g. a Bayer picture of one row
            raise BadImageError(f"{name} image cannot be converted: {error}") from error
    return np.ascontiguousarray(_eight_bits(values), dtype=np.uint8)


# Cameras with sensors of these many bits leave the upper ones of 16 at 0.
SENSOR_BITS = (10, 12, 14, 16)


def _eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return 16-bit values as 8 bits; the fewest bits of SENSOR_BITS that hold them are white."""
    if values.dtype == np.uint8:
        return values
    most = int(values.max(initial=0))
    white = next(2**bits - 1 for bits in SENSOR_BITS if most < 2**bits)
    return cv2.convertScaleAbs(values, alpha=255 / white).astype(np.uint8, copy=False)


@lru_cache(maxsize=1)
def real_cv_bridge() -> Callable[[ImageLike], NDArray[Any]] | None:
    """Return the robot's cv_bridge as a function to RGB; None where it is missing or broken."""
    try:
        spec = importlib.util.find_spec("cv_bridge.boost.cv_bridge_boost")
        if spec is None or not spec.origin or spec.origin.endswith(".py"):
            return None  # PyPI's: its "boost" is a Python file
        importlib.import_module("cv_bridge.boost.cv_bridge_boost")
        bridge = importlib.import_module("cv_bridge").CvBridge()
    except Exception:  # noqa: BLE001 - built for another numpy, it fails in many ways
        return None

    def convert(msg: ImageLike) -> NDArray[Any]:
        image: NDArray[Any] = bridge.imgmsg_to_cv2(msg, "rgb8")
        return image

    return convert


def compressed_to_rgb(data: Any, fmt: str) -> Rgb:
    """Decode the bytes of a sensor_msgs/CompressedImage (JPEG, PNG, ...) to uint8 RGB (H, W, 3).

    Raises BadImageError: no bytes, a depth stream, corrupt, or over 64 megapixels (not decoded).
    """
    if _is_depth(fmt):
        raise BadImageError(
            "the compressed image is a depth stream: remap `image` to the colour topic"
        )
    # CameraInfo describes the pixels as the camera sends them: no EXIF rotation.
    bgr = decoded(data, fmt, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION)
    if bgr.dtype not in (np.uint8, np.uint16):
        raise BadImageError(f"the compressed image ({fmt[:40]!r}) holds {bgr.dtype}: no picture")
    return np.ascontiguousarray(cv2.cvtColor(_eight_bits(bgr), cv2.COLOR_BGR2RGB), dtype=np.uint8)


def decoded(data: Any, fmt: str, flags: int) -> NDArray[Any]:
    """Decode a picture's bytes (H, W[, channels]) as cv2.imdecode does with these flags.

    fmt: the message's name of the format. Raises BadImageError as `compressed_to_rgb` does.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size == 0:
        raise BadImageError("the compressed image holds no bytes: check the camera")
    width, height = _declared_size(raw)
    if width * height > MAX_PIXELS:
        raise BadImageError(f"the image has {width}x{height} pixels: the limit is 64 megapixels")
    try:
        picture = cv2.imdecode(raw, flags)
    except cv2.error as error:
        raise BadImageError(
            f"the compressed image ({fmt[:40]!r}) cannot be decoded: {error}"
        ) from error
    if picture is None:
        raise BadImageError(
            f"the compressed image ({fmt[:40]!r}, {raw.size} bytes) is corrupt or of unknown format"
        )
    return picture


def _is_depth(fmt: str) -> bool:
    """Whether a CompressedImage's format is a depth image's, whatever it was compressed as."""
    return "compressedDepth" in fmt or fmt.partition(";")[0].strip() in _DEPTH


def jpeg_size(data: Any, fmt: str = "jpeg") -> tuple[int, int] | None:
    """Return the (width, height) of a JPEG that a browser shows as `compressed_to_rgb` reads it.

    None for other data, for depth, for a JPEG without a readable header, and for one that its EXIF
    data turn.
    """
    raw = bytes(data)
    if _is_depth(fmt) or not raw.startswith(b"\xff\xd8\xff"):
        return None
    try:
        with Pillow.open(io.BytesIO(raw), formats=("JPEG",)) as header:
            upright = header.getexif().get(ExifTags.Base.Orientation, 1) == 1
            return header.size if upright and header.width * header.height <= MAX_PIXELS else None
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError):
        return None


def _declared_size(raw: NDArray[np.uint8]) -> tuple[int, int]:
    """Return width and height as a picture's header has them: few bytes can unpack to gigabytes.

    (0, 0) without a readable header; decoding then fails by itself.
    """
    try:
        with Pillow.open(io.BytesIO(raw.tobytes()), formats=FORMATS) as header:
            return header.size
    except Pillow.DecompressionBombError as error:
        raise BadImageError(f"the compressed image is far over 64 megapixels: {error}") from error
    except (OSError, SyntaxError, ValueError):
        return 0, 0


_TYPES = {
    "rgb8": (np.uint8, 3),
    "bgr8": (np.uint8, 3),
    "mono8": (np.uint8, 1),
    "16UC1": (np.uint16, 1),
    "32FC1": (np.float32, 1),
}


def fill_image(msg: Any, pixels: NDArray[Any], encoding: str) -> Any:
    """Fill a sensor_msgs/Image (all but its header) from (H, W) or (H, W, 3) pixels, and return it.

    `encoding` is rgb8, bgr8, mono8, 16UC1 or 32FC1 and must fit the array's type. The data are an
    array.array, because rclpy checks every element of an ndarray (128 ms a VGA frame instead of 1).
    """
    dtype, channels = _TYPES[encoding]
    if pixels.dtype != dtype or (pixels.shape[2] if pixels.ndim == 3 else 1) != channels:
        raise ValueError(f"{encoding} does not fit an array of {pixels.dtype} {pixels.shape}")
    values = np.ascontiguousarray(pixels, dtype=np.dtype(dtype).newbyteorder("<"))
    msg.height, msg.width = int(pixels.shape[0]), int(pixels.shape[1])
    msg.encoding = encoding
    msg.is_bigendian = 0
    msg.step = msg.width * channels * values.itemsize
    msg.data = array.array("B", values.tobytes())
    return msg
