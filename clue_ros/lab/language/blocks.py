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
from dataclasses import dataclass, replace

import numpy as np

from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import BLOCKS, DEFAULT_WORLD, WORLDS

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


# -------------------------------------------------------------------------------------------------
# Whole dialogues about a scene, revealed step by step: request, question, answer, target.

MAX_QUESTIONS = 2
OPENINGS: tuple[str, ...] = ("do you mean", "which one ,")
COLOR_ANSWERS: tuple[str, ...] = (
    "{c}", "{c}", "the {c} one", "the {c} one", "{c} please", "the {c} {n}", "i mean the {c} one",
    "it is {c}", "the {c}",
)  # fmt: skip
PLACE_ANSWERS: tuple[str, ...] = (
    "{p}", "{p}", "the {p} one", "the {p} one", "{p} please", "the one on the {p}", "the {p} {n}",
    "i mean the {p} one",
)  # fmt: skip
KIND_ANSWERS: tuple[str, ...] = ("{n}", "the {n}", "the {n} please", "i mean the {n}")
NOTHING = "i do not see {} . which one do you mean ?"
WHICH_COLOR = "which color is it ?"
WHERE = "where is it ?"
TEMPLATES: tuple[str, ...] = (
    *OPENINGS,
    *COLOR_ANSWERS,
    *PLACE_ANSWERS,
    *KIND_ANSWERS,
    NOTHING,
    WHICH_COLOR,
    WHERE,
    "or",
)
SPELLINGS: dict[str, tuple[str, ...]] = {
    "upper left": ("upper left", "upperleft", "top left", "left upper", "upperleft upper left"),
    "upper right": (
        "upper right",
        "upperright",
        "top right",
        "right upper",
        "upperright upper right",
    ),
    "lower left": ("lower left", "lowerleft", "bottom left", "left lower", "lowerleft lower left"),
    "lower right": (
        "lower right",
        "lowerright",
        "bottom right",
        "right lower",
        "lowerright lower right",
    ),
    "upper": ("upper", "top"),
    "lower": ("lower", "bottom"),
    "left": ("left", "left", "leftmost"),
    "right": ("right", "right", "rightmost"),
    "middle": ("middle", "center"),
}


@dataclass(frozen=True)
class State:
    """One moment of a dialogue, with what the robot should say.

    context: C(k). candidates: objects still meant: one is clear, several ambiguous, () names
    nothing. question: what the robot asks; None when it should ground. options: the object behind
    each option word of the question, by position in its text: (word index, object). via: what is
    counted before the object meant, in turn (`references.gone_through`), where it is taught.
    """

    context: str
    candidates: tuple[int, ...]
    question: str | None
    options: tuple[tuple[int, int], ...] = ()
    via: tuple[int, ...] = ()

    @property
    def ambiguous(self) -> bool:
        """Whether a question is needed: the detector's label."""
        return len(self.candidates) != 1


@dataclass(frozen=True)
class Question:
    """A question's text and options; its axis: "color", "kind", "place", "where" or "nothing"."""

    text: str
    axis: str
    options: tuple[tuple[int, int], ...] = ()


def _options(words: Sequence[str], owners: Sequence[int], opening: str, axis: str) -> Question:
    """For example "do you mean the red one , the blue one or the green one ?"."""
    tokens = opening.split()
    options: list[tuple[int, int]] = []
    for i, (word, owner) in enumerate(zip(words, owners, strict=True)):
        if i > 0:
            tokens.append("or" if i == len(words) - 1 else ",")
        tokens += ["the", *word.split()]
        options.append((len(tokens) - len(word.split()), owner))
        if axis != "kind":
            tokens.append("one")
    return Question(" ".join([*tokens, "?"]), axis, tuple(options))


def ask(
    candidates: Sequence[int], objects: Sequence[SceneObject], opening: str = OPENINGS[0]
) -> Question:
    """The question that tells the candidates apart in the fewest words."""
    order = sorted(candidates, key=lambda i: objects[i].center[0])
    colors = list(dict.fromkeys(objects[i].color for i in order))
    kinds = list(dict.fromkeys(objects[i].kind for i in order))
    if 2 <= len(colors) <= 3 and (len(colors) == len(order) or len(order) > 3):
        owners = [next(i for i in order if objects[i].color == c) for c in colors]
        return _options(colors, owners, opening, "color")
    if len(colors) > 3:
        return Question(WHICH_COLOR, "color")
    if 2 <= len(kinds) <= 3 and (len(kinds) == len(order) or len(order) > 3):
        owners = [next(i for i in order if objects[i].kind == k) for k in kinds]
        return _options(kinds, owners, opening, "kind")
    if len(order) <= 3:
        return _by_place(order, objects, opening)
    return Question(WHERE, "where")


def _by_place(order: list[int], objects: Sequence[SceneObject], opening: str) -> Question:
    """Left, middle, right, or upper, middle, lower: along the axis that spreads them more."""
    centers = np.array([objects[i].center for i in order])
    upright = np.ptp(centers[:, 1]) > np.ptp(centers[:, 0])
    owners = sorted(order, key=lambda i: objects[i].center[int(upright)])
    ends = ("upper", "lower") if upright else ("left", "right")
    words = [ends[0], "middle", ends[1]] if len(order) == 3 else list(ends)
    return _options(words, owners, opening, "place")


