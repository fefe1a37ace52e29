# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Recognizes phrases in chunks of sound, in two threads.

One thread finds phrases in the sound; the other runs the recognizer. It is slow, so phrases queue
for it while listening goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import RATE, Audio, StreamResampler
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Begun, Dropped, Event, Phrase, PhraseFinder, PhraseLimits
from clue_ros.voice.grammar import Hints, Hypothesis

TICK = 0.05  # seconds between calls of `tick`, also when there is no sound
MAX_WAITING = 4  # phrases that wait for the recognizer; beyond that the oldest is dropped


class PhraseStream:
    """Finds the phrases in chunks of any sample rate, without the robot's own voice.

    Not thread-safe.
    """

    def __init__(
        self,
        limits: PhraseLimits,
        own_voice: OwnVoice,
        overhear: Callable[[], bool] = lambda: False,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take two switches that are read at each chunk.

        Args:
            limits: of one phrase.
            own_voice: when the robot speaks.
            overhear: whether to listen while the robot speaks (barge-in).
            is_open: whether to listen at all (push to talk).
        """
        self.finder = PhraseFinder(limits)
        self._own_voice, self._overhear, self._is_open = own_voice, overhear, is_open
        self._resampler = StreamResampler(RATE)

    def feed(self, audio: Audio, start: float) -> list[Event]:
        """Take sound whose first sample was taken at `start` seconds."""
        if audio.rate != self._resampler.source:
            self._resampler = StreamResampler(audio.rate)
        samples = self._resampler.feed(audio.samples)
        muted = not self._overhear() and self._own_voice.muted(start, start + audio.seconds)
        if self._is_open() and not muted:
            return self.finder.feed(samples, start)
        was_open = self.finder.open
        self.finder.reset()
        return [Dropped()] if was_open else []


@dataclass(frozen=True)
class ListenerCallbacks:
    """Callbacks of a listener, which it calls from its own threads.

    Attributes:
        begun: a person begins to speak, at this time in seconds.
        dropped: it was no speech, or the recognizer failed on it.
        ended: the phrase is over and waits for the recognizer.
        recognized: the phrase, its hypothesis, and the hints that were used.
        partial: the start of an open phrase, and its hypothesis so far.
        failed: why the recognizer failed.
        tick: called twenty times a second.
    """

    begun: Callable[[float], object]
    dropped: Callable[[], object]
    ended: Callable[[], object]
    recognized: Callable[[Phrase, Hypothesis, Hints], object]
    partial: Callable[[float, Hypothesis], object]
    failed: Callable[[str], object]
    tick: Callable[[], object]


class Listener:
    """Takes chunks of sound from any thread (`put`) and reports the phrases in them."""

    def __init__(
        self,
        stream: PhraseStream,
        recognize: Callable[[Audio, Hints], Hypothesis],
        hints: Callable[[], Hints],
        callbacks: ListenerCallbacks,
        partial_period: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Start the threads.

        Args:
            stream: finds the phrases.
            recognize: recognizes a phrase; raises VoiceError.
            hints: returns the hints for the next phrase.
            callbacks: called with every event.
            partial_period: returns the seconds between partial results; 0 for none.
        """
        self._stream, self._recognize, self._hints = stream, recognize, hints
        self._callbacks, self._partial_period = callbacks, partial_period
        self._chunks: queue.SimpleQueue[tuple[Audio, float]] = queue.SimpleQueue()
        self._phrases: queue.Queue[Phrase | tuple[float, Audio]] = queue.Queue()
        self._stopping = threading.Event()
        self._partial_at = 0.0
        self._started = 0.0
        self._recognizing = False
        self._threads = [
            threading.Thread(target=self._find_phrases, name="endpointing", daemon=True),
            threading.Thread(target=self._recognize_phrases, name="recognition", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> bool:
        """Whether a person speaks, or a phrase is being recognized."""
        return self._stream.finder.open or self._recognizing or not self._phrases.empty()

    def put(self, audio: Audio, start: float) -> None:
        """Take a chunk whose first sample was taken at `start` seconds."""
        self._chunks.put((audio, start))

    def close(self, seconds: float = 2.0) -> None:
        """End the threads; wait so long at most for each."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(seconds)

    def _find_phrases(self) -> None:
        ticked = 0.0
        while not self._stopping.is_set():
            if time.monotonic() - ticked > TICK:
                ticked = time.monotonic()
                self._callbacks.tick()
            try:
                audio, start = self._chunks.get(timeout=TICK)
            except queue.Empty:
                continue
            for event in self._stream.feed(audio, start):
                self._report(event)
            self._queue_partial()

    def _report(self, event: Event) -> None:
        if isinstance(event, Begun):
            self._started, self._partial_at = event.start, time.monotonic()
            self._callbacks.begun(event.start)
        elif isinstance(event, Dropped):
            self._callbacks.dropped()
        else:
            self._callbacks.ended()
            while self._phrases.qsize() >= MAX_WAITING:
                self._phrases.get_nowait()
                self._callbacks.failed("the recognizer is too slow: a phrase was dropped")
            self._phrases.put(event)

    def _queue_partial(self) -> None:
        """Queue the open phrase for a partial result, if one is due."""
        period, finder = self._partial_period(), self._stream.finder
        if period <= 0 or not finder.open or self._recognizing or not self._phrases.empty():
            return
        if time.monotonic() - self._partial_at >= period:
            self._partial_at = time.monotonic()
            self._phrases.put((self._started, finder.so_far()))

    def _recognize_phrases(self) -> None:
        while not self._stopping.is_set():
            try:
                item = self._phrases.get(timeout=TICK)
            except queue.Empty:
                continue
            self._recognizing = True
            try:
                hints = self._hints()
                audio = item.audio if isinstance(item, Phrase) else item[1]
                hypothesis = self._recognize(audio, hints)
                if self._stopping.is_set():
                    return  # `close` did not wait for the recognizer
                if isinstance(item, Phrase):
                    self._callbacks.recognized(item, hypothesis, hints)
                else:
                    self._callbacks.partial(item[0], hypothesis)
            except VoiceError as error:
                self._callbacks.failed(str(error))
                self._callbacks.dropped()
            finally:
                self._recognizing = False
