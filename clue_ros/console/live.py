# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What the live page shows: kept for pages that join late, and sent to all that are open.

A page that is slow misses pictures and gets the newest state, and nothing queues for it: a `Viewer`
(one for each open page) remembers which parts its page has not got yet, not their values.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.console import SENT_SIDE
from clue_ros.console.choosing import ShownQuestion, color_of, shown_question
from clue_ros.console.robot import Diagnostics, Option, ShownObject, Status
from clue_ros.dialogue.types import Speaker

JPEG_QUALITY = 85
MAX_TURNS = 300  # lines of the chat that are kept
MAX_NOTICES = 20
_ENDS_QUESTION = ("inactive", "idle", "looking", "ended", "lost")


class Frame:
    """A picture of the camera, encoded when the first page wants it."""

    def __init__(
        self, number: int, image: npt.NDArray[np.uint8] | bytes, size: tuple[int, int]
    ) -> None:
        self.number, self.size = number, size
        self._image = image
        self._message: bytes | None = None
        self._lock = threading.Lock()

    def pixels(self) -> npt.NDArray[np.uint8] | None:
        """uint8 RGB (H, W, 3); None for a JPEG that cannot be read."""
        if not isinstance(self._image, bytes):
            return self._image
        bgr = cv2.imdecode(np.frombuffer(self._image, np.uint8), cv2.IMREAD_COLOR)
        return None if bgr is None else np.ascontiguousarray(bgr[:, :, ::-1], np.uint8)

    def message(self) -> bytes:
        """Its number, width and height as little-endian uint32, then a JPEG of up to SENT_SIDE."""
        with self._lock:
            if self._message is None:
                head = np.array([self.number, *self.size], "<u4").tobytes()
                image = self._image
                self._message = head + (image if isinstance(image, bytes) else _jpeg(image))
            return self._message


