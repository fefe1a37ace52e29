# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sentences that name a thing that is shown: "that is a stapler", "no, that is the tape".

The one place that reads them. Whose thing it is, the caller knows: the one that the robot points
at, or asks about with "this one?".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clue_ros.dialogue.noun_phrases import read_phrase
from clue_ros.dialogue.reading import Kind, read
from clue_ros.dialogue.types import Box

_NAMES = re.compile(
    r"(?P<no>(?:no|nope|wrong)\b\W*)?(?:(?:yes|ok|okay|but|and)\b\W*)?"
    r"(?:that|this|it|that one|this one)(?:'s| is| was)(?: actually| really| just)*"
    r"(?: called| named)?(?: an?| the| my| our| your)+ (?P<name>[^.,;:!?]+)\W*",
    re.IGNORECASE,
)
_CHATTY = 0.9  # confidence that nothing is wanted, from which a sentence names nothing


@dataclass(frozen=True)
class Naming:
    """A name that a person gave. corrects: it is another one than the robot thought."""

    name: str
    corrects: bool = False


@dataclass(frozen=True)
class Named:
    """A box, in pixels, and what a person called the thing in it."""

    box: Box
    name: str


def read_naming(text: str) -> Naming | None:
    """The name that a sentence gives to a thing that is shown; None where it gives none.

    >>> read_naming("No, that is the tape.")
    Naming(name='tape', corrects=True)
    >>> read_naming("that is the left one"), read_naming("that's a good idea")
    (None, None)
    """
    found = _NAMES.fullmatch(text.strip())
    if found is None:
        return None
    phrase, said = read_phrase(found["name"]), read(text)
    chatty = said.kind in (Kind.CHAT, Kind.REFUSAL) and said.confidence >= _CHATTY
    if not phrase.noun or phrase.is_generic or phrase.has_geometry or phrase.excluded or chatty:
        return None
    return Naming(" ".join((*phrase.colors, phrase.noun)), bool(found["no"]))
