"""From chunks of sound to recognized phrases: two threads, one that listens and one that waits.

The recognizer is slow, so phrases queue up for it while listening goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import RATE, Audio, Samples
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Begun, Dropped, Event, Phrase, PhraseFinder, PhraseLimits
from clue_ros.voice.grammar import Hints
from clue_ros.voice.sphinx import Heard

TICK = 0.05  # seconds between looks at the time when there is no sound
BEHIND = 4  # phrases waiting for the recognizer; the oldest is dropped beyond that


class Resampler:
    """`audio.resample` for a stream: chunks of any length, without a click between them."""

    def __init__(self, source: int, target: int = RATE) -> None:
        self.source, self._step = source, source / target
        cutoff = min(1.0, 0.95 * target / source)
        half = int(np.ceil(16 / cutoff)) if source > target else 0
        taps = cutoff * np.sinc(cutoff * np.arange(-half, half + 1)) * np.hamming(2 * half + 1)
        self._taps = taps / taps.sum()
        self._history: npt.NDArray[np.float64] = np.zeros(2 * half)
        self._last = 0.0  # the last filtered sample
        self._next = 1.0  # where the next output lies, from there on, in source samples

    def feed(self, samples: Samples) -> Samples:
        """The next samples at the target rate."""
        if self._step == 1.0 or len(samples) == 0:
            return samples
        data = np.concatenate([self._history, samples.astype(np.float64)])
        if len(self._history):
            self._history = data[-len(self._history) :]
        filtered = np.convolve(data, self._taps, "valid")
        line = np.concatenate([[self._last], filtered])
        places = np.arange(self._next, len(line) - 1 + 1e-9, self._step)
        out = np.interp(places, np.arange(len(line)), line)
        self._next += len(places) * self._step - len(filtered)
        self._last = float(line[-1])
        resampled: Samples = np.clip(np.rint(out), -32_768, 32_767).astype(np.int16)
        return resampled


class Listener:
    """Phrases of a stream, with the robot's own voice left out. Not thread-safe.

    `overhear()` tells whether to listen while the robot speaks (barge-in), `open()` whether to
    listen at all (push to talk).
    """

    def __init__(
        self,
        limits: PhraseLimits,
        own_voice: OwnVoice,
        overhear: Callable[[], bool] = lambda: False,
        open_: Callable[[], bool] = lambda: True,
    ) -> None:
        self.finder = PhraseFinder(limits)
        self._own_voice, self._overhear, self._open = own_voice, overhear, open_
        self._resampler = Resampler(RATE)

    def feed(self, audio: Audio, start: float) -> list[Event]:
        """Take sound whose first sample was taken at `start` seconds."""
        if audio.rate != self._resampler.source:
            self._resampler = Resampler(audio.rate)
        samples = self._resampler.feed(audio.samples)
        deaf = not self._open() or (
            not self._overhear() and self._own_voice.muted(start, start + audio.seconds)
        )
        if deaf:
            was_open = self.finder.open
            self.finder.reset()
            return [Dropped()] if was_open else []
        return self.finder.feed(samples, start)


@dataclass(frozen=True)
class Reports:
    """What `Hearing` calls, from its own threads.

    begun(start): somebody speaks. dropped(): it was nothing. ended(): the phrase is over and goes
    to the recognizer. heard(phrase, heard, hints): what it was. partial(start, heard): what it is
    so far. problem(reason): the recognizer failed on a phrase. tick(): twenty times a second.
    """

    begun: Callable[[float], object]
    dropped: Callable[[], object]
    ended: Callable[[], object]
    heard: Callable[[Phrase, Heard, Hints], object]
    partial: Callable[[float, Heard], object]
    problem: Callable[[str], object]
    tick: Callable[[], object]


class Hearing:
    """Feed it chunks with `put`, from any thread; it reports."""

    def __init__(
        self,
        listener: Listener,
        recognize: Callable[[Audio, Hints], Heard],
        hints: Callable[[], Hints],
        reports: Reports,
        partial_period: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._listener, self._recognize, self._hints = listener, recognize, hints
        self._reports, self._partial_period = reports, partial_period
        self._chunks: queue.SimpleQueue[tuple[Audio, float]] = queue.SimpleQueue()
        self._phrases: queue.Queue[Phrase | tuple[float, Audio]] = queue.Queue()
        self._stopping = threading.Event()
        self._partial_at = 0.0
        self._started = 0.0
        self._recognizing = False
        self._threads = [
            threading.Thread(target=self._listen, name="ears", daemon=True),
            threading.Thread(target=self._wait_for_words, name="words", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> bool:
        """Whether somebody speaks, or a phrase is being recognized."""
        return self._listener.finder.open or self._recognizing or not self._phrases.empty()

    def put(self, audio: Audio, start: float) -> None:
        """Take a chunk whose first sample was taken at `start` seconds."""
        self._chunks.put((audio, start))

    def close(self, seconds: float = 2.0) -> None:
        """End the threads."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(seconds)

    def _listen(self) -> None:
        ticked = 0.0
        while not self._stopping.is_set():
            if time.monotonic() - ticked > TICK:
                ticked = time.monotonic()
                self._reports.tick()
            try:
                audio, start = self._chunks.get(timeout=TICK)
            except queue.Empty:
                continue
            for event in self._listener.feed(audio, start):
                self._report(event)
            self._perhaps_partial()

    def _report(self, event: Event) -> None:
        if isinstance(event, Begun):
            self._started, self._partial_at = event.start, time.monotonic()
            self._reports.begun(event.start)
        elif isinstance(event, Dropped):
            self._reports.dropped()
        else:
            self._reports.ended()
            while self._phrases.qsize() >= BEHIND:
                self._phrases.get_nowait()
                self._reports.problem("the recognizer is behind: a phrase was dropped")
            self._phrases.put(event)

    def _perhaps_partial(self) -> None:
        period, finder = self._partial_period(), self._listener.finder
        if period <= 0 or not finder.open or self._recognizing or not self._phrases.empty():
            return
        if time.monotonic() - self._partial_at >= period:
            self._partial_at = time.monotonic()
            self._phrases.put((self._started, finder.so_far()))

    def _wait_for_words(self) -> None:
        while not self._stopping.is_set():
            try:
                item = self._phrases.get(timeout=TICK)
            except queue.Empty:
                continue
            self._recognizing = True
            try:
                self._hear(item)
            except VoiceError as error:
                self._reports.problem(str(error))
                self._reports.dropped()
            finally:
                self._recognizing = False

    def _hear(self, item: Phrase | tuple[float, Audio]) -> None:
        hints = self._hints()
        heard = self._recognize(item.audio if isinstance(item, Phrase) else item[1], hints)
        if self._stopping.is_set():
            return  # `close` did not wait: nobody listens any more
        if isinstance(item, Phrase):
            self._reports.heard(item, heard, hints)
        else:
            self._reports.partial(item[0], heard)
