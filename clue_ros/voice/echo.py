"""The robot does not hear itself: nobody listens while it speaks, and shortly after.

Times are seconds of one clock, the ROS time in the nodes.
"""

from __future__ import annotations

import re
import threading
from collections import deque

KEPT = 8  # utterances of the past; a chunk of sound that comes later than that is too late anyway
LONGEST = 600.0  # seconds; nobody speaks longer, so a speaker that died does not deafen the robot
OWN_WORDS = 0.7  # share of a phrase's words that the robot is saying, from which it is its echo


class OwnVoice:
    """When the robot spoke, and whether a moment is to be listened to. Thread-safe."""

    def __init__(self, tail: float) -> None:
        """`tail`: seconds of silence after its own voice, for the room's echo and the buffers."""
        self.tail = tail
        self._spoken: deque[tuple[float, float, str]] = deque(maxlen=KEPT)  # start, end, words
        self._lock = threading.Lock()

    def began(self, start: float, seconds: float, text: str = "") -> None:
        """It speaks from `start` on, for `seconds` unless `ended` says otherwise."""
        with self._lock:
            if self._spoken and self._spoken[-1][1] > start:  # it goes on with another sentence
                before, _, said = self._spoken.pop()
                self._spoken.append((before, start, said))
            self._spoken.append((start, start + min(max(seconds, 0.0), LONGEST), text))

    def ended(self, at: float) -> None:
        """It is silent from `at` on."""
        with self._lock:
            if self._spoken:
                start, end, text = self._spoken.pop()
                self._spoken.append((start, min(end, max(at, start)), text))

    def muted(self, start: float, end: float) -> bool:
        """Whether the sound from `start` to `end` may hold its own voice."""
        with self._lock:
            return any(a < end and start < b + self.tail for a, b, _ in self._spoken)

    def is_echo(self, text: str, start: float, end: float) -> bool:
        """Whether a phrase heard then is mostly made of the words that it was saying then."""
        heard = _words(text)
        with self._lock:
            said = {
                word
                for a, b, words in self._spoken
                if a < end and start < b + self.tail
                for word in _words(words)
            }
        return bool(heard) and sum(w in said for w in heard) >= OWN_WORDS * len(heard)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
