"""The recognizer in a process of its own: decoding holds the GIL for a second and more.

`python -m clue_ros.voice.recognizer_process SETTINGS` is that process;
`Recognizer` is what talks to it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import Any

import numpy as np

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.recognizers import EngineSettings, open_engine, problem
from clue_ros.voice.sphinx import Heard
from clue_ros.voice.subprocess_service import Child, Service, serve

LOAD_TIMEOUT = 120.0  # seconds; a large Whisper model takes its time
BASE_TIMEOUT = 20.0  # seconds for a phrase, and this much more for each second of it
TIMEOUT_PER_SECOND = 5.0


class Recognizer:
    """Recognizes phrases in a child process, and starts a new one when that hangs or dies."""

    def __init__(self, settings: EngineSettings) -> None:
        """Check the engine; `open` loads it.

        Raises:
            VoiceError: it is not installed, or has no model; the message says how to get it.
        """
        reason = problem(settings)
        if reason:
            raise VoiceError(reason)
        self.settings = settings
        arguments = [json.dumps(dataclasses.asdict(settings))]
        self._service = Service(lambda: Child(__name__, arguments, LOAD_TIMEOUT))

    def open(self) -> None:
        """Load the model now. Raises VoiceError."""
        self._service.open()

    def hear(self, audio: Audio, hints: Hints) -> Heard:
        """Recognize a phrase of 16 kHz.

        Raises:
            VoiceError: the engine cannot; after a hang or a crash the next phrase gets a new one.
        """
        request = {"rate": audio.rate, "hints": dataclasses.asdict(hints)}
        timeout = BASE_TIMEOUT + TIMEOUT_PER_SECOND * audio.seconds
        payload = audio.samples.astype("<i2").tobytes()
        answer = self._service.ask(request, payload, timeout=timeout)
        sure = answer["confidence"]
        return Heard(
            answer["text"],
            math.nan if sure is None else float(sure),
            answer["unaided"],
            tuple(math.nan if value is None else float(value) for value in answer["features"]),
        )

    def close(self) -> None:
        """End the child."""
        self._service.close()


def _hints(fields: dict[str, Any]) -> Hints:
    return Hints(Expecting(fields["expecting"]), tuple(fields["phrases"]), fields["language"])


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def main(arguments: list[str]) -> int:
    """Be the child."""

    def start() -> tuple[dict[str, Any], Any]:
        engine = open_engine(EngineSettings(**json.loads(arguments[0])))

        def handle(request: dict[str, Any], payload: bytes) -> dict[str, Any]:
            samples = np.frombuffer(payload, "<i2").astype(np.int16)
            heard = engine.hear(Audio(samples, request["rate"]), _hints(request["hints"]))
            return {
                "text": heard.text,
                "confidence": _number(heard.confidence),
                "unaided": heard.unaided,
                "features": [_number(value) for value in heard.features],
            }

        return {"ready": True}, handle

    return serve(start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
