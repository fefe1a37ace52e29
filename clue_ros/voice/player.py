"""Playing a WAV file so that it can be broken off at any moment: a program that is killed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio, read_audio, silence, write_wav

PLAYERS = (("pw-play",), ("paplay",), ("aplay", "-q"))
CHUNK = 0.02  # seconds of sound in a chunk that is streamed
TRIAL_TIMEOUT = 5.0


class Playback(Protocol):
    """A sound that is being played."""

    def wait(self, seconds: float) -> bool:
        """Wait; whether it has ended."""

    def stop(self) -> None:
        """Break it off at once."""

    @property
    def problem(self) -> str:
        """What went wrong, once it has ended; else ""."""


class Player(Protocol):
    """Where sound goes."""

    name: str

    def play(self, wav: Path) -> Playback:
        """Begin to play a file. Raises VoiceError."""


class _Program:
    """A playing program."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._stopped = False
        self._name = command[0]

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        self._stopped = True
        self._process.kill()
        self._process.wait()

    @property
    def problem(self) -> str:
        if self._stopped or not self._process.returncode:
            return ""
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace")
        return f"{self._name} failed: {' '.join(said.split())[:200]}"


class DevicePlayer:
    """Plays through the first program that works here."""

    def __init__(self, device: str = "") -> None:
        """Find the program; each is tried on 50 ms of silence.

        `device`: an ALSA or Pulse name, "" for the default.

        Raises:
            VoiceError: no program, or no sound device; the message says what to install.
        """
        found = [player for player in PLAYERS if shutil.which(player[0])]
        if not found:
            raise VoiceError("no sound player is installed (apt-get install alsa-utils)")
        with tempfile.TemporaryDirectory(prefix="clue_voice_") as folder:
            wav = Path(folder) / "silence.wav"
            write_wav(wav, silence(0.05, 22_050))
            for player in found:
                command = [*player, *_device_option(player[0], device)]
                if _works([*command, str(wav)]):
                    self._command, self.name = command, player[0]
                    return
        names = ", ".join(player[0] for player in found)
        where = f" named {device!r}" if device else ""
        raise VoiceError(f"no sound device{where} works (tried {names})")

    def play(self, wav: Path) -> Playback:
        """Begin to play a file."""
        try:
            return _Program([*self._command, str(wav)])
        except OSError as error:
            raise VoiceError(f"{self.name} cannot be started: {error}") from error


def _device_option(player: str, device: str) -> list[str]:
    if not device:
        return []
    return {"aplay": ["-D", device], "paplay": [f"--device={device}"]}.get(
        player, ["--target", device]
    )


def _works(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TRIAL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class StreamPlayer:
    """Hands sound on in chunks, as fast as it would be heard: to a topic, say.

    `send` gets one chunk of 20 ms after another.
    """

    def __init__(self, name: str, send: Callable[[Audio], None]) -> None:
        self.name = name
        self._send = send

    def play(self, wav: Path) -> Playback:
        """Begin to send a file. Raises VoiceError."""
        return _Stream(read_audio(wav), self._send)


class _Stream:
    """A file on its way in chunks, from a thread."""

    def __init__(self, audio: Audio, send: Callable[[Audio], None]) -> None:
        self._audio, self._send = audio, send
        self._stopped = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="sound", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def problem(self) -> str:
        return self._problem

    def _run(self) -> None:
        size = round(CHUNK * self._audio.rate)
        begin = time.monotonic()
        try:
            for i in range(0, len(self._audio.samples), size):
                piece = Audio(self._audio.samples[i : i + size], self._audio.rate)
                self._send(piece)
                due = begin + (i + len(piece.samples)) / self._audio.rate
                if self._stopped.wait(max(0.0, due - time.monotonic())):
                    return
        except Exception as error:  # noqa: BLE001 - a publisher that is gone: told, not raised here
            self._problem = f"{type(error).__name__}: {error}"


class SilentPlayer:
    """No sound: every file has been played at once."""

    name = "no sound"

    def play(self, wav: Path) -> Playback:
        """Do nothing."""
        del wav
        return _Ended()


class _Ended:
    """Nothing is being played any more."""

    problem = ""

    def wait(self, seconds: float) -> bool:
        del seconds
        return True

    def stop(self) -> None:
        pass
