# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The classes of transformers that a config asks for: with a stem, or as published."""

from __future__ import annotations

from typing import Any

from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from clue_ros.model.conv_stem import conv_stem


class PaliGemmaWithStem(PaliGemmaForConditionalGeneration):  # type: ignore[misc]
    """A PaliGemma whose vision tower has `vision_config.conv_stem`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        _fit(self.model.vision_tower, config.vision_config)


# The names that weights have in files, which transformers keeps for its own classes only.
register_checkpoint_conversion_mapping(
    PaliGemmaWithStem.__name__, get_checkpoint_conversion_mapping("paligemma") or []
)


class SiglipWithStem(SiglipVisionModel):  # type: ignore[misc]
    """Its vision tower alone."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        _fit(self, config)


def paligemma_class(config: Any) -> type[PaliGemmaForConditionalGeneration]:
    """The class that a PaliGemma config asks for."""
    has_stem = getattr(config.vision_config, "conv_stem", None) is not None
    return PaliGemmaWithStem if has_stem else PaliGemmaForConditionalGeneration


def vision_tower(config: Any) -> SiglipVisionModel:
    """A vision tower as a vision config asks for it, untrained."""
    return (SiglipVisionModel if conv_stem(config) is None else SiglipWithStem)(config)


def _fit(tower: Any, config: Any) -> None:
    stem = conv_stem(config)
    if stem is not None:
        tower.embeddings.patch_embedding = stem
