# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sound as mono samples of 16 bits: files, levels, channels, sample rates."""

from __future__ import annotations

import math
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.errors import BadAudioError
from clue_ros.requirements import install

RATE = 16_000  # Hz, for recognition
MIN_RATE, MAX_RATE = 8_000, 192_000
MAX_CHANNELS = 8
MAX_SECONDS = 3600.0  # of a file
SUFFIXES = (".wav", ".flac", ".aiff", ".aif")
FULL_SCALE = 32_768.0
SILENCE_LEVEL = -96.0  # dBFS, of digital silence
AUDIBLE = -50.0  # dBFS; quieter channels are not compared
CANCELED = -6.0  # dB that a mean of two channels loses at least where they cancel out
BLOCK = 1 << 18  # frames of a file that are read at once

Samples = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Audio:
    """Mono sound: int16 samples (n,) and their rate in Hz."""

    samples: Samples
    rate: int = RATE

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate


def to_int16(values: npt.NDArray[np.floating]) -> Samples:
    """Round to int16 and clip at full scale."""
    samples: Samples = np.clip(np.rint(values), -32_768, 32_767).astype(np.int16)
    return samples


def level(samples: Samples) -> float:
    """Root mean square of int16 samples in dB of full scale, -96 for silence."""
    if len(samples) == 0:
        return SILENCE_LEVEL
    power = float(np.mean(np.square(samples.astype(np.float64) / FULL_SCALE)))
    return max(SILENCE_LEVEL, 10.0 * math.log10(power)) if power > 0 else SILENCE_LEVEL


def silence(seconds: float, rate: int = RATE) -> Audio:
    """Digital silence."""
    return Audio(np.zeros(round(seconds * rate), np.int16), rate)


def join(parts: Sequence[Audio]) -> Audio:
    """The parts one after another. Raises ValueError if there are none, or of different rates."""
    if not parts or any(part.rate != parts[0].rate for part in parts):
        raise ValueError("join needs parts of one rate")
    return Audio(np.concatenate([part.samples for part in parts]), parts[0].rate)


def mono(samples: Samples, rate: int, channels: int, channel: int = -1) -> Audio:
    """Make one channel of interleaved samples.

    channel: counted from 0. -1: the mean of two channels, or the first of more, because others
    often carry the robot's own sound.

    Raises:
        BadAudioError: a rate or number of channels that no microphone has, samples that do not
            fill whole frames, or no such channel.
    """
    if not MIN_RATE <= rate <= MAX_RATE:
        raise BadAudioError(f"sound at {rate} Hz: {MIN_RATE} to {MAX_RATE} Hz can be used")
    if not 1 <= channels <= MAX_CHANNELS:
        raise BadAudioError(f"sound in {channels} channels: 1 to {MAX_CHANNELS} can be used")
    if len(samples) % channels:
        raise BadAudioError(f"{len(samples)} samples do not fill frames of {channels} channels")
    if channel >= channels:
        raise BadAudioError(f"no channel {channel} in sound of {channels}: they count from 0")
    frames = samples.reshape(-1, channels)
    if _averages(channels, channel):
        return Audio(to_int16(frames.mean(axis=1)), rate)
    return Audio(np.ascontiguousarray(frames[:, max(channel, 0)]), rate)


def _averages(channels: int, channel: int) -> bool:
    return channels == 2 and channel < 0


class Channels:
    """Makes one channel of several (`mono`), tells which, and warns once where two cancel out."""

    def __init__(
        self,
        channel: int = -1,
        tell: Callable[[str], object] = lambda _text: None,
        warn: Callable[[str], object] = lambda _text: None,
    ) -> None:
        self._channel, self._tell, self._warn = channel, tell, warn
        self._told = 1  # number of channels that was told last
        self._warned = False

    def __call__(self, samples: Samples, rate: int, channels: int) -> Audio:
        """One channel of interleaved samples. Raises BadAudioError as `mono`."""
        audio = mono(samples, rate, channels, self._channel)
        if channels != self._told:
            self._told = channels
            taken = f"channel {max(self._channel, 0)}, counted from 0,"
            if channels > 1:
                taken = "the mean" if _averages(channels, self._channel) else taken
                self._tell(f"sound of {channels} channels: {taken} is heard (parameter channel)")
        if _averages(channels, self._channel) and not self._warned:
            # The mean of channels with correlation r is 10 log10((1 + r) / 2) dB quieter.
            loud, heard = level(samples), level(audio.samples)
            self._warned = loud > AUDIBLE and heard < loud + CANCELED
            if self._warned:
                self._warn(
                    f"the two channels of the sound cancel out (their mean is {loud - heard:.0f} dB"
                    " quieter), as with a microphone of opposite phases: set channel to 0 or 1"
                )
        return audio


