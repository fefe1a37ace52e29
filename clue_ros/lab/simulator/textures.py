"""Generated textures of tables, cloths, floors and objects, uint8 RGB (size, size, 3)."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

Texture: TypeAlias = npt.NDArray[np.uint8]
Make: TypeAlias = Callable[[np.random.Generator], Texture]
Field: TypeAlias = npt.NDArray[np.float64]

SIZE = 320  # pixels a side of a texture with a pattern


def noise(rng: np.random.Generator, size: int = 128) -> Texture:
    """One colour under noise of three scales, or under stripes."""
    hue, saturation = rng.uniform(), rng.choice([0.05, 0.25, 0.5]) * rng.uniform()
    base = np.array(colorsys.hsv_to_rgb(hue, saturation, rng.uniform(0.08, 0.85)))
    out = np.tile(base, (size, size, 1))
    for cells in (4, 16, 64):
        shape = (cells, 2) if rng.uniform() < 0.3 else (cells, cells)  # long cells look like wood
        field = cv2.resize(rng.standard_normal(shape), (size, size), interpolation=cv2.INTER_CUBIC)
        out += rng.uniform(0, 0.06) * field[..., None]
    return _bytes(out)


def _field(rng: np.random.Generator, size: int, rows: int, columns: int) -> Field:
    """Smooth noise of about unit variance, (size, size)."""
    cells = rng.standard_normal((rows, columns))
    return np.asarray(cv2.resize(cells, (size, size), interpolation=cv2.INTER_CUBIC))


def _blend(low: Sequence[float], high: Sequence[float], share: Field) -> Field:
    """Two colours mixed by a fraction (size, size) of the second, clipped to 0..1."""
    mix = share.clip(0, 1)[..., None]
    return np.asarray(np.asarray(low) * (1 - mix) + np.asarray(high) * mix)


def _bytes(values: Field) -> Texture:
    """Values 0..1 as 0..255."""
    return (values.clip(0, 1) * 255).astype(np.uint8)


def _dye(
    rng: np.random.Generator, saturation: float, low: float, high: float
) -> tuple[float, float, float]:
    """A colour of any hue, its value between low and high."""
    return colorsys.hsv_to_rgb(rng.uniform(), saturation, rng.uniform(low, high))


def _cells(size: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row and column number of the square that each pixel lies in, `count` squares a side."""
    rows, columns = np.mgrid[0:size, 0:size] * count // size
    return rows, columns


