"""The journal of a generating process on disk: a kill loses nothing and repeats nothing.

A shard of a folder has three files:

    journal-I-of-N.log      first the settings, then a line for each picture that is done
    train-I-of-N.jsonl      the rows, InViG's newer layout, written from the journal at the end
    images/                 the pictures of the rows

and the folder has `report.json`, the sums over all journals. A line that was cut off by a crash is
taken off the journal when it is opened, and its picture is done again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.model.loading import write_json

_JOURNALS = "journal-*-of-*.log"


def shard_suffix(shard: int, shards: int) -> str:
    """The suffix of the files of a shard, numbered from 0."""
    return f"{shard:05d}-of-{shards:05d}"


class Journal:
    """The journal of a shard, open for one process alone.

    settings: must be those of every journal in the folder. Raises ClueError.
    """

    def __init__(self, folder: Path, shard: int, shards: int, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name = folder, shard_suffix(shard, shards)
        self.path = folder / f"journal-{self.name}.log"
        self.done: set[str] = set()
        settings = json.loads(json.dumps(settings))
        for other in sorted(folder.glob(_JOURNALS)):
            for line, _ in islice(_whole_lines(other), 1):
                _require_same(folder, line.get("settings"), settings)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise ClueError(f"{self.path}: another process works on this shard") from None
        try:
            self._open(settings)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def _open(self, settings: Mapping[str, Any]) -> None:
        whole = 0
        for number, (line, end) in enumerate(_whole_lines(self.path)):
            whole = end
            if number:
                self.done.add(str(line["picture"]))
        os.ftruncate(self._file, whole)
        os.lseek(self._file, 0, os.SEEK_END)
        if not whole:
            self._append({"settings": settings})

    def add(
        self,
        picture: str,
        row: Mapping[str, Any] | None,
        rejected: Mapping[str, int],
        dropped: Mapping[str, int],
        more: Mapping[str, float],
    ) -> None:
        """A picture is done. row: of its kept dialogues. more: figures to sum up."""
        self._append(
            {
                "picture": picture,
                "row": row,
                "rejected": dict(rejected),
                "dropped": dict(dropped),
                "sums": dict(more),
            }
        )
        self.done.add(picture)

    def _append(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def write_rows(self, split: str = "train") -> Path:
        """Write the rows of the journal, one after the other; a crash leaves the former file."""
        path = self.folder / f"{split}-{self.name}.jsonl"
        partial = path.with_name(f".{path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            for line, _ in _whole_lines(self.path):
                if line.get("row"):
                    file.write(json.dumps(line["row"], ensure_ascii=False) + "\n")
        partial.replace(path)
        return path


def write_report(folder: Path, last_run: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Sum up all journals of a folder in `report.json`; return its content.

    last_run: figures of the run that ends now.
    """
    sums: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    rounds: Counter[int] = Counter()
    pictures = dialogues = rows = 0
    settings: Any = None
    paths = sorted(folder.glob(_JOURNALS))
    for path in paths:
        for number, (line, _) in enumerate(_whole_lines(path)):
            if not number:
                settings = line.get("settings")
                continue
            pictures += 1
            rejected.update(line["rejected"])
            dropped.update(line["dropped"])
            sums.update(line["sums"])
            if line["row"]:
                rows += 1
                for ref in line["row"]["ref_list"]:
                    dialogues += 1
                    rounds[len(ref["dialog"]) - 1] += 1
    tried = dialogues + sum(rejected.values())
    seconds = sums.pop("seconds", 0.0)
    report = {
        "shards": len(paths),
        "pictures": pictures,
        "pictures_with_dialogues": rows,
        "dialogues": dialogues,
        "kept_share": round(dialogues / tried, 4) if tried else None,
        "rounds": {str(k): rounds[k] for k in sorted(rounds)},
        "rejected": dict(rejected.most_common()),
        "dropped_turns": {k: n for k, n in dropped.most_common() if n},
        "sentences": {k: sums[k] for k in sorted(sums)},
        "seconds": round(seconds, 1),
        "seconds_per_picture": round(seconds / pictures, 3) if pictures else None,
        "last_run": dict(last_run or {}),
        "settings": settings,
    }
    write_json(folder / "report.json", report)
    return report


def _whole_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The lines of a journal with the offset behind each; ends where one was cut off."""
    end = 0
    with path.open("rb") as file:
        for data in file:
            if not data.endswith(b"\n"):
                return
            try:
                line = json.loads(data)
            except ValueError:
                return
            end += len(data)
            yield line, end


def _require_same(folder: Path, before: Any, after: Mapping[str, Any]) -> None:
    if before == after:
        return
    known = before if isinstance(before, dict) else {}
    names = [k for k in {**known, **after} if known.get(k) != after.get(k)]
    told = ", ".join(f"{k} {known.get(k)!r:.60} and not {after.get(k)!r:.60}" for k in names)
    raise ClueError(
        f"{folder} was begun with other settings, {told}: use the same, or another --out"
    )
