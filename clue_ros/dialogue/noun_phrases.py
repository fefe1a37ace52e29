# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Parses noun phrases: the thing, and the parts that tell it from others.

"the second red mug from the left, not the big one" names a mug, that is red, the second from the
left, and not big. Reading needs no model: tables of words, one language each. What a table does not
know stays in the noun, so that a detector is still asked about it: "coffee mug with a handle".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TypeVar

from clue_ros.dialogue import places
from clue_ros.dialogue.object_names import KNOWN_NAMES
from clue_ros.dialogue.types import Turn
from clue_ros.dialogue.words import (
    VOCATIVES,
    current_turns,
    named_object,
    plain,
    without_courtesy,
)

NameT = TypeVar("NameT", str, int)
COLORS = (
    "red", "green", "blue", "yellow", "purple", "orange", "white", "black", "brown", "pink", "gray",
)  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
SHORTEST = 4  # letters; a shorter misspelt word is mostly another word
LAST_ONE = -1
"""The number of "the last one"."""
_WORD, _BOUNDARY = re.compile(r"\w+"), re.compile(r"\b")


@dataclass(frozen=True, eq=False)
class PhraseWords:
    """The words of one language. Each table maps what people say to the name used here.

    colors, sizes ("big", "small"), places (of `places.DIRECTIONS`, or "middle"), numbers (of an
    order), relations ("left", "right", "behind", "front", "next"), several (how many; 0: not said).
    extremes: the forms of a place that only the first one in its direction has. generic: nouns that
    name nothing. openings, endings: words before and after what a request names. fillers: words
    without meaning around a noun. from_side: pattern of "from the left", its group the side.
    negation: pattern of what opens an exclusion. clauses: pattern of "that is", "whose color is".
    details: pattern of what opens a detail that only a model can judge ("with a handle").
    """

    colors: Mapping[str, str]
    sizes: Mapping[str, str]
    places: Mapping[str, str]
    extremes: frozenset[str]
    numbers: Mapping[str, int]
    relations: Mapping[str, str]
    several: Mapping[str, int]
    generic: frozenset[str]
    openings: frozenset[str]
    endings: frozenset[str]
    fillers: frozenset[str]
    from_side: str
    negation: str
    clauses: str
    details: str


