# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Wrapper: asks and points with any detector, as `clue_ros.engine.Clue` does with its own model.

    wrapper = Wrapper.load(["grounding-dino:IDEA-Research/grounding-dino-tiny"], "my-adapter")
    view = wrapper.look(image)
    reply = wrapper.reply(view, Dialogue("pick up the mug"))

The detector lists candidates; a language model names the one that is meant, or those that still
match (`clue_ros.wrapper.language_model`). Without a language model the rules of
`clue_ros.dialogue.chooser` choose.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import (
    KIND,
    Asked,
    Candidate,
    merge,
    proposal,
    question_about,
    unite,
)
from clue_ros.dialogue.chooser import LabelledObjects, Standing, follow, not_found, question_for
from clue_ros.dialogue.helpful import as_question, is_one_of, sentence, told
from clue_ros.dialogue.noun_phrases import described_object, read_phrase
from clue_ros.dialogue.nouns import nouns_of
from clue_ros.dialogue.types import (
    SAME_BOX,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Peak,
    Question,
    clean_text,
)
from clue_ros.errors import ModelError
from clue_ros.images import check_image
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.colors import with_measured_colors
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import DEFAULT_MODEL, find_model
from clue_ros.model.taught import make_example
from clue_ros.model.taught_replies import Judged, TaughtWords, reply_to
from clue_ros.model.view import Encoded, View
from clue_ros.model.word_memory import Word, WordMemory, clean_name, open_memory
from clue_ros.wrapper import WRAPPER
from clue_ros.wrapper.clue_source import ClueSource, agreed_probability, agreed_thing
from clue_ros.wrapper.deciding import (
    ambiguity_of,
    best_scored,
    distinct,
    pointed_at,
    still_likely,
)
from clue_ros.wrapper.language_model import Choice, LanguageModel, Listing
from clue_ros.wrapper.preflight import require_wrapper
from clue_ros.wrapper.prompt import AnswerKind, AnswerRates
from clue_ros.wrapper.served_model import ServedModel, ServerError, open_language_model
from clue_ros.wrapper.sources import Faults, Source, gather, open_sources
from clue_ros.wrapper.wording import worded

LANGUAGE_MODEL, RULES = "language model", "rules"
WORDINGS = (LANGUAGE_MODEL, RULES)
GRID = 32  # side of the map that is published
DEFAULT_THRESHOLD = 0.5
APART = 0.1  # IoU below which two boxes are of two things
RULE_CHANCE = {1: 0.05}  # probability of ambiguity by the rules, by how many are left; else 0.95
Image = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Verdict:
    """A reading of a dialogue. left: the candidates that match; best: the one to point at, if any.

    chances: the probability of each candidate to be meant. standing: of the rules, None with a
    language model.
    """

    probability: float
    candidates: tuple[Candidate, ...]
    chances: tuple[float, ...]
    left: tuple[Candidate, ...]
    best: Candidate | None
    standing: Standing | None = None

    @property
    def asks_well(self) -> bool:
        """Whether the chooser has a question of its own: which of several things that match."""
        return len(self.left) > 1 and not (self.standing is not None and self.standing.guessed)


_Listed = tuple[tuple[str, ...], tuple[Box, ...]]  # the nouns, and what was refused


