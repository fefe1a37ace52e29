#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the recognizer: word error rates in four voices, and echoes of the robot's own voice.

    scripts/run python benchmarks/voice_roundtrip.py [--voices V ...] [--every N] [--skip-words]
        [--skip-echo] [--questions N]

Words: espeak-ng says each command and answer of a fixed list in four voices, recognized with and
without the grammar. Echo: 50 questions of the robot come back to its microphone, and none of them
may be heard. No ROS is needed; benchmarks/voice_dialogues.py measures the whole graph. Nothing is
judged here; test/voice/test_voice_roundtrip.py is a short version that does.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.word_error_rate import word_error_rate
from clue_ros.dialogue.words import plain
from clue_ros.voice.audio import Audio, join, read_audio, resample, silence, to_int16
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Phrase, PhraseLimits
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.listener import PhraseStream
from clue_ros.voice.sphinx import Sphinx
from clue_ros.voice.synthesis import Synthesizer, VoiceSettings

VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb-scotland")
COMMANDS = (
    "pick up the red block", "pick up the block", "give me the ball on the left",
    "take the yellow cylinder", "hand me the green block", "where is the blue ball",
    "can you pick up the can", "grab the upper left cube", "please pick up the purple ball",
    "bring me the orange cube", "show me the block in the middle", "i need the white cylinder",
    "find the lower right ball", "get the red sphere", "pick up the can on the right",
)  # fmt: skip
ANSWERS = (
    "the left one", "the red one", "the one on the right", "the yellow one please",
    "i mean the blue one", "the middle one", "yes", "no", "stop", "never mind",
)  # fmt: skip
ASKED = ("the left one", "the right one", "the red one", "the blue one", "the yellow one")
OBJECTS = ("block", "ball", "can", "cube", "cylinder")
COLORS = ("red", "green", "blue", "yellow", "purple", "orange")
ECHO_GAIN = 0.5  # amplitude of the robot's voice at its own microphone
ECHO_DELAY = 0.06  # seconds
REVERBERATION = 0.25  # seconds until it has decayed to a thousandth


def say(
    text: str,
    voice: str,
    folder: Path,
    *,
    rate: int = 150,
    before: float = 0.5,
    after: float = 1.0,
) -> Audio:
    """Have espeak-ng say a text, and return it at 16 kHz in a quiet room.

    `rate` is in words per minute; `before` and `after` are the seconds of silence around it.
    """
    wav = folder / "said.wav"
    command = ["espeak-ng", "-v", voice, "-s", str(rate), "-w", str(wav), text]
    subprocess.run(command, check=True)
    whole = join([silence(before), resample(read_audio(wav)), silence(after)])
    noise = np.random.default_rng(0).normal(0, 8, len(whole.samples))
    return Audio(to_int16(whole.samples + noise))


def listen(audio: Audio, own: OwnVoice | None = None, start: float = 0.0) -> list[Phrase]:
    """The phrases that the speech node would find in chunks of 30 ms."""
    stream = PhraseStream(PhraseLimits(), own or OwnVoice(0.4))
    found = []
    for i in range(0, len(audio.samples), 480):
        piece = Audio(audio.samples[i : i + 480])
        events = stream.feed(piece, start + i / audio.rate)
        found += [event for event in events if isinstance(event, Phrase)]
    return found


# Words.


def measure_words(voices: Iterable[str], every: int) -> dict[str, Any]:
    """Word error and sentence rates of each voice, with and without the grammar."""
    engine, report = Sphinx(), {}
    with tempfile.TemporaryDirectory() as folder:
        for voice in voices:
            pairs: list[tuple[str, str, str, float]] = []
            for sentences, hints in (
                (COMMANDS, Hints()),
                (ANSWERS, Hints.make(Expecting.ANSWER, ASKED, "en-US")),
            ):
                for sentence in sentences[::every]:
                    phrases = listen(say(sentence, voice, Path(folder)))
                    heard = [engine.recognize(phrase.audio, hints) for phrase in phrases]
                    pairs.append(
                        (
                            sentence,
                            " ".join(h.text for h in heard),
                            " ".join(h.unaided for h in heard),
                            min((h.confidence for h in heard), default=0.0),
                        )
                    )
            report[voice] = _rates(pairs)
    return report


