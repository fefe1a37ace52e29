# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A detector of one's own: boxes of coloured blocks; the wrapper chooses among them, or asks.

scripts/install wrapper
scripts/run python examples/own_detector.py demo/five_blocks.png "pick up the green block"

`clue ground IMAGE TEXT --model wrapper --candidates python:MODULE:find` names it.
"""

import sys
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Dialogue, Question
from clue_ros.images import load_image
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.sources import CallableSource

HUES = {"red": (0, 8), "yellow": (22, 34), "green": (40, 80), "blue": (98, 125)}  # of OpenCV


def find(image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> list[tuple[list[int], str, float]]:
    """Boxes [x_min, y_min, x_max, y_max] in pixels, their labels and scores. image: RGB."""
    hsv, found = cv2.cvtColor(image, cv2.COLOR_RGB2HSV), []
    for color, (low, high) in HUES.items():
        mask = cv2.inRange(hsv, (low, 110, 60), (high, 255, 255))
        for x, y, w, h, area in cv2.connectedComponentsWithStats(mask)[2][1:].tolist():
            if area > image.size / 3000:
                found.append(([x, y, x + w, y + h], f"{color} block", area / (w * h)))
    return found


if __name__ == "__main__":
    wrapper = Wrapper([CallableSource(find, "hues", open_vocabulary=False)])
    reply = wrapper.reply(wrapper.look(load_image(sys.argv[1])), Dialogue(sys.argv[2]))
    print(reply.text if isinstance(reply, Question) else reply.box.as_list())
