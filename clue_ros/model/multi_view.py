# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Test-time augmentation: the box that several views of one image agree on.

A view is a crop of the image: all of it, a little less, a square around what the words attend to,
or more with the rim repeated. The square shows small objects larger, and does not squeeze a wide
image. Where the decoder sees the same thing in each view, the median of its boxes is right more
often than any of them. Where it does not, the box is mostly wrong, so the score of a box falls with
each view that finds another one. Where the first two find the same box, the others are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.model.location_tokens import Codes, decode_box, encode_box

if TYPE_CHECKING:
    from clue_ros.model.decoding import Generation
    from clue_ros.model.ranking import Evidence

AGREEING = 0.4  # IoU of two boxes that are of the same thing
SETTLED = 0.8
"""IoU of the first two views' boxes from which on no further view is needed. Chosen on simulated
validation scenes: as many boxes are right as with all views (docs/backbones.md)."""
WINDOWS: tuple[tuple[float, float, float, float], ...] = (
    (0.0, 0.0, 1.0, 1.0),
    (0.055, 0.055, 0.945, 0.945),
    (0.03, 0.03, 1.03, 1.03),
    (-0.055, -0.055, 1.055, 1.055),
    (-0.03, -0.03, 0.97, 0.97),
)
"""Of each view in turn: x_min, y_min, x_max, y_max in shares of the picture; the first is all."""
FAR = (-0.3, -0.3, 1.3, 1.3)
"""The picture from farther off, in its shares: what fills it is shown as large as the decoder has
learned. Policies look so at a doubtful box (`clue_ros.model.policies`)."""
ZOOMED = 2  # the view that is a square around what is attended to, where that is known
ZOOM_MARGIN = 0.25  # on each side of the attended region, in shares of its longer side
SMALLEST_ZOOM = 0.7  # side of the square, in shares of the picture's shorter side
SHOWN = 0.3  # share of a box that a view shows at least if the decoder is to rate it there
MAX_VIEWS = len(WINDOWS)


