"""The oracle: someone with one object in mind, who is asked in any words and answers the truth."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from clue_ros.lab.language.answers import answer, told_apart
from clue_ros.lab.language.dialogues import Episodes
from clue_ros.lab.language.questions import Question, partitions
from clue_ros.lab.language.words import PLACES, SIZES
from clue_ros.lab.simulator.scene import SceneObject

_UNSEEN = re.compile(r"\b(do not|don ?' ?t|cannot|can ?' ?t) see\b")


class Person:
    """Answers questions about a target until it is settled, and then says the last thing again.

    questions: how many it was asked. useless: those that told no candidates apart, or came when
    there was nothing left to tell apart.
    """

    def __init__(
        self,
        episodes: Episodes,
        objects: Sequence[SceneObject],
        target: int,
        candidates: tuple[int, ...],
        seed: int,
    ) -> None:
        self._episodes, self._objects, self._target = episodes, objects, target
        self.candidates = candidates
        self._rng = np.random.default_rng(seed)
        o = objects[target]
        self._last = f"the {o.color} {episodes.nouns.get(o.kind, o.kind)}"
        self.questions = 0
        self.useless = 0

    def __call__(self, text: str) -> str:
        """Answer a question in anybody's words."""
        self.questions += 1
        before = self.candidates
        if len(before) == 1:
            self.useless += 1
            return self._last
        question = understood(text, before, self._objects, self._episodes.nouns)
        if question.axis == "nothing":
            said = self._episodes.renamed(self._target, self._objects, self._rng)
            self.useless += 1
        else:
            speech = self._episodes.speech
            said = answer(
                question, self._target, before, self._objects, speech, self._rng, unsure=0.0
            )
            self.useless += not (question.groups or question.axis in ("color", "which"))
        if said is not None:
            self._last, self.candidates = said
        return self._last

    def told(self) -> list[str]:
        """Everything the person could say to tell the target apart."""
        speech, rng = self._episodes.speech, self._rng
        found = told_apart(self._target, self.candidates, self._objects, speech, rng)
        return [text for text, _ in found]


def understood(
    text: str,
    candidates: tuple[int, ...],
    objects: Sequence[SceneObject],
    nouns: dict[str, str],
) -> Question:
    """A question's options, read from its words.

    One option that is no choice is a proposal; none of the candidates' words is an open question.
    """
    said = text.lower()
    words = re.findall(r"[a-z]+", said)
    if _UNSEEN.search(said):
        return Question(text, "nothing")
    named = {
        "color": {w: w for w in words},
        "size": {form: size for size, forms in SIZES.items() for form in forms},
        "kind": {w: w for w in words},
        "place": {form: place for place, forms in PLACES.items() for form in forms},
    }
    for axis, groups in partitions(candidates, objects, nouns).items():
        forms = named[axis]
        heard = {
            forms[form]: groups[forms[form]]
            for form in forms
            if forms[form] in groups and _mentions(words, form)
        }
        if len(heard) > 1:
            return Question(text, axis, tuple(heard), tuple(heard.values()))
        if heard and "or" not in words:
            return Question(text, "yes", tuple(heard), tuple(heard.values()))
    if {"color", "colour"} & set(words):
        return Question(text, "color")
    return Question(text, "which" if "where" in words or "which" in words else "unclear")


def _mentions(words: Sequence[str], form: str) -> bool:
    wanted = form.split()
    return any(list(words[i : i + len(wanted)]) == wanted for i in range(len(words)))
