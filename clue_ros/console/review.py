# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The review page's routes: recorded episodes, a person's verdict on each, and their export.

    GET    /review                               the page
    GET    /api/review/episodes                  newest first: verdict, outcome, before, limit
    GET    /api/review/outcomes                  how often dialogues ended in which way
    GET    /api/review/episodes/NAME             one episode with its turns and replies
    GET    /api/review/episodes/NAME/picture     its PNG
    PUT    /api/review/episodes/NAME/review      {"verdict", "box", "label"}: see Review
    DELETE /api/review/episodes/NAME/review      unreviewed again
    GET    /api/review/export                    a zip; layout: invig or detector

An error is {"error": message, "code": code}. A file is read and written by an episode's name only;
links are not followed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from clue_ros.console.access import read_body
from clue_ros.dialogue.episode_export import INVIG, Export, zip_stream
from clue_ros.dialogue.episodes import (
    GROUNDED,
    MAX_PICTURE_BYTES,
    NAME,
    EpisodeError,
    fractions_of,
    read_file,
    read_row,
)
from clue_ros.dialogue.reviews import (
    FILE_NAME,
    UNREVIEWED,
    VERDICTS,
    Review,
    check_review,
    read_review,
    remove_review,
    write_review,
)
from clue_ros.errors import ClueError

PAGE_SIZE = 50  # episodes of one answer, if the page asks for no other number
MAX_PAGE_SIZE = 200
MAX_BODY = 16_384  # bytes of a verdict
MAX_NAME = 60  # characters of an episode's name
_PAGE = Path(__file__).parent / "static" / "review.html"


class NotThereError(ClueError):
    """There is no such episode."""

    code = "NOT_FOUND"


class TooLargeError(ClueError):
    """The body of a request is too large."""

    code = "TOO_LARGE"


def review_router(folder: Path) -> APIRouter:
    """The routes of the review page for the episodes of a folder.

    Raises ClueError if it is not a folder. An empty one may fill while the page is open.
    """
    folder = folder.expanduser()
    if not folder.is_dir():
        raise ClueError(f"{folder} is not a folder: give the one that the parameter `record` names")
    episodes = EpisodeFolder(folder.resolve())
    router = APIRouter()

    @router.get("/review")
    def page() -> FileResponse:
        return FileResponse(_PAGE, media_type="text/html")

    @router.get("/api/review/episodes")
    def listed(
        verdict: str = "", outcome: str = "", before: str = "", limit: str = str(PAGE_SIZE)
    ) -> JSONResponse:
        return JSONResponse(episodes.page(verdict, outcome, before, _limit(limit)))

    @router.get("/api/review/outcomes")
    def outcomes() -> JSONResponse:
        return JSONResponse(episodes.outcomes())

    @router.get("/api/review/episodes/{name}")
    def episode(name: str) -> Response:
        return _answer(lambda: JSONResponse(episodes.episode(name)))

    @router.get("/api/review/episodes/{name}/picture")
    def picture(name: str) -> Response:
        return _answer(lambda: Response(episodes.picture(name), media_type="image/png"))

    @router.put("/api/review/episodes/{name}/review")
    async def put_review(name: str, request: Request) -> Response:
        try:
            too_large = TooLargeError(f"a verdict has at most {MAX_BODY} bytes")
            body = await read_body(request, MAX_BODY, too_large)
        except TooLargeError as error:
            return _error(error, 413)
        return await asyncio.to_thread(
            _answer, lambda: JSONResponse(episodes.review(name, _json(body)))
        )

    @router.delete("/api/review/episodes/{name}/review")
    def delete_review(name: str) -> Response:
        return _answer(lambda: JSONResponse(episodes.review(name, None)))

    @router.get("/api/review/export")
    def export(layout: str = INVIG) -> StreamingResponse:
        stream = zip_stream(Export(episodes.folder, layout))
        headers = {"Content-Disposition": f'attachment; filename="episodes-{layout}.zip"'}
        return StreamingResponse(stream, media_type="application/zip", headers=headers)

    return router


@dataclass(frozen=True)
class _Found:
    """An episode's files in the folder. stamps: when each was changed, in ns, and its size."""

    name: str
    number: int
    file: tuple[int, int]
    review: tuple[int, int] | None


