# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The queue of texts to say, in order of priority, and the thread that says them."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio, join, read_audio, write_wav
from clue_ros.voice.player import Playback, Player
from clue_ros.voice.synthesis import Synthesizer

LOW, NORMAL, HIGH, URGENT = range(4)  # priorities
MAX_QUEUE = 100  # utterances; beyond that the oldest of the lowest priority is not said
SAME_TEXT_SECONDS = 3.0  # a text that two topics bring within this time is said once
POLL = 0.02  # seconds between checks for a cancellation
PLAY_MARGIN = 5.0  # seconds that a player may need longer than the sound before it is stopped

# -------------------------------------------------------------------------------------------------
# Text: made safe to be spoken, and cut into pieces that a speech engine can handle.

MAX_TEXT = 20_000  # characters; the rest is not said
MAX_PIECE = 200  # characters given to the engine at once
_SENTENCE_END = re.compile(r"(?<=[.!?;:…。！？])\s+")


def clean(text: str) -> str:
    """The text on one line, without control, private-use and other unspeakable characters."""
    kept = (
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c
        for c in text[:MAX_TEXT]
    )
    return " ".join(unicodedata.normalize("NFC", "".join(kept)).split())


def sentences(text: str) -> list[str]:
    """The cleaned text in pieces of at most 200 characters, cut where a speaker would pause.

    Pieces without a letter or a digit are left out, so the list may be empty.
    """
    pieces: list[str] = []
    for sentence in _SENTENCE_END.split(clean(text)):
        rest = sentence
        while len(rest) > MAX_PIECE:  # cut after a comma, else at a space, else anywhere
            part = rest[:MAX_PIECE]
            cut = max(part.rfind(", "), part.rfind(") "), part.rfind(" - ")) + 1
            if cut < MAX_PIECE // 3:
                cut = part.rfind(" ")
            if cut <= 0:
                cut = MAX_PIECE
            pieces.append(rest[:cut].strip())
            rest = rest[cut:].strip()
        pieces.append(rest)
    return [piece for piece in pieces if any(c.isalnum() for c in piece)]


# -------------------------------------------------------------------------------------------------
# The speaker.


class End(Enum):
    """The end of an utterance."""

    DONE = "done"
    CANCELED = "canceled"
    FAILED = "failed"


