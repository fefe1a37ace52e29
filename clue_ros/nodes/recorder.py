# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Records every dialogue of a robot as an episode on disk (format: clue_ros.dialogue.episodes).

An episode's file is replaced as a whole after each turn. A crash during a dialogue loses at most
its last turn; a crash during a write leaves the file as it was before.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from clue_msgs.msg import ClarificationQuestion
from PIL import Image

from clue_ros.dialogue.conversation import Outcome
from clue_ros.dialogue.episodes import GROUNDED, NAME, Episode, episode_files, episode_row
from clue_ros.dialogue.reviews import FILE_NAME, review_path
from clue_ros.dialogue.types import Grounding, Question
from clue_ros.errors import ClueError
from clue_ros.files import FolderLock, open_private, replace_file, temporary_of
from clue_ros.nodes import messages
from clue_ros.nodes.dialogue_session import Listener, Session
from clue_ros.nodes.inference_worker import Worker

RESERVE = 200_000_000  # bytes of the disk that stay free
MAX_OPEN = 8  # episodes that may still change: one may begin before the end of another is saved
PATIENCE = 5.0  # seconds that a dialogue waits at most for a slow disk
_TEMPORARY = re.compile(rf"\.{NAME.pattern}\.(review\.json|json|png)\.tmp")


class RecordError(ClueError):
    """Nothing can be recorded there."""

    code = "BAD_FOLDER"


class Recorder:
    """Writes episodes to `folder`, at most `limit` bytes: the oldest are removed for new ones.

    After a failed write it calls `warn` once, until writing works again; the dialogue goes on. Only
    files named as episodes are ever replaced or removed; the review of a removed one goes too.
    Links are not followed out of the folder. Thread-safe; only their owner can read the files
    (0600).

    Raises (on construction): RecordError where the folder cannot be made or written, or another
    process records there.
    """

    def __init__(self, folder: str | Path, limit: int, warn: Callable[[str], object]) -> None:
        self.folder, self._held = _usable(Path(folder).expanduser())  # absolute
        self.trouble = ""  # why the last episode could not be written, or ""
        self._limit, self._warn = limit, warn
        self._open: dict[str, str] = {}  # file names of the newest episodes, by their ids
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._worker = Worker("recorder")

    def save(self, episode: Episode) -> None:
        """Write the episode as it is now, in a thread of its own.

        Waits until the state saved before is on the disk, so a crash loses one turn at most.
        """
        with self._lock:
            if not self.flush():
                self._tell(f"writing takes over {PATIENCE:g} s; a turn is left out")
                return
            self._idle.clear()
            self._worker.submit(lambda: self._write(episode), self._written)

    def flush(self, seconds: float = PATIENCE) -> bool:
        """Wait until everything is on the disk; False if it is not in time."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """Write the queued episodes, and stop."""
        self._worker.stop(PATIENCE)
        self._held.release()

    def _written(self, _result: object, error: BaseException | None) -> None:
        if error is None:
            self.trouble = ""
        else:
            self._tell(" ".join(str(error).split()) or type(error).__name__)
        self._idle.set()

    def _tell(self, reason: str) -> None:
        first, self.trouble = not self.trouble, reason
        if first:
            self._warn(f"this dialogue is not recorded in {self.folder}: {reason}")

    def _write(self, episode: Episode) -> None:
        name = self._open.get(episode.id)
        if name is None:
            name = self._next_name(episode.id)
            picture = io.BytesIO()
            Image.fromarray(episode.image).save(picture, "PNG", compress_level=1)
            self._make_room(picture.getbuffer().nbytes)
            replace_file(self.folder / f"{name}.png", picture.getvalue())
            self._open[episode.id] = name
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
        row = episode_row(episode, f"{name}.png")
        text = json.dumps([row], ensure_ascii=False, allow_nan=False)
        replace_file(self.folder / f"{name}.json", f"{text}\n".encode())

    def _next_name(self, episode_id: str) -> str:
        """Return the next number, whatever the clock says, and a part of the dialogue's id."""
        matches = (NAME.fullmatch(path.stem) for path in self.folder.iterdir())
        newest = max((int(match[1]) for match in matches if match), default=0)
        tail = "".join(c for c in episode_id if c.isascii() and c.isalnum())[:8] or "0"
        return f"episode-{newest + 1:06d}-{tail}"

    def _make_room(self, needed: int) -> None:
        """Remove the oldest episodes until `needed` more bytes are within the limit.

        Raises OSError where that cannot be, or the disk is nearly full.
        """
        if needed > self._limit:
            raise OSError(f"its picture has {needed / 1e6:.0f} MB, over record_limit")
        # A picture without its JSON file is half an episode; the newest may still be in the making.
        pictures = [path for path in self.folder.glob("episode-*.png") if NAME.fullmatch(path.stem)]
        for path in sorted(pictures)[:-1]:
            if not path.with_suffix(".json").exists():
                path.unlink(missing_ok=True)
        for path in self.folder.glob("episode-*.review.json"):
            match = FILE_NAME.fullmatch(path.name)
            if match and not path.with_name(f"{match['episode']}.json").exists():
                path.unlink(missing_ok=True)
        files = episode_files(self.folder)
        sizes = {path: sum(map(_size, _files_of(path))) for path in files}
        total = sum(sizes.values())
        for path in files:
            if total + needed <= self._limit:
                break
            for file in _files_of(path):
                file.unlink(missing_ok=True)
            total -= sizes[path]
            self._open = {i: name for i, name in self._open.items() if name != path.stem}
        free = shutil.disk_usage(self.folder).free
        if free < RESERVE:
            raise OSError(f"only {free / 1e6:.0f} MB are free on its disk")


