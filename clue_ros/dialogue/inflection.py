# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Plurals and articles of English nouns."""

from __future__ import annotations

import re
from functools import lru_cache

_IRREGULAR = {"knife": "knives", "loaf": "loaves", "die": "dice", "shelf": "shelves"}
# Nouns with neither "a" nor a plural of their own, told by their last word.
_NOT_COUNTED = (
    "scissors headphones sunglasses glasses eyeglasses shades keys crackers crayons pills vitamins "
    "marbles blocks towels dice cutlery footwear money makeup cleanser bleach sugar salt coffee "
    "soup tuna meat mustard gelatin pudding cream soap shampoo medicine perfume milk butter bread "
    "beer wine yogurt tape paper salad lego windex spam jello starkist pliers tweezers wood "
    "chicken chips grapes candy cheese ketchup honey rope glue chopsticks"
)
NOT_COUNTED = frozenset(_NOT_COUNTED.split())
_AN = re.compile(r"hour|honest|heir|(?!us[abe]|uni|eu|uku|one\b)[aeiou]")
_SINGULAR_IN_S = re.compile(r"(?:ss|us|(?<!sk)is|as|lens|rhinoceros)$")
_SINGULARS = (
    (r"ies$", "y"), (r"ves$", "f"), (r"ves$", "fe"), (r"(?<=[sxzho])es$", ""),
    (r"(?<=[^s])s$", ""), (r"men$", "man"), (r"^children$", "child"), (r"^mice$", "mouse"),
    (r"^people$", "person"),
)  # fmt: skip


def plural(noun: str, *, of_sorts: bool = False) -> str:
    """Return the plural of a noun. of_sorts: also of one that is not counted, "soups".

    >>> plural("mug"), plural("box"), plural("knife"), plural("cracker box")
    ('mugs', 'boxes', 'knives', 'cracker boxes')
    >>> plural("strawberry"), plural("box of crackers"), plural("scissors")
    ('strawberries', 'boxes of crackers', 'scissors')
    """
    if " of " in noun:
        head, of, rest = noun.partition(" of ")
        return plural(head, of_sorts=of_sorts) + of + rest
    head, _, last = noun.rpartition(" ")
    if last in _IRREGULAR:
        many = _IRREGULAR[last]
    elif last in NOT_COUNTED and not of_sorts:
        many = last
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        many = f"{last[:-1]}ies"
    elif last.endswith(("s", "x", "ch", "sh", "z")):
        many = f"{last}es"
    else:
        many = f"{last}s"
    return f"{head} {many}".strip()


def is_plural(noun: str) -> bool:
    """Whether an English noun looks like a plural.

    >>> is_plural("tissues"), is_plural("glass"), is_plural("bus")
    (True, False, False)
    """
    return len(noun) > 3 and noun.endswith("s") and not _SINGULAR_IN_S.search(noun)


@lru_cache(maxsize=4096)
def singulars(word: str) -> frozenset[str]:
    """A word, and what it can be the plural of.

    >>> sorted(singulars("knives")), sorted(singulars("glass"))
    (['knif', 'knife', 'knive', 'knives'], ['glass'])
    """
    return frozenset((word, *(re.sub(end, to, word) for end, to in _SINGULARS)))


def article(noun: str) -> str:
    """The indefinite article before a noun phrase: "a" or "an"."""
    return "an" if _AN.match(noun) else "a"


def with_article(noun: str) -> str:
    """A noun with "a" or "an"; a plural as it is.

    >>> with_article("hourglass"), with_article("red apple"), with_article("scissors")
    ('an hourglass', 'a red apple', 'scissors')
    """
    return noun if is_plural(noun) else f"{article(noun)} {noun}"


def indefinite(noun_phrase: str) -> str:
    """Replace the "the" of a noun phrase by "a" or "an", by "some" where nobody counts.

    >>> indefinite("the orange ball"), indefinite("the one which color is red")
    ('an orange ball', 'a one which color is red')
    >>> indefinite("black scissors"), indefinite("the box of crackers")
    ('some black scissors', 'a box of crackers')
    """
    rest = noun_phrase.removeprefix("the ")
    if rest.partition(" of ")[0].split()[-1] in NOT_COUNTED:
        return f"some {rest}"
    return f"{article(rest)} {rest}"
