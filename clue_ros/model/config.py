"""Sizes: the embedded model's, the full model's, and the middle block (section III-B.1)."""

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
) -> PaliGemmaConfig:
    """PaliGemma 2 at the embedded model's size; everything downstream reads its sizes from here.

    `image_token_id` defaults to the last id, where `build_tokenizer` puts <image>. The head size is
    width / heads.
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


def full_config(image_size: int = 448) -> PaliGemmaConfig:
    """The configuration of google/paligemma2-3b-mix-448, written out; its weights are gated.

    Gemma 2 2B (26 blocks) reads SigLIP So400m/14 at 448 px: 32x32 patches. The vocabulary is
    Gemma's 256000 pieces, 1024 locations, 128 segments and <image> (257152), filled up to 257216.
    image_size 224 is paligemma2-3b-mix-224: 16x16 patches, otherwise the same.
    """
    text = Gemma2Config(
        vocab_size=257216,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        query_pre_attn_scalar=256,
        max_position_embeddings=8192,
        sliding_window=4096,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        hidden_activation="gelu_pytorch_tanh",
        rms_norm_eps=1e-6,
        **_TOKENS,
        tie_word_embeddings=True,
    )
    vision = SiglipVisionConfig(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        num_attention_heads=16,
        image_size=image_size,
        patch_size=14,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=1e-6,
        vision_use_head=False,
    )
    return PaliGemmaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=257152,
        vocab_size=257152,
        projection_dim=2304,
        hidden_size=2304,
        **_TOKENS,
    )


def small_config() -> PaliGemmaConfig:
    """The full model's layout (vocabulary, ids, head ratio) at a size that a test can run."""
    return tiny_config(
        257216,
        image_token_id=257152,
        image_size=64,
        patch_size=8,
        width=64,
        mlp=128,
        heads=4,
        kv_heads=2,
        layers=6,
        vision_layers=2,
        vision_heads=2,
    )
