# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Finds phrases in a stream of sound, by voice activity detection with pocketsphinx.

pocketsphinx.Endpointer uses one window for both ends. A window long enough for the pauses inside a
sentence misses a short "no", so here its Vad judges single frames: a short window opens a phrase
and a long one closes it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from clue_ros.voice.audio import RATE, Audio, Samples, level

FRAME = 480  # samples: 30 ms, a frame length that the Vad accepts at 16 kHz
FRAME_SECONDS = FRAME / RATE
PRE_ROLL = 10  # frames kept from before the beginning, which is detected late
OPENING = 6  # latest frames that are inspected for a beginning; it takes OPENING_VOICED voiced ones
OPENING_VOICED = 4


@dataclass(frozen=True)
class PhraseLimits:
    """The limits of one phrase.

    Attributes:
        end_silence: seconds without voice that end it.
        min_speech: seconds of voice; a shorter phrase is dropped as a cough or a click.
        max_phrase: seconds after which it is cut and recognized as it is.
        vad_mode: 0 (accepts most sound as voice) to 3 (accepts the least).
        threshold: dB of full scale; quieter frames are not voice.
    """

    end_silence: float = 0.6
    min_speech: float = 0.15
    max_phrase: float = 10.0
    vad_mode: int = 2
    threshold: float = -60.0


@dataclass(frozen=True)
class Begun:
    """Somebody began to speak, at `start` (seconds, the stream's clock)."""

    start: float


@dataclass(frozen=True)
class Phrase:
    """A whole phrase, from `start` to `end` (seconds, the stream's clock).

    `speech_end` is when the last voiced frame ended, before the silence that closed the phrase.
    """

    audio: Audio
    start: float
    end: float
    speech_end: float


@dataclass(frozen=True)
class Dropped:
    """The phrase that had begun was too short to be speech, or must not be heard."""


Event = Begun | Phrase | Dropped


class PhraseFinder:
    """Takes 16 kHz samples and returns which phrases began and ended in them. Not thread-safe."""

    def __init__(self, limits: PhraseLimits) -> None:
        self.limits = limits
        from pocketsphinx import Vad  # of the extra voice: typed speech does without

        self._vad = Vad(limits.vad_mode, RATE, FRAME_SECONDS)
        self._rest: Samples = np.zeros(0, np.int16)
        self._recent: deque[Samples] = deque(maxlen=PRE_ROLL)
        self._opening: deque[bool] = deque(maxlen=OPENING)
        self._frames: list[Samples] = []  # of the open phrase
        self._start = 0.0
        self._voiced = 0
        self._unvoiced_run = 0

    @property
    def open(self) -> bool:
        """Whether somebody is speaking."""
        return bool(self._frames)

    def so_far(self) -> Audio:
        """The open phrase up to now; raises ValueError if none is open."""
        return Audio(np.concatenate(self._frames))

    def feed(self, samples: Samples, start: float) -> list[Event]:
        """Take samples whose first one was taken at `start` seconds."""
        start -= len(self._rest) / RATE
        data = np.concatenate([self._rest, samples])
        events: list[Event] = []
        count = len(data) // FRAME
        for i in range(count):
            frame = data[i * FRAME : (i + 1) * FRAME]
            event = self._step(frame, start + (i + 1) * FRAME_SECONDS)
            if event is not None:
                events.append(event)
        self._rest = data[count * FRAME :]
        return events

    def reset(self) -> None:
        """Forget all sound, an open phrase included."""
        self._rest = np.zeros(0, np.int16)
        self._recent.clear()
        self._opening.clear()
        self._frames = []

    def _step(self, frame: Samples, now: float) -> Event | None:
        voiced = level(frame) > self.limits.threshold and bool(self._vad.is_speech(frame.tobytes()))
        if self._frames:
            self._frames.append(frame)
            self._voiced += voiced
            self._unvoiced_run = 0 if voiced else self._unvoiced_run + 1
            if self._unvoiced_run * FRAME_SECONDS >= self.limits.end_silence:
                return self._close(now)
            if len(self._frames) * FRAME_SECONDS >= self.limits.max_phrase:
                return self._close(now)
            return None
        self._recent.append(frame)
        self._opening.append(voiced)
        if sum(self._opening) < OPENING_VOICED:
            return None
        self._frames = list(self._recent)
        self._start = now - len(self._frames) * FRAME_SECONDS
        self._voiced, self._unvoiced_run = sum(self._opening), 0
        self._recent.clear()
        self._opening.clear()
        return Begun(self._start)

    def _close(self, now: float) -> Event:
        audio, voiced = self.so_far(), self._voiced * FRAME_SECONDS
        speech_end = now - self._unvoiced_run * FRAME_SECONDS
        self._frames = []
        if voiced < self.limits.min_speech:
            return Dropped()
        return Phrase(audio, self._start, now, speech_end)


def ambient_threshold(samples: Samples, margin: float) -> float:
    """The level in dB of full scale above which sound may be speech: the room's noise + `margin`.

    The noise is the median level of the 30 ms frames, so that a word spoken meanwhile has little
    effect.
    """
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    if len(frames) == 0:
        return PhraseLimits().threshold
    return min(-20.0, float(np.median([level(frame) for frame in frames])) + margin)
