"""What somebody with one object in mind says to a question, and what that leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clue_ros.lab.language.blocks import pick, place_answers
from clue_ros.lab.language.phrases import Speech
from clue_ros.lab.language.questions import LISTED, Question, partitions
from clue_ros.lab.language.references import Landmark, Reference, landmark_of, meant, related
from clue_ros.lab.language.words import (
    BY_COLOR,
    BY_KIND,
    BY_NOT,
    BY_ORDER,
    BY_PHRASE,
    BY_PLACE,
    BY_SIZE,
    DIRECTIONS,
    NO,
    ORDINALS,
    OTHER,
    PLACES,
    RELATIONS,
    SIZES,
    UNSURE,
    YES,
)
from clue_ros.lab.simulator.scene import SceneObject

Said = tuple[str, tuple[int, ...]]
TO_THE_POINT = 0.78  # of answers; the others name something else that tells as much
UNSURE_RATE = 0.03  # of answers that leave it to the robot


def answer(
    question: Question,
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
    *,
    unsure: float = UNSURE_RATE,
) -> Said | None:
    """The words, and the candidates they leave; None when nothing can be said.

    unsure: how often the choice is left to the robot, which then takes the first one offered.
    """
    if question.axis == "yes" and rng.uniform() < TO_THE_POINT:
        return _yes_or_no(question, target, candidates, objects, speech, rng)
    if question.groups and rng.uniform() < unsure:
        return pick(rng, UNSURE), question.groups[0][:1]
    asked = _to_the_point(question, target, candidates, objects, speech, rng)
    if asked is not None and rng.uniform() < TO_THE_POINT:
        return asked
    others = told_apart(target, candidates, objects, speech, rng)
    if asked is not None:
        others = [said for said in others if len(said[1]) <= len(asked[1])] or [asked]
    return others[int(rng.integers(len(others)))] if others else asked


def _yes_or_no(
    question: Question,
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
) -> Said:
    proposed = question.groups[0]
    rest = tuple(i for i in candidates if i not in proposed)
    if target in proposed:
        return pick(rng, YES), proposed
    form = rng.uniform()
    if len(rest) == 1 and form < 0.4:
        return pick(rng, OTHER), rest
    told = told_apart(target, candidates, objects, speech, rng)
    if form < 0.65 and told:  # a correction: "no , the blue one"
        text, left = told[int(rng.integers(len(told)))]
        return f"no , {text}", left
    return pick(rng, NO), rest


def _to_the_point(
    question: Question,
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
) -> Said | None:
    """By what was asked for, in its own words or by its number among the options."""
    groups = dict(zip(question.words, question.groups, strict=True))
    word = next((w for w, group in groups.items() if target in group), None)
    if word is not None and len(groups) > 1:
        if rng.uniform() < 0.08:
            number = list(groups).index(word)
            last = number == len(groups) - 1 and rng.uniform() < 0.4
            said = "last" if last else ORDINALS[number]
            return pick(rng, BY_ORDER[:2]).format(o=said), groups[word]
        return _in_words(question.axis, word, objects[target], speech, rng), groups[word]
    if question.axis == "color":
        same = tuple(i for i in candidates if objects[i].color == objects[target].color)
        if len(same) < len(candidates):
            return _in_words("color", objects[target].color, objects[target], speech, rng), same
    return _placed(target, candidates, objects, speech, rng)


def _in_words(
    axis: str, word: str, o: SceneObject, speech: Speech, rng: np.random.Generator
) -> str:
    noun = speech.noun(o.kind, rng)
    if axis == "color":
        return pick(rng, BY_COLOR).format(c=word, n=noun)
    if axis == "size":
        return pick(rng, BY_SIZE).format(s=pick(rng, SIZES[word]), n=noun)
    if axis == "kind":
        return pick(rng, BY_KIND).format(n=noun)
    return pick(rng, BY_PLACE).format(p=pick(rng, PLACES[word]), n=noun)


def _placed(
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
) -> Said | None:
    """By its place among the candidates."""
    places = place_answers(target, candidates, objects)
    if not places:
        return None
    return _in_words("place", pick(rng, places), objects[target], speech, rng), (target,)


def told_apart(
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
) -> list[Said]:
    """Everything that tells the target from some candidate, one way of saying it each."""
    o = objects[target]
    nouns = {kind: names[0] for kind, names in speech.nouns.items()}
    out: list[Said] = []
    for axis, groups in partitions(candidates, objects, nouns).items():
        word = next(w for w, group in groups.items() if target in group)
        out.append((_in_words(axis, word, o, speech, rng), groups[word]))
        if axis == "color" and len(groups) == 2:
            other = next(w for w in groups if w != word)
            out.append((pick(rng, BY_NOT).format(c=other), groups[word]))
    by_place = _placed(target, candidates, objects, speech, rng)
    if by_place is not None and len(candidates) > LISTED:
        out.append(by_place)
    by_relation = _related(target, candidates, objects, speech, rng)
    return [*out, by_relation] if by_relation is not None else out


def _related(
    target: int,
    candidates: Sequence[int],
    objects: Sequence[SceneObject],
    speech: Speech,
    rng: np.random.Generator,
) -> Said | None:
    """By another thing that it lies beside: "the one next to the bowl"."""
    outside = [i for i in range(len(objects)) if i not in candidates]
    for at in (int(i) for i in rng.permutation(outside)):
        landmark = Landmark(objects[at].kind)
        if landmark_of(landmark, objects) != at:
            continue
        for relation in map(str, rng.permutation([*DIRECTIONS, "next"])):
            if related(candidates, objects, relation, landmark) == (target,):
                where = pick(rng, RELATIONS[relation]).format(speech.landmark(landmark, rng))
                return pick(rng, BY_PHRASE).format(f"the one {where}"), (target,)
    return None


def naming(target: int, objects: Sequence[SceneObject]) -> list[Reference]:
    """References that mean exactly the target, shortest first."""
    o = objects[target]
    tries = [Reference(kind=o.kind), Reference(color=o.color), Reference(o.kind, o.color)]
    tries += [Reference(o.kind, size=s) for s in SIZES]
    tries += [Reference(o.kind, place=p) for p in ("left", "right", "upper", "lower", "middle")]
    return [r for r in tries if meant(r, objects) == (target,)]
