"""Whole dialogues about a scene, revealed step by step: request, question, answer, target.

A question names what tells the candidates apart in the fewest words; an answer is what a person
who has one target in mind says to it. `Dialogue states` are the training pairs of section III-A:
(U -> R1), (U R1 H1 -> R2), ..., (... -> G).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clue_ros.data.language import (
    ANSWER_GAP,
    AXES,
    CORNERS,
    Reference,
    indefinite,
    meant,
    noun_of,
    phrase,
    placed,
    request,
)
from clue_ros.data.tabletop.blocks import BLOCKS
from clue_ros.data.tabletop.scene import SceneObject
from clue_ros.data.tabletop.spec import WorldSpec

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
