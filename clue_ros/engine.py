# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Clue: the one object a caller holds.

Look at an image, judge a sentence, reply (the paper's Algorithm 1 and Figure 2).

    clue = Clue.load()
    view = clue.look(image)
    reply = clue.reply(view, Dialogue("pick up the block"))

Importing this module is cheap; the model's code is imported by `Clue.load`. Calls are serialised:
the two adapters share one model.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.chooser import not_found
from clue_ros.dialogue.helpful import helpful, is_one_of, sentence
from clue_ros.dialogue.noun_phrases import described_object, read_phrase
from clue_ros.dialogue.nouns import in_one_form
from clue_ros.dialogue.sayings import this_one
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    asked_about,
    clean_text,
)
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.images import check_image
from clue_ros.model.load_options import (
    LoadOptions,
    check_max_risk,
    check_policy,
    check_score,
    check_threshold,
    check_views,
)
from clue_ros.model.loading import CALIBRATION, DEFAULT_MODEL
from clue_ros.model.risk import Calibration, Promise, load_calibration
from clue_ros.model.view import Encoded, Image, View
from clue_ros.requirements import missing

if TYPE_CHECKING:
    from clue_ros.model.checkpoint import Checkpoint
    from clue_ros.model.policies import Considered, Policy
    from clue_ros.model.taught_replies import Judged, Opinion, TaughtWords
    from clue_ros.model.unknown_words import Unknown
    from clue_ros.model.word_memory import Word, WordMemory

__all__ = ["Clue", "Image", "View"]

_NEEDS = {
    "detector": "adapter A (folder detector)",
    "decoder": "adapter B (folder ivg)",
    "both": "both adapters (folders detector and ivg)",
    "zero-shot": "nothing",
}
NOT_FITTED = (
    "policy 'both' was not fitted for these adapters (no fusion.json): the detector alone decides."
    " Fit it with `clue train policy`, or name policy 'detector' or 'decoder'"
)


