"""Sentences about tabletop scenes: how people name one of several objects, and what is left open.

A reference ("the left red block") is a kind, a colour and a place, each optional. `meant` gives the
objects it can mean. Place words follow how IT2P's annotators used them (measured on its training
split): "the left block" is clear when no other block comes within about a fifth of the picture's
width of the leftmost one, and ambiguous when another is within a tenth; for "leftmost", "top" and
"bottom" both distances are about half. In between people differ, and no sample is made there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clue_ros.data.tabletop.scene import SceneObject
from clue_ros.data.tabletop.spec import WorldSpec
from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, WORLDS

# Of all worlds that are spoken of so: what is called what does not depend on where it lies.
_PLAIN = [spec for spec in WORLDS.values() if spec.language == "plain"]
NOUNS: dict[str, tuple[str, ...]] = {
    kind: nouns for spec in _PLAIN for kind, nouns in spec.nouns.items()
}
COLORS: tuple[str, ...] = tuple(dict.fromkeys(c for spec in _PLAIN for c in spec.colors))
ANY_NOUNS: tuple[str, ...] = ("object", "thing", "item", "one")
VERBS: tuple[str, ...] = (
    "pick up {}", "pick up {}", "pick up {}", "pick {} up", "grab {}", "take {}", "get {}",
    "get me {}", "give me {}", "hand me {}", "pass me {}", "bring me {}", "fetch {}", "lift {}",
    "i want {}", "i need {}", "i would like {}", "please pick up {}", "please grab {}",
    "can you pick up {} ?", "could you grab {} ?", "could you give me {} please", "can i have {} ?",
    "pick up {} please", "now pick up {}", "find {}", "where is {} ?", "show me {}", "point to {}",
    "select {}", "move to {}", "{}",
)  # fmt: skip

# Direction (x, y) in which a place word ranks objects; x right, y down.
AXES: dict[str, tuple[float, float]] = {
    "left": (-1, 0), "right": (1, 0), "upper": (0, -1), "lower": (0, 1),
    "leftmost": (-1, 0), "rightmost": (1, 0), "top": (0, -1), "bottom": (0, 1),
    "upper left": (-0.7, -0.7), "upper right": (0.7, -0.7),
    "lower left": (-0.7, 0.7), "lower right": (0.7, 0.7),
}  # fmt: skip
EXTREME: frozenset[str] = frozenset({"leftmost", "rightmost", "top", "bottom"})
CORNERS: tuple[str, ...] = ("upper left", "upper right", "lower left", "lower right")
# Fractions of the picture: closer than this to the first is also meant, further is not meant.
SIMPLE_GAP = (0.11, 0.19)
EXTREME_GAP = (0.065, 0.13)
ANSWER_GAP = (0.0, 0.05)  # among two or three candidates that were just named, a little is enough


@dataclass(frozen=True)
class Reference:
    """What a noun phrase says. kind, color, place: None where it does not say."""

    kind: str | None
    color: str | None
    place: str | None


def matches(reference: Reference, objects: Sequence[SceneObject]) -> list[int]:
    """Objects of the reference's kind and colour, whatever its place."""
    return [
        i
        for i, o in enumerate(objects)
        if reference.kind in (None, o.kind) and reference.color in (None, o.color)
    ]


def ranked(
    pool: Sequence[int], objects: Sequence[SceneObject], place: str
) -> list[tuple[float, int]]:
    """(distance behind the first one in the place's direction, object), nearest first."""
    ax, ay = AXES[place]
    score = {i: ax * objects[i].center[0] + ay * objects[i].center[1] for i in pool}
    best = max(score.values())
    return sorted((best - s, i) for i, s in score.items())


def placed(
    pool: Sequence[int],
    objects: Sequence[SceneObject],
    place: str,
    gap: tuple[float, float] | None = None,
) -> tuple[int, ...] | None:
    """The objects of `pool` that a place word can mean; None where people would differ."""
    if place == "middle":
        return _middle(pool, objects)
    near, far = gap if gap is not None else (EXTREME_GAP if place in EXTREME else SIMPLE_GAP)
    order = ranked(pool, objects, place)
    if any(near < behind < far for behind, _ in order):
        return None
    chosen = tuple(i for behind, i in order if behind <= near)
    return chosen if _plausible(chosen, objects, place, pool) else None


