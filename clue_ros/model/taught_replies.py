# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Replies to requests that name a taught word: ask, show one candidate, say it is not there, point.

The candidates are the recogniser's (`clue_ros.model.taught`), each with a probability; words and
geometry choose among them (`clue_ros.dialogue.chooser`), as in policy "zero-shot". A noun that
nobody taught, such as a landmark's, is left to the base model. The model's own policy has no say:
it was trained without the word.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import KIND, Candidate, unite
from clue_ros.dialogue.chooser import Standing, follow, not_found, question_for
from clue_ros.dialogue.narrowing import Finder
from clue_ros.dialogue.noun_phrases import Phrase, read_phrase, slip_of
from clue_ros.dialogue.sayings import this_one
from clue_ros.dialogue.types import (
    SAME_BOX,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Peak,
    Question,
)
from clue_ros.dialogue.words import current_turns
from clue_ros.model.backbone import Array
from clue_ros.model.colors import with_measured_colors
from clue_ros.model.taught import Patches, Recogniser, Sighting, refined
from clue_ros.model.word_memory import Word, WordMemory

SOURCE = "taught"
# Probabilities that a box holds the thing: from SEEN it is worth a question, from SURE it is
# pointed at without one. BESIDE: share of the likeliest from which another may be meant as well.
SEEN, SURE, BESIDE = 0.2, 0.6, 0.5


