# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Who decides between a question and a box: one class a policy.

`Detector` is Figure 2 of the paper: adapter A judges, adapter B asks or points. `Decoder` is its
Algorithm 1: adapter B decides by its first token. `Both` puts the two judgements together
(`clue_ros.model.fusion`). `ZeroShot` is the base without adapters (`clue_ros.model.zero_shot`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from clue_ros.dialogue.noun_phrases import described_object
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Peak,
    Question,
)
from clue_ros.dialogue.words import missing_thing, offered_answers
from clue_ros.model.backbone import Array
from clue_ros.model.decoding import Generation, Mode, Prefill
from clue_ros.model.fusion import Fusion
from clue_ros.model.location_tokens import WHOLE
from clue_ros.model.multi_view import ZOOMED, Agreement, Window, agreed, settled, windows
from clue_ros.model.peaks import find_peaks
from clue_ros.model.ranking import NOT_SHOWN, Evidence, said_alone, shortlist
from clue_ros.model.zero_shot import judge, reply_to

SUREST = 0.95
"""Score above which hardly any box of a photograph lies: what it could not revise stands."""
DOUBTED, SEVERAL = 0.5, 0.85
"""Score below which the picture is looked at from farther off, and the probability of ambiguity
from which it is not: several things fit, and a better box is of any of them."""
SMALL, LARGE = 0.15, 0.25
"""Shares of a side of the picture. A box smaller than SMALL is not looked for from farther off, one
smaller than LARGE is not taken from there: small things are seen worse. Five photographs and
simulated validation scenes chose DOUBTED and LARGE; SEVERAL and SMALL spare looks that change
nothing."""

if TYPE_CHECKING:
    from clue_ros.dialogue.chooser import Standing
    from clue_ros.model.checkpoint import Checkpoint
    from clue_ros.model.view import View


@dataclass
class Settings:
    """What a caller may change between two replies; None: the model's own.

    See `clue_ros.model.load_options.LoadOptions`.
    """

    threshold: float | None
    num_views: int | None
    doubtful_score: float | None


