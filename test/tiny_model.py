"""A complete model folder with RANDOM weights, for tests and examples of the file layout.

It knows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import GemmaTokenizer
from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.box_head import WEIGHTS_FILE, head_channels, head_shapes
from clue_ros.model.checkpoint import IvgSettings, save_ivg_settings
from clue_ros.model.config import half_depth_block, tiny_config
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.heads import CnnHead, save_head
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import build_processor, build_tokenizer
from clue_ros.model.torch_backbone import TorchModel, quietly

WORDS = (
    "pick up the red block on the left",
    "do you mean the blue ball or the green cylinder ?",
    "which one",
    "detect clarify disambiguate assistant : user : yes no",
)
SIZES = {
    "image_size": 64,
    "patch_size": 8,
    "width": 32,
    "mlp": 64,
    "heads": 2,
    "kv_heads": 1,
    "layers": 4,
    "vision_layers": 2,
    "vision_heads": 2,
}
SMALL_STEM: dict[str, Any] = {
    "first": 4,
    "stages": [[1, 3, 1, 1, 4], [2, 3, 2, 2, 6], [2, 5, 2, 2, 8], [1, 5, 2, 2, 10]],
    "read": [1, 2, 3],
}
"""Sizes of a convolutional stem that fits the patches of SIZES."""
DETAILED_STEM: dict[str, Any] = {**SMALL_STEM, "details": {"side": 128, "read": [[2, 2], [3, 1]]}}
"""The same with a second reading of the picture, at 128 pixels."""
BOX_STEM: dict[str, Any] = {**SMALL_STEM, "stages": [*SMALL_STEM["stages"], [1, 3, 2, 2, 12]]}
"""SMALL_STEM with a stage of 32 pixels, which a box head reads too."""


def write_random_model(
    folder: str | Path,
    words: Sequence[str] = WORDS,
    *,
    seed: int = 0,
    threshold: float = 0.5,
    **sizes: Any,
) -> Path:
    """Write base, detector and ivg with random weights into `folder` and return it.

    Takes about a second.

    `sizes` go to `tiny_config`; the default is an 8x8 grid of patches and 4 blocks. `threshold` 0
    always asks, 1 always points.
    """
    folder = Path(folder)
    tokenizer = build_tokenizer(words)
    config = tiny_config(len(tokenizer), **{**SIZES, **sizes})
    vision: Any = config.vision_config
    grid = vision.image_size // vision.patch_size
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(seed)
        backbone = TorchModel(paligemma_class(config)(config))
        _fill_features(backbone.model)
        backbone.model.eval()
        backbone.model.save_pretrained(folder)
        build_processor(tokenizer, vision.image_size, grid**2).save_pretrained(folder)
        block = half_depth_block(backbone.blocks)
        adapters = Adapters(backbone)
        for name, blocks in ((DETECTOR, block + 1), (IVG, backbone.blocks)):
            adapters.add(name, lora_config(range(blocks)))
            _shake(adapters.parameters(name))
            adapters.save(name, folder / name)
        settings = DetectorSettings(block=block, threshold=threshold)
        save_head(CnnHead(), settings, folder / DETECTOR)
        save_ivg_settings(IvgSettings(max_new_tokens=12), folder / IVG)
    return folder


def write_random_head(folder: Path, seed: int = 0) -> Path:
    """Write a box head with random weights beside a base with BOX_STEM; returns its folder."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in head_shapes(head_channels(BOX_STEM), 16).items():
        scale = float(np.prod(shape[1:])) ** -0.5
        weights[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    save_file(weights, folder / WEIGHTS_FILE)
    return folder


def _shake(weights: Sequence[torch.nn.Parameter]) -> None:
    """A new adapter changes nothing (its B is zero); random numbers make the two differ."""
    with torch.no_grad():
        for weight in weights:
            weight.normal_(std=0.05)


def _fill_features(model: Any) -> None:
    """A stem's frozen features and their projection are zeros until a file fills them."""
    for name, buffer in model.named_buffers():
        if "patch_embedding" in name:
            buffer.normal_(std=0.3)
            model.model.vision_tower.embeddings.patch_embedding.weight.data.normal_(std=0.1)


def gemma_processor() -> Any:
    """PaliGemma's own tokenizer class with a small vocabulary: pieces, bytes, left padding."""
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("d", "e"), ("de", "t"), ("e", "c")]
    merges += [("det", "ec"), ("detec", "t"), ("r", "e"), ("▁", "re"), ("▁re", "d")]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [chr(code) for code in range(33, 127)] + ["▁", "\n"] + [a + b for a, b in merges]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = GemmaTokenizer(vocab=vocabulary, merges=merges)
    pictures = SiglipImageProcessorPil(size={"height": 56, "width": 56})
    pictures.image_seq_length = 16
    return PaliGemmaProcessor(image_processor=pictures, tokenizer=tokenizer)
