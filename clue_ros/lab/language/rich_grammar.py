"""The rich grammar, of every world: sizes, relations, orders, negations, plurals, misspellings.

A request for an object that is not there gets "I don't see a banana", and often another request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from clue_ros.dialogue.inflection import plural
from clue_ros.dialogue.places import RELATION_DIRECTIONS
from clue_ros.lab.language import words
from clue_ros.lab.language.answers import Respondent, unique_references
from clue_ros.lab.language.dialogues import MAX_ASKED, DialogueState
from clue_ros.lab.language.phrases import Phrasing, misspelling_table
from clue_ros.lab.language.questions import ClarifyingQuestion, ask, nothing
from clue_ros.lab.language.references import (
    HIGHEST,
    PLACES,
    Candidates,
    Landmark,
    Objects,
    Reference,
    counted_before,
    referents,
)
from clue_ros.lab.language.words import SIZES, Rng, pick
from clue_ros.lab.simulator.spec import WorldSpec

WANTS: dict[str, float] = {"clear": 0.45, "ambiguous": 0.40, "absent": 0.15}
"""Shares of people's requests: clear, ambiguous, for an absent object."""
BALANCED_WANTS: dict[str, float] = {"clear": 0.44, "ambiguous": 0.36, "absent": 0.20}
"""The same for training, with more absent ones: many present objects resemble them."""
SORTS: dict[str, float] = {
    "plain": 0.34, "place": 0.2, "relation": 0.14, "order": 0.1, "size": 0.09, "negation": 0.06,
    "plural": 0.07,
}  # fmt: skip
"""Weights of the sorts of people's requests; "plain" gives kind, colour or both."""
# Order and size have to be worked out from several objects, and are learned last: half as often
# right as a kind and a colour when they are as frequent as in people's requests. Requests that few
# scenes allow, a clear one by its kind alone or an ambiguous one by size, are tried more often, so
# that neither form nor sort tells whether a request is clear.
BALANCED_SORTS: dict[str, dict[str, float]] = {
    "clear": {
        "plain": 0.43, "place": 0.13, "relation": 0.12, "order": 0.16, "size": 0.11,
        "negation": 0.05,
    },
    "ambiguous": {
        "plain": 0.3, "place": 0.16, "relation": 0.13, "size": 0.27, "negation": 0.07,
        "plural": 0.07,
    },
}  # fmt: skip
"""Weights of the sorts tried for training."""
CORRECTION_RATE = 0.03
"""Share of answers that name another object after all."""
_FORM_TRIES = 15  # objects that are tried in a form before another form is drawn


@dataclass(frozen=True)
class RequestForm:
    """The parts that a request gives, before its object is drawn.

    sort: one of SORTS. kind, color: whether it gives them.
    """

    sort: str
    kind: bool
    color: bool


def request_form(sort: str, kind: float, color: float) -> RequestForm:
    """A form of a sort; kind, color: two draws of 0..1 that decide whether it gives them."""
    return RequestForm(sort, kind >= 0.12, color < (0.5 if sort == "plain" else 0.2))


def random_form(rng: Rng, sorts: Mapping[str, float] = SORTS) -> RequestForm:
    """Draw a form; sorts: their weights."""
    kind = rng.uniform()
    sort = str(rng.choice(list(sorts), p=list(sorts.values())))
    return request_form(sort, kind, rng.uniform())


def random_reference(objects: Objects, rng: Rng, form: RequestForm | None = None) -> Reference:
    """Draw a reference to an object of the scene; it may mean several, or be unclear.

    form: the parts that it gives; None draws them as people use them.
    """
    o = objects[int(rng.integers(len(objects)))]
    form = form or random_form(rng)
    sort = form.sort
    kind = o.kind if form.kind else None
    color = o.color if form.color else None
    if sort == "plain":
        return Reference(kind, color)
    if sort == "place":
        return Reference(kind, color, place=pick(rng, PLACES))
    if sort == "relation":
        other = objects[int(rng.integers(len(objects)))]
        landmark = Landmark(other.kind, other.color if rng.uniform() < 0.4 else None)
        return Reference(
            kind, color, relation=(pick(rng, [*RELATION_DIRECTIONS, "next"]), landmark)
        )
    if sort == "order":
        side = str(rng.choice(["left", "right", "top", "bottom"], p=[0.4, 0.4, 0.1, 0.1]))
        return Reference(kind, color, order=(int(rng.integers(1, HIGHEST + 1)), side))
    if sort == "size":
        return Reference(kind, color, size=pick(rng, list(SIZES)))
    if sort == "negation":
        colors = sorted({p.color for p in objects} - {o.color})
        return Reference(kind, None, not_color=pick(rng, colors) if colors else None)
    same = sum(p.kind == o.kind and color in (None, p.color) for p in objects)
    return Reference(o.kind, color, plural=same if rng.uniform() < 0.4 else 0)


