# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Questions that help: they offer two things that match what was said, and ask for something new.

`asks_again` says whether a question asks for what the person has said already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from clue_ros.dialogue.candidates import COLOR, KIND, SIZE
from clue_ros.dialogue.noun_phrases import ENGLISH, Phrase, read_phrase
from clue_ros.dialogue.nouns import head_noun
from clue_ros.dialogue.object_names import KNOWN_NAMES, name_match
from clue_ros.dialogue.places import COUNTED_FROM, DIRECTIONS
from clue_ros.dialogue.words import asks_yes_or_no

ACROSS, DOWN = "place across", "place down"  # the image
_OPEN = {COLOR: r"\bcolou?r\b", SIZE: r"\b(?:size|big)\b", ACROSS: r"\bwhere\b"}


def told(said: Sequence[str]) -> frozenset[str]:
    """The properties that a person has given: COLOR, KIND, SIZE, ACROSS, DOWN.

    >>> sorted(told(["pick up the red mug", "the left one"]))
    ['color', 'kind', 'place across']
    """
    return frozenset(name for text in said for name in _properties(text))


def _properties(text: str) -> Iterator[str]:
    phrase = read_phrase(text)
    if phrase.colors:
        yield COLOR
    if phrase.size:
        yield SIZE
    if _noun(text):
        yield KIND
    side = COUNTED_FROM.get(phrase.order[1] or "") if phrase.order else None
    yield from (axis for place in (phrase.place, side) if place for axis in axes_of(place))


def axes_of(place: str) -> tuple[str, ...]:
    """Along which axes of the image a place tells things apart; both for a corner, the middle."""
    x, y = DIRECTIONS.get(place, (1.0, 1.0))
    return ((ACROSS,) if x else ()) + ((DOWN,) if y else ())


def asks_again(question: str, options: Sequence[str], said: Sequence[str]) -> bool:
    """Whether a question asks for what was said, or offers what cannot be meant after it.

    options: the answers that it offers; none of an open question. said: what the person said about
    this object. A question whose options differ in something new, too, does not ask again.

    >>> asks_again("where is it?", (), ["the mug on the left"])
    True
    >>> asks_again("the upper one or the lower one?", ("the upper one", "the lower one"),
    ...            ["the mug on the left"])
    False
    """
    known = told(said)
    if not options:
        return any(name in known for name, asked in _OPEN.items() if re.search(asked, question))
    if asks_yes_or_no(options):
        return False
    offered = [read_phrase(option) for option in options]
    refused = {
        color
        for phrase in map(read_phrase, said)
        if phrase.excluded
        for color in phrase.excluded.colors
    }
    if any(refused.intersection(phrase.colors) for phrase in offered):
        return True
    asked = _differing(offered)
    return bool(asked) and asked <= (known - {KIND} if _are_kinds(offered, said) else known)


def _differing(offered: Sequence[Phrase]) -> frozenset[str]:
    """The properties in which options differ."""
    counts = {
        COLOR: len({phrase.colors for phrase in offered}),
        KIND: len({phrase.noun for phrase in offered}),
        SIZE: len({phrase.size for phrase in offered}),
    }
    found = {name for name, count in counts.items() if count > 1}
    places = {phrase.place for phrase in offered}
    sides = places - {None, "middle"} if len(places) > 1 else set()
    return frozenset(found.union(*(axes_of(place) for place in sides if place)))


def _are_kinds(offered: Sequence[Phrase], said: Sequence[str]) -> bool:
    """Whether all options are kinds of what was named: apple and pear, of a fruit."""
    nouns = [noun for noun in map(_noun, said) if noun]
    kinds = [phrase.noun for phrase in offered]
    return all(
        kind and kind != noun and name_match(noun, kind) is not None
        for noun in nouns
        for kind in kinds
    )


def _noun(text: str) -> str:
    """The noun of an utterance; empty for "the thing"."""
    noun, read = head_noun(text), read_phrase(text).noun
    return read if not noun and read in KNOWN_NAMES else "" if noun in ENGLISH.generic else noun
