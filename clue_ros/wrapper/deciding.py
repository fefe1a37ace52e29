# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Decides by the language model's choice: point at one thing, or ask about several.

Two detectors list one thing twice, so boxes are grouped into things before they are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.narrowing import called
from clue_ros.dialogue.nouns import head_noun
from clue_ros.dialogue.types import SAME_BOX, Dialogue
from clue_ros.wrapper.language_model import Choice
from clue_ros.wrapper.prompt import AnswerKind

STILL_LIKELY = 0.25  # share of the likeliest thing's probability from which another still matches


def group_things(candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """Indices of the candidates, those of one thing together: boxes with an IoU of 0.5 or more."""
    groups: list[list[int]] = []
    for index, candidate in enumerate(candidates):
        for group in groups:
            if candidates[group[0]].box.iou(candidate.box) >= SAME_BOX:
                group.append(index)
                break
        else:
            groups.append([index])
    return [tuple(group) for group in groups]


def ambiguity_of(choice: Choice, candidates: Sequence[Candidate]) -> float:
    """Probability that no single thing is meant: 1 minus that of the likeliest thing.

    0 for an answer that cannot be used: the detector's best box stands in, as in the paper. 1 for
    one that asks or denies in a sentence.
    """
    if not choice.answer.kind.is_valid:
        return 0.0
    if choice.answer.in_words:
        return 1.0
    groups = group_things(candidates)
    return 1.0 - max((sum(choice.probabilities[i] for i in g) for g in groups), default=0.0)


def pointed_at(choice: Choice, candidates: Sequence[Candidate], dialogue: Dialogue) -> int:
    """The index to point at: the answer's own, else the likeliest.

    For an answer that cannot be used the detector's best box stands in, as in the paper.
    """
    if choice.answer.kind is AnswerKind.POINT:
        return choice.answer.indices[0]
    if not choice.answer.kind.is_valid:
        return best_scored(candidates, dialogue)
    groups = group_things(candidates)
    best = max(groups, key=lambda group: sum(choice.probabilities[i] for i in group))
    return max(best, key=lambda i: choice.probabilities[i])


def best_scored(candidates: Sequence[Candidate], dialogue: Dialogue) -> int:
    """The index of the surest candidate of the request's noun; of all if no label fits it."""
    named = called(candidates, head_noun(dialogue.request)) or candidates
    return candidates.index(max(named, key=lambda c: c.score))


def distinct(indices: Sequence[int], candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """One index for each thing among these, the surest box of it, in their order."""
    of_thing = {i: group for group in group_things(candidates) for i in group}
    kept: dict[tuple[int, ...], int] = {}
    for i in indices:
        group = of_thing[i]
        if group not in kept or candidates[i].score > candidates[kept[group]].score:
            kept[group] = i
    return tuple(kept.values())


def still_likely(choice: Choice, candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """The things that are nearly as likely as the likeliest; at least two where there are two."""
    groups = group_things(candidates)
    shares = [sum(choice.probabilities[i] for i in group) for group in groups]
    ranked = sorted(range(len(groups)), key=lambda n: -shares[n])
    kept = [n for n in ranked if shares[n] >= STILL_LIKELY * shares[ranked[0]]]
    kept = kept if len(kept) > 1 else ranked[:2]
    return tuple(max(groups[n], key=lambda i: choice.probabilities[i]) for n in kept)