@dataclass(frozen=True)
class Window:
    """A part of a picture in whole pixels, the maximum exclusive; it may reach over the rim.

    width, height: of the picture.
    """

    x_min: int
    y_min: int
    x_max: int
    y_max: int
    width: int
    height: int

    def onto(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Return its crop of the picture, uint8 (height, width, 3), padded by repeating the rim."""
        inside = image[max(self.y_min, 0) : self.y_max, max(self.x_min, 0) : self.x_max]
        top, left = max(-self.y_min, 0), max(-self.x_min, 0)
        bottom, right = max(self.y_max - self.height, 0), max(self.x_max - self.width, 0)
        return np.pad(inside, ((top, bottom), (left, right), (0, 0)), mode="edge")

    def box(self, codes: Codes) -> Box | None:
        """A box that was seen in it, in the picture's pixels; None where that shows none of it."""
        seen = decode_box(codes, self.x_max - self.x_min, self.y_max - self.y_min)
        box = seen.moved(self.x_min, self.y_min).clipped(float(self.width), float(self.height))
        return box if box.area > 0 else None

    def codes(self, box: Box) -> Codes | None:
        """A box in the picture's pixels as codes in it; None where it shows less than SHOWN."""
        width, height = self.x_max - self.x_min, self.y_max - self.y_min
        moved = box.moved(-self.x_min, -self.y_min)
        seen = moved.clipped(float(width), float(height))
        if seen.area < SHOWN * moved.area or seen.area <= 0:
            return None
        return encode_box(seen, width, height)


def windows(
    views: int,
    width: int,
    height: int,
    attended: Sequence[Box] = (),
    *,
    zoom_first: bool = False,
) -> list[Window]:
    """The windows of the first `views` views of a picture; at least a pixel of it in each.

    attended: the boxes of the attention map's peaks (`clue_ros.model.peaks`), in pixels. The third
    view is a square around all of them; where there are none, it moves the picture a little.
    zoom_first: of the further views, the square comes first. So a model with a box head has it:
    what hardly differs from the first adds nothing to the head's boxes.
    """
    found = [window_of(shares, width, height) for shares in WINDOWS[:views]]
    if attended and views > ZOOMED:
        found[ZOOMED] = zoomed(attended, width, height)
    if zoom_first and views > ZOOMED:
        found.insert(1, found.pop(ZOOMED))
    return found


def window_of(shares: tuple[float, float, float, float], width: int, height: int) -> Window:
    """The window at x_min, y_min, x_max, y_max in shares of a picture; at least a pixel of it."""
    x0, y0, x1, y1 = shares
    left, top = min(round(x0 * width), width - 1), min(round(y0 * height), height - 1)
    right, bottom = max(round(x1 * width), left + 1), max(round(y1 * height), top + 1)
    return Window(left, top, right, bottom, width, height)


def zoomed(attended: Sequence[Box], width: int, height: int) -> Window:
    """A square around boxes in a picture, moved into it; as much as there is of a narrow picture.

    >>> zoomed([Box(10, 20, 60, 40), Box(170, 20, 210, 40)], 640, 480)
    Window(x_min=0, y_min=0, x_max=336, y_max=336, width=640, height=480)
    """
    x_min, y_min = min(box.x_min for box in attended), min(box.y_min for box in attended)
    x_max, y_max = max(box.x_max for box in attended), max(box.y_max for box in attended)
    longer = max(x_max - x_min, y_max - y_min)
    side = max(longer * (1 + 2 * ZOOM_MARGIN), SMALLEST_ZOOM * min(width, height), 1.0)
    across, down = min(round(side), width), min(round(side), height)
    left = min(max(round((x_min + x_max - across) / 2), 0), width - across)
    top = min(max(round((y_min + y_max - down) / 2), 0), height - down)
    return Window(left, top, left + across, top + down, width, height)


def window_features(
    image: npt.NDArray[np.uint8],
    through: Sequence[Window],
    known: dict[Window, Any],
    look: Callable[..., Any],
) -> Any:
    """Features (n, N, D) of an image's windows, each looked at once.

    image: uint8 RGB (H, W, 3). known: features (N, D) of this image's windows from the call before;
    those of `through` are in it afterwards, and no others. look: `Checkpoint.look`.
    """
    if missing := [window for window in through if window not in known]:
        seen = look(*(window.onto(image) for window in missing))
        known.update(zip(missing, seen, strict=True))
    for window in known.keys() - set(through):
        del known[window]
    return np.stack([known[window] for window in through])


@dataclass(frozen=True)
class Agreement:
    """The views' result for a request: see `agreed`.

    box: in the picture's pixels. score: 0..1. via: the boxes on the way, as one view has them.
    evidence: what speaks for the box, where a box head helped to choose it.
    """

    box: Box
    score: float
    via: tuple[Box, ...]
    evidence: Evidence | None = None


def _box(reply: Generation, window: Window) -> Box | None:
    """The box of a view's reply, in the picture's pixels; None where there is none in it."""
    return None if reply.codes is None else window.box(reply.codes)


def settled(said: Sequence[Generation], through: Sequence[Window]) -> bool:
    """Whether the first two views, of two or more, found the same box: no other is needed."""
    first, second = (_box(said[i], through[i]) for i in range(2))
    return first is not None and second is not None and first.iou(second) >= SETTLED


def agreed(said: Sequence[Generation], through: Sequence[Window]) -> Agreement:
    """The box that most views agree on: each side the median of theirs.

    said: a grounding of each view. The score is the mean of theirs, 0 of those that found another
    thing, so that one view's is the decoder's own. Raises ValueError where no view has a box in the
    picture, which the first, of all of it, always has.
    """
    seen = [
        (box, reply, window)
        for reply, window in zip(said, through, strict=True)
        if (box := _box(reply, window)) is not None
    ]
    if not seen:
        raise ValueError("no view found a box in the picture")
    # max keeps the first of equals: the earlier view's group of two of one size.
    center = max((box for box, _, _ in seen), key=lambda box: sum(box.iou(b) for b, _, _ in seen))
    same = [item for item in seen if item[0].iou(center) >= AGREEING]
    sides = zip(*(box.as_list() for box, _, _ in same), strict=True)
    score = sum(reply.score for _, reply, _ in same) / len(said)
    _, reply, window = same[0]
    via = tuple(box for codes in reply.via if (box := window.box(codes)) is not None)
    return Agreement(Box(*(median(side) for side in sides)), score, via)