def _plausible(
    chosen: Sequence[int], objects: Sequence[SceneObject], place: str, pool: Sequence[int]
) -> bool:
    """Whether people would use the word: not every first one in a direction is called so.

    Nobody calls the only red block "the left red one" when it lies on the right, nor gives a
    corner's name to a block that is in no corner of the others.
    """
    ax, ay = AXES[place]
    if len(pool) == 1 or place in CORNERS:
        others = range(len(objects)) if len(pool) == 1 else pool
        xs, ys = zip(*(objects[i].center for i in others), strict=True)
        mid = ((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2)
        for i in chosen:
            x, y = objects[i].center
            if ax * (x - mid[0]) < 0.03 * abs(ax) or ay * (y - mid[1]) < 0.03 * abs(ay):
                return False
    return True


def _middle(pool: Sequence[int], objects: Sequence[SceneObject]) -> tuple[int, ...] | None:
    """The middle one of three, along the axis on which they are spread more."""
    if len(pool) != 3:
        return None
    centers = np.array([objects[i].center for i in pool])
    axis = int(np.ptp(centers[:, 1]) > np.ptp(centers[:, 0]))
    order = np.argsort(centers[:, axis])
    gaps = np.diff(centers[order, axis])
    return (pool[int(order[1])],) if gaps.min() > 0.08 else None


def meant(reference: Reference, objects: Sequence[SceneObject]) -> tuple[int, ...] | None:
    """Objects the reference can mean: () names nothing, several is ambiguous.

    None where people would differ.
    """
    pool = matches(reference, objects)
    if not pool or reference.place is None:
        return tuple(pool)
    return placed(pool, objects, reference.place)


def pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    """One of them, all equally likely."""
    return options[int(rng.integers(len(options)))]


def noun_of(kind: str | None, rng: np.random.Generator) -> str:
    """A noun for a kind, or for anything."""
    return pick(rng, NOUNS[kind] if kind is not None else ANY_NOUNS)


def phrase(reference: Reference, rng: np.random.Generator) -> str:
    """The reference as a noun phrase with "the", in one of the ways people put it."""
    noun = noun_of(reference.kind, rng)
    color, place = reference.color, reference.place
    if color is not None and rng.uniform() < 0.2:
        after, before = f" which color is {color}", ""
    else:
        after, before = "", f"{color} " if color is not None else ""
    if place is None:
        return f"the {before}{noun}{after}"
    if rng.uniform() < 0.5:
        ahead = pick(rng, AHEAD[place])
        order = f"{before}{ahead} " if rng.uniform() < 0.1 else f"{ahead} {before}"
        return f"the {order}{noun}{after}"
    return f"the {before}{noun} {pick(rng, BEHIND[place])}{after}"


AHEAD: dict[str, tuple[str, ...]] = {
    "left": ("left",), "right": ("right",), "upper": ("upper",), "lower": ("lower",),
    "leftmost": ("leftmost",), "rightmost": ("rightmost",), "top": ("top",), "bottom": ("bottom",),
    "upper left": ("upper left", "top left", "left upper"),
    "upper right": ("upper right", "top right", "right upper"),
    "lower left": ("lower left", "bottom left", "left lower"),
    "lower right": ("lower right", "bottom right", "right lower"),
    "middle": ("middle", "center"),
}  # fmt: skip
BEHIND: dict[str, tuple[str, ...]] = {
    "left": ("on the left", "to the left"), "right": ("on the right", "to the right"),
    "upper": ("in the upper part",), "lower": ("in the lower part",),
    "leftmost": ("furthest left",), "rightmost": ("furthest right",),
    "top": ("at the top",), "bottom": ("at the bottom",),
    "upper left": ("on the upper left", "at the top left", "at the upper left corner"),
    "upper right": ("on the upper right", "at the top right", "at the upper right corner"),
    "lower left": ("on the lower left", "at the bottom left", "at the lower left corner"),
    "lower right": ("on the lower right", "at the bottom right", "at the lower right corner"),
    "middle": ("in the middle", "in the center"),
}  # fmt: skip


def request(reference: Reference, rng: np.random.Generator) -> str:
    """A whole request."""
    return pick(rng, VERBS).format(phrase(reference, rng))


def indefinite(noun_phrase: str) -> str:
    """The phrase with "a" or "an" for its "the".

    >>> indefinite("the orange ball"), indefinite("the one which color is red")
    ('an orange ball', 'a one which color is red')
    """
    rest = noun_phrase.removeprefix("the ")
    article = "an" if rest[0] in "aeiou" and rest.split()[0] != "one" else "a"
    return f"{article} {rest}"


def _names_of(spec: WorldSpec) -> set[str]:
    return {noun for nouns in spec.nouns.values() for noun in nouns} | set(spec.colors)


_UNSEEN = set(NOUNS) | {n for nouns in NOUNS.values() for n in nouns} | set(COLORS)
_UNSEEN -= _names_of(WORLDS[DEFAULT_WORLD])


def unseen_words(text: str) -> tuple[str, ...]:
    """The nouns and colours of a sentence that the default world, and so training, never names."""
    words = re.findall(r"[a-z]+", text.lower())
    return tuple(dict.fromkeys(w for w in words if w in _UNSEEN))


_PLACE_WORDS = {
    word for forms in (AHEAD, BEHIND) for said in forms.values() for t in said for word in t.split()
} - {"at", "in", "of", "on", "part", "the", "to"}


def named_by(text: str) -> tuple[str, ...]:
    """Which of "kind", "color" and "place" a sentence names."""
    said = re.sub(r"\bcan (you|i)\b", "", text.lower())  # no tin
    words = set(re.findall(r"[a-z]+", said))
    kinds = {noun for nouns in NOUNS.values() for noun in nouns}
    tables = {"kind": kinds, "color": set(COLORS), "place": _PLACE_WORDS}
    return tuple(name for name, table in tables.items() if words & table)


_SWAPS = (
    {
        "left": "right",
        "leftmost": "rightmost",
        "upperleft": "upperright",
        "lowerleft": "lowerright",
    },
    {
        "upper": "lower",
        "top": "bottom",
        "upperleft": "lowerleft",
        "upperright": "lowerright",
        "above": "below",
        "highest": "lowest",
    },
)
_SYNONYMS = {"beneath": "below"}  # said another way, mirrored with the word that has a mirror


def mirrored_text(text: str, mirror: tuple[bool, bool]) -> str:
    """The sentence as it would be said of the mirrored picture (left-right, top-bottom)."""
    for on, swaps in zip(mirror, _SWAPS, strict=True):
        if on:
            both = {**swaps, **{v: k for k, v in swaps.items()}}
            both |= {word: both[same] for word, same in _SYNONYMS.items() if same in both}
            text = "".join(both.get(part, part) for part in re.split(r"([a-z]+)", text))
    return text
