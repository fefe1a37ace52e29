"""Spoken sentences for tests: espeak-ng's voices, as sound."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from clue_ros.voice.audio import RATE, Audio, join, read_audio, resample, silence, to_int16


def need_espeak() -> None:
    """Skip the calling test or module where espeak-ng is not installed."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is missing: apt-get install espeak-ng", allow_module_level=True)


@lru_cache(maxsize=256)
def spoken(text: str, voice: str = "en-us", rate: int = 150) -> Audio:
    """Return the sentence at 16 kHz, with half a second of a quiet room before and one after it."""
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "said.wav"
        command = ["espeak-ng", "-v", voice, "-s", str(rate), "-w", str(wav), text]
        subprocess.run(command, check=True, timeout=60)
        words = resample(read_audio(wav))
    return room_noise(join([silence(0.5), words, silence(1.0)]))


def room_noise(audio: Audio) -> Audio:
    """Return the sound with the faint noise of a microphone on it, about -72 dB."""
    noise = np.random.default_rng(0).normal(0.0, 8.0, len(audio.samples))
    return Audio(to_int16(audio.samples + noise), RATE)
