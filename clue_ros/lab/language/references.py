"""What a noun phrase says and what it can mean on a table, where people would agree.

Parts narrow down in turn: kind and colour, what it is not, size, relation, order, place. Each has a
region in which people differ (`None`); no sample is made there. Places are those of
`clue_ros.lab.language.blocks`, measured on IT2P's annotators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from clue_ros.lab.language.blocks import placed
from clue_ros.lab.language.words import DIRECTIONS
from clue_ros.lab.simulator.scene import SceneObject

SAME_SIZE, OTHER_SIZE = 0.92, 0.84  # of the largest: within the one is as big, below the other not
ALONG = (0.02, 0.05)  # of the picture: nearer is not beside, further is
ACROSS = (1.0, 1.7)  # times as far sideways as along: within is beside, over is not
TOUCHING = (0.05, 0.1)  # of the picture between two boxes: within is next to, over is not
ORDER_GAP = 0.035  # of the picture between two that are counted
HIGHEST = 4  # number that is counted to
MOST_BOXES = HIGHEST  # of a reply that goes through what is counted
ORDER_AXES: dict[str, tuple[int, int]] = {
    "left": (0, 1), "right": (0, -1), "top": (1, 1), "bottom": (1, -1),
}  # fmt: skip

Objects = Sequence[SceneObject]
Meant = tuple[int, ...] | None


@dataclass(frozen=True)
class Landmark:
    """What another thing is seen from: the only object of that kind and colour."""

    kind: str
    color: str | None = None


@dataclass(frozen=True)
class Reference:
    """What a noun phrase says; None where it does not say.

    not_color: what it is not. size: "big" or "small". relation: how it lies to a landmark. order:
    its number from a side, from 1. place: as in `language.AXES`. plural: how many, 0 for "the
    mugs"; None for one.
    """

    kind: str | None = None
    color: str | None = None
    not_color: str | None = None
    size: str | None = None
    relation: tuple[str, Landmark] | None = None
    order: tuple[int, str] | None = None
    place: str | None = None
    plural: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it says, for a breakdown: of kind, color, negation, size, relation, order..."""
        said = {
            "kind": self.kind, "color": self.color, "negation": self.not_color, "size": self.size,
            "relation": self.relation, "order": self.order, "place": self.place,
            "plural": self.plural,
        }  # fmt: skip
        return tuple(name for name, value in said.items() if value is not None)

    @property
    def sort(self) -> str:
        """The one word for it in a breakdown: its rarest part."""
        rare = ("plural", "negation", "order", "relation", "size", "place")
        names = self.names
        found = next((part for part in rare if part in names), None)
        return found or ("kind and color" if len(names) == 2 else names[0] if names else "nothing")


def meant(reference: Reference, objects: Objects) -> Meant:
    """The objects it can mean: () names nothing, several is ambiguous. None: people differ."""
    pool: Meant = _called(reference, objects)
    if reference.not_color is not None and not _worth_denying(reference, objects):
        return None
    if pool and reference.size is not None:
        pool = sized(pool, objects, reference.size)
    if pool and reference.relation is not None:
        pool = related(pool, objects, *reference.relation)
    if pool and reference.order is not None:
        pool = ordered(pool, objects, *reference.order)
    if pool and reference.place is not None:
        pool = placed(pool, objects, reference.place)
    if pool and reference.plural is not None:
        # Nobody says "the mugs" of one, or "both mugs" of three.
        return pool if len(pool) > 1 and reference.plural in (0, len(pool)) else None
    return pool


def _called(reference: Reference, objects: Objects) -> tuple[int, ...]:
    """The objects of its kind and colour, and not of the one that it is not."""
    return tuple(
        i
        for i, o in enumerate(objects)
        if reference.kind in (None, o.kind)
        and reference.color in (None, o.color)
        and reference.not_color != o.color
    )


