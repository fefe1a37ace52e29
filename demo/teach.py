# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""``scripts/demo --teach``: name an object on one photograph, and find it on another.

No ROS is needed. Before, the robot has no word for it; one example later it points at it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

from clue_ros.dialogue.types import Box, Dialogue, Grounding, Question
from clue_ros.drawing import draw
from clue_ros.engine import Clue
from clue_ros.images import load_image

HERE = Path(__file__).parent
NAME = "sweetener"  # a name for a box of sugar; the embedded model lacks the word
SHOWN, BOX = HERE / "cans_sugar_scissors.jpg", Box(198, 290, 335, 447)
LOOKED_AT = HERE / "crackers_sugar_drill.jpg"

say = partial(print, flush=True)


def play_teach(model: str, device: str, out: Path) -> int:
    """Show, name and find; 0 if the robot points, or shows the object first, else 1.

    Writes a picture of both to `out`. Raises ClueError.
    """
    out.mkdir(parents=True, exist_ok=True)
    clue = Clue.load(model, device=device, memory="")  # nothing is kept
    request = f"pick up the {NAME}"
    view = clue.look(load_image(LOOKED_AT))
    say(f"you:   {request}  ({LOOKED_AT.name})")
    before = clue.reply(view, Dialogue(request))
    say(f"robot: {_said(before)}")
    shown = clue.look(load_image(SHOWN))
    begin = time.perf_counter()
    clue.teach(shown, BOX, NAME)
    say(
        f"you:   this is the {NAME}  ({SHOWN.name}; learned in {time.perf_counter() - begin:.2f} s)"
    )
    panels = [draw(shown.image, box=BOX, caption=f"You: this is the {NAME}")]
    say(f"you:   {request}  ({LOOKED_AT.name})")
    after = clue.reply(view, Dialogue(request))
    say(f"robot: {_said(after)}")
    box = _box(after)
    caption = f"You: {request}\nRobot: {_said(after)}"
    panels.append(draw(view.image, box=box, caption=caption))
    path = out / "teach.jpg"
    _side_by_side(panels).save(path, quality=85)
    say(f"picture: {path.resolve()}")
    return 0 if box is not None else 1


def _box(reply: Question | Grounding) -> Box | None:
    """The box that is pointed at, or shown to be confirmed."""
    if isinstance(reply, Grounding):
        return reply.box
    return reply.candidates[0] if reply.confirm else None


def _said(reply: Question | Grounding) -> str:
    if isinstance(reply, Question):
        return reply.text
    corners = ", ".join(f"{side:.0f}" for side in reply.box.as_list())
    return f"I see the {reply.label} in [{corners}]."


def _side_by_side(pictures: Sequence[npt.NDArray[np.uint8]]) -> Pillow.Image:
    width, height = sum(p.shape[1] for p in pictures), max(p.shape[0] for p in pictures)
    whole, at = Pillow.new("RGB", (width, height)), 0
    for picture in pictures:
        whole.paste(Pillow.fromarray(picture), (at, 0))
        at += picture.shape[1]
    return whole
