# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A second, finer reading of a picture by the frozen network of a convolutional stem.

The vision tower sees a picture squeezed into a square of `image_size` pixels. A stem with `details`
in its sizes also runs its frozen network on the picture at its own aspect, with a longer side of
`side` pixels, and averages some of the network's stages over the parts of the picture that the
tower's tokens stand for. So a token still means the same part of the picture, whatever its aspect,
and small things keep the pixels that a camera gave them. Nothing here needs torch.

    "details": {"side": 640, "read": [[2, 2], [4, 2], [6, 1]]}

`read` has pairs of a stage and a factor: a stage with the factor 2 is averaged onto a grid twice as
fine as the tokens', whose four cells a token become its channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.errors import ModelError

STRIDE = 32  # sides are multiples of it, so that every stage covers the picture exactly
MAX_SIDE = 4096
EFFICIENTNET_LITE0_DETAILS: dict[str, Any] = {"side": 640, "read": [[2, 2], [4, 2], [6, 1]]}
"""Strides 8, 16 and 32 of EfficientNet-Lite0 at 640 pixels: 928 numbers a token."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Details:
    """side: of a picture, the longer one, in pixels. read: stages and factors, in order."""

    side: int
    read: tuple[tuple[int, int], ...]

    def channels(self, sizes: Mapping[str, Any]) -> int:
        """Numbers a token. sizes: of the stem."""
        return sum(int(sizes["stages"][stage][4]) * fold**2 for stage, fold in self.read)


def details_of(sizes: Mapping[str, Any] | None) -> Details | None:
    """What the sizes of a stem say about a second reading; None where there is none.

    Raises ModelError for values that no model has.
    """
    found = sizes.get("details") if isinstance(sizes, Mapping) else None
    if found is None:
        return None
    try:
        side = int(found["side"])
        read = tuple((int(stage), int(fold)) for stage, fold in found["read"])
        stages = len(sizes["stages"]) if sizes is not None else 0
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(f"conv_stem.details is {found!r}: want a side and read") from error
    known = all(0 <= stage < stages and 1 <= fold <= 4 for stage, fold in read)
    if not (STRIDE <= side <= MAX_SIDE and side % STRIDE == 0 and read and known):
        raise ModelError(
            f"conv_stem.details is {found!r}: want a side of {STRIDE} to {MAX_SIDE} pixels, a"
            f" multiple of {STRIDE}, and pairs of a stage and a factor of 1 to 4"
        )
    return Details(side, read)


def has_patches(sizes: Mapping[str, Any]) -> bool:
    """Whether a stem of these sizes has SigLIP's patch convolution beside its features."""
    return bool(sizes.get("patches", True))


def details_in(vision_config: Any) -> Details | None:
    """`details_of` the stem of a vision_config, which need not have one."""
    return details_of(getattr(vision_config, "conv_stem", None))


def fine_stages(sizes: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The stages of a stem's network whose maps of a whole picture are of use, finest first.

    Those of its details, else the last three that it reads; none for a tower without a stem.

    >>> fine_stages({"read": [1, 2, 4, 6]})
    (2, 4, 6)
    """
    if sizes is None:
        return ()
    details = details_of(sizes)
    if details is not None:
        return tuple(dict.fromkeys(stage for stage, _ in details.read))
    return tuple(map(int, sizes["read"][-3:]))


def fine_side(sizes: Mapping[str, Any]) -> int:
    """Pixels of the longer side of a picture for `fine_stages`."""
    details = details_of(sizes)
    return int(EFFICIENTNET_LITE0_DETAILS["side"]) if details is None else details.side


def stage_stride(sizes: Mapping[str, Any], stage: int) -> int:
    """Pixels of a picture for one of a stage's output, each way."""
    return 2 * math.prod(int(row[2]) for row in sizes["stages"][: stage + 1])


def detailed_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height at which the details of a picture are read, multiples of STRIDE.

    >>> detailed_size(1920, 1080, 640)
    (640, 352)
    """
    longer = max(width, height)
    w, h = (max(1, round(v * side / longer / STRIDE)) * STRIDE for v in (width, height))
    return w, h


def detailed_pictures(images: Sequence[npt.NDArray[np.uint8]], side: int) -> list[Array]:
    """Images, uint8 RGB (H, W, 3) each -> float32 (3, h, w) each in -1..1, at their own aspect."""
    return [detailed_picture(image, side) for image in images]


def detailed_picture(image: npt.NDArray[np.uint8], side: int) -> Array:
    """An image, uint8 RGB (H, W, 3) -> float32 (3, h, w) in -1..1, the longer side `side`."""
    size = detailed_size(image.shape[1], image.shape[0], side)
    resized = Image.fromarray(image).resize(size, resample=Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32).transpose(2, 0, 1)
    return np.ascontiguousarray(pixels / np.float32(127.5) - np.float32(1))


@lru_cache(maxsize=64)
def averaging(count: int, cells: int) -> Array:
    """A matrix (cells, count) that averages `count` equal parts of a side over `cells` equal ones.

    Each row sums to 1; a part that lies in two cells counts in both by its share.

    >>> averaging(3, 2).round(2).tolist()
    [[0.67, 0.33, 0.0], [0.0, 0.33, 0.67]]
    """
    cell = np.arange(cells + 1, dtype=np.float64) / cells
    part = np.arange(count + 1, dtype=np.float64) / count
    first = np.maximum(cell[:-1, None], part[None, :-1])
    last = np.minimum(cell[1:, None], part[None, 1:])
    return ((last - first).clip(0) * cells).astype(np.float32)
