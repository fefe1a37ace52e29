# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Replies to requests that name a taught word: ask, show one candidate, say it is not there, point.

The candidates are the recogniser's (`clue_ros.model.taught`), each with a probability; words and
geometry choose among them (`clue_ros.dialogue.chooser`), as in policy "zero-shot". A noun that
nobody taught, such as a landmark's, is left to the base model. Where the model knows all words of a
request, its own box joins the candidates: two opinions that agree are sure, and one that stands
alone is less so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import cv2
import numpy as np

from clue_ros.dialogue.candidates import KIND, Candidate
from clue_ros.dialogue.chooser import Standing, follow, not_found, question_for
from clue_ros.dialogue.helpful import as_question
from clue_ros.dialogue.narrowing import Finder
from clue_ros.dialogue.noun_phrases import Phrase, read_phrase, slip_of
from clue_ros.dialogue.object_names import name_match
from clue_ros.dialogue.sayings import this_one
from clue_ros.dialogue.types import (
    SAME_BOX,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Peak,
    Question,
    asked_about,
)
from clue_ros.dialogue.words import current_turns
from clue_ros.model.backbone import Array
from clue_ros.model.colors import with_measured_colors
from clue_ros.model.fusion import log_odds
from clue_ros.model.taught import Patches, Recogniser, probability_of
from clue_ros.model.taught_boxes import Sighting, closer
from clue_ros.model.word_memory import Word, WordMemory

if TYPE_CHECKING:
    from clue_ros.model.view import View

SOURCE = "taught"
# Probabilities that a box holds the thing: from FOUND it is looked at closely, from SEEN it is
# worth a question, from SURE it is pointed at without one. BESIDE: share of the likeliest from
# which another may be meant as well. SEEN keeps 0.83 of the right boxes on rendered tables and all
# of those on five photographs, and leaves out 0.89 and 0.70 of those of absent things.
FOUND, SEEN, SURE, BESIDE = 0.1, 0.4, 0.6, 0.5
# Log odds that a box gains where the model's own box agrees with it, and loses where the two are
# apart and the model finds the request clear; the lowest IoU at which they agree. On five
# photographs, boxes that agreed were right 14 times of 14, and others 9 times of 33.
AGREED, APART = 1.5, 1.0
AGREES = 0.5
AROUND = 0.15  # IoU from which a box of the model's that has a taught thing's middle is of it too
OPINION = 0.5  # share of the taught words' log odds in a box that the model alone has found
DENIED = 1.0  # log odds that each box loses where the model says that there is no such thing
FIRM = 0.5  # score from which the model is sure of its box
PART = 0.5  # share of the smaller of two boxes from which they are of one thing


@dataclass(frozen=True)
class Opinion:
    """What the model itself makes of a dialogue: where it points, if it has to.

    denied: whether it would say that there is no such thing.
    """

    pointed: Grounding
    denied: bool = False


class TaughtFinder:
    """A `clue_ros.dialogue.narrowing.Finder` of taught words in one picture.

    others: finds what nobody taught.
    """

    def __init__(
        self, memory: WordMemory, recogniser: Recogniser, view: View, others: Finder
    ) -> None:
        self.memory, self.recogniser, self.view, self.others = memory, recogniser, view, others
        self.size = view.width, view.height
        self._seen: dict[Box, Sighting] = {}

    def sightings(self, noun: str) -> tuple[Sighting, ...]:
        """Where the words of a noun may be, the likeliest first; nothing for one not taught."""
        words = self.memory.meant(noun) if noun else ()
        return self.recogniser.find(self.view.patches, words) if words else ()

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """The places of a taught noun that are worth a closer look."""
        if not (phrase.noun and self.memory.meant(phrase.noun)):
            return self.others.find(phrase)
        found = [self.candidate(s) for s in self.sightings(phrase.noun) if s.probability >= FOUND]
        return with_measured_colors(_apart(found), self.view.image)

    def candidate(self, seen: Sighting, *also: Box) -> Candidate:
        """A sighting with the box of a closer look, and its probability. also: further boxes."""
        scores = self.recogniser.map_of(self.view.patches, seen.word)
        box, name = closer(self.view.closer, seen, scores, also), seen.word.name
        chance = probability_of(seen.score, scores.contrast(box), seen.shots)
        self._seen[box] = seen
        return Candidate(box, name, chance, SOURCE).known(**{KIND: name})

    def beside(self, candidate: Candidate, box: Box) -> Candidate | None:
        """A candidate of `find` whose box may be this one as well; None: it is of another thing.

        It is of the same thing if it has the candidate's highest place, and from AROUND on.
        """
        seen = self._seen.get(candidate.box)
        if seen is None or not box.contains(seen.point) or candidate.box.iou(box) < AROUND:
            return None
        again = self.candidate(seen, box)
        return replace(candidate, box=again.box, score=again.score)

    def opinion(self, box: Box, noun: str) -> float:
        """Log odds by the words of a noun that their thing is in a box; -APART for no such word."""
        words = self.memory.meant(noun)
        if not words:
            return -APART
        patches = self.view.patches
        best = max(self.recogniser.chance_in(patches, word, box) for word in words)
        return OPINION * log_odds(best)

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
        return with_measured_colors(candidates, self.view.image)


