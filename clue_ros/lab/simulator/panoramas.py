"""Light from panoramas: cube maps of the sky, blurred for rough surfaces, and its strongest lamp.

A panorama is an equirectangular picture in linear RGB, such as a Radiance file of Poly Haven. World
axes: z up. Cube maps have OpenGL's faces and y up, as Filament wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]

LIGHT_SIDE, LEVELS, SKY_SIDE = 64, 5, 384  # pixels of a cube's face
SAMPLES = 96  # of a blurred direction
BRIGHTEST = 30.0  # times the light on a table


@dataclass(frozen=True)
class Panorama:
    """A panorama whose mean light on a table is 1 (of its colours' mean).

    sky: linear RGB (6, SKY_SIDE, SKY_SIDE, 3). levels: the same, blurred for rougher and rougher
    surfaces. harmonics: (9, 3), Filament's form of the light on a surface. lamp: direction to its
    brightest spot, unit length. lamp_rgb: the light from there on a surface that faces it.
    """

    sky: Floats
    levels: tuple[Floats, ...]
    harmonics: Floats
    lamp: Floats
    lamp_rgb: Floats
    color: Floats


@dataclass(frozen=True)
class ImageLight:
    """A panorama as textures of a renderer."""

    sky: Any
    map: Any


@lru_cache(maxsize=4)
def directions(side: int) -> Floats:
    """The world direction of each pixel of a cube map, (6, side, side, 3), unit length."""
    at = (np.arange(side) + 0.5) / side * 2 - 1
    s, t = np.meshgrid(at, at)
    one = np.ones_like(s)
    faces = ((one, -t, -s), (-one, -t, s), (s, one, t), (s, -one, -t), (s, -t, one), (-s, -t, -one))
    x, y, z = (np.stack([face[k] for face in faces]) for k in range(3))
    out = np.stack([x, -z, y], axis=-1)  # the cube's y is the world's z
    return np.asarray(out / np.linalg.norm(out, axis=-1, keepdims=True))


def sample(panorama: Floats, toward: Floats) -> Floats:
    """The panorama's colours in world directions (..., 3)."""
    height, width = panorama.shape[:2]
    shape = toward.shape[:-1]
    u = (np.arctan2(toward[..., 1], toward[..., 0]) / (2 * np.pi) + 0.5) * width - 0.5
    v = np.arccos(toward[..., 2].clip(-1, 1)) / np.pi * height - 0.5
    rows = 2048  # OpenCV's remap takes pictures of limited sides
    u, v = (np.float32(a).reshape(-1) for a in (u, v))
    pad = -len(u) % rows
    u, v = (np.pad(a, (0, pad)).reshape(-1, rows) for a in (u, v))
    out = cv2.remap(panorama, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
    return out.reshape(-1, 3)[: int(np.prod(shape))].reshape(*shape, 3)


def read_panorama(path: Path) -> Floats:
    """A Radiance, OpenEXR or other picture as linear RGB float32 (H, W, 3). Else ValueError."""
    read = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if read is None or read.ndim != 3 or read.shape[2] < 3 or read.shape[1] != 2 * read.shape[0]:
        raise ValueError(f"{path}: no panorama (want a picture twice as wide as high)")
    rgb: Floats = read[..., 2::-1]
    if read.dtype == np.uint8:
        rgb = (rgb / 255.0) ** 2.2
    return np.nan_to_num(np.asarray(rgb, np.float32), posinf=6e4).clip(0, 6e4)


def light_from(panorama: Floats) -> Panorama:
    """Sky, light and lamp of a panorama, linear RGB (H, W, 3)."""
    rows, columns = 128, 256
    small = cv2.resize(panorama, (columns, rows), interpolation=cv2.INTER_AREA).astype(np.float64)
    v, u = np.mgrid[0:rows, 0:columns]
    polar, around = (v + 0.5) / rows * np.pi, ((u + 0.5) / columns - 0.5) * 2 * np.pi
    flat = np.sin(polar)
    toward = np.stack([flat * np.cos(around), flat * np.sin(around), np.cos(polar)], axis=-1)
    area = (flat * (np.pi / rows) * (2 * np.pi / columns))[..., None]
    on_table = (small * area * toward[..., 2:].clip(0)).sum(axis=(0, 1)) / np.pi
    total = float(on_table.mean())
    spot = cv2.GaussianBlur((small * area).mean(axis=-1) * (toward[..., 2] > 0.1), (0, 0), 3)
    row, column = np.unravel_index(int(np.argmax(spot)), spot.shape)
    lamp = toward[row, column]
    near = ((toward @ lamp) > 0.95)[..., None]
    lamp_rgb = (small * area * near).sum(axis=(0, 1)) + 1e-9
    n = directions(8).reshape(-1, 3)
    lit = np.einsum("hwk,hwc->kc", (toward @ n.T).clip(0) * area, small) / np.pi / total
    harmonics = np.linalg.lstsq(_terms(n), lit, rcond=None)[0]
    # Light brighter than BRIGHTEST would sparkle in glossy things.
    dim = panorama * np.minimum(
        1, BRIGHTEST * total / np.maximum(panorama.mean(axis=-1, keepdims=True), 1e-9)
    )
    half = (panorama.shape[1] // 2, panorama.shape[0] // 2)
    levels = [sample(cv2.resize(dim, half, interpolation=cv2.INTER_AREA), directions(LIGHT_SIDE))]
    small = cv2.resize(dim, (columns, rows), interpolation=cv2.INTER_AREA)
    for level in range(1, LEVELS):
        levels.append(_blurred(small, LIGHT_SIDE >> level, level / (LEVELS - 1)))
    return Panorama(
        np.float32(sample(dim, directions(SKY_SIDE)) / total),
        tuple(np.float32(level / total) for level in levels),
        harmonics,
        lamp,
        lamp_rgb / lamp_rgb.mean(),
        on_table / total,
    )


def _terms(normals: Floats) -> Floats:
    """The nine terms of Filament's shaders for surfaces of normals (n, 3); its y is up."""
    a, b, c = normals[:, 0], normals[:, 2], -normals[:, 1]
    terms = [np.ones_like(a), b, c, a, b * a, b * c, 3 * c * c - 1, c * a, a * a - b * b]
    return np.stack(terms, axis=1)


def irradiance(harmonics: Floats, normals: Floats) -> Floats:
    """The light on surfaces of normals (n, 3) by a panorama's harmonics, linear RGB (n, 3)."""
    return np.asarray(_terms(normals) @ harmonics)


def studio(number: int) -> Panorama:
    """The light of a generated room: gray walls, a ceiling, windows and lamps."""
    rng = np.random.default_rng([number, 20])
    height, width = 128, 256
    out = np.empty((height, width, 3), np.float32)
    wall, ceiling, floor = (rng.uniform(*r) * (1 + rng.uniform(-0.1, 0.1, 3)) for r in
                            ((0.2, 0.6), (0.4, 1.0), (0.1, 0.4)))  # fmt: skip
    v = np.arange(height)[:, None, None] / height
    out[:] = np.where(v < 0.3, ceiling, np.where(v < 0.62, wall, floor))
    for _ in range(int(rng.integers(2, 6))):
        x, y = int(rng.integers(0, width - 40)), int(rng.integers(4, 50))
        w, h = int(rng.integers(8, 40)), int(rng.integers(4, 24))
        out[y : y + h, x : x + w] = rng.uniform(4, 30) * (1 + rng.uniform(-0.12, 0.12, 3))
    return light_from(cv2.GaussianBlur(out, (0, 0), 1.5))


def _blurred(small: Floats, side: int, share: float) -> Floats:
    """A cube map as a surface reflects it; share: of the roughest, 0..1 (GGX, split sum)."""
    roughness = (1 - np.sqrt(1 - share)) if share < 1 else 1.0
    alpha = max(roughness, 0.1) ** 2
    n = directions(side)
    k = np.arange(SAMPLES)
    first, second = (k + 0.5) / SAMPLES, (k * 0.618033988749895) % 1.0
    cosine = np.sqrt((1 - first) / (1 + (alpha**2 - 1) * first))
    sine = np.sqrt(1 - cosine**2)
    turn = 2 * np.pi * second
    up = np.where(np.abs(n[..., 2:]) < 0.9, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    x = np.cross(up, n)
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    y = np.cross(n, x)
    out, total = np.zeros((*n.shape[:-1], 3)), 0.0
    soft = cv2.GaussianBlur(np.float32(small), (0, 0), 1.0 + 3 * share)
    for c, s, t in zip(cosine, sine, turn, strict=True):
        half = s * np.cos(t) * x + s * np.sin(t) * y + c * n
        toward = 2 * c * half - n
        weight = 2 * c * c - 1
        if weight > 0:
            out += weight * sample(soft, toward)
            total += weight
    return out / total