class TaughtFinder:
    """A `clue_ros.dialogue.narrowing.Finder` of taught words in one picture.

    others: finds what nobody taught. image: RGB (H, W, 3).
    """

    def __init__(
        self,
        memory: WordMemory,
        recogniser: Recogniser,
        patches: Patches,
        image: npt.NDArray[np.uint8],
        others: Finder,
    ) -> None:
        self.memory, self.recogniser, self.patches = memory, recogniser, patches
        self.image, self.others = image, others
        self.size = patches.width, patches.height

    def sightings(self, noun: str) -> tuple[Sighting, ...]:
        """Where the words of a noun may be, the likeliest first; nothing for one not taught."""
        words = self.memory.meant(noun) if noun else ()
        return self.recogniser.find(self.patches, words) if words else ()

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """The places of a taught noun that are worth a question."""
        if not (phrase.noun and self.memory.meant(phrase.noun)):
            return self.others.find(phrase)
        found = [self.candidate(s) for s in self.sightings(phrase.noun) if s.probability >= SEEN]
        return with_measured_colors(unite((), found, SAME_BOX), self.image)

    def candidate(self, seen: Sighting) -> Candidate:
        """A sighting with its box fitted to the picture."""
        (scores,) = self.recogniser.scores_of(self.patches, [seen.word])
        box = refined(seen, self.image, scores)
        name = seen.word.name
        return Candidate(box, name, seen.probability, SOURCE).known(**{KIND: name})

    def locate(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """Nothing: rules choose by places."""
        return ()

    def choose(self, phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """All of them: no more is known of a taught thing than its looks."""
        return tuple(candidates)

    def spelled(self, noun: str) -> str:
        """The only taught name that the noun is a slip of; "" for a name."""
        if self.memory.meant(noun):
            return ""
        return slip_of(noun, [name for w in self.memory.words.values() for name in w.names])

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """With measured colours."""
        return with_measured_colors(candidates, self.image)


class TaughtWords:
    """A memory and its recogniser, kept up to date with the memory's folder."""

    def __init__(self, memory: WordMemory) -> None:
        self.memory = memory
        self._recogniser: Recogniser | None = None

    def judge(
        self,
        dialogue: Dialogue,
        image: npt.NDArray[np.uint8],
        patches: Callable[[], Patches],
        others: Callable[[], Finder],
        threshold: float,
        grid: int,
    ) -> Judged | None:
        """What a dialogue that names a taught word leaves in an image (H, W, 3); None for others.

        patches, others: of the image, asked for when they are needed. threshold, grid: of the
        estimate. Raises WordMemoryError.
        """
        words = taught_words(self.memory, dialogue) if self.memory.refresh() else ()
        if not words:
            return None
        if self._recogniser is None or self._recogniser.changes != self.memory.changes:
            self._recogniser = Recogniser(self.memory)
        finder = TaughtFinder(self.memory, self._recogniser, patches(), image, others())
        return judge(finder, dialogue, threshold, grid, tuple(word.name for word in words))


def taught_words(memory: WordMemory, dialogue: Dialogue) -> tuple[Word, ...]:
    """The taught words that a dialogue names since it is about the present thing."""
    found: dict[str, Word] = {}
    for turn in current_turns(dialogue.turns):
        if turn.speaker == "user":
            noun = read_phrase(turn.text).noun
            found |= {word.name: word for word in memory.meant(noun)} if noun else {}
    return tuple(found.values())


@dataclass(frozen=True)
class Judged:
    """What a dialogue with taught words leaves, the estimate, and these words' names."""

    finder: TaughtFinder
    standing: Standing
    estimate: AmbiguityEstimate
    taught: tuple[str, ...]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those that may be meant, the likeliest first."""
        return tuple(sorted(self.standing.candidates, key=lambda c: -c.score))


def judge(
    finder: TaughtFinder, dialogue: Dialogue, threshold: float, grid: int, taught: tuple[str, ...]
) -> Judged:
    """Read a dialogue; threshold, grid: of the estimate. taught: the words that it names."""
    start = time.perf_counter()
    standing = follow(dialogue.without_refused(), finder)
    kept = tuple(
        c
        for c in standing.candidates
        if not any(c.box.iou(box) >= SAME_BOX for box in dialogue.refused)
    )
    refused = standing.refused or (
        standing.candidates if len(kept) < len(standing.candidates) else ()
    )
    standing = replace(standing, candidates=kept, refused=refused)
    chance = 0.0 if standing.confirmed else not_exactly_one([c.score for c in kept])
    attention = _map(finder, standing.phrase.noun, grid)
    peaks = tuple(Peak(c.box, c.score, c.box.center) for c in sorted(kept, key=lambda c: -c.score))
    seconds = time.perf_counter() - start
    estimate = AmbiguityEstimate(chance, threshold, attention, peaks, seconds)
    return Judged(finder, standing, estimate, taught)


def not_exactly_one(chances: Sequence[float]) -> float:
    """Probability that none or several of independent events come true, 0..1.

    >>> not_exactly_one([0.9]), not_exactly_one([0.5, 0.5])
    (0.09999999999999998, 0.5)
    """
    one = sum(
        math.prod(chance if this == other else 1 - chance for other, chance in enumerate(chances))
        for this in range(len(chances))
    )
    return min(max(1.0 - one, 0.0), 1.0)


def reply_to(judged: Judged, *, force_grounding: bool = False) -> Question | Grounding:
    """Point, ask which of several, show one and ask "this one?", or say that there is none."""
    finder, standing, estimate = judged.finder, judged.standing, judged.estimate
    taught = judged.taught
    found, name = judged.candidates, standing.phrase.name
    if not found and not force_grounding:
        asked = not_found(name, estimate, another=bool(standing.refused))
        return replace(asked, taught=taught)
    best = found[0] if found else _guess(finder, standing)
    likely = tuple(c for c in found if c.score >= max(SEEN, BESIDE * best.score))
    if force_grounding or standing.confirmed or (len(likely) == 1 and best.score >= SURE):
        return Grounding(best.box, name, best.score, estimate, taught=taught)
    if len(likely) == 1:
        return Question(
            this_one(name), (best.box,), ("yes", "no"), estimate,
            answer_candidates=((0,), ()), labels=(name,), confirm=True, taught=taught,
        )  # fmt: skip
    asked_which = question_for(replace(standing, candidates=likely), finder)
    shown = tuple(c for group in asked_which.groups for c in group) or likely
    places = {id(c): place for place, c in enumerate(shown)}
    answers = tuple(tuple(places[id(c)] for c in group) for group in asked_which.groups)
    return Question(
        asked_which.text, tuple(c.box for c in shown), asked_which.options, estimate,
        answer_candidates=answers, labels=tuple(c.label for c in shown), taught=taught,
    )  # fmt: skip


def _guess(finder: TaughtFinder, standing: Standing) -> Candidate:
    """The best place where none is likely."""
    seen = finder.sightings(standing.phrase.noun)
    if seen:
        return finder.candidate(seen[0])
    if standing.found:
        return max(standing.found, key=lambda c: c.score)
    return Candidate(Box(0.0, 0.0, *map(float, finder.size)), score=0.0, source=SOURCE)


def _map(finder: TaughtFinder, noun: str, grid: int) -> Array:
    """The scores of a noun's words as a map (grid, grid), 0..1."""
    words = finder.memory.meant(noun) if noun else ()
    if not words:
        return np.zeros((grid, grid), np.float32)
    scores = finder.recogniser.scores_of(finder.patches, words).max(0)
    shrunk = cv2.resize(scores, (grid, grid), interpolation=cv2.INTER_AREA)
    return np.asarray(np.clip(shrunk, 0.0, 1.0), np.float32)
