"""Labelled sentences about photographs from anywhere: rows of a JSON Lines or CSV file.

A row is a picture, a sentence, and whether the sentence is ambiguous there; boxes and a split are
optional (docs/rows.md). Unusable rows are named with file, line and reason, and left out: a wrong
label would count as the model's mistake.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import image_size, load_image
from clue_ros.lab.data.it2p import split_of
from clue_ros.model.loading import imported_function

T = TypeVar("T")
FIELDS = ("image", "sentence", "ambiguous", "boxes", "split")
SPLITS = ("train", "val", "test")
MAX_BOXES = 100  # of a row
_LABELS = {
    **dict.fromkeys(("true", "1", "yes", "ambiguous"), True),
    **dict.fromkeys(("false", "0", "no", "clear"), False),
}


class RowsError(ClueError):
    """The file, or a row of it, cannot be used; the message names it and the reason."""

    code = "BAD_ROWS"


@dataclass(frozen=True)
class LabelledSentence:
    """A sentence about a picture. boxes: the objects that it can mean, in pixels; () if unknown."""

    text: str
    ambiguous: bool
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class RowsImage:
    """A picture and the sentences about it.

    id: SHA-256 of the file, so that copies of a picture are one. size: width and height in pixels
    as `load_image` gives them. split: train, val or test.
    """

    id: str
    path: Path
    size: tuple[int, int]
    split: str
    sentences: tuple[LabelledSentence, ...]

    def load(self) -> npt.NDArray[np.uint8]:
        """The picture, uint8 RGB (H, W, 3). Raises BadImageError."""
        return load_image(self.path)


@dataclass(frozen=True)
class Rows:
    """The pictures of a file in its order, and a line for each row that was left out."""

    images: tuple[RowsImage, ...]
    problems: tuple[str, ...]

    def select(self, split: str) -> tuple[RowsImage, ...]:
        """The pictures of a split; of all with "all"."""
        return tuple(i for i in self.images if split in ("all", i.split))


def load_rows(path: Path) -> Rows:
    """Read a file of rows: CSV if its name ends in .csv, else JSON Lines.

    A row twice is used once. Two rows that contradict each other (one picture, one sentence, both
    labels) are both left out, as are the rows of a picture that two splits share. Raises RowsError
    if the file cannot be read or has no usable row.
    """
    read = _csv_rows if path.suffix.lower() == ".csv" else _json_rows
    return _checked(str(path), read(path), path.resolve().parent)


def own_rows(name: str) -> Rows:
    """The rows that a function of the user's own, MODULE:FUNCTION, returns or yields.

    They are dicts with the fields of a file's rows; pictures may lie anywhere. Raises RowsError and
    ModelError.
    """
    try:
        return _checked(name, enumerate(imported_function(name)(), start=1), None)
    except ClueError:
        raise
    except Exception as error:  # whatever that code raises
        raise RowsError(f"{name} failed: {type(error).__name__}: {error}") from error


def _checked(source: str, rows: Iterable[tuple[int, Any]], folder: Path | None) -> Rows:
    """Numbered rows, checked."""
    reader = _Reader(folder)
    for number, row in rows:
        reader.add(f"{source}:{number}", row)
    found = Rows(reader.images(), tuple(reader.problems))
    if not found.images:
        first = f": {found.problems[0]}" if found.problems else ""
        raise RowsError(f"{source} has no row that can be used{first}")
    return found


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RowsError(f"{path} cannot be read: {error.strerror or error}") from error
    for line, text in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if text.strip():
            try:
                yield line, json.loads(text)
            except (ValueError, RecursionError) as error:
                yield line, RowsError(f"not JSON: {error}")


def checked_json_rows(path: Path, check: Callable[[Any], T]) -> Iterator[T]:
    """Yield the result of `check` for each line of a file of JSON lines.

    Raises RowsError naming file and line where it is no JSON, or `check` raises ValueError,
    KeyError, TypeError or AttributeError.
    """
    for line, row in _json_rows(path):
        try:
            if isinstance(row, RowsError):
                raise row
            yield check(row)
        except (RowsError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RowsError(f"{path}, line {line}: {error}") from None


def _csv_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [n for n in FIELDS[:3] if n not in (reader.fieldnames or ())]
            if missing:
                raise RowsError(f'{path}: the first line has no column "{missing[0]}"')
            for row in reader:
                yield reader.line_num, {k: v for k, v in row.items() if k and v not in (None, "")}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RowsError(f"{path} cannot be read as CSV: {error}") from error


class _Reader:
    """Collects checked rows by picture. folder: where all pictures must lie; None: anywhere."""

    def __init__(self, folder: Path | None) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._pictures: dict[Path, tuple[str, tuple[int, int]] | RowsError] = {}
        self._paths: dict[str, Path] = {}  # by the picture's digest
        self._splits: dict[str, set[str]] = {}
        self._rows: dict[tuple[str, str], tuple[str, LabelledSentence]] = {}
        self._contradictory: set[tuple[str, str]] = set()

    def add(self, where: str, row: Any) -> None:
        """Keep a row, or report the reason why not."""
        try:
            self._add(where, row)
        except ClueError as error:
            self.problems.append(f"{where}: {error}")

    def _add(self, where: str, row: Any) -> None:
        if isinstance(row, RowsError):
            raise row
        if not isinstance(row, dict):
            raise RowsError(f"want an object, not {type(row).__name__}")
        for name in FIELDS[:3]:
            if name not in row:
                raise RowsError(f'"{name}" is missing')
        path = self._inside(row["image"])
        digest, size = self._picture(path)
        ambiguous = _label(row["ambiguous"])
        sentence = LabelledSentence(
            clean_text(row["sentence"]), ambiguous, _boxes(row.get("boxes"), ambiguous, size)
        )
        split = row.get("split")
        if split is not None and split not in SPLITS:
            raise RowsError(f"split {split!r}, want {', '.join(SPLITS)}")
        key = digest, sentence.text.casefold()
        if key in self._rows:
            before, known = self._rows[key]
            if known.ambiguous != ambiguous:
                self._contradictory.add(key)
                raise RowsError(f"contradicts {before}: both are left out")
            raise RowsError(f"the same picture and sentence as {before}")
        self._rows[key] = where, sentence
        self._paths.setdefault(digest, path)
        self._splits.setdefault(digest, set()).update({split} if split else ())

    def _inside(self, name: Any) -> Path:
        """The picture's path, links followed: where there is a folder of the rows, in it."""
        if not isinstance(name, str | os.PathLike):
            raise RowsError(f"image {name!r}, want a path")
        try:
            path = ((self._folder or Path()) / name).resolve()
            inside = self._folder is None or path.is_relative_to(self._folder)
        except (OSError, ValueError, RuntimeError) as error:  # a null byte, a loop of links
            raise RowsError(f"image {name!r} is no name of a file: {error}") from error
        if not inside:
            raise RowsError(f"image {name!r} is outside {self._folder}: give a path inside it")
        return path

    def _picture(self, path: Path) -> tuple[str, tuple[int, int]]:
        """A picture's digest and size, read once."""
        if path not in self._pictures:
            try:
                content = path.read_bytes()
                size = image_size(content, str(path))
                self._pictures[path] = hashlib.sha256(content).hexdigest(), size
            except OSError as error:
                reason = f"image {path} cannot be read: {error.strerror or error}"
                self._pictures[path] = RowsError(reason)
            except ClueError as error:
                self._pictures[path] = RowsError(str(error))
        found = self._pictures[path]
        if isinstance(found, RowsError):
            raise found
        return found

    def images(self) -> tuple[RowsImage, ...]:
        """The pictures with their sentences, without contradictions and shared splits."""
        sentences: dict[str, list[LabelledSentence]] = {}
        for key, (_, sentence) in self._rows.items():
            if key not in self._contradictory:
                sentences.setdefault(key[0], []).append(sentence)
        images = []
        for digest, about in sentences.items():
            path, splits = self._paths[digest], self._splits[digest] or {split_of(digest)}
            if len(splits) > 1:
                shared = ", ".join(sorted(splits))
                self.problems.append(f"{path} is in several splits ({shared}): left out")
                continue
            size = self._picture(path)[1]
            (split,) = splits
            images.append(RowsImage(digest, path, size, split, tuple(about)))
        return tuple(images)


