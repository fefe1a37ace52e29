"""Every recognizer by name: what it needs, how to get it, and the object that hears.

`problem` is asked when a node is configured, so that what is missing is said then and not at the
first word. Engines other than sphinx and vosk work through SpeechRecognition.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from clue_ros.dialogue.words import plain
from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio
from clue_ros.voice.grammar import Expecting, Hints, prompt, word_list
from clue_ros.voice.sphinx import Heard, Sphinx


@dataclass(frozen=True)
class EngineSettings:
    """What a node's parameters say about its recognizer.

    Attributes:
        engine: a key of ENGINES.
        language: a tag such as en-US.
        model_path: a folder or file, or for whisper a size (base, small, ...); "" for the default.
        unaided: also decode without help, to compare with (sphinx).
    """

    engine: str = "sphinx"
    language: str = "en-US"
    model_path: str = ""
    unaided: bool = True


class Engine(Protocol):
    """What hears one phrase of 16 kHz after another. Raises VoiceError when it cannot."""

    def hear(self, audio: Audio, hints: Hints) -> Heard:
        """Recognize a phrase."""


@dataclass(frozen=True)
class Spec:
    """One engine.

    Attributes:
        modules: what must be importable, and `get` how to get it.
        open: makes the engine; slow, because it loads the model.
        model: how to get a model where `model_path` must name one, else "".
        keys: environment variables that hold an account's secrets, for engines on the internet.
        languages: primary language subtags that work without a model_path; () for all.
    """

    modules: tuple[str, ...]
    get: str
    open: Callable[[EngineSettings], Engine]
    model: str = ""
    keys: tuple[str, ...] = ()
    online: str = ""
    languages: tuple[str, ...] = ()


def problem(settings: EngineSettings) -> str:
    """Say in one line why the engine cannot work here and how to mend it, or ""."""
    spec = ENGINES.get(settings.engine)
    if spec is None:
        return f"no engine {settings.engine!r}; there are {', '.join(ENGINES)}"
    missing = [name for name in spec.modules if not _installed(name)]
    if missing:
        return f"engine {settings.engine}: {', '.join(missing)} is not installed; {spec.get}"
    if spec.model and not settings.model_path:
        return f"engine {settings.engine} needs model_path: {spec.model}"
    path = settings.model_path
    whisper = settings.engine in ("whisper", "faster_whisper")  # they take a size, too
    if path and not whisper and not Path(path).expanduser().exists():
        return f"model_path {path} does not exist"
    language = settings.language.split("-")[0].lower()
    if spec.languages and not path and language not in spec.languages:
        return (
            f"engine {settings.engine} brings a model for {', '.join(spec.languages)} only, not "
            f"for {settings.language}: name one as model_path (docs/voice.md says where it is)"
        )
    unset = [key for key in spec.keys if not os.environ.get(key)]
    if unset:
        return f"engine {settings.engine} needs the environment variable {' and '.join(unset)}"
    return ""


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # the package that it would be in
        return False


def open_engine(settings: EngineSettings) -> Engine:
    """Load the engine.

    Raises:
        VoiceError: `problem` has one, or loading failed.
    """
    reason = problem(settings)
    if reason:
        raise VoiceError(reason)
    return ENGINES[settings.engine].open(settings)


class Vosk:
    """Vosk, used directly: SpeechRecognition would look for its model in its own folder only."""

    def __init__(self, settings: EngineSettings) -> None:
        import vosk

        vosk.SetLogLevel(-1)
        self._vosk = vosk
        self._model = vosk.Model(str(Path(settings.model_path).expanduser()))

    def hear(self, audio: Audio, hints: Hints) -> Heard:
        """Recognize a phrase; hints are the words it may hold."""
        arguments: list[Any] = [self._model, audio.rate]
        if hints.expecting is not Expecting.ANYTHING:
            arguments.append(json.dumps([*word_list(hints), "[unk]"]))
        recognizer = self._vosk.KaldiRecognizer(*arguments)
        recognizer.SetWords(True)
        recognizer.AcceptWaveform(audio.samples.astype("<i2").tobytes())
        result = json.loads(recognizer.FinalResult())
        words = result.get("result", [])
        sure = [float(word["conf"]) for word in words]
        text = plain(str(result.get("text", "")).replace("[unk]", " "))
        return Heard(text, sum(sure) / len(sure) if sure else math.nan)


class Library:
    """An engine of SpeechRecognition: `recognize` gets its AudioData, the hints, and returns text.

    What it cannot understand is empty text; what keeps it from working is a VoiceError.
    """

    def __init__(self, recognize: Callable[[Any, Hints], Any]) -> None:
        self._recognize = recognize

    def hear(self, audio: Audio, hints: Hints) -> Heard:
        """Recognize a phrase."""
        import speech_recognition as sr

        data = sr.AudioData(audio.samples.astype("<i2").tobytes(), audio.rate, 2)
        try:
            text = self._recognize(data, hints)
        except sr.UnknownValueError:
            return Heard("", 0.0)
        except (sr.RequestError, sr.exceptions.SetupError, OSError) as error:
            raise VoiceError(f"the speech service cannot be used: {error}") from error
        if isinstance(text, tuple):  # (text, confidence), as azure returns
            return Heard(plain(str(text[0])), float(text[1]))
        return Heard(plain(str(text)))


def _faster_whisper(settings: EngineSettings) -> Engine:
    from faster_whisper import WhisperModel
    from speech_recognition.recognizers.whisper_local import base, faster_whisper

    # SpeechRecognition's own recognize_faster_whisper would load the model at every phrase.
    model = WhisperModel(settings.model_path or "base")
    recognizer = base.WhisperCompatibleRecognizer(faster_whisper.TranscribableAdapter(model))
    return Library(
        lambda data, hints: recognizer.recognize(
            data, language=_short(settings), initial_prompt=_prompt(hints)
        )
    )


def _whisper(settings: EngineSettings) -> Engine:
    import whisper as library
    from speech_recognition.recognizers.whisper_local import base, whisper

    model = library.load_model(settings.model_path or "base")
    recognizer = base.WhisperCompatibleRecognizer(whisper.TranscribableAdapter(model))
    return Library(
        lambda data, hints: recognizer.recognize(
            data, language=_short(settings), initial_prompt=_prompt(hints)
        )
    )


def _online(
    method: str, key: str = "", *, secret: str = "key", language: str = ""
) -> Callable[[EngineSettings], Engine]:
    """An engine that is a method of SpeechRecognition's Recognizer.

    `key` is the environment variable of the account's secret, `secret` and `language` are the names
    of the method's arguments for it and for the language tag.
    """

    def make(settings: EngineSettings) -> Engine:
        import speech_recognition as sr

        recognize = getattr(sr.Recognizer(), method)
        arguments = {secret: os.environ[key]} if key else {}
        if language:
            arguments[language] = settings.language
        return Library(lambda data, _hints: recognize(data, **arguments))

    return make


def _openai(method: str) -> Callable[[EngineSettings], Engine]:
    def make(settings: EngineSettings) -> Engine:
        import speech_recognition as sr

        recognize = getattr(sr.Recognizer(), method)
        return Library(
            lambda data, hints: recognize(data, language=_short(settings), prompt=_prompt(hints))
        )

    return make


def _short(settings: EngineSettings) -> str:
    return settings.language.split("-")[0].lower()


def _prompt(hints: Hints) -> str:
    return "" if hints.expecting is Expecting.ANYTHING else prompt(hints)


_SR = "speech_recognition"
ENGINES: dict[str, Spec] = {
    "sphinx": Spec(
        ("pocketsphinx",),
        "pip install pocketsphinx (it brings an English model)",
        lambda s: Sphinx(s.model_path, unaided=s.unaided),
        languages=("en",),
    ),
    "vosk": Spec(
        ("vosk",),
        "pip install vosk",
        Vosk,
        model="unpack a model of alphacephei.com/vosk/models and name its folder",
    ),
    "faster_whisper": Spec(
        (_SR, "faster_whisper", "soundfile"),
        "pip install faster-whisper soundfile",
        _faster_whisper,
        model="a folder with a CTranslate2 model, or a size (tiny, base, small, ...) to download",
    ),
    "whisper": Spec(
        (_SR, "whisper", "soundfile"),
        "pip install openai-whisper soundfile",
        _whisper,
        model="a .pt file, or a size (tiny, base, small, ...) to download",
    ),
    "google": Spec(
        (_SR,),
        "pip install SpeechRecognition",
        _online("recognize_google", language="language"),
        online="Google",
    ),
    "google_cloud": Spec(
        (_SR, "google.cloud.speech"),
        "pip install google-cloud-speech",
        _online(
            "recognize_google_cloud",
            "GOOGLE_APPLICATION_CREDENTIALS",
            secret="credentials_json_path",
            language="language_code",
        ),
        keys=("GOOGLE_APPLICATION_CREDENTIALS",),
        online="Google Cloud",
    ),
    "azure": Spec(
        (_SR,),
        "pip install SpeechRecognition",
        _online("recognize_azure", "AZURE_SPEECH_KEY", language="language"),
        keys=("AZURE_SPEECH_KEY",),
        online="Microsoft Azure",
    ),
    "wit": Spec(
        (_SR,),
        "pip install SpeechRecognition",
        _online("recognize_wit", "WIT_AI_KEY"),
        keys=("WIT_AI_KEY",),
        online="Wit.ai",
    ),
    "openai": Spec(
        (_SR, "openai"),
        "pip install openai",
        _openai("recognize_openai"),
        keys=("OPENAI_API_KEY",),
        online="OpenAI",
    ),
    "groq": Spec(
        (_SR, "groq"),
        "pip install groq",
        _openai("recognize_groq"),
        keys=("GROQ_API_KEY",),
        online="Groq",
    ),
}
