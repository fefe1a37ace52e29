# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The offline recognizer pocketsphinx, with a grammar of likely sentences and a confidence.

Each phrase is decoded three times: with the grammar, with the general language model, and as bare
phonemes, which is quick. The grammar forces any sound into one of its sentences. How much better or
worse it explains the sound than the other two decodings gives the confidence in that sentence.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pocketsphinx

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio
from clue_ros.voice.command_words import words_of
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis, jsgf

GRAMMARS = 8  # compiled grammars that are kept
# Scores of pocketsphinx are logarithms to the base 1.0001, shifted by 10 bits; converted to nats.
NATS = 1024 * math.log(1.0001)
# bestpath rescores a word lattice and returns sentences that break off inside the grammar.
GRAMMAR_SEARCH = {"bestpath": False, "beam": 1e-80, "pbeam": 1e-80, "wbeam": 1e-50}
# One pass and few words per frame: two thirds of the time at the same word error rate.
GENERAL_SEARCH = {"fwdflat": False, "bestpath": False, "maxhmmpf": 3000, "maxwpf": 10}
PHONE_SEARCH = {"lw": 2.0, "pip": 0.3, "beam": 1e-20, "pbeam": 1e-20}
NO_MATCH = -10.0  # nats per frame, for a phrase without any hypothesis
# sigmoid(a + b * (grammar - general) + c * (grammar - phonemes) + d * words in common);
# fitted by benchmarks/voice_confidence.py on sentences and voices that nothing else uses.
CONFIDENCE = (2.2, 2.0, 1.2, 2.0)


@dataclass(frozen=True)
class ModelFiles:
    """The parts of a CMU Sphinx model; the two language models may be missing (None)."""

    acoustic: Path
    dictionary: Path
    language: Path | None
    phones: Path | None


def find_model(folder: str) -> ModelFiles:
    """Find a model's parts in a folder as CMU Sphinx publishes it; "": the English one installed.

    Raises:
        VoiceError: a part is missing; the message names it.
    """
    if not folder:
        folder = str(Path(pocketsphinx.get_model_path()) / "en-us")
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

    def __init__(self, model_path: str = "") -> None:
        """Load the model.

        Raises:
            VoiceError: the model is not complete or cannot be loaded.
        """
        self._files = find_model(model_path)
        language, phones = self._files.language, self._files.phones
        self._grammar = self._decoder(lm=None, **GRAMMAR_SEARCH)
        self._phones = (
            self._decoder(lm=None, allphone=str(phones), **PHONE_SEARCH) if phones else None
        )
        self._general = self._decoder(lm=str(language), **GENERAL_SEARCH) if language else None
        self._has_added_words = False
        self._names: OrderedDict[str, str] = OrderedDict()  # grammar text: name of its search

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase of 16 kHz."""
        data = audio.samples.tobytes()
        unaided, general = self._decode(self._general, data) if self._general else ("", math.nan)
        if hints.expecting is Expecting.ANYTHING:
            return Hypothesis(unaided, math.nan, unaided)
        self._activate_grammar(hints)
        text, guided = self._decode(self._grammar, data)
        phones = self._decode(self._phones, data)[1] if self._phones else math.nan
        if not text:
            return Hypothesis("", 0.0, unaided)
        features = (
            _difference(guided, general),
            _difference(guided, phones),
            _shared_words(text, unaided),
        )
        return Hypothesis(text, confidence(features), unaided, features)

    def _decoder(self, **settings: Any) -> Any:
        files = self._files
        try:
            return pocketsphinx.Decoder(
                hmm=str(files.acoustic), dict=str(files.dictionary), loglevel="FATAL", **settings
            )
        except (RuntimeError, ValueError) as error:
            raise VoiceError(f"pocketsphinx cannot load {files.acoustic}: {error}") from error

    def _activate_grammar(self, hints: Hints) -> None:
        """Switch to the hints' grammar, and compile it at its first use."""
        if not self._has_added_words:
            for word, phones in words_of(hints.language).pronunciations:
                if self._grammar.lookup_word(word) is None:
                    self._grammar.add_word(word, phones, False)
            self._has_added_words = True
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
        """The text, and its log likelihood in nats per frame, at most 0."""
        decoder.start_utt()
        decoder.process_raw(data, full_utt=True)
        decoder.end_utt()
        best = decoder.hyp()
        if best is None or best.score <= 0:
            return "", NO_MATCH
        frames = max(1, decoder.n_frames())
        return best.hypstr, math.log(best.score) / math.log(1.0001) / frames * NATS


def confidence(features: tuple[float, ...]) -> float:
    """The probability that the grammar's text is right; comparisons that are NaN do not count."""
    total = CONFIDENCE[0] + sum(
        weight * value
        for weight, value in zip(CONFIDENCE[1:], features, strict=True)
        if not math.isnan(value)
    )
    return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, total))))


def _difference(guided: float, other: float) -> float:
    """The difference in nats per frame, limited to 4."""
    return max(-4.0, min(4.0, guided - other))


def _shared_words(text: str, other: str) -> float:
    """Fraction of the words of `text` that `other` has too; NaN if `other` has no word."""
    words, others = text.split(), set(other.split())
    return sum(word in others for word in words) / len(words) if others else math.nan
