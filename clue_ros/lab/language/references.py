"""References ("the left red mug"), and the objects that each can mean.

The parts of a reference narrow down the objects in turn: kind and colour, negation, size, relation,
order, place. For each there are distances at which people would differ; `referents` returns None
there, and no sample is made.

Place words are used as IT2P's annotators used them (measured on its training split): "the left
block" is clear when no other block comes within about a fifth of the picture's width of the
leftmost one, and ambiguous when another is within a tenth. For "leftmost", "top" and "bottom" both
distances are about half. Distances are fractions of the picture's width or height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from clue_ros.dialogue.places import (
    BEFORE_NOUN,
    CORNERS,
    COUNTED_FROM,
    DIRECTIONS,
    EXTREMES,
    FORMS,
    SIDES,
    Position,
    along,
    beside,
    spread_axis,
)
from clue_ros.dialogue.types import Box
from clue_ros.lab.language.object_words import USES
from clue_ros.lab.simulator.scene import SceneObject

Objects = Sequence[SceneObject]
Candidates = tuple[int, ...]
"""Indices of objects."""

SAME_SIZE, OTHER_SIZE = 0.92, 0.84
"""Share of the largest size: above the first as big as the largest, below the second not."""
LOOKS_SAME = 0.75
"""Share of the largest box's diagonal above which a box looks as big."""
ALONG = (0.02, 0.05)
"""Distance along a relation's direction: below the first not beside, above the second beside."""
ACROSS = (1.0, 1.7)
"""Sideways distance as a multiple of ALONG's: below the first beside, above the second not."""
TOUCHING = (0.05, 0.1)
"""Gap between two boxes: below the first next to one another, above the second not."""
ORDER_GAP = 0.035
"""Least distance between neighbours that are counted."""
HIGHEST = 4
"""Highest number that a request counts to."""
MAX_BOXES = HIGHEST
"""Boxes in a reply that counts: those counted before the object meant, then its own."""
PLACE_GAP, EXTREME_GAP = (0.11, 0.19), (0.065, 0.13)
"""Distance behind the first object: below, also meant; above, not. EXTREME_GAP: "leftmost"."""
ANSWER_GAP = (0.0, 0.05)
"""The same for an answer that chooses among two or three candidates."""

PLACES: tuple[str, ...] = tuple(BEFORE_NOUN)
PLACE_DIRECTIONS: dict[str, Position] = {
    word: DIRECTIONS[FORMS[word]] for word in PLACES if word != "middle"
}


@dataclass(frozen=True)
class Landmark:
    """A landmark that describes another object: the only object of its kind and colour."""

    kind: str
    color: str | None = None


@dataclass(frozen=True)
class Reference:
    """The parts of a noun phrase; None where it does not say.

    not_color: the excluded colour. size: "big" or "small". relation: position relative to a
    landmark. order: number from a side, from 1. place: one of PLACES. plural: number of objects, 0
    for "the mugs"; None for one. material: "wood", ...; part: one of an object's parts. use: one of
    `object_words.USES` ("something to cut with").
    """

    kind: str | None = None
    color: str | None = None
    not_color: str | None = None
    size: str | None = None
    relation: tuple[str, Landmark] | None = None
    order: tuple[int, str] | None = None
    place: str | None = None
    plural: int | None = None
    material: str | None = None
    part: str | None = None
    use: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parts that it has: "kind", "color", "negation", "size", "relation", "order", ..."""
        parts = {
            "kind": self.kind, "color": self.color, "negation": self.not_color, "size": self.size,
            "relation": self.relation, "order": self.order, "place": self.place,
            "plural": self.plural, "material": self.material, "part": self.part, "use": self.use,
        }  # fmt: skip
        return tuple(name for name, value in parts.items() if value is not None)

    @property
    def sort(self) -> str:
        """Its rarest part, for a breakdown; "kind and color" when it has both and nothing else."""
        rare = (
            "plural", "negation", "order", "relation", "size", "place", "use", "part", "material",
        )  # fmt: skip
        names = self.names
        found = next((part for part in rare if part in names), None)
        return found or ("kind and color" if len(names) == 2 else names[0] if names else "nothing")


def is_called(o: SceneObject, noun: str | None) -> bool:
    """Return whether people call an object by a noun; True for None."""
    return noun is None or noun == o.kind or noun in o.names


def has_color(o: SceneObject, color: str | None) -> bool:
    """Return whether a colour is one of an object's."""
    return color is None or color == o.color or color in o.colors


