# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The full-size model with RANDOM weights: what can be shown about it without its gated weights.

Weights are drawn straight into place in the wanted dtype, so that three billion of them need no
second copy, and scaled so that attention is neither flat nor a single peak and greedy decoding
does not repeat one token. The tokenizer is a stand-in in the format of Gemma's: the real ids of
the special tokens, of the newline, of <loc....>, <seg...> and <image>, and the real number of
pieces; but the pieces are only those that a few sentences need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AddedToken, GemmaTokenizer
from transformers.initialization import no_init_weights
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration
from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.config import half_depth_block, tiny_config
from clue_ros.model.prompts import IMAGE, LOCATIONS, SEGMENTS, build_processor
from clue_ros.model.torch_backbone import ATTENTION, TorchModel

PIECES = 256000  # of Gemma's tokenizer; PaliGemma's own tokens follow
FIRST_BYTE, NEWLINE_ID = 217, 108
_CONTROL = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", NEWLINE_ID: "\n"}
_SPACE = "▁"
_TOKEN_IDS: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}

# Standard deviations relative to one over the root of a matrix's inputs, which keeps the size of
# what it is given. Attention logits then have a spread of two, in the decoder and in the tower.
_ATTENTION_GAIN = math.sqrt(2)
# Of the decoder's last norm, with random signs: without them the tied embeddings would say again
# the token that was just read. The logits reach the size where the final softcap bends them.
_LAST_NORM = 5.0


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
        **_TOKEN_IDS,
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
        **_TOKEN_IDS,
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


def random_backbone(
    config: PaliGemmaConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
    file: Path | None = None,
) -> TorchModel:
    """A backbone of this configuration with seeded random weights in `dtype`, in eval mode.

    file: keep the weights in this new file, mapped into memory, for a machine (without a GPU) whose
    memory is smaller than the model.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), no_init_weights():
            make: Any = PaliGemmaForConditionalGeneration._from_config
            model = make(config, dtype=dtype, attn_implementation=ATTENTION)
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    if file is not None:
        map_weights(model, dtype, file, keep=False)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            _draw(name, weight, generator)
    return TorchModel(model.eval().requires_grad_(False))


def map_weights(model: Any, dtype: torch.dtype, file: Path, *, keep: bool = True) -> None:
    """Move a model's weights to a new file of `dtype`, mapped into memory; with `keep`, as is."""
    weights = list(model.parameters())  # tied ones once
    size = sum(weight.numel() for weight in weights)
    home = torch.from_file(str(file), shared=True, size=size, dtype=dtype)
    start = 0
    for weight in weights:
        place = home[start : start + weight.numel()].view_as(weight)
        start += weight.numel()
        if keep:
            place.copy_(weight.data)
        weight.data = place


def _draw(name: str, weight: torch.Tensor, generator: torch.Generator) -> None:
    """Fill one weight in place; its name says what it does."""
    if name.endswith("language_model.norm.weight"):
        weight.normal_(generator=generator).sign_().mul_(_LAST_NORM)
        weight.sub_(1.0)  # Gemma's norms multiply by one plus their weight
    elif "norm" in name:
        weight.normal_(std=0.1, generator=generator)
        if name.endswith("weight") and ".language_model." not in name:
            weight.add_(1.0)  # SigLIP's multiply by the weight alone
    elif name.endswith("bias"):
        weight.normal_(std=0.1, generator=generator)
    elif "embed_tokens" in name:
        weight.normal_(std=1 / math.sqrt(weight.shape[1]), generator=generator)
    elif "position_embedding" in name:
        weight.normal_(std=0.5, generator=generator)
    else:
        gain = _ATTENTION_GAIN if "q_proj" in name or "k_proj" in name else 1.0
        inputs = weight[0].numel()
        weight.normal_(std=gain / math.sqrt(inputs), generator=generator)


def random_adapters(backbone: TorchModel, *, seed: int = 0) -> Adapters:
    """Both adapters of the paper on this backbone, random enough to change what it does."""
    adapters = Adapters(backbone)
    depth = half_depth_block(backbone.blocks) + 1
    generator = torch.Generator(backbone.device).manual_seed(seed)
    for name, blocks in ((DETECTOR, depth), (IVG, backbone.blocks)):
        adapters.add(name, lora_config(range(blocks)))
        for weight in adapters.parameters(name):
            with torch.no_grad():
                inputs = weight.shape[1]
                weight.normal_(std=0.5 / math.sqrt(inputs), generator=generator)
    adapters.use(None)
    return adapters


def stand_in_processor(config: PaliGemmaConfig, sentences: Sequence[str]) -> PaliGemmaProcessor:
    """PaliGemmaProcessor at this configuration's picture size, around the stand-in tokenizer.

    The words of `sentences` become pieces; other text falls apart into letters and bytes.
    """
    vision: Any = config.vision_config
    grid = vision.image_size // vision.patch_size
    return build_processor(stand_in_tokenizer(sentences), vision.image_size, grid**2)


def stand_in_tokenizer(sentences: Iterable[str]) -> Any:
    """GemmaTokenizer (pieces, merges, bytes) laid out as PaliGemma's; see the module."""
    words = sorted({word for text in sentences for word in text.split()})
    vocabulary = {piece: index for index, piece in _CONTROL.items()}
    vocabulary |= {f"<0x{byte:02X}>": FIRST_BYTE + byte for byte in range(256)}
    letters = {chr(code) for code in range(33, 127)} | {_SPACE} | {c for w in words for c in w}
    # Letter by letter, then with the space in front.
    merges = [(word[:end], word[end]) for word in words for end in range(1, len(word))]
    merges += [(_SPACE, word) for word in words]
    merges = list(dict.fromkeys(merges))
    _number(vocabulary, [*(left + right for left, right in merges), *sorted(letters)])
    make: Any = GemmaTokenizer
    tokenizer = make(vocab=vocabulary, merges=merges)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in (*LOCATIONS, *SEGMENTS)])
    image = AddedToken(IMAGE, normalized=False, special=True)
    tokenizer.add_special_tokens({"extra_special_tokens": [image]})
    return tokenizer


def _number(vocabulary: dict[str, int], pieces: Iterable[str]) -> None:
    """Give the pieces the free ids in order, and names that no text spells to the ids left over."""
    taken = set(vocabulary.values())
    free = (index for index in range(PIECES) if index not in taken)
    for piece in pieces:
        if piece not in vocabulary:
            vocabulary[piece] = next(free)
    for index in free:
        vocabulary[f"<unused{index}>"] = index
