# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Export of reviewed episodes: in InViG's layout, or as the detector's rows, with their pictures.

InViG's layout (docs/invig.md) has the confirmed and corrected dialogues:

    episodes.json   images/episode-000012-3f2a9c01.png ...   left_out.txt

The detector's rows (docs/rows.md) have their requests, each clear or ambiguous (`judge_request`):

    rows.jsonl      images/episode-000012-3f2a9c01.png ...   left_out.txt
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clue_ros.dialogue.episodes import (
    MAX_PICTURE_BYTES,
    episode_files,
    read_file,
    read_row,
)
from clue_ros.dialogue.nouns import Tag, tagged
from clue_ros.dialogue.reading import Kind, read
from clue_ros.dialogue.reviews import (
    REJECTED,
    UNREVIEWED,
    Review,
    read_review,
    reviewed_row,
    robot_box,
)
from clue_ros.dialogue.types import SAME_BOX, Box, Turn, clean_text
from clue_ros.dialogue.words import named_object, offered_answers
from clue_ros.errors import ClueError

INVIG, DETECTOR = "invig", "detector"
LAYOUTS = (INVIG, DETECTOR)


class ExportError(ClueError):
    """An episode gives no row; the message says why."""

    code = "LEFT_OUT"


def judge_request(row: Mapping[str, Any], review: Review) -> bool:
    """Whether the first request was ambiguous, as the person's answers and the review show.

    Clear: the robot pointed without a question, and the person confirmed its box (or corrected it
    to one with an IoU of at least SAME_BOX). Ambiguous: the robot asked about two candidates or
    more, the person's answer to this first question chose among them in words that the request
    does not have, and the final box was confirmed or corrected.

    Raises ExportError where neither is sure, with the reason.
    """
    turns = _turns(row)
    if len(turns) == 1:
        if review.box is not None and not _same_object(robot_box(row), review.box):
            raise ExportError(
                "the robot pointed at another object without a question: its request may be clear"
                " or ambiguous"
            )
        return False
    if len(turns) < 3:
        raise ExportError("nobody answered the robot's question")
    request, question, answer = turns[:3]
    if _first_candidates(row) < 2:
        raise ExportError("the robot's first question was not about two candidates or more")
    kind = read(answer.text, offered_answers(question.text), named_object(turns[:1])).kind
    if kind not in (Kind.OFFERED, Kind.ANSWER):
        raise ExportError(f"the first answer chose nothing ({kind.value})")
    if _content(answer.text) <= _content(request.text):
        raise ExportError("the first answer only repeats the request")
    return True


def detector_row(row: Mapping[str, Any], review: Review) -> dict[str, Any]:
    """The row of docs/rows.md for an episode's first request, but for the picture's name.

    A clear request has its object's box in pixels. The boxes of an ambiguous one are not known: the
    robot's candidates are its own, and nobody has checked them. Raises ExportError.
    """
    kept = reviewed_row(row, review)
    if kept is None:
        raise ExportError("it has no box")
    ambiguous = judge_request(row, review)
    request = clean_text(_turns(row)[0].text)
    out: dict[str, Any] = {"sentence": request, "ambiguous": ambiguous}
    if not ambiguous:
        info, box = row["image_info"], Box(*kept["ref_list"][0]["bbox"])
        out["boxes"] = [box.in_pixels(info["width"], info["height"]).as_list()]
    return out


class Export:
    """The files of an export, made one after the other while it is iterated.

    Yields (name, content); pictures first, `left_out.txt` (if there is one) and the rows last.
    Afterwards `count` is the number of rows, and `left_out` says which episodes have none and why.

    Raises ClueError (on construction) for an unknown layout.
    """

    def __init__(self, folder: Path, layout: str) -> None:
        if layout not in LAYOUTS:
            raise ClueError(f"unknown layout {layout!r:.40}: use {' or '.join(LAYOUTS)}")
        self.folder, self.layout = folder, layout
        self.count = 0
        self.left_out: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Read the folder."""
        rows: list[str] = []
        self.left_out = []
        for path in episode_files(self.folder):
            try:
                row = json.dumps(self._row(path), ensure_ascii=False, allow_nan=False)
                picture = read_file(path.with_suffix(".png"), MAX_PICTURE_BYTES)
            except (ClueError, ValueError) as error:
                self.left_out.append(f"{path.stem}: {error}")
                continue
            rows.append(row)
            yield f"images/{path.stem}.png", picture
        self.count = len(rows)
        if self.left_out:
            yield "left_out.txt", "".join(f"{line}\n" for line in self.left_out).encode()
        if self.layout == INVIG:
            yield "episodes.json", "[{}]\n".format(",\n".join(rows)).encode("utf-8", "replace")
        else:
            yield "rows.jsonl", "".join(f"{row}\n" for row in rows).encode("utf-8", "replace")

    def _row(self, path: Path) -> dict[str, Any]:
        row, review = read_row(path), read_review(path)
        if review is None or review.verdict == REJECTED:
            raise ExportError(UNREVIEWED if review is None else REJECTED)
        if self.layout == DETECTOR:
            return {"image": f"images/{path.stem}.png", **detector_row(row, review)}
        kept = reviewed_row(row, review)
        if kept is None:
            raise ExportError("it has no box")
        kept["image_info"]["file_name"] = f"{path.stem}.png"
        return kept


def zip_stream(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """A zip archive of files (name, content) as a stream; holds one file in memory at a time."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files:
            archive.writestr(name, content)
            yield sink.take()
    yield sink.take()


class _Sink(io.RawIOBase):
    """Collects what `zipfile` writes until it is taken; cannot seek, as a connection."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """A sink can be written."""
        return True

    def write(self, data: Any) -> int:
        """Keep it."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken


def _turns(row: Mapping[str, Any]) -> list[Turn]:
    """The turns of a row, the request first. Raises ExportError."""
    try:
        texts = [text for pair in row["ref_list"][0]["dialog"] for text in pair][1:]
    except (KeyError, TypeError):
        raise ExportError("its dialog cannot be read") from None
    if texts and texts[-1] == "":
        texts.pop()
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ExportError("its dialog cannot be read")
    return [Turn("robot" if n % 2 else "user", text) for n, text in enumerate(texts)]


def _first_candidates(row: Mapping[str, Any]) -> int:
    """Number of candidates of the first question."""
    try:
        return len(row["clue"]["replies"][0]["candidates"])
    except (KeyError, IndexError, TypeError):
        raise ExportError("the candidates of its first question cannot be read") from None


def _same_object(one: tuple[float, ...] | None, other: tuple[float, ...]) -> bool:
    return one is not None and Box(*one).iou(Box(*other)) >= SAME_BOX


def _content(text: str) -> set[str]:
    """The words of a text that may tell objects apart."""
    return {t.word.casefold() for t in tagged(text) if t.tag is not Tag.OTHER}
