"""The dialogue's side of the model (IVG, section III-A): adapter B and ivg.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.files import read_json, write_json
from clue_ros.model.looks import MOST_LOOKS

SETTINGS_FILE = "ivg.json"


@dataclass
class IvgSettings:
    """ivg.json: how adapter B is asked and what it may reply.

    instruction: its conditioning word. max_new_tokens: of a question. max_boxes: of a grounding,
    the last of which is meant; 1 is the paper's. looks: at a picture before it points (`looks`); 1
    is the paper's.
    """

    instruction: str = "clarify"
    max_new_tokens: int = 48
    max_boxes: int = 1
    looks: int = 1


def load_ivg_settings(folder: str | Path) -> IvgSettings:
    """Read and check ivg.json; fields it does not know are notes. Raises ModelError."""
    path = Path(folder) / SETTINGS_FILE
    content = read_json(path)
    known = IvgSettings.__dataclass_fields__
    settings = IvgSettings(**{key: content[key] for key in known if key in content})
    if not isinstance(settings.instruction, str):
        raise ModelError(f"{path}: instruction {settings.instruction!r}, want a word")
    for name in ("max_new_tokens", "max_boxes", "looks"):
        limit = getattr(settings, name)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ModelError(f"{path}: {name} {limit!r}, want a whole number above 0")
    if settings.looks > MOST_LOOKS:
        raise ModelError(f"{path}: looks {settings.looks!r}, want {MOST_LOOKS} at most")
    return settings


def save_ivg_settings(settings: IvgSettings, folder: str | Path, **notes: Any) -> None:
    """Write ivg.json; `notes` (data, date, scores) are kept beside the settings."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})
