"""Model folders of any size with random weights, to measure speed and memory without a download.

A model folder as `clue_ros.model.checkpoint` reads it: base, both adapters, CNN, fusion. The
tokenizer is the embedded model's; the table of embeddings has the size's own number of rows.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

from clue_ros.lab.training.plan import FULL_SIZE, ModelSizes
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.checkpoint import IvgSettings, save_ivg_settings
from clue_ros.model.config import half_depth_block
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.fusion import Fusion, save_fusion, weights_digest
from clue_ros.model.heads import CnnHead, save_head
from clue_ros.model.loading import DEFAULT_MODEL, find_model
from clue_ros.model.prompts import build_processor, load_processor
from clue_ros.model.torch_backbone import ATTENTION, TorchModel, quietly

SIZES = {
    "300m": ModelSizes(256, 1024, 4096, 10, 14, 1024, 4096, 10, 8, 4, 128, 32768),
    "3b": FULL_SIZE,
}


def write_random_model(
    folder: Path, size: str, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Path:
    """Write a model of one of `SIZES` into `folder`, and return it.

    device: where random numbers are made, a GPU in a second for billions of weights; each kind of
    device has numbers of its own.
    """
    device = torch.device(device)
    tokenizer = load_processor(find_model(DEFAULT_MODEL)).tokenizer
    config = _config(SIZES[size], tokenizer)
    before = torch.get_default_dtype()
    seeded = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=seeded), quietly():
        torch.manual_seed(0)
        torch.set_default_dtype(dtype)
        try:
            make: Any = PaliGemmaForConditionalGeneration._from_config
            with device:
                model = make(config, dtype=dtype, attn_implementation=ATTENTION)
        finally:
            torch.set_default_dtype(before)
        backbone = TorchModel(model.eval().requires_grad_(False))
        model.save_pretrained(folder)
        vision: Any = config.vision_config
        build_processor(tokenizer, vision.image_size, backbone.grid**2).save_pretrained(folder)
        adapters, block = Adapters(backbone), half_depth_block(backbone.blocks)
        for name, count in ((DETECTOR, block + 1), (IVG, backbone.blocks)):
            adapters.add(name, lora_config(range(count)))
            for weight in adapters.parameters(name):
                weight.data.normal_(std=0.02)
            adapters.save(name, folder / name)
    save_head(CnnHead(), DetectorSettings(block=block), folder / DETECTOR)
    save_ivg_settings(IvgSettings(), folder / IVG)
    digests = weights_digest(folder / DETECTOR), weights_digest(folder / IVG)
    save_fusion(Fusion(0.5, 0.5, 0.0, 0.5, *digests), folder / DETECTOR)
    return folder


def room_for(folder: Path, size: str, dtype: torch.dtype) -> bool:
    """Return whether the disk of `folder` has room for such a model."""
    each = torch.empty(0, dtype=dtype).element_size()
    return shutil.disk_usage(folder).free > 1.2 * each * SIZES[size].parameters


def _config(sizes: ModelSizes, tokenizer: Any) -> PaliGemmaConfig:
    tokens: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    text = Gemma2Config(
        vocab_size=sizes.vocab,
        hidden_size=sizes.width,
        intermediate_size=sizes.mlp,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        query_pre_attn_scalar=sizes.head_dim,
        sliding_window=4096,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        **tokens,
        tie_word_embeddings=True,
    )
    vision = SiglipVisionConfig(
        hidden_size=sizes.vision_width,
        intermediate_size=sizes.vision_mlp,
        num_hidden_layers=sizes.vision_layers,
        num_attention_heads=16,
        image_size=math.isqrt(sizes.tokens) * sizes.patch,
        patch_size=sizes.patch,
        vision_use_head=False,
    )
    return PaliGemmaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=len(tokenizer) - 1,
        vocab_size=sizes.vocab,
        projection_dim=sizes.width,
        hidden_size=sizes.width,
        **tokens,
    )
