"""One picture in, a row of dialogues out: the annotation machine of InViG's 500K dialogues.

    target  <- draw an object, weighted by its area
    request <- describe it
    repeat: question <- questioner (adapter B); stop when it points
            answer   <- person (the oracle adapter; by rules in simulated scenes)
    box     <- grounder, must agree with the target

The paper keeps every dialogue, and the grounder's box. Here a dialogue is kept only if the
grounder's box agrees with the target, and the label is the target's own box. Turns that repeat a
question are taken out, and turns without which the grounder is as sure of the same box. Every
rejected object and turn is counted with its reason.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.grounder import Grounder
from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, clean_text
from clue_ros.errors import ClueError
from clue_ros.lab.generation.rephrase import Personas, Rephraser
from clue_ros.lab.language.references import Objects
from clue_ros.lab.language.words import Rng

Image = npt.NDArray[np.uint8]
User = Callable[[str], str]
"""The person: answers a question."""
UNMOVED = 0.9
"""IoU from which a grounder's box is where it was."""


@dataclass(frozen=True)
class Picture:
    """A picture to talk about. load: uint8 RGB (H, W, 3); raises BadImageError.

    name: the same in every run, and unique. objects: of a simulated scene, None of a photograph.
    """

    name: str
    load: Callable[[], Image]
    objects: Objects | None = None


@dataclass(frozen=True)
class Case:
    """An object to talk about. view: the grounder's. target: among the candidates, by index."""

    picture: Picture
    image: Image
    view: Any
    candidates: Sequence[Candidate]
    target: int
    rng: Rng

    @property
    def box(self) -> Box:
        """The target's box, in pixels."""
        return self.candidates[self.target].box

    @property
    def boxes_in_fractions(self) -> list[Box]:
        """The candidates' boxes, in fractions of the image."""
        height, width = self.image.shape[:2]
        return [candidate.box.in_fractions(width, height) for candidate in self.candidates]


Request = tuple[str, tuple[int, ...]]
"""The person's first sentence, and the objects that it can mean, if known."""


@dataclass(frozen=True)
class MachineParts:
    """The parts of the machine.

    propose: the objects of an image. describe: the request for a case; None where there is none.
    person: makes the answering person for a request. rephrase: None for none. personas: people in
    whose words sentences are rephrased; None for nobody.
    """

    grounder: Grounder[Any]
    propose: Callable[[Picture, Image, Any], Sequence[Candidate]]
    describe: Callable[[Case], Request | None]
    person: Callable[[Case, Request], User]
    rephrase: Rephraser | None = None
    personas: Personas | None = None


@dataclass(frozen=True)
class MachineSettings:
    """per_image: objects drawn of a picture. max_rounds: questions of a dialogue at most.

    min_iou: of the grounder's box with the target's. min_area: of an object, share of the image.
    min_rounds: questions that a dialogue needs.
    """

    per_image: int = 1
    max_rounds: int = 6
    min_rounds: int = 0
    min_iou: float = 0.5
    min_area: float = 0.001


@dataclass
class Outcome:
    """The result of a picture.

    refs: kept dialogues, as `ref_list` of InViG's newer layout. rejected: objects, or the whole
    picture, by reason. dropped: turns taken out of dialogues, by reason.
    """

    refs: list[dict[str, Any]] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class Rejected(Exception):
    """Why a dialogue is not kept."""


