"""The gate of the perception node: one request at a time, and none unless the node is active."""

from __future__ import annotations

import threading
from collections.abc import Callable

from clue_ros.dialogue import clean_text
from clue_ros.errors import ClueError
from clue_ros.nodes.camera import Frame
from clue_ros.nodes.conversation import Outcome
from clue_ros.nodes.session import Limits, Session

ADVICE = "configure and activate it first"


class Gate:
    """Holds the lifecycle state's label and the open session; thread-safe.

    `newest` gives the camera's newest frame or an error's name and message; `make` makes a session.
    """

    def __init__(
        self,
        newest: Callable[[], Frame | tuple[str, str]],
        make: Callable[[str, str, Frame, Limits], Session],
    ) -> None:
        self._newest, self._make = newest, make
        self._lock = threading.Lock()
        self._state = "unconfigured"
        self._session: Session | None = None

    @property
    def state(self) -> str:
        """The label of the node's lifecycle state."""
        return self._state

    @property
    def session(self) -> Session | None:
        """The open session."""
        return self._session

    def move(self, state: str) -> None:
        """Enter a lifecycle state; leaving "active" ends the open session with INACTIVE."""
        with self._lock:
            self._state = state
            session = self._session
        if session is not None and state != "active":
            session.stop(Outcome("INACTIVE", f"perception became {state} during the request"))

    def open(
        self, dialogue_id: str, text: str, given: Frame | None, limits: Limits
    ) -> Session | Outcome:
        """Open the session, or say why not. Who gets a session must call `close`.

        `given`: the request's own image; None: the camera's newest one.
        """
        with self._lock:
            if self._state != "active":
                advice = "it loads the model" if self._state == "configuring" else ADVICE
                return Outcome("INACTIVE", f"perception is {self._state}: {advice}")
            if self._session is not None:
                return Outcome("BUSY", f"dialogue {self._session.id} is open: wait, or cancel it")
            try:
                clean_text(text)
                frame = given or self._newest()
                if not isinstance(frame, Frame):
                    return Outcome(*frame)
                self._session = self._make(dialogue_id, text, frame, limits)
            except ClueError as error:
                return Outcome(error.code, str(error))
            return self._session

    def close(self, session: Session) -> None:
        """Let the next request in."""
        with self._lock:
            if self._session is session:
                self._session = None
