# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A camera's intrinsics: from pixels to rays, without the lens's distortion.

The models and the order of their coefficients are OpenCV's, as in sensor_msgs/CameraInfo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clue_ros.errors import NoPoseError

Array = npt.NDArray[np.float64]

# k1 k2 p1 p2 k3, then k4 k5 k6 (rational), s1 s2 s3 s4 (thin prism), tx ty (tilted sensor)
POLYNOMIAL, MOST_POLYNOMIAL = ("plumb_bob", "rational_polynomial"), 14
EQUIDISTANT, MOST_EQUIDISTANT = ("equidistant", "fisheye"), 4  # Kannala-Brandt: k1 k2 k3 k4
ROUNDS = 30  # iterations; each gains a digit or more, also for a wide lens
ASPECT = 0.02  # tolerance of the aspect ratios of two images of one camera (rounded sizes)
FOCAL_RATIO = 2.0  # largest ratio of the two focal lengths: pixels are nearly square
WIDEST = 10.0  # tangent of the angle up to which distortion is looked at: 84 degrees
WIDEST_FISHEYE = 1.55  # the same angle in radians for a fisheye lens: short of 90 degrees
LEAST_INVERTED = 0.25  # of the picture's smaller side, from the middle, that D must be undone in


@dataclass(frozen=True)
class Pinhole:
    """Focal lengths and centre in pixels of an image of `width` x `height`.

    Attributes:
        distortion: the model's coefficients; all zero or none: an ideal lens.
        model: the distortion model's name as in sensor_msgs/distortion_models.

    Raises (on construction): NoPoseError for numbers that are no calibration.
    """

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...] = ()
    model: str = "plumb_bob"

    def __post_init__(self) -> None:
        """Refuse numbers that are no calibration."""
        numbers = (self.fx, self.fy, self.cx, self.cy)
        if self.width <= 0 or self.height <= 0:
            raise NoPoseError("camera_info gives no image size: the camera is not calibrated")
        if not np.isfinite(numbers).all() or self.fx <= 0 or self.fy <= 0:
            raise NoPoseError(
                "camera_info holds no focal length (K or P is zero): calibrate the camera"
            )
        if not 1 / FOCAL_RATIO <= self.fx / self.fy <= FOCAL_RATIO:
            raise NoPoseError(
                f"camera_info's focal lengths, {self.fx:.4g} and {self.fy:.4g} pixels, are not of "
                "one camera (K or P is not filled): calibrate the camera"
            )
        if not np.isfinite(self.distortion).all():
            raise NoPoseError("camera_info's distortion D is not a number: calibrate the camera")
        if not any(self.distortion):
            object.__setattr__(self, "distortion", ())
            return
        most = MOST_POLYNOMIAL if self.model in POLYNOMIAL else 0
        most = MOST_EQUIDISTANT if self.model in EQUIDISTANT else most
        if any(self.distortion[most:]):
            raise NoPoseError(
                f"the distortion model {self.model[:40]!r} with {len(self.distortion)} "
                "coefficients is unknown: use rectified images and set `rectified`"
            )
        padded = (*self.distortion, *[0.0] * most)[:most]
        object.__setattr__(self, "distortion", padded)
        reach = self._limit[1] * min(self.fx, self.fy)
        if reach < LEAST_INVERTED * min(self.width, self.height):
            raise NoPoseError(
                f"camera_info's distortion D cannot be undone farther than {reach:.0f} pixels from "
                "the middle of the picture: calibrate the camera"
            )

    def resized(self, width: int, height: int) -> Pinhole:
        """Return the same camera's intrinsics for its picture at another resolution.

        Raises NoPoseError where the shape differs: then it is a part, or another camera.
        """
        across, down = width / self.width, height / self.height
        if abs(across / down - 1) > ASPECT:
            raise NoPoseError(
                f"camera_info is for {self.width}x{self.height} pixels and the image has "
                f"{width}x{height}: they are not of the same camera"
            )
        return replace(
            self,
            width=width,
            height=height,
            fx=self.fx * across,
            fy=self.fy * down,
            cx=(self.cx + 0.5) * across - 0.5,
            cy=(self.cy + 0.5) * down - 0.5,
        )

    def rays(self, x: Array, y: Array) -> Array:
        """Return the points (..., 3) at z = 1 that pixels x, y (of one shape) show.

        NaN where the distortion cannot be undone: distorted again, the point is more than a pixel
        from where it was seen, or lies beyond the angle up to which the model is one to one.
        """
        a, b = (x - self.cx) / self.fx, (y - self.cy) / self.fy
        if not self.distortion:
            return np.stack([a, b, np.ones_like(a)], axis=-1)
        fisheye = self.model in EQUIDISTANT
        undo, bend = (_undo_fisheye, _fisheye) if fisheye else (_undo_polynomial, _polynomial)
        with np.errstate(all="ignore"):  # diverged points are dropped below
            u, v = undo(a, b, self.distortion)
            again, below = bend(u, v, self.distortion)
            off = np.hypot((again - a) * self.fx, (below - b) * self.fy)
            good = (off <= 1.0) & (np.hypot(u, v) <= self._limit[0])
        lost = np.where(good, 1.0, np.nan)
        return np.stack([u * lost, v * lost, lost], axis=-1)

    @cached_property
    def _limit(self) -> tuple[float, float]:
        """The radii up to which the model is one to one, at z = 1: without and with distortion.

        Beyond, a larger angle of a point gives a place nearer to the middle: no lens does that.
        """
        if self.model in EQUIDISTANT:
            angle = np.linspace(0, WIDEST_FISHEYE, 2000)
            far, bent = np.tan(angle), angle * _bending(angle, self.distortion)
        else:
            far = np.linspace(0, WIDEST, 8000)
            k1, k2, _, _, k3, k4, k5, k6 = self.distortion[:8]
            with np.errstate(all="ignore"):
                bent = far * _growth(far * far, (k1, k2, k3, k4, k5, k6))
        back = np.nonzero(~(np.diff(bent) > 0))[0]
        last = int(back[0]) if len(back) else len(far) - 1
        return float(far[last]), float(bent[last])


