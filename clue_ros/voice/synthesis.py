# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Text to WAV files with pyttsx3, in a process of its own: its engine may hang."""

from __future__ import annotations

import threading
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import VoiceError
from clue_ros.requirements import install
from clue_ros.voice.subprocess_service import Start, WorkerProcess

START_TIMEOUT = 30.0  # seconds for the engine to start
ATTEMPTS = 3  # at making a WAV with sound in it
INSTALL = f"apt-get install espeak-ng libespeak-ng1, and {install('voice')}"


@dataclass(frozen=True)
class VoiceSettings:
    """Settings of the voice.

    Attributes:
        voice: a voice's id, name or language as pyttsx3 lists it, for espeak also with a variant
            (en-us+f3); "" for the first voice of the language.
        language: a tag such as en-US.
        rate: words per minute.
        volume: 0 to 1.
        timeout: seconds for one sentence, after which the engine counts as hung.
    """

    voice: str = ""
    language: str = "en-US"
    rate: int = 160
    volume: float = 1.0
    timeout: float = 10.0


class SentenceWriter:
    """Writes WAV files with one pyttsx3 engine, and knows when each is really finished.

    `runAndWait` alone does not: the driver takes espeak for playing while its settings are still
    being applied, then cancels the next text, which leaves a WAV without sound.
    """

    def __init__(self, engine: Any, finish_timeout: float = 30.0) -> None:
        self._engine = engine
        self._timeout = finish_timeout
        self._finished = threading.Event()
        engine.connect("finished-utterance", lambda **_: self._finished.set())

    def write(self, text: str, wav: Path) -> None:
        """Write `text` as speech into `wav`. Raises VoiceError if there is no sound in it."""
        for _ in range(ATTEMPTS):
            self._finished.clear()
            wav.unlink(missing_ok=True)
            self._engine.save_to_file(text, str(wav))
            self._engine.runAndWait()
            # The driver writes the file before this event, which may get lost.
            self._finished.wait(self._timeout / (ATTEMPTS + 1))
            if has_sound(wav):
                return
        raise VoiceError(f"pyttsx3 made no sound of a text {ATTEMPTS} times")


def has_sound(wav: Path) -> bool:
    """Return whether the file exists and has at least one frame."""
    try:
        with wave.open(str(wav), "rb") as file:
            return file.getnframes() > 0
    except (OSError, EOFError, wave.Error):
        return False


def choose_voice(settings: VoiceSettings, voices: list[Any]) -> str:
    """The name of the voice for the engine. Raises VoiceError if none fits: pyttsx3 would not."""
    languages = {str(voice.id): [x.lower() for x in voice.languages or []] for voice in voices}
    wanted = (settings.voice or settings.language).lower()
    base = wanted.partition("+")[0]
    if any(base == name.lower() or base in spoken for name, spoken in languages.items()):
        return wanted
    if settings.voice:
        named = [str(voice.id) for voice in voices if settings.voice == voice.name]
        if named:
            return named[0]
        raise VoiceError(
            f"no voice {settings.voice!r}; there are {', '.join(list(languages)[:30])}"
        )
    short = base.split("-")[0]
    for name, spoken in languages.items():
        if any(language.split("-")[0] == short for language in spoken):
            return name
    raise VoiceError(f"no voice speaks {settings.language!r}: install one, or set voice")


def start_pyttsx3(settings: VoiceSettings) -> tuple[str, Callable[[tuple[str, Path]], None]]:
    """Start the engine in this process; returns its voice and the function that writes a sentence.

    Raises:
        VoiceError: pyttsx3 or espeak-ng is missing, or no voice fits.
    """
    try:
        import pyttsx3

        engine = pyttsx3.init()
        voices = engine.getProperty("voices")
    except Exception as error:
        reason = " ".join(str(error).split())
        raise VoiceError(f"pyttsx3 does not work ({reason}); {INSTALL}") from error
    if voices:  # a driver that lists none speaks with its default voice
        engine.setProperty("voice", choose_voice(settings, voices))
    engine.setProperty("rate", settings.rate)
    engine.setProperty("volume", settings.volume)
    engine.runAndWait()  # the first one returns before synthesis ends
    writer = SentenceWriter(engine, settings.timeout)
    return str(engine.getProperty("voice")), lambda request: writer.write(*request)


class Synthesizer(WorkerProcess):
    """Writes sentences as WAV files in a worker process; `open` returns the voice that speaks."""

    def __init__(self, settings: VoiceSettings, start: Start = start_pyttsx3) -> None:
        """`start`: makes the engine in the worker, as `start_pyttsx3` does."""
        super().__init__("synthesis", start, settings, START_TIMEOUT)
        self._timeout = settings.timeout

    def write(self, text: str, wav: Path) -> None:
        """Write one sentence as speech.

        Raises:
            VoiceError: the engine hangs, has died, or made no sound; the next sentence gets a
                new one.
        """
        self.ask((text, wav), self._timeout)