def referents(reference: Reference, objects: Objects, *, vague: bool = False) -> Candidates | None:
    """The objects that a reference can mean: () for none, several when it is ambiguous.

    None where people would differ.

    vague: "the big mug" of equally big mugs, and "the mug by the bowl" of several bowls, are
    ambiguous. Else nobody says so (None), as in the rich grammar.
    """
    pool: Candidates | None = _called(reference, objects)
    if pool is None:
        return None
    if reference.not_color is not None and not any(
        is_called(o, reference.kind) and has_color(o, reference.not_color) for o in objects
    ):
        return None  # nobody says "not the red one" where none is red
    if pool and reference.size is not None:
        pool = by_size(pool, objects, reference.size, vague=vague)
    if pool and reference.relation is not None:
        pool = by_relation(pool, objects, *reference.relation, vague=vague)
    if pool and reference.order is not None:
        pool = by_order(pool, objects, *reference.order)
    if pool and reference.place is not None:
        pool = by_place(pool, objects, reference.place)
    if pool and reference.plural is not None:
        # Nobody says "the mugs" of one, or "both mugs" of three.
        return pool if len(pool) > 1 and reference.plural in (0, len(pool)) else None
    return pool


def _called(reference: Reference, objects: Objects) -> Candidates | None:
    """The objects of the reference's noun, colour, material, part and use.

    Those of the excluded colour are left out. None where a material is not known, where an object
    might serve the use, and where some have the colour only beside another one.
    """
    nouns = [i for i, o in enumerate(objects) if is_called(o, reference.kind)]
    if reference.use is not None:
        use = USES[reference.use]
        if any(objects[i].kind in use.perhaps for i in nouns):
            return None
        nouns = [i for i in nouns if objects[i].kind in use.kinds]
    if reference.material is not None:
        if any(not objects[i].material for i in nouns):
            return None
        nouns = [i for i in nouns if objects[i].material == reference.material]
    if reference.part is not None:
        nouns = [i for i in nouns if reference.part in objects[i].parts]
    found = tuple(
        i
        for i in nouns
        if has_color(objects[i], reference.color)
        and (reference.not_color is None or not has_color(objects[i], reference.not_color))
    )
    mainly = sum(objects[i].color == reference.color for i in found)
    return None if reference.color is not None and 0 < mainly < len(found) else found


def counted_before(reference: Reference, objects: Objects) -> Candidates:
    """The objects that are counted before the one that a reference by order means; else ().

    A size is not resolved through other objects: naming all compared objects made such requests
    worse (models/household/NOTES.md).
    """
    if reference.order is None:
        return ()
    number, side = reference.order
    called = _called(reference, objects) or ()
    return tuple(i for _, i in _counted(called, objects, side)[: number - 1])


def by_size(
    pool: Sequence[int], objects: Objects, size: str, *, vague: bool = False
) -> Candidates | None:
    """Return the big or small objects of a pool with both, if they look so in the picture too.

    vague: return all if none is plainly bigger and all look as big.
    """
    if len(pool) < 2 or any(objects[i].extent <= 0 for i in pool):
        return None
    real = {i: objects[i].extent for i in pool}
    best = max(real.values()) if size == "big" else min(real.values())
    share = {i: (v / best if size == "big" else best / v) for i, v in real.items()}
    chosen = tuple(i for i in pool if share[i] >= SAME_SIZE)
    if vague and min(share.values()) > OTHER_SIZE:
        sides = [_diagonal(objects[i]) for i in pool]
        return tuple(pool) if min(sides) > LOOKS_SAME * max(sides) else None
    if len(chosen) == len(pool) or any(OTHER_SIZE < share[i] < SAME_SIZE for i in pool):
        return None
    seen = {i: _diagonal(objects[i]) for i in pool}
    others = [seen[i] for i in pool if i not in chosen]
    fits = (
        min(seen[i] for i in chosen) > 1.05 * max(others)
        if size == "big"
        else max(seen[i] for i in chosen) < 0.95 * min(others)
    )
    return chosen if fits else None


def _diagonal(o: SceneObject) -> float:
    x0, y0, x1, y1 = o.box
    return float(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5)


def landmark_object(landmark: Landmark, objects: Objects) -> int | None:
    """The index of the landmark; None where no object or several are of its kind and colour."""
    found = _called(Reference(landmark.kind, landmark.color), objects)
    return found[0] if found is not None and len(found) == 1 else None


