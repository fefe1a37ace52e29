# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Players of WAV files whose sound can be stopped at once: external programs and streams."""

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

# Each program, and its option for a sound device.
PLAYERS = {("pw-play",): "--target={}", ("paplay",): "--device={}", ("aplay", "-q"): "--device={}"}
CHUNK = 0.02  # seconds of sound in a chunk of a stream
TRIAL_TIMEOUT = 5.0


class Playback:
    """The playback of a sound. This base class has ended already."""

    problem = ""  # what went wrong, once it has ended

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`; return whether the sound has ended."""
        del seconds
        return True

    def stop(self) -> None:
        """Stop the sound at once."""


class Player(Protocol):
    """An output for sound."""

    name: str

    def play(self, wav: Path) -> Playback:
        """Begin to play a file. Raises VoiceError."""


class SilentPlayer:
    """Makes no sound: every playback ends at once."""

    name = "no sound"

    def play(self, wav: Path) -> Playback:
        """Do nothing."""
        del wav
        return Playback()


class _Program(Playback):
    """A running player program."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._stopped = False
        self._name = command[0]

    def wait(self, seconds: float) -> bool:
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if status and not self._stopped and not self.problem:
            assert self._process.stderr is not None
            text = " ".join(self._process.stderr.read().decode(errors="replace").split())
            self.problem = f"{self._name} failed: {text[:200]}"
        return True

    def stop(self) -> None:
        self._stopped = True
        self._process.kill()
        self._process.wait()


class DevicePlayer:
    """Plays through the first installed program that works."""

    def __init__(self, device: str = "") -> None:
        """Find the program; each is tried on 50 ms of silence.

        Args:
            device: the sound device as the program names it; "" for the default.

        Raises:
            VoiceError: no program, or no sound device; the message says what to install.
        """
        installed = [program for program in PLAYERS if shutil.which(program[0])]
        if not installed:
            raise VoiceError("no sound player is installed (apt-get install alsa-utils)")
        with tempfile.TemporaryDirectory(prefix="clue_voice_") as folder:
            wav = Path(folder) / "silence.wav"
            write_wav(wav, silence(0.05, 22_050))
            for program in installed:
                option = [PLAYERS[program].format(device)] if device else []
                self.name, self._command = program[0], [*program, *option]
                if _works([*self._command, str(wav)]):
                    return
        names = ", ".join(program[0] for program in installed)
        where = f" named {device!r}" if device else ""
        raise VoiceError(f"no sound device{where} works (tried {names})")

    def play(self, wav: Path) -> Playback:
        """Begin to play a file. Raises VoiceError."""
        try:
            return _Program([*self._command, str(wav)])
        except OSError as error:
            raise VoiceError(f"{self.name} cannot be started: {error}") from error


def _works(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TRIAL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class StreamPlayer:
    """Sends sound in chunks of 20 ms in real time."""

    def __init__(self, name: str, send: Callable[[Audio], None]) -> None:
        """`send` gets each chunk, from a thread of the playback."""
        self.name = name
        self._send = send

    def play(self, wav: Path) -> Playback:
        """Begin to send a file. Raises VoiceError."""
        return _Stream(read_audio(wav), self._send)


class _Stream(Playback):
    """A thread that sends the chunks of a file."""

    def __init__(self, audio: Audio, send: Callable[[Audio], None]) -> None:
        self._audio, self._send = audio, send
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sound", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        size = round(CHUNK * self._audio.rate)
        begin = time.monotonic()
        try:
            for i in range(0, len(self._audio.samples), size):
                chunk = Audio(self._audio.samples[i : i + size], self._audio.rate)
                self._send(chunk)
                due = begin + (i + len(chunk.samples)) / self._audio.rate
                if self._stopped.wait(max(0.0, due - time.monotonic())):
                    return
        except Exception as error:  # noqa: BLE001 - a publisher that is gone: reported, not raised
            self.problem = f"{type(error).__name__}: {error}"
