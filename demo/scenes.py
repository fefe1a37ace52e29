# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The demo's scenes, as demo/scenes.yaml lists them.

    - image: red_ball.png              # beside the file
      say: pick up the ball
      answers: [the left one]          # answers to the robot's questions, in order; optional
      expects: question                # a key of EXPECTATIONS; optional
      truth: ambiguous                 # a key of TRUTHS; optional
      box: [10, 20, 90, 80]            # the object that the person means; with truth

An expectation is about the form of the dialogue, never about which object is chosen: the exit
status depends on it. `truth` and `box` state what is in the picture, whatever the model replies.
The demo prints and counts the replies that do not match them; the exit status does not depend on
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from clue_ros.dialogue.types import Box
from clue_ros.dialogue.words import UNKNOWN, missing_thing

FOLDER = Path(__file__).resolve().parent
SCENES, VOICE_SCENES = FOLDER / "scenes.yaml", FOLDER / "voice.yaml"
MIN_IOU = 0.5  # of a right box with the true one, as in the evaluation

POINTS, ASKS, ABSENT = "points", "asks", "says that it is not there"
# The truth about a request in its picture: the right first reply, and why.
TRUTHS = {
    "clear": (POINTS, "one object fits"),
    "ambiguous": (ASKS, "several objects fit"),
    "absent": (ABSENT, "there is no such object"),
}


class SceneError(Exception):
    """The scenes cannot be read; the message is one line and says why."""


@dataclass(frozen=True)
class Played:
    """A played scene: the questions, whether it ended in a grounding, the robot's last words.

    box: of the grounding, pixels; None without one, and where it is not compared with a truth.
    """

    questions: tuple[str, ...]
    grounded: bool
    last_words: str
    box: Box | None = None

    @property
    def first(self) -> str:
        """The first reply: POINTS, ASKS, ABSENT, or the words of another sentence."""
        if self.grounded and not self.questions:
            return POINTS
        words = self.questions[0] if self.questions else self.last_words
        if missing_thing(words):
            return ABSENT
        # "I don't know what a stapler is. I see ..." reaches the topic `question` too.
        return ASKS if "?" in words and not UNKNOWN.match(words) else f"says {words!r}"


# name: (what the scene should do, whether it did)
EXPECTATIONS: dict[str, tuple[str, Callable[[Played], bool]]] = {
    "grounding": ("end in a grounding", lambda played: played.grounded),
    "clear": (
        "end in a grounding without a question",
        lambda played: played.grounded and not played.questions,
    ),
    "question": (
        "ask at least once and end in a grounding",
        lambda played: played.grounded and len(played.questions) >= 1,
    ),
    "questions": (
        "ask at least twice and end in a grounding",
        lambda played: played.grounded and len(played.questions) >= 2,
    ),
    "asked": ("ask at least once", lambda played: len(played.questions) >= 1),
    "any": (
        "ask, point, or say why not",
        lambda played: played.grounded or bool(played.questions) or bool(played.last_words),
    ),
}


@dataclass(frozen=True)
class DemoScene:
    """One request about one picture.

    expects: a key of EXPECTATIONS. truth: a key of TRUTHS, "" where nothing is stated. box: the
    object that the person means, pixels; None where it is not in the picture, or not stated.
    """

    image: Path
    say: str
    answers: tuple[str, ...] = ()
    expects: str = "any"
    truth: str = ""
    box: Box | None = None

    def problem(self, number: int, played: Played) -> str:
        """Return "" if the scene went as expected, otherwise what it should have done."""
        wanted, met = EXPECTATIONS[self.expects]
        return "" if met(played) else f"scene {number} should {wanted}, but did not"

    def right_reply(self) -> str:
        """The replies that would be right, in words."""
        first, why = TRUTHS[self.truth]
        if self.box is None:
            return f"{why}: {first}"
        then = "at" if first == POINTS else "and in the end points at"
        return f"{why}: {first} {then} {box_text(self.box)}"

    def mistake(self, played: Played) -> str:
        """Return the first mistake, measured by the truth about the picture; "" for none."""
        first, why = TRUTHS[self.truth]
        if played.first != first:
            return f"it {played.first}, but {why}"
        if self.box is None:
            return ""
        if played.box is None:
            return "it does not point in the end"
        iou = self.box.iou(played.box)
        return "" if iou >= MIN_IOU else f"its box is not on the object (IoU {iou:.3f})"


def box_text(box: Box) -> str:
    """A box in whole pixels."""
    return f"x {box.x_min:.0f} to {box.x_max:.0f}, y {box.y_min:.0f} to {box.y_max:.0f}"


def read_scenes(path: Path) -> list[DemoScene]:
    """Read a scenes file.

    Raises:
        SceneError: not a list of scenes, a key is missing, unknown or of the wrong type, or a
        picture does not exist.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SceneError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(data, list) or not data:
        raise SceneError(f"{path}: expected a list of scenes")
    return [_scene(path, number, item) for number, item in enumerate(data, start=1)]


def _scene(path: Path, number: int, item: object) -> DemoScene:
    where = f"{path}, scene {number}"
    if not isinstance(item, dict) or not {"image", "say"} <= set(item):
        raise SceneError(f"{where}: expected image, say, and maybe answers, expects, truth and box")
    unknown = set(item) - {"image", "say", "answers", "expects", "truth", "box"}
    if unknown:
        raise SceneError(f"{where}: unknown key {sorted(map(str, unknown))[0]!r}")
    answers, expects = item.get("answers") or [], item.get("expects", "any")
    if not all(isinstance(text, str) for text in (item["image"], item["say"], *answers)):
        raise SceneError(f"{where}: image, say and answers must be text (quote yes and no)")
    if expects not in EXPECTATIONS:
        raise SceneError(f"{where}: expects must be one of {', '.join(EXPECTATIONS)}")
    image = path.parent / item["image"]
    if not image.is_file():
        raise SceneError(f"{where}: {image} does not exist")
    box = _box(where, item["box"]) if "box" in item else None
    truth = item.get("truth", "")
    _check_truth(where, truth, box, bool(answers))
    return DemoScene(image, item["say"], tuple(answers), expects, truth, box)


def _box(where: str, row: object) -> Box:
    if not isinstance(row, list) or len(row) != 4 or any(type(v) not in (int, float) for v in row):
        raise SceneError(f"{where}: box must be [x_min, y_min, x_max, y_max] in pixels")
    box = Box(*row)
    if not box.area > 0:
        raise SceneError(f"{where}: box {row} has no area, want minimum before maximum")
    return box


def _check_truth(where: str, truth: object, box: Box | None, answered: bool) -> None:
    """Refuse a box without a truth, and a truth that lacks what it is compared with."""
    if truth == "" and box is None:
        return
    if truth not in TRUTHS:
        raise SceneError(f"{where}: truth must be one of {', '.join(TRUTHS)}")
    if truth != "clear" and answered != (box is not None):
        raise SceneError(f"{where}: give answers and the box that they lead to, or neither")
    if truth == "clear" and box is None:
        raise SceneError(f"{where}: a clear request needs the box of its object")
