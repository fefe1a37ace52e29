"""A dialogue as the states that training reveals one after another; the base class of grammars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from clue_ros.lab.language.questions import ClarifyingQuestion
from clue_ros.lab.language.references import Candidates, Objects
from clue_ros.lab.language.words import Rng

MAX_ASKED = 3
"""Questions in a generated dialogue at most."""


@dataclass(frozen=True)
class DialogueState:
    """A dialogue before the robot's next turn, with the turn that the robot should take.

    context: the dialogue so far, C(k). candidates: indices of the objects that the person may mean:
    one when clear, several when ambiguous, none when no object fits. question: what the robot asks;
    None when it should point. options: the object behind each option of the question, as (index of
    the option's word in the question, object). via: the objects counted before the one meant, in
    order (`references.counted_before`), where the grammar gives them.
    """

    context: str
    candidates: Candidates
    question: str | None
    options: tuple[tuple[int, int], ...] = ()
    via: tuple[int, ...] = ()

    @property
    def ambiguous(self) -> bool:
        """Whether a question is needed: the detector's label."""
        return len(self.candidates) != 1


class Grammar(ABC):
    """How people and the robot talk about the objects of a world. Every choice is drawn from `rng`.

    via: whether the states of clear requests say which objects are counted (`DialogueState.via`).
    """

    via: bool = False

    @abstractmethod
    def dialogue(
        self, objects: Objects, rng: Rng, want: str | None = None, *, balanced: bool = True
    ) -> list[DialogueState]:
        """Draw a dialogue; [] when no request of the wanted kind was found.

        Args:
            objects: the objects of the scene.
            rng: source of every choice.
            want: "clear", "ambiguous" or "absent" (the first request); None draws one of them.
            balanced: draw clear and ambiguous requests in similar forms, for training, where the
                grammar can. False: in the proportions in which people use them.
        """

    @abstractmethod
    def noun_phrase(self, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
        """Draw a noun phrase and the objects it can mean; None where people would differ."""

    def dialogue_of_sort(self, objects: Objects, rng: Rng, sort: str) -> list[DialogueState]:
        """Draw a dialogue whose request is of a sort ("order", "size"); [] when none was found."""
        return []

    def words(self) -> list[str]:
        """Texts that together hold every word of the grammar, for the tokenizer."""
        return []

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
            question = self._question(candidates, objects, rng, asked, missing)
            states.append(DialogueState(context, candidates, question.text, question.options))
            said = self._answer(question, target, candidates, objects, rng)
            if said is None:
                return states
            context = f"{context} assistant: {question.text} user: {said[0]}"
            candidates = said[1]
            if target not in candidates:  # the person left the choice open, or changed their mind
                target = int(rng.choice(candidates))
        return states

    @abstractmethod
    def _question(
        self, candidates: Candidates, objects: Objects, rng: Rng, asked: int, missing: str
    ) -> ClarifyingQuestion:
        """Ask about the candidates; asked: number of questions before."""

    @abstractmethod
    def _answer(
        self,
        question: ClarifyingQuestion,
        target: int,
        candidates: Candidates,
        objects: Objects,
        rng: Rng,
    ) -> tuple[str, Candidates] | None:
        """Answer with the target in mind: the words, and the candidates that they leave."""
