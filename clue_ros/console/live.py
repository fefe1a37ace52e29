# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The state of the live page: kept for pages that join late, and sent to all open pages.

A slow page misses pictures and gets the newest state; nothing queues for it. A `Viewer` (one for
each open page) remembers which parts its page has not got yet, not their values.
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
from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.robot import Diagnostics, Option, Robot, ShownObject, Status, TaughtThing
from clue_ros.dialogue.types import Speaker
from clue_ros.images import decode_image

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

    def pixels(self) -> npt.NDArray[np.uint8]:
        """uint8 RGB (H, W, 3). Raises BadImageError for a JPEG that cannot be read."""
        image = self._image
        return decode_image(image, "the picture") if isinstance(image, bytes) else image

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
        self.id = secrets.token_hex(8)  # tells a browser whether its chat is of this page
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
        """Show the robot's state. A question stays open while it is waiting or thinking."""
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
        """A line of the chat that nobody said, such as which candidate was chosen."""
        self._append(self._chat, "chat", "turn", speaker="note", text=text, stamp=time.time())

    def show_question(self, question: ShownQuestion) -> None:
        """The open question; its candidates are numbered in the given order, from 1."""
        self._set_question(question)

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

    def show_taught(self, things: Sequence[TaughtThing] | None) -> None:
        """The objects that the robot was taught; None: it cannot be taught."""
        shown = (
            None
            if things is None
            else [
                {
                    "names": thing.names,
                    "examples": thing.examples,
                    "thumbnail": base64.b64encode(thing.thumbnail).decode("ascii"),
                }
                for thing in things
            ]
        )
        self._set("taught", things=shown)

    def show_diagnostics(self, diagnostics: Diagnostics) -> None:
        """The health of the nodes."""
        self._set("diagnostics", **vars(diagnostics))

    def show_photograph(self, name: str | None) -> None:
        """The name of the photograph that is looked at in place of the camera; None: the camera."""
        self._photograph = name
        self._set("photograph", name=name, camera=self._camera)

    def show_camera_name(self, name: str) -> None:
        """Show a name for the camera, such as its topic."""
        self._camera = name
        self.show_photograph(self._photograph)

    def show_notice(self, text: str) -> None:
        """Something that the operator should know now, such as why a command was refused."""
        self._append(self._notices, "notices", "notice", text=text)

    @property
    def question(self) -> tuple[int, ShownQuestion] | None:
        """The open question and its number, if there is one."""
        return self._question

    def numbered(self, text: str) -> int | None:
        """The candidate of the open question whose number a text says, counted from 0; or None."""
        asked = self._question
        return None if asked is None else asked[1].numbered(text)

    def has_candidate(self, number: int, index: int) -> bool:
        """True if this question is still open and has a candidate of this index, from 0."""
        asked = self._question
        return asked is not None and asked[0] == number and 0 <= index < len(asked[1].candidates)

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

    def _set_question(self, question: ShownQuestion | None) -> None:
        with self._lock:
            if question is None and self._question is None and "question" in self._parts:
                return
            number = self._next()
            self._question = None if question is None else (number, question)
        if question is None:
            self._set("question", number=number, text=None)
            return
        named = zip(question.candidates, question.names, strict=True)
        self._set(
            "question",
            number=number,
            text=question.text,
            confirm=question.confirm,
            candidates=[{**_object(shown), "name": name} for shown, name in named],
            others=[{"text": answer, "candidates": group} for answer, group in question.others],
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
    """One open page, and the parts of the state that it has not got yet (`LivePage.join`)."""

    def __init__(self, page: LivePage, wake: Callable[[], object]) -> None:
        self.wake = wake
        self._page = page
        self._missing = {*page._parts, "chat", "frame"}
        self._turn = 0  # number of the last line of the chat that it got
        self._notice = page._count
        self._unacknowledged: int | None = None  # number of the frame that the page still draws
        self._sent: deque[Frame] = deque(maxlen=2)  # frames: one may be on its way

    @property
    def is_ready(self) -> bool:
        """Whether the page has drawn the last picture that it got."""
        return self._unacknowledged is None

    def frame(self, number: int) -> Frame | None:
        """The picture of this number, if it is one of the two that the page got last."""
        return next((frame for frame in self._sent if frame.number == number), None)

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
                self._sent.append(frame)
            self._missing &= {"frame"} if frame is None else set()
        messages: list[str | bytes] = [_json(part) for part in (*turns, *parts, *notices)]
        return messages if frame is None else [*messages, frame.message()]


def answer(page: LivePage, robot: Robot, text: str) -> None:
    """Tell the robot a person's words, or the candidate whose number on the page they say."""
    index = page.numbered(text)
    if index is None:
        robot.say(text)
    else:
        choose(page, robot, index)


def choose(page: LivePage, robot: Robot, index: int) -> None:
    """Tell the robot the candidate that was chosen, counted from 0; the chat shows its number."""
    page.show_note(f"You chose {index + 1}.")
    robot.choose(index)


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
    """Return None for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


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
