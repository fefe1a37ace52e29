# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Policy "zero-shot": ask and point with the base model alone, before any adapter is trained.

The base's own tasks give the candidates and settle doubts (`base_tasks`); words and geometry do the
rest (`clue_ros.dialogue.chooser`). The probability of ambiguity comes from how surely the base
finds one thing and no second one. The paper trains both adapters and has nothing of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import COLOR, Candidate, unite
from clue_ros.dialogue.chooser import Standing, follow, not_found, question_for
from clue_ros.dialogue.helpful import as_question
from clue_ros.dialogue.noun_phrases import ENGLISH, Phrase
from clue_ros.dialogue.types import (
    SAME_BOX,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Peak,
    Question,
)
from clue_ros.errors import ModelError
from clue_ros.model.fusion import log_odds
from clue_ros.model.loading import is_number, read_settings, write_json
from clue_ros.model.peaks import find_peaks
from clue_ros.model.tasks import (
    IS_THERE,
    IS_THIS,
    MAX_BOXES,
    WHAT_COLOR,
    WHAT_IS,
    Detection,
    short_answer,
)

SETTINGS_FILE = "zero_shot.json"
NATS = 2.0  # yes/no log odds behind the best up to which a candidate still matches
ATTENTION = "attention"  # source of a candidate that only the attention map shows
DOUBTFUL = 0.1  # of the score of a candidate that only the attention map shows
Map = npt.NDArray[np.float32]


