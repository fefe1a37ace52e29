# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A learned classifier of utterances: what a person asks for, from the words and the open question.

Multinomial logistic regression on hashed features of words, word n-grams, pairs of words at a
distance, and letters (n-grams of 3 and 4, as fastText has them: Bojanowski and others, 2017), so
that no list of nouns bounds what may be said. `clue train intent` makes the weights, 8 bits each;
the forward pass is a sum of rows in numpy.

`clue_ros.dialogue.reading` decides what a class leads to. Stops are no class: they are a list.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.inflection import singulars
from clue_ros.dialogue.words import asks_yes_or_no, without_accents
from clue_ros.errors import ModelError

CLASSES = ("request", "answer", "unnamed", "yes", "no", "none", "refusal", "wait", "chat")
"""The classes, in the order of the weights' columns."""
WEIGHTS = Path(__file__).with_name("intent.safetensors")
BUCKETS = 180_000
MAX_TOKENS = 120  # that are read: the first and the last half of a longer text

_TOKEN = re.compile(r"[^\W_]+|[.,;:!?()—–…]")
_APOSTROPHE = re.compile(r"(?<=\w)['’‘ʼ`´](?=\w)|\s+(?=n['’]t\b)")
_SAME = "\x01"  # a word that the open question or its request has
_DISTANT = (2, 3, 4)  # words between which pairs are read


@dataclass(frozen=True)
class Asked:
    """The open question, as far as it tells how its answers look.

    about: what the open request names; "" where no request is open. offered: the answers that the
    question offers; ("yes", "no") for one that yes or no settles, () for "where is it?".
    """

    about: str = ""
    offered: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is a question."""
        return bool(self.about or self.offered)


NOTHING_ASKED = Asked()


def words(text: str) -> list[str]:
    """Words and punctuation in lower case, without accents and apostrophes: "dont", ",".

    A letter that is drawn out counts once: "nooo" is "no".
    """
    plain = without_accents(_APOSTROPHE.sub("", text))
    return _TOKEN.findall(re.sub(r"([^\W\d_])\1{2,}", r"\1", plain))


def spoken_words(text: str) -> list[str]:
    """`words` without punctuation."""
    return [word for word in words(text) if word[0].isalnum()]


def features(text: str, asked: Asked = NOTHING_ASKED) -> npt.NDArray[np.int64]:
    """The rows of the weights that an utterance has, int64 (n,), n > 0, in 0..BUCKETS - 1."""
    said = words(text)
    if len(said) > MAX_TOKENS:
        said = said[: MAX_TOKENS // 2] + said[-MAX_TOKENS // 2 :]
    known = _stems(words(" ".join((asked.about, *asked.offered)))) if asked.is_open else set()
    seen = [_SAME if known and not known.isdisjoint(_stem(word)) else word for word in said]
    context = ("Y" if asks_yes_or_no(asked.offered) else "Q") if asked.is_open else "N"
    row = ["^", *seen, "$"]
    found = [*row[1:-1], *(f"{a} {b}" for a, b in pairwise(row))]
    found += [f"{far}>{word}" for far, word in enumerate(row[1:4])]
    found += [f"length {min(len(said), 12) // 2}", "?" if "?" in said else "no ?"]
    found += [f"{context}|{feature}" for feature in found] + [context]
    found += [f"{a} {b} {c}" for a, b, c in zip(row, row[1:], row[2:], strict=False)]
    for far in _DISTANT:
        found += [f"{a} .. {b}" for a, b in zip(row, row[far:], strict=False)]
    for word in said:
        spelled = f"<{word}>"
        for size in (3, 4):
            found += [f"#{spelled[i : i + size]}" for i in range(len(spelled) - size + 1)]
    hashed = [zlib.crc32(feature.encode()) % BUCKETS for feature in found]
    return np.array(hashed, dtype=np.int64)


def _stems(many: Iterable[str]) -> set[str]:
    return {stem for word in many if word.isalnum() for stem in _stem(word)}


def _stem(word: str) -> frozenset[str]:
    return singulars(word) if len(word) > 3 else frozenset((word,))


@dataclass(frozen=True)
class Linear:
    """Rows of 8 bits (buckets, columns), with a scale (columns,) and a bias (columns,)."""

    weights: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    def logits(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The sum of these rows over the root of their number, and the bias; (columns,)."""
        total = self.weights[rows].sum(axis=0, dtype=np.int64) * self.scales
        return np.asarray(self.bias + total / np.sqrt(len(rows)), np.float32)


@dataclass(frozen=True)
class IntentModel:
    """Classes of utterances (BUCKETS rows), and tags of words (`clue_ros.dialogue.nouns`)."""

    classes: Linear
    tags: Linear

    def probabilities(self, text: str, asked: Asked = NOTHING_ASKED) -> dict[str, float]:
        """The probability of each of CLASSES; they sum to 1."""
        logits = self.classes.logits(features(text, asked))
        shares = np.exp(logits - logits.max())
        return dict(zip(CLASSES, map(float, shares / shares.sum()), strict=True))

    def tag(self, rows: npt.NDArray[np.int64]) -> int:
        """The tag of a word with these features."""
        return int(self.tags.logits(rows).argmax())


@cache
def load_intent(path: Path = WEIGHTS) -> IntentModel:
    """Read the weights once.

    Raises ModelError if the file is missing, damaged or of another version.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(str(path))
        classes, tags = (
            Linear(*(found[f"{part}.{name}"] for name in ("weights", "scales", "bias")))
            for part in ("classes", "tags")
        )
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(f"{path}: cannot be read ({error}): install clue_ros again") from error
    if classes.weights.shape != (BUCKETS, len(CLASSES)):
        raise ModelError(f"{path}: weights of another version: make them with `clue train intent`")
    return IntentModel(classes, tags)
