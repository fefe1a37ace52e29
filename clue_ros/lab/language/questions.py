"""The question that tells the candidates apart in the fewest words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clue_ros.lab.language.blocks import WHERE
from clue_ros.lab.language.references import sized
from clue_ros.lab.language.words import NOTHING
from clue_ros.lab.simulator.scene import SceneObject

MAX_QUESTIONS = 3
LISTED = 3  # options that a question names at most
WHICH_COLOR = "which color ?"
AXES: tuple[str, ...] = ("color", "size", "kind", "place")  # among equals, what is easiest to say


@dataclass(frozen=True)
class Question:
    """What the robot asks.

    axis: of "color", "size", "kind", "place", "yes" (is it this one), "which" (no options) or
    "nothing". groups: for each option the objects that it means. words: the options. options:
    (word index in the text, object), for pointing while speaking.
    """

    text: str
    axis: str
    words: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    options: tuple[tuple[int, int], ...] = ()


def nothing(missing: str) -> Question:
    """What is said where there is no such thing; missing: with its article."""
    return Question(NOTHING.format(missing), "nothing")


def _listed(axis: str, groups: Mapping[str, tuple[int, ...]]) -> Question:
    """For example "the red one , the blue one or the green one ?"."""
    tokens: list[str] = []
    options = []
    words = tuple(groups)
    for i, word in enumerate(words):
        if i > 0:
            tokens.append("or" if i == len(words) - 1 else ",")
        tokens += ["the", *word.split()]
        options.append((len(tokens) - len(word.split()), groups[word][0]))
        if axis != "kind":
            tokens.append("one")
    text = " ".join([*tokens, "?"])
    return Question(text, axis, words, tuple(groups.values()), tuple(options))


def _by(values: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    groups: dict[str, tuple[int, ...]] = {}
    for i, value in values.items():
        groups[value] = (*groups.get(value, ()), i)
    return groups


def partitions(
    candidates: Sequence[int], objects: Sequence[SceneObject], noun_of: Mapping[str, str]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """How each axis splits the candidates, left to right: axis -> word -> objects."""
    order = sorted(candidates, key=lambda i: objects[i].center[0])
    out = {
        "color": _by({i: objects[i].color for i in order}),
        "kind": _by({i: noun_of.get(objects[i].kind, objects[i].kind) for i in order}),
    }
    if len(out["kind"]) == 1:  # big and small are said of things of one kind
        big, small = (sized(order, objects, size) for size in ("big", "small"))
        if big and small and len(big) + len(small) == len(order):
            out["size"] = {"big": big, "small": small}
    if len(order) <= LISTED:
        out["place"] = _by_place(order, objects)
    return {axis: groups for axis, groups in out.items() if len(groups) > 1}


def _by_place(order: list[int], objects: Sequence[SceneObject]) -> dict[str, tuple[int, ...]]:
    """Left, middle, right, or upper, middle, lower: along the axis that spreads them more."""
    centers = np.array([objects[i].center for i in order])
    upright = int(np.ptp(centers[:, 1]) > np.ptp(centers[:, 0]))
    owners = sorted(order, key=lambda i: objects[i].center[upright])
    ends = ("upper", "lower") if upright else ("left", "right")
    words = [ends[0], "middle", ends[1]] if len(order) == 3 else list(ends)
    return {word: (owner,) for word, owner in zip(words, owners, strict=True)}


def ask(
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    noun_of: Mapping[str, str],
    *,
    asked: int = 0,
) -> Question:
    """The question about two candidates or more.

    asked: questions before it; with two left, a later one proposes one: "is it the red one ?".
    """
    split = {
        axis: groups
        for axis, groups in partitions(candidates, objects, noun_of).items()
        if len(groups) <= LISTED
    }
    if asked > 0 and len(candidates) == 2 and split:
        return _proposal(_best(split))
    if split and max(len(g) for g in split[_best_axis(split)].values()) < len(candidates):
        return _listed(*_best(split))
    colors = {objects[i].color for i in candidates}
    return Question(WHICH_COLOR, "color") if len(colors) > LISTED else Question(WHERE, "which")


def _best_axis(split: Mapping[str, Mapping[str, tuple[int, ...]]]) -> str:
    """What leaves the fewest candidates, and then takes the fewest words."""

    def cost(axis: str) -> tuple[int, int, int]:
        groups = split[axis]
        words = sum(len(word.split()) + (axis != "kind") for word in groups)
        return max(map(len, groups.values())), words, AXES.index(axis)

    return min(split, key=cost)


def _best(
    split: Mapping[str, Mapping[str, tuple[int, ...]]],
) -> tuple[str, Mapping[str, tuple[int, ...]]]:
    axis = _best_axis(split)
    return axis, split[axis]


def _proposal(best: tuple[str, Mapping[str, tuple[int, ...]]]) -> Question:
    axis, groups = best
    word, group = next(iter(groups.items()))
    text = f"is it the {word} ?" if axis == "kind" else f"is it the {word} one ?"
    return Question(text, "yes", (word,), (group,), ((3, group[0]),))
