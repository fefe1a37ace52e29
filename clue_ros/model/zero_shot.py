"""Policy "zero-shot": ask and point with the base model alone, before any adapter is trained.

The base's own tasks give the candidates: "detect THING" lists boxes, "answer en QUESTION" tells
their colours and settles doubts. Words and geometry do the rest (`clue_ros.dialogue.narrowing`).
The attention map is that of the base's middle block, equations 1 and 2. None of this is in the
paper, which trains both adapters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from clue_ros.dialogue.candidates import (
    COLOR,
    KIND,
    Candidate,
    merge,
    question_words,
    with_label_attributes,
)
from clue_ros.dialogue.chooser import Standing, follow, question_for
from clue_ros.dialogue.narrowing import SAME_BOX
from clue_ros.dialogue.noun_phrases import ENGLISH, Phrase
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Peak,
    Question,
)
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.config import half_depth_block
from clue_ros.model.decoding import Generation, generate
from clue_ros.model.detector_variants import NO, YES
from clue_ros.model.fusion import log_odds
from clue_ros.model.location_tokens import STEPS, decode_box
from clue_ros.model.peaks import find_peaks
from clue_ros.model.prompts import encode_prompts
from clue_ros.model.tasks import (
    ANSWER,
    ANSWER_TOKENS,
    DETECT,
    DETECT_TOKENS,
    IS_THERE,
    IS_THIS,
    WHAT_COLOR,
    WHAT_IS,
    clean_label,
    read_boxes,
    short_answer,
)

if TYPE_CHECKING:
    from clue_ros.model.checkpoint import Checkpoint

MARGIN = 0.15  # of a box's sides, added around it for a crop
LEAST_CROP = 32  # pixels of a crop's shorter side
NATS = 2.0  # yes/no log odds behind the best up to which a crop still matches
OPINION = 0.5  # least probability of yes and no together for an answer to count


@dataclass(frozen=True)
class ZeroShotSettings:
    """zero_shot.json: weights of the log odds of ambiguity, fitted on validation requests."""

    bias: float = -2.0
    more: float = 0.3
    second: float = 5.0
    doubt: float = 2.0
    nothing: float = 6.0
    threshold: float = 0.5


@dataclass(frozen=True)
class Detection:
    """An answer to DETECT.

    candidates: boxes in pixels. found: probability that it opens with a location. more: probability
    that it goes on after its first box.
    """

    candidates: tuple[Candidate, ...]
    found: float
    more: float


class Sight:
    """One image as the base sees it; answers are kept, so that a dialogue is cheap to read again.

    A `clue_ros.dialogue.narrowing.Finder`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        image: npt.NDArray[np.uint8],
        features: torch.Tensor,
    ) -> None:
        self._checkpoint, self._image, self._features = checkpoint, image, features
        self.size = (int(image.shape[1]), int(image.shape[0]))
        self._detections: dict[str, Detection] = {}
        self._answers: dict[tuple[str, Box], str | None] = {}
        self._odds: dict[tuple[str, Box | None], float | None] = {}
        self._maps: dict[str, npt.NDArray[np.float32]] = {}

    # ---- a Finder

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """See `Finder.find`."""
        names = list(dict.fromkeys((phrase.name, phrase.full)))
        detections = self.detect(names)
        found = merge([c for d in detections for c in d.candidates])
        if not found:
            found = self._doubtful(phrase)
        return tuple(found)

    def choose(self, phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """See `Finder.choose`: by the boxes of the phrase, else by yes or no on each crop."""
        (detection,) = self.detect([phrase.full])
        kept = tuple(
            c for c in candidates if any(c.box.iou(d.box) >= SAME_BOX for d in detection.candidates)
        )
        if 0 < len(kept) < len(candidates):
            return kept
        odds = self.yes_or_no(IS_THIS.format(phrase.full), [c.box for c in candidates])
        if any(value is None for value in odds):
            return tuple(candidates)
        known = [value for value in odds if value is not None]
        best = max(known, default=0.0)
        return tuple(c for c, v in zip(candidates, known, strict=True) if v >= best - NATS)

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """See `Finder.described`: by the labels, else by a question about each crop."""
        unknown = [c for c in candidates if attribute not in c.attributes]
        if not unknown:
            return tuple(candidates)
        question = WHAT_COLOR.format(noun or "object") if attribute == COLOR else WHAT_IS
        said = dict(zip([c.box for c in unknown], self._ask_crops(question, unknown), strict=True))
        out = []
        for c in candidates:
            value = self._value(attribute, said.get(c.box))
            out.append(c if value is None else c.known(**{attribute: value}))
        return tuple(out)

    def _value(self, attribute: str, text: str | None) -> str | None:
        """An answer as an attribute; None where it says nothing of the kind."""
        short = None if text is None else short_answer(text)
        if short is None:
            return None
        if attribute == COLOR:
            colors = [ENGLISH.colors[w] for w in short.split() if w in ENGLISH.colors]
            return colors[0] if len(colors) == 1 else None
        return short if attribute == KIND else None

    def _doubtful(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """No box: where the base says that there is one all the same, the map's strongest peak."""
        (odds,) = self.yes_or_no(IS_THERE.format(phrase.name), [None])
        if odds is None or odds <= 0:
            return ()
        peaks = find_peaks(self.map(phrase.full), *self.size)
        return tuple(Candidate(p.box, phrase.name, 0.1 * p.score, "attention") for p in peaks[:1])

    # ---- the base's tasks

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """The boxes of each name, in one batch."""
        new = [name for name in dict.fromkeys(names) if name not in self._detections]
        if new:
            said = self.generate(DETECT, new, None, DETECT_TOKENS)
            for name, generation in zip(new, said, strict=True):
                self._detections[name] = self._listed(generation)
        return [self._detections[name] for name in names]

    def _listed(self, said: Generation) -> Detection:
        vocabulary, tokenizer = self._checkpoint.vocabulary, self._checkpoint.processor.tokenizer
        first = vocabulary.first_location
        steps = [t - first if first <= t < first + STEPS else None for t in said.tokens]
        boxes = read_boxes(steps)
        found = []
        for box in boxes:
            logs = [math.log(max(said.probabilities[i], 1e-12)) for i in box.at]
            label = clean_label(tokenizer.decode(list(said.tokens[slice(*box.label)])))
            c = Candidate(
                decode_box(box.codes, *self.size), label, math.exp(sum(logs) / len(logs)), DETECT
            )
            found.append(with_label_attributes(c))
        ends = said.ends
        more = 1 - ends[boxes[0].label[1]] if boxes and boxes[0].label[1] < len(ends) else 0.0
        if boxes and len(boxes) == 1:
            more = 1 - ends[min(len(said.tokens), len(ends) - 1)]
        elif boxes:
            more = 1 - max(ends[slice(*boxes[0].label)], default=0.0)
        return Detection(merge(found), said.opens_with_box, more)

    def yes_or_no(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        """Log odds of yes over no, of each box's crop (None: the whole image).

        None where the base answers neither.
        """
        new = [box for box in dict.fromkeys(boxes) if (question, box) not in self._odds]
        if new:
            for box, odds in zip(new, self._yes_no(question, new), strict=True):
                self._odds[question, box] = odds
        return [self._odds[question, box] for box in boxes]

    def _yes_no(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        from clue_ros.model.decoding import read_prompts

        parts = self._checkpoint
        tokenizer = parts.processor.tokenizer
        yes, no = (tokenizer(w, add_special_tokens=False)["input_ids"][0] for w in (YES, NO))
        if yes == no or tokenizer.unk_token_id in (yes, no):
            return [None] * len(boxes)
        features = self._look(boxes)
        parts.adapters.use(None)
        prompts = encode_prompts(parts.processor, ANSWER, [question] * len(boxes))
        with torch.inference_mode():
            prefill = read_prompts(parts.backbone, features, prompts.to(parts.backbone.device))
            shares = parts.backbone.logits(prefill.hidden).softmax(-1)[:, [yes, no]].tolist()
        return [math.log(y / n) if y + n >= OPINION and y * n > 0 else None for y, n in shares]

    def _ask_crops(self, question: str, candidates: Sequence[Candidate]) -> list[str | None]:
        new = [c.box for c in candidates if (question, c.box) not in self._answers]
        if new:
            said = self.generate(ANSWER, [question] * len(new), new, ANSWER_TOKENS)
            for box, generation in zip(new, said, strict=True):
                text = self._checkpoint.words(generation) if generation.tokens else None
                self._answers[question, box] = text
        return [self._answers[question, c.box] for c in candidates]

    def _look(self, boxes: Sequence[Box | None] | None) -> torch.Tensor:
        """Features of the boxes' crops, in one batch; None: of the whole image."""
        if boxes is None or all(box is None for box in boxes):
            return self._features
        return self._checkpoint.look(*(self._image if b is None else self.crop(b) for b in boxes))

    def crop(self, box: Box) -> npt.NDArray[np.uint8]:
        """The pixels around a box, at least `LEAST_CROP` on each side where the image has them."""
        width, height = self.size
        (x, y), w, h = box.center, box.x_max - box.x_min, box.y_max - box.y_min
        half_w, half_h = (max(side * (0.5 + MARGIN), LEAST_CROP / 2) for side in (w, h))
        left, right = max(0, math.floor(x - half_w)), min(width, math.ceil(x + half_w))
        top, bottom = max(0, math.floor(y - half_h)), min(height, math.ceil(y + half_h))
        return np.ascontiguousarray(
            self._image[top : max(bottom, top + 1), left : max(right, left + 1)]
        )

    def generate(
        self,
        instruction: str,
        contexts: Sequence[str],
        boxes: Sequence[Box | None] | None,
        most: int,
    ) -> list[Generation]:
        """What the base answers to each prompt, of each box's crop (None: the whole image)."""
        parts = self._checkpoint
        features = self._look(boxes)
        parts.adapters.use(None)
        prompts = encode_prompts(parts.processor, instruction, contexts).to(parts.backbone.device)
        return generate(
            parts.backbone, parts.vocabulary, features, prompts, "unconstrained",
            max_new_tokens=most,
        )  # fmt: skip

    def map(self, text: str) -> npt.NDArray[np.float32]:
        """The attention map (grid, grid) in 0..1 of "detect TEXT" at the base's middle block."""
        if text not in self._maps:
            parts = self._checkpoint
            parts.adapters.use(None)
            prompts = encode_prompts(parts.processor, DETECT, [text]).to(parts.backbone.device)
            with torch.inference_mode():
                block = half_depth_block(parts.backbone.blocks)
                weights = parts.backbone.attention_at(block, self._features, prompts)
                maps = min_max(image_attention(weights, prompts.query_mask, parts.backbone.grid))
            self._maps[text] = maps[0].float().cpu().numpy()
        return self._maps[text]

    # ---- the policy

    def judge(self, dialogue: Dialogue, settings: ZeroShotSettings) -> Judgement:
        """What the dialogue leaves, and how likely it names not exactly one thing."""
        standing = follow(dialogue, self)
        features = self.features_of(standing)
        return Judgement(standing, probability(features, settings), self.map(standing.phrase.full))

    def features_of(self, standing: Standing) -> list[float]:
        """What the probability of ambiguity is made of."""
        scores = sorted((c.score for c in standing.candidates), reverse=True)
        more = 0.0
        if not standing.rules and standing.candidates:
            more = log_odds(self.detect([standing.phrase.full])[0].more) / 4
        return [
            more,
            scores[1] if len(scores) > 1 else 0.0,
            1 - scores[0] if scores else 0.0,
            float(not scores),
        ]


def probability(features: Sequence[float], s: ZeroShotSettings) -> float:
    """The probability of ambiguity from `Sight.features_of`."""
    more, second, doubt, nothing = features
    odds = s.bias + s.more * more + s.second * second + s.doubt * doubt + s.nothing * nothing
    return 1 / (1 + math.exp(-odds))


@dataclass(frozen=True)
class Judgement:
    """A standing, the probability that it must be asked about, and the map."""

    standing: Standing
    probability: float
    attention: npt.NDArray[np.float32]

    def peaks(self, width: int, height: int) -> tuple[Peak, ...]:
        """The candidates with their share of the map."""
        return tuple(
            Peak(c.box, *share_of(self.attention, c.box, width, height))
            for c in self.standing.candidates
        )


def share_of(
    attention: npt.NDArray[np.float32], box: Box, width: int, height: int
) -> tuple[float, tuple[float, float]]:
    """A box's share of a map (g, g), 0..1, and the point (x, y) of the map's top inside it."""
    rows, columns = attention.shape
    x0, x1 = int(box.x_min / width * columns), math.ceil(box.x_max / width * columns)
    y0, y1 = int(box.y_min / height * rows), math.ceil(box.y_max / height * rows)
    x0, y0 = min(max(x0, 0), columns - 1), min(max(y0, 0), rows - 1)
    part = attention[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]
    total = float(attention.sum())
    row, column = divmod(int(part.argmax()), part.shape[1])
    point = ((x0 + column + 0.5) / columns * width, (y0 + row + 0.5) / rows * height)
    return (float(part.sum()) / total if total > 0 else 0.0), point


def reply_to_standing(
    sight: Sight, standing: Standing, estimate: AmbiguityEstimate, *, force_grounding: bool
) -> Question | Grounding:
    """Ask, say that there is none, or point."""
    words = question_words("en")
    best = max(standing.candidates, key=lambda c: c.score, default=None)
    if best is None and force_grounding:
        pool = standing.found or standing.refused
        best = max(pool, key=lambda c: c.score, default=None)
        if best is None:
            peaks = find_peaks(estimate.attention, *sight.size)
            width, height = sight.size
            box = peaks[0].box if peaks else Box(0, 0, width, height)
            best = Candidate(box, standing.phrase.name, 0.0, "attention")
    label = standing.phrase.name
    if best is not None and (force_grounding or not estimate.is_ambiguous):
        return Grounding(best.box, label, best.score, estimate)
    if best is None:
        noun = standing.phrase.name
        article = "an" if noun[:1] in "aeiou" else "a"
        missing = words.another.format(noun) if standing.refused else f"{article} {noun}"
        return NotFound(words.missing.format(missing), (), (), estimate, missing)
    asked = question_for(standing, sight)
    boxes = tuple(c.box for group in asked.groups for c in group) or tuple(
        c.box for c in standing.candidates
    )
    return Question(asked.text, boxes, asked.options, estimate)
