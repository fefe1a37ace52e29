# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A tracker of one's own: the object's colours, looked for near where it was (CamShift).

`clue_ros.model.trackers.make_tracker` gives perception the tracker of a name: add yours there.
"""

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.model.tracking import Step, check_start, check_step

Image = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class HueTracker:
    """A `clue_ros.model.tracking.Tracker`."""

    def start(
        self, frame: Image, box: Box, points: Sequence[object] = (), mask: Mask | None = None
    ) -> Mask:
        """Learn the hues in the box."""
        x, y, right, below = (int(v) for v in check_start(frame, box, mask).as_list())
        hues = cv2.cvtColor(frame[y:below, x:right], cv2.COLOR_RGB2HSV)
        self._hues = cv2.calcHist([hues], [0], None, [32], [0, 180])
        return self._moved(frame, (x, y, right - x, below - y))

    def step(self, frame: Image) -> Step:
        """Move the window to where these hues are."""
        check_step(frame, self._shape)
        hues = cv2.cvtColor(frame, cv2.COLOR_RGB2HSV)
        likely = cv2.calcBackProject([hues], [0], self._hues, [0, 180], 255 / self._hues.max())
        likely[hues[..., 1] < 60] = 0
        _, window = cv2.CamShift(likely, self._window, (3, 10, 1))
        score = float(likely[self._moved(frame, window)].mean()) / 255
        return Step(self._moved(frame, window), score, score < 0.2)

    def _moved(self, frame: Image, window: Sequence[int]) -> Mask:
        self._shape, self._window = frame.shape, window
        mask, (x, y, w, h) = np.zeros(frame.shape[:2], bool), window
        mask[y : y + h, x : x + w] = True
        return mask
