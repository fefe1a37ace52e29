# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sound as mono samples of 16 bits: files, levels, channels, sample rates."""

from __future__ import annotations

import math
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.errors import BadAudioError

RATE = 16_000  # Hz, of all sound that is recognized
MIN_RATE, MAX_RATE = 8_000, 192_000
MAX_CHANNELS = 8
MAX_SECONDS = 3600.0  # of a file
SUFFIXES = (".wav", ".flac", ".aiff", ".aif")
FULL_SCALE = 32_768.0
SILENCE_LEVEL = -96.0  # dBFS, of digital silence

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


def mono(samples: Samples, rate: int, channels: int) -> Audio:
    """Average the channels of interleaved samples.

    Raises:
        BadAudioError: a rate or number of channels that no microphone has, or samples that do not
            fill whole frames.
    """
    if not MIN_RATE <= rate <= MAX_RATE:
        raise BadAudioError(f"sound at {rate} Hz: {MIN_RATE} to {MAX_RATE} Hz can be used")
    if not 1 <= channels <= MAX_CHANNELS:
        raise BadAudioError(f"sound in {channels} channels: 1 to {MAX_CHANNELS} can be used")
    if len(samples) % channels:
        raise BadAudioError(f"{len(samples)} samples do not fill frames of {channels} channels")
    if channels == 1:
        return Audio(samples, rate)
    return Audio(to_int16(samples.reshape(-1, channels).mean(axis=1)), rate)


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


def read_audio(path: Path) -> Audio:
    """Read a WAV, FLAC or AIFF file; several channels are averaged.

    Raises:
        BadAudioError: missing, broken, empty, longer than an hour, or of another kind.
    """
    try:
        audio = _read_wav(path) if path.suffix.lower() == ".wav" else _read_other(path)
    except BadAudioError as error:
        raise BadAudioError(f"{path}: {error}") from error
    except (OSError, EOFError, ValueError, AssertionError, wave.Error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadAudioError(f"{path} cannot be read as sound ({reason})") from error
    if len(audio.samples) == 0:
        raise BadAudioError(f"{path} holds no sound")
    return audio


def write_wav(path: Path, audio: Audio) -> None:
    """Write a WAV file of 16 bits. Raises OSError."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(audio.rate)
        file.writeframes(audio.samples.astype("<i2").tobytes())


def _read_wav(path: Path) -> Audio:
    with wave.open(str(path), "rb") as file:
        rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
        if file.getnframes() > MAX_SECONDS * rate:
            raise BadAudioError(f"longer than {MAX_SECONDS:g} s")
        data = file.readframes(file.getnframes())
    data = data[: len(data) // (width * channels) * width * channels]  # a file that was cut off
    return mono(_pcm_to_int16(data, width), rate, channels)


def _pcm_to_int16(data: bytes, width: int) -> Samples:
    """PCM of 1 to 4 bytes per sample, little endian, as int16; 8 bits are unsigned."""
    if width == 1:
        return ((np.frombuffer(data, np.uint8).astype(np.int16) - 128) * 256).astype(np.int16)
    if width not in (2, 3, 4):
        raise BadAudioError(f"{8 * width} bits per sample: 8, 16, 24 or 32 can be read")
    rows = np.frombuffer(data, np.uint8).reshape(-1, width)
    return np.frombuffer(rows[:, width - 2 :].tobytes(), "<i2").astype(np.int16)


def _read_other(path: Path) -> Audio:
    """FLAC and AIFF, through SpeechRecognition's reader."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadAudioError(f"only {', '.join(SUFFIXES)} files can be read")
    import speech_recognition

    # Its path, not a handle: the reader tries one format after the other and does not rewind.
    with speech_recognition.AudioFile(str(path)) as source:
        data = speech_recognition.Recognizer().record(source)
    raw = data.get_raw_data(convert_width=2)
    return mono(np.frombuffer(raw, "<i2").astype(np.int16), data.sample_rate, 1)
