# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The speech recognizers by name, and the process that one of them runs in.

A node asks `problem` when it is configured, so that it reports a missing package or model before
the first word.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from clue_ros.dialogue.words import base_language, plain
from clue_ros.errors import VoiceError
from clue_ros.requirements import install
from clue_ros.voice.audio import FULL_SCALE, Audio
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis, prompt, word_list
from clue_ros.voice.subprocess_service import WorkerProcess

LOAD_TIMEOUT = 120.0  # seconds; a large Whisper model loads slowly
BASE_TIMEOUT = 20.0  # seconds to recognize a phrase, and this much more for each second of it
TIMEOUT_PER_SECOND = 5.0


class Recognizer(Protocol):
    """Recognizes one phrase after another. Raises VoiceError when it cannot."""

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase of 16 kHz."""


@dataclass(frozen=True)
class RecognizerSettings:
    """The parameters of a recognizer.

    Attributes:
        engine: a key of ENGINES.
        language: a tag such as en-US.
        model_path: a folder or file, or for faster_whisper a size (base, small, ...); "" for the
            model that the engine brings.
    """

    engine: str = "sphinx"
    language: str = "en-US"
    model_path: str = ""

    @property
    def primary_language(self) -> str:
        """The language without its region, such as en."""
        return base_language(self.language)


class Vosk:
    """Vosk (Kaldi); a phrase consists of the hints' words. Not tested with a real model."""

    def __init__(self, settings: RecognizerSettings) -> None:
        import vosk

        vosk.SetLogLevel(-1)
        self._vosk = vosk
        self._model = vosk.Model(str(Path(settings.model_path).expanduser()))

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase; the confidence is the mean of its words'."""
        words = []
        if hints.expecting is not Expecting.ANYTHING:
            words = [json.dumps([*word_list(hints), "[unk]"])]
        recognizer = self._vosk.KaldiRecognizer(self._model, audio.rate, *words)
        recognizer.SetWords(True)
        recognizer.AcceptWaveform(audio.samples.astype("<i2").tobytes())
        result = json.loads(recognizer.FinalResult())
        confidences = [float(word["conf"]) for word in result.get("result", [])]
        text = plain(str(result.get("text", "")).replace("[unk]", " "))
        return Hypothesis(text, float(np.mean(confidences)) if confidences else math.nan)


class FasterWhisper:
    """Whisper in CTranslate2; the hints become its prompt. Not tested with a real model."""

    def __init__(self, settings: RecognizerSettings) -> None:
        from faster_whisper import WhisperModel

        self._model = WhisperModel(settings.model_path)
        self._language = settings.primary_language

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase; the confidence is unknown."""
        segments, _ = self._model.transcribe(
            audio.samples.astype(np.float32) / np.float32(FULL_SCALE),
            language=self._language,
            initial_prompt="" if hints.expecting is Expecting.ANYTHING else prompt(hints),
        )
        return Hypothesis(plain(" ".join(segment.text for segment in segments)))


def _sphinx(settings: RecognizerSettings) -> Recognizer:
    from clue_ros.voice.sphinx import Sphinx

    return Sphinx(settings.model_path)


@dataclass(frozen=True)
class Engine:
    """A recognizer: how to install and load it.

    Attributes:
        load: makes the recognizer; slow, because it loads the model.
        module: the module that must be importable, and `install` the command that installs it.
        model: how to get a model, for an engine that needs `model_path`; "" if it brings one.
        languages: primary language subtags that work without a `model_path`; () for all.
        named_models: whether `model_path` may be a model's name instead of a path.
    """

    load: Callable[[RecognizerSettings], Recognizer]
    module: str
    install: str
    model: str = ""
    languages: tuple[str, ...] = ()
    named_models: bool = False


ENGINES: dict[str, Engine] = {
    "sphinx": Engine(
        _sphinx,
        "pocketsphinx",
        f"{install('voice')} (with an English model)",
        languages=("en",),
    ),
    "vosk": Engine(
        Vosk,
        "vosk",
        "pip install vosk",
        model="unpack a model of alphacephei.com/vosk/models and name its folder",
    ),
    "faster_whisper": Engine(
        FasterWhisper,
        "faster_whisper",
        "pip install faster-whisper",
        model="a folder with a CTranslate2 model, or a size (tiny, base, small, ...) to download",
        named_models=True,
    ),
}


def problem(settings: RecognizerSettings) -> str:
    """Say in one line why the recognizer cannot work here and how to mend it, or ""."""
    name, path = settings.engine, settings.model_path
    engine = ENGINES.get(name)
    if engine is None:
        return f"there is no engine {name!r}; there are {', '.join(ENGINES)}"
    if importlib.util.find_spec(engine.module) is None:
        return f"engine {name}: {engine.module} is not installed; {engine.install}"
    if engine.model and not path:
        return f"engine {name} needs model_path: {engine.model}"
    if path and not engine.named_models and not Path(path).expanduser().exists():
        return f"model_path {path} does not exist"
    if engine.languages and not path and settings.primary_language not in engine.languages:
        return (
            f"engine {name} brings a model for {', '.join(engine.languages)} only, not for "
            f"{settings.language}: name one as model_path (docs/voice.md says where to get it)"
        )
    return ""


def open_recognizer(settings: RecognizerSettings) -> Recognizer:
    """Load the recognizer in this process.

    Raises:
        VoiceError: `problem` has one, or loading failed.
    """
    reason = problem(settings)
    if reason:
        raise VoiceError(reason)
    return ENGINES[settings.engine].load(settings)


class RecognizerProcess(WorkerProcess):
    """A recognizer in a process of its own: decoding holds Python's lock for a second and more."""

    def __init__(self, settings: RecognizerSettings) -> None:
        """Check the engine; `open` loads it.

        Raises:
            VoiceError: it is not installed, or has no model; the message says how to get it.
        """
        reason = problem(settings)
        if reason:
            raise VoiceError(reason)
        super().__init__("recognizer", _start, settings, LOAD_TIMEOUT)

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase of 16 kHz.

        Raises:
            VoiceError: the engine cannot; after a hang or a crash the next phrase gets a new one.
        """
        timeout = BASE_TIMEOUT + TIMEOUT_PER_SECOND * audio.seconds
        hypothesis: Hypothesis = self.ask((audio, hints), timeout)
        return hypothesis


def _start(settings: RecognizerSettings) -> tuple[None, Callable[[Any], Hypothesis]]:
    recognizer = open_recognizer(settings)
    return None, lambda request: recognizer.recognize(*request)