def _growth(r: Array, k: tuple[float, ...]) -> Array:
    """Return the radial factor of OpenCV's model at squared distances r; k: k1 to k6."""
    k1, k2, k3, k4, k5, k6 = k
    return np.asarray(
        (1 + r * (k1 + r * (k2 + r * k3))) / (1 + r * (k4 + r * (k5 + r * k6))), np.float64
    )


def _parts(x: Array, y: Array, d: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Return the radial factor, and the tangential and prism terms of x and of y."""
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4 = d[:12]
    r = x * x + y * y
    dx = 2 * p1 * x * y + p2 * (r + 2 * x * x) + r * (s1 + r * s2)
    dy = p1 * (r + 2 * y * y) + 2 * p2 * x * y + r * (s3 + r * s4)
    return _growth(r, (k1, k2, k3, k4, k5, k6)), dx, dy


def _polynomial(x: Array, y: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Distort as OpenCV's polynomial or rational model does."""
    grow, dx, dy = _parts(x, y, d)
    return _moved(x * grow + dx, y * grow + dy, _tilt(*d[12:]))


def _undo_polynomial(x0: Array, y0: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Invert `_polynomial` by fixed-point iteration."""
    x0, y0 = _moved(x0, y0, np.asarray(np.linalg.inv(_tilt(*d[12:])), np.float64))
    x, y = x0, y0
    for _ in range(ROUNDS):
        grow, dx, dy = _parts(x, y, d)
        x, y = (x0 - dx) / grow, (y0 - dy) / grow
    return x, y


def _tilt(across: float, down: float) -> Array:
    """Return the homography (3, 3) of a sensor tilted by two angles (radians) about x and y."""
    (sx, sy), (cx, cy) = np.sin([across, down]), np.cos([across, down])
    turn = np.array([[cy, 0, -sy], [0, 1, 0], [sy, 0, cy]]) @ [[1, 0, 0], [0, cx, sx], [0, -sx, cx]]
    flat = np.array([[turn[2, 2], 0, -turn[0, 2]], [0, turn[2, 2], -turn[1, 2]], [0, 0, 1]])
    return np.asarray(flat @ turn)


def _moved(x: Array, y: Array, matrix: Array) -> tuple[Array, Array]:
    """Apply a homography to points."""
    u, v, w = np.tensordot(matrix, np.stack([x, y, np.ones_like(x)]), 1)
    return u / w, v / w


def _bending(angle: Array, d: tuple[float, ...]) -> Array:
    """Return the factor by which a fisheye lens changes angles (radians)."""
    k1, k2, k3, k4 = d
    r = angle * angle
    return np.asarray(1 + r * (k1 + r * (k2 + r * (k3 + r * k4))))


def _fisheye(x: Array, y: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Distort as the equidistant model does."""
    far = np.hypot(x, y)
    angle = np.arctan(far)
    bent = angle * _bending(angle, d)
    scale = np.divide(bent, far, out=np.ones_like(far), where=far > 1e-12)
    return x * scale, y * scale


def _undo_fisheye(x0: Array, y0: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Invert the equidistant distortion by Newton's method; only the half space in front."""
    k1, k2, k3, k4 = d
    bent = np.hypot(x0, y0)
    angle = bent
    for _ in range(ROUNDS):
        r = angle * angle
        slope = 1 + r * (3 * k1 + r * (5 * k2 + r * (7 * k3 + r * 9 * k4)))
        angle = np.clip(angle - (angle * _bending(angle, d) - bent) / slope, 0.0, WIDEST_FISHEYE)
    scale = np.divide(np.tan(angle), bent, out=np.ones_like(bent), where=bent > 1e-12)
    return x0 * scale, y0 * scale
