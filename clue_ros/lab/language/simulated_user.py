"""A simulated user with one object in mind, who answers the robot's questions truthfully."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from clue_ros.dialogue.types import Box
from clue_ros.lab.language.answers import Respondent
from clue_ros.lab.language.questions import ClarifyingQuestion, partitions
from clue_ros.lab.language.references import Candidates, Objects
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.words import PLACES, SIZES
from clue_ros.lab.metrics import MIN_IOU
from clue_ros.lab.simulator.object_catalogue import COLORS as SCANNED_COLORS
from clue_ros.lab.simulator.worlds import HOUSEHOLD_COLORS

_NOT_SEEN = re.compile(r"\b(do not|don ?' ?t|cannot|can ?' ?t) see\b")
_AXES = {  # property -> words of a question that asks for it
    "color": {"color", "colour", *HOUSEHOLD_COLORS, *SCANNED_COLORS},
    "size": {form for forms in SIZES.values() for form in forms},
    "place": {"where"} | {word for forms in PLACES.values() for f in forms for word in f.split()},
}


def question_axis(question: str) -> str:
    """The property that a question asks for: "color", "size", "place" or "kind".

    "nothing" when the robot says that it does not see the object.

    >>> question_axis("the red one or the blue one ?"), question_axis("where is it ?")
    ('color', 'place')
    """
    return question_axes(question)[0]


def question_axes(question: str) -> tuple[str, ...]:
    """Every property that a question asks for, of those of `question_axis`.

    >>> question_axes("the big red one or the small blue one ?")
    ('color', 'size')
    """
    said = question.lower()
    if _NOT_SEEN.search(said):
        return ("nothing",)
    words = set(re.findall(r"[a-z]+", said))
    return tuple(axis for axis, known in _AXES.items() if known & words) or ("kind",)


class RichUser:
    """Answers in the words of the rich grammar, then repeats the answer that settled the target.

    candidates: the objects that the answers so far leave. questions: number of questions asked.
    useless: number of questions that separated no candidates, or came when one was left; "do you
    mean this one?" is not among them.
    """

    def __init__(
        self, grammar: RichGrammar, objects: Objects, target: int, candidates: Candidates, seed: int
    ) -> None:
        self._grammar, self.objects, self.target = grammar, objects, target
        self.candidates = candidates
        self._rng = np.random.default_rng(seed)
        o = objects[target]
        self._last = f"the {o.color} {grammar.nouns.get(o.kind, o.kind)}"
        self.questions = 0
        self.useless = 0

    def __call__(self, text: str) -> str:
        """Answer a question in any words."""
        self.questions += 1
        if len(self.candidates) == 1:
            self.useless += 1
            return self._last
        question = read_question(text, self.candidates, self.objects, self._grammar)
        if question.axis == "nothing":
            said = self._grammar.restate(self.target, self.objects, self._rng)
            self.useless += 1
        else:
            respondent = Respondent(
                self.target, self.candidates, self.objects, self._grammar.phrasing, self._rng
            )
            said = respondent.answer(question, unsure=0.0)
            self.useless += not (question.groups or question.axis in ("color", "which"))
        if said is not None:
            self._last, self.candidates = said
        return self._last

    def confirms(self, shown: Box, width: float, height: float) -> str:
        """Answer "do you mean this one?" about a box in pixels of a (height, width) image.

        Yes where the box has an IoU of MIN_IOU with the target's, or its centre in it.
        """
        boxes = [Box(*o.box).in_pixels(width, height) for o in self.objects]
        truth = boxes[self.target]
        if shown.iou(truth) >= MIN_IOU or truth.contains(shown.center):
            self.questions += 1
            self.candidates = (self.target,)
            return "yes"
        overlaps = [box.iou(shown) for box in boxes]
        nearest = int(np.argmax(overlaps))
        return self.declines(nearest if overlaps[nearest] >= MIN_IOU else None)

    def declines(self, shown: int | None) -> str:
        """Answer "do you mean this one?" about another object than the target, None: about none."""
        self.questions += 1
        proposed = (shown,) if shown in self.candidates else ()
        question = ClarifyingQuestion("this one ?", "yes", {"this": proposed})
        respondent = Respondent(
            self.target, self.candidates, self.objects, self._grammar.phrasing, self._rng
        )
        said = respondent.answer(question, unsure=0.0)
        if said is None:  # nothing tells the target apart
            said = "no", tuple(i for i in self.candidates if i not in proposed)
        text, self.candidates = said
        return text


def read_question(
    text: str, candidates: Candidates, objects: Objects, grammar: RichGrammar
) -> ClarifyingQuestion:
    """Find the options of a question in its words.

    One option without "or" is a proposal; no option at all is an open question.
    """
    said = text.lower()
    words = re.findall(r"[a-z]+", said)
    if _NOT_SEEN.search(said):
        return ClarifyingQuestion(text, "nothing", {})
    forms_of = {
        "color": {w: w for w in words},
        "size": {form: size for size, forms in SIZES.items() for form in forms},
        "kind": {w: w for w in words},
        "material": {w: w for w in words},
        "place": {form: place for place, forms in PLACES.items() for form in forms},
    }
    for axis, groups in partitions(candidates, objects, grammar.nouns).items():
        heard = {
            option: groups[option]
            for form, option in forms_of[axis].items()
            if option in groups and _mentions(words, form)
        }
        if len(heard) > 1:
            return ClarifyingQuestion(text, axis, heard)
        if heard and "or" not in words:
            return ClarifyingQuestion(text, "yes", heard)
    if {"color", "colour"} & set(words):
        return ClarifyingQuestion(text, "color", {})
    return ClarifyingQuestion(text, "which" if {"where", "which"} & set(words) else "unclear", {})


def _mentions(words: Sequence[str], form: str) -> bool:
    wanted = form.split()
    return any(list(words[i : i + len(wanted)]) == wanted for i in range(len(words)))
