"""The demo's scenes, as demo/scenes.yaml lists them.

    - image: red_ball.png              # beside the file
      say: pick up the ball
      answers: [the left one]          # said to its questions, in this order; may be left out
      expects: question                # what must have happened at the end, see EXPECTATIONS

An expectation is about the form of the dialogue, never about which object is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path("demo")


class SceneError(Exception):
    """The scenes cannot be read; the message is one line and says why."""


@dataclass(frozen=True)
class Played:
    """How a scene went.

    What was asked, whether it ended in a grounding, and the robot's last words.
    """

    questions: tuple[str, ...]
    grounded: bool
    last_words: str


# name: (what it asks for, whether it was met)
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
class Scene:
    """One request about one picture. `expects` is a key of EXPECTATIONS."""

    image: Path
    say: str
    answers: tuple[str, ...] = ()
    expects: str = "any"


def find_scenes(name: str = "scenes.yaml") -> Path:
    """Return a scenes file of the checkout, or of the installed share folder.

    Raises:
        SceneError: neither has one.
    """
    places = [Path(__file__).resolve().parents[1] / FOLDER / name]
    try:
        from ament_index_python.packages import get_package_share_directory

        places.append(Path(get_package_share_directory("clue_ros")) / FOLDER / name)
    except Exception:  # noqa: BLE001 - no ament index, or no such package: the checkout is left
        pass
    for place in places:
        if place.is_file():
            return place
    raise SceneError(
        f"no scenes: {' and '.join(map(str, places))} do not exist; use --image FILE --say TEXT"
    )


def read_scenes(path: Path) -> list[Scene]:
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


def _scene(path: Path, number: int, item: object) -> Scene:
    where = f"{path}, scene {number}"
    if not isinstance(item, dict) or not {"image", "say"} <= set(item):
        raise SceneError(f"{where}: expected image, say, and maybe answers and expects")
    unknown = set(item) - {"image", "say", "answers", "expects"}
    if unknown:
        raise SceneError(f"{where}: unknown key {sorted(map(str, unknown))[0]!r}")
    answers, expects = item.get("answers") or [], item.get("expects", "any")
    texts: Sequence[object] = [item["image"], item["say"], *answers]
    if not all(isinstance(text, str) for text in texts):
        raise SceneError(f"{where}: image, say and answers must be text (quote yes and no)")
    if expects not in EXPECTATIONS:
        raise SceneError(f"{where}: expects must be one of {', '.join(EXPECTATIONS)}")
    image = path.parent / str(item["image"])
    if not image.is_file():
        raise SceneError(f"{where}: {image} does not exist")
    return Scene(image, str(item["say"]), tuple(map(str, answers)), str(expects))
