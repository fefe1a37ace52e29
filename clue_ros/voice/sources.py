"""Where sound comes from, other than a ROS topic: a microphone, or files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clue_ros.errors import BadAudioError, VoiceError
from clue_ros.voice.audio import RATE, SUFFIXES, Audio, Samples, read_audio, resample, silence
from clue_ros.voice.endpointing import FRAME, ambient_threshold

BLOCK = 0.03  # seconds in a chunk
Put = Callable[[Audio, float], object]  # a chunk, and the time of its first sample


class Source(Protocol):
    """Gives chunks to whoever it was started with."""

    name: str

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to give chunks, stamped by `clock` (seconds). Raises VoiceError."""

    def stop(self) -> None:
        """Give no more."""


class Microphone:
    """A sound device, through sounddevice (PortAudio)."""

    def __init__(self, device: str = "") -> None:
        """Find it.

        `device`: its number, a part of its name, or "" for the default.

        Raises:
            VoiceError: no PortAudio, no microphone, or none of that name; the message lists them.
        """
        self._library = _sounddevice()
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
        rate = int(self._library.query_devices(self._device)["default_samplerate"])
        self._rate = RATE if self._takes(RATE) else rate
        self._stream: Any = None

    def _takes(self, rate: int) -> bool:
        try:
            self._library.check_input_settings(
                device=self._device, channels=1, dtype="int16", samplerate=rate
            )
        except (self._library.PortAudioError, ValueError):
            return False
        return True

    def ambient(self, seconds: float, margin: float) -> float:
        """Listen to the room and return the level in dB from which sound may be speech."""
        try:
            samples = self._library.rec(
                round(seconds * self._rate),
                samplerate=self._rate,
                channels=1,
                dtype="int16",
                device=self._device,
                blocking=True,
            )
        except self._library.PortAudioError as error:
            raise VoiceError(f"microphone {self.name}: {error}") from error
        heard = resample(Audio(np.asarray(samples, np.int16).reshape(-1), self._rate))
        return ambient_threshold(heard.samples, margin)

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to record."""

        def on_block(data: Any, frames: int, _time: Any, _status: Any) -> None:
            samples: Samples = np.frombuffer(data, np.int16).copy()
            put(Audio(samples, self._rate), clock() - frames / self._rate)

        try:
            self._stream = self._library.RawInputStream(
                samplerate=self._rate,
                blocksize=round(BLOCK * self._rate),
                device=self._device,
                channels=1,
                dtype="int16",
                callback=on_block,
            )
            self._stream.start()
        except self._library.PortAudioError as error:
            raise VoiceError(f"microphone {self.name}: {error}") from error

    def stop(self) -> None:
        """Close the device."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _sounddevice() -> Any:
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # OSError: the wheel is there, PortAudio is not
        raise VoiceError(
            f"no microphone can be used ({' '.join(str(error).split())}): pip install sounddevice, "
            "apt-get install libportaudio2"
        ) from error
    return sounddevice


def _choose(device: str, inputs: dict[int, str], default: int) -> tuple[int, str]:
    """The number and name of the device that is meant."""
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
    """A sound file, or a folder of them in the order of their names, as if spoken now.

    The next file begins when `quiet()` is true (the robot is silent and has understood the one
    before), `pause` seconds later.
    """

    def __init__(self, path: Path, pause: float, quiet: Callable[[], bool] = lambda: True) -> None:
        """List the files.

        Raises:
            VoiceError: the path does not exist, or holds no sound file; BadAudioError: one of them
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
        for file in self._files:
            read_audio(file)  # a broken one is told now
        self.name = str(path)
        self._pause, self._quiet = pause, quiet
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, put: Put, clock: Callable[[], float]) -> None:
        """Begin to play them."""
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(put, clock), name="files", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Play no more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self, put: Put, clock: Callable[[], float]) -> None:
        for file in self._files:
            if not self._wait(put, clock):
                return
            try:
                audio = resample(read_audio(file))
            except BadAudioError:  # it was readable at the start
                continue
            if not self._play(audio, put, clock):
                return
        while not self._stopping.is_set():  # a microphone does not end either
            self._play(silence(BLOCK), put, clock)

    def _wait(self, put: Put, clock: Callable[[], float]) -> bool:
        """Give silence until it is quiet for `pause` seconds; False when stopped."""
        quiet_for = 0.0
        while quiet_for < self._pause:
            if not self._play(silence(BLOCK), put, clock):
                return False
            quiet_for = quiet_for + BLOCK if self._quiet() else 0.0
        return True

    def _play(self, audio: Audio, put: Put, clock: Callable[[], float]) -> bool:
        begin, first = time.monotonic(), clock()
        for i in range(0, len(audio.samples), FRAME):
            piece = audio.samples[i : i + FRAME]
            due = begin + (i + len(piece)) / audio.rate
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return False
            put(Audio(piece, audio.rate), first + i / audio.rate)
        return True
