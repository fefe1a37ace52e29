"""What is to be said, in order of priority, and the thread that says it."""

from __future__ import annotations

import contextlib
import itertools
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

# -------------------------------------------------------------------------------------------------
# Any text made safe to be spoken, and cut into sentences that a speech engine can swallow.

MAX_TEXT = 20_000  # characters; the rest is not said
LONGEST = 200  # characters given to the engine at once
_END = re.compile(r"(?<=[.!?;:…。！？])\s+")


def clean(text: str) -> str:
    """The text on one line, without what cannot be spoken: controls, private use, surrogates."""
    kept = (
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c
        for c in text[:MAX_TEXT]
    )
    return " ".join(unicodedata.normalize("NFC", "".join(kept)).split())


def sentences(text: str) -> list[str]:
    """The cleaned text in pieces of at most 200 characters, cut where a speaker would pause.

    Pieces without a letter or a digit are left out; none is left of a text that says nothing.
    """
    pieces: list[str] = []
    for sentence in _END.split(clean(text)):
        pieces += _short(sentence)
    return [piece for piece in pieces if any(c.isalnum() for c in piece)]


def _short(sentence: str) -> list[str]:
    """Cut after a comma, else at a space, else anywhere."""
    pieces = []
    while len(sentence) > LONGEST:
        part = sentence[:LONGEST]
        cut = max(part.rfind(", "), part.rfind(") "), part.rfind(" - ")) + 1
        if cut < LONGEST // 3:
            cut = part.rfind(" ")
        if cut <= 0:
            cut = LONGEST
        pieces.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    return [*pieces, sentence] if sentence else pieces


LOW, NORMAL, HIGH, URGENT = range(4)
QUEUE = 100  # utterances; beyond that the least important, oldest one is not said
SAME = 3.0  # seconds within which one text from two topics is one utterance
TICK = 0.02  # seconds between looks at whether to stop
PLAY_MARGIN = 5.0  # seconds that a player may take longer than the sound before it is killed


class End(Enum):
    """How an utterance ended."""

    DONE = "done"
    CANCELED = "canceled"
    FAILED = "failed"


