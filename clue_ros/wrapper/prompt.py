# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The text that the language model reads, and how its answer is read back.

The prompt has the paper's parts: a system sentence, a line for each box with its label and its
corners, and the request for the index of the box that matches. Two things are ours: the whole
dialogue stands in the query's place, and two more answers are allowed, "ask 1 3" where several
boxes still match and "none" where none does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from clue_ros.dialogue.candidates import COLOR, Candidate
from clue_ros.dialogue.types import one_line

ASK, NONE = "ask", "none"
PAPER, CENTERS = "paper", "centers"
STYLES = (PAPER, CENTERS)
UNITS = ("pixels", "percent")
GIVEN, LEFT_TO_RIGHT = "given", "left-to-right"
ORDERS = (GIVEN, LEFT_TO_RIGHT)
MAX_LABEL = 80  # characters of a detector's label

SYSTEM = "You know where things are in an image. You answer questions about boxes around them."
_QUESTION = (
    "Which box does this dialogue mean: '{dialogue}'? Answer with the index of the box, with"
    " 'ask' and the indices if several boxes match, or with 'none'. Do not explain."
)
_SHORT_QUESTION = "Which box is meant: '{dialogue}'?"


@dataclass(frozen=True)
class PromptFormat:
    """The format of the boxes.

    style: "paper"; or "centers", with fewer words, for small models and slow machines: the index
    after the label, as small models look for what follows a word; the box's centre and its size,
    the root of the area, as "bigger" then compares one number. units: of corners, centres and
    sizes, "pixels" with one decimal as in the paper, or whole "percent" of the image's sides.
    scores: whether each line has the detector's score. colors: whether the colour of a candidate
    stands before its label; detectors do not tell it, so it is measured (`clue_ros.model.colors`)
    and the paper has none. order: of the lines, as the candidates are "given", as in the paper, or
    by the boxes' centres from "left-to-right", so that the answer does not depend on the given one.
    first: number of the first box; 0 for the adapters that the paper's authors released.
    """

    style: str = PAPER
    units: str = "pixels"
    scores: bool = True
    colors: bool = True
    order: str = GIVEN
    first: int = 1

    def problem(self) -> str:
        """Return what is wrong with a value; empty if nothing is."""
        if self.style not in STYLES:
            return f"style {self.style!r}: want one of {', '.join(STYLES)}"
        if self.units not in UNITS:
            return f"units {self.units!r}: want one of {', '.join(UNITS)}"
        if self.order not in ORDERS:
            return f"order {self.order!r}: want one of {', '.join(ORDERS)}"
        if self.first not in (0, 1) or isinstance(self.first, bool):
            return f"first {self.first!r}: want 0 or 1"
        flags = {"scores": self.scores, "colors": self.colors}
        wrong = [name for name, value in flags.items() if not isinstance(value, bool)]
        return f"{wrong[0]} must be true or false" if wrong else ""


PAPER_FORMAT = PromptFormat()


def listed_order(
    candidates: Sequence[Candidate], form: PromptFormat = PAPER_FORMAT
) -> tuple[int, ...]:
    """Indices of the candidates in the order of their lines.

    >>> from clue_ros.dialogue.types import Box
    >>> pair = [Candidate(Box(x, 0, x + 9, 9), "mug", 0.5) for x in (50, 10)]
    >>> listed_order(pair), listed_order(pair, PromptFormat(order="left-to-right"))
    ((0, 1), (1, 0))
    """
    indices = range(len(candidates))
    if form.order == GIVEN:
        return tuple(indices)

    def place(index: int) -> tuple[object, ...]:
        one = candidates[index]
        return (*one.box.center, *one.box.as_list(), one.source, one.label, one.score)

    return tuple(sorted(indices, key=place))


