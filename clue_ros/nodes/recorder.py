"""Writes episodes while they happen: one file at a time replaced whole, and never over the limit.

A crash in the middle of a dialogue leaves its episode as it was after the last turn but one at
worst; a crash in the middle of a write leaves the file that was there before.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from clue_ros.dialogue.conversation import Outcome
from clue_ros.dialogue.episodes import GROUNDED, NAME, Episode, episode_files, episode_row
from clue_ros.dialogue.types import Grounding, Question
from clue_ros.errors import ClueError
from clue_ros.nodes import messages
from clue_ros.nodes.dialogue_session import Listener, Session

RESERVE = 200_000_000  # bytes of the disk that are left to others
MAX_OPEN = 8  # episodes that may still change: one may begin before the end of another is saved
PATIENCE = 5.0  # seconds that a dialogue waits at most for a slow disk
_TEMPORARY = re.compile(rf"\.{NAME.pattern}\.(json|png)\.tmp")


class RecordError(ClueError):
    """Nothing can be recorded there."""

    code = "BAD_FOLDER"


class Recorder:
    """Keeps dialogues in `folder`, at most `limit` bytes of them: the oldest ones make room.

    What cannot be written is told to `warn`, once until writing works again, and the dialogue goes
    on without. Only files named as episodes are ever replaced or removed, and links are not
    followed out of the folder. Thread-safe; files are for their owner only (0600).

    Raises (on construction): RecordError where the folder cannot be made or written.
    """

    def __init__(self, folder: str | Path, limit: int, warn: Callable[[str], object]) -> None:
        self._folder = _usable(Path(folder).expanduser())
        self._limit, self._warn = limit, warn
        self._trouble = ""
        self._open: dict[str, str] = {}  # file names of the episodes begun last, by their ids
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Episode | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def folder(self) -> Path:
        """Where the episodes are, an absolute path."""
        return self._folder

    @property
    def trouble(self) -> str:
        """Why the last episode could not be written, or ""."""
        return self._trouble

    def save(self, episode: Episode) -> None:
        """Write the episode as it is now, in a thread of its own.

        Waits until the state saved before is on the disk, so a crash loses one turn at most.
        """
        with self._lock:
            if not self.flush():
                self._tell(f"writing takes over {PATIENCE:g} s; a turn is left out")
                return
            self._idle.clear()
            self._jobs.put(episode)

    def flush(self, seconds: float = PATIENCE) -> bool:
        """Wait until everything is on the disk; False if it is not in time."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """Write what is left, and stop."""
        self._jobs.put(None)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while (episode := self._jobs.get()) is not None:
            try:
                self._write(episode)
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, the robot goes on without
                self._tell(" ".join(str(error).split()) or type(error).__name__)
            del episode  # keep no image alive while idle
            self._idle.set()

    def _tell(self, reason: str) -> None:
        first, self._trouble = not self._trouble, reason
        if first:
            self._warn(f"this dialogue is not recorded in {self._folder}: {reason}")

    def _write(self, episode: Episode) -> None:
        name = self._open.get(episode.id)
        if name is None:
            name = self._next_name(episode.id)
            picture = io.BytesIO()
            Image.fromarray(episode.image).save(picture, "PNG", compress_level=1)
            self._make_room(picture.getbuffer().nbytes)
            _replace(self._folder / f"{name}.png", picture.getvalue())
            self._open[episode.id] = name
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        row = episode_row(episode, f"{name}.png")
        text = json.dumps([row], ensure_ascii=False, allow_nan=False)
        _replace(self._folder / f"{name}.json", f"{text}\n".encode())

    def _next_name(self, episode_id: str) -> str:
        """A number that no clock can set back, and a piece of the dialogue's id."""
        numbers = [0]
        for path in self._folder.iterdir():
            match = NAME.fullmatch(path.stem)
            numbers.append(int(match[1]) if match else 0)
        tail = "".join(c for c in episode_id if c.isascii() and c.isalnum())[:8] or "0"
        return f"episode-{max(numbers) + 1:06d}-{tail}"

    def _make_room(self, needed: int) -> None:
        """Remove the oldest episodes until `needed` more bytes are within the limit.

        Raises OSError where that cannot be, or the disk is nearly full.
        """
        if needed > self._limit:
            raise OSError(f"its picture has {needed / 1e6:.0f} MB, over record_limit")
        _remove_halves(self._folder)
        files = episode_files(self._folder)
        sizes = {path: _size(path) + _size(path.with_suffix(".png")) for path in files}
        total = sum(sizes.values())
        for path in files:
            if total + needed <= self._limit:
                break
            for file in (path, path.with_suffix(".png")):
                file.unlink(missing_ok=True)
            total -= sizes[path]
            self._open = {i: name for i, name in self._open.items() if name != path.stem}
        free = shutil.disk_usage(self._folder).free
        if free < RESERVE:
            raise OSError(f"only {free / 1e6:.0f} MB are free on its disk")