@dataclass
class Utterance:
    """One text to say.

    `on_sentence(number)` is called as each sentence begins (from 1), `on_end(end, reason)` once;
    both from the speaker's thread, or from whoever cancels.
    """

    text: str
    priority: int = NORMAL
    source: str = ""  # which topic it came from
    on_sentence: Callable[[int], object] = lambda _number: None
    on_end: Callable[[End, str], object] = lambda _end, _reason: None
    sentences: list[str] = field(init=False)
    wav: str = field(init=False, default="")  # where it was kept
    began: float = field(init=False, default_factory=time.monotonic)
    canceled: bool = field(init=False, default=False)
    ended: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Make the text safe and cut it."""
        self.sentences = sentences(self.text)


@dataclass(frozen=True)
class Told:
    """What a speaker tells as it goes on; each is called from its thread.

    begin(text, seconds): sound of this length is about to come out. silent(): nothing comes out any
    more. show(text): a text is being said. warn(reason): something does not work.
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
        told: Told,
        keep: Path | None = None,
        lead: float = 0.0,
    ) -> None:
        """Begin.

        Without a synthesizer texts are only shown. `keep`: a folder for the WAV of each utterance.
        `lead`: seconds between telling `begin` and the sound, so that listeners are told in time.
        """
        self._synthesizer, self._player, self._told = synthesizer, player, told
        self._keep, self._lead = keep, lead
        self._waiting: list[tuple[int, int, Utterance]] = []  # -priority, number, utterance
        self._numbers = itertools.count()
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
        """Whether something is said or waits to be."""
        with self._changed:
            return self._current is not None or bool(self._waiting)

    def add(self, utterance: Utterance) -> bool:
        """Queue it; an URGENT one breaks off what is being said. False: it is said already.

        perception publishes a question on two topics: the second one only raises the priority.
        """
        over: Utterance | None = None
        with self._changed:
            if self._is_double(utterance):
                return False
            self._waiting.append((-utterance.priority, next(self._numbers), utterance))
            self._waiting.sort(key=lambda item: item[:2])
            if len(self._waiting) > QUEUE:
                lowest = self._waiting[-1][0]
                index = next(i for i, item in enumerate(self._waiting) if item[0] == lowest)
                over = self._waiting.pop(index)[2]
            if utterance.priority >= URGENT and self._current is not None:
                self._current.canceled = True
            self._changed.notify()
        if over is not None:
            self._end(over, End.FAILED, f"more than {QUEUE} texts wait to be said")
        return True

    def cancel(self, utterance: Utterance) -> None:
        """Break it off, or take it out of the queue."""
        with self._changed:
            utterance.canceled = True
            waits = [item for item in self._waiting if item[2] is utterance]
            self._waiting = [item for item in self._waiting if item[2] is not utterance]
        if waits:
            self._end(utterance, End.CANCELED, "canceled before it was said")

    def stop(self) -> int:
        """Break off what is said and forget what waits. Returns how many texts that were."""
        with self._changed:
            dropped = [item[2] for item in self._waiting]
            self._waiting.clear()
            speaking = self._current
            if speaking is not None:
                speaking.canceled = True
        for utterance in dropped:
            self._end(utterance, End.CANCELED, "stopped before it was said")
        return len(dropped) + (speaking is not None)

    def close(self, seconds: float = 2.0) -> None:
        """Say what is queued for so long at most, then end."""
        deadline = time.monotonic() + seconds
        while self.busy and time.monotonic() < deadline:
            time.sleep(TICK)
        self.stop()
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._synthesizer is not None:
            self._synthesizer.close()
        self._thread.join(seconds)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_double(self, new: Utterance) -> bool:
        others = [self._current, self._last, *(item[2] for item in self._waiting)]
        for i, other in enumerate(others):
            if other is None or not new.source or not other.source or other.source == new.source:
                continue
            recent = new.began - other.began < SAME
            if recent and other.text == new.text and not other.canceled:
                if i >= 2 and new.priority > other.priority:
                    self._raise(other, new.priority)
                return True
        return False

    def _raise(self, utterance: Utterance, priority: int) -> None:
        utterance.priority = priority
        self._waiting = sorted(
            ((-u.priority, number, u) for _, number, u in self._waiting),
            key=lambda item: item[:2],
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                utterance = self._waiting.pop(0)[2]
                self._current = utterance
            self._told.show(utterance.text)
            try:
                end, reason = self._say(utterance)
            except (VoiceError, OSError) as error:
                end, reason = End.FAILED, str(error)
            with self._changed:
                self._current, self._last = None, utterance
            if end is End.FAILED:
                self._told.warn(reason)
            self._end(utterance, end, reason)

    def _say(self, utterance: Utterance) -> tuple[End, str]:
        """Make each sentence while the one before is heard."""
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
                self._synthesize(sentence, wav)
                if playback is not None:
                    problem = self._hear_out(playback, utterance, parts[-1].seconds)
                if utterance.canceled or problem:
                    break
                parts.append(read_audio(wav))
                self._told.begin(sentence, parts[-1].seconds + self._lead)
                time.sleep(self._lead)
                playback = self._player.play(wav)
                utterance.on_sentence(number)
            if playback is not None and not problem:
                problem = self._hear_out(playback, utterance, parts[-1].seconds)
        finally:
            if playback is not None:
                playback.stop()
            if parts:
                self._told.silent()
        if self._keep is not None and parts:
            utterance.wav = self._write(parts)
        if utterance.canceled:
            return End.CANCELED, "broken off"
        return (End.FAILED, problem) if problem else (End.DONE, "")

    def _synthesize(self, sentence: str, wav: Path) -> None:
        """Make a sentence; an engine that hangs or dies is started again and gets it once more."""
        assert self._synthesizer is not None
        try:
            self._synthesizer.write(sentence, wav)
        except VoiceError as error:
            if self._closing:
                raise
            self._told.warn(f"{error}; trying once more with a new engine")
            self._synthesizer.close()
            self._synthesizer.write(sentence, wav)

    def _hear_out(self, playback: Playback, utterance: Utterance, seconds: float) -> str:
        """Wait until the sound has ended or the utterance is canceled; return what went wrong."""
        deadline = time.monotonic() + seconds + PLAY_MARGIN
        while not playback.wait(TICK):
            if utterance.canceled:
                playback.stop()
                return ""
            if time.monotonic() > deadline:
                playback.stop()
                return f"{self._player.name} did not come to an end"
        return playback.problem

    def _write(self, parts: list[Audio]) -> str:
        assert self._keep is not None
        self._keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._new_file(self._keep)
        write_wav(path, join(parts))
        return str(path)

    def _new_file(self, folder: Path) -> Path:
        """An empty file that its owner alone can read, after those of the speakers before."""
        while True:
            self._kept += 1
            path = folder / f"said_{self._kept:04d}.wav"
            with contextlib.suppress(FileExistsError):
                path.touch(mode=0o600, exist_ok=False)
                return path

    @staticmethod
    def _end(utterance: Utterance, end: End, reason: str) -> None:
        if not utterance.ended:
            utterance.ended = True
            utterance.on_end(end, reason)
