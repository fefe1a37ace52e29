"""Other tables and another light for pictures that were already taken, a batch at a time.

A world shows few tables, and a tower that saw them for hours knows them by heart: kinds that it
names on them it does not name on others. The masks of the objects let every picture show many.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.data.tabletop import textures
from clue_ros.data.tabletop.scene import Image

NEW_TABLES = 0.4  # share of pictures with something else on the table, where asked for
UNEVEN = 0.5  # share of pictures in an uneven light
UNSHARP = 0.2  # share of pictures with more noise or blur than the camera's
RIM_CELLS = 4  # of the instance map around an object that stay as they are, with its shadow's start
_BANK = 48  # textures to choose from


@cache
def _bank() -> tuple[textures.Texture, ...]:
    """Noise, wood, stone, tiles and cloths; never the coverings that `rich-unseen` alone has."""
    rng = np.random.default_rng(0)
    makers = (textures.noise, textures.wood, textures.marble, textures.tiles, *textures.CLOTHS)
    return tuple(makers[i % len(makers)](rng) for i in range(_BANK))


def _smooth(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    """A smooth field (size, size) in about -1..1: two cells to five a side."""
    cells = rng.uniform(-1, 1, (int(rng.integers(2, 6)),) * 2).astype(np.float32)
    return np.asarray(cv2.resize(cells, (size, size), interpolation=cv2.INTER_LINEAR))


def _texture(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    """A texture of the bank turned, scaled and tinted, float32 (size, size, 3) in 0..255."""
    bank = _bank()
    texture = bank[int(rng.integers(len(bank)))]
    side = texture.shape[0]
    turn = cv2.getRotationMatrix2D(
        (side / 2, side / 2), rng.uniform(0, 360), rng.uniform(0.4, 2.0) * size / side
    )
    turned = cv2.warpAffine(texture, turn, (size, size), borderMode=cv2.BORDER_REFLECT_101)
    tint = rng.uniform(0.4, 1.1) * (1 + rng.uniform(-0.2, 0.2, 3))
    return np.asarray(turned * tint, dtype=np.float32)


def on_another_table(
    image: Image, instances: npt.NDArray[np.uint8], rng: np.random.Generator
) -> Image:
    """The picture (S, S, 3) with a texture laid over what is no object, more or less opaque.

    instances: (M, M), 0 where there is no object. What lies close to an object stays.
    """
    size = image.shape[0]
    rim = cv2.dilate((instances > 0).astype(np.uint8), np.ones((2 * RIM_CELLS + 1,) * 2, np.uint8))
    near = cv2.resize(rim.astype(np.float32), (size, size), interpolation=cv2.INTER_LINEAR)
    near = cv2.GaussianBlur(near, (0, 0), size / 40)[..., None]  # no edge that gives objects away
    share = (1 - near) * float(rng.uniform(0.3, 0.95))
    mixed = (1 - share) * image + share * _texture(rng, size)
    return np.asarray(mixed.clip(0, 255), dtype=np.uint8)


def unevenly_lit(image: Image, rng: np.random.Generator) -> Image:
    """Light that falls off over the picture (S, S, 3), and is warmer on one side."""
    size = image.shape[0]
    gain = 1 + float(rng.uniform(0.1, 0.5)) * _smooth(rng, size)[..., None]
    warmth = 0.06 * _smooth(rng, size)[..., None] * np.array([1, 0, -1], dtype=np.float32)
    return np.asarray((image * gain * (1 + warmth)).clip(0, 255), dtype=np.uint8)


def unsharp(image: Image, rng: np.random.Generator) -> Image:
    """More blur, or more noise, on a picture (S, S, 3)."""
    if rng.uniform() < 0.5:
        return np.asarray(cv2.GaussianBlur(image, (0, 0), float(rng.uniform(0.4, 1.0))), np.uint8)
    noise = rng.standard_normal(image.shape, dtype=np.float32) * float(rng.uniform(2, 8))
    return np.asarray((image + noise).clip(0, 255), dtype=np.uint8)


def elsewhere(
    image: Image, instances: npt.NDArray[np.uint8], rng: np.random.Generator, *, tables: bool
) -> Image:
    """The picture as another room might show it. tables: also on other tables."""
    if tables and rng.uniform() < NEW_TABLES:
        image = on_another_table(image, instances, rng)
    if rng.uniform() < UNEVEN:
        image = unevenly_lit(image, rng)
    return unsharp(image, rng) if rng.uniform() < UNSHARP else image
