# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Which candidates a phrase can mean: rules over words and geometry, without a model.

The parts of a phrase narrow down the candidates in turn: colour and kind, what is excluded,
relation, size, order, place. A part that cannot be applied (no candidate's colour is known) leaves
them as they are; what the rules cannot tell, `clue_ros.dialogue.chooser` asks the detector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from clue_ros.dialogue.candidates import (
    COLOR,
    KIND,
    SHADES,
    Candidate,
    in_reading_order,
    of_color,
    option_of,
)
from clue_ros.dialogue.noun_phrases import Phrase, read_phrase
from clue_ros.dialogue.object_names import best_named
from clue_ros.dialogue.places import DIRECTIONS, Position, along, beside
from clue_ros.dialogue.types import SAME_BOX

# Distances behind the first one in a direction, in parts of the image's side, up to which another
# candidate may be meant as well: of a request, and of an answer, which chooses among few.
REQUEST_GAP, ANSWER_GAP, EXTREME_GAP = 0.12, 0.02, 0.04
SAME_SIZE = 0.92  # share of the largest side up to which another one is as big
BESIDE = 0.03  # least distance along a relation, in parts of the image's side
SIDEWAYS = (1.0, 1.7)  # across it, as a multiple of that along: straight, and still beside
TOUCHING = 0.05  # gap up to which two things are next to one another


class Finder(Protocol):
    """The detector's side. Boxes are in pixels of one image."""

    size: tuple[int, int]
    """Width and height of the image in pixels."""

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """Everything that the phrase's noun and colours name, with what its words add."""

    def locate(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """What the detector itself finds for all words of a phrase, places and order among them.

        Nothing where it cannot be trusted with them: rules choose among `find`'s then.
        """

    def choose(self, phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those of the candidates that the phrase describes; all of them where it cannot tell."""

    def spelled(self, noun: str) -> str:
        """The name of a thing in sight that a misspelt noun means; "" where none is clear."""

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """The candidates with an attribute ("color", "kind") where it can be told."""


def called(candidates: Sequence[Candidate], noun: str) -> tuple[Candidate, ...]:
    """The candidates whose kind fits a noun best (`object_names.name_match`)."""
    known = [c for c in candidates if KIND in c.attributes]
    return tuple(known[i] for i in best_named(noun, [c.attributes[KIND] for c in known]))


def is_among(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether one of the others has the candidate's box."""
    return any(candidate.box == other.box for other in others)


def narrow(
    candidates: Sequence[Candidate], phrase: Phrase, finder: Finder, gap: float
) -> tuple[tuple[Candidate, ...], bool]:
    """The candidates that a phrase allows, and whether any of its parts could be applied.

    gap: how far behind the first one, in parts of the image's side, another is meant as well.
    """
    pool, applied = tuple(candidates), False
    if pool and phrase.colors and all({COLOR, SHADES} & c.attributes.keys() for c in pool):
        pool, applied = of_color(pool, phrase.colors), True
    if pool and phrase.noun and all(KIND in c.attributes for c in pool):
        named = called(pool, phrase.noun)
        if named and len(named) < len(pool):
            pool, applied = named, True
    if pool and phrase.excluded is not None:
        pool, applied = _exclude(pool, phrase.excluded, finder, applied)
    if len(pool) > 1 and phrase.relation is not None:
        pool, applied = _related(pool, phrase, finder, applied)
    if len(pool) > 1 and phrase.size is not None:
        pool, applied = by_size(pool, phrase.size), True
    if len(pool) > 1 and phrase.order is not None:
        pool, applied = by_order(pool, *phrase.order), True
    if len(pool) > 1 and phrase.place is not None:
        limit = min(gap, EXTREME_GAP) if phrase.is_extreme else gap
        pool, applied = by_place(pool, phrase.place, finder.size, limit), True
    return pool, applied


def _exclude(
    pool: tuple[Candidate, ...], excluded: Phrase, finder: Finder, applied: bool
) -> tuple[tuple[Candidate, ...], bool]:
    if excluded.colors and not all(COLOR in c.attributes for c in pool):
        pool = finder.described(pool, COLOR, excluded.noun)
    out, understood = narrow(pool, excluded, finder, ANSWER_GAP)
    if not understood:
        chosen = finder.choose(excluded, pool)
        out = chosen if len(chosen) < len(pool) else ()
    kept = tuple(c for c in pool if not is_among(c, out))
    return (kept, True) if kept and out else (pool, applied)


def _related(
    pool: tuple[Candidate, ...], phrase: Phrase, finder: Finder, applied: bool
) -> tuple[tuple[Candidate, ...], bool]:
    assert phrase.relation is not None
    relation, landmark = phrase.relation
    marks = finder.find(read_phrase(landmark))
    marks = tuple(m for m in marks if all(m.box.iou(c.box) < SAME_BOX for c in pool)) or marks
    if not marks:
        return pool, applied
    mark = max(marks, key=lambda m: m.score)
    others = tuple(c for c in pool if c.box.iou(mark.box) < SAME_BOX)
    kept = by_relation(others, relation, mark, finder.size)
    return (kept, True) if kept else (pool, applied)


def by_place(
    pool: Sequence[Candidate], place: str, size: tuple[int, int], gap: float
) -> tuple[Candidate, ...]:
    """Those at a place among the others: the first in its direction, and what is close behind."""
    if place == "middle":
        ordered = in_reading_order(pool)
        middle = (len(ordered) - 1) / 2
        return tuple(ordered[int(middle) : int(middle + 1.5)] if len(ordered) % 2 == 0 else
                     ordered[int(middle) : int(middle) + 1])  # fmt: skip
    reach = [along(_position(c, size), DIRECTIONS[place]) for c in pool]
    best = max(reach)
    return tuple(c for c, a in zip(pool, reach, strict=True) if best - a <= gap)


def by_order(pool: Sequence[Candidate], number: int, side: str | None) -> tuple[Candidate, ...]:
    """The second from the left; the whole pool where there are too few."""
    if side is None:
        ordered = in_reading_order(pool)
    else:
        ordered = sorted(pool, key=lambda c: -along(c.box.center, DIRECTIONS[side]))
    at = option_of(number, len(ordered))
    return tuple(pool) if at is None else (ordered[at],)


def by_size(pool: Sequence[Candidate], size: str) -> tuple[Candidate, ...]:
    """The largest boxes or the smallest, by the root of the area."""
    sides = [max(c.box.area, 1e-9) ** 0.5 for c in pool]
    if size == "big":
        return tuple(c for c, s in zip(pool, sides, strict=True) if s >= SAME_SIZE * max(sides))
    return tuple(c for c, s in zip(pool, sides, strict=True) if s <= min(sides) / SAME_SIZE)


def by_relation(
    pool: Sequence[Candidate], relation: str, mark: Candidate, size: tuple[int, int]
) -> tuple[Candidate, ...]:
    """Those left of, right of, behind, in front of, or next to a landmark."""
    if relation == "next":
        gaps = [c.box.in_fractions(*size).gap(mark.box.in_fractions(*size)) for c in pool]
        near = max(min(gaps, default=0.0) + TOUCHING / 2, TOUCHING)
        return tuple(c for c, gap in zip(pool, gaps, strict=True) if gap <= near)
    at = _position(mark, size)
    found = [(c, *beside(_position(c, size), at, relation)) for c in pool]
    beyond = [(c, distance, across) for c, distance, across in found if distance > BESIDE]
    for limit in SIDEWAYS:
        straight = tuple(c for c, distance, across in beyond if across <= limit * distance)
        if straight:
            return straight
    return tuple(c for c, _, _ in beyond)


def _position(candidate: Candidate, size: tuple[int, int]) -> Position:
    x, y = candidate.box.center
    return x / size[0], y / size[1]