class RichGrammar:
    """The language of people and robot about the objects of a world. `rng` makes every choice.

    via: whether the states of clear requests say which objects are counted (`DialogueState.via`).
    nouns: kind -> the noun that the robot uses. phrasing: people's wording of references.
    """

    sorts: Mapping[str, float] = SORTS
    balanced_sorts: Mapping[str, Mapping[str, float]] = BALANCED_SORTS
    form_tries: int = _FORM_TRIES

    def __init__(self, spec: WorldSpec, *, via: bool = False) -> None:
        self.via = via
        self._kinds, self._colors = list(spec.kinds), list(spec.colors)
        self.nouns = {kind: names[0] for kind, names in spec.nouns.items()}
        self.phrasing: Phrasing = Phrasing(spec.nouns, misspelling_table(_content_words(spec)))

    def reference(
        self,
        objects: Objects,
        rng: Rng,
        want: str,
        tries: int = 60,
        *,
        balanced: bool = False,
        sorts: Mapping[str, float] | None = None,
    ) -> tuple[Reference, Candidates] | None:
        """Draw a reference and the objects it means; None when none was found.

        Args:
            objects: the objects of the scene.
            rng: source of every choice.
            want: "clear", "ambiguous" or "absent".
            tries: references drawn at most.
            balanced: draw clear and ambiguous ones in similar forms, as far as the scene allows.
                Else "the mug" mostly means one of several, since few scenes have one mug alone, and
                a model that learns from it asks about a single mug.
            sorts: weights of the sorts of reference to try, instead.
        """
        if balanced and sorts is None:
            sorts = self.balanced_sorts.get(want, self.sorts)
        if not objects:
            return None
        form = None
        for i in range(tries):
            if sorts and i % self.form_tries == 0:
                form = random_form(rng, sorts)
            if want == "absent":
                reference = self._absent_reference(objects, rng)
            else:
                reference = self.random_reference(objects, rng, form)
            candidates = self.referents(reference, objects)
            if candidates is None or reference == Reference():
                continue
            found = "absent" if not candidates else "clear" if len(candidates) == 1 else "ambiguous"
            if found == want:
                return reference, candidates
        return None

    def random_reference(self, objects: Objects, rng: Rng, form: RequestForm | None) -> Reference:
        """See the function `random_reference`."""
        return random_reference(objects, rng, form)

    def referents(self, reference: Reference, objects: Objects) -> Candidates | None:
        """The objects that a reference can mean; None where people would differ."""
        return referents(reference, objects)

    def _absent_reference(self, objects: Objects, rng: Rng) -> Reference:
        """Draw a kind, a colour or both of the world; the scene may lack it."""
        form = rng.uniform()
        if form < 0.55:
            kind = pick(rng, self._kinds)
            return Reference(kind, pick(rng, self._colors) if rng.uniform() < 0.3 else None)
        if form < 0.9:  # a kind that is there, in another colour
            kind = objects[int(rng.integers(len(objects)))].kind
            return Reference(kind, pick(rng, self._colors))
        return Reference(None, pick(rng, self._colors))

    def dialogue(
        self, objects: Objects, rng: Rng, want: str | None = None, *, balanced: bool = True
    ) -> list[DialogueState]:
        """Draw a dialogue; [] when no request of the wanted kind was found.

        Args:
            objects: the objects of the scene.
            rng: source of every choice.
            want: "clear", "ambiguous" or "absent" (the first request); None draws one of them.
            balanced: draw clear and ambiguous requests in similar forms, for training. False: in
                the proportions in which people use them.
        """
        if want is None:
            wants = BALANCED_WANTS if balanced else WANTS
            want = str(rng.choice(list(wants), p=list(wants.values())))
        return self._dialogue(self.reference(objects, rng, want, balanced=balanced), objects, rng)

    def dialogue_of_sort(self, objects: Objects, rng: Rng, sort: str) -> list[DialogueState]:
        """Draw a dialogue whose request is of a sort ("order", "size"); [] when none was found.

        As many are ambiguous as with `dialogue`.
        """
        wants = [want for want in ("clear", "ambiguous") if sort in self.balanced_sorts[want]]
        shares = np.array([BALANCED_WANTS[want] for want in wants])
        want = str(rng.choice(wants, p=shares / shares.sum()))
        return self._dialogue(self.reference(objects, rng, want, sorts={sort: 1.0}), objects, rng)

    def _dialogue(
        self, found: tuple[Reference, Candidates] | None, objects: Objects, rng: Rng
    ) -> list[DialogueState]:
        if found is None:
            return []
        reference, candidates = found
        text = self.phrasing.request(reference, rng)
        missing = self.phrasing.missing(reference) if not candidates else ""
        states = self.dialogue_from(text, candidates, objects, rng, missing)
        if self.via and len(candidates) == 1:
            states[0] = replace(states[0], via=counted_before(reference, objects))
        return states

    def noun_phrase(self, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
        """Draw a noun phrase and the objects it can mean; None where people would differ."""
        want = "clear" if rng.uniform() < 0.5 else "ambiguous"
        found = self.reference(objects, rng, want, tries=30, balanced=True)
        if found is None:
            return None
        return self.phrasing.typed(self.phrasing.phrase(found[0], rng), rng), found[1]

    def dialogue_from(
        self, text: str, candidates: Candidates, objects: Objects, rng: Rng, missing: str = ""
    ) -> list[DialogueState]:
        """Draw the dialogue that begins with the request `text`, which means `candidates`.

        It ends when one object is left, after MAX_ASKED questions, or when the person has nothing
        more to say. missing: the noun phrase that the robot does not see, when there are no
        candidates.
        """
        target = int(rng.choice(candidates if candidates else range(len(objects))))
        context, states = text, list[DialogueState]()
        for asked in range(MAX_ASKED + 1):
            if len(candidates) == 1:
                return [*states, DialogueState(context, candidates, None)]
            if asked == MAX_ASKED:
                return states
            question = self._question(candidates, objects, asked, missing)
            states.append(DialogueState(context, candidates, question.text, question.options))
            said = self._answer(question, target, candidates, objects, rng)
            if said is None:
                return states
            context = f"{context} assistant: {question.text} user: {said[0]}"
            candidates = said[1]
            if target not in candidates:  # the person left the choice open, or changed their mind
                target = int(rng.choice(candidates))
        return states

    def _question(
        self, candidates: Candidates, objects: Objects, asked: int, missing: str
    ) -> ClarifyingQuestion:
        """Ask about the candidates; asked: number of questions before."""
        return ask(candidates, objects, self.nouns, asked=asked) if candidates else nothing(missing)

    def _answer(
        self,
        question: ClarifyingQuestion,
        target: int,
        candidates: Candidates,
        objects: Objects,
        rng: Rng,
    ) -> tuple[str, Candidates] | None:
        """Answer with the target in mind: the words, and the candidates that they leave."""
        if question.axis == "nothing":
            return self.restate(target, objects, rng)
        if rng.uniform() < CORRECTION_RATE:
            other = self.reference(objects, rng, "clear", tries=10)
            if other is not None and other[1][0] not in candidates:
                text = pick(rng, words.INSTEAD).format(self.phrasing.phrase(other[0], rng))
                return self.phrasing.typed(text, rng), other[1]
        said = Respondent(target, candidates, objects, self.phrasing, rng).answer(question)
        return None if said is None else (self.phrasing.typed(said[0], rng), said[1])

    def restate(self, target: int, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
        """Name the target after an object that is not there; None when nothing names it alone."""
        found = unique_references(target, objects)
        if not found:
            return None
        template = pick(rng, words.RENAMED)
        reference = found[0] if rng.uniform() < 0.6 else found[int(rng.integers(len(found)))]
        text = template.format(self.phrasing.phrase(reference, rng))
        return self.phrasing.typed(text, rng), (target,)

    def words(self) -> list[str]:
        """Texts that together hold every word of the grammar, misspellings too."""
        tables = (words.SIZES, words.RELATIONS, words.PLACES, words.ORDER_SIDES,
                  words.PLACE_BEFORE_NOUN, words.PLACE_AFTER_NOUN)  # fmt: skip
        texts = [form for table in tables for forms in table.values() for form in forms]
        for forms in (words.ANY_NOUNS, words.ANY_PLURALS, words.REQUESTS, words.ORDINALS,
                      words.YES, words.NO, words.OTHER, words.UNSURE, words.INSTEAD, words.RENAMED,
                      words.BY_COLOR, words.BY_NOT, words.BY_SIZE, words.BY_KIND, words.BY_PLACE,
                      words.BY_ORDER, words.BY_PHRASE):  # fmt: skip
            texts += forms
        texts += [words.NOTHING, words.WHICH_COLOR, words.WHERE, words.OTHERS]
        texts += words.NUMBERS.values()
        texts += [wrong for table in self.phrasing.misspellings.values() for wrong in table]
        nouns = [noun for names in self.phrasing.nouns.values() for noun in names]
        texts += [*nouns, *map(plural, nouns), *self._kinds, *self._colors]
        return [re.sub(r"\{\w*\}", " ", text) for text in texts]


def _content_words(spec: WorldSpec) -> set[str]:
    """The words that can be misspelt: kinds, colours, sizes, relations, places and numbers."""
    texts = [*spec.colors]
    for nouns in spec.nouns.values():
        texts += [*nouns, *map(plural, nouns)]
    for table in (words.SIZES, words.RELATIONS, words.PLACES, words.ORDER_SIDES):
        texts += [form.replace("{}", "") for forms in table.values() for form in forms]
    texts += words.ORDINALS
    found = {w for text in texts for w in re.findall(r"[a-z]+", text)}
    return found - {"from", "near", "close", "front", "back", "before"}
