# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The names and shapes of a PaliGemma 2's weights, from the numbers in its config.json."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clue_ros.model.details import details_of, has_patches

TEXT, TOWER = "language_model.model.", "vision_tower."
PATCHES = f"{TOWER}embeddings.patch_embedding."
EMBEDDINGS, HEAD = f"{TEXT}embed_tokens.weight", "language_model.lm_head.weight"
PROJECTOR = "multi_modal_projector.linear"
NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
Shape = tuple[int, ...]
SCALE = ".scale"
"""Behind the name of a matrix of 8 or 4 bits: the float32 factors of its rows or groups."""
GROUP = 128  # values of a row, at most, that have one factor in 4 bits
SCALES: dict[str, Callable[[Shape], Shape]] = {
    "int8": lambda shape: (shape[0], 1),
    "int4": lambda shape: (shape[0], shape[1] // math.gcd(shape[1], GROUP), 1),
}
"""The shape of the factors of a matrix (O, I), by the form of an export's weights."""


def is_exported(name: str) -> bool:
    """Whether an export has fewer bits of a weight: of the decoder's projections."""
    return name.startswith(TEXT) and "_proj." in name


def weight_shapes(config: Any) -> dict[str, Shape]:
    """Every weight by its published name; without the head where the embeddings are the head.

    Of an export the factors too.
    """
    text, vision = config.text_config, config.vision_config
    shapes = _decoder(text)
    tied = getattr(text, "tie_word_embeddings", True) or config.tie_word_embeddings
    if not tied:
        shapes[HEAD] = shapes[EMBEDDINGS]
    seen, wide, patch = vision.hidden_size, vision.intermediate_size, vision.patch_size
    grid = vision.image_size // patch
    both: dict[str, Shape] = {
        f"{TOWER}post_layernorm": (seen,), PROJECTOR: (text.hidden_size, seen),
    }  # fmt: skip
    for block in range(vision.num_hidden_layers):
        layer = f"{TOWER}encoder.layers.{block}."
        both |= {f"{layer}{name}": (seen,) for name in ("layer_norm1", "layer_norm2")}
        parts = ("q_proj", "k_proj", "v_proj", "out_proj")
        both |= {f"{layer}self_attn.{part}": (seen, seen) for part in parts}
        both |= {f"{layer}mlp.fc1": (wide, seen), f"{layer}mlp.fc2": (seen, wide)}
    if getattr(vision, "conv_stem", None):
        both |= _stem(vision.conv_stem, seen, patch)
    else:
        both[PATCHES.removesuffix(".")] = (seen, vision.num_channels, patch, patch)
    for name, shape in both.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes[f"{TOWER}embeddings.position_embedding.weight"] = (grid**2, seen)
    factors = SCALES.get(getattr(config, "export", ""))
    small = [] if factors is None else [name for name in shapes if is_exported(name)]
    return shapes | {name + SCALE: factors(shapes[name]) for name in small if factors}


def _decoder(text: Any) -> dict[str, Shape]:
    width, mlp = text.hidden_size, text.intermediate_size
    inner, shared = (
        heads * text.head_dim for heads in (text.num_attention_heads, text.num_key_value_heads)
    )
    sizes = {
        "self_attn.q_proj": (inner, width), "self_attn.k_proj": (shared, width),
        "self_attn.v_proj": (shared, width), "self_attn.o_proj": (width, inner),
        "mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width), "mlp.down_proj": (width, mlp),
    }  # fmt: skip
    shapes: dict[str, Shape] = {
        EMBEDDINGS: (text.vocab_size, width), f"{TEXT}norm.weight": (width,),
    }  # fmt: skip
    for block in range(text.num_hidden_layers):
        layer = f"{TEXT}layers.{block}."
        shapes |= {f"{layer}{norm}.weight": (width,) for norm in NORMS}
        shapes |= {f"{layer}{name}.weight": shape for name, shape in sizes.items()}
    return shapes


def _stem(sizes: Any, width: int, patch: int) -> dict[str, Shape]:
    """The weights of a convolutional stem (`conv_stem.ConvStem`), which also have a bias each."""
    channels, reduced, total = int(sizes["first"]), 2, 0
    found: dict[str, Shape] = {f"{PATCHES}first": (channels, 3, 3, 3)}
    for number, (blocks, kernel, stride, expansion, out) in enumerate(sizes["stages"]):
        reduced *= stride
        for block in range(blocks):
            name, wide = f"{PATCHES}stages.{number}.{block}.", channels * expansion
            if expansion > 1:
                found[f"{name}expand"] = (wide, channels, 1, 1)
            found[f"{name}depthwise"] = (wide, 1, kernel, kernel)
            found[f"{name}project"] = (out, wide, 1, 1)
            channels = out
        if number in sizes["read"]:
            total += out * max(1, patch // reduced) ** 2
    details = details_of(sizes)
    total += 0 if details is None else details.channels(sizes)
    if has_patches(sizes):
        found[f"{PATCHES}patches"] = (width, 3, patch, patch)
    found[PATCHES.removesuffix(".")] = (width, total, 1, 1)
    return found
