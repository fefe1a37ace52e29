"""Reading the small files of a model folder, with one clear sentence when something is wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for messages of one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelError naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path.parent} has no {path.name}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` for people and programs: indented, keys in order, a newline at the end."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file to write to, which takes the place of `path` when it is whole.

    A reader, and who is killed meanwhile, finds the old file or the new one. Where writing fails
    the old one stays.
    """
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    partial.replace(path)


def require_files(folder: Path, *names: str) -> None:
    """Raises ModelError naming the first of these files that the folder lacks."""
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"the model folder {folder} has no {name}")
