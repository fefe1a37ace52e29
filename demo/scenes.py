# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The demo's scenes, as demo/scenes.yaml lists them.

    - image: red_ball.png              # beside the file
      say: pick up the ball
      answers: [the left one]          # answers to the robot's questions, in order; optional
      expects: question                # a key of EXPECTATIONS; optional

An expectation is about the form of the dialogue, never about which object is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parent
SCENES, VOICE_SCENES = FOLDER / "scenes.yaml", FOLDER / "voice.yaml"


class SceneError(Exception):
    """The scenes cannot be read; the message is one line and says why."""


@dataclass(frozen=True)
class Played:
    """How a scene went: the questions, whether it ended in a grounding, the robot's last words."""

    questions: tuple[str, ...]
    grounded: bool
    last_words: str


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
    """One request about one picture. `expects` is a key of EXPECTATIONS."""

    image: Path
    say: str
    answers: tuple[str, ...] = ()
    expects: str = "any"

    def problem(self, number: int, played: Played) -> str:
        """Return "" if the scene went as expected, otherwise what it should have done."""
        wanted, met = EXPECTATIONS[self.expects]
        return "" if met(played) else f"scene {number} should {wanted}, but did not"


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
        raise SceneError(f"{where}: expected image, say, and maybe answers and expects")
    unknown = set(item) - {"image", "say", "answers", "expects"}
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
    return DemoScene(image, item["say"], tuple(answers), expects)
