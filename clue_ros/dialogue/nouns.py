# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Which words of an utterance name things, and which tell them apart; learned, in any words.

Each word gets one of three tags from its letters and the words around it, by logistic regression on
hashed features (`clue train intent` makes the weights beside those of `clue_ros.dialogue.intent`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.intent import MAX_TOKENS, IntentModel, load_intent, words
from clue_ros.dialogue.noun_phrases import COLORS, ENGLISH
from clue_ros.dialogue.reading import SURE, Kind, read
from clue_ros.dialogue.types import Dialogue
from clue_ros.dialogue.words import DETERMINERS, without_courtesy

BUCKETS = 2**16
MAX_NOUNS = 6  # of a dialogue
_AROUND = 3  # words on both sides that are looked at
THINGS = frozenset((
    "object", "objects", "thing", "things", "item", "items", "one", "ones", "something",
    "anything", "everything",
))  # fmt: skip
"""Nouns that name nothing."""
_BEFORE_NOUN = DETERMINERS | {word for form in ENGLISH.several for word in form.split()}
_WORD = re.compile(r"\S+")


class Tag(IntEnum):
    """The role of a word in an utterance; the order is that of the weights' columns."""

    OTHER = 0
    NOUN = 1
    MODIFIER = 2


@dataclass(frozen=True)
class Tagged:
    """A word of the text, as it was written, without punctuation; its tag."""

    word: str
    tag: Tag


def features(said: Sequence[str], at: int) -> npt.NDArray[np.int64]:
    """The rows of the weights of word `at`, int64 (n,), in 0..BUCKETS - 1.

    said: words in the spelling of `clue_ros.dialogue.intent.words`.
    """
    row = ["^"] * _AROUND + list(said) + ["$"] * _AROUND
    at += _AROUND
    found = [f"{k} {row[at + k]}" for k in range(-_AROUND, _AROUND + 1)]
    found += [f"{k}+ {row[at + k]} {row[at + k + 1]}" for k in range(-2, 2)]
    found += [f"{k}++ {row[at + k]} {row[at + k + 1]} {row[at + k + 2]}" for k in (-2, -1, 0)]
    spelled = f"<{row[at]}>"
    found += [f"#{spelled[i : i + 3]}" for i in range(len(spelled) - 2)]
    return np.array([zlib.crc32(f.encode()) % BUCKETS for f in found], dtype=np.int64)


def tagged(text: str) -> list[Tagged]:
    """The words of an utterance with their tags; a word of a long text past its middle is left out.

    >>> [t.word for t in tagged("could you hand me the red mug, please") if t.tag is Tag.NOUN]
    ['mug']
    """
    parts = [(part, own) for part in _WORD.findall(text) if (own := words(part))]
    said = [word for _, own in parts for word in own][:MAX_TOKENS]
    model, found, at = load_intent(), list[Tagged](), 0
    for part, own in parts:
        if at + len(own) > len(said):
            break
        tags = [_tag(model, said, at + k) for k, word in enumerate(own) if word[0].isalnum()]
        if tags:
            found.append(Tagged(part.strip(".,;:!?()\"'"), Tag(max(tags))))
        at += len(own)
    return found


def _tag(model: IntentModel, said: Sequence[str], at: int) -> Tag:
    """The tag of word `at`; "can" before "you" is a verb, and no tin."""
    if [*said[at : at + 2]] == ["can", "you"]:
        return Tag.OTHER
    return Tag(model.tag(features(said, at)))


def nouns(text: str) -> tuple[str, ...]:
    """The nouns of an utterance in their order, each once, in lower case: ("mug", "soup can")."""
    return _nouns(tagged(text))


def _nouns(found: Sequence[Tagged]) -> tuple[str, ...]:
    """See `nouns`."""
    runs = groupby(found, key=lambda t: t.tag)
    named = [[t.word.lower() for t in run] for tag, run in runs if tag is Tag.NOUN]
    return tuple(dict.fromkeys(" ".join(_uncolored(run)) for run in named))


def _uncolored(run: list[str]) -> list[str]:
    """The words of a noun without the colours before it: "red cubes", and not "orange"."""
    while len(run) > 1 and run[0] in COLORS:
        run = run[1:]
    return run


def nouns_of(dialogue: Dialogue) -> tuple[str, ...]:
    """The nouns that the person said, landmarks among them: what a detector is asked for.

    >>> nouns_of(Dialogue("pick up the red mug left of the plate"))
    ('mug', 'plate')
    """
    said = (turn.text for turn in dialogue.turns if turn.speaker == "user")
    found = dict.fromkeys(noun for text in said for noun in nouns(text))
    return tuple(found)[:MAX_NOUNS] or ("object",)


def head_noun(text: str) -> str:
    """The noun of the thing that a request names; empty for "the one next to the plate"."""
    found = tagged(text)
    for word in found:
        if word.word.lower() in ("one", "ones"):
            return ""
        if word.tag is Tag.NOUN:
            return _nouns(found)[0]
    return ""


def named_part(text: str) -> str:
    """The part of a request that names the thing, with its article: "the red mug on the left".

    Empty where no part does, and where what stands before it does more than to ask for it: "could
    you get me" only asks, "rather than" does not. What follows out of courtesy goes too.

    >>> named_part("could you get me the banana, please"), named_part("fetch me something to eat")
    ('the banana', 'something to eat')
    >>> named_part("red mug"), named_part("can you get me the box ?"), named_part("take the can")
    ('the red mug', 'the box', 'the can')
    >>> named_part("rather than the sponge, get the brush"), named_part("let it be")
    ('', '')
    """
    parts, marks = without_courtesy(text).split(), tagged(without_courtesy(text))
    at = [place for place, part in enumerate(parts) if any(map(str.isalnum, part))]
    telling = [t.tag is not Tag.OTHER or t.word.lower() in THINGS for t in marks]
    if not any(telling) or len(marks) != len(at):
        return ""
    first, end = telling.index(True), len(marks)
    bare = marks[first].word.lower() not in THINGS | _BEFORE_NOUN
    while first and marks[first - 1].word.lower() in _BEFORE_NOUN:
        first, bare = first - 1, False
    if first and not _asks_for_it(" ".join(parts[: at[first]])):
        return ""
    while not telling[end - 1] and marks[end - 1].word.lower() in ENGLISH.endings:
        end -= 1
    part = " ".join(parts[at[first] : at[end - 1] + 1]).rstrip(".,;:!? ")
    return f"the {part}" if bare else part


def _asks_for_it(words: str) -> bool:
    """Whether words ask for something that they do not name: "hand me", of "hand me it"."""
    said = [read(f"{words} {pronoun}") for pronoun in ("it", "that")]
    return any(r.kind is Kind.UNNAMED and r.confidence >= SURE for r in said)


FORM = "pick up {}"
"""The form in which a model reads every request. Of "{}", "pick up {}" and "give me {}" it had the
smallest error of the probability of ambiguity on validation scenes, and no other was righter."""


def in_one_form(dialogue: Dialogue) -> Dialogue:
    """The dialogue with its request in `FORM`, or as it is where no part of it names a thing.

    >>> in_one_form(Dialogue("could you get me the banana, please")).request
    'pick up the banana'
    """
    request, *later = dialogue.turns
    thing = named_part(request.text)
    return Dialogue(FORM.format(thing), later) if thing else dialogue