def _usable(folder: Path) -> Path:
    """The folder, made if need be and tried out. Raises RecordError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder.resolve(strict=True)
        probe = folder / ".episode-000000-0.json.tmp"
        with open(probe, "wb", opener=_private):
            pass
        probe.unlink()
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):  # of a process that was killed
                path.unlink(missing_ok=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise RecordError(f"record: nothing can be written in {folder}: {error}") from error
    return folder


def _remove_halves(folder: Path) -> None:
    """Pictures whose JSON file was never written, but for the newest, which may be being made."""
    pictures = [path for path in folder.glob("episode-*.png") if NAME.fullmatch(path.stem)]
    for path in sorted(pictures)[:-1]:
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash at any moment, finds the old or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


# -------------------------------------------------------------------------------------------------
# What perception keeps of its dialogues: episodes on disk.

MEGABYTE = 1_000_000


class Recording:
    """Keeps each dialogue as an episode (clue_ros.lab.data.episodes); nothing without a folder.

    Raises (on construction): RecordError where the folder cannot be written.
    """

    def __init__(self, folder: str, limit_mb: float, warn: Callable[[str], object]) -> None:
        self._recorder = Recorder(folder, int(limit_mb * MEGABYTE), warn) if folder else None

    @property
    def folder(self) -> str:
        """Where the episodes are, or ""."""
        return "" if self._recorder is None else str(self._recorder.folder)

    @property
    def trouble(self) -> str:
        """Why nothing can be written at present, or ""."""
        return "" if self._recorder is None else self._recorder.trouble

    def dialogue(self, session: Session) -> Kept:
        """Begin to keep a dialogue."""
        return Kept(self._recorder, session)

    def close(self) -> None:
        """Write what is left."""
        if self._recorder is not None:
            self._recorder.close()


class Kept:
    """One dialogue being kept; `listener` saves it at each turn."""

    def __init__(self, recorder: Recorder | None, session: Session) -> None:
        self._recorder, self._session = recorder, session
        self._replies: list[Question | Grounding] = []
        self.listener = Listener(
            thinking=self._save,
            replied=self._replies.append,
            asked=lambda _question: self._save(),
        )

    def end(self, outcome: Outcome) -> None:
        """Save how it ended."""
        code = GROUNDED if outcome.grounding is not None else outcome.code
        self._save(outcome=code, message=outcome.message, grounding=outcome.grounding)

    def _save(self, **ends: Any) -> None:
        session = self._session
        if self._recorder is None or session.view is None:  # no picture: nothing to learn from
            return
        header = session.source.header
        self._recorder.save(
            Episode(
                session.id,
                session.view.image,
                tuple(session.conversation.spoken),
                tuple(self._replies),
                frame_id=header.frame_id,
                stamp=messages.seconds(header.stamp),
                **ends,
            )
        )
