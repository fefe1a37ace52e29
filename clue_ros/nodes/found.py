"""What is known of each box of a reply: how sure, which pixels, and where it is in space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue import Box, Grounding, Question
from clue_ros.errors import NoPoseError
from clue_ros.spatial.place import Place

# Pixels of all masks of one message together. More would not fit into the shared memory of
# config/fastdds.xml beside the images, and a question must not be late for its masks.
MAX_MASK_PIXELS = 16_000_000

Mask = npt.NDArray[np.bool_]
Locate = Callable[[Box], Place]  # raises NoPoseError


@dataclass(frozen=True)
class Found:
    """One object of a reply.

    Attributes:
        box: pixels of the original image.
        label: what it is called, may be empty.
        score: of a grounding, how sure the decoder is of the box; of a candidate, how strongly the
            words attend to it, 1 at the strongest. NaN where there is none.
        mask: its pixels, bool (height, width) of the original image, or None.
        place: where it is in the camera's optical frame, or None.
        no_place: why `place` is None, for a person; empty where it is not.
    """

    box: Box
    label: str = ""
    score: float = math.nan
    mask: Mask | None = None
    place: Place | None = None
    no_place: str = ""


def no_depth(_box: Box | None = None) -> NoReturn:
    """Say that no depth is used."""
    raise NoPoseError("no depth image is used (use_depth is false)")


def locator(depth: Any, width: int, height: int) -> Locate:
    """Return what places a box of an image, given the image's `Wanted` depth (or None).

    Where there is no depth that fits, it raises NoPoseError for each box.
    """
    if depth is None:
        return no_depth
    try:
        found: Locate = depth.locator(width, height)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with depth, the box is right
        kind = "" if isinstance(error, NoPoseError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}"

        def fail(_box: Box) -> NoReturn:
            raise NoPoseError(reason)

        return fail
    return found


def find(
    clue: Any,
    view: Any,
    reply: Question | Grounding,
    locate: Locate = no_depth,
    *,
    masks: bool = True,
) -> tuple[Found, ...]:
    """Return every object of a reply: a question's candidates, strongest first, or the grounding.

    Runs in the worker's thread: the attention's masks come from torch. `masks`: whether to give
    them.
    """
    pixels = view.width * view.height
    if isinstance(reply, Grounding):
        masks = masks and pixels <= MAX_MASK_PIXELS
        return (_placed(reply.box, reply.label, reply.score, None, locate, masks),)
    peaks, boxes = reply.ambiguity.peaks, reply.candidates
    known = len(peaks) == len(boxes)
    wanted = masks and known and 0 < len(boxes) * pixels <= MAX_MASK_PIXELS
    regions = clue.peak_masks(view, reply.ambiguity) if wanted else [None] * len(boxes)
    scores = [peak.score for peak in peaks] if known else [math.nan] * len(boxes)
    return tuple(
        _placed(box, "", score, region, locate, masks=False)
        for box, score, region in zip(boxes, scores, regions, strict=True)
    )


def _placed(
    box: Box, label: str, score: float, mask: Mask | None, locate: Locate, masks: bool
) -> Found:
    """Return the object with its place, and with the place's own mask where `masks` asks for it."""
    try:
        place = locate(box)
    except NoPoseError as error:
        return Found(box, label, score, mask, no_place=str(error))
    except Exception as error:  # noqa: BLE001 - a grounding without a pose is better than none
        return Found(box, label, score, mask, no_place=f"{type(error).__name__}: {error}")
    return Found(box, label, score, place.mask() if masks else mask, place)
