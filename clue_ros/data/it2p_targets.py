"""Which blocks an IT2P command can mean, and which words tell one from the others.

The data set gives the words that settle an ambiguous command ("yellow", "upperleft"), not the
blocks. The blocks are worked out here, from the words, the blocks' colours and their places. On the
73 commands for which ``test_simulator`` lists the blocks, this finds the same ones for 68, and all
but one of them for the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

Point = tuple[float, float]
"""(x, y) in pixels of the photograph, x to the right, y down."""

COLORS = ("red", "green", "blue", "yellow", "purple")
MERGE_PX = 12.0
"""Annotated points nearer to one another than this are one block (blocks are 32 px or wider)."""

_SIMPLE = ("left", "right", "upper", "lower", "middle")
_AXES: dict[str, Point] = {
    "left": (-1, 0), "leftmost": (-1, 0), "right": (1, 0), "rightmost": (1, 0),
    "upper": (0, -1), "top": (0, -1), "lower": (0, 1), "bottom": (0, 1),
}  # fmt: skip
_COMPOUND = {
    "upperleft": ("upper", "left"), "upperright": ("upper", "right"),
    "lowerleft": ("lower", "left"), "lowerright": ("lower", "right"),
}  # fmt: skip
_HEAD = re.compile(r"^(.*?\bblocks?\b)(.*)$")
_COLOR_CLAUSE = re.compile(r"\bwhich (?:color|colour) is (\w+)")


@dataclass(frozen=True)
class Block:
    """One annotated block: the mean of its points, and its colour where a command tells it."""

    point: Point
    color: str | None


def head_color(text: str) -> str | None:
    """The colour a command gives the block it is about, not one that it is compared with.

    >>> head_color("pick up the blue block between the red block and the green block")
    'blue'
    """
    match = _HEAD.match(text)
    if match is None:
        return None
    named = [word for word in match[1].split() if word in COLORS]
    clause = _COLOR_CLAUSE.search(match[2])
    if clause and clause[1] in COLORS:
        named.append(clause[1])
    return named[0] if len(set(named)) == 1 else None


def nearest(blocks: tuple[Block, ...], point: Point) -> Block:
    """The annotated block nearest to ``point``; a new one there if none is within 20 px."""
    best = min(blocks, key=lambda block: math.dist(block.point, point), default=None)
    if best is None or math.dist(best.point, point) > 20.0:
        return Block(point, None)
    return best


def _place_score(text: str, block: Block, blocks: tuple[Block, ...]) -> float:
    """How well a block's place fits the place words of a command, in px; larger is better."""
    words = [part for word in text.split() for part in _COMPOUND.get(word, (word,))]
    x, y = block.point
    score = sum(_AXES[w][0] * x + _AXES[w][1] * y for w in words if w in _AXES)
    if "center" in words or "middle" in words:
        middle = [sum(b.point[axis] for b in blocks) / len(blocks) for axis in (0, 1)]
        score -= math.dist(block.point, middle)
    return score


def candidate_points(
    text: str, words: Iterable[str], blocks: tuple[Block, ...]
) -> tuple[Point, ...]:
    """The blocks an ambiguous command could mean, from the words that would settle it.

    Colours among the words pick blocks of those colours; where a colour has several blocks, those
    whose place fits the command as well as the others chosen. Position words alone leave the blocks
    of the command's own colour, the best placed of them if there are more than words. "this" (the
    annotators' last resort) stands for one more. Fewer than two blocks found means that the words
    do not tell: the answer is then empty.
    """
    words = ["yellow" if word == "yelow" else word for word in words]
    named = head_color(text)
    pool = [block for block in blocks if named in (None, block.color)]
    pool.sort(key=lambda block: -_place_score(text, block, blocks))
    colors = [word for word in dict.fromkeys(words) if word in COLORS and word != named]
    places = [word for word in dict.fromkeys(words) if word in _SIMPLE or word in _COMPOUND]
    if colors:
        best = [block for color in colors for block in pool if block.color == color]
        firsts = {block.color: block for block in reversed(best)}.values()
        floor = min((_place_score(text, block, blocks) for block in firsts), default=0.0)
        chosen = [block for block in best if _place_score(text, block, blocks) >= floor]
        if "this" in words:
            chosen += [block for block in pool if block not in chosen][:1]
    elif places or named:
        placed = any(word in _AXES or word in _COMPOUND for word in text.split())
        chosen = pool[: max(2, len(places))] if placed else pool
    else:
        chosen = []
    return tuple(block.point for block in chosen) if len(chosen) > 1 else ()


def place_words(point: Point, others: list[Point], words: Iterable[str]) -> tuple[str, ...]:
    """Those of the position words that are true of ``point`` and of none of the others."""
    fitting = []
    for word in words:
        axes = [_AXES[part] for part in _COMPOUND.get(word, (word,)) if part in _AXES]
        if axes:
            steps = [(point[0] - q[0], point[1] - q[1]) for q in others]
            gaps = [[a * dx + b * dy for a, b in axes] for dx, dy in steps]
            if all(sum(gap) > MERGE_PX / 2 and min(gap) > -MERGE_PX for gap in gaps):
                fitting.append(word)
        elif word == "middle" and len(others) >= 2:
            span = [max(abs(point[i] - q[i]) for q in others) for i in (0, 1)]
            reach = [max(math.dist(q, r) for r in [*others, point]) for q in others]
            if max(span) < 0.75 * min(reach):
                fitting.append(word)
    return tuple(fitting)


def answer_words(
    color: str | None, rival_colors: list[str | None], places: tuple[str, ...]
) -> tuple[str, ...]:
    """The words that tell a target apart: its colour if no rival has it, then its place words."""
    told = (color,) if color and color not in rival_colors else ()
    return tuple(dict.fromkeys((*told, *places)))
