"""Whole dialogues about a table: requests of every sort, questions, answers, the truth throughout.

`State`s are those of `clue_ros.lab.language.blocks`, so that training does not know the language it
reads. A request that names nothing there gets "I don't see a banana", and often another name after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clue_ros.lab.language.answers import UNSURE_RATE, answer, naming
from clue_ros.lab.language.blocks import AXES, State, pick
from clue_ros.lab.language.phrases import Speech
from clue_ros.lab.language.questions import MAX_QUESTIONS, Question, ask, nothing
from clue_ros.lab.language.references import HIGHEST, Landmark, Reference, gone_through, meant
from clue_ros.lab.language.words import DIRECTIONS, INSTEAD, RENAMED, SIZES
from clue_ros.lab.simulator.scene import SceneObject

Objects = Sequence[SceneObject]
WANTS: dict[str, float] = {"clear": 0.45, "ambiguous": 0.40, "absent": 0.15}
# How often each is taught: what is not there has many things that are nearly it.
TAUGHT_WANTS: dict[str, float] = {"clear": 0.44, "ambiguous": 0.36, "absent": 0.20}
INSTEAD_RATE = 0.03  # of answers that name another thing after all
FORM_TRIES = 15  # things that are tried in a form before another one
# How often a request is of each sort; "plain" says kind, colour or both.
SORTS: dict[str, float] = {
    "plain": 0.34, "place": 0.2, "relation": 0.14, "order": 0.1, "size": 0.09, "negation": 0.06,
    "plural": 0.07,
}  # fmt: skip
# How often each is tried for what is taught. Order and size have to be worked out from several
# objects, and are learned last (half as often right as a kind and a colour when taught as often as
# they are said). What a table seldom allows, a clear request by its kind alone or an ambiguous one
# by size, is tried more often, so that neither form nor sort tells which of the two it is.
TAUGHT_SORTS: dict[str, dict[str, float]] = {
    "clear": {
        "plain": 0.43, "place": 0.13, "relation": 0.12, "order": 0.16, "size": 0.11,
        "negation": 0.05,
    },
    "ambiguous": {
        "plain": 0.3, "place": 0.16, "relation": 0.13, "size": 0.27, "negation": 0.07,
        "plural": 0.07,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """What a request says of a thing, before it is known of which.

    sort: one of SORTS. kind, color: whether it says them.
    """

    sort: str
    kind: bool
    color: bool


def random_form(rng: np.random.Generator, sorts: Mapping[str, float] = SORTS) -> Form:
    """A form; sorts: how often each, by default as people use them."""
    kind = rng.uniform()
    sort = str(rng.choice(list(sorts), p=list(sorts.values())))
    return form_of(sort, kind, rng.uniform())


def form_of(sort: str, kind: float, color: float) -> Form:
    """A form of a sort; kind, color: two draws of 0..1 that say whether it says them."""
    return Form(sort, kind >= 0.12, color < (0.5 if sort == "plain" else 0.2))


def random_reference(
    objects: Objects, rng: np.random.Generator, form: Form | None = None
) -> Reference:
    """A reference to something on the table, of any form; it may mean several, or be unclear."""
    o = objects[int(rng.integers(len(objects)))]
    form = form or random_form(rng)
    sort = form.sort
    kind = o.kind if form.kind else None
    color = o.color if form.color else None
    if sort == "plain":
        return Reference(kind, color)
    if sort == "place":
        places = [*AXES, "middle"]
        return Reference(kind, color, place=places[int(rng.integers(len(places)))])
    if sort == "relation":
        other = objects[int(rng.integers(len(objects)))]
        landmark = Landmark(other.kind, other.color if rng.uniform() < 0.4 else None)
        relation = pick(rng, [*DIRECTIONS, "next"])
        return Reference(kind, color, relation=(relation, landmark))
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


def absent_reference(
    objects: Objects, kinds: Sequence[str], colors: Sequence[str], rng: np.random.Generator
) -> Reference:
    """A kind, colour or both, of the world, that may not be on the table."""
    form = rng.uniform()
    if form < 0.55:
        return Reference(pick(rng, kinds), pick(rng, colors) if rng.uniform() < 0.3 else None)
    if form < 0.9 and objects:  # a kind that is there, in another colour
        return Reference(objects[int(rng.integers(len(objects)))].kind, pick(rng, colors))
    return Reference(None, pick(rng, colors))


class Episodes:
    """Draws dialogues in one world's words.

    kinds, colors: of the world, for what is not there. via: whether the state of a clear request
    that counts says what is counted on the way (`State.via`).
    """

    def __init__(
        self, speech: Speech, kinds: Sequence[str], colors: Sequence[str], *, via: bool = False
    ) -> None:
        self.speech = speech
        self._via = via
        self._kinds, self._colors = list(kinds), list(colors)
        self.nouns = {kind: names[0] for kind, names in speech.nouns.items()}

    def reference(
        self,
        objects: Objects,
        rng: np.random.Generator,
        want: str,
        tries: int = 60,
        *,
        even: bool = False,
        sorts: Mapping[str, float] | None = None,
    ) -> tuple[Reference, tuple[int, ...]] | None:
        """A reference that is "clear", "ambiguous" or "absent", and what it means; None of none.

        even: clear and ambiguous ones in like forms, as far as the table allows. Else few tables
        have one mug alone, and who says "the mug" mostly means one of several: a model that
        learns from it asks which, of a single mug. sorts: of what is there how often each, instead.
        """
        if even and sorts is None:
            sorts = TAUGHT_SORTS.get(want, SORTS)
        if not objects:
            return None
        form = None
        for i in range(tries):
            if sorts and i % FORM_TRIES == 0:
                form = random_form(rng, sorts)
            if want == "absent":
                reference = absent_reference(objects, self._kinds, self._colors, rng)
            else:
                reference = random_reference(objects, rng, form)
            candidates = meant(reference, objects)
            if candidates is None or reference == Reference():
                continue
            found = "absent" if not candidates else "clear" if len(candidates) == 1 else "ambiguous"
            if found == want:
                return reference, candidates
        return None

    def states(
        self,
        objects: Objects,
        rng: np.random.Generator,
        want: str | None = None,
        *,
        even: bool = True,
    ) -> list[State]:
        """A random dialogue; [] when none of the kind was found.

        even: as it is taught, see `reference`; of each want its share in TAUGHT_WANTS.
        """
        if want is None:
            wants = TAUGHT_WANTS if even else WANTS
            want = str(rng.choice(list(wants), p=list(wants.values())))
        return self._dialogue(self.reference(objects, rng, want, even=even), objects, rng)

    def of_sort(self, objects: Objects, rng: np.random.Generator, sort: str) -> list[State]:
        """A random dialogue that begins with a request of a sort; [] when none was found.

        sort: one of SORTS, such as "order". As many of them are ambiguous as with `states`.
        """
        wants = [want for want in ("clear", "ambiguous") if sort in TAUGHT_SORTS[want]]
        shares = np.array([TAUGHT_WANTS[want] for want in wants])
        want = str(rng.choice(wants, p=shares / shares.sum()))
        return self._dialogue(self.reference(objects, rng, want, sorts={sort: 1.0}), objects, rng)

    def _dialogue(
        self,
        found: tuple[Reference, tuple[int, ...]] | None,
        objects: Objects,
        rng: np.random.Generator,
    ) -> list[State]:
        """What begins with a request for it; [] of none."""
        if found is None:
            return []
        reference, candidates = found
        text = self.speech.request(reference, rng)
        missing = self.speech.missing(reference) if not candidates else ""
        states = self.states_of(text, candidates, objects, rng, missing=missing)
        if self._via and len(candidates) == 1:
            states[0] = replace(states[0], via=gone_through(reference, objects))
        return states

    def states_of(
        self,
        text: str,
        candidates: tuple[int, ...],
        objects: Objects,
        rng: np.random.Generator,
        missing: str = "",
    ) -> list[State]:
        """The cumulative reveal of a dialogue that begins with `text`.

        It ends in a box, after MAX_QUESTIONS, or where nothing more is said. missing: what is to
        be said not to be there when it names nothing.
        """
        target = int(rng.choice(candidates if candidates else range(len(objects))))
        context, states = text, list[State]()
        for asked in range(MAX_QUESTIONS + 1):
            if len(candidates) == 1:
                return [*states, State(context, candidates, None)]
            if asked == MAX_QUESTIONS:
                return states
            question = (
                ask(candidates, objects, self.nouns, asked=asked)
                if candidates
                else nothing(missing)
            )
            states.append(State(context, candidates, question.text, question.options))
            said = self._said(question, target, candidates, objects, rng)
            if said is None:
                return states
            context = f"{context} assistant: {question.text} user: {said[0]}"
            candidates = said[1]
            if target not in candidates:  # left to the robot, or another thing after all
                target = int(rng.choice(candidates))
        return states

    def _said(
        self,
        question: Question,
        target: int,
        candidates: tuple[int, ...],
        objects: Objects,
        rng: np.random.Generator,
    ) -> tuple[str, tuple[int, ...]] | None:
        if question.axis == "nothing":
            return self.renamed(target, objects, rng)
        if rng.uniform() < INSTEAD_RATE:
            other = self.reference(objects, rng, "clear", tries=10)
            if other is not None and other[1][0] not in candidates:
                text = pick(rng, INSTEAD).format(self.speech.phrase(other[0], rng))
                return self.speech.typed(text, rng), other[1]
        said = answer(question, target, candidates, objects, self.speech, rng, unsure=UNSURE_RATE)
        return None if said is None else (self.speech.typed(said[0], rng), said[1])

    def renamed(
        self, target: int, objects: Objects, rng: np.random.Generator
    ) -> tuple[str, tuple[int, ...]] | None:
        """A name for something that is there, after one that was not; None if none is plain."""
        found = naming(target, objects)
        if not found:
            return None
        text = pick(rng, RENAMED).format(self.speech.phrase(pick_first(found, rng), rng))
        return self.speech.typed(text, rng), (target,)


def pick_first(found: Sequence[Reference], rng: np.random.Generator) -> Reference:
    """Mostly the shortest one."""
    return found[0] if rng.uniform() < 0.6 else found[int(rng.integers(len(found)))]
