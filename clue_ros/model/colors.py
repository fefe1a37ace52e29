# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The colour name of the thing in a box, from its pixels.

People say colours, detectors do not. The pixels around the box tell what is background; those in
the middle of the box that differ from it vote for a name by hue, saturation and value. The paper
has no such step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import COLOR, SHADES, Candidate
from clue_ros.dialogue.types import Box

RING = 0.15  # width of the ring around a box, in parts of its sides
INNER = 0.8  # part of a box's sides whose ellipse is looked at
DIFFERENT = 12.0  # distance in CIELAB from the ring's median from which a pixel is no background
ENOUGH = 0.15  # share of the ellipse that must differ; else the whole ellipse votes
LEAST = 0.35  # share of the votes that a name needs
SOME = 0.1  # share from which a thing has some of a colour
LARGEST = 64  # pixels of a crop's longer side: enough for a name

# Name, lowest and highest hue in degrees; of pixels that are neither grey nor dark.
_HUES = (
    ("red", 0, 14), ("orange", 14, 42), ("yellow", 42, 68), ("green", 68, 165),
    ("turquoise", 165, 192), ("blue", 192, 255), ("purple", 255, 310), ("pink", 310, 345),
    ("red", 345, 361),
)  # fmt: skip
_NAMES = (
    "black", "gray", "white", "brown", *dict.fromkeys(name for name, _, _ in _HUES)
)  # fmt: skip


def with_measured_colors(
    candidates: Sequence[Candidate], image: npt.NDArray[np.uint8]
) -> tuple[Candidate, ...]:
    """The candidates with measured colours where theirs is not known; image: RGB (H, W, 3).

    `COLOR`: the one that prevails; `SHADES`: all that a part of the thing has.
    """
    out = []
    for candidate in candidates:
        if COLOR not in candidate.attributes:
            shares = color_shares(image, candidate.box)
            shades = " ".join(name for name, share in shares.items() if share >= SOME)
            measured = {COLOR: _prevailing(shares), SHADES: shades}
            candidate = candidate.known(**{key: said for key, said in measured.items() if said})
        out.append(candidate)
    return tuple(out)


def color_name(image: npt.NDArray[np.uint8], box: Box) -> str | None:
    """The colour of the thing in a box of an image, RGB (H, W, 3); None where no name prevails."""
    return _prevailing(color_shares(image, box))


def _prevailing(shares: Mapping[str, float]) -> str | None:
    best = max(shares, key=shares.__getitem__, default=None)
    return best if best is not None and shares[best] >= LEAST else None


def color_shares(image: npt.NDArray[np.uint8], box: Box) -> dict[str, float]:
    """The share of each colour in the thing in a box of an RGB image (H, W, 3); none: no pixel."""
    height, width = image.shape[:2]
    w, h = box.x_max - box.x_min, box.y_max - box.y_min
    x0, y0 = max(0, int(box.x_min - RING * w)), max(0, int(box.y_min - RING * h))
    x1, y1 = min(width, int(box.x_max + RING * w) + 1), min(height, int(box.y_max + RING * h) + 1)
    crop: npt.NDArray[Any] = image[y0:y1, x0:x1]
    if crop.size == 0 or w <= 0 or h <= 0:
        return {}
    scale = min(1.0, LARGEST / max(crop.shape[:2]))
    if scale < 1:
        crop = cv2.resize(crop, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    rows, columns = np.mgrid[: crop.shape[0], : crop.shape[1]]
    u = (columns / scale + x0 - box.center[0]) / (w / 2)
    v = (rows / scale + y0 - box.center[1]) / (h / 2)
    inside = u**2 + v**2 <= INNER**2
    ring = np.maximum(abs(u), abs(v)) > 1
    if not inside.any():
        return {}
    lab = cv2.cvtColor(crop.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)
    chosen = inside
    if ring.any():
        background = np.median(lab[ring], axis=0)
        distance = np.linalg.norm(lab - background, axis=-1)
        thing = inside & (distance > DIFFERENT)
        if thing.sum() >= ENOUGH * inside.sum():
            chosen = thing
    return _vote(crop[chosen])


def _vote(pixels: npt.NDArray[np.uint8]) -> dict[str, float]:
    """The share of each name among pixels (n, 3), RGB."""
    hsv = cv2.cvtColor(pixels[None].astype(np.float32) / 255, cv2.COLOR_RGB2HSV)[0]
    hue, saturation, value = hsv.T
    names = np.full(len(pixels), _NAMES.index("gray"))
    for name, low, high in _HUES:
        names[(hue >= low) & (hue < high)] = _NAMES.index(name)
    pale = (saturation < 0.55) & (value > 0.6)
    reddish = (hue < 20) | (hue > 320)
    names[pale & reddish] = _NAMES.index("pink")
    earthy = (hue >= 8) & (hue < 45) & (value < 0.5)
    names[earthy] = _NAMES.index("brown")
    grey = saturation < 0.18
    names[grey] = _NAMES.index("gray")
    names[grey & (value > 0.65)] = _NAMES.index("white")
    names[(value < 0.1) | (grey & (value < 0.2))] = _NAMES.index("black")
    votes = np.bincount(names, minlength=len(_NAMES))
    return dict(zip(_NAMES, (votes / len(pixels)).tolist(), strict=True))
