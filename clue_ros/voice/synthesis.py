"""Text to WAV files with pyttsx3, in a process of its own: its engine hangs beside a second one.

`python -m clue_ros.voice.synthesis SETTINGS` is that process; `Synthesizer` is what talks to it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import VoiceError
from clue_ros.voice.subprocess_service import Child, Message, Service, serve

START_TIMEOUT = 30.0  # seconds for the engine to start
ATTEMPTS = 3  # at making a WAV with sound in it
INSTALL = "apt-get install espeak-ng libespeak-ng1, pip install pyttsx3"


@dataclass(frozen=True)
class VoiceSettings:
    """How to speak.

    Attributes:
        voice: a voice's id or language as pyttsx3 lists it, for espeak with a variant (en-us+f3)
            where wanted; "" for the first one of the language.
        language: a tag such as en-US.
        rate: words a minute.
        volume: 0 to 1.
        timeout: seconds after which an engine that is making a sentence hangs.
    """

    voice: str = ""
    language: str = "en-US"
    rate: int = 160
    volume: float = 1.0
    timeout: float = 10.0


class Synthesizer:
    """Makes WAV files in a child process, and starts a new one when that hangs or dies."""

    def __init__(self, settings: VoiceSettings, module: str = __name__) -> None:
        self.settings = settings
        arguments = [json.dumps(dataclasses.asdict(settings))]
        self._service = Service(lambda: Child(module, arguments, START_TIMEOUT))

    @property
    def restarts(self) -> int:
        """How often the engine had to be started again."""
        return self._service.restarts

    def open(self) -> str:
        """Start the engine now; returns the voice that speaks. Raises VoiceError."""
        return str(self._service.open()["ready"])

    def write(self, text: str, wav: Path) -> None:
        """Write one sentence as speech.

        Raises:
            VoiceError: the engine hangs, has died, or made no sound; the next sentence gets a
                new one.
        """
        request = {"text": text, "wav": str(wav)}
        self._service.ask(request, timeout=self.settings.timeout)

    def close(self) -> None:
        """End the child."""
        self._service.close()


def choose_voice(settings: VoiceSettings, voices: list[Any]) -> str:
    """The name to give to the engine. Raises VoiceError where no voice fits: pyttsx3 would not."""
    spoken = {str(voice.id): [x.lower() for x in voice.languages or []] for voice in voices}
    wanted = (settings.voice or settings.language).lower()
    base = wanted.partition("+")[0]
    if any(base == name.lower() or base in languages for name, languages in spoken.items()):
        return wanted
    if settings.voice:
        named = [str(voice.id) for voice in voices if settings.voice == voice.name]
        if named:
            return named[0]
        raise VoiceError(f"no voice {settings.voice!r}; there are {', '.join(list(spoken)[:30])}")
    short = base.split("-")[0]
    for name, languages in spoken.items():
        if any(language.split("-")[0] == short for language in languages):
            return name
    raise VoiceError(f"no voice speaks {settings.language!r}: install one, or set voice")


def start_engine(settings: VoiceSettings) -> Any:
    """A pyttsx3 engine, warmed up. Raises VoiceError."""
    try:
        import pyttsx3

        engine = pyttsx3.init()
        voices = engine.getProperty("voices")
    except Exception as error:
        reason = " ".join(str(error).split())
        raise VoiceError(f"pyttsx3 does not work ({reason}); {INSTALL}") from error
    # As it comes the engine speaks its default voice: a driver without a list is left alone.
    if voices:
        engine.setProperty("voice", choose_voice(settings, voices))
    engine.setProperty("rate", settings.rate)
    engine.setProperty("volume", settings.volume)
    engine.runAndWait()  # the first one returns before synthesis ends
    return engine


class Synthesis:
    """Makes WAV files with one engine, and knows when each is really finished.

    `runAndWait` alone does not: the driver takes espeak for playing while its settings are still
    being applied, and then cancels the text that comes next, which leaves a WAV with no sound.
    """

    def __init__(self, engine: Any, finish_timeout: float = 30.0) -> None:
        self._engine = engine
        self._timeout = finish_timeout
        self._finished = threading.Event()
        engine.connect("finished-utterance", lambda **_: self._finished.set())

    def write(self, text: str, wav: Path) -> None:
        """Write `text` as speech into `wav`. Raises VoiceError when no sound came of it."""
        for _ in range(ATTEMPTS):
            self._finished.clear()
            wav.unlink(missing_ok=True)
            self._engine.save_to_file(text, str(wav))
            self._engine.runAndWait()
            # The driver writes the file before it tells that it has finished, which may get lost.
            self._finished.wait(self._timeout / (ATTEMPTS + 1))
            if has_sound(wav):
                return
        raise VoiceError(f"pyttsx3 made no sound of a text {ATTEMPTS} times")


def has_sound(wav: Path) -> bool:
    """Tell if the file is there and has at least one frame."""
    try:
        with wave.open(str(wav), "rb") as file:
            return file.getnframes() > 0
    except (OSError, EOFError, wave.Error):
        return False


def main(arguments: list[str]) -> int:
    """Be the child."""

    def start() -> tuple[Message, Any]:
        settings = VoiceSettings(**json.loads(arguments[0]))
        engine = start_engine(settings)
        synthesis = Synthesis(engine, settings.timeout)

        def handle(request: Message, _payload: bytes) -> Message:
            synthesis.write(request["text"], Path(request["wav"]))
            return {"done": True}

        return {"ready": str(engine.getProperty("voice"))}, handle

    return serve(start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
