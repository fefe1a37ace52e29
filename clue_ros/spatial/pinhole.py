"""A camera's intrinsics: from pixels to rays, with the lens's distortion undone.

Pixel coordinates are OpenCV's and ROS's: (0, 0) is the middle of the upper left pixel. Rays are in
the camera's optical frame (REP 103): x to the right, y down, z forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from clue_ros.errors import NoPoseError

Array = npt.NDArray[np.float64]

POLYNOMIAL = ("plumb_bob", "rational_polynomial")  # of OpenCV: k1 k2 p1 p2 k3 k4 k5 k6
EQUIDISTANT = ("equidistant", "fisheye")  # Kannala-Brandt: k1 k2 k3 k4
ROUNDS = 30  # to undo a distortion; each brings a wide lens at least a digit nearer
ASPECT = 0.02  # by which two images of one camera may differ in shape, for rounded sizes


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
        """Refuse what is no calibration."""
        numbers = (self.fx, self.fy, self.cx, self.cy, *self.distortion)
        if self.width <= 0 or self.height <= 0:
            raise NoPoseError("camera_info gives no image size: the camera is not calibrated")
        if not np.isfinite(numbers).all() or self.fx <= 0 or self.fy <= 0:
            raise NoPoseError(
                "camera_info holds no focal length (K or P is zero): calibrate the camera"
            )
        if not any(self.distortion):
            object.__setattr__(self, "distortion", ())
            return
        most = 8 if self.model in POLYNOMIAL else 4 if self.model in EQUIDISTANT else 0
        if any(self.distortion[most:]):
            raise NoPoseError(
                f"the distortion model {self.model[:40]!r} with {len(self.distortion)} "
                "coefficients is unknown: use rectified images and set `rectified`"
            )
        padded = (*self.distortion, *[0.0] * most)[:most]
        object.__setattr__(self, "distortion", padded)

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
        """Return the points (..., 3) at z = 1 that pixels x, y (of one shape) show."""
        a, b = (x - self.cx) / self.fx, (y - self.cy) / self.fy
        if self.distortion:
            undo = _undo_fisheye if self.model in EQUIDISTANT else _undo_polynomial
            a, b = undo(a, b, self.distortion)
        return np.stack([a, b, np.ones_like(a)], axis=-1)


def _undo_polynomial(x0: Array, y0: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Invert OpenCV's polynomial or rational distortion by fixed-point iteration."""
    k1, k2, p1, p2, k3, k4, k5, k6 = d
    x, y = x0, y0
    for _ in range(ROUNDS):
        r = x * x + y * y
        grow = (1 + r * (k1 + r * (k2 + r * k3))) / (1 + r * (k4 + r * (k5 + r * k6)))
        dx = 2 * p1 * x * y + p2 * (r + 2 * x * x)
        dy = p1 * (r + 2 * y * y) + 2 * p2 * x * y
        x, y = (x0 - dx) / grow, (y0 - dy) / grow
    return x, y


def _undo_fisheye(x0: Array, y0: Array, d: tuple[float, ...]) -> tuple[Array, Array]:
    """Invert the equidistant distortion by Newton's method; only the half space in front."""
    k1, k2, k3, k4 = d
    bent = np.hypot(x0, y0)
    angle = bent
    for _ in range(ROUNDS):
        r = angle * angle
        value = angle * (1 + r * (k1 + r * (k2 + r * (k3 + r * k4)))) - bent
        slope = 1 + r * (3 * k1 + r * (5 * k2 + r * (7 * k3 + r * 9 * k4)))
        angle = np.clip(angle - value / slope, 0.0, 1.55)
    scale = np.divide(np.tan(angle), bent, out=np.ones_like(bent), where=bent > 1e-12)
    return x0 * scale, y0 * scale
