"""What perception keeps of its dialogues: episodes on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clue_ros.data.episodes import GROUNDED, Episode
from clue_ros.data.recorder import Recorder
from clue_ros.dialogue import Grounding, Question
from clue_ros.nodes import messages
from clue_ros.nodes.conversation import Outcome
from clue_ros.nodes.session import Listener, Session

MEGABYTE = 1_000_000


class Recording:
    """Keeps each dialogue as an episode (clue_ros.data.episodes); nothing without a folder.

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
