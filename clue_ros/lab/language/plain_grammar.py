"""The plain grammar of the worlds blocks and novel: kind, colour and place.

The base of the model `tabletop` was trained on it: a change that draws another sentence for the
same seed makes that model irreproducible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clue_ros.dialogue.inflection import indefinite
from clue_ros.lab.language.dialogues import MAX_ASKED, DialogueState, Grammar
from clue_ros.lab.language.questions import (
    MAX_OPTIONS,
    ClarifyingQuestion,
    group_by,
    group_by_place,
    list_options,
)
from clue_ros.lab.language.references import (
    PLACES,
    Candidates,
    Objects,
    Reference,
    place_answers,
    referents,
)
from clue_ros.lab.language.words import (
    ANY_NOUNS,
    BY_KIND,
    BY_PLACE,
    PLACE_AFTER_NOUN,
    PLACE_BEFORE_NOUN,
    PLAIN_BY_COLOR,
    WHERE,
    Rng,
    pick,
)
from clue_ros.lab.simulator.worlds import BLOCKS, DEFAULT_WORLD, WORLDS

_SPECS = [spec for spec in WORLDS.values() if spec.language == "plain"]
NOUNS: dict[str, tuple[str, ...]] = {
    kind: nouns for spec in _SPECS for kind, nouns in spec.nouns.items()
}
COLORS: tuple[str, ...] = tuple(dict.fromkeys(color for spec in _SPECS for color in spec.colors))
PLAIN_REQUESTS: tuple[str, ...] = (
    "pick up {}", "pick up {}", "pick up {}", "pick {} up", "grab {}", "take {}", "get {}",
    "get me {}", "give me {}", "hand me {}", "pass me {}", "bring me {}", "fetch {}", "lift {}",
    "i want {}", "i need {}", "i would like {}", "please pick up {}", "please grab {}",
    "can you pick up {} ?", "could you grab {} ?", "could you give me {} please", "can i have {} ?",
    "pick up {} please", "now pick up {}", "find {}", "where is {} ?", "show me {}", "point to {}",
    "select {}", "move to {}", "{}",
)  # fmt: skip
OPENINGS: tuple[str, ...] = ("do you mean", "which one ,")
PLAIN_NOTHING = "i do not see {} . which one do you mean ?"
PLAIN_WHICH_COLOR = "which color is it ?"
TEMPLATES: tuple[str, ...] = (
    *PLAIN_REQUESTS, *OPENINGS, *PLAIN_BY_COLOR, *BY_PLACE, *BY_KIND, PLAIN_NOTHING,
    PLAIN_WHICH_COLOR, WHERE, "or", "which color is",
)  # fmt: skip
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "upper left": ("upper left", "upperleft", "top left", "left upper", "upperleft upper left"),
    "upper right": ("upper right", "upperright", "top right", "right upper",
                    "upperright upper right"),
    "lower left": ("lower left", "lowerleft", "bottom left", "left lower", "lowerleft lower left"),
    "lower right": ("lower right", "lowerright", "bottom right", "right lower",
                    "lowerright lower right"),
    "upper": ("upper", "top"), "lower": ("lower", "bottom"),
    "left": ("left", "left", "leftmost"), "right": ("right", "right", "rightmost"),
    "middle": ("middle", "center"),
}  # fmt: skip
_TRIES = 40


class PlainGrammar(Grammar):
    """The grammar of the worlds blocks and novel."""

    def dialogue(
        self, objects: Objects, rng: Rng, want: str | None = None, *, balanced: bool = True
    ) -> list[DialogueState]:
        """See `Grammar.dialogue`; requests are always in similar forms."""
        if want is None:
            want = str(rng.choice(["clear", "ambiguous", "absent"], p=[0.45, 0.45, 0.10]))
        for _ in range(_TRIES):
            absent = want == "absent"
            reference = absent_reference(rng) if absent else plain_reference(objects, rng)
            candidates = referents(reference, objects)
            if candidates is None:
                continue
            found = "absent" if not candidates else "clear" if len(candidates) == 1 else "ambiguous"
            if found == want:
                spoken = np.random.default_rng(int(rng.integers(2**63)))
                missing = indefinite(plain_phrase(replace(reference, place=None), spoken))
                request = plain_request(reference, rng)
                return self.dialogue_from(request, candidates, objects, rng, missing)
        return []

    def dialogue_from(
        self, text: str, candidates: Candidates, objects: Objects, rng: Rng, missing: str = ""
    ) -> list[DialogueState]:
        """See `Grammar.dialogue_from`; the state after the third answer is left out."""
        return super().dialogue_from(text, candidates, objects, rng, missing)[:MAX_ASKED]

    def noun_phrase(self, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
        """See `Grammar.noun_phrase`."""
        reference = plain_reference(objects, rng)
        found = referents(reference, objects)
        return (plain_phrase(reference, rng), found) if found else None

    def _question(
        self, candidates: Candidates, objects: Objects, rng: Rng, asked: int, missing: str
    ) -> ClarifyingQuestion:
        opening = pick(rng, OPENINGS)
        if not candidates:
            return ClarifyingQuestion(PLAIN_NOTHING.format(missing), "nothing", {})
        return plain_question(candidates, objects, opening)

    def _answer(
        self,
        question: ClarifyingQuestion,
        target: int,
        candidates: Candidates,
        objects: Objects,
        rng: Rng,
    ) -> tuple[str, Candidates] | None:
        return plain_answer(question, target, candidates, objects, rng)


def plain_reference(objects: Objects, rng: Rng) -> Reference:
    """Draw a reference to an object of the scene; it may mean several."""
    o = objects[int(rng.integers(len(objects)))]
    kind = o.kind if rng.uniform() < 0.8 else None
    color = o.color if rng.uniform() < 0.45 else None
    place = PLACES[int(rng.integers(len(PLACES)))] if rng.uniform() < 0.55 else None
    return Reference(kind, color, place=place)


def absent_reference(rng: Rng) -> Reference:
    """Draw a colour, mostly with a kind, of the default world; the scene may lack it."""
    kind = str(rng.choice(BLOCKS.kinds)) if rng.uniform() < 0.8 else None
    return Reference(kind, str(rng.choice(list(BLOCKS.colors))))


def _noun(kind: str | None, rng: Rng) -> str:
    return pick(rng, NOUNS[kind] if kind is not None else ANY_NOUNS)


def plain_phrase(reference: Reference, rng: Rng) -> str:
    """Put a reference by kind, colour and place into words: a noun phrase with "the"."""
    noun = _noun(reference.kind, rng)
    color, place = reference.color, reference.place
    before = after = ""
    if color is not None and rng.uniform() < 0.2:
        after = f" which color is {color}"
    elif color is not None:
        before = f"{color} "
    if place is None:
        return f"the {before}{noun}{after}"
    if rng.uniform() < 0.5:
        word = pick(rng, PLACE_BEFORE_NOUN[place])
        order = f"{before}{word} " if rng.uniform() < 0.1 else f"{word} {before}"
        return f"the {order}{noun}{after}"
    return f"the {before}{noun} {pick(rng, PLACE_AFTER_NOUN[place])}{after}"


def plain_request(reference: Reference, rng: Rng) -> str:
    """A whole request for the object of a reference."""
    return pick(rng, PLAIN_REQUESTS).format(plain_phrase(reference, rng))


def plain_question(
    candidates: Sequence[int], objects: Objects, opening: str = OPENINGS[0]
) -> ClarifyingQuestion:
    """Ask for the property that distinguishes the candidates: colour, else kind, else place."""
    order = sorted(candidates, key=lambda i: objects[i].center[0])
    colors = group_by({i: objects[i].color for i in order})
    kinds = group_by({i: objects[i].kind for i in order})
    for axis, groups in (("color", colors), ("kind", kinds)):
        tells_all = len(groups) == len(order) or len(order) > MAX_OPTIONS
        if 2 <= len(groups) <= MAX_OPTIONS and tells_all:
            return list_options(axis, groups, opening)
        if axis == "color" and len(groups) > MAX_OPTIONS:
            return ClarifyingQuestion(PLAIN_WHICH_COLOR, "color", {})
    if len(order) <= MAX_OPTIONS:
        return list_options("place", group_by_place(order, objects), opening)
    return ClarifyingQuestion(WHERE, "which", {})


def plain_answer(
    question: ClarifyingQuestion, target: int, candidates: Sequence[int], objects: Objects, rng: Rng
) -> tuple[str, Candidates] | None:
    """Answer with the target in mind: the words, and the candidates that they leave.

    Mostly by the property asked for, sometimes by another one that tells as much. None when none
    does.
    """
    o = objects[target]
    noun = _noun(o.kind, rng)
    if question.axis == "nothing":
        return _restated(target, objects, rng)
    axis = question.axis
    if rng.uniform() < 0.2:
        axis = str(rng.choice(["color", "place", "kind"]))
    by_color = tuple(i for i in candidates if objects[i].color == o.color)
    if axis == "color" and len(by_color) < len(candidates):
        return pick(rng, PLAIN_BY_COLOR).format(c=o.color, n=noun), by_color
    by_kind = tuple(i for i in candidates if objects[i].kind == o.kind)
    if axis == "kind" and len(by_kind) < len(candidates):
        return pick(rng, BY_KIND).format(n=noun), by_kind
    places = place_answers(target, candidates, objects)
    if places:
        asked = [p for p in places if p in question.text.split()]
        place = asked[0] if asked and rng.uniform() < 0.8 else pick(rng, places)
        spoken = pick(rng, _SPELLINGS[place])
        return pick(rng, BY_PLACE).format(p=spoken, n=noun), (target,)
    if len(by_color) < len(candidates):
        return pick(rng, PLAIN_BY_COLOR).format(c=o.color, n=noun), by_color
    return None


def _restated(target: int, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
    """Name the target after an object that the robot does not see; None if nothing names it."""
    o = objects[target]
    for reference in (Reference(None, o.color), Reference(o.kind, o.color)):
        if referents(reference, objects) == (target,):
            return plain_phrase(reference, rng), (target,)
    return None


_ALL_NOUNS = {noun for nouns in NOUNS.values() for noun in nouns}
_TRAINED = WORLDS[DEFAULT_WORLD]
_UNSEEN = set(NOUNS) | _ALL_NOUNS | set(COLORS)
_UNSEEN -= {noun for nouns in _TRAINED.nouns.values() for noun in nouns} | set(_TRAINED.colors)
_PLACE_WORDS = {
    word
    for table in (PLACE_BEFORE_NOUN, PLACE_AFTER_NOUN)
    for forms in table.values()
    for form in forms
    for word in form.split()
} - {"at", "in", "of", "on", "part", "the", "to"}


def unseen_words(text: str) -> tuple[str, ...]:
    """The nouns and colours of a sentence that the default world, and so training, never names."""
    words = re.findall(r"[a-z]+", text.lower())
    return tuple(dict.fromkeys(w for w in words if w in _UNSEEN))


def named_by(text: str) -> tuple[str, ...]:
    """Which of "kind", "color" and "place" a sentence names."""
    said = re.sub(r"\bcan (you|i)\b", "", text.lower())  # "can" as a verb is no kind
    words = set(re.findall(r"[a-z]+", said))
    tables = {"kind": _ALL_NOUNS, "color": set(COLORS), "place": _PLACE_WORDS}
    return tuple(name for name, table in tables.items() if words & table)