def by_relation(
    pool: Sequence[int],
    objects: Objects,
    relation: str,
    landmark: Landmark,
    *,
    vague: bool = False,
) -> Candidates | None:
    """The objects of a pool in a relation to the landmark; None if it is not exactly one object.

    vague: with several landmarks, the objects in that relation to any of them.
    """
    marks = _called(Reference(landmark.kind, landmark.color), objects)
    if not marks or (len(marks) > 1 and not vague):
        return None
    found: set[int] = set()
    for at in marks:
        if at in pool and len(pool) == 1:
            return None
        holds = {i: relation_holds(objects[i], objects[at], relation) for i in pool if i != at}
        if None in holds.values():
            return None
        found.update(i for i, held in holds.items() if held)
    return tuple(i for i in pool if i in found)


def relation_holds(o: SceneObject, landmark: SceneObject, relation: str) -> bool | None:
    """Return whether an object is in a relation to the landmark; None if people would differ."""
    if relation == "next":
        gap = Box(*o.box).gap(Box(*landmark.box))
        return True if gap <= TOUCHING[0] else False if gap >= TOUCHING[1] else None
    distance, across = beside(o.center, landmark.center, relation)
    if distance < ALONG[0] or across > ACROSS[1] * distance:
        return False
    return True if distance >= ALONG[1] and across <= ACROSS[0] * distance else None


def by_order(pool: Sequence[int], objects: Objects, number: int, side: str) -> Candidates | None:
    """Return the number-th object of a pool from a side; None if the order is unclear."""
    if len(pool) < max(2, number):
        return None
    axis = int(side in ("top", "bottom"))
    places = _counted(pool, objects, side)
    # Nobody counts objects from the left that lie one behind the other.
    spread = np.ptp([objects[i].center for i in pool], axis=0)
    if spread[axis] < 0.7 * spread[1 - axis]:
        return None
    near = places[max(0, number - 2) : number + 1]
    if any(b[0] - a[0] < ORDER_GAP for a, b in pairwise(near)):
        return None
    return (places[number - 1][1],)


def _counted(pool: Sequence[int], objects: Objects, side: str) -> list[tuple[float, int]]:
    """(position along the side's axis, object), in the order in which they are counted."""
    direction = DIRECTIONS[COUNTED_FROM[side]]
    return sorted((-along(objects[i].center, direction), i) for i in pool)


def by_place(
    pool: Sequence[int], objects: Objects, place: str, gap: tuple[float, float] | None = None
) -> Candidates | None:
    """The objects of a pool that a place word can mean; None where people would differ."""
    if place == "middle":
        return _middle(pool, objects)
    near, far = gap if gap is not None else (EXTREME_GAP if place in EXTREMES else PLACE_GAP)
    score = {i: along(objects[i].center, PLACE_DIRECTIONS[place]) for i in pool}
    best = max(score.values())
    behind = sorted((best - s, i) for i, s in score.items())
    if any(near < distance < far for distance, _ in behind):
        return None
    chosen = tuple(i for distance, i in behind if distance <= near)
    return chosen if _is_called_so(chosen, objects, place, pool) else None


def _is_called_so(chosen: Sequence[int], objects: Objects, place: str, pool: Sequence[int]) -> bool:
    """Return whether people would use the place word for the first objects in its direction.

    Nobody calls the only red block "the left red one" when it lies on the right, nor gives a
    corner's name to a block that is in no corner of the others.
    """
    if len(pool) > 1 and place not in CORNERS:
        return True
    ax, ay = PLACE_DIRECTIONS[place]
    others = range(len(objects)) if len(pool) == 1 else pool
    xs, ys = zip(*(objects[i].center for i in others), strict=True)
    mid = ((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2)
    offsets = [(objects[i].center[0] - mid[0], objects[i].center[1] - mid[1]) for i in chosen]
    return all(ax * x >= 0.03 * abs(ax) and ay * y >= 0.03 * abs(ay) for x, y in offsets)


def _middle(pool: Sequence[int], objects: Objects) -> Candidates | None:
    """The middle one of three, along the axis on which they are spread more."""
    if len(pool) != 3:
        return None
    axis = spread_axis(objects[i].center for i in pool)
    first, middle, last = sorted(pool, key=lambda i: objects[i].center[axis])
    a, b, c = (objects[i].center[axis] for i in (first, middle, last))
    return (middle,) if min(b - a, c - b) > 0.08 else None


def place_answers(target: int, candidates: Sequence[int], objects: Objects) -> list[str]:
    """Place words that tell the target from the other candidates, simplest first."""
    found = [
        p for p in (*SIDES, *CORNERS) if by_place(candidates, objects, p, ANSWER_GAP) == (target,)
    ]
    if by_place(candidates, objects, "middle") == (target,):
        found.insert(0, "middle")
    return found
