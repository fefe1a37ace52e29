"""References put in words, and requests made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from clue_ros.lab.language.blocks import AHEAD, BEHIND, indefinite, pick
from clue_ros.lab.language.references import Landmark, Reference
from clue_ros.lab.language.words import (
    ANY_NOUNS,
    ANY_PLURALS,
    NUMBERS,
    ORDER_SIDES,
    ORDINALS,
    RELATIONS,
    REQUESTS,
    SIZES,
    plural,
)

# -------------------------------------------------------------------------------------------------
# Slips of the finger: a few likely misspellings of each content word, always the same ones.

SHORTEST = 4  # letters; a slip in a shorter word makes another word
RATE = 0.05  # of utterances with one
_NEAR = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "wqrewyuoipsadfhgjlkxzvcbmn", strict=True)
)  # a key beside it


@lru_cache(maxsize=4096)
def slips(word: str) -> tuple[str, ...]:
    """Up to four misspellings: letters swapped, left out, doubled, or the key beside.

    >>> slips("banana")
    ('banaan', 'banna', 'bannana', 'bansna')
    """
    if len(word) < SHORTEST or not word.isalpha():
        return ()
    mid = len(word) // 2
    made = (
        word[:-2] + word[-1] + word[-2],
        word[:mid] + word[mid + 1 :],
        word[: mid - 1] + 2 * word[mid - 1] + word[mid:],
        word[:mid] + _NEAR[word[mid]] + word[mid + 1 :],
    )
    return tuple(dict.fromkeys(m for m in made if m != word))


def table_of(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The slips of some words that are no words themselves."""
    known = set(words)
    found = {w: tuple(s for s in slips(w) if s not in known) for w in sorted(known)}
    return {w: s for w, s in found.items() if s}


def mistyped(
    text: str,
    table: Mapping[str, tuple[str, ...]],
    rng: np.random.Generator,
    rate: float = RATE,
) -> str:
    """The text, now and then with one word of the table misspelt."""
    if rng.uniform() >= rate:
        return text
    words = text.split()
    places = [k for k, word in enumerate(words) if word in table]
    if not places:
        return text
    at = places[int(rng.integers(len(places)))]
    options = table[words[at]]
    words[at] = options[int(rng.integers(len(options)))]
    return " ".join(words)


@dataclass(frozen=True)
class Speech:
    """How the people of a world speak.

    nouns: of each kind. typing: misspellings (`typing_errors.table_of`). slip_rate: of utterances
    that have one.
    """

    nouns: Mapping[str, tuple[str, ...]]
    typing: Mapping[str, tuple[str, ...]]
    slip_rate: float

    def noun(self, kind: str | None, rng: np.random.Generator) -> str:
        """A noun for a kind, or for anything."""
        return pick(rng, ANY_NOUNS if kind is None else self.nouns.get(kind, (kind,)))

    def typed(self, text: str, rng: np.random.Generator) -> str:
        """What was meant to be typed, as it was."""
        return mistyped(text, self.typing, rng, self.slip_rate)

    def phrase(self, reference: Reference, rng: np.random.Generator) -> str:
        """The reference as a noun phrase with "the"."""
        if reference.plural is not None:
            return self._plural(reference, rng)
        noun = self.noun(reference.kind, rng)
        ahead: list[str] = []
        behind: list[str] = []
        if reference.order is not None:
            number, side = reference.order
            ahead.append(ORDINALS[number - 1])
            behind.append(pick(rng, ORDER_SIDES[side]))
        if reference.place is not None:
            if rng.uniform() < 0.5:
                ahead.append(pick(rng, AHEAD[reference.place]))
            else:
                behind.append(pick(rng, BEHIND[reference.place]))
        if reference.size is not None:
            ahead.append(pick(rng, SIZES[reference.size]))
        color = reference.color
        if color is not None and rng.uniform() < 0.1:
            behind.insert(0, pick(rng, (f"that is {color}", f"which color is {color}")))
        elif color is not None:
            ahead.append(color)
        if reference.relation is not None:
            relation, landmark = reference.relation
            behind.append(pick(rng, RELATIONS[relation]).format(self.landmark(landmark, rng)))
        if reference.not_color is not None:
            behind.append(self._denial(reference.not_color, noun, rng))
        return " ".join(["the", *ahead, noun, *behind])

    def _denial(self, color: str, noun: str, rng: np.random.Generator) -> str:
        forms = ("that is not {c}", "but not the {c} one", ", not the {c} one", ", not the {c} {n}")
        return pick(rng, forms).format(c=color, n=noun)

    def _plural(self, reference: Reference, rng: np.random.Generator) -> str:
        kind, color = reference.kind, reference.color
        noun = pick(rng, ANY_PLURALS) if kind is None else plural(self.noun(kind, rng))
        rest = f"{color} {noun}" if color is not None else noun
        count = reference.plural
        if count:
            number = NUMBERS.get(count, "all")
            forms = ["the {n} {r}", "all {n} {r}"] + (["both {r}"] if count == 2 else [])
            return pick(rng, forms).format(n=number, r=rest)
        return pick(rng, ("the {r}", "the {r}", "all the {r}", "one of the {r}")).format(r=rest)

    def landmark(self, landmark: Landmark, rng: np.random.Generator) -> str:
        """The landmark as a noun phrase with "the"."""
        color = "" if landmark.color is None else f"{landmark.color} "
        return f"the {color}{self.noun(landmark.kind, rng)}"

    def request(self, reference: Reference, rng: np.random.Generator) -> str:
        """A whole request, as it was typed."""
        phrase = self.phrase(reference, rng)
        return self.typed(pick(rng, REQUESTS).format(phrase), rng)

    def missing(self, reference: Reference) -> str:
        """What is not there, in the fewest words, with its article: "a red mug"."""
        bare = replace(reference, place=None, size=None, relation=None, order=None, plural=None)
        if bare.kind is None:
            return f"anything {bare.color}"
        noun = self.nouns.get(bare.kind, (bare.kind,))[0]
        return indefinite(noun if bare.color is None else f"{bare.color} {noun}")
