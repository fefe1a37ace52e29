"""OpenImages' lists of boxes, classes and images, image by image.

The files are those that OpenImages publishes: `*-annotations-bbox.csv` (a row is a box),
`class-descriptions-boxable.csv` (a class's code and name, no header), and the list of images
(`*-images-with-rotation.csv`). Boxes and images are sorted by ImageID, as they are published, so
that one image's rows are in memory at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError


class OpenImagesError(ClueError):
    """A file of OpenImages cannot be used; the message names it and the line."""

    code = "BAD_DATA"


@dataclass(frozen=True)
class OpenImagesBox:
    """A box. label: the class's name. area: share of the image. group: of more than five objects.

    depiction: a drawing or a statue of the thing.
    """

    label: str
    area: float
    group: bool
    depiction: bool


@dataclass(frozen=True)
class OpenImagesPicture:
    """An image with its boxes. info: its row in the list of images; None where it has none."""

    id: str
    boxes: tuple[OpenImagesBox, ...]
    info: Mapping[str, str] | None = None


def read_classes(path: Path) -> dict[str, str]:
    """Names by code ("/m/01g317": "Person"). Raises OpenImagesError."""
    names = {}
    with _opened(path) as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if len(row) != 2:
                raise OpenImagesError(f"{path}:{number}: {len(row)} columns, want code and name")
            names[row[0]] = row[1]
    if not names:
        raise OpenImagesError(f"{path}: no class in it")
    return names


def read_pictures(
    boxes: Path, classes: Mapping[str, str], images: Path | None = None
) -> Iterator[OpenImagesPicture]:
    """The images that have boxes, in the file's order. Raises OpenImagesError."""
    wanted = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax", "IsGroupOf", "IsDepiction")
    infos = None if images is None else _Infos(images)
    for name, rows in groupby(_sorted_rows(boxes, wanted), key=lambda item: item[1]["ImageID"]):
        found = tuple(_box(boxes, line, row, classes) for line, row in rows)
        yield OpenImagesPicture(name, found, None if infos is None else infos.find(name))


def _box(
    path: Path, line: int, row: Mapping[str, str], classes: Mapping[str, str]
) -> OpenImagesBox:
    code = row["LabelName"]
    if code not in classes:
        raise OpenImagesError(f"{path}:{line}: class {code!r:.40} is not among the descriptions")
    try:
        x0, x1, y0, y1 = (float(row[k]) for k in ("XMin", "XMax", "YMin", "YMax"))
        group, depiction = (int(row[k]) == 1 for k in ("IsGroupOf", "IsDepiction"))
    except (TypeError, ValueError):
        raise OpenImagesError(f"{path}:{line}: a side or a flag is no number") from None
    if not (0 <= x0 <= x1 <= 1 and 0 <= y0 <= y1 <= 1):
        raise OpenImagesError(f"{path}:{line}: box {x0} {x1} {y0} {y1}, want fractions 0 to 1")
    return OpenImagesBox(classes[code], (x1 - x0) * (y1 - y0), group, depiction)


class _Infos:
    """The list of images, read alongside the boxes."""

    def __init__(self, path: Path) -> None:
        self._rows = _sorted_rows(path, ("ImageID",))
        self._row: Mapping[str, str] | None = {"ImageID": ""}

    def find(self, name: str) -> Mapping[str, str] | None:
        """The row of an image, after those of the images asked for before."""
        while self._row is not None and self._row["ImageID"] < name:
            self._row = next((row for _, row in self._rows), None)
        return self._row if self._row is not None and self._row["ImageID"] == name else None


def _sorted_rows(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and row. Raises OpenImagesError where the ImageIDs are not in order."""
    before = ""
    with _opened(path) as file:
        reader = csv.DictReader(file)
        missing = [name for name in wanted if name not in (reader.fieldnames or ())]
        if missing:
            raise OpenImagesError(f"{path}: the first line has no column {missing[0]!r}")
        try:
            for row in reader:
                name = row["ImageID"]
                if not name or name < before:
                    raise OpenImagesError(
                        f"{path}:{reader.line_num}: ImageID {name!r:.40} after {before!r:.40}:"
                        " sort the lines after the first by ImageID"
                    )
                before = name
                yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise OpenImagesError(f"{path} cannot be read as CSV: {error}") from None


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise OpenImagesError(f"{path} cannot be read: {error.strerror or error}") from None
