# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sound from a microphone, or from files in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clue_ros.errors import BadAudioError, VoiceError
from clue_ros.requirements import install
from clue_ros.voice.audio import (
    RATE,
    SUFFIXES,
    Audio,
    Channels,
    Samples,
    mono,
    read_audio,
    resample,
    silence,
)
from clue_ros.voice.endpointing import FRAME, ambient_threshold

BLOCK = 0.03  # seconds in a chunk
Put = Callable[[Audio, float], object]  # a chunk, and the time of its first sample


class Source(Protocol):
    """A source of chunks of sound."""

    name: str

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to pass chunks to `put`, stamped by `clock` (seconds). Raises VoiceError."""

    def stop(self) -> None:
        """Pass no more chunks."""


class Microphone:
    """A sound device, through sounddevice (PortAudio)."""

    def __init__(self, device: str = "", channel: int = -1) -> None:
        """Find the device.

        Args:
            device: its number, a part of its name, or "" for the default.
            channel: which of its channels is heard, from 0; -1: the one that the system makes.

        Raises:
            VoiceError: no PortAudio, no microphone, or none of that name or with that channel; the
                message lists them.
        """
        try:
            import sounddevice
        except (ImportError, OSError) as error:  # OSError: the wheel is there, PortAudio is not
            raise VoiceError(
                f"no microphone can be used ({' '.join(str(error).split())}): "
                f"{install('voice')}, and apt-get install libportaudio2"
            ) from error
        self._library: Any = sounddevice
        inputs = {
            i: str(found["name"])
            for i, found in enumerate(self._library.query_devices())
            if found["max_input_channels"] > 0
        }
        if not inputs:
            raise VoiceError(
                "no microphone here; source topic, a file or stdin need none (docs/voice.md)"
            )
        self._device, self.name = _choose(device, inputs, self._library.default.device[0])
        self._channel, self._channels = channel, max(1, channel + 1)
        most = int(self._library.query_devices(self._device)["max_input_channels"])
        if self._channels > most:
            raise VoiceError(f"microphone {self.name} has {most} channels, from 0: no {channel}")
        self._format = {"device": self._device, "channels": self._channels, "dtype": "int16"}
        self._rate = RATE
        try:
            self._library.check_input_settings(samplerate=RATE, **self._format)
        except (self._library.PortAudioError, ValueError):
            self._rate = int(self._library.query_devices(self._device)["default_samplerate"])
        self._stream: Any = None

    def ambient(self, seconds: float, margin: float) -> float:
        """Listen to the room; returns the level in dB above which sound may be speech."""
        try:
            samples = self._library.rec(
                round(seconds * self._rate), samplerate=self._rate, blocking=True, **self._format
            )
        except self._library.PortAudioError as error:
            raise VoiceError(f"microphone {self.name}: {error}") from error
        heard = resample(self._heard(np.asarray(samples, np.int16).reshape(-1)))
        return ambient_threshold(heard.samples, margin)

    def _heard(self, samples: Samples) -> Audio:
        return mono(samples, self._rate, self._channels, self._channel)

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to record."""

        def on_block(data: Any, frames: int, _time: Any, _status: Any) -> None:
            samples: Samples = np.frombuffer(data, np.int16).copy()
            put(self._heard(samples), clock() - frames / self._rate)

        try:
            self._stream = self._library.RawInputStream(
                samplerate=self._rate,
                blocksize=round(BLOCK * self._rate),
                callback=on_block,
                **self._format,
            )
            self._stream.start()
        except self._library.PortAudioError as error:
            raise VoiceError(f"microphone {self.name}: {error}") from error

    def stop(self) -> None:
        """Close the device."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _choose(device: str, inputs: dict[int, str], default: int) -> tuple[int, str]:
    """The number and name of the microphone; `inputs` are all microphones by number."""
    listed = "; ".join(f"{i}: {name}" for i, name in inputs.items())
    if not device:
        number = default if default in inputs else next(iter(inputs))
        return number, inputs[number]
    if device.isdecimal():
        if int(device) not in inputs:
            raise VoiceError(f"no microphone {device}; there are {listed}")
        return int(device), inputs[int(device)]
    fitting = [i for i, name in inputs.items() if device.lower() in name.lower()]
    if not fitting:
        raise VoiceError(f"no microphone named {device!r}; there are {listed}")
    return fitting[0], inputs[fitting[0]]


class Files:
    """A sound file, or a folder of them in the order of their names, played in real time.

    The next file begins `pause` seconds after `quiet()` became true: in the nodes, when the robot
    is silent and has recognized the previous file.
    """

    def __init__(
        self,
        path: Path,
        pause: float,
        quiet: Callable[[], bool],
        channels: Channels | None = None,
    ) -> None:
        """List the files and read each once.

        Raises:
            VoiceError: the path does not exist, or holds no sound file; BadAudioError: a file
                cannot be read.
        """
        if not path.exists():
            raise VoiceError(
                f"source {path} does not exist; it is stdin, microphone, topic, a file or a folder"
            )
        found = [path] if path.is_file() else sorted(path.iterdir())
        self._files = [f for f in found if f.is_file() and f.suffix.lower() in SUFFIXES]
        if not self._files:
            raise VoiceError(f"source {path}: no {', '.join(SUFFIXES)} file in it")
        self._channels = channels
        for file in self._files:
            read_audio(file, channels)  # a broken file is reported now
        self.name = str(path)
        self._pause, self._quiet = pause, quiet
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to play the files."""
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(put, clock), name="files", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop playing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self, put: Put, clock: Callable[[], float]) -> None:
        for file in self._files:
            if not self._wait_for_quiet(put, clock):
                return
            try:
                audio = resample(read_audio(file, self._channels))
            except BadAudioError:  # it was readable at the start
                continue
            if not self._play(audio, put, clock):
                return
        while not self._stopping.is_set():  # like a microphone, send silence for ever
            self._play(silence(BLOCK), put, clock)

    def _wait_for_quiet(self, put: Put, clock: Callable[[], float]) -> bool:
        """Send silence until it was quiet for `pause` seconds; returns False when stopped."""
        quiet_for = 0.0
        while quiet_for < self._pause:
            if not self._play(silence(BLOCK), put, clock):
                return False
            quiet_for = quiet_for + BLOCK if self._quiet() else 0.0
        return True

    def _play(self, audio: Audio, put: Put, clock: Callable[[], float]) -> bool:
        """Send sound in real time; returns False when stopped."""
        begin, first = time.monotonic(), clock()
        for i in range(0, len(audio.samples), FRAME):
            piece = audio.samples[i : i + FRAME]
            due = begin + (i + len(piece)) / audio.rate
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return False
            put(Audio(piece, audio.rate), first + i / audio.rate)
        return True