class WrapperView:
    """An image that was looked at. Candidates are found once for each set of nouns."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.found: dict[tuple[str, ...], tuple[Candidate, ...]] = {}
        self.seen: View | None = None  # household's view, once taught words need it
        self.listings: dict[_Listed, Listing] = {}
        self.choices: dict[tuple[_Listed, str], Choice] = {}  # and by the context

    @property
    def width(self) -> int:
        """Width of the original in pixels."""
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        """Height of the original in pixels."""
        return int(self.image.shape[0])


class Wrapper:
    """Candidates of one or several detectors, and a chooser among them.

    wording: who words a question, "language model" (checked, else the rules' sentence) or "rules".
    rates: how often the language model's answers could be used. faults: the faults in the sources'
    boxes. memory: as of `LoadOptions`; the embedded model's frozen network finds taught words.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        language_model: LanguageModel | ServedModel | None = None,
        *,
        threshold: float | None = None,
        wording: str = LANGUAGE_MODEL,
        memory: str | Path | None = "",
    ) -> None:
        if not sources:
            raise ModelError("a wrapper needs at least one source of candidates")
        if wording not in WORDINGS:
            raise ModelError(f"wording {wording!r}: want one of {', '.join(WORDINGS)}")
        self.sources = tuple(sources)
        self.clue = _clue_among(self.sources)
        self.language_model = language_model
        self.wording = wording
        self.rates = AnswerRates()
        self.faults = Faults()
        self.policy: str = WRAPPER
        self.num_views: int | None = 1
        self._lock, self._memory_folder = RLock(), memory
        self.threshold = threshold

    @classmethod
    def load(
        cls,
        candidates: Sequence[str | Source],
        language_model: str | Path | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        quantization: str = "none",
        threshold: float | None = None,
        wording: str = LANGUAGE_MODEL,
        memory: str | Path | None = None,
    ) -> Wrapper:
        """Open sources (those of lines: `clue_ros.wrapper.sources`) and load the language model.

        language_model: hub id, folder, GGUF file, the folder of `clue train wrapper`, or a server's
        address (`clue_ros.wrapper.served_model`); None: the rules choose. Raises ModelError.
        """
        require_wrapper(
            LoadOptions(
                WRAPPER,
                candidates=candidates,
                language_model=language_model,
                device=device,
                dtype=dtype,
                quantization=quantization,
            )
        )
        sources = open_sources(candidates, device, dtype)
        model = None
        if language_model:
            model = open_language_model(
                language_model, device=device, dtype=dtype, quantization=quantization
            )
        return cls(sources, model, threshold=threshold, wording=wording, memory=memory)

    # Properties.

    @property
    def model_name(self) -> str:
        """The sources and the language model, as they were named."""
        chooser = self.language_model.name if self.language_model else RULES
        return f"{WRAPPER} of {', '.join(s.name for s in self.sources)} with {chooser}"

    @property
    def device(self) -> str:
        """The language model's device; without one, that of the first detector that has one."""
        if self.language_model is not None:
            return str(self.language_model.device)
        places = (getattr(source, "device", None) for source in self.sources)
        return str(next((place for place in places if place is not None), "cpu"))

    @property
    def dtype(self) -> str:
        """The language model's weights' type; "float32" without one."""
        return self.language_model.dtype if self.language_model is not None else "float32"

    def memory_bytes(self) -> int:
        """Bytes of the weights of the language model and of the detectors that tell theirs."""
        parts = [source for source in self.sources if hasattr(source, "memory_bytes")]
        total = sum(int(part.memory_bytes()) for part in parts)
        return total + (self.language_model.memory_bytes() if self.language_model else 0)

    @property
    def answer_counts(self) -> Counter[str] | None:
        """Count the language model's answers of each kind; None without one."""
        if self.language_model is None:
            return None
        return Counter({kind.value: n for kind, n in self.rates.counts.items()})

    @property
    def threshold(self) -> float:
        """Probability of ambiguity from which it asks, 0..1; set it to None for the model's own."""
        if self._threshold is not None:
            return self._threshold
        model = self.language_model
        return model.settings.threshold if model is not None else DEFAULT_THRESHOLD

    @threshold.setter
    def threshold(self, threshold: float | None) -> None:
        if threshold is not None and not 0 <= threshold <= 1:
            raise ModelError(f"threshold {threshold!r} is no probability: want a number, 0 to 1")
        self._threshold = threshold

    # Grounder.

    def warm_up(self) -> None:
        """Make the first request as quick as the second: run the language model once on two boxes.

        Detectors are not run: a function or a file may have nothing to say about a grey picture.
        """
        if self.language_model is not None:
            pair = [Candidate(Box(x, 0.0, x + 30.0, 30.0), "object", 0.5) for x in (0.0, 34.0)]
            listing = self.language_model.read(pair, (64, 64))
            self.language_model.choose(listing, "the object")
        if self.clue is not None:
            self.clue.warm_up()

    def look(self, image: Image) -> WrapperView:
        """Take an image, uint8 RGB (H, W, 3); detectors run when it is known what is looked for.

        Raises BadImageError.
        """
        check_image(image)
        return WrapperView(np.ascontiguousarray(image))

    def candidates(self, view: WrapperView, dialogue: Dialogue) -> tuple[Candidate, ...]:
        """Return the detectors' boxes for a dialogue's nouns, with measured colours.

        It leaves out refused candidates.
        """
        nouns = self._nouns(dialogue)
        if nouns not in view.found:
            found = gather(self.sources, view.image, nouns, self.faults)
            view.found[nouns] = with_measured_colors(found, view.image)
        found = view.found[nouns]
        if not dialogue.refused:
            return found  # the same object for the same nouns: its listing is made once
        return tuple(c for c in found if not is_one_of(c.box, dialogue.refused))

    def _nouns(self, dialogue: Dialogue) -> tuple[str, ...]:
        """The nouns that decide what is found; none if the detectors list what they know."""
        return nouns_of(dialogue) if self._told else ()

    @property
    def _told(self) -> frozenset[str]:
        """The names of the sources with an open vocabulary."""
        return frozenset(s.name for s in self.sources if s.open_vocabulary)

    def ambiguity(self, view: WrapperView, expression: str | Dialogue) -> AmbiguityEstimate:
        """Judge whether a sentence, or a dialogue so far, names exactly one thing.

        Raises EmptyExpressionError or BadExpressionError.
        """
        if not isinstance(expression, Dialogue):
            expression = Dialogue(clean_text(expression))
        with self._lock:
            opinion = None
            if self.clue is not None and self.clue.knows(expression):
                opinion = self.clue.ambiguity(view.image, expression)
            taught = self._taught(view, expression)
            return taught.estimate if taught else self._estimate(view, expression, opinion)[0]

    def reply(
        self, view: WrapperView, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask, say that there is no such thing (NotFound), or point; if forced, point."""
        with self._lock:
            taught = self._taught(view, dialogue)
            if taught is not None:
                return reply_to(taught, force_grounding=force_grounding)
            said = self._said_by_clue(view, dialogue, force_grounding)
            estimate, verdict = self._estimate(view, dialogue, said.ambiguity if said else None)
            pointing = not estimate.is_ambiguous and (verdict.best is not None or said is not None)
            if force_grounding or pointing:
                return self._point(view, dialogue, verdict, estimate, said)
            if isinstance(said, Question) and not verdict.asks_well:
                if isinstance(said, NotFound) and verdict.probability < self.threshold:
                    # The detector lists what CLUE does not see.
                    estimate = replace(estimate, probability=verdict.probability)
                    return self._point(view, dialogue, verdict, estimate, said)
                return replace(said, ambiguity=estimate)
            if not verdict.left:
                return _not_found(dialogue, verdict, estimate)
            if len(verdict.left) == 1 and verdict.standing is None:
                asked = _proposal(verdict.left[0])
            else:
                asked = self._question(verdict, dialogue)
        question = as_question(asked, verdict.left, estimate)
        by_box = {peak.box: peak for peak in estimate.peaks}
        peaks = tuple(by_box.get(box, Peak(box, 0.0, box.center)) for box in question.candidates)
        return replace(question, ambiguity=replace(estimate, peaks=peaks))

    def mask(self, view: WrapperView, grounding: Grounding) -> npt.NDArray[np.bool_]:
        """The pixels of a grounding's object, bool (H, W): GrabCut in its box."""
        from clue_ros.model.masks import grabcut_mask

        return grabcut_mask(view.image, grounding.box)

    def peak_masks(
        self, view: WrapperView, estimate: AmbiguityEstimate
    ) -> tuple[npt.NDArray[np.bool_], ...]:
        """The pixels of each candidate, bool (H, W), in the order of `estimate.peaks`."""
        from clue_ros.model.masks import grabcut_mask

        return tuple(grabcut_mask(view.image, peak.box) for peak in estimate.peaks)

    # Taught words.

    @cached_property
    def _taught_words(self) -> TaughtWords:
        return TaughtWords(open_memory(self._memory_folder, find_model(DEFAULT_MODEL)))

    @cached_property
    def _eyes(self) -> Checkpoint:
        """The model whose frozen network finds taught words."""
        return load_checkpoint(DEFAULT_MODEL)

    @property
    def memory(self) -> WordMemory:
        """The objects that people showed and named. Raises WordMemoryError and ModelError."""
        return self._taught_words.memory

    def teach(
        self, view: WrapperView, box: Box, name: str, *, who: str = "", instead: bool = False
    ) -> Word:
        """Learn what the thing in a box is called: see `clue_ros.engine.Clue.teach`."""
        with self._lock:
            name, example = (
                clean_name(name),
                make_example(self._seen(view).patches, view.image, box, who),
            )
            return self.memory.add(name, example, instead=instead)

    def _seen(self, view: WrapperView) -> View:
        if view.seen is None:  # by household's stem: its vision tower is not asked
            view.seen = View(view.image, Encoded(view.image, None), self._eyes)
        return view.seen

    def _taught(self, view: WrapperView, dialogue: Dialogue) -> Judged | None:
        """Return the candidates of a dialogue about taught words; None for another dialogue."""

        def others() -> LabelledObjects:
            things = _things(self.candidates(view, dialogue), self._told)
            return LabelledObjects(things, (view.width, view.height))

        return self._taught_words.judge(
            dialogue, lambda: self._seen(view), others, self.threshold, GRID
        )

    # Choosing.

    def _said_by_clue(
        self, view: WrapperView, dialogue: Dialogue, force_grounding: bool
    ) -> Question | Grounding | None:
        """CLUE's own reply; None without it, and where it lacks a word."""
        if self.clue is None or not self.clue.knows(dialogue):
            return None
        if force_grounding:
            return self.clue.point(view.image, dialogue)
        return self.clue.reply(view.image, dialogue)

    def _estimate(
        self, view: WrapperView, dialogue: Dialogue, opinion: AmbiguityEstimate | None
    ) -> tuple[AmbiguityEstimate, _Verdict]:
        """Estimate by the chooser, and by CLUE if it knows the words."""
        start = time.perf_counter()
        candidates = self.candidates(view, dialogue)
        try:
            if self.language_model is None:
                verdict = self._by_rules(view, dialogue, candidates)
            else:
                verdict = self._by_language_model(view, dialogue, candidates)
        except ServerError as error:
            self.rates.add(AnswerKind.NO_ANSWER)
            self.faults.add(LANGUAGE_MODEL, "no answer", 0, f"{error}. The rules choose instead")
            verdict = self._by_rules(view, dialogue, candidates)
        probability = verdict.probability
        if opinion is not None:
            probability = agreed_probability(probability, self.threshold, opinion)
        heat = _map(view, verdict)
        pairs = zip(verdict.candidates, verdict.chances, strict=True)
        chances = {c.box: chance for c, chance in pairs}
        peaks = tuple(Peak(c.box, chances.get(c.box, 0.0), c.box.center) for c in verdict.left)
        seconds = time.perf_counter() - start
        estimate = AmbiguityEstimate(probability, self.threshold, heat, peaks, seconds)
        return estimate, verdict

    def _by_rules(
        self, view: WrapperView, dialogue: Dialogue, candidates: tuple[Candidate, ...]
    ) -> _Verdict:
        size = view.width, view.height
        dialogue = dialogue.for_model()
        standing = follow(dialogue, LabelledObjects(_things(candidates, self._told), size))
        sources = {c.source for c in candidates}
        if not standing.candidates and set() < sources & self._told < sources:
            # Those that are told may know the noun that no label says.
            standing = follow(dialogue, LabelledObjects(_things(candidates), size))
        left = standing.candidates
        chance = RULE_CHANCE.get(0 if standing.guessed else len(left), 0.95)
        chance = 0.0 if standing.confirmed else chance
        best = max(left, key=lambda c: c.score, default=None)
        boxes = {c.box for c in left}
        chances = tuple(1 / len(left) if c.box in boxes else 0.0 for c in candidates)
        return _Verdict(chance, candidates, chances, left, best, standing)

    def _by_language_model(
        self, view: WrapperView, dialogue: Dialogue, candidates: tuple[Candidate, ...]
    ) -> _Verdict:
        assert self.language_model is not None
        if len(candidates) < 2:  # as in the paper: nothing to choose
            self.rates.add(AnswerKind.NOT_ASKED)
            chances = tuple(1.0 for _ in candidates)
            best = candidates[0] if candidates else None
            return _Verdict(0.0 if candidates else 1.0, candidates, chances, candidates, best)
        listed = self._nouns(dialogue), dialogue.refused
        context = dialogue.for_model().context()
        if listed not in view.listings:
            size = view.width, view.height
            view.listings[listed] = self.language_model.read(candidates, size)
        listing, key = view.listings[listed], (listed, context)
        if key not in view.choices:
            view.choices[key] = self.language_model.choose(listing, context)
            self.rates.add(view.choices[key].answer.kind)
        choice = view.choices[key]
        chance = ambiguity_of(choice, candidates)
        best = candidates[pointed_at(choice, candidates, dialogue)]
        if chance < self.threshold or not choice.answer.kind.is_valid:
            left: tuple[Candidate, ...] = (best,)
        elif choice.answer.kind is AnswerKind.NONE:
            left = ()
        else:
            left = tuple(
                candidates[i] for i in self._matching(candidates, listing, context, choice)
            )
        return _Verdict(chance, candidates, choice.probabilities, left, best)

    def _matching(
        self,
        candidates: tuple[Candidate, ...],
        listing: Listing,
        context: str,
        choice: Choice,
    ) -> tuple[int, ...]:
        """The indices of the things that still match; at least two where there are two things."""
        assert self.language_model is not None
        indices = choice.answer.indices
        if choice.answer.kind is not AnswerKind.ASK or not indices:
            indices = self.language_model.matching(listing, context)
        kept = distinct(indices, candidates)
        return kept if len(kept) > 1 else still_likely(choice, candidates)

    # Replies.

    def _point(
        self,
        view: WrapperView,
        dialogue: Dialogue,
        verdict: _Verdict,
        estimate: AmbiguityEstimate,
        said: Question | Grounding | None,
    ) -> Grounding:
        best = verdict.best
        if self.clue is not None and said is not None:
            own = said if isinstance(said, Grounding) else self.clue.point(view.image, dialogue)
            best = agreed_thing(verdict.left, verdict.candidates, own)
        if best is None and verdict.candidates:
            best = verdict.candidates[best_scored(verdict.candidates, dialogue)]
        if best is None:  # forced to point, and there is nothing
            whole = Box(0.0, 0.0, float(view.width), float(view.height))
            return Grounding(whole, described_object(dialogue.turns), 0.0, estimate)
        score = min(max(best.score, 0.0), 1.0)
        return Grounding(best.box, best.label or described_object(dialogue.turns), score, estimate)

    def _question(self, verdict: _Verdict, dialogue: Dialogue) -> Asked:
        """Return a question that tells the candidates apart, in the rules' or the model's words."""
        if verdict.standing is not None:
            size = (1, 1)  # the finder only describes here
            return question_for(verdict.standing, LabelledObjects(verdict.candidates, size))
        asked = template_question(verdict.left, dialogue)
        model = self.language_model
        if model is None or self.wording == RULES or not asked.options:
            return asked
        try:
            return worded(asked, dialogue, model.say)
        except ServerError:  # it has just answered: the rules' sentence stays
            return asked


def _clue_among(sources: Sequence[Source]) -> ClueSource | None:
    """The one `clue:` source, if any. Raises ModelError for two, and for nothing beside it."""
    found = [source for source in sources if isinstance(source, ClueSource)]
    if len(found) > 1:
        raise ModelError(f"candidates {found[0].name} and {found[1].name}: name one of them")
    if found and len(sources) == 1:
        raise ModelError(
            f"candidates {found[0].name} list no boxes: name a detector beside it, or use that"
            " model itself"
        )
    return found[0] if found else None


def template_question(left: Sequence[Candidate], dialogue: Dialogue) -> Asked:
    """The rules' question about candidates; the surest is shown, if that was asked already."""
    named = [c.known(**{KIND: c.label}) if c.label else c for c in left]
    known = told([turn.text for turn in dialogue.turns if turn.speaker == "user"])
    asked = question_about(named, known=known)
    earlier = [turn.text for turn in dialogue.turns if turn.speaker == "robot"]
    if sentence(asked.text) in earlier:
        plain = [Candidate(c.box, score=c.score, source=c.source) for c in left]
        again = question_about(plain, known=known)
        if sentence(again.text) in earlier:
            return proposal(max(named, key=lambda c: c.score), named, known=known)
        return again
    return asked


def _proposal(candidate: Candidate) -> Asked:
    return question_about([candidate.known(**{KIND: candidate.label or "object"})])


def _things(candidates: Sequence[Candidate], told: Collection[str] = ()) -> tuple[Candidate, ...]:
    """One candidate for each thing that several detectors found.

    told: sources with an open vocabulary. They find the noun in other things too, so they only add
    boxes where the others see nothing.
    """
    by_source: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_source.setdefault(candidate.source, []).append(candidate)
    found: tuple[Candidate, ...] = ()
    for source in sorted(by_source, key=lambda name: name in told):
        group = merge(by_source[source])
        if source in told:
            own = [c for c in found if c.source not in told]
            group = tuple(c for c in group if all(c.box.iou(o.box) < APART for o in own))
        found = unite(found, group, SAME_BOX)
    return found


def _map(view: WrapperView, verdict: _Verdict) -> npt.NDArray[np.float32]:
    """The candidates' probabilities as a map (GRID, GRID), 0..1: a detector has no attention."""
    heat = np.zeros((GRID, GRID), np.float32)
    highest = max(verdict.chances, default=0.0)
    for candidate, chance in zip(verdict.candidates, verdict.chances, strict=True):
        b = candidate.box
        x0, x1 = int(b.x_min / view.width * GRID), int(np.ceil(b.x_max / view.width * GRID))
        y0, y1 = int(b.y_min / view.height * GRID), int(np.ceil(b.y_max / view.height * GRID))
        part = heat[y0:y1, x0:x1]
        np.maximum(part, chance / highest if highest > 0 else 0.0, out=part)
    return heat


def _not_found(dialogue: Dialogue, verdict: _Verdict, estimate: AmbiguityEstimate) -> NotFound:
    name = read_phrase(dialogue.turns[-1].text).name or read_phrase(dialogue.request).name
    if verdict.standing is not None:
        name = verdict.standing.phrase.name
    of_rules = verdict.standing is not None and bool(verdict.standing.refused)
    refused = of_rules or bool(dialogue.refused)
    return not_found(name, estimate, another=refused)
