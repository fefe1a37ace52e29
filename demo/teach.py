# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""``scripts/demo --teach``: name an object on one photograph, and find it on another.

No ROS is needed. Before, the robot has no word for it; one example later it points at it.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from PIL import Image as Pillow

from clue_ros.dialogue.types import Box, Dialogue, Grounding, Question
from clue_ros.drawing import draw
from clue_ros.engine import Clue, View
from clue_ros.images import load_image

HERE = Path(__file__).parent
NAME = "sweetener"  # what somebody calls a box of sugar; the embedded model lacks the word
SHOWN, BOX = HERE / "cans_sugar_scissors.jpg", Box(198, 290, 335, 447)
LOOKED_AT = HERE / "crackers_sugar_drill.jpg"

say = partial(print, flush=True)


def play_teach(model: str, device: str, out: Path) -> int:
    """Show, name and find; 0 if the robot points, or shows the object first, else 1.

    Writes pictures to `out`. Raises ClueError.
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
    _save(shown, BOX, f"this is the {NAME}", out / "teach_1.png")
    say(f"you:   {request}  ({LOOKED_AT.name})")
    after = clue.reply(view, Dialogue(request))
    say(f"robot: {_said(after)}")
    box = _box(after)
    _save(view, box, f"You: {request}\nRobot: {_said(after)}", out / "teach_2.png")
    say(f"pictures: {out.resolve()}")
    return 0 if box is not None else 1


def _box(reply: Question | Grounding) -> Box | None:
    """What is pointed at, or shown to be confirmed."""
    if isinstance(reply, Grounding):
        return reply.box
    return reply.candidates[0] if reply.confirm else None


def _said(reply: Question | Grounding) -> str:
    if isinstance(reply, Question):
        return reply.text
    corners = ", ".join(f"{side:.0f}" for side in reply.box.as_list())
    return f"I see the {reply.label} in [{corners}]."


def _save(view: View, box: Box | None, caption: str, path: Path) -> None:
    Pillow.fromarray(draw(view.image, box=box, caption=caption)).save(path)