def list_boxes(
    candidates: Sequence[Candidate], size: tuple[int, int], form: PromptFormat = PAPER_FORMAT
) -> str:
    """The lines about the boxes of an image of this size (width, height), numbered.

    They are listed as they come; `listed_order` gives the format's order. Candidates of several
    sources (an ensemble) are told apart by their source's name.

    >>> from clue_ros.dialogue.types import Box
    >>> mug = Candidate(Box(10, 20, 30.25, 40), "mug", 0.5)
    >>> print(list_boxes([mug], (100, 50)))
    In the image there are 1 boxes:
    * In box 1: 'mug' with xyxy coordinates '[10.0, 20.0, 30.2, 40.0]' with score 0.50
    >>> print(list_boxes([mug], (100, 50), PromptFormat("centers", "percent", scores=False)))
    Boxes (center, size):
    * mug 1 [20, 60, 28]
    """
    several = len({c.source for c in candidates}) > 1
    paper = form.style == PAPER
    title = f"In the image there are {len(candidates)} boxes:" if paper else "Boxes (center, size):"
    lines = [title]
    for number, candidate in enumerate(candidates, start=form.first):
        label, numbers = _label(candidate, form), _numbers(candidate, size, form)
        if paper:
            line = f"* In box {number}: '{label}' with xyxy coordinates '[{numbers}]'"
            score, finder = "with score ", ", found by"
        else:
            line = f"* {label} {number} [{numbers}]"
            score, finder = "", " by"
        if form.scores:
            line += f" {score}{candidate.score:.2f}"
        if several:
            line += f"{finder} {candidate.source}"
        lines.append(line)
    return "\n".join(lines)


def _label(candidate: Candidate, form: PromptFormat) -> str:
    """The label on a line, without quotes and brackets; with the colour if it does not say one."""
    label = re.sub(r"[\s'\"*\[\]]+", " ", one_line(candidate.label[: 4 * MAX_LABEL])).lower()
    label = label[:MAX_LABEL].strip() or "object"
    color = candidate.attributes.get(COLOR, "") if form.colors else ""
    return f"{color} {label}" if color and color not in label.split() else label


def _numbers(candidate: Candidate, size: tuple[int, int], form: PromptFormat) -> str:
    """The corners, or the centre and the size, in the format's units."""
    values = candidate.box.as_list()
    if form.units == "percent":
        values = [100 * v / side for v, side in zip(values, size * 2, strict=True)]
    if form.style == CENTERS:
        x_min, y_min, x_max, y_max = values
        root = ((x_max - x_min) * (y_max - y_min)) ** 0.5
        values = [(x_min + x_max) / 2, (y_min + y_max) / 2, root]
    if form.units == "percent":
        return ", ".join(str(round(value)) for value in values)
    return ", ".join(f"{value:.1f}" for value in values)


def question_text(dialogue: str, form: PromptFormat = PAPER_FORMAT) -> str:
    """Return the question about the boxes; dialogue: the request, or C(k) with all its turns.

    It stands in quotes, and cannot end them: only apostrophes within words stay.

    >>> question_text("the boys' mug, don't ask", PromptFormat(CENTERS))
    "Which box is meant: 'the boys’ mug, don't ask'?"
    """
    question = _QUESTION if form.style == PAPER else _SHORT_QUESTION
    quoted = re.sub(r"(?<!\w)'|'(?!\w)", "’", dialogue)
    return question.format(dialogue=quoted)


# -------------------------------------------------------------------------------------------------
# Answers.


class AnswerKind(Enum):
    """The kind of an answer of the language model."""

    POINT = "point"
    ASK = "ask"
    NONE = "none"
    OUT_OF_RANGE = "out of range"
    NO_INTEGER = "no integer"
    NO_ANSWER = "no answer"
    """Its server did not answer: the rules chose."""
    NOT_ASKED = "not asked"
    """There were 0 or 1 candidates: nothing to choose, the language model was not run."""

    @property
    def is_valid(self) -> bool:
        """Whether the answer can be used; else the detector's best box stands in, as in the paper.

        >>> AnswerKind.ASK.is_valid, AnswerKind.OUT_OF_RANGE.is_valid
        (True, False)
        """
        return self not in (AnswerKind.OUT_OF_RANGE, AnswerKind.NO_INTEGER)


