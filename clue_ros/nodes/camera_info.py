"""CameraInfo from a calibration file (camera_calibration's YAML), or from a field of view."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml
from sensor_msgs.msg import CameraInfo

_SIZES = {"camera_matrix": 9, "rectification_matrix": 9, "projection_matrix": 12}


class BadCalibrationError(Exception):
    """The calibration file cannot be used; the message is one line and names it."""


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