class DialogueMachine:
    """Talks about pictures."""

    def __init__(self, parts: MachineParts, settings: MachineSettings) -> None:
        self._parts, self._settings = parts, settings

    def __call__(self, picture: Picture, rng: Rng) -> Outcome:
        """The dialogues about a picture."""
        outcome = Outcome()
        try:
            image = picture.load()
            view = self._parts.grounder.look(image)
        except (ClueError, OSError, ValueError):
            outcome.rejected["picture cannot be read"] += 1
            return outcome
        height, width = image.shape[:2]
        outcome.size = width, height
        found = self._parts.propose(picture, image, view)
        areas = np.array([c.box.area / (width * height) for c in found])
        areas[areas < self._settings.min_area] = 0
        if not areas.sum():
            outcome.rejected["no object found"] += 1
            return outcome
        count = min(self._settings.per_image, int((areas > 0).sum()))
        drawn = rng.choice(len(found), size=count, replace=False, p=areas / areas.sum())
        for target in drawn.tolist():
            case = Case(picture, image, view, found, target, rng)
            try:
                outcome.refs.append(self._dialogue(case, outcome.dropped))
            except Rejected as reason:
                outcome.rejected[str(reason)] += 1
        return outcome

    def _dialogue(self, case: Case, dropped: Counter[str]) -> dict[str, Any]:
        request = self._parts.describe(case)
        if request is None:
            raise Rejected("no request for the object")
        try:
            text = clean_text(request[0])
            exchanges, repeated = self._talk(case, (text, request[1]))
            final = self._point(case, text, exchanges)
        except ClueError:
            raise Rejected("a sentence cannot be used") from None
        if final.box.iou(case.box) < self._settings.min_iou:
            raise Rejected("box disagrees with the object")
        kept, iou = self._useful(case, text, exchanges, final)
        if len(kept) < self._settings.min_rounds:
            raise Rejected("too few rounds")
        useless = len(exchanges) - len(kept)
        dropped.update({"repeated question": repeated, "useless turn": useless})
        personas, persona = self._parts.personas, ""
        if personas is not None and self._parts.rephrase is not None:
            persona = personas.draw(case.rng)
        text, kept, iou = self._rephrased(case, text, kept, iou, persona)
        box = [round(v, 5) for v in case.boxes_in_fractions[case.target].as_list()]
        return {
            "bbox": box,
            "category": case.candidates[case.target].label,
            "dialog": [["", text], *map(list, kept)],
            "dialog_cn": [],
            "iou": round(iou, 3),
            **({"persona": persona.strip()} if persona else {}),
        }

    def _talk(self, case: Case, request: Request) -> tuple[list[tuple[str, str]], int]:
        """Questions and answers until the questioner points; the number of repeated questions."""
        dialogue, user = Dialogue(request[0]), self._parts.person(case, request)
        exchanges: list[tuple[str, str]] = []
        while True:
            reply = self._parts.grounder.reply(case.view, dialogue)
            if isinstance(reply, Grounding):
                return exchanges, 0
            if isinstance(reply, NotFound):
                raise Rejected("questioner does not see the object")
            question = clean_text(reply.text)
            if _plain(question) in {_plain(asked) for asked, _ in exchanges}:
                return exchanges, 1
            if len(exchanges) == self._settings.max_rounds:
                raise Rejected(f"still asks after {self._settings.max_rounds} rounds")
            answer = clean_text(user(question))
            dialogue.add_question(question)
            dialogue.add_answer(answer)
            exchanges.append((question, answer))

    def _point(self, case: Case, request: str, exchanges: Sequence[tuple[str, str]]) -> Grounding:
        dialogue = Dialogue(request)
        for question, answer in exchanges:
            dialogue.add_question(question)
            dialogue.add_answer(answer)
        reply = self._parts.grounder.reply(case.view, dialogue, force_grounding=True)
        if not isinstance(reply, Grounding):
            raise Rejected("grounder does not point")
        return reply

    def _rephrased(
        self, case: Case, request: str, exchanges: list[tuple[str, str]], iou: float, persona: str
    ) -> tuple[str, list[tuple[str, str]], float]:
        """The dialogue in other words, and the IoU of the box that they lead to.

        persona: who the person is, or "". The original, where there is no language model or the box
        then disagrees with the object.
        """
        say = self._parts.rephrase
        if say is None:
            return request, exchanges, iou
        names = [candidate.label for candidate in case.candidates]
        text = say(request, names, persona)
        other = [(say(q, names), say(a, names, persona)) for q, a in exchanges]
        pairs = zip((request, *chain(*exchanges)), (text, *chain(*other)), strict=True)
        changed = sum(before != after for before, after in pairs)
        if changed:
            moved = self._point(case, text, other).box.iou(case.box)
            if moved >= self._settings.min_iou:
                return text, other, moved
            say.take_back(changed)
        return request, exchanges, iou

    def _useful(
        self, case: Case, request: str, exchanges: list[tuple[str, str]], final: Grounding
    ) -> tuple[list[tuple[str, str]], float]:
        """The turns without which the grounder's box moves or is less sure, and the box's IoU.

        The last turns are tried first. The box stays near the one of all turns, so that it cannot
        drift step by step, and agrees with the object.
        """
        kept, iou = list(exchanges), final.box.iou(case.box)
        for number in reversed(range(len(exchanges))):
            without = kept[:number] + kept[number + 1 :]
            other = self._point(case, request, without)
            stays = other.box.iou(final.box) >= UNMOVED and other.score >= final.score
            if stays and (moved := other.box.iou(case.box)) >= self._settings.min_iou:
                kept, iou = without, moved
        return kept, iou


def talk(
    machine: DialogueMachine, parts: MachineParts, picture: Picture, seed: int
) -> tuple[Outcome, dict[str, float]]:
    """Return a picture's outcome, and the figures to sum up: seconds and rephrased sentences."""
    before = _sentences(parts)
    start = time.monotonic()
    rng = np.random.default_rng([seed, zlib.crc32(picture.name.encode())])
    outcome = machine(picture, rng)
    sums = {k: v - before[k] for k, v in _sentences(parts).items()}
    return outcome, {**sums, "seconds": round(time.monotonic() - start, 4)}


def _sentences(parts: MachineParts) -> dict[str, float]:
    if parts.rephrase is None:
        return {}
    return {
        "asked to rephrase": parts.rephrase.tried,
        "rephrased": parts.rephrase.changed,
        "rephrasing refused": parts.rephrase.refused,
        "rephrasing moved the box": parts.rephrase.taken_back,
    }


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
