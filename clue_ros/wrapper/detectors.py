# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Grounding DINO and OWLv2 through transformers: boxes for the nouns of a request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ModelError
from clue_ros.model.devices import OnDevice, choose_device
from clue_ros.model.loading import check_sizes, first_line, name_and_revision

# Thresholds on a box's score, and Grounding DINO's on the words of its label: the paper's for
# Grounding DINO, transformers' default for OWLv2.
BOX_THRESHOLD = {"grounding-dino": 0.2, "owlv2": 0.1}
TEXT_THRESHOLD = 0.05


class OpenVocabularyDetector(OnDevice):
    """A zero-shot object detector of transformers, "grounding-dino" or "owlv2".

    threshold: least score of a box.
    """

    open_vocabulary = True

    def __init__(
        self, model: Any, processor: Any, kind: str, name: str = "", threshold: float | None = None
    ) -> None:
        self.model, self._processor, self._kind = model.eval(), processor, kind
        self.name = name or kind
        self.threshold = BOX_THRESHOLD[kind] if threshold is None else threshold

    @classmethod
    def load(
        cls, name: str | Path, kind: str, *, device: str = "auto", threshold: float | None = None
    ) -> OpenVocabularyDetector:
        """Load a hub id (owner/name@revision) or a folder. Raises ModelError."""
        from transformers import (
            AutoModelForZeroShotObjectDetection,
            AutoProcessor,
            PreTrainedConfig,
        )

        from clue_ros.model.torch_backbone import quietly

        place, revision = name_and_revision(name)
        pinned: dict[str, Any] = {"revision": revision} if revision else {}
        try:
            content = PreTrainedConfig.get_config_dict(place, **pinned)[0]
            check_sizes(name, content)
            found = content.get("model_type")
            if found != kind:
                raise ModelError(f"{name} is a model of type {found}, want a {kind}")
            with quietly():
                processor = AutoProcessor.from_pretrained(place, **pinned)
                model = AutoModelForZeroShotObjectDetection.from_pretrained(
                    place, use_safetensors=True, dtype=torch.float32, **pinned
                )
        except ModelError:
            raise
        except Exception as error:  # whatever the hub's client and the libraries raise
            raise ModelError(f"cannot load the detector {name}: {first_line(error)}") from error
        return cls(model.to(choose_device(device)), processor, kind, kind, threshold)

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
        if self._kind == "grounding-dino":
            text: Any = [". ".join(nouns) + "."] * len(images)
        else:
            text = [[f"a photo of a {noun}" for noun in nouns]] * len(images)
        inputs = self._processor(
            images=pictures, text=text, return_tensors="pt", padding=True, truncation=True
        ).to(self.device)
        outputs = self.model(**inputs)
        sizes = [(picture.height, picture.width) for picture in pictures]
        if self._kind == "grounding-dino":
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

    >>> _label("[CLS] mug. [SEP]")
    'mug'
    """
    return " ".join(re.sub(r"\[[A-Z]+\]|\.", " ", text).split())