class EpisodeFolder:
    """The episodes of a folder, for the page. Thread-safe.

    It keeps the content of a file until the file changes. A list without a filter on outcomes reads
    the files of one page only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._verdicts: dict[str, tuple[tuple[int, int], str]] = {}

    def page(self, verdict: str, outcome: str, before: str, limit: int) -> dict[str, Any]:
        """Episodes, newest first: {"episodes", "next", "counts"}.

        verdict: "" for all, a verdict, or "unreviewed". outcome: "" for all. before: the name of an
        episode; only older ones. next: what `before` is for the next page; null on the last one.
        Raises ClueError.
        """
        if verdict not in ("", UNREVIEWED, *VERDICTS):
            raise ClueError(f"unknown verdict {verdict!r:.40}: use {', '.join(VERDICTS)}")
        start = _key(before) if before else None
        if before and start is None:
            raise ClueError(f"before={before!r:.40} is no name of an episode")
        found = self._scan()
        verdicts = {one.name: self._verdict(one) for one in found}
        counts = Counter(verdicts.values())
        episodes: list[dict[str, Any]] = []
        following = None
        for one in found:
            if start is not None and (one.number, one.name) >= start:
                continue
            if verdict and verdicts[one.name] != verdict:
                continue
            summary = self._summary(one) if outcome or len(episodes) < limit else {}
            if outcome and summary["outcome"] != outcome:
                continue
            if len(episodes) == limit:
                following = episodes[-1]["name"]
                break
            episodes.append({"name": one.name, "verdict": verdicts[one.name], **summary})
        return {
            "episodes": episodes,
            "next": following,
            "counts": {name: counts[name] for name in (*VERDICTS, UNREVIEWED)},
        }

    def outcomes(self) -> dict[str, int]:
        """Count the dialogues of each outcome, the most frequent first. Reads every file once."""
        counted = Counter(str(self._summary(one)["outcome"]) for one in self._scan())
        return dict(counted.most_common())

    def episode(self, name: str) -> dict[str, Any]:
        """All of one episode as the page shows it. Raises NotThereError, EpisodeError."""
        path = self._path(name)
        row = read_row(path)
        review, note = _review_of(path)
        return {"name": name, **_shown(row), **_reviewed(review, note)}

    def picture(self, name: str) -> bytes:
        """The PNG file of an episode. Raises NotThereError."""
        path = self._path(name).with_suffix(".png")
        try:
            return read_file(path, MAX_PICTURE_BYTES)
        except EpisodeError as error:
            raise NotThereError(str(error)) from None

    def review(self, name: str, values: Any) -> dict[str, Any]:
        """Write a verdict, or remove it (None). Returns the review and the counts.

        Raises NotThereError, EpisodeError, or ClueError where the file cannot be written.
        """
        path = self._path(name)
        with self._lock:
            try:
                if values is None:
                    remove_review(path)
                else:
                    review = Review.of(values, stamp=time.time())
                    check_review(review, read_row(path))
                    write_review(path, review)
            except OSError as error:
                raise ClueError(
                    f"the review cannot be written in {self.folder}: {error.strerror or error}"
                ) from error
        kept, note = _review_of(path)
        counts = Counter(self._verdict(one) for one in self._scan())
        return {
            **_reviewed(kept, note),
            "counts": {name: counts[name] for name in (*VERDICTS, UNREVIEWED)},
        }

    def _path(self, name: str) -> Path:
        """The JSON file of an episode. Raises NotThereError."""
        path = self.folder / f"{name}.json"
        if _key(name) is None or path.is_symlink() or not path.is_file():
            raise NotThereError(f"there is no episode {name!r:.80}; it may have been removed")
        return path

    def _scan(self) -> list[_Found]:
        """The folder's episodes, newest first."""
        files: dict[str, tuple[int, int]] = {}
        reviews: dict[str, tuple[int, int]] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    of = _owner(entry.name)
                    if of is None or not entry.is_file(follow_symlinks=False):
                        continue
                    kind = reviews if entry.name.endswith(".review.json") else files
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # the recorder has just removed it
                        continue
                    kind[of] = status.st_mtime_ns, status.st_size
        except OSError as error:
            raise ClueError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        for cache in (self._rows, self._verdicts):
            if len(cache) > len(files) + PAGE_SIZE:  # of episodes that were removed
                for name in list(cache):
                    if name not in files:
                        cache.pop(name, None)
        keys = sorted(((key, name) for name in files if (key := _key(name))), reverse=True)
        return [_Found(name, key[0], files[name], reviews.get(name)) for key, name in keys]

    def _verdict(self, one: _Found) -> str:
        if one.review is None:
            return UNREVIEWED
        kept = self._verdicts.get(one.name)
        if kept is None or kept[0] != one.review:
            review, _ = _review_of(self.folder / f"{one.name}.json")
            kept = one.review, UNREVIEWED if review is None else review.verdict
            self._verdicts[one.name] = kept
        return kept[1]

    def _summary(self, one: _Found) -> dict[str, Any]:
        kept = self._rows.get(one.name)
        if kept is None or kept[0] != one.file:
            kept = one.file, _summary(self.folder / f"{one.name}.json")
            self._rows[one.name] = kept
        return kept[1]


