"""Slips of the finger: a few likely misspellings of each content word, always the same ones.

They are few, so that a word-level tokenizer can hold them all as words of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

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
