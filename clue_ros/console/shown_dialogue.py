# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The dialogue on the live page, although some messages are missing or late.

A topic of states keeps its newest message alone: a busy page can miss the first of a dialogue and
the last of the one before. So each state is compared with the dialogue that is shown.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from clue_ros.console.live import LivePage
from clue_ros.console.robot import ShownObject, Status
from clue_ros.dialogue.types import Speaker

LOST = Status("lost", message="Perception sends nothing. Is it running? The page waits for it.")
BACK = Status("inactive", message="Perception is there again.")
OPEN = ("looking", "thinking", "waiting")  # states of an open dialogue


class ShownDialogue:
    """The dialogue on a page. A new request removes what the page shows of the one before."""

    def __init__(self, page: LivePage) -> None:
        self.page = page
        self.status = LOST
        self._said = ""  # a person's last words in the chat
        self._request = ("", "")  # dialogue id and words of the last request
        self._over = ""  # the last dialogue that another request has followed
        self._grounded = ""  # the dialogue whose object is shown
        self._map_is_new = False  # it came after the last state
        page.show_status(LOST)

    @property
    def is_open(self) -> bool:
        """Whether a dialogue goes on, which takes a person's words."""
        return self.status.state in OPEN

    @property
    def is_lost(self) -> bool:
        """Whether perception sends nothing."""
        return self.status.state == "lost"

    def lose(self) -> None:
        """Perception sends nothing any more."""
        self._set_status(LOST)

    def find(self) -> None:
        """Perception is there again: its state comes in a moment."""
        self._set_status(BACK)

    def show_turn(self, speaker: Speaker, text: str) -> None:
        """Somebody said this now."""
        if speaker == "user":
            self._said = text.strip()
        self.page.show_turn(speaker, text, time.time())

    def show_status(self, status: Status, request: str) -> None:
        """A state of perception; request: the words that the dialogue began with, or empty.

        A request that nobody said on the page, such as a caller's of the action, goes to the chat.
        """
        known = status.state == "looking" or self.status.state not in ("lost", "inactive")
        if self._begins(status, request):
            self._remove_last(status, request)
            if known and request.strip() != self._said:
                self.show_turn("user", request)
        self._map_is_new = False
        self._set_status(status)

    def show_attention(self, attention: npt.NDArray[np.float32]) -> None:
        """The attention map of the open dialogue, float32 (rows, columns) in 0..1.

        It names no dialogue, and comes after "thinking".
        """
        self._map_is_new = True
        self.page.show_attention(attention)

    def show_grounding(self, dialogue_id: str, found: ShownObject) -> None:
        """The object of a dialogue; a late one, when the next dialogue has begun, is not shown."""
        if dialogue_id and dialogue_id == self._over:
            return
        self._grounded = dialogue_id
        self.page.show_grounding(found)

    def _set_status(self, status: Status) -> None:
        self.status = status
        self.page.show_status(status)

    def _begins(self, status: Status, request: str) -> bool:
        """Whether this is the first state that came of its request.

        Requests of the service `ground` have no dialogue id.
        """
        if status.state == "looking":
            return True
        if not status.dialogue_id and not self.is_open:
            return bool(request)
        return (status.dialogue_id, request) not in (self._request, ("", ""))

    def _remove_last(self, status: Status, request: str) -> None:
        """Remove the marks of earlier dialogues from the picture: one begins with this state."""
        if self._request[0] != status.dialogue_id:
            self._over = self._request[0]
        self._request = (status.dialogue_id, request)
        self.page.end_question()
        if not status.dialogue_id or self._grounded != status.dialogue_id:
            self.page.show_grounding(None)
        if status.state == "looking" or not self._map_is_new:
            self.page.show_attention(None)
