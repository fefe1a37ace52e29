# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Fit CONFIDENCE of clue_ros/voice/sphinx.py: the probability that the grammar's text is right.

    scripts/run python benchmarks/voice_confidence.py [--voices en-us+m3 ...] [--json]

espeak-ng says sentences inside and outside the grammar, and a logistic regression on the
comparisons of the decodings separates right from wrong. Its sentences and voices differ from those
of benchmarks/voice_roundtrip.py and of the tests, which therefore measure it on new ones.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.voice_roundtrip import say
from benchmarks.word_error_rate import word_errors
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.sphinx import Sphinx

COMMANDS = (
    "take the blue cube", "please fetch the green ball", "bring me the can on the left",
    "where is the white sphere", "i want the upper right brick", "select the small orange tube",
    "show me the object in the middle", "lift the rightmost cylinder", "point to the black mug",
    "could you give me the yellow cup please",
)  # fmt: skip
ANSWERS = ("the blue one", "on the right", "i mean the orange one", "the top left", "nope", "yeah")
OTHER = (
    "how are you doing this morning", "we should paint the kitchen wall next week",
    "somebody left the car keys at work", "it has been raining for three days now",
    "do you remember the name of that film", "my brother plays the piano very well",
    "the train was twenty minutes late", "i forgot to buy bread and milk",
    "let me call you back in an hour", "what did the doctor tell you", "thank you", "good morning",
)  # fmt: skip
VOICES = ("en-us+m3", "en-gb-x-rp", "en-us+f2", "en-029")
RIDGE = 0.02  # L2 penalty per sample


def collect(voices: list[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Features (n, 3) of every utterance, and whether it was heard right (n,)."""
    engine = Sphinx()
    rows: list[tuple[float, ...]] = []
    right: list[bool] = []
    groups = (
        (COMMANDS, Hints(), True),
        (ANSWERS, Hints(Expecting.ANSWER), True),
        (OTHER, Hints(), False),
        (OTHER[::3], Hints(Expecting.ANSWER), False),
    )
    with tempfile.TemporaryDirectory() as folder:
        for voice in voices:
            for sentences, hints, known in groups:
                for sentence in sentences:
                    said = say(sentence, voice, Path(folder), rate=155, before=0.3, after=0.6)
                    heard = engine.recognize(said, hints)
                    if heard.features:
                        rows.append(heard.features)
                        right.append(known and word_errors(sentence, heard.text)[0] == 0)
    return np.nan_to_num(np.array(rows)), np.array(right, float)


def fit(
    features: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The weights (4,) of a logistic regression, the constant first, by Newton's method."""
    x = np.column_stack([np.ones(len(features)), features])
    weights = np.zeros(x.shape[1])
    penalty = RIDGE * len(x) * np.diag([0.0, 1.0, 1.0, 1.0])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ weights))
        gradient = x.T @ (right - p) - penalty @ weights
        hessian = (x.T * (p * (1 - p))) @ x + penalty
        weights = weights + np.linalg.solve(hessian, gradient)
    return weights


def main() -> None:
    """Collect, fit, and print the weights and how well they separate right from wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--voices", nargs="+", default=list(VOICES), help="voices of espeak-ng")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    features, right = collect(options.voices)
    weights = fit(features, right)
    sure = 1.0 / (1.0 + np.exp(-(weights[0] + features @ weights[1:])))
    report = {
        "weights": [round(float(w), 2) for w in weights],
        "utterances": len(right),
        "heard right": int(right.sum()),
        "at 0.6: accepted and right": int(((sure >= 0.6) & (right == 1)).sum()),
        "at 0.6: accepted and wrong": int(((sure >= 0.6) & (right == 0)).sum()),
        "at 0.25: rejected and right": int(((sure < 0.25) & (right == 1)).sum()),
        "at 0.25: rejected and wrong": int(((sure < 0.25) & (right == 0)).sum()),
    }
    print(json.dumps(report) if options.json else "\n".join(f"{k}: {v}" for k, v in report.items()))


if __name__ == "__main__":
    main()