def _both_orders(rows: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {form: name for name, forms in rows.items() for form in forms}


ENGLISH = PhraseWords(
    colors={
        **{color: color for color in COLORS},
        "violet": "purple", "grey": "gray", "silver": "silver", "golden": "gold", "gold": "gold",
        "beige": "beige", "turquoise": "turquoise", "cyan": "cyan",
    },
    sizes=_both_orders({
        "big": ("big", "large", "bigger", "larger", "biggest", "largest", "huge"),
        "small": ("small", "little", "smaller", "smallest", "tiny"),
    }),
    places=places.FORMS,
    extremes=places.EXTREMES,
    numbers={
        **{word: number for number, word in enumerate(ORDINALS[:6], 1)},
        "1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "6th": 6, "last": LAST_ONE,
    },
    relations=_both_orders({
        "left": ("to the left of", "on the left of", "on the left side of", "left of"),
        "right": ("to the right of", "on the right of", "on the right side of", "right of"),
        "behind": ("at the back of", "behind", "above"),
        "front": ("in front of", "below", "before", "under", "underneath"),
        "next": ("next to", "beside", "close to", "closest to", "nearest to", "near", "by"),
    }),
    several={
        "both": 2, "both of": 2, "two": 2, "the two": 2, "three": 3, "four": 4, "five": 5,
        "six": 6, "all": 0, "all of": 0, "one of": 0, "some of": 0, "any of": 0,
    },
    generic=frozenset((
        "object", "objects", "thing", "things", "item", "items", "one", "ones", "something",
        "anything", "it", "that", "this", "those", "these", "them",
    )),
    openings=frozenset((
        "please", "could", "can", "would", "will", "may", "you", "robot", "hey", "i", "i'm", "i'd",
        "hi", "hello", *VOCATIVES,
        "am", "want", "need", "like", "to", "have", "let", "me", "us", "pick", "take", "grab",
        "grasp", "get", "fetch", "bring", "give", "hand", "pass", "show", "find", "point", "touch",
        "lift", "hold", "move", "go", "look", "looking", "select", "choose", "push", "locate",
        "detect", "where", "where's", "is", "are", "up", "at", "out", "over", "for", "now", "then",
        "so", "well", "no", "sorry", "wait", "ok", "okay", "oh", "mean", "meant", "it", "it's",
        "just", "think", "say", "said",
    )),
    endings=frozenset((
        "please", "now", "here", "up", "thanks", "thank", "you", "instead", "then", "to", "me",
    )),
    fillers=frozenset((
        "the", "a", "an", "please", "is", "are", "it's", "its", "that's", "i", "mean", "meant",
        "want", "with", "color", "colour", "colored", "coloured", "and", "on", "to", "in", "at",
        "of", "there", "here", "just", "only", "then", "ok", "okay", "sorry", "wait", "instead",
        "side", "part", "now", "robot", "hey",
    )),
    from_side=r"(?:counting |counted )?from (?:the )?(left|right|top|back|bottom|front)",
    negation=r"(?:\bbut |\bthat is |\bthat's |\bwhich is |\bit's |\bit is )?"
    r"\b(?:not|isn't|except|excluding|other than|non)\b",
    clauses=r"\b(?:which|whose|that|it)(?:'s)? (?:colou?r )?is\b|\bthat's\b",
    details=r"\b(?:with|without|that has|which has|having|holding|containing|wearing|full of)\b",
)  # fmt: skip


@dataclass(frozen=True)
class Phrase:
    """The parts of a noun phrase; empty or None where it does not say.

    text: all of it. noun: the name, with whatever was not understood; empty for "the one".
    detail: "with a blue handle". is_generic: it says "one" or "object" for a noun.
    order: number from a side (None: of what was offered), counted from 1, or `LAST_ONE`.
    relation: position relative to a landmark, and the landmark's own phrase. several: how many
    things it names, 0 for "the mugs"; None for one. excluded: what it says it is not.
    """

    text: str
    noun: str = ""
    detail: str = ""
    is_generic: bool = False
    colors: tuple[str, ...] = ()
    size: str | None = None
    place: str | None = None
    is_extreme: bool = False
    order: tuple[int, str | None] | None = None
    relation: tuple[str, str] | None = None
    several: int | None = None
    excluded: Phrase | None = field(default=None)

    @property
    def name(self) -> str:
        """Colour, noun and detail: what a detector can be asked for; "object" for "the one"."""
        is_bare = self.is_generic or not self.colors
        noun = self.noun or ("object" if is_bare else "")
        return " ".join(filter(None, (*self.colors, noun, self.detail)))

    @property
    def full(self) -> str:
        """The whole phrase as it was said, for a detector that understands places too."""
        return self.text or self.name

    @property
    def has_geometry(self) -> bool:
        """Whether it says where the thing is, or how big."""
        return any((self.place, self.order, self.relation, self.size))

    @property
    def says_anything(self) -> bool:
        """Whether it tells one thing from another at all."""
        parts = (self.noun, self.detail, self.colors, self.has_geometry, self.excluded)
        return any(parts)

    def merged(self, answer: Phrase) -> Phrase:
        """This phrase with what an answer adds, or says instead: "mug" and "the left one"."""
        added = {
            name: getattr(answer, name) or getattr(self, name)
            for name in (
                "noun",
                "detail",
                "colors",
                "size",
                "place",
                "order",
                "relation",
                "excluded",
            )
        }
        own = " ".join(filter(None, (*self.colors, self.noun))) or "object"
        tokens = answer.text.split()
        generic = [i for i, token in enumerate(tokens) if token in ENGLISH.generic]
        if generic:
            tokens[generic[-1]] = own
        elif not answer.noun:
            tokens.append(own)
        return replace(self, text=" ".join(tokens), several=None, **added)


def read_phrase(text: str) -> Phrase:
    """Read a request or an answer in any words; never fails.

    >>> p = read_phrase("pick up the second red mug from the left")
    >>> p.noun, p.colors, p.order
    ('mug', ('red',), (2, 'left'))
    >>> read_phrase("the bowl next to the blue box, not the big one").excluded.size
    'big'
    """
    said = _named(" ".join(spelled(token) for token in plain(without_courtesy(text)).split()))
    kept, excluded = _cut(said, ENGLISH.negation)
    kept = re.sub(ENGLISH.clauses, " ", kept)
    negated = read_phrase(excluded) if excluded else None
    found = re.search(ENGLISH.details, kept)
    kept, detail = (kept[: found.start()].strip(), kept[found.start() :]) if found else (kept, "")
    kept, order = _order(kept)
    kept, relation = _relation(kept)
    kept, all_of = _take(kept, ENGLISH.several)
    kept, count = _take(kept, ENGLISH.several)
    several = max((n for n in (all_of, count) if n is not None), default=None)
    kept, place, form = _take_with_form(kept, ENGLISH.places)
    kept, size = _take(kept, ENGLISH.sizes)
    tokens = kept.split()
    colors = tuple(dict.fromkeys(ENGLISH.colors[t] for t in tokens if t in ENGLISH.colors))
    rest = [t for t in tokens if t not in ENGLISH.colors]
    noun = _noun(rest)
    is_generic = bool(rest) and rest[-1] in ENGLISH.generic
    if is_generic and noun:  # "the darker one"
        noun, detail = "", f"{noun} {detail}".strip()
    if not noun and not is_generic and len(colors) > 1:  # "the red orange"
        noun, colors = colors[-1], colors[:-1]
    return Phrase(
        text=said,
        noun=noun,
        detail=detail,
        is_generic=is_generic,
        colors=colors,
        size=size,
        place=place,
        is_extreme=form in ENGLISH.extremes,
        order=order,
        relation=relation,
        several=several,
        excluded=negated,
    )


def _named(text: str) -> str:
    """Return a request's phrase without its verb, its politeness and the article."""
    tokens = text.split()
    while tokens and tokens[-1] in ENGLISH.endings:
        tokens.pop()
    begin = 0
    while begin < len(tokens) and tokens[begin] in ENGLISH.openings:
        begin += 1
    if begin < len(tokens) and tokens[begin] in ("the", "a", "an", "my", "your", "some"):
        begin += 1
    return " ".join(tokens[begin:] or tokens[-1:])


@lru_cache(maxsize=4096)
def spelled(token: str) -> str:
    """A misspelt colour, place, size or number as it is spelled; any other word as it is.

    >>> spelled("grene"), spelled("seccond"), spelled("bowl")
    ('green', 'second', 'bowl')
    """
    known = _closed_words()
    if len(token) < SHORTEST or token in known or token in _other_words():
        return token
    return slip_of(token, known) or token


@cache
def _closed_words() -> frozenset[str]:
    tables = (ENGLISH.colors, ENGLISH.sizes, ENGLISH.places, ENGLISH.numbers)
    found = {token for table in tables for form in table for token in form.split()}
    return frozenset(token for token in found if len(token) >= SHORTEST)


@cache
def _other_words() -> frozenset[str]:
    """Words that are spelled right, though they look like a colour or a place."""
    phrases = (*ENGLISH.relations, *ENGLISH.several, *KNOWN_NAMES)
    parts = {token for phrase in phrases for token in phrase.split()}
    around = ENGLISH.openings | ENGLISH.endings | ENGLISH.fillers
    return ENGLISH.generic | around | parts


def is_one_slip(a: str, b: str) -> bool:
    """Whether two words differ by a letter left out, put in, changed, or swapped with its next."""
    if abs(len(a) - len(b)) > 1:
        return False
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    x, y = a[at:], b[at:]
    swapped = x[:2] == y[1::-1] and x[2:] == y[2:] if len(x) > 1 and len(y) > 1 else False
    return swapped or x[1:] == y[1:] or x[1:] == y or x == y[1:]


def slip_of(token: str, known: Collection[str]) -> str:
    """The only one of some words that a token is a slip of; "" where there is none, or several.

    A slip seldom changes the first letter.
    """
    near = {word for word in known if word[0] == token[:1] and is_one_slip(token, word)}
    return near.pop() if len(near) == 1 else ""


def _cut(text: str, pattern: str) -> tuple[str, str]:
    """Return the words before a pattern, and those after it."""
    found = re.search(pattern, text)
    if found is None:
        return text, ""
    return text[: found.start()].strip(), text[found.end() :].strip()


def _order(text: str) -> tuple[str, tuple[int, str | None] | None]:
    """Take "second ... from the left", or a bare "second", out of a text."""
    side = re.search(ENGLISH.from_side, text)
    found = _first_of(tuple(ENGLISH.numbers), text)
    if found is None:
        return (re.sub(ENGLISH.from_side, " ", text) if side else text), None
    before, form, after = found
    number, rest = ENGLISH.numbers[form], f"{before} {after}"
    if side is None:
        return rest, (number, None)
    return re.sub(ENGLISH.from_side, " ", rest), (number, places.COUNTED_FROM[side[1]])


def _relation(text: str) -> tuple[str, tuple[str, str] | None]:
    found = _first_of(tuple(ENGLISH.relations), text)
    if found is None:
        return text, None
    before, form, after = found
    landmark = _noun([token for token in after.split() if token not in ("me", "you")])
    if not landmark:
        return text, None
    return before.strip(), (ENGLISH.relations[form], landmark)


def _take(text: str, table: Mapping[str, NameT]) -> tuple[str, NameT | None]:
    text, value, _ = _take_with_form(text, table)
    return text, value


def _take_with_form(text: str, table: Mapping[str, NameT]) -> tuple[str, NameT | None, str]:
    """The first form of a table in a text: the text without it, its name, the form."""
    found = _first_of(tuple(table), text)
    if found is None:
        return text, None, ""
    before, form, after = found
    return f"{before} {after}", table[form], form


def _first_of(forms: tuple[str, ...], text: str) -> tuple[str, str, str] | None:
    """The first whole words of a text that are one of these forms, the longest where several begin.

    Returns what comes before them, the form, and what comes after; None where there is none. A
    pattern of a table's hundreds of forms would take milliseconds to compile.
    """
    begin = _by_first_word(forms)
    for word in _WORD.finditer(text):
        start = word.start()
        for form in begin.get(word[0], ()):
            end = start + len(form)
            if text.startswith(form, start) and _BOUNDARY.match(text, end):
                return text[:start], form, text[end:]
    return None


@lru_cache(maxsize=32)
def _by_first_word(forms: tuple[str, ...]) -> dict[str, list[str]]:
    """Forms by their first word, the longest first."""
    found: dict[str, list[str]] = {}
    for form in sorted(forms, key=len, reverse=True):
        found.setdefault(_WORD.findall(form)[0], []).append(form)
    return found


def _noun(tokens: Iterable[str]) -> str:
    """The tokens that name the thing; fillers inside stay ("cup of tea"), those around go."""
    kept = [token for token in tokens if token not in ENGLISH.generic]
    if " ".join(kept) in KNOWN_NAMES:  # "toy robot"
        return " ".join(kept)
    while kept and kept[0] in ENGLISH.fillers:
        kept.pop(0)
    while kept and kept[-1] in ENGLISH.fillers:
        kept.pop()
    return " ".join(kept)


def described_object(turns: Sequence[Turn]) -> str:
    """What a dialogue is about (`words.named_object`), with what the last telling answer added.

    "block" becomes "blue block" after "the blue one", "left block" after "the one on the left".
    """
    name = named_object(turns)
    own = read_phrase(name)
    said = [turn.text for turn in current_turns(turns)[1:] if turn.speaker == "user"]
    for answer in reversed([read_phrase(text) for text in said]):
        word = answer.colors[0] if answer.colors else answer.size or answer.place
        given = own.colors if answer.colors else own.size if answer.size else own.place
        if word and not given:
            return f"{word} {name}"
    return name
