# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Grounding DINO, OWLv2 and Florence-2 through transformers: boxes for the nouns of a request."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from clue_ros.dialogue.candidates import Candidate, merge
from clue_ros.dialogue.types import Box
from clue_ros.errors import ModelError
from clue_ros.model.devices import OnDevice, choose_device
from clue_ros.model.loading import check_sizes, first_line, name_and_revision
from clue_ros.wrapper.detector_kinds import (
    FLORENCE_2,
    GROUNDING_DINO,
    OWLV2,
    wrong_model,
)

# Thresholds on a box's score, and Grounding DINO's on the words of its label: the paper's for
# Grounding DINO, transformers' default for OWLv2. Florence-2 writes what it is sure of.
BOX_THRESHOLD = {GROUNDING_DINO: 0.2, OWLV2: 0.1, FLORENCE_2: 0.0}
TEXT_THRESHOLD = 0.05
MOST_TOKENS = 1024  # most tokens that Florence-2 writes, as in the paper


class OpenVocabularyDetector(OnDevice):
    """A zero-shot object detector of transformers: "grounding-dino" or "owlv2" (`load_detector`).

    threshold: least score of a box.
    """

    open_vocabulary = True

    def __init__(
        self, model: Any, processor: Any, kind: str, name: str = "", threshold: float | None = None
    ) -> None:
        self.model, self._processor, self._kind = model.eval(), processor, kind
        self.name = name or kind
        self.threshold = BOX_THRESHOLD[kind] if threshold is None else threshold

    def find(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> Sequence[Candidate]:
        """See `Source.find`."""
        return self.find_in([image], nouns)[0]

    @torch.inference_mode()
    def find_in(
        self, images: Sequence[npt.NDArray[np.uint8]], nouns: Sequence[str]
    ) -> list[list[Candidate]]:
        """The candidates of each image, RGB (H, W, 3), in one batch; boxes in its own pixels."""
        from PIL import Image

        pictures = [Image.fromarray(image) for image in images]
        if self._kind == GROUNDING_DINO:
            text: Any = [". ".join(nouns) + "."] * len(images)
        else:
            text = [[f"a photo of a {noun}" for noun in nouns]] * len(images)
        inputs = self._processor(
            images=pictures, text=text, return_tensors="pt", padding=True, truncation=True
        ).to(self.device)
        outputs = self.model(**inputs)
        sizes = [(picture.height, picture.width) for picture in pictures]
        if self._kind == GROUNDING_DINO:
            results = self._processor.post_process_grounded_object_detection(
                outputs,
                inputs["input_ids"],
                threshold=self.threshold,
                text_threshold=TEXT_THRESHOLD,
                target_sizes=sizes,
            )
        else:
            results = self._processor.post_process_grounded_object_detection(
                outputs,
                threshold=self.threshold,
                target_sizes=sizes,
                text_labels=[list(nouns)] * len(images),
            )
        return [self._candidates(result) for result in results]

    def _candidates(self, result: Any) -> list[Candidate]:
        labels = result.get("text_labels") or result["labels"]
        rows = zip(result["boxes"].tolist(), labels, result["scores"].tolist(), strict=True)
        return [
            Candidate(Box(*box), _label(str(label)), score, self.name) for box, label, score in rows
        ]


def _label(text: str) -> str:
    """A label without the tokenizer's own tokens, which a low text threshold lets in.

    >>> _label("[CLS] mug. [SEP]"), _label("</s><od>mug")
    ('mug', 'mug')
    """
    return " ".join(re.sub(r"\[[A-Z]+\]|<[^<>]*>|\.", " ", text).split())


class Florence2(OpenVocabularyDetector):
    """Florence-2, which writes labels and boxes as text.

    It is asked for each noun by open-vocabulary detection and for all of them by phrase grounding,
    as in the paper, which asks with the whole request. It gives no scores: a box's is the geometric
    mean of the probabilities of its four location tokens.
    """

    def __init__(
        self, model: Any, processor: Any, kind: str, name: str = "", threshold: float | None = None
    ) -> None:
        super().__init__(model, processor, kind, name, threshold)
        self._positions = int(model.config.get_text_config().max_position_embeddings)
        words = processor.tokenizer.get_vocab()
        named = ((re.fullmatch(r"<loc_(\d+)>", word), token) for word, token in words.items())
        self._bins = {token: int(match[1]) for match, token in named if match}
        self._polygon = words.get("<poly>"), words.get("</poly>")

    def find_in(
        self, images: Sequence[npt.NDArray[np.uint8]], nouns: Sequence[str]
    ) -> list[list[Candidate]]:
        """The candidates of each image, RGB (H, W, 3); boxes in its own pixels."""
        return [self._found(image, nouns) if nouns else [] for image in images]

    @torch.inference_mode()
    def _found(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> list[Candidate]:
        from PIL import Image

        prompts = [f"<OPEN_VOCABULARY_DETECTION>{noun}" for noun in nouns]
        prompts.append(f"<CAPTION_TO_PHRASE_GROUNDING>{', '.join(nouns)}")
        pictures = [Image.fromarray(image)] * len(prompts)
        inputs = self._processor(
            images=pictures, text=prompts, return_tensors="pt", padding=True
        ).to(self.device)
        out = self.model.generate(
            **inputs,
            max_new_tokens=min(MOST_TOKENS, self._positions - 1),
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
        )
        beams = getattr(out, "beam_indices", None)  # of checkpoints that search with beams
        likely = self.model.compute_transition_scores(
            out.sequences, out.scores, beams, normalize_logits=True
        )
        said = out.sequences[:, -likely.shape[1] :].tolist()
        height, width = image.shape[:2]
        found = [
            candidate
            for tokens, row in zip(said, likely.tolist(), strict=True)
            for candidate in self._read(tokens, row, (width, height))
        ]
        sound = [c for c in found if c.box.width > 0 < c.box.height]  # it may turn a box inside out
        return [*merge([c for c in sound if c.score >= self.threshold])]

    def _read(
        self, tokens: Sequence[int], likely: Sequence[float], size: tuple[int, int]
    ) -> list[Candidate]:
        """Labels, each followed by its boxes of four locations. Polygons are passed over."""
        label, sides, found = list[int](), list[tuple[int, float]](), list[Candidate]()
        inside, labelled = False, False
        for token, chance in zip(tokens, likely, strict=True):
            if token in self._polygon:
                inside = token == self._polygon[0]
            elif token in self._bins:
                labelled = True
                sides += [] if inside else [(self._bins[token], chance)]
                if len(sides) == 4:
                    found.append(self._candidate(label, sides, size))
                    sides = []
            else:
                label, sides = ([token], []) if labelled else ([*label, token], [])
                labelled = False
        return found

    def _candidate(
        self, label: Sequence[int], sides: Sequence[tuple[int, float]], size: tuple[int, int]
    ) -> Candidate:
        scale = [(bin_ + 0.5) / len(self._bins) for bin_, _ in sides]
        corners = (part * side for part, side in zip(scale, size * 2, strict=True))
        text = self._processor.tokenizer.decode(label, skip_special_tokens=True)
        score = math.exp(sum(chance for _, chance in sides) / 4)
        return Candidate(Box(*corners), _label(text), score, self.name)


def load_detector(
    name: str | Path, kind: str, *, device: str = "auto", threshold: float | None = None
) -> OpenVocabularyDetector:
    """Load a detector, a hub id (owner/name@revision) or a folder. Raises ModelError."""
    from transformers import (
        AutoModelForImageTextToText,
        AutoModelForZeroShotObjectDetection,
        AutoProcessor,
        PreTrainedConfig,
    )

    from clue_ros.model.torch_backbone import quietly

    writes = kind == FLORENCE_2
    detector = Florence2 if writes else OpenVocabularyDetector
    models = AutoModelForImageTextToText if writes else AutoModelForZeroShotObjectDetection
    place, revision = name_and_revision(name)
    pinned: dict[str, Any] = {"revision": revision} if revision else {}
    try:
        content = PreTrainedConfig.get_config_dict(place, **pinned)[0]
        check_sizes(name, content)
        if problem := wrong_model(name, kind, content):
            raise ModelError(problem)
        with quietly():
            processor = AutoProcessor.from_pretrained(place, **pinned)
            model = models.from_pretrained(
                place, use_safetensors=True, dtype=torch.float32, **pinned
            )
    except ModelError:
        raise
    except Exception as error:  # whatever the hub's client and the libraries raise
        raise ModelError(f"cannot load the detector {name}: {first_line(error)}") from error
    return detector(model.to(choose_device(device)), processor, kind, kind, threshold)
