# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Clue: the one object a caller holds.

Look at an image, judge a sentence, reply (the paper's Algorithm 1 and Figure 2).

    clue = Clue.load()
    view = clue.look(image)
    reply = clue.reply(view, Dialogue("pick up the block"))

Importing this module is cheap; torch is imported by `Clue.load`. Calls are serialised: the two
adapters share one model.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import (
    MAX_PIXELS,
    AmbiguityEstimate,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    clean_text,
)
from clue_ros.errors import BadImageError, ClueWarning, ModelError
from clue_ros.model.loading import DEFAULT_MODEL
from clue_ros.requirements import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clue_ros.dialogue.chooser import Standing
    from clue_ros.dialogue.types import Peak
    from clue_ros.model.base_tasks import BaseTasks
    from clue_ros.model.checkpoint import Checkpoint
    from clue_ros.model.decoding import Generation, Prefill
    from clue_ros.model.multi_view import Agreement, Window
    from clue_ros.model.unknown_words import Unknown

POLICIES = ("detector", "decoder", "both", "zero-shot")
DEFAULT_POLICY = "both"  # right more often than either, for 2 to 4 % of a reply's time
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
Image = npt.NDArray[np.uint8]


@dataclass
class _Encoded:
    """An image's features (1, N, D); those (N, D) of the further views that were needed last.

    pixels: a copy, as a caller may write to the image later. See `Clue.num_views`.
    """

    pixels: Image
    features: Any
    further: dict[Window, Any] = field(default_factory=dict)


@dataclass
class _Read:
    """A context as adapter B has read it; each part can be used once.

    first: in the first view. further: in the further views, if they were asked.
    """

    first: Prefill | None = None
    further: Prefill | None = None


class View:
    """An image that was looked at: its pixels, and the vision tower's features."""

    def __init__(self, image: Image, encoded: _Encoded, owner: Clue) -> None:
        self._image, self._encoded, self._owner = image, encoded, owner
        self._base: Any = None  # what the base alone said about it, with policy "zero-shot"

    @property
    def image(self) -> Image:
        """The original, uint8 RGB (H, W, 3), C-contiguous."""
        return self._image

    @property
    def features(self) -> Any:
        """The vision tower's, (1, N, D), for evaluations that need more than replies."""
        return self._encoded.features

    @property
    def width(self) -> int:
        """Width of the original in pixels."""
        return int(self._image.shape[1])

    @property
    def height(self) -> int:
        """Height of the original in pixels."""
        return int(self._image.shape[0])


class Clue:
    """A loaded model and a policy. Make one with `Clue.load`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        name: str,
        policy: str,
        threshold: float | None,
        num_views: int | None,
        doubtful_score: float | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self._lock = RLock()
        self._last: _Encoded | None = None  # the image that was looked at last
        self.policy = policy
        self.threshold = threshold
        self.num_views = num_views
        self.doubtful_score = doubtful_score

    @classmethod
    def load(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        device: str = "auto",
        dtype: str = "auto",
        policy: str = DEFAULT_POLICY,
        threshold: float | None = None,
        num_views: int | None = None,
        doubtful_score: float | None = None,
        detector: str | Path | None = None,
        ivg: str | Path | None = None,
        revision: str | None = None,
        quantization: str = "none",
        mask_decoder: str | Path | None = None,
    ) -> Clue:
        """Load an embedded model by its name, a model folder, or a hub id.

        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1". dtype: "auto" (bfloat16 on
        a GPU; on a CPU "mixed" where that is faster, else "float32"), "float32",
        "mixed" (float32 with matrix products in bfloat16), "bfloat16", "float16". policy: who
        decides between asking and pointing, the "detector", the "decoder" or "both" (see
        `ambiguity`), or "zero-shot": the base without its adapters (`clue_ros.model.zero_shot`).
        For "both" a model without a fit (`clue train policy`) takes the detector, with a warning; a
        model with one adapter alone takes that one, a base without adapters "zero-shot". threshold:
        0..1, None for the model's own.
        num_views: views of the picture that agree on the box, None for the model's own;
        doubtful_score: the first view's score up to which the others are looked at,
        0..1, None for the model's own. detector: the folder of another detector that
        `clue train detector` made, or a baseline's name ("decoder-yes-no", "candidate-count",
        "decoder-first"); ivg: the folder of another adapter B; None: the model's own. revision: a
        hub id's branch, tag or commit (as well: "owner/name@revision"). quantization: "none", or
        "int8" or "nf4" (4 bits) for the decoder's weights, which needs bitsandbytes. mask_decoder:
        the safetensors file of PaliGemma's mask decoder (`clue_ros.model.mask_decoder`), None for
        mask_decoder.safetensors in the model's folder, if it is there.

        Raises ModelError naming the file or the shape that is wrong.
        """
        _check_policy(policy)
        if threshold is not None:
            _check_threshold(threshold)
        if num_views is not None:
            _check_views(num_views)
        if doubtful_score is not None:
            _check_score(doubtful_score)
        try:
            from clue_ros.model.checkpoint import load_checkpoint
        except ImportError as error:
            reason = missing(error.name or "?", "a model")
            raise ModelError(f"{reason} ({error})") from error
        checkpoint = load_checkpoint(
            model,
            device,
            dtype,
            detector=detector,
            ivg=ivg,
            revision=revision,
            quantization=quantization,
            mask_decoder=mask_decoder,
        )
        clue = cls(checkpoint, str(model), policy, threshold, num_views, doubtful_score)
        if policy == "both" and clue.policy == "detector" and "decoder" in checkpoint.policies:
            warnings.warn(NOT_FITTED, ClueWarning, stacklevel=2)
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
        return str(self._checkpoint.backbone.device)

    @property
    def dtype(self) -> str:
        """The weights' type, such as "float32"; "mixed": with matrix products in bfloat16."""
        backbone = self._checkpoint.backbone
        return "mixed" if backbone.is_mixed else str(backbone.dtype).removeprefix("torch.")

    @property
    def grid(self) -> int:
        """Side of the attention map in image patches."""
        return self._checkpoint.backbone.grid

    @property
    def policy(self) -> str:
        """Who decides between asking and pointing: "detector", "decoder", "both", "zero-shot".

        Set to "both" without a fit for this pair of adapters, it becomes "detector"; of a model
        with one adapter, the only one that there is; of a base without adapters, "zero-shot".
        """
        return self._policy

    @policy.setter
    def policy(self, policy: str) -> None:
        _check_policy(policy)
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
        self._policy = policy

    @property
    def threshold(self) -> float:
        """Probability from which a sentence counts as ambiguous, 0..1.

        Set it to None for the model's own, which was chosen on validation requests: the detector's,
        or with policy "both" that of the two together.
        """
        if self._threshold is not None:
            return self._threshold
        if self._policy == "zero-shot":
            return self._checkpoint.zero_shot.threshold
        fusion = self._checkpoint.fusion if self._policy == "both" else None
        if fusion is not None and fusion.threshold is not None:
            return fusion.threshold
        return self._checkpoint.detector.settings.threshold

    @threshold.setter
    def threshold(self, threshold: float | None) -> None:
        if threshold is not None:
            _check_threshold(threshold)
        self._threshold = threshold if threshold is None else float(threshold)

    @property
    def num_views(self) -> int:
        """Number of views of a picture that agree on the box, 1 to 5 (test-time augmentation).

        1 is the paper's. The further views shift or scale the picture a little, the third is zoomed
        at what the words attend to; the box's score falls where they disagree
        (`clue_ros.model.multi_view`). The first view alone decides whether the second is needed for
        the box (`doubtful_score`); the others are needed where those two disagree. The first view
        alone decides whether to ask, unless policy "both" was fitted to ask the others in doubt
        (`clue_ros.model.fusion`, `sure`). Set it to None for the model's own number.
        """
        return self._checkpoint.ivg.num_views if self._num_views is None else self._num_views

    @num_views.setter
    def num_views(self, num_views: int | None) -> None:
        if num_views is not None:
            _check_views(num_views)
        self._num_views = num_views

    @property
    def doubtful_score(self) -> float:
        """Score of the first view's box up to which the second view is looked at, 0..1.

        The others follow where the two disagree (`clue_ros.model.multi_view.settled`). 1: all views
        for every box. Set it to None for the model's own.
        """
        own = self._doubtful_score
        return self._checkpoint.ivg.doubtful_score if own is None else own

    @doubtful_score.setter
    def doubtful_score(self, score: float | None) -> None:
        if score is not None:
            _check_score(score)
        self._doubtful_score = score if score is None else float(score)

    def warm_up(self) -> None:
        """Make the first request as quick as the second: judge, ask, and point in all views once.

        By the policy and the number of views that are set. What a first run prepares (the merged
        weights of both adapters, kernels for one image and for a batch) stays.
        """
        image: Image = np.full((64, 64, 3), 127, np.uint8)
        view, dialogue = self.look(image), Dialogue("the object")
        estimate = self.reply(view, dialogue, force_grounding=True).ambiguity
        if self.policy == "zero-shot":
            return
        checkpoint, context = self._checkpoint, dialogue.context()
        with self._lock:
            said = checkpoint.speak(self._features(view), context, "question")
            self._question(checkpoint.words(said), estimate)
            # Whatever the first view left in doubt above.
            further = self._further(view, self._windows(view, estimate.peaks)[1:])
            if further is not None:
                read = checkpoint.opinions(further, context)[1] if self.policy == "both" else None
                checkpoint.point(further, context, read)
        checkpoint.backbone.page_out()

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
            return View(image, self._encode(image), self)

    def _encode(self, image: Image) -> _Encoded:
        """The image's features: kept ones if these are the pixels that were encoded last."""
        if self._last is None or not np.array_equal(self._last.pixels, image):
            self._last = None  # before the next one takes memory
            self._last = _Encoded(image.copy(), self._checkpoint.look(image))
        return self._last

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
            if self.policy == "zero-shot":
                return self._judge_zero_shot(view, expression)[0]
            return self._judge(view, expression.context())[0]

    def _judge(self, view: View, context: str) -> tuple[AmbiguityEstimate, _Read]:
        """The estimate, and the context as the decoder has read it if it was asked too."""
        from clue_ros.model.peaks import find_peaks

        start = time.perf_counter()
        features, context_read = self._features(view), _Read()
        probability, attention = self._checkpoint.judge(features, context)
        peaks = find_peaks(attention, view.width, view.height)
        fusion = self._checkpoint.fusion
        if self.policy == "both" and fusion is not None:
            own, context_read.first = self._checkpoint.second_opinion(features, context)
            opinions = [(probability, own)]
            probability = fusion.agreed(opinions)
            further = None
            if not fusion.is_sure(probability):
                further = self._further(view, self._windows(view, peaks)[1:])
            if further is not None:
                more, context_read.further = self._checkpoint.opinions(further, context)
                probability = fusion.agreed([*opinions, *more])
        seconds = time.perf_counter() - start
        estimate = AmbiguityEstimate(probability, self.threshold, attention, peaks, seconds)
        return estimate, context_read

    def _judge_zero_shot(
        self, view: View, dialogue: Dialogue
    ) -> tuple[AmbiguityEstimate, Standing]:
        """The estimate by the base alone, and what the dialogue leaves."""
        from clue_ros.model.zero_shot import judge

        start = time.perf_counter()
        judged = judge(self._base(view), dialogue, self._checkpoint.zero_shot)
        seconds = time.perf_counter() - start
        estimate = AmbiguityEstimate(
            judged.probability, self.threshold, judged.attention, judged.peaks, seconds
        )
        return estimate, judged.standing

    def _base(self, view: View) -> BaseTasks:
        """What the base says about a view, kept with it; anew for a view of another Clue."""
        from clue_ros.model.base_tasks import BaseTasks

        if view._owner is not self:
            return BaseTasks(self._checkpoint, view.image, self._features(view))
        if view._base is None:
            view._base = BaseTasks(self._checkpoint, view.image, view.features)
        base: BaseTasks = view._base
        return base

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
                tokens = self._checkpoint.segment(
                    self._features(view), grounding.label, grounding.box, view.width, view.height
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

        The dialogue is not changed: add a question to it with `dialogue.add_question(reply.text)`.

        With `force_grounding` the robot points whatever the policy says (its questions are used
        up).

        The model reads every text as a request or an answer, a refusal too. Use
        `clue_ros.dialogue.conversation.Conversation` for what a person says: it ends the dialogue
        at a refusal, and asks again for what names nothing.
        """
        from clue_ros.dialogue.words import named_object
        from clue_ros.model.unknown_words import UNSURE, unknown_words

        with self._lock:
            unknown = unknown_words(self._checkpoint.processor.tokenizer, dialogue)
            if unknown.thing and not force_grounding:
                return self._ask_instead(view, unknown)
            if self.policy == "zero-shot":
                reply = self._reply_zero_shot(view, unknown.known, force_grounding)
            else:
                label = named_object(dialogue.turns)
                reply = self._reply(view, unknown.known, label, force_grounding)
        if isinstance(reply, Grounding):
            return replace(reply, score=min(reply.score, UNSURE)) if unknown.words else reply
        return replace(reply, text=f"{unknown.doubt} {reply.text}") if unknown.doubt else reply

    def _reply_zero_shot(
        self, view: View, dialogue: Dialogue, force_grounding: bool
    ) -> Question | Grounding:
        from clue_ros.model.zero_shot import reply_to

        estimate, standing = self._judge_zero_shot(view, dialogue)
        settings = self._checkpoint.zero_shot
        return reply_to(
            self._base(view), standing, estimate, settings, force_grounding=force_grounding
        )

    def _reply(
        self, view: View, dialogue: Dialogue, label: str, force_grounding: bool
    ) -> Question | Grounding:
        """The reply of the adapters."""
        context = dialogue.context()
        estimate, context_read = self._judge(view, context)
        mode = self._mode(estimate, force_grounding)
        said = self._checkpoint.speak(self._features(view), context, mode, context_read.first)
        if said.codes is None:
            return self._question(self._checkpoint.words(said), estimate)
        found = self._agreement(said, view, context, estimate.peaks, context_read.further)
        return Grounding(found.box, label, found.score, estimate, found.via)

    def _ask_instead(self, view: View, unknown: Unknown) -> NotFound:
        """The reply to a thing that the tokenizer has no word for: what the base sees instead."""
        from clue_ros.model.unknown_words import ask_instead, in_sight
        from clue_ros.model.zero_shot import share_of_map

        if self.policy == "zero-shot":
            estimate = self._judge_zero_shot(view, unknown.known)[0]
        else:
            estimate = self._judge(view, unknown.known.context())[0]
        seen = in_sight(self._base(view))
        text, answers = ask_instead(unknown.doubt, seen)
        boxes = tuple(c.box for c in seen)
        size = view.width, view.height
        # The peaks are those of the candidates, as of every question's (`peak_masks`).
        peaks = tuple(share_of_map(estimate.attention, box, *size) for box in boxes)
        estimate = replace(estimate, peaks=peaks) if peaks else estimate
        return NotFound(text, boxes, answers, estimate, unknown.thing)

    def _mode(
        self, estimate: AmbiguityEstimate, force_grounding: bool
    ) -> Literal["question", "grounding", "free"]:
        if force_grounding:
            return "grounding"
        if self.policy == "decoder":
            return "free"
        return "question" if estimate.is_ambiguous else "grounding"

    def _question(self, text: str, estimate: AmbiguityEstimate) -> Question:
        from clue_ros.dialogue.words import asked_well, missing_thing, offered_answers

        missing = missing_thing(text)
        if missing is not None:
            return NotFound(text, (), (), estimate, missing)
        candidates = tuple(peak.box for peak in estimate.peaks)
        text = asked_well(text)
        return Question(text, candidates, offered_answers(text), estimate)

    def _agreement(
        self,
        said: Generation,
        view: View,
        context: str,
        peaks: Sequence[Peak],
        prefill: Prefill | None,
    ) -> Agreement:
        """The box of the first view; where that leaves a doubt, that of two views or of all.

        prefill: the context as all further views read it, None where they did not.
        """
        from clue_ros.model.multi_view import agreed, settled

        through = self._windows(view, peaks)
        if said.score > self.doubtful_score:
            return agreed([said], through[:1])
        found = [said]
        if prefill is None and len(through) > 2 and self.doubtful_score < 1:
            found += self._checkpoint.point(self._further(view, through[1:2]), context)
            if settled(found, through):
                return agreed(found, through[:2])
        further = self._further(view, through[1:])
        if further is not None:
            missing = further[len(found) - 1 :]
            found += self._checkpoint.point(missing, context, prefill)
        return agreed(found, through)

    def _further(self, view: View, through: Sequence[Window]) -> Any:
        """Features (n, N, D) of the views after the first; None if there are none."""
        if not through:
            return None
        from clue_ros.model.multi_view import window_features

        known = self._encoded(view).further
        return window_features(view.image, through, known, self._checkpoint.look)

    def _windows(self, view: View, peaks: Sequence[Peak]) -> list[Window]:
        """The windows of all views of an image, where the words attend to these peaks."""
        from clue_ros.model.multi_view import windows

        attended = [peak.box for peak in peaks]
        return windows(self.num_views, view.width, view.height, attended)

    def _features(self, view: View) -> Any:
        return self._encoded(view).features

    def _encoded(self, view: View) -> _Encoded:
        """The view's features; a view that another Clue made is looked at again."""
        return view._encoded if view._owner is self else self._encode(view.image)


def _check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise ModelError(f"policy {policy!r} is unknown: want one of {', '.join(POLICIES)}")


def _check_threshold(threshold: float) -> None:
    if not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
        raise ModelError(f"threshold {threshold!r} is no probability: want a number from 0 to 1")


def _check_score(score: float) -> None:
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
        raise ModelError(f"doubtful_score {score!r} is no score: want a number from 0 to 1")


def _check_views(number: int) -> None:
    from clue_ros.model.multi_view import MAX_VIEWS

    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_VIEWS:
        raise ModelError(f"num_views {number!r}: want a whole number from 1 to {MAX_VIEWS}")


def image_digest(image: Image) -> bytes:
    """SHA-256 of an image's pixels and shape, uint8 (H, W, 3)."""
    digest = hashlib.sha256(np.ascontiguousarray(image).data)
    digest.update(repr(image.shape).encode())
    return digest.digest()


def check_image(image: Image) -> None:
    """Raises BadImageError unless this is uint8 RGB (H, W, 3), not empty, at most MAX_PIXELS."""
    if not isinstance(image, np.ndarray):
        raise BadImageError(f"the image must be a numpy array, not {type(image).__name__}")
    if image.dtype != np.uint8:
        raise BadImageError(f"the image must be uint8, not {image.dtype}")
    if image.ndim != 3 or image.shape[2] != 3:
        raise BadImageError(f"the image must be RGB (H, W, 3), not {tuple(image.shape)}")
    height, width = image.shape[:2]
    if height == 0 or width == 0:
        raise BadImageError(f"the image is empty: {width}x{height}")
    if height * width > MAX_PIXELS:
        raise BadImageError(
            f"the image has {width}x{height} pixels, over {MAX_PIXELS // 1_000_000} megapixels: "
            "make it smaller"
        )