@dataclass(eq=False)
class Utterance:
    """One text to say.

    Attributes:
        text: any text.
        priority: LOW to URGENT.
        source: the topic it came from; "" for an action.
        on_sentence: called as each sentence begins, with its number from 1 on.
        on_end: called once, with the end and the reason. Both callbacks are called from the
            speaker's thread, or from the one that cancels.
        sentences: the text in pieces.
        wav: the file it was kept in, or "".
    """

    text: str
    priority: int = NORMAL
    source: str = ""
    on_sentence: Callable[[int], object] = lambda _number: None
    on_end: Callable[[End, str], object] = lambda _end, _reason: None
    sentences: list[str] = field(init=False)
    wav: str = field(init=False, default="")
    created: float = field(init=False, default_factory=time.monotonic)
    canceled: bool = field(init=False, default=False)
    ended: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Clean and cut the text."""
        self.sentences = sentences(self.text)

    def end(self, end: End, reason: str) -> None:
        """Call `on_end`, once."""
        if not self.ended:
            self.ended = True
            self.on_end(end, reason)


@dataclass(frozen=True)
class SpeakerCallbacks:
    """Callbacks of a speaker, which it calls from its thread.

    Attributes:
        begin: sound of this text and of this length in seconds is about to begin.
        silent: the sound has ended.
        show: a text is about to be said, or only shown.
        warn: something does not work.
    """

    begin: Callable[[str, float], object] = lambda _text, _seconds: None
    silent: Callable[[], object] = lambda: None
    show: Callable[[str], object] = lambda _text: None
    warn: Callable[[str], object] = lambda _reason: None


class Speaker:
    """Says one utterance after another. Thread-safe; `add`, `cancel` and `stop` return at once."""

    def __init__(
        self,
        synthesizer: Synthesizer | None,
        player: Player,
        callbacks: SpeakerCallbacks,
        keep: Path | None = None,
        lead: float = 0.0,
    ) -> None:
        """Start the thread.

        Args:
            synthesizer: makes the sound; None only shows the texts.
            player: plays the sound.
            callbacks: called as texts begin and end.
            keep: a folder for a WAV file of each utterance.
            lead: seconds from the callback `begin` to the sound, so that listeners know in time.
        """
        self._synthesizer, self._player, self._callbacks = synthesizer, player, callbacks
        self._keep, self._lead = keep, lead
        self._waiting: list[Utterance] = []  # the next one first
        self._current: Utterance | None = None
        self._last: Utterance | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._kept = 0
        self._folder = Path(tempfile.mkdtemp(prefix="clue_voice_"))
        self._thread = threading.Thread(target=self._run, name="voice", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether something is being said or waits."""
        with self._changed:
            return self._current is not None or bool(self._waiting)

    def add(self, utterance: Utterance) -> bool:
        """Queue an utterance; an URGENT one interrupts the current one.

        Returns False where the same text just came from another topic: perception publishes a
        question on two topics, and the second one only raises the priority.
        """
        dropped: Utterance | None = None
        with self._changed:
            if self._is_duplicate(utterance):
                return False
            self._waiting.append(utterance)
            self._sort()
            if len(self._waiting) > MAX_QUEUE:
                lowest = self._waiting[-1].priority
                dropped = next(u for u in self._waiting if u.priority == lowest)
                self._waiting.remove(dropped)
            if utterance.priority >= URGENT and self._current is not None:
                self._current.canceled = True
            self._changed.notify()
        if dropped is not None:
            dropped.end(End.FAILED, f"more than {MAX_QUEUE} texts wait to be said")
        return True

    def cancel(self, utterance: Utterance) -> None:
        """Stop an utterance, or take it out of the queue."""
        with self._changed:
            utterance.canceled = True
            waits = utterance in self._waiting
            if waits:
                self._waiting.remove(utterance)
        if waits:
            utterance.end(End.CANCELED, "canceled before it was said")

    def stop(self) -> int:
        """Stop the current utterance and empty the queue; returns how many texts that were."""
        with self._changed:
            dropped, self._waiting = self._waiting, []
            current = self._current
            if current is not None:
                current.canceled = True
        for utterance in dropped:
            utterance.end(End.CANCELED, "stopped before it was said")
        return len(dropped) + (current is not None)

    def close(self, seconds: float = 2.0) -> None:
        """Say the queue for at most `seconds`, then end."""
        deadline = time.monotonic() + seconds
        while self.busy and time.monotonic() < deadline:
            time.sleep(POLL)
        self.stop()
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._synthesizer is not None:
            self._synthesizer.close()
        self._thread.join(seconds)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _sort(self) -> None:
        self._waiting.sort(key=lambda u: (-u.priority, u.created))

    def _is_duplicate(self, new: Utterance) -> bool:
        for other in (self._current, self._last, *self._waiting):
            if other is None or not new.source or not other.source or other.source == new.source:
                continue
            recent = new.created - other.created < SAME_TEXT_SECONDS
            if recent and other.text == new.text and not other.canceled:
                if other in self._waiting:
                    other.priority = max(other.priority, new.priority)
                    self._sort()
                return True
        return False

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                utterance = self._current = self._waiting.pop(0)
            self._callbacks.show(utterance.text)
            try:
                end, reason = self._say(utterance)
            except (VoiceError, OSError) as error:
                end, reason = End.FAILED, str(error)
            with self._changed:
                self._current, self._last = None, utterance
            if end is End.FAILED:
                self._callbacks.warn(reason)
            utterance.end(end, reason)

    def _say(self, utterance: Utterance) -> tuple[End, str]:
        """Say an utterance; each sentence is synthesized while the one before is heard."""
        if self._synthesizer is None:
            return End.DONE, ""
        playback: Playback | None = None
        parts: list[Audio] = []
        problem = ""
        try:
            for number, sentence in enumerate(utterance.sentences, start=1):
                if utterance.canceled:
                    break
                wav = self._folder / f"{number % 2}.wav"
                self._synthesize(self._synthesizer, sentence, wav)
                if playback is not None:
                    problem = self._wait_for_end(playback, utterance, parts[-1].seconds)
                if utterance.canceled or problem:
                    break
                parts.append(read_audio(wav))
                self._callbacks.begin(sentence, parts[-1].seconds + self._lead)
                time.sleep(self._lead)
                playback = self._player.play(wav)
                utterance.on_sentence(number)
            if playback is not None and not problem:
                problem = self._wait_for_end(playback, utterance, parts[-1].seconds)
        finally:
            if playback is not None:
                playback.stop()
            if parts:
                self._callbacks.silent()
        if self._keep is not None and parts:
            path = self._new_file(self._keep)
            write_wav(path, join(parts))
            utterance.wav = str(path)
        if utterance.canceled:
            return End.CANCELED, "broken off"
        return (End.FAILED, problem) if problem else (End.DONE, "")

    def _synthesize(self, synthesizer: Synthesizer, sentence: str, wav: Path) -> None:
        """Write a sentence; an engine that hangs or dies is started again and tries once more."""
        try:
            synthesizer.write(sentence, wav)
        except VoiceError as error:
            if self._closing:
                raise
            self._callbacks.warn(f"{error}; trying once more with a new engine")
            synthesizer.close()
            synthesizer.write(sentence, wav)

    def _wait_for_end(self, playback: Playback, utterance: Utterance, seconds: float) -> str:
        """Wait until the sound has ended or the utterance is canceled; returns what went wrong."""
        deadline = time.monotonic() + seconds + PLAY_MARGIN
        while not playback.wait(POLL):
            if utterance.canceled:
                playback.stop()
                return ""
            if time.monotonic() > deadline:
                playback.stop()
                return f"{self._player.name} did not come to an end"
        return playback.problem

    def _new_file(self, folder: Path) -> Path:
        """Create an empty file that only its owner can read, numbered after the existing ones."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            self._kept += 1
            path = folder / f"said_{self._kept:04d}.wav"
            with contextlib.suppress(FileExistsError):
                path.touch(mode=0o600, exist_ok=False)
                return path