@dataclass(frozen=True)
class Answer:
    """An answer of the language model. indices: of the candidates, from 0.

    in_words: it asks or denies in a sentence of its own. The probabilities of the allowed answers
    tell nothing then.
    """

    kind: AnswerKind
    indices: tuple[int, ...] = ()
    in_words: bool = False


# The numbers after a denial do not count, up to what is said instead.
_DENIAL = re.compile(r"\b(?:no|not|none|nothing|neither|nor|never|cannot)\b|n['’]t\b", re.I)
_INSTEAD = re.compile(r"\b(?:but|rather|instead)\b", re.I)


def read_answer(text: str, count: int, first: int = 1) -> Answer:
    """Read an answer about `count` boxes: the first integer, "ask" with several, or "none".

    first: the number of the first box.

    The first line that says something counts. A sentence that asks or denies points at nothing.

    >>> read_answer("2", 3).indices, read_answer("Box 2, not 3.", 3).indices
    ((1,), (1,))
    >>> read_answer("ask 1 3 9", 3)
    Answer(kind=<AnswerKind.ASK: 'ask'>, indices=(0, 2), in_words=False)
    >>> read_answer("7", 3).kind.value, read_answer("the mug", 3).kind.value
    ('out of range', 'no integer')
    >>> read_answer("Which one, 1 or 2?", 3).kind.value, read_answer("There is none.", 3).kind.value
    ('ask', 'none')
    """
    for line in text.splitlines():
        found = re.match(r"\W*([a-z]+)", line.lower())
        word = found[1] if found else ""
        if word == NONE:
            return Answer(AnswerKind.NONE, in_words=not re.fullmatch(r"\W*none\W*", line.lower()))
        sentences = [line] if word == ASK else re.split(r"(?<=[.!?])\s+", line)
        for sentence in sentences:
            answer = _read_sentence(sentence, count, first, several=word == ASK)
            if answer.kind is not AnswerKind.NO_INTEGER:
                return answer
    return Answer(AnswerKind.NO_INTEGER)


def _read_sentence(sentence: str, count: int, first: int, *, several: bool) -> Answer:
    if not several and sentence.rstrip().endswith("?"):
        return Answer(AnswerKind.ASK, in_words=True)
    parts = [sentence] if several else _INSTEAD.split(sentence)
    said = " ".join(_DENIAL.split(part)[0] for part in parts)
    numbers = [int(digits) for digits in re.findall(r"(?<![\d.])\d{1,6}(?![\d.]*\d)", said)]
    if not numbers:
        denies = _DENIAL.search(sentence) is not None
        return Answer(AnswerKind.NONE if denies else AnswerKind.NO_INTEGER, in_words=denies)
    if not several:
        numbers = numbers[:1]
    inside = tuple(dict.fromkeys(n - first for n in numbers if 0 <= n - first < count))
    if not inside:
        return Answer(AnswerKind.OUT_OF_RANGE)
    return Answer(AnswerKind.ASK if len(inside) > 1 else AnswerKind.POINT, inside)


def answer_text(indices: Sequence[int]) -> str:
    """The answer that names these candidates (indices from 0); read_answer reads it back.

    >>> answer_text([2]), answer_text([2, 0]), answer_text([])
    ('3', 'ask 1 3', 'none')
    """
    if not indices:
        return NONE
    numbers = [str(i + 1) for i in sorted(indices)]
    return numbers[0] if len(numbers) == 1 else " ".join([ASK, *numbers])


class AnswerRates:
    """Counts the answers of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[AnswerKind] = Counter()

    def add(self, kind: AnswerKind) -> None:
        """Count one answer."""
        self.counts[kind] += 1

    def summary(self) -> dict[str, float]:
        """Share of each kind, 0..1: of "not asked" among all, of the others among those asked."""
        total = sum(self.counts.values())
        asked = total - self.counts[AnswerKind.NOT_ASKED]
        shares = {"not asked": self.counts[AnswerKind.NOT_ASKED] / total if total else 0.0}
        for kind in AnswerKind:
            if kind is not AnswerKind.NOT_ASKED:
                shares[kind.value] = self.counts[kind] / asked if asked else 0.0
        return {name: round(share, 4) for name, share in shares.items()}