def wood(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """Planks of wood: rings cut lengthwise, another tone for each plank."""
    planks = int(rng.integers(3, 6))
    tone, value = rng.uniform(0.05, 0.09), rng.uniform(0.45, 0.75)
    early = colorsys.hsv_to_rgb(tone, rng.uniform(0.35, 0.55), value)
    late = colorsys.hsv_to_rgb(tone, 0.6, 0.62 * value)
    rows, _ = _cells(size, planks)
    y = np.mgrid[0:size, 0:size][0] / size
    bend = 0.25 * _field(rng, size, 3, 3) + 0.4 * rng.uniform(size=planks)[rows]
    rings = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(9, 14) * (y + 0.35 * bend))
    grain = 0.15 * _field(rng, size, size // 2, 6)
    out = _blend(early, late, 0.65 * rings**2 + grain) * (
        0.85 + 0.3 * rng.uniform(size=planks)[rows][..., None]
    )
    seam = (np.arange(size) * planks % size) < planks  # a dark line between planks
    out[seam] *= 0.4
    return _bytes(out)


def checks(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """A checked cloth: two colours, and their mean where the stripes cross."""
    count = 2 * int(rng.integers(5, 9))
    rows, columns = _cells(size, count)
    share = ((rows % 2) + (columns % 2)) / 2
    pale, dye = (0.93, 0.91, 0.87), _dye(rng, rng.uniform(0.5, 0.85), 0.3, 0.7)
    return _bytes(_blend(pale, dye, share) + 0.02 * rng.standard_normal((size, size, 1)))


def marble(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """Pale or dark stone with veins."""
    stone, vein = ((0.88, 0.87, 0.85), (0.45, 0.45, 0.48))
    if rng.uniform() < 0.4:
        stone, vein = (0.13, 0.15, 0.15), (0.6, 0.62, 0.58)
    warp = sum(_field(rng, size, n, n) / n for n in (4, 8, 16, 32))
    lines = np.abs(np.sin(np.pi * (np.mgrid[0:size, 0:size].sum(axis=0) / size * 2.5 + 3 * warp)))
    return _bytes(_blend(stone, vein, (1 - lines) ** 5 + 0.08 * _field(rng, size, 8, 8)))


def dots(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """A plain cloth with a regular pattern of dots."""
    count = int(rng.integers(7, 12))
    y, x = np.mgrid[0:size, 0:size] / size * count
    x = x + 0.5 * (np.floor(y) % 2)
    distance = np.hypot(x % 1 - 0.5, y % 1 - 0.5)
    share = ((rng.uniform(0.18, 0.28) - distance) * size / count).clip(0, 1)
    return _bytes(_blend(_dye(rng, 0.45, 0.35, 0.8), (0.94, 0.93, 0.9), share))


def bands(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """A cloth of stripes in three colours."""
    dyes = np.array([_dye(rng, rng.uniform(0.2, 0.6), 0.3, 0.9) for _ in range(3)])
    stripe = np.repeat(rng.integers(0, 3, 24), -(-size // 24))[:size]
    out = np.tile(dyes[stripe][:, None], (1, size, 1))
    return _bytes(out + 0.025 * rng.standard_normal((size, size, 1)))


def tiles(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """A tiled floor: a checkerboard of two tones, with joints."""
    count = 2 * int(rng.integers(2, 4))
    rows, columns = _cells(size, count)
    light, dark = _dye(rng, 0.12, 0.55, 0.8), _dye(rng, 0.2, 0.2, 0.5)
    out = _blend(light, dark, ((rows + columns) % 2).astype(np.float64))
    joint = (np.arange(size) * count % size) < 3 * count
    out[joint] = out[:, joint] = (0.4, 0.39, 0.37)
    return _bytes(out + 0.03 * _field(rng, size, 16, 16)[..., None])


def terrazzo(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """Pale stone with chips of many colours."""
    out = np.tile(np.array(_dye(rng, 0.06, 0.7, 0.9)), (size, size, 1))
    for _ in range(int(rng.integers(120, 220))):
        x, y = (int(v) for v in rng.integers(0, size, 2))
        turn = np.sort(rng.uniform(0, 2 * np.pi, 5))
        reach = rng.uniform(0.008, 0.022) * size
        chip = np.stack([x + reach * np.cos(turn), y + reach * np.sin(turn)], axis=1)
        cv2.fillPoly(out, [chip.astype(np.int32)], _dye(rng, rng.uniform(0, 0.4), 0.25, 0.8))
    return _bytes(out)


def herringbone(rng: np.random.Generator, size: int = SIZE) -> Texture:
    """Short boards laid in zigzag."""
    count = int(rng.integers(6, 10))
    y, x = np.mgrid[0:size, 0:size] / size * count
    zig = y + np.where(np.floor(x) % 2 == 0, x % 1, 1 - x % 1)
    board = np.floor(zig).astype(np.int64) % 32
    tone = _dye(rng, 0.0, 0.5, 0.8)[0]
    shade = (0.75 + 0.35 * rng.uniform(size=32))[board] * tone
    seam = ((zig % 1) < 0.06) | ((x % 1) < 0.03)
    hue = np.array(colorsys.hsv_to_rgb(rng.uniform(0.03, 0.12), rng.uniform(0.2, 0.5), 1.0))
    return _bytes(shade[..., None] * hue * np.where(seam, 0.5, 1.0)[..., None])


CLOTHS = (checks, dots, bands)


def laid(rng: np.random.Generator, under: Texture, cloth: Texture) -> Texture:
    """A square cloth, turned at random, laid over the middle of a covering of the same size."""
    size = len(under)
    half, turn = rng.uniform(0.26, 0.36) * size, rng.uniform(0, np.pi / 2)
    y, x = np.mgrid[0:size, 0:size] - (size - 1) / 2
    across, down = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    u, v = (((w / (2 * half) + 0.5) * (size - 1)).astype(np.float32) for w in (across, down))
    over = cv2.remap(cloth, u, v, interpolation=cv2.INTER_LINEAR)
    far = np.maximum(np.abs(across), np.abs(down)) - half  # pixels outside the cloth's edge
    shade = np.where(far > 0, 0.6 + 0.4 * (far / 4).clip(0, 1), 1.0)[..., None]
    out = np.where((far < 0)[..., None], over, under * shade)
    return np.asarray(out.clip(0, 255), dtype=np.uint8)


# -------------------------------------------------------------------------------------------------
# Textures of objects: bright, so that they shade an object's colour but do not change its name.


def _shade(values: Field | float, darkest: float = 0.72) -> Texture:
    """A gray texture, its brightness (size, size) clipped to darkest..1."""
    return _bytes(np.repeat(np.asarray(values).clip(darkest, 1)[..., None], 3, axis=2))


def grain(rng: np.random.Generator, size: int) -> Texture:
    """Long fibres, as of wood or brushed metal."""
    return _shade(0.92 + 0.06 * _field(rng, size, size // 2, 3) + 0.03 * _field(rng, size, 12, 2))


def mottled(rng: np.random.Generator, size: int) -> Texture:
    """Cloudy noise of three scales, as of stoneware."""
    return _shade(0.93 + sum(0.04 * _field(rng, size, n, n) for n in (5, 13, 41)))


def stripes(rng: np.random.Generator, size: int) -> Texture:
    """Bands a shade darker."""
    count = int(rng.integers(2, 6))
    rows = np.mgrid[0:size, 0:size][0] * 2 * count // size
    return _shade(np.where(rows % 2 == 0, 1.0, 0.72))


def woven(rng: np.random.Generator, size: int) -> Texture:
    """Threads that cross, with some noise."""
    y, x = np.mgrid[0:size, 0:size] / size * int(rng.integers(14, 26)) * np.pi
    threads = 0.9 + 0.1 * np.sin(x) * np.sin(y)
    return _shade(threads + 0.03 * rng.standard_normal((size, size)), 0.7)
