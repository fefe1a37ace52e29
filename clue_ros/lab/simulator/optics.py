"""Image space: projection of points and masks, and the faults of lens and sensor."""

from __future__ import annotations

from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.scene import Image

Points: TypeAlias = npt.NDArray[np.float64]
Masks: TypeAlias = npt.NDArray[np.uint8]
Size: TypeAlias = tuple[int, int]  # (height, width), pixels

INSTANCE_GRID = 56  # cells a side of `Scene.instances`
_SHIFT = 4  # bits after the point in OpenCV's fixed-point coordinates

# -------------------------------------------------------------------------------------------------
# Projection and masks.


def project(model: Any, data: Any, points: Points, size: Size) -> Points:
    """World points (n, 3) in a picture of camera 0, pixels (x, y), (n, 2).

    Every point must lie in front of the camera.
    """
    height, width = size
    seen = (points - data.cam_xpos[0]) @ data.cam_xmat[0].reshape(3, 3)
    scale = height / 2 / np.tan(np.deg2rad(model.cam_fovy[0]) / 2)
    depth = np.maximum(-seen[:, 2], 1e-3)
    x, y = seen[:, 0] / depth * scale, seen[:, 1] / depth * scale
    return np.stack([width / 2 + x, height / 2 - y], axis=1)


def silhouette(corners: Points, faces: npt.NDArray[np.int64], size: Size) -> npt.NDArray[np.bool_]:
    """The pixels (H, W) that a mesh covers. corners: its vertices in pixels, (n, 2)."""
    out = np.zeros(size, dtype=np.uint8)
    fixed = np.round((corners - 0.5) * (1 << _SHIFT)).astype(np.int32)
    triangles = fixed[faces]
    a, b = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    for triangle in triangles[a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0]:  # those that face us
        cv2.fillConvexPoly(out, triangle, 1, shift=_SHIFT)
    return out > 0


def visible_share(masks: Masks, number: int, alone: npt.NDArray[Any]) -> float:
    """Fraction of an object that no other one hides, 0..1.

    masks: the number of the object that each pixel shows. alone: the pixels (H, W) that this object
    would cover if it were alone.
    """
    shown = int(np.count_nonzero(masks == number))
    hidden = int(np.count_nonzero(alone & (masks != 0) & (masks != number)))
    return shown / max(shown + hidden, 1)


def bounding_box(mask: npt.NDArray[np.bool_]) -> tuple[float, float, float, float] | None:
    """The box (x_min, y_min, x_max, y_max) around a mask (H, W), fractions of the picture.

    None for an empty mask, or one that the picture's edge may cut.
    """
    height, width = mask.shape
    ys, xs = np.nonzero(mask)
    if len(xs) == 0:
        return None
    box = (
        float(xs.min() / width),
        float(ys.min() / height),
        float((xs.max() + 1) / width),
        float((ys.max() + 1) / height),
    )
    return box if min(box) > 0 and max(box) < 1 else None


def instance_grid(masks: Masks) -> Masks:
    """The masks on the grid of `Scene.instances`."""
    side = (INSTANCE_GRID, INSTANCE_GRID)
    return np.asarray(cv2.resize(masks, side, interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def full_instance_grid(masks: Masks, count: int) -> Masks:
    """As `instance_grid`, with one cell for each of `count` objects too thin to have any."""
    out = instance_grid(masks)
    for k in range(1, count + 1):
        if not np.any(out == k):
            ys, xs = np.nonzero(masks == k)
            middle = np.argmin((ys - ys.mean()) ** 2 + (xs - xs.mean()) ** 2)
            height, width = masks.shape
            out[ys[middle] * INSTANCE_GRID // height, xs[middle] * INSTANCE_GRID // width] = k
    return out


def center_crop(picture: npt.NDArray[np.uint8], size: Size) -> npt.NDArray[np.uint8]:
    """The middle columns of a picture that has the height of `size`."""
    left = (picture.shape[1] - size[1]) // 2
    return np.ascontiguousarray(picture[:, left : left + size[1]])


# -------------------------------------------------------------------------------------------------
# Faults of the lens and the sensor.


def distort(image: Image, masks: Masks, k: float) -> tuple[Image, Masks]:
    """Picture (H, W, 3) and masks (H, W) through a lens with radial distortion.

    k: distortion at the corners, negative for barrel, positive for pincushion. No pixel comes from
    outside the picture.
    """
    height, width = masks.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    half = np.hypot(width, height) / 2
    u, v = (x - (width - 1) / 2) / half, (y - (height - 1) / 2) / half
    factor = 1 - k * (u * u + v * v)
    # The edges' middles move least with a barrel, the corners reach furthest with a pincushion.
    factor = factor / max(1.0, float(factor.max())) if k < 0 else factor
    at = (u * factor * half + (width - 1) / 2, v * factor * half + (height - 1) / 2)
    ax, ay = (np.asarray(a, dtype=np.float32) for a in at)
    out = cv2.remap(image, ax, ay, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    numbers = cv2.remap(masks, ax, ay, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out, dtype=np.uint8), np.asarray(numbers, dtype=np.uint8)


def simple_sensor(image: Image, rng: np.random.Generator) -> Image:
    """Exposure, white balance, blur and noise on a rendered picture (H, W, 3)."""
    out: npt.NDArray[Any] = (
        image.astype(np.float32) * rng.uniform(0.75, 1.3) * (1 + rng.uniform(-0.06, 0.06, 3))
    )
    if rng.uniform() < 0.4:
        out = cv2.GaussianBlur(out, (0, 0), float(rng.uniform(0.3, 0.9)))
    out += rng.normal(0, rng.uniform(0.5, 6), out.shape)
    return np.asarray(out.clip(0, 255), dtype=np.uint8)


def faulty_sensor(image: Image, rng: np.random.Generator) -> Image:
    """Exposure, white balance, vignette, defocus or motion blur, and noise on (H, W, 3)."""
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
    # Sensor noise grows with the light; its level differs between pictures.
    level = rng.uniform(0.5, 6) * (0.6 + 0.4 * np.sqrt(np.clip(out, 0, 255) / 255))
    out = out + level * rng.standard_normal(out.shape)
    return np.asarray(out.clip(0, 255), dtype=np.uint8)
