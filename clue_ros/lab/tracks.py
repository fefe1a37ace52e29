"""Masks of an object in a video: by a tracker from a box or a mask on, and their measures.

J of a frame is the masks' intersection over union; F is the harmonic mean of precision and recall
of their boundaries, which match within ceil(0.008 x diagonal) pixels; J&F is their mean (Perazzi
and others, 2016). Where neither mask has a pixel both are 1, where one has none both are 0. A lost
object's mask is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.lab.metrics import mask_iou
from clue_ros.model.tracking import Tracker

TOLERANCE = 0.008  # of the frame's diagonal: how far apart two boundaries match
Image = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


def region_similarity(found: Mask, truth: Mask) -> float:
    """J of two masks, bool (H, W): intersection over union, 1 where both are empty."""
    return mask_iou(found, truth) if found.any() or truth.any() else 1.0


def contour_accuracy(found: Mask, truth: Mask) -> float:
    """F of two masks, bool (H, W): how well their boundaries match, 1 where both are empty."""
    if not found.any() or not truth.any():
        return float(found.any() == truth.any())
    reach = math.ceil(TOLERANCE * math.hypot(*truth.shape))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    a, b = _boundary(found), _boundary(truth)
    near_a, near_b = (cv2.dilate(edge, disc) > 0 for edge in (a, b))
    precision, recall = a[near_b].sum() / a.sum(), b[near_a].sum() / b.sum()
    both = float(precision + recall)
    return 2 * float(precision * recall) / both if both else 0.0


def _boundary(mask: Mask) -> Image:
    """The pixels of a mask that touch others or the frame's edge, 0 or 1."""
    whole = np.pad(mask.astype(np.uint8), 1)
    inner = cv2.erode(whole, cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3)))
    return np.asarray((whole - inner)[1:-1, 1:-1], np.uint8)


def tracked(
    tracker: Tracker, frames: Sequence[Image], box: Box, given: Mask | None = None
) -> Iterator[Mask]:
    """Yield an object's mask in each of some frames that follow one another.

    box, given: the object in the first one, and its mask where it is known.
    """
    yield tracker.start(frames[0], box, mask=given)
    for frame in frames[1:]:
        step = tracker.step(frame)
        yield np.zeros_like(step.mask) if step.lost else step.mask
