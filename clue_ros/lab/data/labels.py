"""Labels of photographs: a box and a name for each object, and the requests that follow from them.

A folder's photos.json keeps the objects of each photograph beside its requests (docs/risk.md), so
labelling can be resumed. Requests are made anew whenever labels change: a name of one
object is clear, of several ambiguous, and of none in this photograph absent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clue_ros.errors import BadImageError, ClueError
from clue_ros.files import replace_file
from clue_ros.images import image_size
from clue_ros.lab.data.photographs import (
    FORMAT,
    INDEX,
    VERSION,
    LabelledObject,
    PhotographsError,
    labelled_objects,
    read_index,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
REQUESTS = ("the {}", "give me the {}", "pick up the {}", "take the {} please")
"""Forms of requests for an object, used in turn, so that the robot gets all of them."""
ROWS = "rows.jsonl"  # beside photos.json, with `pairs`
ABSENT = 2  # requests about a photograph for things that only others show


def requests_about(photographs: Sequence[Sequence[LabelledObject]]) -> list[list[dict[str, Any]]]:
    """The requests about each photograph's labelled objects, as photos.json has them.

    A name means every object of that name, and those whose name ends in it: "mug" a "red mug" too.
    The last word that several names share is a request too. Absent requests use names of other
    photographs, if neither the name nor its last word names anything here: a "mug" may be the
    "red mug".
    """
    phrases = [_phrases(objects) for objects in photographs]
    known = sorted({phrase for found in phrases for phrase in found})
    made = []
    for n, objects in enumerate(photographs):
        requests = [_request(n + i, phrase, _meant(phrase, objects))
                    for i, phrase in enumerate(phrases[n])]  # fmt: skip
        names = {named.name.lower() for named in objects}
        others = [
            phrase
            for phrase in known
            if not _meant(phrase, objects) and not any(_ends(phrase, name) for name in names)
        ]
        start = n * ABSENT
        for i in range(min(ABSENT, len(others))):
            requests.append(_request(n + i, others[(start + i) % len(others)], []))
        made.append(requests if objects else [])
    return made


def _phrases(objects: Sequence[LabelledObject]) -> list[str]:
    """The names of objects, and last words that several different names share; each once."""
    names = sorted({named.name.lower() for named in objects})
    lasts = [name.split()[-1] for name in names]
    shared = sorted({last for last in lasts if lasts.count(last) > 1})
    return [*names, *(last for last in shared if last not in names)]


def _meant(phrase: str, objects: Sequence[LabelledObject]) -> list[LabelledObject]:
    return [named for named in objects if _ends(named.name.lower(), phrase)]


def _ends(name: str, phrase: str) -> bool:
    return name == phrase or name.endswith(f" {phrase}")


def _request(turn: int, phrase: str, meant: Sequence[LabelledObject]) -> dict[str, Any]:
    truth = ("absent", "clear")[len(meant)] if len(meant) < 2 else "ambiguous"
    boxes = [[round(side, 1) for side in named.box.as_list()] for named in meant]
    text = REQUESTS[turn % len(REQUESTS)].format(phrase)
    return {"text": text, "truth": truth, **({"boxes": boxes} if boxes else {})}


def pair_about(turn: int, objects: Sequence[LabelledObject]) -> list[dict[str, Any]]:
    """An ambiguous and a clear sentence about a photograph, as CLUE's Dataset 2 has them.

    Rows of docs/rows.md without the picture; [] where no name means several objects, or none one.
    turn: varies which names are taken.
    """
    found: dict[bool, list[tuple[str, list[LabelledObject]]]] = {True: [], False: []}
    for phrase in _phrases(objects):
        meant = _meant(phrase, objects)
        found[len(meant) > 1].append((phrase, meant))
    if not all(found.values()):
        return []
    rows = []
    for ambiguous, phrases in found.items():
        phrase, meant = phrases[turn % len(phrases)]
        boxes = [[round(side, 1) for side in named.box.as_list()] for named in meant]
        rows.append({"sentence": f"get the {phrase}", "ambiguous": ambiguous, "boxes": boxes})
    return rows


class LabelFolder:
    """The pictures of a folder and their labels. Thread-safe.

    names: of the picture files, in order. problems: the reason for each unusable file.
    pairs: write rows.jsonl too, with an ambiguous and a clear sentence about each photograph.

    Raises PhotographsError (on construction): no such folder, no picture in it, or an unreadable
    photos.json, which stays.
    """

    def __init__(self, folder: Path, *, pairs: bool = False) -> None:
        self.pairs = pairs
        if not folder.is_dir():
            raise PhotographsError(f"{folder} is not a folder: give one with photographs")
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self.problems: dict[str, str] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        for path in sorted(self.folder.iterdir()):
            if path.suffix.lower() not in SUFFIXES or path.is_symlink() or not path.is_file():
                continue
            try:
                self._sizes[path.name] = image_size(path, path.name)
            except BadImageError as error:
                self.problems[path.name] = str(error)
        self.names = tuple(self._sizes)
        if not self.names:
            broken = f" ({len(self.problems)} cannot be read)" if self.problems else ""
            raise PhotographsError(
                f"{folder} has no photographs{broken}: want files in {', '.join(SUFFIXES)}"
            )
        self._rows = self._read()
        if pairs and self._rows:
            self._write(self._rows)

    def size(self, name: str) -> tuple[int, int]:
        """Width and height of a picture in pixels. Raises PhotographsError for an unknown name."""
        if name not in self._sizes:
            raise PhotographsError(f"there is no photograph {name!r:.80}")
        return self._sizes[name]

    def objects(self, name: str) -> tuple[LabelledObject, ...]:
        """The labels of a picture. Raises PhotographsError for an unknown name."""
        rows = self._rows.get(name, {}).get("objects", [])
        return labelled_objects(name, rows, self.size(name))

    def note(self, name: str) -> str:
        """Return a hint for the person who labels a picture; mostly ""."""
        row = self._rows.get(name, {})
        if row.get("requests") and not row.get("objects"):
            return f"It has {len(row['requests'])} requests written by hand: labels replace them."
        objects = self.objects(name) if self.pairs else ()
        if objects and not pair_about(0, objects):
            return "Needs a name that two or more objects share, and one of an object alone."
        return ""

    @property
    def paired(self) -> int:
        """Number of photographs with an ambiguous and a clear sentence."""
        return sum(1 for name in self.names if pair_about(0, self.objects(name)))

    def label(self, name: str, rows: Any) -> int:
        """Replace the labels of a picture, and write photos.json; the number of all requests.

        rows: [{"name", "box"}], as in JSON. Raises PhotographsError for labels that cannot be, and
        ClueError where the file cannot be written; the labels are then as before.
        """
        objects = labelled_objects(name, rows, self.size(name))
        with self._lock:
            kept = dict(self._rows)
            title = kept.get(name, {}).get("title")
            kept[name] = {
                "file": name,
                **({"title": title} if title else {}),
                "objects": [{"name": o.name, "box": o.box.as_list()} for o in objects],
                "requests": [],
            }
            if not objects:
                del kept[name]
            self._write(kept)
            self._rows = kept
            return sum(len(row["requests"]) for row in kept.values())

    def _read(self) -> dict[str, dict[str, Any]]:
        """The rows of photos.json by their file; those of missing pictures are kept too."""
        if not (self.folder / INDEX).is_file():
            return {}
        rows = {}
        for n, row in enumerate(read_index(self.folder), start=1):
            name = row.get("file") if isinstance(row, dict) else None
            if not isinstance(name, str) or not isinstance(row.get("requests"), list):
                raise PhotographsError(f"{self.folder / INDEX}: photo {n}: want file and requests")
            if name in self._sizes:
                labelled_objects(f"{self.folder / INDEX}: photo {n}", row.get("objects", []),
                                 self._sizes[name])  # fmt: skip
            rows[name] = row
        return rows

    def _write(self, rows: dict[str, dict[str, Any]]) -> None:
        labelled = [
            name for name in sorted(rows) if rows[name].get("objects") and name in self._sizes
        ]
        found = [labelled_objects(n, rows[n]["objects"], self._sizes[n]) for n in labelled]
        for name, requests in zip(labelled, requests_about(found), strict=True):
            rows[name] = {**rows[name], "requests": requests}
        if self.pairs:
            self._write_pairs(zip(labelled, found, strict=True))
        path = self.folder / INDEX
        content = {
            "format": FORMAT,
            "version": VERSION,
            "photos": [rows[name] for name in sorted(rows)],
        }
        try:
            if rows:
                text = json.dumps(content, ensure_ascii=False, indent=1)
                replace_file(path, f"{text}\n".encode())
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise ClueError(f"{path} cannot be written: {error.strerror or error}") from error

    def _write_pairs(self, labelled: Iterable[tuple[str, Sequence[LabelledObject]]]) -> None:
        """Write rows.jsonl; all its photographs are test data."""
        lines = [
            json.dumps({"image": name, **row, "split": "test"}, ensure_ascii=False)
            for turn, (name, objects) in enumerate(labelled)
            for row in pair_about(turn, objects)
        ]
        path = self.folder / ROWS
        try:
            replace_file(path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise ClueError(f"{path} cannot be written: {error.strerror or error}") from error