class Clue:
    """A loaded model and a policy. Make one with `Clue.load`."""

    def __init__(self, checkpoint: Checkpoint, options: LoadOptions) -> None:
        from clue_ros.model.policies import Settings

        self._checkpoint, self._name = checkpoint, str(options.model)
        self._settings = Settings(options.threshold, options.num_views, options.doubtful_score)
        self._lock = RLock()
        self._last: Encoded | None = None  # the image that was looked at last
        self._calibration = options.calibration
        self._folder = checkpoint.folder or checkpoint.base
        self._memory_folder = options.memory
        self.policy = options.policy
        self.max_risk = options.max_risk

    @classmethod
    def load(cls, model: str | Path | LoadOptions = DEFAULT_MODEL, **settings: Any) -> Clue:
        """Load an embedded model by its name, a model folder, or a hub id.

        settings: further attributes of `clue_ros.model.load_options.LoadOptions`, such as device,
        dtype, policy, threshold, num_views, max_risk, detector, ivg, revision and quantization. For
        policy "both" a model without a fit (`clue train policy`) takes the detector, with a
        warning; a model with one adapter alone takes that one, a base without adapters "zero-shot".

        Raises ModelError naming the file, the value or the shape that is wrong.
        """
        options = LoadOptions.of(model, settings)
        try:
            from clue_ros.model.checkpoint import load_checkpoint
        except ImportError as error:
            reason = missing(error.name or "?", "a model")
            raise ModelError(f"{reason} ({error})") from error
        checkpoint = load_checkpoint(options)
        clue = cls(checkpoint, options)
        unfitted = (options.policy, clue.policy) == ("both", "detector")
        if unfitted and "decoder" in checkpoint.policies:
            warnings.warn(NOT_FITTED, ClueWarning, stacklevel=2)
        if clue.not_promised:
            warnings.warn(clue.not_promised, ClueWarning, stacklevel=2)
        return clue

    @property
    def model_name(self) -> str:
        """What was loaded, as it was named."""
        return self._name

    @property
    def checkpoint(self) -> Checkpoint:
        """The model's parts, for evaluations that need more than replies."""
        return self._checkpoint

    @property
    def device(self) -> str:
        """Where the model runs, such as "cpu" or "cuda:0"."""
        return self._checkpoint.backbone.device

    @property
    def dtype(self) -> str:
        """The weights' type, such as "float32"; "mixed": with matrix products in bfloat16."""
        return self._checkpoint.backbone.dtype

    @property
    def grid(self) -> int:
        """Side of the attention map in image patches."""
        return self._checkpoint.grid

    @property
    def policy(self) -> str:
        """Who decides between asking and pointing: "detector", "decoder", "both", "zero-shot".

        Set to "both" without a fit for this pair of adapters, it becomes "detector"; of a model
        with one adapter, the only one that there is; of a base without adapters, "zero-shot".
        """
        return self._policy.name

    @policy.setter
    def policy(self, policy: str) -> None:
        from clue_ros.model.policies import BY_NAME

        check_policy(policy)
        allowed = self._checkpoint.policies
        if policy == "both" and self._checkpoint.stale_fusion:
            raise ModelError(self._checkpoint.stale_fusion)
        if policy == "both" and policy not in allowed:
            policy = allowed[-1]
        if policy not in allowed:
            raise ModelError(
                f"policy {policy!r} needs {_NEEDS[policy]}, which this model lacks; it has policies"
                f" {', '.join(allowed)}"
            )
        self._policy: Policy = BY_NAME[policy](self._checkpoint, self._settings)

    @property
    def decides(self) -> Policy:
        """The object that decides, for evaluations that need more than replies."""
        return self._policy

    @property
    def threshold(self) -> float:
        """Probability from which a sentence counts as ambiguous, 0..1.

        Set it to None for the model's own, which was chosen on validation requests: the detector's,
        or with policy "both" that of the two together.
        """
        return self._policy.threshold

    @threshold.setter
    def threshold(self, threshold: float | None) -> None:
        check_threshold(threshold)
        self._settings.threshold = None if threshold is None else float(threshold)

    @property
    def num_views(self) -> int:
        """Number of views of a picture that agree on the box, 1 to 5 (test-time augmentation).

        1 is the paper's. The further views shift or scale the picture a little, the third is zoomed
        at what the words attend to; the box's score falls where they disagree
        (`clue_ros.model.multi_view`). The first view alone decides whether the second is needed for
        the box (`doubtful_score`); the others are needed where those two disagree. The first view
        alone decides whether to ask, unless policy "both" was fitted to ask the others in doubt
        (`clue_ros.model.fusion`, `sure`). With a box head the zoomed view comes second, and for a
        box alone last. Set it to None for the model's own number.
        """
        own = self._settings.num_views
        return self._checkpoint.ivg.num_views if own is None else own

    @num_views.setter
    def num_views(self, num_views: int | None) -> None:
        check_views(num_views)
        self._settings.num_views = num_views

    @property
    def doubtful_score(self) -> float:
        """Score of the first view's box up to which the second view and a box head are asked, 0..1.

        The other views follow where the two disagree (`clue_ros.model.multi_view.settled`). 1: all
        views for every box. Set it to None for the model's own.
        """
        own = self._settings.doubtful_score
        return self._checkpoint.ivg.doubtful_score if own is None else own

    @doubtful_score.setter
    def doubtful_score(self, score: float | None) -> None:
        check_score(score)
        self._settings.doubtful_score = None if score is None else float(score)

    @property
    def max_risk(self) -> float | None:
        """Share of requests that may end in a wrong box without a confirmation, 0..1.

        None: no bound, boxes are as sure as their score says. With a bound the robot shows a box
        that it trusts too little, and asks "this one?" (a `Question` with `confirm`). It shows all
        of them where nothing is promised: without a calibration or with one of too few requests,
        for another policy or adapter than was calibrated, on a picture unlike those of the
        calibration, and after an answer in words (`clue_ros.model.risk`).
        """
        return None if self._promise is None else self._promise.max_risk

    @max_risk.setter
    def max_risk(self, max_risk: float | None) -> None:
        check_max_risk(max_risk)
        self._promise: Promise | None = None
        if max_risk is None:
            return
        self._promise = Promise(float(max_risk), self._own_calibration())

    def _own_calibration(self) -> Calibration | None:
        """That of the options, else the one beside the taught words, else the model's."""
        if self._calibration is not None:
            return load_calibration(Path(self._calibration).expanduser())
        places = self.memory.folder, self._folder
        folders = [folder for folder in places if folder is not None]
        paths = [folder / CALIBRATION for folder in folders if (folder / CALIBRATION).is_file()]
        return load_calibration(paths[0]) if paths else None

    @property
    def not_promised(self) -> str:
        """Why every box is shown although `max_risk` is set, in one line; else empty."""
        problem = self._promise.problem(self.decision()) if self._promise is not None else ""
        if not problem:
            return ""
        return f"max_risk is not promised, so every box is shown and asked about: {problem}"

    def decision(self) -> dict[str, Any]:
        """What decides between a question and a box, for which alone a calibration holds."""
        return {
            "policy": self.policy,
            "threshold": self.threshold,
            "num_views": self.num_views,
            "doubtful_score": self.doubtful_score,
            "weights": self._checkpoint.digest,
        }

    @cached_property
    def _taught_words(self) -> TaughtWords:
        from clue_ros.model.taught_replies import TaughtWords

        return TaughtWords(self.memory)

    @cached_property
    def memory(self) -> WordMemory:
        """The objects that people showed and named (`teach`).

        Raises WordMemoryError for a folder that cannot be read, or was taught with another vision
        tower.
        """
        from clue_ros.model.word_memory import open_memory

        return open_memory(self._memory_folder, self._folder)

    def teach(
        self, view: View, box: Box, name: str, *, who: str = "", instead: bool = False
    ) -> Word:
        """Learn what the thing in a box (pixels) is called; the word as it is known from now on.

        who: shows it. instead: the box is no longer an example of another word. Raises
        BadNameError, BadBoxError and WordMemoryError.
        """
        from clue_ros.model.taught import make_example
        from clue_ros.model.word_memory import clean_name

        name = clean_name(name)
        with self._lock:
            view = self._own(view)
            example = make_example(view.patches, view.image, box, who)
            return self.memory.add(name, example, instead=instead)

    def warm_up(self) -> None:
        """Make the first request as quick as the second: judge, ask, and point in all views once.

        By the policy and the number of views that are set. What a first run prepares (the merged
        weights of both adapters, kernels for one image and for a batch) stays.
        """
        from clue_ros.model.tasks import WHAT_IS

        view = self.look(np.full((64, 64, 3), 127, np.uint8))
        with self._lock:
            self._policy.warm_up(view, Dialogue("the object"))
            # What a question is held against (`_other`).
            view.base.detect(["object"])
            view.base.answer(WHAT_IS, [Box(0, 0, view.width, view.height)])

    def memory_bytes(self) -> int:
        """Bytes of weights: one backbone, two adapters, one head."""
        return self._checkpoint.memory_bytes()

    def look(self, image: Image) -> View:
        """Run the vision tower, once for all questions about this image: uint8 RGB (H, W, 3).

        The same pixels as in the last call are not encoded again. The view refers to a contiguous
        image's memory: do not write to it while you use the view. Raises BadImageError.
        """
        check_image(image)
        image = np.ascontiguousarray(image)
        with self._lock:
            if self._last is None or not np.array_equal(self._last.pixels, image):
                self._last = None  # before the next one takes memory
                self._last = Encoded(image.copy(), self._checkpoint.look(image))
            return View(image, self._last, self._checkpoint)

    def _own(self, view: View) -> View:
        """The view; one that another Clue made is looked at again."""
        return view if view.checkpoint is self._checkpoint else self.look(view.image)

    def ambiguity(self, view: View, expression: str | Dialogue) -> AmbiguityEstimate:
        """Judge whether this sentence, or dialogue so far, names exactly one thing in the image.

        With policy "both" the probability is the detector's and the decoder's own (that it would
        not open with a location) put together (`clue_ros.model.fusion`). It takes another pass
        through the whole decoder, which a `reply` needs anyway.

        Raises EmptyExpressionError or BadExpressionError for a sentence that cannot be used.
        """
        if not isinstance(expression, Dialogue):
            expression = Dialogue(clean_text(expression))
        with self._lock:
            view = self._own(view)
            taught = self._taught(view, expression)
            if taught is not None:
                return taught.estimate
            return self._policy.judge(view, in_one_form(expression.for_model()))

    def peak_masks(
        self, view: View, estimate: AmbiguityEstimate
    ) -> tuple[npt.NDArray[np.bool_], ...]:
        """The pixels of the object under each of the estimate's peaks, bool (H, W) of the image.

        In the order of `estimate.peaks`, which is that of a question's candidates. Colours and the
        map decide (`clue_ros.model.masks`).
        """
        from clue_ros.model.masks import peak_object_mask

        return tuple(
            peak_object_mask(view.image, peak, estimate.attention) for peak in estimate.peaks
        )

    def mask(self, view: View, grounding: Grounding) -> npt.NDArray[np.bool_]:
        """The pixels of a grounding's object, bool (H, W) of the view's image; never empty.

        With a mask decoder (`mask_decoder` of `load`) PaliGemma's own answer to "segment NOUN" for
        this box; without one, or where that answer is empty, GrabCut in the box
        (`clue_ros.model.masks`).
        """
        from clue_ros.model.masks import grabcut_mask

        decoder = self._checkpoint.mask_decoder
        if decoder is not None:
            with self._lock:
                features = self._own(view).features
                tokens = self._checkpoint.segment(
                    features, grounding.label, grounding.box, view.width, view.height
                )
            mask = decoder.mask(tokens, grounding.box, view.width, view.height)
            if mask.any():
                return mask
        return grabcut_mask(view.image, grounding.box)

    def reply(
        self, view: View, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask, say that there is no such thing (NotFound, a Question), or point.

        What the tokenizer has no word for is never pointed at: the robot says that it does not know
        it, and asks by what it sees (NotFound), unless `force_grounding` is set. Without a modifier
        or a landmark that it does not know the robot points or asks by the rest, and its box is not
        firm (`clue_ros.model.unknown_words`).

        A question is held against what the base sees, whatever the policy
        (`clue_ros.dialogue.helpful`): each of its answers is bound to candidates that match what
        was said, or it shows one to be confirmed. What the person refused (`Dialogue.refused`) is
        neither shown again nor pointed at.

        The dialogue is not changed: add a question to it with `dialogue.add_question(reply.text)`.

        With `force_grounding` the robot points whatever the policy says (its questions are used
        up), and whatever `max_risk` says. Else that turns boxes into "this one?".

        The model reads every text as a request or an answer, a refusal too. Use
        `clue_ros.dialogue.conversation.Conversation` for what a person says: it ends the dialogue
        at a refusal, and asks again for what names nothing.
        """
        with self._lock:
            view = self._own(view)
            reply = self._reply(view, dialogue, force_grounding)
            promise = None if force_grounding else self._promise
            return reply if promise is None else self._kept(promise, view, dialogue, reply)

    def _kept(
        self, promise: Promise, view: View, dialogue: Dialogue, reply: Question | Grounding
    ) -> Question | Grounding:
        """The reply under a promise: a box that it trusts too little becomes "this one?"."""
        in_force = not promise.problem(self.decision()) and promise.is_known(view.features)
        reply = replace(reply, max_risk=promise.max_risk if in_force else math.nan)
        if isinstance(reply, Question):
            return reply
        # First replies were calibrated: after an answer in words every box is shown.
        first = len(dialogue.turns) == 1
        if in_force and first and promise.trusts(reply.score, reply.ambiguity.probability):
            return reply
        return asked_about(reply, this_one(reply.label))

    def _reply(self, view: View, dialogue: Dialogue, force_grounding: bool) -> Question | Grounding:
        from clue_ros.model.unknown_words import UNSURE, unknown_words

        taught = self._taught(view, dialogue)
        if taught is not None:
            from clue_ros.model.taught_replies import reply_to

            return reply_to(taught, force_grounding=force_grounding)
        refused, dialogue = dialogue.refused, in_one_form(dialogue.for_model())
        unknown = unknown_words(self._checkpoint.processor.tokenizer, dialogue)
        if unknown.thing and not force_grounding:
            return self._ask_instead(view, unknown)
        considered = self._policy.consider(view, unknown.known)
        reply = considered.reply(force_grounding)
        if isinstance(reply, NotFound):
            return replace(reply, text=sentence(reply.text))
        if isinstance(reply, Question) or is_one_of(reply.box, refused):
            reply = self._other(considered, reply, refused, force=force_grounding)
        first = len(dialogue.turns) == 1 and not force_grounding
        if isinstance(reply, Grounding) and first and self.memory.words:
            phrase = read_phrase(dialogue.request)
            noun = "" if phrase.is_generic else phrase.noun
            reply = self._taught_words.checked(reply, noun, lambda: view.patches)
        if not unknown.words:
            return reply
        if isinstance(reply, Grounding):
            label, score = described_object(dialogue.turns), min(reply.score, UNSURE)
            return replace(reply, label=label, score=score)
        return replace(reply, text=f"{unknown.doubt} {reply.text}") if unknown.doubt else reply

    def _taught(self, view: View, dialogue: Dialogue) -> Judged | None:
        """What a dialogue about taught words leaves; None for one about none."""
        if not self.memory.refresh():  # finding words takes OpenCV, whose import is slow
            return None
        from clue_ros.model.zero_shot import BaseFinder

        return self._taught_words.judge(
            dialogue,
            lambda: view,
            lambda: BaseFinder(view.base, self._checkpoint.zero_shot),
            self.threshold,
            self.grid,
            lambda: self._own_opinion(view, dialogue.for_model()),
        )

    def _own_opinion(self, view: View, dialogue: Dialogue) -> Opinion | None:
        """Return the reply that the model gives without its memory; None if it lacks a word."""
        from clue_ros.model.taught_replies import Opinion
        from clue_ros.model.unknown_words import unknown_words

        if unknown_words(self._checkpoint.processor.tokenizer, dialogue).words:
            return None
        considered = self._policy.consider(view, dialogue)
        said = considered.reply(False)
        found = said if isinstance(said, Grounding) else considered.reply(True)
        return Opinion(found, isinstance(said, NotFound)) if isinstance(found, Grounding) else None

    def _other(
        self,
        considered: Considered,
        reply: Question | Grounding,
        refused: Sequence[Box],
        *,
        force: bool,
    ) -> Question | Grounding:
        """A question that helps, in place of the policy's question, or of a box that was refused.

        Where the base finds nothing, it is about where the policy points and the map's peaks.
        """
        from clue_ros.model.zero_shot import ATTENTION, BaseFinder, share_of_map

        view, dialogue, estimate = considered.view, considered.dialogue, reply.ambiguity
        label = described_object(dialogue.turns)

        def candidate(box: Box, score: float) -> Candidate:
            return Candidate(box, label, score, ATTENTION)

        def glanced() -> Candidate | None:
            box = considered.glance()
            return candidate(box, 1.0) if box is not None else None

        def guesses() -> list[Candidate]:
            guess = considered.reply(True) if isinstance(reply, Question) else reply
            best = guess.box if isinstance(guess, Grounding) else None
            return ([candidate(best, 1.0)] if best else []) + [
                candidate(peak.box, peak.score)
                for peak in estimate.peaks
                if not (best and best.contains(peak.point or peak.box.center))
            ]

        finder = BaseFinder(view.base, self._checkpoint.zero_shot)
        question = helpful(reply, dialogue, finder, refused, glanced, guesses)
        if question is None and force and isinstance(reply, Grounding):
            return replace(reply, score=0.0)  # all was refused
        if question is None:
            return not_found(label, estimate, another=True)
        if force:
            return Grounding(question.candidates[0], label, 0.0, estimate)
        size = view.width, view.height
        peaks = tuple(share_of_map(estimate.attention, box, *size) for box in question.candidates)
        written = reply.text if question.confirm and isinstance(reply, Question) else ""
        return replace(question, ambiguity=replace(estimate, peaks=peaks), written=written)

    def _ask_instead(self, view: View, unknown: Unknown) -> NotFound:
        """The reply to a thing that the tokenizer has no word for: what the base sees instead."""
        from clue_ros.model.unknown_words import ask_instead, in_sight
        from clue_ros.model.zero_shot import share_of_map

        estimate = self._policy.judge(view, unknown.known)
        seen = in_sight(view.base)
        text, answers = ask_instead(unknown.doubt, seen)
        boxes = tuple(c.box for c in seen)
        size = view.width, view.height
        # The peaks are those of the candidates, as of every question's (`peak_masks`).
        peaks = tuple(share_of_map(estimate.attention, box, *size) for box in boxes)
        estimate = replace(estimate, peaks=peaks) if peaks else estimate
        name = unknown.thing.removeprefix("an ").removeprefix("a ")
        return NotFound(text, boxes, answers, estimate, unknown.thing, name)
