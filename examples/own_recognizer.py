# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A recognizer of one's own: it hears how long a phrase is, and answers yes or no.

scripts/run python examples/own_recognizer.py

An engine stands in `clue_ros.voice.recognizers.ENGINES`; the parameter `engine` names it.
"""

import numpy as np

from clue_ros.voice.audio import Audio
from clue_ros.voice.grammar import Hints, Hypothesis
from clue_ros.voice.recognizers import RecognizerSettings

SHORT = 0.5  # seconds


class Lengths:
    """A `clue_ros.voice.recognizers.Recognizer`."""

    def __init__(self, settings: RecognizerSettings) -> None:
        self._words = {"de": ("ja", "nein")}.get(settings.primary_language, ("yes", "no"))

    def recognize(self, audio: Audio, hints: Hints) -> Hypothesis:
        """Recognize a phrase of 16 kHz; this one does not use the hints."""
        seconds = len(audio.samples) / audio.rate
        return Hypothesis(self._words[seconds > SHORT], confidence=abs(seconds - SHORT))


if __name__ == "__main__":
    recognizer = Lengths(RecognizerSettings(language="de-DE"))
    for seconds in (0.3, 0.9):
        heard = Audio(np.zeros(int(16000 * seconds), np.int16), 16000)
        print(recognizer.recognize(heard, Hints()).text)