def place_answers(
    target: int, candidates: Sequence[int], objects: Sequence[SceneObject]
) -> list[str]:
    """Place words that tell the target from the other candidates, simplest first."""
    words = [p for p in ("left", "right", "upper", "lower", *CORNERS) if p in AXES]
    found = [p for p in words if placed(candidates, objects, p, ANSWER_GAP) == (target,)]
    if placed(candidates, objects, "middle") == (target,):
        found.insert(0, "middle")
    return found


def answer(
    question: Question,
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
) -> tuple[str, tuple[int, ...]] | None:
    """What somebody with `target` in mind says, and which candidates that leaves.

    Mostly to the point, sometimes by another property that tells as much, as people do. None when
    nothing fits.
    """
    o = objects[target]
    noun = noun_of(o.kind, rng)
    by_color = tuple(i for i in candidates if objects[i].color == o.color)
    by_kind = tuple(i for i in candidates if objects[i].kind == o.kind)
    axis = question.axis
    if axis == "nothing":
        return _restated(target, objects, rng)
    places = place_answers(target, candidates, objects)
    if rng.uniform() < 0.2:
        axis = str(rng.choice(["color", "place", "kind"]))
    if axis == "color" and len(by_color) < len(candidates):
        text = COLOR_ANSWERS[int(rng.integers(len(COLOR_ANSWERS)))].format(c=o.color, n=noun)
        return text, by_color
    if axis == "kind" and len(by_kind) < len(candidates):
        return KIND_ANSWERS[int(rng.integers(len(KIND_ANSWERS)))].format(n=noun), by_kind
    if places:
        asked = [p for p in places if p in question.text.split()]
        place = (
            asked[0] if asked and rng.uniform() < 0.8 else places[int(rng.integers(len(places)))]
        )
        spoken = SPELLINGS[place][int(rng.integers(len(SPELLINGS[place])))]
        return PLACE_ANSWERS[int(rng.integers(len(PLACE_ANSWERS)))].format(p=spoken, n=noun), (
            target,
        )
    if len(by_color) < len(candidates):
        return COLOR_ANSWERS[int(rng.integers(len(COLOR_ANSWERS)))].format(
            c=o.color, n=noun
        ), by_color
    return None


def _restated(
    target: int, objects: Sequence[SceneObject], rng: np.random.Generator
) -> tuple[str, tuple[int, ...]] | None:
    """A new name for what was not seen, one that means exactly the target."""
    o = objects[target]
    for reference in (Reference(None, o.color, None), Reference(o.kind, o.color, None)):
        if meant(reference, objects) == (target,):
            return phrase(reference, rng), (target,)
    return None


def random_reference(
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    *,
    absent: bool,
    spec: WorldSpec = BLOCKS,
) -> Reference:
    """A reference to something in the scene, or to a kind and colour of its world that may not be.

    spec: the scene's world.
    """
    if absent:
        kind = str(rng.choice(spec.kinds)) if rng.uniform() < 0.8 else None
        return Reference(kind, str(rng.choice(list(spec.colors))), None)
    o = objects[int(rng.integers(len(objects)))]
    kind = o.kind if rng.uniform() < 0.8 else None
    color = o.color if rng.uniform() < 0.45 else None
    places = [*AXES, "middle"]
    place = places[int(rng.integers(len(places)))] if rng.uniform() < 0.55 else None
    return Reference(kind, color, place)


def states_of(
    text: str,
    candidates: tuple[int, ...],
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    missing: str = "",
) -> list[State]:
    """The cumulative reveal of one dialogue that starts with `text`.

    It ends in a grounding, after MAX_QUESTIONS, or where nothing more can be said. missing: the
    noun phrase to repeat when it names nothing.
    """
    pool = candidates if candidates else tuple(range(len(objects)))
    target = int(rng.choice(pool))
    context = text
    states: list[State] = []
    for _ in range(MAX_QUESTIONS + 1):
        if len(candidates) == 1:
            return [*states, State(context, candidates, None)]
        opening = OPENINGS[int(rng.integers(len(OPENINGS)))]
        if candidates:
            question = ask(candidates, objects, opening)
        else:
            question = Question(NOTHING.format(missing), "nothing")
        states.append(State(context, candidates, question.text, question.options))
        said = answer(question, target, candidates, objects, rng)
        if said is None:
            return states
        context = f"{context} assistant: {question.text} user: {said[0]}"
        candidates = said[1]
    return states


def random_states(
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
    want: str | None = None,
    tries: int = 40,
    spec: WorldSpec = BLOCKS,
) -> list[State]:
    """A random dialogue about the scene; [] when no such reference was found in `tries` draws.

    spec: the scene's world. want: "clear", "ambiguous", "absent" or None for any of them.
    """
    kind = (
        want
        if want is not None
        else str(rng.choice(["clear", "ambiguous", "absent"], p=[0.45, 0.45, 0.10]))
    )
    for _ in range(tries):
        reference = random_reference(objects, rng, absent=kind == "absent", spec=spec)
        candidates = meant(reference, objects)
        if candidates is None:
            continue
        found = "absent" if not candidates else "clear" if len(candidates) == 1 else "ambiguous"
        if found != kind:
            continue
        spoken = np.random.default_rng(int(rng.integers(2**63)))
        name = indefinite(phrase(replace(reference, place=None), spoken))
        return states_of(request(reference, rng), candidates, objects, rng, missing=name)
    return []
