# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Speech recognition for the page's microphone, without ROS, from the parts of the node speech.

The recognizer is pocketsphinx, in a process of its own. It starts with the first sound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from clue_ros.voice.audio import Audio
from clue_ros.voice.confirmation import Action, Confirmer, Decision, Thresholds
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Phrase, PhraseLimits
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis
from clue_ros.voice.listener import Listener, ListenerCallbacks, PhraseStream
from clue_ros.voice.recognizers import RecognizerProcess, RecognizerSettings


class Ear:
    """Recognizes speech from the page's microphone."""

    def __init__(
        self,
        decided: Callable[[Decision], object],
        failed: Callable[[str], object],
        offered: Callable[[], Sequence[str]],
        *,
        language: str = "en-US",
    ) -> None:
        """Take callbacks, called from threads of its own.

        decided: gets the decision about a phrase. failed: gets the reason of a failure. offered:
        returns the answers that the open question offers.
        """
        self._decided, self._failed, self._offered = decided, failed, offered
        self._language = language
        self._confirmer = Confirmer(Thresholds(), language)
        self._lock = threading.Lock()
        self._recognizer: RecognizerProcess | None = None
        self._listener: Listener | None = None
        self._seconds = 0.0  # of sound so far: the clock of the phrases

    def hear(self, samples: npt.NDArray[np.int16], rate: int) -> None:
        """Take sound, one channel. Raises VoiceError where the recognizer cannot be used."""
        with self._lock:
            listener = self._listener or self._open()
            audio = Audio(samples, rate)
            listener.put(audio, self._seconds)
            self._seconds += audio.seconds

    def close(self) -> None:
        """End the recognizer."""
        with self._lock:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            if self._recognizer is not None:
                self._recognizer.close()
                self._recognizer = None

    def _open(self) -> Listener:
        if self._recognizer is None:
            recognizer = RecognizerProcess(RecognizerSettings("sphinx", self._language, ""))
            recognizer.open()
            self._recognizer = recognizer
        self._listener = Listener(
            PhraseStream(PhraseLimits(), OwnVoice(0.0)),
            self._recognizer.recognize,
            self._hints,
            ListenerCallbacks(
                begun=_nothing,
                dropped=_nothing,
                ended=_nothing,
                recognized=self._recognized,
                partial=_nothing,
                failed=self._failed,
                tick=_nothing,
            ),
        )
        return self._listener

    def _hints(self) -> Hints:
        offered = self._offered()
        if self._confirmer.pending:
            return Hints.make(Expecting.CONFIRMATION, offered, self._language)
        expecting = Expecting.ANSWER if offered else Expecting.COMMAND
        return Hints.make(expecting, offered, self._language)

    def _recognized(self, _phrase: Phrase, heard: Hypothesis, _hints: Hints) -> None:
        self._decided(self._confirmer.decide(heard, self._offered()))


def _nothing(*_: object) -> None:
    """Ignore an event."""


__all__ = ["Action", "Decision", "Ear"]