def _label(value: Any) -> bool:
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise RowsError(f"ambiguous {value!r}, want true or false")
    return label


def _boxes(value: Any, ambiguous: bool, size: tuple[int, int]) -> tuple[Box, ...]:
    """Checked boxes; a clear sentence has one, an ambiguous one several, or they are unknown."""
    if isinstance(value, str):  # of CSV
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowsError(f"boxes are no JSON list: {error}") from error
    if value is None or value == []:
        return ()
    if not isinstance(value, list) or len(value) > MAX_BOXES:
        raise RowsError(f"boxes must be a list of at most {MAX_BOXES}")
    boxes = tuple(_box(row, size) for row in value)
    if (len(boxes) > 1) != ambiguous:
        wanted = "two or more" if ambiguous else "one"
        raise RowsError(f"{len(boxes)} boxes, want {wanted} (or none, if unknown)")
    return boxes


def _box(row: Any, size: tuple[int, int]) -> Box:
    form = "[x_min, y_min, x_max, y_max]"
    numbers: Sequence[Any] = row if isinstance(row, list) else ()
    if len(numbers) != 4 or any(type(v) not in (int, float) for v in numbers):
        raise RowsError(f"box {row!r}, want {form} in pixels")
    box, (width, height) = Box(*numbers), size
    if not (0 <= box.x_min < box.x_max <= width and 0 <= box.y_min < box.y_max <= height):
        raise RowsError(f"box {row!r} is no {form} inside {width}x{height} pixels")
    return box