class TaughtWords:
    """A memory and its recogniser, kept up to date with the memory's folder."""

    def __init__(self, memory: WordMemory) -> None:
        self.memory = memory
        self._recogniser: Recogniser | None = None

    def judge(
        self,
        dialogue: Dialogue,
        view: Callable[[], View],
        others: Callable[[], Finder],
        threshold: float,
        grid: int,
        own: Callable[[], Opinion | None] = lambda: None,
    ) -> Judged | None:
        """What a dialogue that names a taught word leaves in an image; None for others.

        view, others: of the image, asked for when they are needed. threshold, grid: of the
        estimate. own: what the model itself makes of it; None where it lacks a word. Raises
        WordMemoryError.
        """
        words = taught_words(self.memory, dialogue) if self.memory.refresh() else ()
        if not words:
            return None
        finder = TaughtFinder(self.memory, self._known(), view(), others())
        names = tuple(word.name for word in words)
        return judge(finder, dialogue, threshold, grid, names, own)

    def _known(self) -> Recogniser:
        if self._recogniser is None or self._recogniser.changes != self.memory.changes:
            self._recogniser = Recogniser(self.memory)
        return self._recogniser

    def checked(
        self, reply: Grounding, noun: str, patches: Callable[[], Patches]
    ) -> Question | Grounding:
        """The reply about what nobody taught, beside taught words: a doubtful box is shown first.

        A taught thing's box is doubtful; where the model is not sure of it, the thing is not there.
        noun: "" where the words name none. patches: of the image.
        """
        if not self.memory.refresh():
            return reply
        is_sure = reply.score >= FIRM
        seen = self._known().in_box(patches(), reply.box) if noun else ()
        other = next((s for s in seen if s.probability >= SURE), None)
        if other is None or any(name_match(noun, name) is not None for name in other.word.names):
            return reply if is_sure else asked_about(reply, this_one(reply.label))
        if is_sure:
            return asked_about(reply, this_one(""))
        return not_found(noun, reply.ambiguity, another=False)


def _apart(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate for each thing, the likeliest: large things have several high places."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -c.score):
        area = candidate.box.area
        if all(candidate.box.shared(k.box) < PART * min(area, k.box.area) for k in kept):
            kept.append(candidate)
    return kept


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
    finder: TaughtFinder,
    dialogue: Dialogue,
    threshold: float,
    grid: int,
    taught: tuple[str, ...],
    own: Callable[[], Opinion | None],
) -> Judged:
    """Read a dialogue; threshold, grid: of the estimate. taught: the words that it names.

    own: what the model itself makes of it.
    """
    start = time.perf_counter()
    standing = follow(dialogue.for_model(), finder)
    kept = tuple(
        c
        for c in standing.candidates
        if not any(c.box.iou(box) >= SAME_BOX for box in dialogue.refused)
    )
    left_out = tuple(c for c in standing.candidates if c not in kept)
    refused = (*standing.refused, *left_out)
    found = None if standing.confirmed else own()
    if found is not None and all(found.pointed.box.iou(b) < SAME_BOX for b in dialogue.refused):
        first = len(dialogue.turns) == 1
        kept = _joined(finder, kept, found, standing.phrase.noun if first or not kept else "")
    kept = tuple(c for c in kept if c.score >= SEEN)
    standing = replace(standing, candidates=kept, refused=refused)
    chance = 0.0 if standing.confirmed else not_exactly_one([c.score for c in kept])
    attention = _map(finder, standing.phrase.noun, grid)
    peaks = tuple(Peak(c.box, c.score, c.box.center) for c in sorted(kept, key=lambda c: -c.score))
    seconds = time.perf_counter() - start
    estimate = AmbiguityEstimate(chance, threshold, attention, peaks, seconds)
    return Judged(finder, standing, estimate, taught)


def _joined(
    finder: TaughtFinder, candidates: Sequence[Candidate], opinion: Opinion, noun: str
) -> tuple[Candidate, ...]:
    """Candidates with the model's own box, and their chances in the light of its opinion.

    noun: what the box is of, if it may be one more candidate; "": it may not.
    """
    own, denied = opinion.pointed, DENIED * opinion.denied
    clear = 1 - own.ambiguity.probability
    same = max(candidates, key=lambda c: c.box.iou(own.box), default=None)
    again = None if same is None else finder.beside(same, own.box)
    joined = []
    for candidate in candidates:
        seen, gain = candidate, -APART * clear
        if candidate is same and again is not None:
            agrees = again.box.iou(own.box) >= AGREES and not opinion.denied
            seen, gain = again, AGREED * agrees
        joined.append(replace(seen, score=_moved(seen.score, gain - denied)))
    if again is None and noun:
        chance = _moved(own.score, finder.opinion(own.box, noun) - denied)
        alone = Candidate(own.box, noun, chance, SOURCE).known(**{KIND: noun})
        joined += with_measured_colors([alone], finder.view.image)
    return tuple(joined)


def _moved(chance: float, by: float) -> float:
    """A probability whose log odds are moved."""
    return 1 / (1 + math.exp(-(log_odds(chance) + by)))


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
    likely = tuple(c for c in found if c.score >= BESIDE * best.score)
    if force_grounding or standing.confirmed or (len(likely) == 1 and best.score >= SURE):
        return Grounding(best.box, name, best.score, estimate, taught=taught)
    if len(likely) == 1:
        return Question(
            this_one(name), (best.box,), ("yes", "no"), estimate,
            answer_candidates=((0,), ()), labels=(name,), confirm=True, taught=taught,
        )  # fmt: skip
    which = question_for(replace(standing, candidates=likely), finder)
    return replace(as_question(which, likely, estimate), taught=taught)


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
    scores = finder.recogniser.scores_of(finder.view.patches, words).max(0)
    shrunk = cv2.resize(scores, (grid, grid), interpolation=cv2.INTER_AREA)
    return np.asarray(np.clip(shrunk, 0.0, 1.0), np.float32)
