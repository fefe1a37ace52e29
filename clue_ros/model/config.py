# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sizes: those in config.json, the embedded model's, and the middle block (section III-B.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import check_config, read_json
from clue_ros.model.shapes import SCALES

if TYPE_CHECKING:
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

# As the tokenizer numbers them.
_TOKENS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}

# What published files leave to the defaults of transformers' classes, and the types of the rest.
_TEXT: dict[str, Any] = {
    "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
    "num_hidden_layers": 26, "vocab_size": 256_000, "num_key_value_heads": 4, "head_dim": 256,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "sliding_window": 4096,
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
_VISION: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
    "num_hidden_layers": 12, "image_size": 224, "patch_size": 16, "num_channels": 3,
    "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": True,
    "conv_stem": None,
}  # fmt: skip
_IMAGE_TOKEN = 256_000
EXPORTED = "clue_weights"  # key of config.json that names the form of an export's weights
_OPTIONAL = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "conv_stem")


class Config(SimpleNamespace):
    """A PaliGemma 2's numbers, named as in transformers' PaliGemmaConfig.

    image_token_id, tie_word_embeddings, text_config and vision_config; export: the form of the
    weights of `clue export`, a key of `shapes.SCALES`, empty for any other model.
    """


def read_config(folder: Path) -> Config:
    """config.json of a model folder, without transformers. Raises ModelError naming the value."""
    path = folder / "config.json"
    content = read_json(path)
    check_config(path, content)
    text = _part(path, "text_config", content["text_config"], _TEXT)
    theta = content["text_config"].get("rope_theta")
    if theta is not None and "rope_parameters" not in content["text_config"]:
        text.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    vision = _part(path, "vision_config", content["vision_config"], _VISION)
    image = content.get("image_token_index", content.get("image_token_id", _IMAGE_TOKEN))
    if not isinstance(image, int):
        raise ModelError(f"{path}: image_token_index {image!r}, want a token's number")
    export = content.get(EXPORTED, "")
    if EXPORTED in content and export not in SCALES:
        raise ModelError(
            f"{path}: {EXPORTED} is {export!r}, which this version does not know (it knows"
            f" {' and '.join(SCALES)}): write the export again with `clue export`"
        )
    return Config(
        image_token_id=image,
        tie_word_embeddings=bool(content.get("tie_word_embeddings", True)),
        text_config=text,
        vision_config=vision,
        export=export,
    )


def _part(path: Path, name: str, content: Any, defaults: Mapping[str, Any]) -> SimpleNamespace:
    """A part of config.json with what it leaves out. Raises ModelError."""
    values = {key: content.get(key, default) for key, default in defaults.items()}
    for key, value in values.items():
        kind = type(defaults[key])
        if value is None and key in _OPTIONAL:
            continue
        right = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if defaults[key] is not None and not right:
            raise ModelError(f"cannot use {path}: {name}.{key} is {value!r}")
    return SimpleNamespace(**values)


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
    from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
    from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

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