def gone_through(reference: Reference, objects: Objects) -> tuple[int, ...]:
    """What is said before the one thing that a reference means; () where that is said at once.

    By order: those that are counted before it. A size means one thing at once: to name all that
    are compared first made such requests worse (docs/model-notes.md, the eighth time).
    """
    if reference.order is None:
        return ()
    number, side = reference.order
    called = _called(reference, objects)
    return tuple(i for _, i in _counted(called, objects, side)[: number - 1])


def _worth_denying(reference: Reference, objects: Objects) -> bool:
    """Nobody says "not the red one" where none is red."""
    return any(reference.kind in (None, o.kind) and o.color == reference.not_color for o in objects)


def sized(pool: Sequence[int], objects: Objects, size: str) -> Meant:
    """The big or the small ones of a pool that has both; they must look so too."""
    if len(pool) < 2 or any(objects[i].extent <= 0 for i in pool):
        return None
    real = {i: objects[i].extent for i in pool}
    best = max(real.values()) if size == "big" else min(real.values())
    share = {i: (v / best if size == "big" else best / v) for i, v in real.items()}
    chosen = tuple(i for i in pool if share[i] >= SAME_SIZE)
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


def landmark_of(landmark: Landmark, objects: Objects) -> int | None:
    """The one object it is; None where it is none or several."""
    found = [
        i
        for i, o in enumerate(objects)
        if o.kind == landmark.kind and landmark.color in (None, o.color)
    ]
    return found[0] if len(found) == 1 else None


def related(pool: Sequence[int], objects: Objects, relation: str, landmark: Landmark) -> Meant:
    """Those of a pool that lie so to the landmark; None if it is not one thing."""
    at = landmark_of(landmark, objects)
    if at is None or (at in pool and len(pool) == 1):
        return None
    lies = {i: _lies(objects[i], objects[at], relation) for i in pool if i != at}
    if any(v is None for v in lies.values()):
        return None
    return tuple(i for i, v in lies.items() if v)


def _lies(o: SceneObject, other: SceneObject, relation: str) -> bool | None:
    (x, y), (u, v) = o.center, other.center
    if relation == "next":
        gap = _gap(o, other)
        return True if gap <= TOUCHING[0] else False if gap >= TOUCHING[1] else None
    ax, ay = DIRECTIONS[relation]
    along = ax * (x - u) + ay * (y - v)
    across = abs(ay * (x - u)) + abs(ax * (y - v))
    if along < ALONG[0] or across > ACROSS[1] * along:
        return False
    return True if along >= ALONG[1] and across <= ACROSS[0] * along else None


def _gap(o: SceneObject, other: SceneObject) -> float:
    """Between two boxes, of the picture; 0 where they touch."""
    a, b = o.box, other.box
    x = max(0.0, a[0] - b[2], b[0] - a[2])
    y = max(0.0, a[1] - b[3], b[1] - a[3])
    return float((x * x + y * y) ** 0.5)


def ordered(pool: Sequence[int], objects: Objects, number: int, side: str) -> Meant:
    """The number-th of a pool counted from a side; None where the order is not plain."""
    if len(pool) < max(2, number):
        return None
    axis, _ = ORDER_AXES[side]
    places = _counted(pool, objects, side)
    # Nobody counts from the left what lies one behind the other.
    spread = [max(objects[i].center[a] for i in pool) - min(objects[i].center[a] for i in pool)
              for a in (0, 1)]  # fmt: skip
    if spread[axis] < 0.7 * spread[1 - axis]:
        return None
    near = places[max(0, number - 2) : number + 1]
    if any(b[0] - a[0] < ORDER_GAP for a, b in pairwise(near)):
        return None
    return (places[number - 1][1],)


def _counted(pool: Sequence[int], objects: Objects, side: str) -> list[tuple[float, int]]:
    """A pool as it is counted from a side, each with where it lies."""
    axis, sign = ORDER_AXES[side]
    return sorted((sign * objects[i].center[axis], i) for i in pool)