def _rates(pairs: list[tuple[str, str, str, float]]) -> dict[str, Any]:
    return {
        "sentences": len(pairs),
        "word error rate, grammar": round(word_error_rate((a, b) for a, b, _, _ in pairs), 3),
        "word error rate, plain": round(word_error_rate((a, c) for a, _, c, _ in pairs), 3),
        "whole sentence right, grammar": _share(a == plain(b) for a, b, _, _ in pairs),
        "whole sentence right, plain": _share(a == plain(c) for a, _, c, _ in pairs),
        "acted on at once": _share(sure >= 0.6 for *_, sure in pairs),
        "acted on at once, wrongly": _share(
            sure >= 0.6 and a != plain(b) for a, b, _, sure in pairs
        ),
        "asked back": _share(0.25 <= sure < 0.6 for *_, sure in pairs),
    }


def _share(values: Iterable[bool]) -> float:
    kept = list(values)
    return round(sum(kept) / len(kept), 3) if kept else math.nan


# The robot's own voice.


def questions(count: int) -> list[str]:
    """Questions as the robot asks them, all different as long as there are enough."""
    made = [
        f"Do you mean the {one} {thing} or the {other} {thing}?"
        for thing in OBJECTS
        for i, one in enumerate(COLORS)
        for other in COLORS[i + 1 :]
    ]
    step = max(1, len(made) // count)
    return (made[::step] * (1 + count // len(made)))[:count]


def echoed(said: Audio) -> Audio:
    """The robot's voice as its microphone hears it: later, softer, with reverberation."""
    length = round(REVERBERATION * said.rate)
    decay = np.exp(-6.9 * np.arange(length) / length)
    rng = np.random.default_rng(1)
    room = rng.normal(0, 1, len(decay)) * decay
    room = 0.3 * room / np.linalg.norm(room)
    room[0] += 1.0
    before, after = np.zeros(round(ECHO_DELAY * said.rate)), np.zeros(said.rate)
    direct = np.concatenate([before, said.samples, after])
    loud = ECHO_GAIN * np.convolve(direct, room)[: len(direct)]
    loud += np.random.default_rng(0).normal(0, 8, len(loud))
    return Audio(to_int16(loud))


def measure_echo(count: int) -> dict[str, Any]:
    """Count the phrases found in the robot's own voice, with and without muting."""
    own, now, heard, unmuted = OwnVoice(0.4), 0.0, 0, 0
    engine = Synthesizer(VoiceSettings(timeout=60.0))
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "question.wav"
        for text in questions(count):
            engine.write(text, wav)
            said = resample(read_audio(wav))
            back = echoed(said)
            own.began(now, said.seconds + 0.1, text)
            heard += len(listen(back, own, now))
            own.ended(now + said.seconds + 0.1)
            unmuted += len(listen(back, None, now))
            now += back.seconds + 1.0
    engine.close()
    return {"questions": count, "phrases heard": heard, "phrases heard without muting": unmuted}


def main() -> None:
    """Measure and print."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--voices", nargs="+", default=list(VOICES), help="voices of espeak-ng")
    parser.add_argument("--every", type=int, default=1, help="measure every Nth sentence only")
    parser.add_argument(
        "--questions", type=int, default=50, help="number of questions for the echo"
    )
    parser.add_argument("--skip-words", action="store_true", help="do not measure words")
    parser.add_argument("--skip-echo", action="store_true", help="do not measure echoes")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    if not options.skip_echo:
        report["echo"] = measure_echo(options.questions)
    if not options.skip_words:
        report["words"] = measure_words(options.voices, options.every)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
