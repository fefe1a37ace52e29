# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The times at which the robot speaks, so that its voice is not recognized as a person's.

Times are seconds of one clock, in the nodes the ROS time.
"""

from __future__ import annotations

import re
import threading
from collections import deque

KEPT = 8  # past utterances; sound from before the eighth never arrives
LONGEST = 600.0  # seconds; limits the muting when a synthesizer dies in a sentence
OWN_WORDS = 0.7  # smallest fraction of the robot's own words that makes a phrase an echo


class OwnVoice:
    """The robot's latest utterances and their times. Thread-safe."""

    def __init__(self, tail: float) -> None:
        """`tail`: seconds after its voice that still count, for the room's echo and the buffers."""
        self.tail = tail
        self._spoken: deque[tuple[float, float, str]] = deque(maxlen=KEPT)  # start, end, text
        self._lock = threading.Lock()

    def began(self, start: float, seconds: float, text: str = "") -> None:
        """The robot speaks from `start` on, for `seconds` unless `ended` says otherwise."""
        with self._lock:
            if self._spoken and self._spoken[-1][1] > start:  # it goes on with another sentence
                before, _, said = self._spoken.pop()
                self._spoken.append((before, start, said))
            self._spoken.append((start, start + min(max(seconds, 0.0), LONGEST), text))

    def ended(self, at: float) -> None:
        """The robot is silent from `at` on."""
        with self._lock:
            if self._spoken:
                start, end, text = self._spoken.pop()
                self._spoken.append((start, min(end, max(at, start)), text))

    def muted(self, start: float, end: float) -> bool:
        """Whether the sound from `start` to `end` may contain the robot's voice."""
        with self._lock:
            return bool(self._texts(start, end))

    def is_echo(self, text: str, start: float, end: float) -> bool:
        """Whether a phrase heard then consists mostly of words that the robot was saying then."""
        heard = _words(text)
        with self._lock:
            said = {word for spoken in self._texts(start, end) for word in _words(spoken)}
        return bool(heard) and sum(w in said for w in heard) >= OWN_WORDS * len(heard)

    def _texts(self, start: float, end: float) -> list[str]:
        return [text for a, b, text in self._spoken if a < end and start < b + self.tail]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
