"""The robot's question that distinguishes the candidates in the fewest words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clue_ros.dialogue.places import row_of_places, spread_axis
from clue_ros.lab.language.references import Candidates, Objects, by_size, has_color, is_called
from clue_ros.lab.language.words import NOTHING, WHERE, WHICH_COLOR, adjective

MAX_OPTIONS = 3
"""Options that a question lists at most."""
_AXES = ("color", "size", "kind", "material", "place")  # the earlier of two as good is preferred

Groups = Mapping[str, Candidates]
"""An option's word -> the candidates that it means."""


@dataclass(frozen=True)
class ClarifyingQuestion:
    """A question of the robot.

    axis: the property it asks for: "color", "size", "kind", "material" or "place"; "yes" for a
    proposal ("is it the red one ?"), "which" for an open question, "nothing" for "i don't see it",
    "unclear" for a question that could not be read. groups: the options that it lists. options:
    (index of the option's word in the text, first object of the option), for pointing.
    """

    text: str
    axis: str
    groups: Groups
    options: tuple[tuple[int, int], ...] = ()


def nothing(missing: str) -> ClarifyingQuestion:
    """Say that an object is not there; missing: its noun phrase with "a" or "an"."""
    return ClarifyingQuestion(NOTHING.format(missing), "nothing", {})


def list_options(axis: str, groups: Groups) -> ClarifyingQuestion:
    """For example "the red one , the blue one or the green one ?"."""
    tokens, options = list[str](), list[tuple[int, int]]()
    for i, (word, owners) in enumerate(groups.items()):
        if i > 0:
            tokens.append("or" if i == len(groups) - 1 else ",")
        options.append((len(tokens) + 1, owners[0]))
        tokens += ["the", *word.split()]
        if axis != "kind":
            tokens.append("one")
    return ClarifyingQuestion(" ".join([*tokens, "?"]), axis, groups, tuple(options))


def group_by(values: Mapping[int, str]) -> dict[str, Candidates]:
    """Group objects by a word: value -> objects, in the order given."""
    groups: dict[str, Candidates] = {}
    for i, value in values.items():
        groups[value] = (*groups.get(value, ()), i)
    return groups


def group_by_place(candidates: Sequence[int], objects: Objects) -> dict[str, Candidates]:
    """Name two or three objects by place, along the image axis on which they are spread more."""
    axis = spread_axis(objects[i].center for i in candidates)
    owners = sorted(candidates, key=lambda i: objects[i].center[axis])
    words = row_of_places([objects[i].center for i in owners])
    return {word: (owner,) for word, owner in zip(words, owners, strict=True)}


def partitions(
    candidates: Sequence[int], objects: Objects, noun_of: Mapping[str, str]
) -> dict[str, dict[str, Candidates]]:
    """Split the candidates, from left to right, by each axis that tells some apart.

    Returns axis -> word -> candidates. noun_of: the noun of a kind.
    """
    order = sorted(candidates, key=lambda i: objects[i].center[0])
    out = {
        "color": group_by({i: objects[i].color for i in order}),
        "kind": group_by({i: noun_of.get(objects[i].kind, objects[i].kind) for i in order}),
        "material": group_by({i: adjective(objects[i].material) for i in order}),
    }
    # "the white one" would mean a red and white one too, "the camera" a security camera.
    for axis, holds in (("color", has_color), ("kind", is_called)):
        if any(holds(objects[i], w) for w, of in out[axis].items() for i in order if i not in of):
            del out[axis]
    if "" in out["material"]:
        del out["material"]
    if len(out.get("kind", ())) == 1:  # big and small are said of things of one kind
        big, small = (by_size(order, objects, size) for size in ("big", "small"))
        if big and small and len(big) + len(small) == len(order):
            out["size"] = {"big": big, "small": small}
    if len(order) <= MAX_OPTIONS:
        out["place"] = group_by_place(order, objects)
    return {axis: groups for axis, groups in out.items() if len(groups) > 1}


def ask(
    candidates: Sequence[int], objects: Objects, noun_of: Mapping[str, str], *, asked: int = 0
) -> ClarifyingQuestion:
    """Ask about two candidates or more.

    asked: number of questions before. With two candidates left, a later question proposes one:
    "is it the red one ?".
    """
    splits = {
        axis: groups
        for axis, groups in partitions(candidates, objects, noun_of).items()
        if len(groups) <= MAX_OPTIONS
    }

    def cost(axis: str) -> tuple[int, int, int]:
        """Candidates left at worst, then number of words."""
        groups = splits[axis]
        words = sum(len(word.split()) + (axis != "kind") for word in groups)
        return max(map(len, groups.values())), words, _AXES.index(axis)

    if splits:
        axis = min(splits, key=cost)
        groups = splits[axis]
        if asked > 0 and len(candidates) == 2:
            word, owners = next(iter(groups.items()))
            text = f"is it the {word} ?" if axis == "kind" else f"is it the {word} one ?"
            return ClarifyingQuestion(text, "yes", {word: owners}, ((3, owners[0]),))
        return list_options(axis, groups)
    if len({objects[i].color for i in candidates}) > MAX_OPTIONS:
        return ClarifyingQuestion(WHICH_COLOR, "color", {})
    return ClarifyingQuestion(WHERE, "which", {})
