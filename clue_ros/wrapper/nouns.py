# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The nouns of a dialogue, for a detector that finds what it is asked for.

Commands to a robot are read as everywhere (`clue_ros.dialogue.noun_phrases`). Descriptions as data
sets have them ("guy in blue shirt", "The woman stands near a bus. She holds a book.") are cut at
sentences, prepositions, verbs and pronouns first; each part is a noun phrase. The tables are small
and closed: a verb that they do not know stays in its noun.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clue_ros.dialogue.noun_phrases import ENGLISH, read_phrase
from clue_ros.dialogue.object_names import KNOWN_NAMES
from clue_ros.dialogue.types import Dialogue
from clue_ros.dialogue.utterances import PLACING
from clue_ros.dialogue.words import DETERMINERS, plain

MAX_NOUNS = 6  # of a dialogue
_PREPOSITIONS = PLACING | {
    "across", "through", "outside", "toward", "towards", "for", "up", "down", "off", "away",
    "facing", "during",
}  # fmt: skip
_JOINING = (
    "and", "or", "but", "as", "while", "when", "where", "who", "whose", "which", "there", "here",
    "most", "also", "just", "then", "now", "please", "very", "not",
)  # fmt: skip
_PRONOUNS = (
    "he", "she", "it", "they", "we", "you", "i", "him", "her", "them", "us", "me", "his", "their",
    "its", "our", "someone", "somebody", "it's", "he's", "she's", "they're", "that's", "i'm",
)  # fmt: skip
_VERBS = (
    "is", "are", "was", "were", "be", "being", "been", "has", "have", "had", "does", "do", "did",
    "will", "would", "should", "stand", "stands", "standing", "sit", "sits", "sitting", "seated",
    "lie", "lies", "lying", "hold", "holds", "holding", "held", "wear", "wears", "wearing", "worn",
    "walk", "walks", "walking", "run", "runs", "running", "ride", "rides", "riding", "carry",
    "carries", "carrying", "eat", "eats", "eating", "look", "looks", "looking", "lean", "leans",
    "leaning", "using", "play", "plays", "playing", "talk", "talks", "talking", "smiles", "smiling",
    "dressed", "parked", "placed", "located", "covered", "filled", "made", "used", "appears",
    "seems", "shown", "pull", "park", "stop", "turn", "drive", "follow", "wait", "slow", "switch",
    "overtake", "accelerate", "know", "care", "ask", "let", "drop", "go", "goes", "going", "get",
    "gets", "want", "wants",
)  # fmt: skip
_CUTS = (ENGLISH.openings - {"can", "hand", "robot", "well"}) | frozenset(
    (*_PREPOSITIONS, *_JOINING, *_PRONOUNS, *DETERMINERS, "another", *_VERBS)
)
_POLITE = (
    r"\b(?:(?:if )?(?:you can|(?:can|may|could|would) (?:i|you|we)(?: mind(?: \w+ing)?)?)"
    r"|hand (?:me|us)|excuse me|hello|hi|hey|robot|thanks|kindly|it would be great|be so kind"
    r"|or rather|no|wait|sorry)\b"
)
_NO_THINGS = frozenset((
    *ENGLISH.generic, "side", "part", "picture", "image", "photo", "front", "back", "middle",
    "center", "background", "foreground", "end", "edge", "kind", "of", "with", "other",
))  # fmt: skip
_DESCRIBED = r"\b(?:holding|wearing|next to|behind|in front of|left of|right of|beside|near)\b"
_LONGEST_NAME = 3  # words of a known name


def nouns_of(dialogue: Dialogue) -> tuple[str, ...]:
    """The nouns that the person said, landmarks among them: what a detector is asked for.

    >>> nouns_of(Dialogue("pick up the red mug left of the plate"))
    ('mug', 'plate')
    >>> nouns_of(Dialogue("guy in blue shirt sitting behind a laptop"))
    ('guy', 'shirt', 'laptop')
    """
    said = [turn.text for turn in dialogue.turns if turn.speaker == "user"]
    found = dict.fromkeys(noun for text in said for noun in _nouns(text) if noun)
    return tuple(found)[:MAX_NOUNS] or ("object",)


def head_noun(text: str) -> str:
    """The noun of the thing that a request names; empty for "the one next to the plate"."""
    return next(iter(_nouns(text)), "")


def _nouns(text: str) -> tuple[str, ...]:
    """The noun of a text, or "", and those of its landmarks."""
    phrase = read_phrase(text)
    landmark = read_phrase(phrase.relation[1]).noun if phrase.relation is not None else ""
    unread = not phrase.noun and not re.match(ENGLISH.details, phrase.detail or "with")
    is_description = (
        unread
        or re.search(_DESCRIBED, phrase.detail)
        or any(_parts(noun) != [noun] for noun in (phrase.noun, landmark) if noun)
    )
    found = _of_description(text) if is_description else ()
    return found or (phrase.noun, landmark)


def _of_description(text: str) -> tuple[str, ...]:
    """The nouns of all parts of all sentences, in their order."""
    found: list[str] = []
    text = re.sub(_POLITE, ". ", text.lower())
    for sentence in re.split(r"[.,;:!?]+(?:\s|$)", text):
        for part in _parts(plain(sentence)):
            phrase = read_phrase(part)
            landmark = read_phrase(phrase.relation[1]).noun if phrase.relation is not None else ""
            found += [noun for noun in (phrase.noun, landmark) if set(noun.split()) - _NO_THINGS]
    return tuple(dict.fromkeys(found))


def _parts(text: str) -> list[str]:
    """A text cut at words that are in no noun phrase; known names stay whole.

    >>> _parts("zebra grazing by the stop sign"), _parts("frying pan")
    (['zebra', 'stop sign'], ['frying pan'])
    """
    parts: list[list[str]] = [[]]
    words, at = text.split(), 0
    while at < len(words):
        size = _known_name(words[at:])
        begins = not parts[-1] and (at == 0 or words[at - 1] not in _VERBS)
        if size:
            parts[-1] += words[at : at + size]
        elif words[at] in _CUTS or (_is_participle(words[at]) and not begins):
            parts.append([])
        else:
            parts[-1].append(words[at])
        at += max(size, 1)
    return [" ".join(part) for part in parts if part]


def _known_name(words: Sequence[str]) -> int:
    """How many of the first words are a known name; 0 for none."""
    sizes = range(min(_LONGEST_NAME, len(words)), 0, -1)
    return next((n for n in sizes if " ".join(words[:n]) in KNOWN_NAMES), 0)


def _is_participle(word: str) -> bool:
    """Whether a word looks like one: "grazing", but "frying" before "pan" begins its phrase."""
    return len(word) > 5 and word.endswith("ing")
