"""What a noun phrase says: the thing it names, and the parts that tell it from others.

"the second red mug from the left, not the big one" names a mug, that is red, the second from the
left, and not big. Reading needs no model: tables of words, one language each. What a table does not
know stays in the noun, so that a detector is still asked about it: "coffee mug with a handle".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from clue_ros.dialogue.words import noun_phrase, plain

SIDES: dict[str, tuple[float, float]] = {
    "left": (-1.0, 0.0),
    "right": (1.0, 0.0),
    "upper": (0.0, -1.0),
    "lower": (0.0, 1.0),
    "upper left": (-0.7, -0.7),
    "upper right": (0.7, -0.7),
    "lower left": (-0.7, 0.7),
    "lower right": (0.7, 0.7),
}
"""Direction (x, y) of each place, x right and y down; "middle" is the only other place."""
LAST_ONE = -1
"""The number of "the last one"."""


@dataclass(frozen=True)
class PhraseWords:
    """The words of one language. Each table maps what people say to the name used here.

    colors, sizes ("big", "small"), places (of `SIDES`, or "middle"), numbers (of an order),
    relations ("left", "right", "behind", "front", "next"), several (how many; 0: not said).
    generic: nouns that name nothing. fillers: words without meaning here.
    from_side: pattern of "from the left" with the side in its group. negation: patterns that
    open what is excluded. exact: patterns that say the place is an extreme ("leftmost").
    """

    colors: Mapping[str, str]
    sizes: Mapping[str, str]
    places: Mapping[str, str]
    extremes: frozenset[str]
    numbers: Mapping[str, int]
    relations: Mapping[str, str]
    several: Mapping[str, int]
    generic: frozenset[str]
    fillers: frozenset[str]
    from_side: str
    negation: str
    clauses: str


def _both_orders(rows: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {form: name for name, forms in rows.items() for form in forms}


_ENDS = {
    "upper": ("upper", "top", "back", "rear", "far"),
    "lower": ("lower", "bottom", "front", "near"),
}


def _english_places() -> dict[str, str]:
    """Every form of a place: "left", "on the left side", "in the upper right corner"."""
    names: dict[str, str] = {}
    for side in ("left", "right"):
        names[side] = side
        for end, forms in _ENDS.items():
            for form in forms:
                names |= {form: end, f"{form} {side}": f"{end} {side}"}
                names[f"{side} {form}"] = f"{end} {side}"
    names |= dict.fromkeys(("middle", "center", "centre", "central"), "middle")
    found = dict(names)
    for form, name in names.items():
        for before in ("on the", "to the", "at the", "in the"):
            for after in ("", " side", " part", " corner", " of the table", " of the image"):
                found[f"{before} {form}{after}"] = name
        found |= {f"{form} side": name, f"{form} corner": name, f"{form} hand": name}
    for side in ("left", "right"):
        for form in (f"{side}most", f"furthest {side}", f"farthest {side}", f"far {side}",
                     f"furthest to the {side}", f"on the far {side}"):  # fmt: skip
            found[form] = side
    found |= {
        "topmost": "upper", "uppermost": "upper", "highest": "upper", "furthest": "upper",
        "farthest": "upper", "furthest away": "upper", "farthest away": "upper",
        "bottommost": "lower", "lowest": "lower", "nearest": "lower", "closest": "lower",
        "nearest to me": "lower", "closest to me": "lower",
    }  # fmt: skip
    return found


ENGLISH = PhraseWords(
    colors={
        "red": "red", "green": "green", "blue": "blue", "yellow": "yellow", "purple": "purple",
        "violet": "purple", "orange": "orange", "white": "white", "black": "black",
        "brown": "brown", "pink": "pink", "gray": "gray", "grey": "gray", "silver": "silver",
        "golden": "gold", "gold": "gold", "beige": "beige", "turquoise": "turquoise",
        "cyan": "cyan",
    },
    sizes=_both_orders({
        "big": ("big", "large", "bigger", "larger", "biggest", "largest", "huge"),
        "small": ("small", "little", "smaller", "smallest", "tiny"),
    }),
    places=_english_places(),
    extremes=frozenset((
        "leftmost", "rightmost", "furthest left", "furthest right", "farthest left",
        "farthest right", "far left", "far right", "topmost", "uppermost", "highest", "bottommost",
        "lowest", "nearest", "closest", "furthest", "farthest", "top", "bottom",
    )),
    numbers={
        "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "1st": 1,
        "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "6th": 6, "last": LAST_ONE,
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
)  # fmt: skip

_WORDS = {"en": ENGLISH}
_TOP = {"top": "upper", "back": "upper", "bottom": "lower", "front": "lower"}


def phrase_words(language: str) -> PhraseWords:
    """The words of a language tag; English for a language without a table."""
    return _WORDS.get(language.split("-")[0].lower(), ENGLISH)


@dataclass(frozen=True)
class Phrase:
    """The parts of a noun phrase; empty or None where it does not say.

    text: all of it. noun: the name, with whatever was not understood; empty for "the one".
    order: number from a side (None: of what was offered), counted from 1, or `LAST_ONE`.
    relation: position relative to a landmark, and the landmark's own phrase. several: how many
    things it names, 0 for "the mugs"; None for one. excluded: what it says it is not.
    """

    text: str
    noun: str = ""
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
        """Colour and noun: what a detector can be asked for. "object" where it names nothing."""
        return " ".join([*self.colors, self.noun or "object"])

    @property
    def full(self) -> str:
        """The whole phrase as it was said, for a detector that understands places too."""
        return self.text

    @property
    def has_geometry(self) -> bool:
        """Whether it says where the thing is, or how big."""
        return any((self.place, self.order, self.relation, self.size))

    @property
    def says_anything(self) -> bool:
        """Whether it tells one thing from another at all."""
        return bool(self.noun or self.colors or self.has_geometry or self.excluded)

    def merged(self, answer: Phrase) -> Phrase:
        """This phrase with what an answer adds, or says instead."""
        added = {
            name: getattr(answer, name) or getattr(self, name)
            for name in ("noun", "colors", "size", "place", "order", "relation", "excluded")
        }
        text = " ".join(filter(None, (self.text, answer.text)))
        return replace(self, text=text, several=None, **added)


def read_phrase(text: str, words: PhraseWords = ENGLISH) -> Phrase:
    """Read a request or an answer in any words; never fails.

    >>> p = read_phrase("pick up the second red mug from the left")
    >>> p.noun, p.colors, p.order
    ('mug', ('red',), (2, 'left'))
    >>> read_phrase("the bowl next to the blue box, not the big one").excluded.size
    'big'
    """
    said = plain(noun_phrase(text))
    said = re.sub(words.clauses, " ", said) if not re.search(words.negation, said) else said
    kept, excluded = _cut(said, words.negation)
    kept = re.sub(words.clauses, " ", kept)
    negated = read_phrase(excluded, words) if excluded and kept is not None else None
    kept, order = _order(kept, words)
    kept, relation = _relation(kept, words)
    kept, several = _take(kept, words.several)
    kept, place, form = _take_with_form(kept, words.places)
    kept, size = _take(kept, words.sizes)
    tokens = kept.split()
    colors = tuple(dict.fromkeys(words.colors[t] for t in tokens if t in words.colors))
    rest = [t for t in tokens if t not in words.colors]
    noun = _noun(rest, words)
    is_generic = any(token in words.generic for token in rest)
    if not noun and not is_generic and len(colors) > 1:  # "the red orange"
        noun, colors = colors[-1], colors[:-1]
    return Phrase(
        text=" ".join(noun_phrase(text).split()).rstrip(" ?.!,"),
        noun=noun,
        colors=colors,
        size=size,
        place=place,
        is_extreme=form in words.extremes,
        order=order,
        relation=relation,
        several=several,
        excluded=negated,
    )


def _cut(text: str, pattern: str) -> tuple[str, str]:
    """What stands before a pattern, and what follows it."""
    found = re.search(pattern, text)
    if found is None:
        return text, ""
    return text[: found.start()].strip(), text[found.end() :].strip()


def _order(text: str, words: PhraseWords) -> tuple[str, tuple[int, str | None] | None]:
    """Take "second ... from the left", or a bare "second", out of a text."""
    side = re.search(words.from_side, text)
    found = re.search(rf"\b({'|'.join(words.numbers)})\b", text)
    if found is None:
        return (re.sub(words.from_side, " ", text) if side else text), None
    number = words.numbers[found[1]]
    rest = re.sub(rf"\b{re.escape(found[1])}\b", " ", text, count=1)
    if side is None:
        return rest, (number, None)
    name = _TOP.get(side[1], side[1])
    return re.sub(words.from_side, " ", rest), (number, name)


def _relation(text: str, words: PhraseWords) -> tuple[str, tuple[str, str] | None]:
    forms = sorted(words.relations, key=len, reverse=True)
    found = re.search(rf"\b({'|'.join(map(re.escape, forms))})\s+(.+)$", text)
    if found is None:
        return text, None
    landmark = _noun([w for w in found[2].split() if w not in ("me", "you")], words)
    if not landmark:
        return text, None
    return text[: found.start()].strip(), (words.relations[found[1]], landmark)


def _take(text: str, table: Mapping[str, object]) -> tuple[str, object]:
    text, value, _ = _take_with_form(text, table)
    return text, value


def _take_with_form(text: str, table: Mapping[str, object]) -> tuple[str, object, str]:
    """The longest form of a table that the text has: the text without it, its name, the form."""
    for form in sorted(table, key=len, reverse=True):
        pattern = rf"\b{re.escape(form)}\b"
        if re.search(pattern, text):
            return re.sub(pattern, " ", text, count=1), table[form], form
    return text, None, ""


def _noun(tokens: Iterable[str], words: PhraseWords) -> str:
    """The tokens that name the thing; fillers inside stay ("cup of tea"), those around go."""
    kept = [token for token in tokens if token not in words.generic]
    while kept and kept[0] in words.fillers:
        kept.pop(0)
    while kept and kept[-1] in words.fillers:
        kept.pop()
    return " ".join(kept)
