# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/demo.webp: a dialogue about a photograph, one picture for each turn, as it is held.

python -m scripts.animation        # in the repository
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.conversation import Ask, Conversation, Outcome, Think
from clue_ros.drawing import draw
from clue_ros.engine import Clue
from clue_ros.images import load_image

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "demo" / "cans_sugar_scissors.jpg"
REQUEST, ANSWER = "pick up the can", "the blue one"
OUT = ROOT / "docs" / "demo.webp"
MILLISECONDS = 1800, 3200, 1800, 3600


def main() -> int:
    """Hold the dialogue and write it; 1 where the robot does not ask once and then point."""
    clue, image = Clue.load(), load_image(PICTURE)
    view, conversation = clue.look(image), Conversation(REQUEST, 3)
    said = [f"person: {REQUEST}"]
    shown = [draw(image, caption="\n".join(said))]
    step = conversation.reply(clue.reply(view, conversation.dialogue))
    if not isinstance(step, Ask):
        print(f"no question: {step}", file=sys.stderr)
        return 1
    estimate = step.question.ambiguity
    said.append(f"robot: {step.question.text}")
    shown.append(
        draw(image, attention=estimate.attention, peaks=estimate.peaks, caption="\n".join(said))
    )
    said.append(f"person: {ANSWER}")
    shown.append(draw(image, peaks=estimate.peaks, caption="\n".join(said)))
    step = conversation.answer(ANSWER)
    if isinstance(step, Think):
        step = conversation.reply(clue.reply(view, conversation.dialogue))
    if not isinstance(step, Outcome) or step.grounding is None:
        print(f"no box: {step}", file=sys.stderr)
        return 1
    said.append(f"robot: I see the {step.grounding.label}.")
    shown.append(draw(image, box=step.grounding.box, caption="\n".join(said)))
    height = max(picture.shape[0] for picture in shown)
    first, *others = (_of_height(picture, height) for picture in shown)
    first.save(OUT, save_all=True, append_images=others, duration=MILLISECONDS, loop=0, quality=80)
    return 0


def _of_height(picture: npt.NDArray[np.uint8], height: int) -> Image.Image:
    """A picture with its last row, which is the caption's ground, repeated down to a height."""
    below = np.repeat(picture[-1:], height - picture.shape[0], axis=0)
    return Image.fromarray(np.concatenate([picture, below]))


if __name__ == "__main__":
    sys.exit(main())