# -------------------------------------------------------------------------------------------------
# Sample rates: a low-pass filter where the rate goes down, then linear interpolation.


def _low_pass(source: int, target: int) -> npt.NDArray[np.float64]:
    """The taps (2n + 1,) of a windowed sinc filter; the single tap 1 where the rate goes up."""
    if source <= target:
        return np.ones(1)
    cutoff = 0.95 * target / source
    half = math.ceil(16 / cutoff)
    taps = cutoff * np.sinc(cutoff * np.arange(-half, half + 1)) * np.hamming(2 * half + 1)
    return np.asarray(taps / taps.sum(), np.float64)


def resample(audio: Audio, rate: int = RATE) -> Audio:
    """The same sound at another rate."""
    if audio.rate == rate or len(audio.samples) == 0:
        return Audio(audio.samples, rate)
    taps, count = _low_pass(audio.rate, rate), len(audio.samples)
    half = len(taps) // 2
    # "full", cut by hand: "same" would lengthen a sound shorter than the filter
    samples = np.convolve(audio.samples.astype(np.float64), taps, "full")[half : half + count]
    positions = np.arange(max(1, round(count * rate / audio.rate))) * (audio.rate / rate)
    return Audio(to_int16(np.interp(positions, np.arange(count), samples)), rate)


class StreamResampler:
    """Resamples chunks of any length to 16 kHz, without clicks where they meet."""

    def __init__(self, source: int) -> None:
        """`source`: rate of the chunks in Hz."""
        self.source = source
        self._step = source / RATE
        self._taps = _low_pass(source, RATE)
        self._history: npt.NDArray[np.float64] = np.zeros(len(self._taps) - 1)
        self._last = 0.0  # the last filtered sample
        self._next = 1.0  # position of the next output after it, in source samples

    def feed(self, samples: Samples) -> Samples:
        """The next samples at 16 kHz."""
        if self.source == RATE or len(samples) == 0:
            return samples
        data = np.concatenate([self._history, samples.astype(np.float64)])
        if len(self._history):
            self._history = data[-len(self._history) :]
        filtered = np.convolve(data, self._taps, "valid")
        line = np.concatenate([[self._last], filtered])
        positions = np.arange(self._next, len(line) - 1 + 1e-9, self._step)
        resampled = np.interp(positions, np.arange(len(line)), line)
        self._next += len(positions) * self._step - len(filtered)
        self._last = float(line[-1])
        return to_int16(resampled)


# -------------------------------------------------------------------------------------------------
# Files.


def read_audio(path: Path, channels: Channels | None = None) -> Audio:
    """Read a WAV (PCM or float, extensible too), FLAC or AIFF file; `channels` makes it mono.

    Raises:
        BadAudioError: missing, broken, empty, longer than an hour, or of another kind.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the wheel is there, libsndfile is not
        raise BadAudioError(f"{path} cannot be read ({error}): {install('voice')}") from error
    make = channels or Channels()
    if path.suffix.lower() not in SUFFIXES:
        raise BadAudioError(f"{path}: only {', '.join(SUFFIXES)} files can be read")
    try:
        with soundfile.SoundFile(str(path)) as file:
            if file.frames > MAX_SECONDS * file.samplerate:
                raise BadAudioError(f"longer than {MAX_SECONDS:g} s")
            blocks = file.blocks(BLOCK, dtype="float32", always_2d=True)
            parts = [
                make(_from_float(block), file.samplerate, file.channels).samples for block in blocks
            ]
            rate = file.samplerate
    except BadAudioError as error:
        raise BadAudioError(f"{path}: {error}") from error
    except (OSError, soundfile.SoundFileError) as error:
        raise BadAudioError(
            f"{path} cannot be read as sound ({' '.join(str(error).split())})"
        ) from error
    if not sum(map(len, parts)):
        raise BadAudioError(f"{path} holds no sound")
    return Audio(np.concatenate(parts), rate)


def _from_float(block: npt.NDArray[np.float32]) -> Samples:
    """Interleaved int16 samples (n * channels,) of float samples (n, channels) in -1..1."""
    return to_int16(np.nan_to_num(block.reshape(-1), posinf=1.0, neginf=-1.0) * FULL_SCALE)


def write_wav(path: Path, audio: Audio) -> None:
    """Write a WAV file of 16 bits. Raises OSError."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(audio.rate)
        file.writeframes(audio.samples.astype("<i2").tobytes())
