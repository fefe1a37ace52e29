"""pocketsphinx, used directly: through SpeechRecognition it would load its model at every phrase.

A phrase is decoded twice or three times: with the grammar of what is expected; as bare phonemes,
which is quick; and with the general language model. The grammar forces any sound into its
sentences: how much worse it explains the sound than the other two tells if that was really said.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.dialogue.words import words_of
from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio
from clue_ros.voice.grammar import Expecting, Hints, jsgf

GRAMMARS = 8  # kept ready
# pocketsphinx scores are logarithms to the base 1.0001 shifted by 10 bits, here made nats a frame.
NATS = 1024 * math.log(1.0001)
# bestpath would rescore a word lattice and return sentences that break off inside the grammar.
GRAMMAR_SEARCH = {"bestpath": False, "beam": 1e-80, "pbeam": 1e-80, "wbeam": 1e-50}
# One pass and few words a frame: two thirds of the time, and the same word error rate.
GENERAL_SEARCH = {"fwdflat": False, "bestpath": False, "maxhmmpf": 3000, "maxwpf": 10}
PHONE_SEARCH = {"lw": 2.0, "pip": 0.3, "beam": 1e-20, "pbeam": 1e-20}
NOWHERE = -10.0  # nats a frame: the grammar explains nothing of it
# sigmoid(a + b * (grammar - general) + c * (grammar - phonemes) + d * words in common);
# made by `benchmarks/voice_confidence.py` on sentences and voices that no other measurement uses.
CONFIDENCE = (2.2, 2.0, 1.2, 2.0)


@dataclass(frozen=True)
class Heard:
    """What an engine made of a phrase. `confidence`: 0..1, NaN if it does not say."""

    text: str
    confidence: float = math.nan
    unaided: str = ""
    features: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelFiles:
    """The parts of a model: acoustic model folder, dictionary, language model, phone model."""

    acoustic: Path
    dictionary: Path
    language: Path | None
    phones: Path | None


def find_model(folder: str) -> ModelFiles:
    """Find the parts in a folder as CMU Sphinx publishes them; "" means the English one it brings.

    Raises:
        VoiceError: a part is missing; the message names it.
    """
    if not folder:
        import pocketsphinx

        base = Path(pocketsphinx.get_model_path()) / "en-us"
        return ModelFiles(
            base / "en-us",
            base / "cmudict-en-us.dict",
            base / "en-us.lm.bin",
            base / "en-us-phone.lm.bin",
        )
    root = Path(folder).expanduser()
    acoustic = sorted(path.parent for path in root.rglob("mdef"))
    dictionaries = sorted((*root.rglob("*.dict"), *root.rglob("*.dic")))
    models = sorted((*root.rglob("*.lm.bin"), *root.rglob("*.lm")))
    if not acoustic or not dictionaries:
        missing = "an acoustic model (a file mdef)" if not acoustic else "a dictionary (*.dict)"
        raise VoiceError(
            f"model_path {folder}: no {missing} in it; it must be an unpacked CMU Sphinx model"
        )
    phones = [path for path in models if "phone" in path.name]
    general = [path for path in models if path not in phones]
    return ModelFiles(
        acoustic[0],
        dictionaries[0],
        general[0] if general else None,
        phones[0] if phones else None,
    )


class Sphinx:
    """Three decoders over one acoustic model. Use from one thread; holds the GIL while decoding."""

    def __init__(self, model_path: str = "", *, unaided: bool = True) -> None:
        """Load the model; without `unaided` the general decode (the slow one) is left out.

        Raises:
            VoiceError: the model is not complete or cannot be loaded.
        """
        self._files = find_model(model_path)
        self._common = {
            "hmm": str(self._files.acoustic),
            "dict": str(self._files.dictionary),
            "loglevel": "FATAL",
        }
        self._grammar = self._decoder(lm=None, **GRAMMAR_SEARCH)
        self._added: set[str] = set()
        self._names: OrderedDict[str, str] = OrderedDict()  # grammar text: name of its search
        phones = self._files.phones
        self._phones = (
            self._decoder(lm=None, allphone=str(phones), **PHONE_SEARCH) if phones else None
        )
        language = self._files.language
        self._general = (
            self._decoder(lm=str(language), **GENERAL_SEARCH) if unaided and language else None
        )
        self._unaided = unaided

    def hear(self, audio: Audio, hints: Hints) -> Heard:
        """Recognize a phrase of 16 kHz."""
        data = audio.samples.tobytes()
        unaided, general = self._decode(self._general, data) if self._general else ("", math.nan)
        if hints.expecting is Expecting.ANYTHING:
            return Heard(unaided, math.nan, unaided)
        self._expect(hints)
        text, guided = self._decode(self._grammar, data)
        phones = self._decode(self._phones, data)[1] if self._phones else math.nan
        if not text:
            return Heard("", 0.0, unaided)
        features = (
            _difference(guided, general),
            _difference(guided, phones),
            _common_words(text, unaided),
        )
        return Heard(text, confidence(features), unaided, features)

    def _decoder(self, **settings: Any) -> Any:
        import pocketsphinx

        try:
            return pocketsphinx.Decoder(**self._common, **settings)
        except (RuntimeError, ValueError) as error:
            raise VoiceError(f"pocketsphinx cannot load {self._files.acoustic}: {error}") from error

    def _expect(self, hints: Hints) -> None:
        """Switch to the hints' grammar, made at its first use."""
        if not self._added:
            for word, phones in words_of(hints.language).pronunciations:
                if self._grammar.lookup_word(word) is None:
                    self._grammar.add_word(word, phones, False)
                self._added.add(word)
        text = jsgf(hints, lambda word: self._grammar.lookup_word(word) is not None)
        if text not in self._names:
            # The oldest is replaced, which is never the one in use.
            full = len(self._names) >= GRAMMARS
            name = self._names.popitem(last=False)[1] if full else f"grammar{len(self._names)}"
            try:
                self._grammar.add_jsgf_string(name, text)
            except (RuntimeError, ValueError) as error:
                raise VoiceError(f"pocketsphinx refuses the grammar: {error}") from error
            self._names[text] = name
        self._names.move_to_end(text)
        self._grammar.activate_search(self._names[text])

    @staticmethod
    def _decode(decoder: Any, data: bytes) -> tuple[str, float]:
        """The text, and how well it explains the sound: nats a frame, at most 0."""
        decoder.start_utt()
        decoder.process_raw(data, full_utt=True)
        decoder.end_utt()
        best = decoder.hyp()
        if best is None or best.score <= 0:
            return "", NOWHERE
        frames = max(1, decoder.n_frames())
        return best.hypstr, math.log(best.score) / math.log(1.0001) / frames * NATS


def confidence(features: tuple[float, ...]) -> float:
    """How sure the grammar's text is, 0..1; a comparison that was not made (NaN) counts nothing."""
    total = CONFIDENCE[0] + sum(
        weight * value
        for weight, value in zip(CONFIDENCE[1:], features, strict=True)
        if not math.isnan(value)
    )
    return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, total))))


def _difference(guided: float, other: float) -> float:
    """In nats a frame, kept to what still tells something."""
    return max(-4.0, min(4.0, guided - other))


def _common_words(text: str, other: str) -> float:
    """Share of the words of `text` that the other decode has too, 0..1; NaN without another."""
    words, others = text.split(), set(other.split())
    return sum(word in others for word in words) / len(words) if others else math.nan
