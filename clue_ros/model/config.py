# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sizes: those in config.json, the embedded model's, and the middle block (section III-B.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clue_ros.errors import ModelError

if TYPE_CHECKING:
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

# As the tokenizer numbers them.
_TOKENS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}

_SIZES = {
    "hidden_size": int, "intermediate_size": int, "num_attention_heads": int,
    "num_hidden_layers": int,
}  # fmt: skip
_TEXT = {
    **_SIZES, "vocab_size": int, "num_key_value_heads": int, "head_dim": int,
    "query_pre_attn_scalar": (int, float), "rms_norm_eps": float, "sliding_window": int | None,
    "attn_logit_softcapping": float | None, "final_logit_softcapping": float | None,
    "hidden_activation": str, "attention_bias": bool, "tie_word_embeddings": bool,
    "rope_parameters": dict,
}  # fmt: skip
_VISION = {
    **_SIZES, "image_size": int, "patch_size": int, "num_channels": int, "layer_norm_eps": float,
    "hidden_act": str, "vision_use_head": bool,
}  # fmt: skip
_WHOLE = {
    "image_token_index": int, "tie_word_embeddings": bool, "text_config": dict,
    "vision_config": dict,
}  # fmt: skip

_WIDTHS = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "image_size", "patch_size", "num_channels", "d_model", "n_embd",
)  # fmt: skip
_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer"), 1000),
    **dict.fromkeys(_WIDTHS, 10**6),
    "stages": 10**4,  # of a stem: the sum of its sizes
}
"""More than any model has."""


def check_sizes(place: object, content: Mapping[str, Any], least: int = 0) -> None:
    """Refuse sizes that no model has, before layers of them are built.

    content: of a config.json, with that of its parts (text_config, ...). Raises ModelError naming
    `place`.
    """
    for name, value in content.items():
        if isinstance(value, Mapping):
            check_sizes(place, value, least)
        numbers, most = [*_numbers(value)], _LIMITS.get(name)
        if most and numbers and not least <= min(numbers) <= sum(numbers) <= most:
            raise ModelError(f"{place}: {name} is {value!r:.40}, want {least} to {most}")


def _numbers(value: Any) -> Iterator[float]:
    """The numbers of a value, in lists or alone."""
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


class LeanConfig:
    """What replies read of a config.json, without transformers' classes; see `lean_config`."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.image_token_id: int = content["image_token_index"]
        self.tie_word_embeddings: bool = content["tie_word_embeddings"]
        self.text_config = SimpleNamespace(**content["text_config"])
        self.vision_config = SimpleNamespace(**content["vision_config"])

    def get_text_config(self) -> SimpleNamespace:
        """The decoder's part."""
        return self.text_config


def lean_config(content: Mapping[str, Any]) -> LeanConfig | None:
    """A config.json's content, if that states all that replies read; None: ask transformers.

    transformers knows what an older or a published file leaves to its defaults, and names what is
    wrong with a value.
    """

    def states(part: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
        return all(name in part and isinstance(part[name], kind) for name, kind in names.items())

    stated = states(content, _WHOLE)
    stated = stated and states(content["text_config"], _TEXT)
    return LeanConfig(content) if stated and states(content["vision_config"], _VISION) else None


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
