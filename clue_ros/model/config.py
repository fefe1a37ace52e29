# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sizes: the embedded model's, and the middle block (section III-B.1)."""

from __future__ import annotations

from typing import Any

from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

# As the tokenizer numbers them.
_TOKENS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}


def half_depth_block(num_layers: int) -> int:
    """The block that the detector reads, counted from 0: 14 of the paper's 26, 3 of 6."""
    return round(14 / 25 * (num_layers - 1))


def tiny_config(
    vocab_size: int,
    *,
    image_token_id: int | None = None,
    image_size: int = 224,
    patch_size: int = 16,
    width: int = 192,
    mlp: int = 768,
    heads: int = 4,
    kv_heads: int = 2,
    layers: int = 6,
    vision_layers: int = 6,
    vision_heads: int = 4,
    conv_stem: Any = None,
) -> PaliGemmaConfig:
    """PaliGemma 2 at the embedded model's size; everything downstream reads its sizes from here.

    `image_token_id` defaults to the last id, where `build_tokenizer` puts <image>. The head size is
    width / heads. conv_stem: sizes of a convolutional stem; None for SigLIP's patches.
    """
    head_dim = width // heads
    text = Gemma2Config(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        query_pre_attn_scalar=head_dim,
        max_position_embeddings=1024,
        sliding_window=4096,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        **_TOKENS,
        tie_word_embeddings=True,
    )
    vision = SiglipVisionConfig(
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=vision_layers,
        num_attention_heads=vision_heads,
        image_size=image_size,
        patch_size=patch_size,
        vision_use_head=False,
        **({} if conv_stem is None else {"conv_stem": dict(conv_stem)}),
    )
    return PaliGemmaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=vocab_size - 1 if image_token_id is None else image_token_id,
        vocab_size=vocab_size,
        projection_dim=width,
        hidden_size=width,
        **_TOKENS,
    )