class Base(Protocol):
    """The base model's tasks on one image: `clue_ros.model.base_tasks.BaseTasks`."""

    size: tuple[int, int]

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """The boxes of each name."""

    def answer(self, question: str, boxes: Sequence[Box]) -> list[str]:
        """The answer to a question about the crop of each box."""

    def yes_or_no(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        """Log odds of yes about each crop (None: the image); None where it says neither."""

    def map(self, text: str) -> Map:
        """The attention map of "detect TEXT"."""


# -------------------------------------------------------------------------------------------------
# The probability of ambiguity.


class Evidence(NamedTuple):
    """What the probability of ambiguity is made of.

    going_on: log odds that the answer to "detect" goes on after its first box, where that box is
    alone; 0 otherwise. second: score of the second candidate, 0 if there is none. doubt: 1 minus
    the score of the first. nothing: 1 if there is no box, at most a peak of the attention map.
    by_rules: 1 if words or geometry have left out some of what was found.
    """

    going_on: float
    second: float
    doubt: float
    nothing: float
    by_rules: float


@dataclass(frozen=True)
class ZeroShotSettings:
    """zero_shot.json: how `Evidence` adds up to log odds of ambiguity, one weight each and a bias.

    threshold: probability from which to ask. knows_places: whether the base's own boxes for "the
    second mug from the left" are righter than rules over the boxes for "mug". `clue train policy
    --policy zero-shot` writes the file beside a base's config.json. The defaults, for a base that
    has none: the same fit on the embedded base "household", on 360 validation requests about 60
    scenes of the world "rich" (45 % clear, 40 % ambiguous, 15 % absent), and rules for places.
    """

    bias: float = -0.09
    going_on: float = 0.24
    second: float = 3.02
    doubt: float = 0.76
    nothing: float = 2.27
    by_rules: float = -2.08
    threshold: float = 0.52
    knows_places: bool = False

    def probability(self, evidence: Evidence) -> float:
        """Probability that a request names none or several things."""
        weights = (self.going_on, self.second, self.doubt, self.nothing, self.by_rules)
        odds = self.bias + sum(w * e for w, e in zip(weights, evidence, strict=True))
        return 1 / (1 + math.exp(-min(max(odds, -50.0), 50.0)))


def load_zero_shot(base: Path) -> ZeroShotSettings:
    """The settings in a base's folder, or the defaults. Raises ModelError."""
    path = base / SETTINGS_FILE
    if not path.is_file():
        return ZeroShotSettings()
    settings = read_settings(path, ZeroShotSettings)
    if not isinstance(settings.knows_places, bool):
        raise ModelError(f"{path}: knows_places {settings.knows_places!r}, want true or false")
    for name, value in vars(settings).items():
        if name != "knows_places" and not is_number(value, -1000, 1000):
            raise ModelError(f"{path}: {name} {value!r}, want a number from -1000 to 1000")
    if not 0 <= settings.threshold <= 1:
        raise ModelError(f"{path}: threshold {settings.threshold!r}, want 0 to 1")
    return settings


def save_zero_shot(settings: ZeroShotSettings, path: Path, **notes: Any) -> None:
    """Write zero_shot.json; `notes` (data, figures) are kept beside the settings."""
    write_json(path, {**notes, **asdict(settings)})


# -------------------------------------------------------------------------------------------------
# The base as a finder.


class BaseFinder:
    """A `clue_ros.dialogue.narrowing.Finder` that asks the base model about one image."""

    def __init__(self, base: Base, settings: ZeroShotSettings) -> None:
        self.base, self.settings = base, settings
        self.size = base.size

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """The boxes of the phrase's name and of all its words, merged.

        Without any, but where the base says that there is one: the map's strongest peak.
        """
        found: tuple[Candidate, ...] = ()
        for detection in self.base.detect(_names(phrase)):
            found = unite(found, detection.candidates, SAME_BOX)
        return found[:MAX_BOXES] or self._doubtful(phrase)

    def _doubtful(self, phrase: Phrase) -> tuple[Candidate, ...]:
        (odds,) = self.base.yes_or_no(IS_THERE.format(phrase.name), [None])
        if odds is None or odds <= 0:
            return ()
        peaks = find_peaks(self.base.map(phrase.full), *self.size)
        scores = [DOUBTFUL * peak.score for peak in peaks]
        return tuple(
            Candidate(peak.box, phrase.name, score, ATTENTION)
            for peak, score in zip(peaks[:1], scores, strict=False)
        )

    def locate(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """The boxes of all the words, of a base that was found to know places."""
        return self.base.detect([phrase.full])[0].candidates if self.settings.knows_places else ()

    def choose(self, phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those that the boxes of all the words confirm, else yes or no about each crop."""
        (detection,) = self.base.detect([phrase.full])
        kept = tuple(
            c for c in candidates if any(c.box.iou(d.box) >= SAME_BOX for d in detection.candidates)
        )
        if 0 < len(kept) < len(candidates):
            return kept
        odds = self.base.yes_or_no(IS_THIS.format(phrase.full), [c.box for c in candidates])
        known = [value for value in odds if value is not None]
        if len(known) < len(odds) or not known:
            return tuple(candidates)
        return tuple(c for c, v in zip(candidates, known, strict=True) if v >= max(known) - NATS)

    def spelled(self, noun: str) -> str:
        """Nothing: the base reads misspelt words itself."""
        return ""

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """With the colour or the kind that the base says of each crop where no label has it."""
        unknown = [c.box for c in candidates if attribute not in c.attributes]
        if not unknown:
            return tuple(candidates)
        question = WHAT_COLOR.format(noun or "object") if attribute == COLOR else WHAT_IS
        said = dict(zip(unknown, self.base.answer(question, unknown), strict=True))
        values = [_value(attribute, said.get(c.box, "")) for c in candidates]
        return tuple(
            c if value is None else c.known(**{attribute: value})
            for c, value in zip(candidates, values, strict=True)
        )

    def evidence(self, standing: Standing) -> Evidence:
        """What the probability of ambiguity is made of."""
        listed = [c for c in standing.candidates if c.source != ATTENTION]
        scores = sorted((c.score for c in listed), reverse=True)
        going_on = 0.0
        if len(scores) == 1 and not standing.rules:
            phrase = standing.phrase
            names = [phrase.full] if self.locate(phrase) else _names(phrase)
            detections = self.base.detect(names)
            going_on = log_odds(max(d.going_on for d in detections))
        return Evidence(
            going_on,
            scores[1] if len(scores) > 1 else 0.0,
            1 - scores[0] if scores else 0.0,
            float(not scores),
            float(standing.rules),
        )


def _names(phrase: Phrase) -> list[str]:
    """Return the queries of "detect" for a phrase: its name, and all of its words."""
    return list(dict.fromkeys((phrase.name, phrase.full)))


def _value(attribute: str, answer: str) -> str | None:
    """An answer as a colour or a kind; None where it says nothing of the kind."""
    said = short_answer(answer)
    if said is None or attribute != COLOR:
        return said
    colors = [ENGLISH.colors[word] for word in said.split() if word in ENGLISH.colors]
    return colors[0] if len(colors) == 1 else None


# -------------------------------------------------------------------------------------------------
# The policy.


@dataclass(frozen=True)
class Judgement:
    """The judgement of a dialogue: its candidates, the probability of a question, and the map.

    peaks: the candidates, each with its share of the map as its score.
    """

    standing: Standing
    probability: float
    attention: Map
    peaks: tuple[Peak, ...]


def judge(base: Base, dialogue: Dialogue, settings: ZeroShotSettings) -> Judgement:
    """Read the dialogue with the base's eyes. What the person has settled is certain."""
    finder = BaseFinder(base, settings)
    standing = follow(dialogue, finder)
    certain = standing.confirmed
    chance = 0.0 if certain else settings.probability(finder.evidence(standing))
    attention = base.map(standing.phrase.full)
    peaks = tuple(share_of_map(attention, c.box, *base.size) for c in standing.candidates)
    return Judgement(standing, chance, attention, peaks)


def share_of_map(attention: Map, box: Box, width: int, height: int) -> Peak:
    """A box with its share of a map (g, g), 0..1, and the point where the map is highest in it."""
    rows, columns = attention.shape
    x0 = min(max(int(box.x_min / width * columns), 0), columns - 1)
    y0 = min(max(int(box.y_min / height * rows), 0), rows - 1)
    x1 = max(math.ceil(box.x_max / width * columns), x0 + 1)
    y1 = max(math.ceil(box.y_max / height * rows), y0 + 1)
    part, total = attention[y0:y1, x0:x1], float(attention.sum())
    row, column = divmod(int(part.argmax()), part.shape[1])
    point = ((x0 + column + 0.5) / columns * width, (y0 + row + 0.5) / rows * height)
    return Peak(box, float(part.sum()) / total if total > 0 else 0.0, point)


def reply_to(
    base: Base,
    standing: Standing,
    estimate: AmbiguityEstimate,
    settings: ZeroShotSettings,
    *,
    force_grounding: bool = False,
) -> Question | Grounding:
    """Point at the best candidate, ask what tells them apart, or say that there is none."""
    label = standing.phrase.name
    best = max(standing.candidates, key=lambda c: c.score, default=None)
    if force_grounding or (best is not None and not estimate.is_ambiguous):
        best = best or _guess(base, standing, estimate)
        return Grounding(best.box, label, best.score, estimate)
    if best is None:
        return not_found(standing.phrase.name, estimate, another=bool(standing.refused))
    asked = question_for(standing, BaseFinder(base, settings))
    return as_question(asked, standing.candidates, estimate)


def _guess(base: Base, standing: Standing, estimate: AmbiguityEstimate) -> Candidate:
    """The best box where none is left: what was found first, else what the map shows."""
    found = max(standing.found, key=lambda c: c.score, default=None)
    if found is not None:
        return found
    peaks = find_peaks(estimate.attention, *base.size)
    box = peaks[0].box if peaks else Box(0, 0, *map(float, base.size))
    return Candidate(box, standing.phrase.name, 0.0, ATTENTION)