class LivePage:
    """The state of the live page. Its methods never block and may be called from any thread."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)  # so that a browser knows whether its chat is of this page
        self._lock = threading.Lock()
        self._parts: dict[str, dict[str, Any]] = {}  # the newest of each kind, as it is sent
        self._chat: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MAX_TURNS)
        self._notices: deque[tuple[int, dict[str, Any]]] = deque(maxlen=MAX_NOTICES)
        self._count = 0  # of turns, notices, questions and frames so far
        self._frame: Frame | None = None
        self._question: tuple[int, ShownQuestion] | None = None
        self._viewers: set[Viewer] = set()
        self._photograph: str | None = None
        self._camera = "camera"
        self.show_status(Status("lost", message="no robot has reported yet"))

    def show_frame(
        self, image: npt.NDArray[np.uint8] | bytes, size: tuple[int, int] | None = None
    ) -> None:
        """The newest picture: uint8 RGB (H, W, 3), or the bytes of a JPEG with its (W, H).

        Only the newest is kept: one that comes while the page is busy replaces the one before. An
        array must not be written to afterwards.
        """
        if isinstance(image, bytes):
            if size is None:
                raise ValueError("a JPEG needs its size, (width, height)")
        else:
            size = (int(image.shape[1]), int(image.shape[0]))
        with self._lock:
            self._frame = Frame(self._next(), image, size)
        self._wake("frame")

    def wants_frame(self) -> bool:
        """Whether a page is open and ready for the next picture; else it need not be converted."""
        with self._lock:
            return any(viewer.is_ready for viewer in self._viewers)

    def show_status(self, status: Status) -> None:
        """What the robot is doing now. A question stays open while it is waiting or thinking."""
        if status.state in _ENDS_QUESTION:
            self.end_question()
        self._set(
            "status",
            state=status.state,
            dialogue_id=status.dialogue_id,
            error=status.error,
            message=status.message,
            seconds_left=status.seconds_left,
            until=None if status.seconds_left is None else time.time() + status.seconds_left,
        )

    def show_turn(self, speaker: Speaker, text: str, stamp: float) -> None:
        """A line of the chat; stamp in seconds since the epoch."""
        self._append(self._chat, "chat", "turn", speaker=speaker, text=text, stamp=stamp)

    def show_note(self, text: str) -> None:
        """A line of the chat that nobody said, such as which candidate was clicked."""
        self._append(self._chat, "chat", "turn", speaker="note", text=text, stamp=time.time())

    def show_question(
        self, text: str, candidates: Sequence[ShownObject], suggested_answers: Sequence[str]
    ) -> None:
        """The open question; its candidates are numbered and coloured in the given order."""
        frame = self._frame
        pixels = None if frame is None or not candidates else frame.pixels()
        size = _size_of(candidates) if frame is None else frame.size
        self._set_question(shown_question(text, candidates, suggested_answers, pixels, size))

    def show_grounding(self, found: ShownObject | None) -> None:
        """The object that the last dialogue ended with; None: none."""
        self._set("grounding", object=None if found is None else _object(found))

    def show_attention(self, attention: npt.NDArray[np.float32] | None) -> None:
        """The attention map, float32 (rows, columns) in 0..1 over the whole image; None: none."""
        if attention is None:
            self._set("attention", values=None)
            return
        levels = np.clip(np.nan_to_num(attention) * 255, 0, 255).astype(np.uint8)
        rows, columns = levels.shape
        values = base64.b64encode(levels.tobytes()).decode("ascii")
        self._set("attention", rows=rows, columns=columns, values=values)

    def end_question(self) -> None:
        """Remove the open question, if there is one."""
        self._set_question(None)

    def show_options(self, options: Sequence[Option]) -> None:
        """The settings, with their values now."""
        self._set("options", options=[vars(option) for option in options])

    def show_diagnostics(self, diagnostics: Diagnostics) -> None:
        """The health of the nodes."""
        self._set("diagnostics", **vars(diagnostics))

    def show_photograph(self, name: str | None) -> None:
        """The name of the photograph that is looked at in place of the camera; None: the camera."""
        self._photograph = name
        self._set("photograph", name=name, camera=self._camera)

    def show_camera_name(self, name: str) -> None:
        """What the page calls the camera, such as its topic."""
        self._camera = name
        self.show_photograph(self._photograph)

    def show_notice(self, text: str) -> None:
        """Something that the operator should know now, such as why a command was refused."""
        self._append(self._notices, "notices", "notice", text=text)

    @property
    def question(self) -> tuple[int, ShownQuestion] | None:
        """The open question and its number, if there is one."""
        return self._question

    def spoken_as(self, text: str) -> str:
        """What to tell the robot for a person's words.

        The same, or what names the candidate that the page shows in the colour or with the number
        that the words say ("the blue one", "number 2"). A note in the chat says so.
        """
        asked = self._question
        index = None if asked is None else asked[1].meant(text)
        if asked is None or index is None:
            return text
        words = asked[1].words_for(index)
        self._note_choice(index, words, f"“{' '.join(text.split())}” is")
        return words

    def choose(self, number: int, index: int) -> str | None:
        """What to tell the robot for a click on a candidate, counted from 0.

        None where the question of this number is no longer open, or has no such candidate.
        """
        asked = self._question
        if asked is None or asked[0] != number or not 0 <= index < len(asked[1].candidates):
            return None
        words = asked[1].words_for(index)
        self._note_choice(index, words, "You chose")
        return words

    def join(self, wake: Callable[[], object]) -> Viewer:
        """A page was opened. `wake` is called, from any thread, when there is something to take."""
        with self._lock:
            viewer = Viewer(self, wake)
            self._viewers.add(viewer)
            return viewer

    def leave(self, viewer: Viewer) -> None:
        """A page was closed."""
        with self._lock:
            self._viewers.discard(viewer)

    def _note_choice(self, index: int, words: str, how: str) -> None:
        name = " ".join(filter(None, (str(index + 1), color_of(index)[0])))
        self.show_note(f"{how} {name}, in words: “{words}”")

    def _set_question(self, question: ShownQuestion | None) -> None:
        with self._lock:
            if question is None and self._question is None and "question" in self._parts:
                return
            number = self._next()
            self._question = None if question is None else (number, question)
        if question is None:
            self._set("question", number=number, text=None)
            return
        candidates = [
            {**_object(shown), "color": color_of(n), "says": question.words_for(n)}
            for n, shown in enumerate(question.candidates)
        ]
        self._set(
            "question",
            number=number,
            text=question.text,
            candidates=candidates,
            suggested_answers=list(question.suggested_answers),
        )

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _set(self, kind: str, **content: Any) -> None:
        with self._lock:
            self._parts[kind] = {"type": kind, **content}
        self._wake(kind)

    def _append(
        self, to: deque[tuple[int, dict[str, Any]]], part: str, kind: str, **content: Any
    ) -> None:
        with self._lock:
            number = self._next()
            to.append((number, {"type": kind, "number": number, **content}))
        self._wake(part)

    def _wake(self, part: str) -> None:
        with self._lock:
            viewers = tuple(self._viewers)
            for viewer in viewers:
                viewer.note(part)
        for viewer in viewers:
            viewer.wake()


class Viewer:
    """One open page: what of the state it has not got yet. Made by `LivePage.join`."""

    def __init__(self, page: LivePage, wake: Callable[[], object]) -> None:
        self.wake = wake
        self._page = page
        self._missing = {*page._parts, "chat", "frame"}
        self._turn = 0  # number of the last line of the chat that it got
        self._notice = page._count
        self._unacknowledged: int | None = None  # number of the frame that the page still draws

    @property
    def is_ready(self) -> bool:
        """Whether the page has drawn the last picture that it got."""
        return self._unacknowledged is None

    def note(self, part: str) -> None:
        """A part has changed. Under the page's lock."""
        self._missing.add(part)

    def acknowledge(self, number: int) -> None:
        """The page has drawn this picture, and can take the next one."""
        with self._page._lock:
            if self._unacknowledged == number:
                self._unacknowledged = None
        self.wake()

    def take(self) -> list[str | bytes]:
        """The messages that bring the page up to date; a picture, if it can take one, is last."""
        page = self._page
        with page._lock:
            parts = [page._parts[kind] for kind in page._parts if kind in self._missing]
            turns = [turn for number, turn in page._chat if number > self._turn]
            notices = [notice for number, notice in page._notices if number > self._notice]
            self._turn = turns[-1]["number"] if turns else self._turn
            self._notice = notices[-1]["number"] if notices else self._notice
            frame = page._frame if "frame" in self._missing and self.is_ready else None
            if frame is not None:
                self._unacknowledged = frame.number
            self._missing &= {"frame"} if frame is None else set()
        messages: list[str | bytes] = [_json(part) for part in (*turns, *parts, *notices)]
        return messages if frame is None else [*messages, frame.message()]


def _object(shown: ShownObject) -> dict[str, Any]:
    return {
        "box": shown.box.as_list(),
        "label": shown.label,
        "score": shown.score,
        "position": shown.position,
        "frame_id": shown.frame_id,
        "no_pose_reason": shown.no_pose_reason,
    }


def _json(message: dict[str, Any]) -> str:
    return json.dumps(_finite(message))


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _size_of(candidates: Sequence[ShownObject]) -> tuple[int, int]:
    """The least size of an image that has these boxes."""
    width = max((c.box.x_max for c in candidates), default=1.0)
    height = max((c.box.y_max for c in candidates), default=1.0)
    return max(1, math.ceil(width)), max(1, math.ceil(height))


def _jpeg(image: npt.NDArray[np.uint8]) -> bytes:
    scale = SENT_SIDE / max(image.shape[:2])
    if scale < 1:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise RuntimeError("OpenCV could not encode a picture as JPEG")
    return data.tobytes()
