"""References as noun phrases and requests, with the misspellings of people who type them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from clue_ros.dialogue.inflection import indefinite, plural
from clue_ros.lab.language.object_words import MATERIALS
from clue_ros.lab.language.references import Landmark, Reference
from clue_ros.lab.language.words import (
    ANY_NOUNS,
    ANY_PLURALS,
    NUMBERS,
    ORDER_SIDES,
    ORDINALS,
    PLACE_AFTER_NOUN,
    PLACE_BEFORE_NOUN,
    RELATIONS,
    REQUESTS,
    SIZES,
    Rng,
    pick,
)

MISSPELT_RATE = 0.05
"""Share of utterances with a misspelt word."""
_SHORTEST = 4  # letters; a misspelt shorter word is mostly another word
_KEY_BESIDE = dict(zip("qwertyuiopasdfghjklzxcvbnm", "wqrewyuoipsadfhgjlkxzvcbmn", strict=True))


@lru_cache(maxsize=4096)
def misspellings_of(word: str) -> tuple[str, ...]:
    """Up to four misspellings: letters swapped, left out, doubled, or the key beside.

    >>> misspellings_of("banana")
    ('banaan', 'banna', 'bannana', 'bansna')
    """
    if len(word) < _SHORTEST or not (word.isascii() and word.isalpha()):
        return ()
    mid = len(word) // 2
    made = (
        word[:-2] + word[-1] + word[-2],
        word[:mid] + word[mid + 1 :],
        word[: mid - 1] + 2 * word[mid - 1] + word[mid:],
        word[:mid] + _KEY_BESIDE[word[mid]] + word[mid + 1 :],
    )
    return tuple(dict.fromkeys(m for m in made if m != word))


def misspelling_table(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Word -> its misspellings that are none of the other words."""
    known = set(words)
    found = {w: tuple(s for s in misspellings_of(w) if s not in known) for w in sorted(known)}
    return {w: s for w, s in found.items() if s}


@dataclass(frozen=True)
class Phrasing:
    """The wording of references by the people of a world.

    nouns: kind -> its nouns. misspellings: word -> misspellings. rate: share of utterances with one
    of them. requests: templates of requests.
    """

    nouns: Mapping[str, tuple[str, ...]]
    misspellings: Mapping[str, tuple[str, ...]]
    rate: float = MISSPELT_RATE
    requests: tuple[str, ...] = REQUESTS

    def noun(self, kind: str | None, rng: Rng) -> str:
        """A noun for a kind; None: for any object."""
        return pick(rng, ANY_NOUNS if kind is None else self.nouns.get(kind, (kind,)))

    def typed(self, text: str, rng: Rng) -> str:
        """The text, in a share of draws with one word misspelt."""
        if rng.uniform() >= self.rate:
            return text
        words = text.split()
        places = [k for k, word in enumerate(words) if word in self.misspellings]
        if not places:
            return text
        at = places[int(rng.integers(len(places)))]
        words[at] = pick(rng, self.misspellings[words[at]])
        return " ".join(words)

    def phrase(self, reference: Reference, rng: Rng) -> str:
        """The reference as a noun phrase with "the"."""
        if reference.plural is not None:
            return self._plural(reference, rng)
        noun = self.noun(reference.kind, rng)
        before: list[str] = []
        after: list[str] = []
        if reference.order is not None:
            number, side = reference.order
            before.append(ORDINALS[number - 1])
            after.append(pick(rng, ORDER_SIDES[side]))
        if reference.place is not None:
            if rng.uniform() < 0.5:
                before.append(pick(rng, PLACE_BEFORE_NOUN[reference.place]))
            else:
                after.append(pick(rng, PLACE_AFTER_NOUN[reference.place]))
        if reference.size is not None:
            before.append(pick(rng, SIZES[reference.size]))
        color = reference.color
        if color is not None and rng.uniform() < 0.1:
            after.insert(0, pick(rng, (f"that is {color}", f"which color is {color}")))
        elif color is not None:
            before.append(color)
        if reference.material is not None:
            before.append(pick(rng, MATERIALS[reference.material]))
        if reference.part is not None:
            after.insert(0, f"with the {reference.part}")
        if reference.relation is not None:
            relation, landmark = reference.relation
            after.append(pick(rng, RELATIONS[relation]).format(self.landmark(landmark, rng)))
        if reference.not_color is not None:
            forms = ("that is not {c}", "but not the {c} one", ", not the {c} one",
                     ", not the {c} {n}")  # fmt: skip
            after.append(pick(rng, forms).format(c=reference.not_color, n=noun))
        return " ".join(["the", *before, noun, *after])

    def _plural(self, reference: Reference, rng: Rng) -> str:
        kind, color, count = reference.kind, reference.color, reference.plural
        noun = pick(rng, ANY_PLURALS) if kind is None else plural(self.noun(kind, rng))
        rest = f"{color} {noun}" if color is not None else noun
        if count:
            forms = ["the {n} {r}", "all {n} {r}"] + (["both {r}"] if count == 2 else [])
            return pick(rng, forms).format(n=NUMBERS.get(count, "all"), r=rest)
        return pick(rng, ("the {r}", "the {r}", "all the {r}", "one of the {r}")).format(r=rest)

    def landmark(self, landmark: Landmark, rng: Rng) -> str:
        """The landmark as a noun phrase with "the"."""
        color = "" if landmark.color is None else f"{landmark.color} "
        return f"the {color}{self.noun(landmark.kind, rng)}"

    def request(self, reference: Reference, rng: Rng) -> str:
        """A whole request, as it was typed."""
        phrase = self.phrase(reference, rng)
        return self.typed(pick(rng, self.requests).format(phrase), rng)

    def missing(self, reference: Reference) -> str:
        """An object that is not there, in the fewest words: "a red mug"."""
        if reference.kind is None:
            return f"anything {reference.color}"
        noun = self.nouns.get(reference.kind, (reference.kind,))[0]
        return indefinite(noun if reference.color is None else f"{reference.color} {noun}")
