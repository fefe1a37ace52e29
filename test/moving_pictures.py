"""Short clips with the truth: an object of one photograph moves over another, the camera too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import Box
from clue_ros.model.masks import grabcut_mask

PHOTOS = Path(__file__).resolve().parents[1] / "demo" / "photos"
WIDTH, HEIGHT = 640, 480
Clip = Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]


def photograph(name: str) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(PHOTOS / name).convert("RGB"))


def cut_out(name: str, box: Box, side: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """The object in a box of a photograph, its longer side `side` pixels, and its mask in 0..1."""
    image = photograph(name)
    mask = grabcut_mask(image, box).astype(np.float32)
    x0, y0, x1, y1 = map(int, box.as_list())
    scale = side / max(box.width, box.height)
    size = round(scale * (x1 - x0)), round(scale * (y1 - y0))
    picture, alpha = (
        cv2.resize(whole[y0:y1, x0:x1], size, interpolation=cv2.INTER_AREA)
        for whole in (image, mask)
    )
    return np.asarray(picture, np.uint8), np.asarray(alpha)


def moving(
    thing: tuple[npt.NDArray[np.uint8], npt.NDArray[Any]],
    background: str,
    *,
    frames: int = 20,
    start: tuple[float, float] = (200.0, 180.0),
    speed: tuple[float, float] = (9.0, 5.0),
    camera: tuple[float, float] = (-2.0, 1.5),
    turn: float = 1.0,
    growth: float = 1.01,
    hidden: range = range(0),
    seed: int = 0,
) -> Clip:
    """Frames (HEIGHT, WIDTH, 3) and the object's mask; speed and camera in pixels a frame.

    turn: degrees a frame. growth: of its size a frame. hidden: frames in which it is covered.
    """
    rng = np.random.default_rng(seed)
    picture, mask = thing
    behind = cv2.resize(photograph(background), (WIDTH + 100, HEIGHT + 100))
    middle = picture.shape[1] / 2, picture.shape[0] / 2
    for n in range(frames):
        at = start[0] + n * speed[0], start[1] + n * speed[1]
        shift = np.array([[1.0, 0, n * camera[0] - 50], [0, 1.0, n * camera[1] - 50]])
        frame = cv2.warpAffine(behind, shift, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE)
        place = cv2.getRotationMatrix2D(middle, turn * n, growth**n)
        place[:, 2] += np.array(at) - middle
        over = cv2.warpAffine(picture, place, (WIDTH, HEIGHT)).astype(np.float32)
        alpha = cv2.warpAffine(mask, place, (WIDTH, HEIGHT))
        mixed = frame * (1 - alpha[..., None]) + over * alpha[..., None]
        mixed += rng.normal(0, 4, mixed.shape)
        seen = alpha > 0.5
        if n in hidden:
            rows, columns = np.nonzero(seen)
            part = (
                slice(rows.min() - 9, rows.max() + 9),
                slice(columns.min() - 9, columns.max() + 9),
            )
            mixed[part] = (150, 140, 120)
            seen = np.zeros_like(seen)
        yield np.clip(mixed, 0, 255).astype(np.uint8), seen
