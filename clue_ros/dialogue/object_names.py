# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of things, and whether a person's noun fits a detector's label.

`KIND_NAMES` has the kinds of scanned objects with each one's other nouns, which the simulator's
requests are made of: "pick up the can" means a soup can too. `LABEL_NAMES` adds the labels of
COCO's 80 classes and the household's of OpenImages. `name_match` compares a noun with a label,
`best_named` keeps the labels that fit a noun best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

from clue_ros.dialogue.inflection import singulars


def comma_separated(text: str) -> tuple[str, ...]:
    """The words between the commas of a text."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _sections(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """The sections of object_names.txt: each line's name, and the nouns after its colon."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    rows: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            rows = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, nouns = line.partition(":")
            rows[name] = comma_separated(nouns)
    return found


_SECTIONS = _sections(Path(__file__).with_suffix(".txt").read_text("utf-8"))
KIND_NAMES = _SECTIONS["kinds"]
"""Kinds of public scan collections, and other nouns of each; its hypernyms last."""
LABEL_NAMES = _SECTIONS["labels"]
"""Detectors' labels, and other nouns of each; of kinds in `KIND_NAMES`, further ones."""
PERSONS = frozenset(_SECTIONS["persons"])
"""Names of people, whom nobody asks a robot to fetch."""
HYPERNYMS = frozenset(_SECTIONS["hypernyms"])
"""Names of a kind that name its class: every apple is a fruit, but not every cup a mug."""
NOT_OF_ITS_LAST_WORD = frozenset(_SECTIONS["whole"])
"""Names that a longer name's rule does not hold for: a hot dog is no dog."""


def _all_names() -> Iterator[tuple[str, str]]:
    """Each kind with each of its names, itself among them."""
    for table in (KIND_NAMES, LABEL_NAMES):
        for kind, names in table.items():
            yield from ((kind, name) for name in (kind, *names))


def _sets(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    """The second words of each first word."""
    found: dict[str, set[str]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return {key: frozenset(values) for key, values in found.items()}


_KINDS_OF = _sets((n, k) for k, n in _all_names() if n == k or n not in HYPERNYMS)
_CLASSES_OF = _sets((k, n) for k, n in _all_names() if n != k and n in HYPERNYMS)
KNOWN_NAMES = frozenset(name for _, name in _all_names())
"""Every kind and every other name."""


class NameMatch(IntEnum):
    """The fit of a noun to a label, the best first.

    SAME: the label says the noun, or a kind of it ("can": "soup can"; "fruit": "apple"). KIND: it
    is the noun's kind ("fridge": "refrigerator"; "coffee mug": "mug"). OTHER_NAME: both name one
    kind ("mug": "cup"). CLASS: the label is a hypernym ("apple": "fruit"). ALIKE: only the last
    word agrees ("water bottle": "wine bottle"), and no table knows better.
    """

    SAME = 0
    KIND = 1
    OTHER_NAME = 2
    CLASS = 3
    ALIKE = 4


@lru_cache(maxsize=8192)
def name_match(said: str, label: str) -> NameMatch | None:
    """Return the fit of a person's noun to a detector's label, both in lower case; None: no fit.

    >>> [name_match("mug", label).name for label in ("mugs", "cup")], name_match("mug", "plate")
    (['SAME', 'OTHER_NAME'], None)
    """
    kinds, label_kinds = _kinds_of(said), _kinds_of(label)
    if _says(label, said) or _is_of_class(label_kinds, said):
        return NameMatch.SAME
    if _says(said, label) or _forms(label) & kinds:
        return NameMatch.KIND
    if kinds & label_kinds:
        return NameMatch.OTHER_NAME
    if _is_of_class(kinds, label):
        return NameMatch.CLASS
    told_apart = kinds and label_kinds and " " in said and " " in label
    return NameMatch.ALIKE if same_noun(said, label) and not told_apart else None


def best_named(said: str, labels: Sequence[str]) -> tuple[int, ...]:
    """The places of the labels that fit a noun best; none if no label fits.

    >>> best_named("mug", ["cup", "mug", "plate"]), best_named("mug", ["cup", "plate"])
    ((1,), (0,))
    """
    found = [name_match(said, label) for label in labels]
    best = min((match for match in found if match is not None), default=None)
    return tuple(i for i, match in enumerate(found) if best is not None and match == best)


def same_noun(a: str, b: str) -> bool:
    """Whether two nouns are one, in singular or plural, with or without their modifiers."""
    return bool(singulars(_last_word(a)) & singulars(_last_word(b)))


def _says(noun: str, shorter: str) -> bool:
    """Whether a noun is another one, in singular or plural, or ends in it."""
    forms, ends = _forms(noun), _forms(shorter)
    if forms & ends:
        return True
    return not forms & NOT_OF_ITS_LAST_WORD and any(
        form.endswith(f" {end}") for form in forms for end in ends
    )


def _is_of_class(kinds: frozenset[str], general: str) -> bool:
    """Whether a noun is a hypernym of one of these kinds."""
    return any(_CLASSES_OF.get(kind, frozenset()) & _forms(general) for kind in kinds)


def _kinds_of(noun: str) -> frozenset[str]:
    return frozenset().union(*(_KINDS_OF.get(form, frozenset()) for form in _forms(noun)))


@lru_cache(maxsize=4096)
def _forms(noun: str) -> frozenset[str]:
    """A noun as tables have it: a known name alone, else in singular, and without "of"."""
    if noun in KNOWN_NAMES:
        return frozenset((noun,))
    *before, last = noun.split() or [""]
    forms = {" ".join((*before, one)) for one in singulars(last)}
    thing, _, content = noun.partition(" of ")
    if content:  # "a bottle of gin" is a gin bottle
        forms |= {f"{content} {one}" for one in singulars(thing)}
    return frozenset(forms)


def _last_word(noun: str) -> str:
    if _forms(noun) & NOT_OF_ITS_LAST_WORD:
        return noun
    return (noun.split() or [""])[-1]
