"""Photographs with labelled requests: a folder with `photos.json` and the pictures.

`docs/photographs.md` has the layout. Everything is checked when it is read, since a wrong label
would count as the model's mistake.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.dialogue.episodes import episode_files, read_row
from clue_ros.dialogue.reviews import read_review, reviewed_row
from clue_ros.dialogue.types import Box, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import image_size

INDEX = "photos.json"
FORMAT, VERSION = "clue_photos", 1
MAX_NAME = 100  # characters of an object's name
TRUTHS = {"clear": "exactly one", "ambiguous": "two or more", "absent": "none"}  # boxes


class PhotographsError(ClueError):
    """The folder cannot be used; the message names the photograph, the request and the reason."""

    code = "BAD_PHOTOGRAPHS"


@dataclass(frozen=True)
class PhotoRequest:
    """A request about a photograph, with the objects that it means there.

    truth: "clear" (one object), "ambiguous" (several objects fit) or "absent" (none). boxes: those
    objects, in pixels of the picture as `load_image` gives it.
    """

    text: str
    truth: str
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class LabelledObject:
    """An object that a person boxed and named. box: in pixels, as of a `PhotoRequest`."""

    name: str
    box: Box


@dataclass(frozen=True)
class Photograph:
    """A picture file and the requests about it.

    title: a description of the picture. objects: those that were labelled (`clue label`).
    """

    path: Path
    title: str
    requests: tuple[PhotoRequest, ...]
    objects: tuple[LabelledObject, ...] = ()


def load_photographs(folder: Path) -> list[Photograph]:
    """Read the photographs of a folder. Raises PhotographsError with the reason in one line."""
    where, rows = folder / INDEX, read_index(folder)
    return [_photograph(folder, f"{where}: photo {n}", row) for n, row in enumerate(rows, start=1)]


def read_index(folder: Path) -> list[Any]:
    """Return the unchecked rows of a folder's photos.json. Raises PhotographsError."""
    index = folder / INDEX
    if not index.is_file():
        raise PhotographsError(f"{folder} has no {INDEX}: see docs/photographs.md for its layout")
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PhotographsError(f"{index} is not JSON that can be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PhotographsError(f'{index}: want an object with "format": "{FORMAT}"')
    if content.get("version") != VERSION:
        raise PhotographsError(f"{index}: version {content.get('version')!r}, want {VERSION}")
    rows = content.get("photos")
    if not isinstance(rows, list) or not rows:
        raise PhotographsError(f'{index}: "photos" must be a list that is not empty')
    return rows


def _photograph(folder: Path, where: str, row: Any) -> Photograph:
    fields = _fields(where, row, need=("file", "requests"), may=("title", "objects"))
    name, title, rows = fields["file"], fields.get("title", ""), fields["requests"]
    if not isinstance(name, str) or not isinstance(title, str) or not isinstance(rows, list):
        raise PhotographsError(f"{where}: file and title must be text, requests a list")
    where = f"{where} ({name})"
    path = _inside(folder, where, name)
    # A picture that cannot be read raises BadImageError, one line that names it.
    size = image_size(path, str(path))
    requests = [_request(f"{where}, request {n}", r, size) for n, r in enumerate(rows, start=1)]
    if not requests:
        raise PhotographsError(f"{where}: there are no requests about it")
    objects = labelled_objects(where, fields.get("objects", []), size)
    return Photograph(path, title, tuple(requests), objects)


def labelled_objects(where: str, rows: Any, size: tuple[int, int]) -> tuple[LabelledObject, ...]:
    """Labels from JSON, [{"name", "box"}], of a picture of (width, height) pixels.

    Raises PhotographsError, beginning with `where`.
    """
    if not isinstance(rows, list):
        raise PhotographsError(f"{where}: objects must be a list")
    found = []
    for n, row in enumerate(rows, start=1):
        here = f"{where}, object {n}"
        fields = _fields(here, row, need=("name", "box"), may=())
        try:
            name = clean_text(fields["name"])
        except ClueError as error:
            raise PhotographsError(f"{here}: {error}") from error
        if len(name) > MAX_NAME:
            raise PhotographsError(
                f"{here}: the name has {len(name)} characters, at most {MAX_NAME} are allowed"
            )
        found.append(LabelledObject(name, _box(here, fields["box"], size)))
    return tuple(found)


def _inside(folder: Path, where: str, name: str) -> Path:
    """The picture's path: a file in the folder, links followed."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise PhotographsError(f"{where}: the file is outside {folder}: give a path inside it")
        if not path.is_file():
            raise PhotographsError(f"{where}: {folder} has no such file")
    except (OSError, ValueError) as error:  # a null byte, a name that is too long, a loop of links
        raise PhotographsError(f"{where}: no name of a file: {error}") from error
    return path


def _request(where: str, row: Any, size: tuple[int, int]) -> PhotoRequest:
    fields = _fields(where, row, need=("text", "truth"), may=("boxes",))
    text, truth, rows = fields["text"], fields["truth"], fields.get("boxes", [])
    try:
        text = clean_text(text)
    except ClueError as error:
        raise PhotographsError(f"{where}: {error}") from error
    if not isinstance(truth, str) or truth not in TRUTHS:
        raise PhotographsError(f"{where}: truth {truth!r}, want {', '.join(TRUTHS)}")
    if not isinstance(rows, list):
        raise PhotographsError(f"{where}: boxes must be a list of [x_min, y_min, x_max, y_max]")
    boxes = tuple(_box(where, row, size) for row in rows)
    if (truth, min(len(boxes), 2)) not in (("clear", 1), ("ambiguous", 2), ("absent", 0)):
        raise PhotographsError(f"{where}: boxes given: {len(boxes)}, {truth} wants {TRUTHS[truth]}")
    return PhotoRequest(text, truth, boxes)


def _box(where: str, row: Any, size: tuple[int, int]) -> Box:
    numbers = isinstance(row, list) and all(type(v) in (int, float) for v in row)
    if not numbers or len(row) != 4:
        raise PhotographsError(f"{where}: box {row!r}, want [x_min, y_min, x_max, y_max]")
    box, (width, height) = Box(*row), size
    if not (box.x_min < box.x_max and box.y_min < box.y_max):  # NaN is refused here too
        raise PhotographsError(f"{where}: box {row} has no area, want minimum before maximum")
    if box.x_min < 0 or box.y_min < 0 or box.x_max > width or box.y_max > height:
        raise PhotographsError(f"{where}: box {row} is outside the picture, {width}x{height} px")
    return box


def _fields(where: str, row: Any, *, need: tuple[str, ...], may: tuple[str, ...]) -> dict[str, Any]:
    """An object's fields. Unknown ones are refused, so that a misspelt one is not lost."""
    if not isinstance(row, dict):
        raise PhotographsError(f"{where}: want an object, not {type(row).__name__}")
    for name in need:
        if name not in row:
            raise PhotographsError(f'{where}: "{name}" is missing')
    unknown = sorted(set(row) - {*need, *may})
    if unknown:
        raise PhotographsError(f'{where}: unknown field "{unknown[0]}"')
    return row


def load_requests(folder: Path, problem: Callable[[str], None]) -> list[Photograph]:
    """Labelled requests of a folder: of photos.json, or of the episodes that a person reviewed.

    The request of an episode is the first one, a clear one: it meant the box that the dialogue
    ended in, or the corrected one. problem: called with the reason for each that is
    left out. Raises PhotographsError.
    """
    files = episode_files(folder) if folder.is_dir() and not (folder / INDEX).is_file() else []
    if not files:
        return load_photographs(folder)
    found = []
    for path in files:
        try:
            photograph = _reviewed(path)
        except ClueError as error:
            problem(f"left out, {path.name}: {error}")
            continue
        if photograph is not None:
            found.append(photograph)
    if not found:
        raise PhotographsError(
            f"{folder}: none of {len(files)} episodes was reviewed and has a box: review them with"
            f" `clue review {folder}`"
        )
    return found


def _reviewed(path: Path) -> Photograph | None:
    """An episode's picture with its first request; None where there is nothing to learn."""
    row, review = read_row(path, replies=False), read_review(path)
    kept = None if review is None else reviewed_row(row, review)
    turns = row["clue"].get("turns") or []
    if kept is None or not turns:
        return None
    picture = path.with_suffix(".png")
    width, height = image_size(picture, str(picture))
    box = Box(*kept["ref_list"][0]["bbox"]).in_pixels(width, height)
    request = PhotoRequest(clean_text(turns[0].get("text", "")), "clear", (box,))
    label = kept["ref_list"][0].get("category")
    objects = (LabelledObject(clean_text(label), box),) if label else ()
    return Photograph(picture, "", (request,), objects)
