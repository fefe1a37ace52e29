# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What the base model says about one image when no adapter is active: its own tasks.

"detect THING" lists boxes, "answer en QUESTION" answers about the image, about boxes in it or about
crops, and the middle block's attention says where the words look (equations 1 and 2). Answers are
kept, so that a dialogue about the image is cheap to read again.

A colour or a kind is read from the image's own features in a box: a tenth of the time of a look at
its crop. Colours are right as often on simulated validation scenes, and more often on photographs.
Yes or no is asked about a crop: without one it was right less often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate, merge, with_label_attributes
from clue_ros.dialogue.types import Box
from clue_ros.model.backbone import Array, Reader
from clue_ros.model.config import half_depth_block
from clue_ros.model.decoding import Generation, read_prompts, reply_to, softmax
from clue_ros.model.detector_variants import NO, YES
from clue_ros.model.location_tokens import STEPS, decode_box
from clue_ros.model.prompts import Prompts, encode_prompts
from clue_ros.model.tasks import (
    ANSWER,
    ANSWER_TOKENS,
    DETECT,
    DETECT_TOKENS,
    LIST_TOKENS,
    MAX_BOXES,
    WHAT_OBJECTS,
    Detection,
    ListedBox,
    clean_label,
    read_boxes,
    short_answer,
)

if TYPE_CHECKING:
    from clue_ros.model.checkpoint import Checkpoint

MARGIN = 0.15  # of a box's sides, added around it for a crop
LEAST_CROP = 32  # pixels of a crop's shorter side
TOKENS = 16  # features that stand for a box: of one number, so that boxes make one batch
OPINION = 0.5  # least probability of yes and no together for an answer to count

Image = npt.NDArray[np.uint8]
Cells = npt.NDArray[np.bool_]


