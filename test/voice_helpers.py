"""Spoken sentences for tests: espeak-ng's voices, as sound."""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks.voice_roundtrip import say
from clue_ros.voice.audio import Audio


def need_espeak() -> None:
    """Skip the calling test or module where espeak-ng is not installed."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is missing: apt-get install espeak-ng", allow_module_level=True)


@lru_cache(maxsize=256)
def spoken(text: str, voice: str = "en-us") -> Audio:
    """Return the sentence at 16 kHz, with half a second of a quiet room before and one after it."""
    with tempfile.TemporaryDirectory() as folder:
        return say(text, voice, Path(folder))
