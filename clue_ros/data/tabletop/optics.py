"""What lies between a scene and its picture: where points fall, the lens, a camera's faults."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
_SHIFT = 4  # of OpenCV's fixed-point coordinates


def pixels_of(model: Any, data: Any, points: Points, size: tuple[int, int]) -> Points:
    """World points (n, 3) in a picture of (height, width) pixels of camera 0, (n, 2).

    Every point must lie in front of the camera.
    """
    height, width = size
    seen = (points - data.cam_xpos[0]) @ data.cam_xmat[0].reshape(3, 3)
    scale = height / 2 / np.tan(np.deg2rad(model.cam_fovy[0]) / 2)
    depth = np.maximum(-seen[:, 2], 1e-3)
    x, y = seen[:, 0] / depth * scale, seen[:, 1] / depth * scale
    return np.stack([width / 2 + x, height / 2 - y], axis=1)


def silhouette(
    corners: Points, faces: npt.NDArray[np.int64], size: tuple[int, int]
) -> npt.NDArray[np.bool_]:
    """The pixels (H, W) that a mesh covers. corners: its vertices in pixels, (n, 2)."""
    out = np.zeros(size, dtype=np.uint8)
    fixed = np.round((corners - 0.5) * (1 << _SHIFT)).astype(np.int32)
    triangles = fixed[faces]
    a, b = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    for triangle in triangles[a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0]:  # those that face us
        cv2.fillConvexPoly(out, triangle, 1, shift=_SHIFT)
    return out > 0


def visible_share(masks: npt.NDArray[np.uint8], number: int, alone: npt.NDArray[Any]) -> float:
    """How much of an object is not hidden by another one, 0..1.

    masks: which object each pixel shows. alone: where it would be seen if it were alone.
    """
    shown = int(np.count_nonzero(masks == number))
    hidden = int(np.count_nonzero(alone & (masks != 0) & (masks != number)))
    return shown / max(shown + hidden, 1)


def bent(
    image: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8], k: float
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Picture (H, W, 3) and masks (H, W) through a lens with radial distortion.

    k: of the corners, barrel below 0 and pincushion above. No pixel comes from outside.
    """
    height, width = masks.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    half = np.hypot(width, height) / 2
    u, v = (x - (width - 1) / 2) / half, (y - (height - 1) / 2) / half
    factor = 1 - k * (u * u + v * v)
    # The edges' middles bulge least with a barrel, the corners reach furthest with a pincushion.
    factor = factor / max(1.0, float(factor.max())) if k < 0 else factor
    at = (u * factor * half + (width - 1) / 2, v * factor * half + (height - 1) / 2)
    ax, ay = (np.asarray(a, dtype=np.float32) for a in at)
    out = cv2.remap(image, ax, ay, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    numbers = cv2.remap(masks, ax, ay, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out, dtype=np.uint8), np.asarray(numbers, dtype=np.uint8)


def faulty(image: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A camera's exposure, white balance, vignette, blur and noise on uint8 RGB (H, W, 3)."""
    height, width = image.shape[:2]
    out: npt.NDArray[Any] = (
        image.astype(np.float32) * rng.uniform(0.8, 1.12) * (1 + rng.uniform(-0.05, 0.05, 3))
    )
    y, x = np.mgrid[0:height, 0:width]
    square = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2
    out *= (1 - rng.uniform(0, 0.3) * square)[..., None]
    fault = rng.uniform()
    if fault < 0.35:
        out = cv2.GaussianBlur(out, (0, 0), float(rng.uniform(0.3, 1.1)))
    elif fault < 0.5:
        length = int(rng.integers(2, 5))
        kernel = np.zeros((length, length), dtype=np.float32)
        ends = ((0, int(rng.integers(length))), (length - 1, int(rng.integers(length))))
        cv2.line(kernel, *ends, 1.0)
        out = cv2.filter2D(out, -1, kernel / kernel.sum())
    # Sensor noise grows with the light; it is not the same in every picture.
    level = rng.uniform(0.5, 6) * (0.6 + 0.4 * np.sqrt(np.clip(out, 0, 255) / 255))
    out = out + level * rng.standard_normal(out.shape)
    return np.asarray(out.clip(0, 255), dtype=np.uint8)