def _usable(folder: Path) -> tuple[Path, FolderLock]:
    """Create the folder if need be, hold it, and try to write in it. Raises RecordError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder.resolve(strict=True)
        held = FolderLock(folder)
        probe = temporary_of(folder / "episode-000000-0.json")
        with open(probe, "wb", opener=open_private):
            pass
        probe.unlink()
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):  # of a process that was killed
                path.unlink(missing_ok=True)
    except BlockingIOError as error:
        raise RecordError(
            f"record: another process records in {folder}: give each robot a folder of its own"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise RecordError(f"record: nothing can be written in {folder}: {error}") from error
    return folder, held


def _files_of(path: Path) -> tuple[Path, ...]:
    """The files of an episode, from its JSON file; the review goes last, if there is one."""
    return path, path.with_suffix(".png"), review_path(path)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


class DialogueRecorder(Listener):
    """Saves one dialogue at each turn; without a recorder it does nothing.

    run: runs what may wait for a slow disk, elsewhere than in the executor's thread.
    """

    def __init__(
        self,
        recorder: Recorder | None,
        run: Callable[[Callable[[], None]], object] = lambda save: save(),
    ) -> None:
        self._recorder, self._run = recorder, run
        self._view: Any = None  # of the episode's picture
        self._header: Any = None
        self._replies: list[Question | Grounding] = []

    def thinking(self, session: Session) -> None:
        """Save the person's turn."""
        self._save(session)

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """Keep the reply for the next save, if it is about the episode's picture."""
        if self._is_of(session):
            self._replies.append(reply)

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """Save the robot's question."""
        self._save(session)

    def ignored(self, session: Session, text: str) -> None:
        """Save words that were not for the robot."""
        self._save(session)

    def ended(self, session: Session, outcome: Outcome) -> None:
        """Save the end; a box in a newer picture is not one of the episode's."""
        if outcome.grounding is not None and not self._is_of(session):
            outcome = Outcome("STALE_IMAGE", "the object was found in a newer picture")
        code = GROUNDED if outcome.grounding is not None else outcome.code
        self._save(session, outcome=code, message=outcome.message, grounding=outcome.grounding)

    def _is_of(self, session: Session) -> bool:
        """Whether the dialogue is still about the episode's picture."""
        if self._view is None:
            self._view, self._header = session.view, session.source.header
        return session.view is self._view

    def _save(self, session: Session, **ends: Any) -> None:
        self._is_of(session)
        if self._recorder is None or self._view is None:  # no picture: no episode
            return
        header = self._header
        episode = Episode(
            session.id,
            self._view.image,
            tuple(session.conversation.spoken),
            tuple(self._replies),
            frame_id=header.frame_id,
            stamp=messages.seconds(header.stamp),
            heard=tuple(map(asdict, session.conversation.heard)),
            **ends,
        )
        self._run(partial(self._recorder.save, episode))
