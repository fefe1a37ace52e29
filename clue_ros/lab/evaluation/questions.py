"""Judge whether a question helps: it offers two things that are meant, and asks something new.

A question names at least two candidates that match the person's words and differ in the offered
property, or it shows one ("this one?"). It never repeats a property that the person has given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clue_ros.dialogue.helpful import asks_again
from clue_ros.dialogue.types import Box, Question
from clue_ros.dialogue.words import asks_yes_or_no
from clue_ros.lab.metrics import MIN_IOU, ratio

Judged = dict[str, Any]
"""text: the question. offers, new: its two properties. confirm: whether it shows one thing."""


def judge_question(question: Question, said: Sequence[str], meant: Sequence[Box]) -> Judged:
    """Judge whether a question has the two properties.

    said: the person's words about this object. meant: the boxes in pixels of the things that match
    all of them, by the data's truth. If the answers are bound to no candidates, each candidate
    counts as an answer.
    """
    shows_one = len(question.candidates) == 1 and asks_yes_or_no(question.suggested_answers)
    options = question.suggested_answers
    return {
        "text": question.text,
        "offers": shows_one or len(_offered(question, meant)) > 1,
        "new": shows_one or not asks_again(question.text, options, said),
        "confirm": shows_one,
    }


def _offered(question: Question, meant: Sequence[Box]) -> set[frozenset[int]]:
    """Return the distinct sets of true things that its answers mean."""
    if len(question.suggested_answers) < 2 or asks_yes_or_no(question.suggested_answers):
        return set()
    groups = question.answer_candidates or tuple((i,) for i in range(len(question.candidates)))
    shown = [_shown(box, meant) for box in question.candidates]
    found = {frozenset(n for i in group if (n := shown[i]) is not None) for group in groups}
    return found - {frozenset()}


def _shown(box: Box, meant: Sequence[Box]) -> int | None:
    """Return the thing in a box, by an IoU of 0.5 or by its centre; None without one."""
    near = [
        (true.iou(box), n)
        for n, true in enumerate(meant)
        if true.iou(box) >= MIN_IOU or true.contains(box.center)
    ]
    return max(near)[1] if near else None


def share_of_helpful(judged: Iterable[Mapping[str, Any]]) -> dict[str, float | int]:
    """Shares of questions with both properties and with each, and of those that show one thing.

    NaN of no questions.
    """
    rows = list(judged)
    both = [row["offers"] and row["new"] for row in rows]
    shares = {name: [row[name] for row in rows] for name in ("offers", "new", "confirm")}
    return {
        name: ratio(sum(values), len(rows)) for name, values in {"helpful": both, **shares}.items()
    } | {"n": len(rows)}
