# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Follows objects in the camera's pictures, in a thread of its own.

Each object that was found may be followed: the topic `tracked` says where it is in each frame that
the thread has time for. Only the newest frame waits, the others are dropped. An object that stays
lost is looked for with the dialogue that found it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clue_msgs.msg import TrackedObject

from clue_ros.dialogue.types import Box, Dialogue, Grounding
from clue_ros.errors import ClueError
from clue_ros.model.tracking import FlowTracker, Step, Tracker, box_of
from clue_ros.nodes import messages
from clue_ros.nodes.camera import Frame
from clue_ros.nodes.image_conversion import Rgb
from clue_ros.nodes.messages import Source

MAX_TRACKS = 16


class TooManyError(ClueError):
    """As many objects as can be are followed already."""

    code = "BUSY"


@dataclass
class Track:
    """One object that is followed.

    number: its id, from 1. dialogue: what was said about it, for looking again; None for a box that
    a client gave. lost_since: seconds of `time.monotonic`; None while it is seen.
    """

    number: int
    label: str
    tracker: Tracker
    dialogue_id: str = ""
    dialogue: Dialogue | None = None
    lost_since: float | None = None
    looks: bool = field(default=False)  # the model is looking for it


class Follower:
    """Follows objects; thread-safe.

    publish: sends one message. look_again: runs the model on a frame and a dialogue, and calls back
    with its reply, or with None where it failed. warn: logs a line. patience: gives the seconds
    that an object is lost before the model looks, and again between two looks; 0: it never does.
    masks: gives whether messages bring masks. make_tracker: makes the tracker of an object.
    """

    def __init__(
        self,
        publish: Callable[[TrackedObject], object],
        look_again: Callable[[Frame, Dialogue, Callable[[Any], None]], object],
        warn: Callable[[str], object],
        *,
        patience: Callable[[], float],
        masks: Callable[[], bool],
        make_tracker: Callable[[], Tracker] = FlowTracker,
    ) -> None:
        self._publish, self._look_again, self._warn = publish, look_again, warn
        self._patience, self._masks, self._make_tracker = patience, masks, make_tracker
        self._news = threading.Condition()
        self._tracks: dict[int, Track] = {}
        self._started = 0
        self._frame: Frame | None = None  # the newest one, which the thread has not taken yet
        self._offered: Any = None  # the message that was offered last
        self._thread: threading.Thread | None = None

    @property
    def numbers(self) -> list[int]:
        """The ids of the followed objects."""
        with self._news:
            return sorted(self._tracks)

    def start(
        self,
        frame: Frame,
        box: Box,
        label: str = "",
        dialogue_id: str = "",
        dialogue: Dialogue | None = None,
    ) -> int:
        """Follow the object in a box of a frame; return its id.

        Raises BadBoxError for a box outside of the frame, TooManyError beyond MAX_TRACKS.
        """
        tracker = self._make_tracker()
        tracker.start(frame.pixels(), box)
        with self._news:
            if len(self._tracks) >= MAX_TRACKS:
                raise TooManyError(f"{MAX_TRACKS} objects are followed already: stop one first")
            self._started += 1
            number = self._started
            self._tracks[number] = Track(number, label, tracker, dialogue_id, dialogue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
                self._thread.start()
        return number

    def offer(self, frame: Frame) -> None:
        """Hand over the camera's newest frame; the same one again changes nothing."""
        with self._news:
            if self._tracks and frame.message is not self._offered:
                self._frame, self._offered = frame, frame.message
                self._news.notify()

    def stop(self, number: int = 0) -> bool:
        """Follow an object no longer; 0: none at all. False if it was not followed."""
        with self._news:
            known = number == 0 or self._tracks.pop(number, None) is not None
            if number == 0:
                self._tracks.clear()
            self._news.notify()
            return known

    def _run(self) -> None:
        """Step through frames until nothing is followed."""
        while True:
            with self._news:
                while self._tracks and self._frame is None:
                    self._news.wait()
                frame, self._frame = self._frame, None
                tracks = list(self._tracks.values())
                if not tracks or frame is None:
                    self._thread = self._offered = None
                    return
            self._step(frame, tracks)

    def _step(self, frame: Frame, tracks: list[Track]) -> None:
        try:
            pixels = frame.pixels()
        except ClueError as error:
            self._warn(f"a frame is not followed: {error}")
            return
        source = Source(frame.header, pixels.shape[1], pixels.shape[0])
        locate = messages.locator(frame.depth, source.width, source.height)
        for track in tracks:
            try:
                step = track.tracker.step(pixels)
            except ClueError as error:
                self.stop(track.number)
                self._warn(f"track {track.number} ends: {error}")
                continue
            self._note(track, step, frame, pixels)
            found = messages.located(
                box_of(step.mask),
                track.label,
                step.score,
                step.mask if self._masks() else None,
                messages.no_depth if step.lost else locate,
            )
            with self._news:
                if track.number not in self._tracks:  # stopped meanwhile
                    continue
            self._publish(
                TrackedObject(
                    header=source.header,
                    track_id=track.number,
                    dialogue_id=track.dialogue_id,
                    lost=step.lost,
                    object=messages.object_msg(source, found),
                )
            )

    def _note(self, track: Track, step: Step, frame: Frame, pixels: Rgb) -> None:
        """Have the model look for an object that has been lost for a while."""
        now = time.monotonic()
        if not step.lost:
            track.lost_since = None
            return
        if track.lost_since is None:
            track.lost_since = now
        patience = self._patience()
        due = 0 < patience <= now - track.lost_since
        if not due or track.looks or track.dialogue is None:
            return
        track.looks = True

        def replied(reply: Any) -> None:
            track.looks, track.lost_since = False, now  # the next look is a while later
            if isinstance(reply, Grounding) and track.number in self.numbers:
                tracker = self._make_tracker()
                try:
                    tracker.start(pixels, reply.box)
                except ClueError as error:  # it would end the thread that runs the model
                    self._warn(f"track {track.number} stays lost: {error}")
                    return
                track.tracker, track.lost_since = tracker, None

        self._look_again(frame, track.dialogue, replied)
