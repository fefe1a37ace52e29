# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The classes of transformers that a config asks for: with a stem, or as published."""

from __future__ import annotations

from typing import Any

from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.auto.modeling_auto import AutoModelForImageTextToText
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from clue_ros.model.conv_stem import has_stem, patch_embedding


class PaliGemmaWithStem(PaliGemmaForConditionalGeneration):  # type: ignore[misc]
    """A PaliGemma whose vision tower has `vision_config.conv_stem`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        vision = config.vision_config
        self.model.vision_tower.embeddings.patch_embedding = patch_embedding(vision)


# The names that weights have in files, which transformers keeps for its own classes only.
register_checkpoint_conversion_mapping(
    PaliGemmaWithStem.__name__, get_checkpoint_conversion_mapping("paligemma") or []
)


# transformers' own loader takes the class of these that config.json names.
AutoModelForImageTextToText.register(
    PaliGemmaConfig, (PaliGemmaForConditionalGeneration, PaliGemmaWithStem), exist_ok=True
)


class SiglipWithStem(SiglipVisionModel):  # type: ignore[misc]
    """Its vision tower alone."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings.patch_embedding = patch_embedding(config)


def paligemma_class(config: Any) -> type[PaliGemmaForConditionalGeneration]:
    """The class that a PaliGemma config asks for."""
    return (
        PaliGemmaWithStem if has_stem(config.vision_config) else PaliGemmaForConditionalGeneration
    )


def vision_tower(config: Any) -> SiglipVisionModel:
    """A vision tower as a vision config asks for it, untrained."""
    return (SiglipWithStem if has_stem(config) else SiglipVisionModel)(config)