class Policy(ABC):
    """Decides between a question and a box."""

    name: ClassVar[str]

    def __init__(self, checkpoint: Checkpoint, settings: Settings) -> None:
        self.checkpoint, self.settings = checkpoint, settings

    @property
    def threshold(self) -> float:
        """Probability of ambiguity from which it asks, 0..1."""
        own = self.settings.threshold
        return self._fitted_threshold if own is None else own

    @property
    @abstractmethod
    def _fitted_threshold(self) -> float:
        """The model's own."""

    @abstractmethod
    def judge(self, view: View, dialogue: Dialogue) -> AmbiguityEstimate:
        """Estimate whether the dialogue so far names exactly one thing in the image."""

    def decide(
        self, view: View, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask, say that there is no such thing (NotFound), or point; if forced, point."""
        return self.consider(view, dialogue).reply(force_grounding)

    def consider(self, view: View, dialogue: Dialogue) -> Considered:
        """Read a dialogue once, for what `decide` replies and for what it replies if forced."""
        return Considered(self, view, dialogue, self._seen(view, dialogue))

    @abstractmethod
    def _seen(self, view: View, dialogue: Dialogue) -> Any:
        """The estimate, and what decides with it."""

    @abstractmethod
    def decided(
        self, view: View, dialogue: Dialogue, seen: Any, force_grounding: bool
    ) -> Question | Grounding:
        """`decide` after `_seen`."""

    def glanced(self, view: View, dialogue: Dialogue, seen: Any) -> Box | None:
        """See `Considered.glance`, after `_seen`."""
        reply = self.decided(view, dialogue, seen, True)
        return reply.box if isinstance(reply, Grounding) else None

    @abstractmethod
    def warm_up(self, view: View, dialogue: Dialogue) -> None:
        """Run once whatever a reply may need."""


@dataclass(frozen=True)
class Considered:
    """A dialogue about an image, as a policy has read it. seen: what decides."""

    policy: Policy
    view: View
    dialogue: Dialogue
    seen: Any

    def reply(self, force_grounding: bool) -> Question | Grounding:
        """See `Policy.decide`."""
        return self.policy.decided(self.view, self.dialogue, self.seen, force_grounding)

    def glance(self) -> Box | None:
        """Point by the whole image alone: a box in pixels, or None. It takes milliseconds.

        As good to be confirmed as the box that it would answer: of 151 such questions on simulated
        validation scenes and photographs 92 and 91 showed the right thing, and 77 without either.
        """
        return self.policy.glanced(self.view, self.dialogue, self.seen)


@dataclass
class _Read:
    """A context as adapter B has read it.

    first: in the whole image. further: in each further view that was asked, in their order. box:
    where it points, once that was needed.
    """

    first: Prefill | None = None
    further: list[Prefill] = field(default_factory=list)
    box: Agreement | None = None


class Detector(Policy):
    """The detector decides whether to ask; adapter B says what, or where."""

    name: ClassVar[str] = "detector"

    @property
    def _fitted_threshold(self) -> float:
        return self.checkpoint.detector.settings.threshold

    @property
    def num_views(self) -> int:
        """Number of views of a picture that agree on the box, 1 to 5."""
        own = self.settings.num_views
        return self.checkpoint.ivg.num_views if own is None else own

    @property
    def doubtful_score(self) -> float:
        """Score of the first view's box up to which the second view is looked at, 0..1."""
        own = self.settings.doubtful_score
        return self.checkpoint.ivg.doubtful_score if own is None else own

    def judge(self, view: View, dialogue: Dialogue) -> AmbiguityEstimate:
        """See `Policy`."""
        return self._read(view, dialogue.context())[0]

    def _seen(self, view: View, dialogue: Dialogue) -> tuple[AmbiguityEstimate, _Read]:
        return self._read(view, dialogue.context())

    def decided(
        self, view: View, dialogue: Dialogue, seen: Any, force_grounding: bool
    ) -> Question | Grounding:
        """See `Policy`."""
        context, label = dialogue.context(), described_object(dialogue.turns)
        estimate, read = seen
        if force_grounding and read.box is not None:  # a denial or a question was held against it
            return Grounding(read.box.box, label, read.box.score, estimate, read.box.via)
        mode = "grounding" if force_grounding else self._mode(estimate)
        said, first = self._say(view, context, mode, read)
        question = None if said.codes else self._question(said, estimate)
        if question is not None:
            if not (isinstance(question, NotFound) and self._may_be_there(estimate)):
                return question
            said = self.checkpoint.speak(view.features, context, "grounding", first)
        found = read.box = self._box(said, view, context, estimate, first, read.further)
        turned = None if force_grounding else self._turned(estimate, found)
        if question is not None and turned is None:
            return question
        if question is None and turned is not None:
            said = self.checkpoint.speak(view.features, context, "question", first)
            return self._question(said, turned)
        return Grounding(found.box, label, found.score, turned or estimate, found.via)

    def glanced(self, view: View, dialogue: Dialogue, seen: Any) -> Box | None:
        """See `Policy`."""
        _, read = seen
        said, _ = self._say(view, dialogue.context(), "grounding", read)
        whole = self._windows(view, ())[0]
        return None if said.codes is None else whole.box(said.codes)

    def point(self, view: View, context: str) -> tuple[AmbiguityEstimate, Agreement]:
        """The estimate, and where it points if it has to. context: `Dialogue.context`."""
        estimate, read = self._read(view, context)
        said, first = self._say(view, context, "grounding", read)
        return estimate, self._box(said, view, context, estimate, first, read.further)

    def _say(self, view: View, context: str, mode: Mode, read: _Read) -> tuple[Generation, Prefill]:
        """What adapter B says of the whole image, and the context as it has read it."""
        first = read.first or self.checkpoint.read(view.features, context)
        return self.checkpoint.speak(view.features, context, mode, first), first

    def warm_up(self, view: View, dialogue: Dialogue) -> None:
        """See `Policy`: judge, ask, and point in all views."""
        context = dialogue.context()
        estimate = self.decide(view, dialogue, force_grounding=True).ambiguity
        self._question(self.checkpoint.speak(view.features, context, "question"), estimate)
        further = view.through(self._windows(view, estimate.peaks)[1:])
        if further is not None:  # all at once without a box head
            alone = self.checkpoint.box_head is not None
            self.checkpoint.point(further[:1] if alone else further, context)

    def _read(self, view: View, context: str) -> tuple[AmbiguityEstimate, _Read]:
        """The estimate, and the context as adapter B has read it if it was asked too."""
        start = time.perf_counter()
        estimate, first = self._judged(view, context)
        opinion = self._second_opinion(estimate.probability, view, context, estimate.peaks, first)
        probability, read = opinion
        seconds = time.perf_counter() - start
        return replace(estimate, probability=probability, seconds=seconds), read

    def _judged(self, view: View, context: str) -> tuple[AmbiguityEstimate, Prefill | None]:
        """The detector's estimate, and the context if its adapter has read it for adapter B too."""
        probability, attention, first = self.checkpoint.judge_and_read(view.features, context)
        peaks = find_peaks(attention, view.width, view.height)
        return AmbiguityEstimate(probability, self.threshold, attention, peaks, 0.0), first

    def _second_opinion(
        self,
        probability: float,
        view: View,
        context: str,
        peaks: Sequence[Peak],
        first: Prefill | None,
    ) -> tuple[float, _Read]:
        return probability, _Read(first)

    def _may_be_there(self, estimate: AmbiguityEstimate) -> bool:
        """Whether a box could speak against a denial."""
        return False

    def _turned(self, estimate: AmbiguityEstimate, found: Agreement) -> AmbiguityEstimate | None:
        """The estimate after the box has been seen, if it decides otherwise then; else None."""
        return None

    def _mode(self, estimate: AmbiguityEstimate) -> Mode:
        return "question" if estimate.is_ambiguous else "grounding"

    def _question(self, said: Generation, estimate: AmbiguityEstimate) -> Question:
        text = self.checkpoint.words(said)
        missing = missing_thing(text)
        if missing is not None:
            return NotFound(text, (), (), estimate, missing)
        candidates = tuple(peak.box for peak in estimate.peaks)
        return Question(text, candidates, offered_answers(text), estimate)

    def _box(
        self,
        said: Generation,
        view: View,
        context: str,
        estimate: AmbiguityEstimate,
        first: Prefill,
        further: Sequence[Prefill],
    ) -> Agreement:
        """The box of the views (`_agreement`); if it is doubtful, perhaps that from farther off."""
        found = self._agreement(said, view, context, estimate, first, further)
        is_scored = found.evidence is not None and self.checkpoint.box_score is not None
        is_doubtful = found.score < DOUBTED and estimate.probability < SEVERAL
        if not (is_scored and is_doubtful and self.num_views > ZOOMED):
            return found
        width, height = float(view.width), float(view.height)

        def side(box: Box) -> float:
            return max(box.width / width, box.height / height)

        if side(found.box) < SMALL:
            return found
        afar, window = view.afar
        estimate, prefill = self._judged(afar, context)
        said, first = self._say(afar, context, "grounding", _Read(prefill))
        again = self._agreement(said, afar, context, estimate, first, ())
        box = again.box.moved(window.x_min, window.y_min).clipped(width, height)
        is_better = again.evidence is not None and again.score > found.score
        return replace(again, box=box) if is_better and side(box) >= LARGE else found

    def _agreement(
        self,
        said: Generation,
        view: View,
        context: str,
        estimate: AmbiguityEstimate,
        first: Prefill,
        further: Sequence[Prefill],
    ) -> Agreement:
        """The box of the first view; where that leaves a doubt, that of two views or of all.

        With a box head, in doubt the best of the decoder's boxes and the head's
        (`clue_ros.model.ranking`), of two views if the decision asked no more. first: the context
        as the first view read it. further: as the further views did that were asked.
        """
        through = self._windows(view, estimate.peaks)
        found, read = [said], [first]
        is_sure = said.score > self.doubtful_score
        if not is_sure:
            known = view.through(through[1 : 1 + len(further)])
            for place, prefill in enumerate(further):
                self._ask(known[place : place + 1], context, prefill, found, read)
            has_head, asks_all = self.checkpoint.box_head is not None, self.doubtful_score == 1
            if len(found) == 1 < len(through) and (has_head or not asks_all):
                self._ask(view.through(through[1:2]), context, None, found, read)
            is_settled = has_head or (len(found) > 1 and not asks_all and settled(found, through))
            if len(found) < len(through) and not is_settled:
                rest = view.through(through[1:])[len(found) - 1 :]
                self._ask(rest, context, None, found, read)
        agreement = agreed(found, through[: len(found)])
        # Counted: the words say which one more exactly than its looks.
        if said.via or self.checkpoint.box_head is None:
            return agreement
        if is_sure:
            box = agreement.box.in_fractions(view.width, view.height)
            return self._scored(agreement, said_alone(said.score, estimate.attention, box))
        return self._ranked(agreement, found, read, through, view, estimate)

    def _ask(
        self,
        features: Array,
        context: str,
        prefill: Prefill | None,
        found: list[Generation],
        read: list[Prefill],
    ) -> None:
        """Add the groundings of further views, and the context as they read it."""
        prefill = prefill or self.checkpoint.read(features, context)
        found += self.checkpoint.point(features, context, prefill)
        read.append(prefill)

    def _ranked(
        self,
        agreement: Agreement,
        found: Sequence[Generation],
        read: Sequence[Prefill],
        through: Sequence[Window],
        view: View,
        estimate: AmbiguityEstimate,
    ) -> Agreement:
        """The best of the views' boxes, what they agree on, and the box head's candidates."""
        box_map = view.box_map
        assert box_map is not None
        replies = zip(found, through[: len(found)], strict=True)
        boxes = [window.box(reply.codes) for reply, window in replies if reply.codes is not None]
        own = [agreement.box, *(box for box in boxes if box is not None)]
        size = view.width, view.height
        listed = shortlist(box_map, estimate.attention, [b.in_fractions(*size) for b in own])
        meant = [box.in_pixels(*size) for box in listed.boxes]
        read, seen = read[:2], through[: len(read[:2])]  # a third view hardly differs
        codes = [[window.codes(box) for box in meant] for window in seen]
        steps = np.array([[code or WHOLE for code in row] for row in codes])
        is_shown = np.array([[code is not None for code in row] for row in codes])
        rated, rows = np.zeros(steps.shape[:2]), 0
        for prefill in read:
            part = slice(rows, rows + len(prefill.logits))
            rated[part], rows = self.checkpoint.rate(prefill, steps[part]), part.stop
        at, evidence = listed.best(np.where(is_shown, rated, NOT_SHOWN))
        return self._scored(replace(agreement, box=meant[at]), evidence)

    def _scored(self, agreement: Agreement, evidence: Evidence) -> Agreement:
        """An agreement with its evidence, and with the score that was fitted to it, if one was."""
        fit = self.checkpoint.box_score
        score = agreement.score if fit is None else fit.of(evidence)
        return replace(agreement, score=score, evidence=evidence)

    def _windows(self, view: View, peaks: Sequence[Peak]) -> list[Window]:
        """The windows of all views of an image, where the words attend to these peaks."""
        attended, zooms = [peak.box for peak in peaks], self.checkpoint.box_head is not None
        return windows(self.num_views, view.width, view.height, attended, zoom_first=zooms)


class Decoder(Detector):
    """Adapter B decides by what it says; the detector's map shows the candidates."""

    name: ClassVar[str] = "decoder"

    def _mode(self, estimate: AmbiguityEstimate) -> Mode:
        return "free"


class Both(Detector):
    """Detector and decoder put together; in doubt the further views are asked too.

    The box revises the decision: one that is trusted too little becomes a question, and one that is
    trusted enough takes the place of "I don't see ...".
    """

    name: ClassVar[str] = "both"

    @property
    def fusion(self) -> Fusion:
        """The fit for this pair of adapters."""
        assert self.checkpoint.fusion is not None
        return self.checkpoint.fusion

    @property
    def _fitted_threshold(self) -> float:
        own = self.fusion.threshold
        return super()._fitted_threshold if own is None else own

    def _second_opinion(
        self,
        probability: float,
        view: View,
        context: str,
        peaks: Sequence[Peak],
        first: Prefill | None,
    ) -> tuple[float, _Read]:
        if first is None:
            own, first = self.checkpoint.second_opinion(view.features, context)
        else:  # the detector's adapter has read it
            own = self.checkpoint.question_share(first)
        opinions, read = [(probability, own)], _Read(first)
        through = self._windows(view, peaks)[1:]
        for count in range(1, len(through) + 1):
            if self.fusion.is_sure(self.fusion.agreed(opinions)):
                break
            more, prefill = self.checkpoint.opinions(view.through(through[:count])[-1:], context)
            opinions += more
            read.further.append(prefill)
        return self.fusion.agreed(opinions), read

    def _may_be_there(self, estimate: AmbiguityEstimate) -> bool:
        if self.checkpoint.box_score is None:
            return False
        return self.fusion.after(estimate.probability, SUREST) < self.threshold

    def _turned(self, estimate: AmbiguityEstimate, found: Agreement) -> AmbiguityEstimate | None:
        if found.evidence is None or self.checkpoint.box_score is None:
            return None
        revised = replace(
            estimate, probability=self.fusion.after(estimate.probability, found.score)
        )
        return None if revised.is_ambiguous == estimate.is_ambiguous else revised


class ZeroShot(Policy):
    """The base's own tasks give the candidates; words and geometry decide."""

    name: ClassVar[str] = "zero-shot"

    @property
    def _fitted_threshold(self) -> float:
        return self.checkpoint.zero_shot.threshold

    def judge(self, view: View, dialogue: Dialogue) -> AmbiguityEstimate:
        """See `Policy`."""
        return self._seen(view, dialogue)[0]

    def decided(
        self, view: View, dialogue: Dialogue, seen: Any, force_grounding: bool
    ) -> Question | Grounding:
        """See `Policy`."""
        estimate, standing = seen
        settings = self.checkpoint.zero_shot
        return reply_to(view.base, standing, estimate, settings, force_grounding=force_grounding)

    def warm_up(self, view: View, dialogue: Dialogue) -> None:
        """See `Policy`."""
        self.decide(view, dialogue, force_grounding=True)

    def _seen(self, view: View, dialogue: Dialogue) -> tuple[AmbiguityEstimate, Standing]:
        start = time.perf_counter()
        judged = judge(view.base, dialogue, self.checkpoint.zero_shot)
        seconds = time.perf_counter() - start
        estimate = AmbiguityEstimate(
            judged.probability, self.threshold, judged.attention, judged.peaks, seconds
        )
        return estimate, judged.standing


BY_NAME: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Detector, Decoder, Both, ZeroShot)
}