def _owner(file_name: str) -> str | None:
    """The episode of a JSON file's name, its own or a review's."""
    match = FILE_NAME.fullmatch(file_name)
    if match:
        return match["episode"]
    name = file_name.removesuffix(".json")
    return name if name != file_name and NAME.fullmatch(name) else None


def _key(name: str) -> tuple[int, str] | None:
    """Return the key that orders episodes by age; None for another file's name."""
    match = NAME.fullmatch(name) if len(name) <= MAX_NAME else None
    return (int(match[1]), name) if match else None


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0):
        raise ClueError(f"limit={text!r:.40}: want a whole number from 1 to {MAX_PAGE_SIZE}")
    return min(int(text), MAX_PAGE_SIZE)


def _answer(work: Callable[[], Response]) -> Response:
    """The answer of `work`, or its error as JSON."""
    try:
        return work()
    except NotThereError as error:
        return _error(error, 404)
    except ClueError as error:
        return _error(error, 400)


def _error(error: ClueError, status: int) -> JSONResponse:
    return JSONResponse({"error": str(error), "code": error.code}, status)


def _json(body: bytes) -> Any:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ClueError(f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ClueError("the body is not a JSON object")
    return values


# -------------------------------------------------------------------------------------------------
# A file's content for the page. Anything may be in it: each value is checked on the way out.


def _summary(path: Path) -> dict[str, Any]:
    try:
        kept = read_row(path, replies=False)["clue"]
    except EpisodeError as error:
        return {"outcome": "unreadable", "request": str(error), "stamp": 0.0, "questions": 0}
    turns = _turns(kept)
    return {
        "outcome": _text(kept.get("outcome")),
        "request": turns[0]["text"] if turns else "",
        "stamp": _number(kept.get("stamp")) or 0.0,
        "questions": sum(turn["speaker"] == "robot" for turn in turns),
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    ref, info, kept = row["ref_list"][0], row["image_info"], row["clue"]
    return {
        "width": info["width"],
        "height": info["height"],
        "box": fractions_of(ref.get("bbox")) if kept.get("outcome") == GROUNDED else None,
        "label": _text(ref.get("category")),
        "outcome": _text(kept.get("outcome")),
        "message": _text(kept.get("message")),
        "score": _number(kept.get("score")),
        "frame_id": _text(kept.get("frame_id")),
        "stamp": _number(kept.get("stamp")) or 0.0,
        "turns": _turns(kept),
        "replies": [
            {
                "probability": _number(reply.get("probability")),
                "threshold": _number(reply.get("threshold")),
                "attention": _map(reply.get("attention")),
                "candidates": list(_boxes(reply.get("candidates"))),
            }
            for reply in _objects(kept.get("replies"))
        ],
    }


def _turns(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "speaker": "robot" if turn.get("speaker") == "robot" else "user",
            "text": _text(turn.get("text")),
            "stamp": _number(turn.get("stamp")),
        }
        for turn in _objects(kept.get("turns"))
    ]


def _review_of(path: Path) -> tuple[Review | None, str]:
    """An episode's review, and a note if it is there and cannot be read."""
    try:
        return read_review(path), ""
    except EpisodeError as error:
        return None, str(error)


def _reviewed(review: Review | None, note: str) -> dict[str, Any]:
    verdict = UNREVIEWED if review is None else review.verdict
    return {
        "verdict": verdict,
        "review": None if review is None else asdict(review),
        "note": note,
    }


def _text(value: Any) -> str:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if type(value) not in (int, float) or not abs(value) < 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _map(value: Any) -> list[list[float]] | None:
    """An attention map: rows of equal length."""
    rows = value if isinstance(value, list) else []
    numbers = [[_number(item) for item in row] for row in rows if isinstance(row, list)]
    width = len(numbers[0]) if numbers else 0
    if not width or len(numbers) != len(rows) or any(len(row) != width for row in numbers):
        return None
    return [[0.0 if item is None else item for item in row] for row in numbers]


def _boxes(value: Any) -> Iterator[list[float]]:
    """Boxes in pixels."""
    for item in value if isinstance(value, list) else []:
        sides = [_number(side) for side in item] if isinstance(item, list) else []
        known = [side for side in sides if side is not None]
        if len(sides) == len(known) == 4:
            yield known
