"""A person's answer to a question, with one object in mind, and the candidates that it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from clue_ros.dialogue.places import RELATION_DIRECTIONS
from clue_ros.lab.language import words
from clue_ros.lab.language.phrases import Phrasing
from clue_ros.lab.language.questions import MAX_OPTIONS, ClarifyingQuestion, partitions
from clue_ros.lab.language.references import (
    Candidates,
    Landmark,
    Objects,
    Reference,
    by_relation,
    has_color,
    is_called,
    landmark_object,
    place_answers,
    referents,
)
from clue_ros.lab.language.words import Rng, pick

Answer = tuple[str, Candidates]
"""An answer's words, and the candidates that it leaves."""
DIRECT_RATE = 0.78
"""Share of answers that name the property asked for; the others name one that tells as much."""
UNSURE_RATE = 0.03
"""Share of answers that leave the choice to the robot."""


@dataclass(frozen=True)
class Respondent:
    """A person who has `target` in mind, one of the candidates; words are drawn from `rng`."""

    target: int
    candidates: Candidates
    objects: Objects
    phrasing: Phrasing
    rng: Rng

    def answer(self, question: ClarifyingQuestion, *, unsure: float = UNSURE_RATE) -> Answer | None:
        """Answer a question; None when no words distinguish the target from any candidate.

        unsure: share of answers that leave the choice to the robot's first option.
        """
        if question.axis == "yes" and self.rng.uniform() < DIRECT_RATE:
            return self._yes_or_no(question)
        if question.groups and self.rng.uniform() < unsure:
            text = pick(self.rng, words.UNSURE)
            return text, next(iter(question.groups.values()))[:1]
        direct = self._direct(question)
        if direct is not None and self.rng.uniform() < DIRECT_RATE:
            return direct
        others = self.distinctions()
        if direct is not None:
            others = [other for other in others if len(other[1]) <= len(direct[1])] or [direct]
        return others[int(self.rng.integers(len(others)))] if others else direct

    def _yes_or_no(self, question: ClarifyingQuestion) -> Answer:
        (proposed,) = question.groups.values()
        rest = tuple(i for i in self.candidates if i not in proposed)
        if self.target in proposed:
            return pick(self.rng, words.YES), proposed
        form = self.rng.uniform()
        if len(rest) == 1 and form < 0.4:
            return pick(self.rng, words.OTHER), rest
        others = self.distinctions()
        if form < 0.65 and others:  # a correction: "no , the blue one"
            text, left = others[int(self.rng.integers(len(others)))]
            return f"no , {text}", left
        return pick(self.rng, words.NO), rest

    def _direct(self, question: ClarifyingQuestion) -> Answer | None:
        """Name the property asked for, in the question's words or by the option's number."""
        groups = question.groups
        word = next((w for w, group in groups.items() if self.target in group), None)
        if word is not None and len(groups) > 1:
            if self.rng.uniform() < 0.08:
                number = list(groups).index(word)
                last = number == len(groups) - 1 and self.rng.uniform() < 0.4
                ordinal = "last" if last else words.ORDINALS[number]
                return pick(self.rng, words.BY_ORDER[:2]).format(o=ordinal), groups[word]
            return self._in_words(question.axis, word, groups[word]), groups[word]
        if question.axis == "color":
            color = self.objects[self.target].color
            same = tuple(i for i in self.candidates if has_color(self.objects[i], color))
            if len(same) < len(self.candidates):
                return self._in_words("color", color, same), same
        return self._by_place()

    def _in_words(self, axis: str, word: str, group: Candidates) -> str:
        rng = self.rng
        noun = self._noun(group)
        if axis == "color":
            return pick(rng, words.BY_COLOR).format(c=word, n=noun)
        if axis == "size":
            return pick(rng, words.BY_SIZE).format(s=pick(rng, words.SIZES[word]), n=noun)
        if axis == "kind":
            return pick(rng, words.BY_KIND).format(n=noun)
        if axis == "material":
            return pick(rng, words.BY_SIZE).format(s=word, n=noun)
        return pick(rng, words.BY_PLACE).format(p=pick(rng, words.PLACES[word]), n=noun)

    def _noun(self, group: Candidates) -> str:
        """A noun for the target that holds for the whole group, and so means no fewer objects."""
        noun = self.phrasing.noun(self.objects[self.target].kind, self.rng)
        named = any(self.objects[i].names for i in group)
        return noun if not named or self.holds_for(noun, group) else words.ANY_NOUNS[0]

    def holds_for(self, noun: str, group: Candidates) -> bool:
        """Return whether every object of a group has this noun."""
        kinds = self.phrasing.nouns
        return all(
            is_called(self.objects[i], noun) or noun in kinds.get(self.objects[i].kind, ())
            for i in group
        )

    def _by_place(self) -> Answer | None:
        """Name the target's place among the candidates."""
        places = place_answers(self.target, self.candidates, self.objects)
        if not places:
            return None
        word = pick(self.rng, places)
        return self._in_words("place", word, self.candidates), (self.target,)

    def distinctions(self) -> list[Answer]:
        """Every property that tells the target from some candidate, one answer each."""
        nouns = {kind: names[0] for kind, names in self.phrasing.nouns.items()}
        out: list[Answer] = []
        for axis, groups in partitions(self.candidates, self.objects, nouns).items():
            word = next(w for w, group in groups.items() if self.target in group)
            group = self.candidates if axis in ("size", "place") else groups[word]
            out.append((self._in_words(axis, word, group), groups[word]))
            if axis == "color" and len(groups) == 2:
                other = next(w for w in groups if w != word)
                out.append((pick(self.rng, words.BY_NOT).format(c=other), groups[word]))
        by_place = self._by_place()
        if by_place is not None and len(self.candidates) > MAX_OPTIONS:
            out.append(by_place)
        relation = self._by_relation()
        return [*out, relation] if relation is not None else out

    def _by_relation(self) -> Answer | None:
        """Name an object beside the target: "the one next to the bowl"."""
        outside = [i for i in range(len(self.objects)) if i not in self.candidates]
        for at in (int(i) for i in self.rng.permutation(outside)):
            landmark = Landmark(self.objects[at].kind)
            if landmark_object(landmark, self.objects) != at:
                continue
            for relation in map(str, self.rng.permutation([*RELATION_DIRECTIONS, "next"])):
                found = by_relation(self.candidates, self.objects, relation, landmark)
                if found == (self.target,):
                    template = pick(self.rng, words.RELATIONS[relation])
                    where = template.format(self.phrasing.landmark(landmark, self.rng))
                    text = pick(self.rng, words.BY_PHRASE).format(f"the one {where}")
                    return text, (self.target,)
        return None


def unique_references(target: int, objects: Objects) -> list[Reference]:
    """References that mean exactly the target, shortest first."""
    o = objects[target]
    tries = [Reference(kind=o.kind), Reference(color=o.color), Reference(o.kind, o.color)]
    tries += [Reference(o.kind, size=s) for s in words.SIZES]
    tries += [Reference(o.kind, place=p) for p in ("left", "right", "upper", "lower", "middle")]
    return [r for r in tries if referents(r, objects) == (target,)]