class BaseTasks:
    """The base model of a checkpoint, asked about one image (H, W, 3) and its features (1, N, D).

    size: width and height of the image in pixels.
    """

    def __init__(self, checkpoint: Checkpoint, image: Image, features: Array) -> None:
        self._checkpoint, self._image, self._features = checkpoint, image, features
        self.size = (int(image.shape[1]), int(image.shape[0]))
        self._detections: dict[str, Detection] = {}
        self._answers: dict[tuple[str, Box], str] = {}
        self._odds: dict[tuple[str, Box | None], float | None] = {}
        self._maps: dict[str, npt.NDArray[np.float32]] = {}

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """The boxes of each name; what was not asked before, in one batch."""
        new = [name for name in dict.fromkeys(names) if name not in self._detections]
        if new:
            said = self._generate(DETECT, new, self._features, DETECT_TOKENS)
            self._detections |= {n: self._listed(g) for n, g in zip(new, said, strict=True)}
        return [self._detections[name] for name in names]

    def answer(self, question: str, boxes: Sequence[Box]) -> list[str]:
        """The answer to a question about the thing in each box; new ones in one batch."""
        new = [box for box in dict.fromkeys(boxes) if (question, box) not in self._answers]
        if new:
            parts = [self._cells(box) for box in dict.fromkeys(boxes)]
            seen = np.stack([self._inside(self._cells(box), parts) for box in new])
            said = self._generate(ANSWER, [question] * len(new), seen, ANSWER_TOKENS)
            for box, generation in zip(new, said, strict=True):
                self._answers[question, box] = self._checkpoint.words(generation)
        return [self._answers[question, box] for box in boxes]

    def list_objects(self) -> list[str]:
        """What the base says is in the image: up to `MAX_BOXES` different names."""
        (said,) = self._generate(ANSWER, [WHAT_OBJECTS], self._features, LIST_TOKENS)
        # An answer that was cut off may end in half a name.
        names = self._checkpoint.words(said).split(",")
        names = names[:-1] if len(said.tokens) >= LIST_TOKENS else names
        found = filter(None, (short_answer(name) for name in names))
        return list(dict.fromkeys(found))[:MAX_BOXES]

    def yes_or_no(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        """Log odds of yes over no, about the crop of each box (None: the whole image).

        None where the base would rather answer something else.
        """
        new = [box for box in dict.fromkeys(boxes) if (question, box) not in self._odds]
        if new:
            for box, odds in zip(new, self.odds(question, new), strict=True):
                self._odds[question, box] = odds
        return [self._odds[question, box] for box in boxes]

    def map(self, text: str) -> npt.NDArray[np.float32]:
        """The attention map (grid, grid) in 0..1 of "detect TEXT" at the base's middle block."""
        if text not in self._maps:
            backbone = self._checkpoint.backbone
            block = half_depth_block(backbone.config.text_config.num_hidden_layers)
            prompts = self._prompts(DETECT, [text], self._features)
            self._maps[text] = backbone.attend(self._features, prompts, Reader(None, block)).map[0]
        return self._maps[text]

    def crop(self, box: Box) -> Image:
        """The pixels around a box, at least `LEAST_CROP` wide and high where the image is."""
        width, height = self.size
        x, y = box.center
        sides = box.width, box.height
        half_w, half_h = (max(side * (0.5 + MARGIN), LEAST_CROP / 2) for side in sides)
        left = min(max(0, int(x - half_w)), width - 1)
        top = min(max(0, int(y - half_h)), height - 1)
        right = max(math.ceil(x + half_w), left + 1)
        bottom = max(math.ceil(y + half_h), top + 1)
        return np.ascontiguousarray(self._image[top:bottom, left:right])

    # The model's passes.

    def _generate(
        self, instruction: str, contexts: Sequence[str], features: Array, most: int
    ) -> list[Generation]:
        """Greedy answers of at most `most` tokens about features (n or 1, N, D)."""
        parts = self._checkpoint
        prompts = self._prompts(instruction, contexts, features)
        prefill = read_prompts(parts.backbone, features, prompts, None)
        return reply_to(
            parts.backbone, parts.vocabulary, prefill, "unconstrained", max_new_tokens=most
        )

    def odds(self, question: str, boxes: Sequence[Box | None]) -> list[float | None]:
        """See `yes_or_no`."""
        parts, tokenizer = self._checkpoint, self._checkpoint.processor.tokenizer
        yes, no = (tokenizer(w, add_special_tokens=False)["input_ids"][0] for w in (YES, NO))
        if yes == no or tokenizer.unk_token_id in (yes, no):
            return [None] * len(boxes)
        features = self._look(boxes)
        prompts = self._prompts(ANSWER, [question] * len(boxes), features)
        prefill = read_prompts(parts.backbone, features, prompts, None)
        shares = softmax(prefill.logits)[:, [yes, no]].tolist()
        return [math.log(y / n) if y + n >= OPINION and y * n > 0 else None for y, n in shares]

    def _look(self, boxes: Sequence[Box | None]) -> Array:
        """The features of each box's crop (None: the image)."""
        if all(box is None for box in boxes):
            return self._features
        crops = [self._image if box is None else self.crop(box) for box in boxes]
        return self._checkpoint.look(*crops)

    def _cells(self, box: Box) -> Cells:
        """The features that a box touches, (g, g); one at least."""
        grid, part = self._checkpoint.grid, box.in_fractions(*self.size).clipped()

        def span(low: float, high: float) -> slice:
            first = min(int(low * grid), grid - 1)
            return slice(first, max(math.ceil(high * grid), first + 1))

        cells = np.zeros((grid, grid), np.bool_)
        cells[span(part.y_min, part.y_max), span(part.x_min, part.x_max)] = True
        return cells

    def _inside(self, cells: Cells, parts: Sequence[Cells]) -> Array:
        """TOKENS of a box's features, some twice where it has fewer: (TOKENS, D).

        parts: of all boxes. What lies in another one, too, may show that one's thing.
        """
        own = cells & (np.sum(parts, 0) < 2)
        found = self._features[0][(own if own.any() else cells).ravel()]
        return np.asarray(found[np.linspace(0, len(found) - 1, TOKENS).round().astype(int)])

    def _prompts(self, instruction: str, contexts: Sequence[str], features: Array) -> Prompts:
        processor = self._checkpoint.processor
        return encode_prompts(processor, instruction, contexts, image_tokens=features.shape[1])

    def _listed(self, said: Generation) -> Detection:
        first = self._checkpoint.vocabulary.first_location
        steps = [t - first if first <= t < first + STEPS else None for t in said.tokens]
        boxes = read_boxes(steps)
        going_on = 1 - _end_after(boxes[0], said.ends) if boxes else 0.0
        return Detection(merge([self._candidate(box, said) for box in boxes]), going_on)

    def _candidate(self, box: ListedBox, said: Generation) -> Candidate:
        tokens = list(said.tokens[box.label[0] : box.label[1]])
        label = clean_label(self._checkpoint.processor.tokenizer.decode(tokens))
        logs = [math.log(max(said.probabilities[i], 1e-12)) for i in box.at]
        score = math.exp(sum(logs) / len(logs))
        pixels = decode_box(box.codes, *self.size)
        return with_label_attributes(Candidate(pixels, label, score, DETECT))


def _end_after(box: ListedBox, ends: Sequence[float]) -> float:
    """Probability that an answer ends after this box, at the likeliest place behind it."""
    first, last = box.label
    return max(ends[first : last + 1], default=0.0)
