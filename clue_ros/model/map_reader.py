"""Attention maps of one picture and one sentence, of any block and head, for the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.dialogue import Peak
from clue_ros.model.attention import attention_map, find_peaks
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.checkpoint import check_processor, choose_device, choose_dtype, load_checkpoint
from clue_ros.model.config import half_depth_block
from clue_ros.model.hub import find_base, find_model
from clue_ros.model.processor import Prompts, encode_prompts, load_processor

Map = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Seen:
    """A map (g, g) in 0..1, its peaks in pixels, and the detector's word in one short line."""

    attention: Map
    peaks: tuple[Peak, ...]
    verdict: str


class MapReader:
    """A model, read through its detector's adapter, or with `base` as it was before any.

    Raises ModelError.
    """

    def __init__(
        self, model: str, device: str, *, detector: str | None = None, base: bool = False
    ) -> None:
        if base:
            self.backbone, self._processor = load_base(model, device)
            self._detector = None
        else:
            checkpoint = load_checkpoint(model, device, detector=detector)
            self.backbone, self._processor = checkpoint.backbone, checkpoint.processor
            self._detector = checkpoint.detector
        self.blocks = self.backbone.blocks
        self.half_depth = half_depth_block(self.blocks)

    @torch.inference_mode()
    def judge(self, image: npt.NDArray[np.uint8], text: str) -> Seen:
        """The detector's map and probability; of the base the half-depth map alone."""
        features, prompts = self._encode(image, text)
        if self._detector is None:
            maps = block_maps(self.backbone, features, prompts)[:, self.half_depth]
            verdict = f"block {self.half_depth}, no adapter"
        else:
            chance, maps = self._detector(features, prompts)
            ambiguous = float(chance[0]) >= self._detector.settings.threshold
            verdict = (
                f"{'ambiguous' if ambiguous else 'clear'} (probability {float(chance[0]):.2f})"
            )
        attention = _array(maps[0])
        height, width = image.shape[:2]
        return Seen(attention, find_peaks(attention, width, height), verdict)

    @torch.inference_mode()
    def block_maps(self, image: npt.NDArray[np.uint8], text: str) -> Map:
        """Every block's map, (L, g, g) in 0..1."""
        features, prompts = self._encode(image, text)
        return _array(block_maps(self.backbone, features, prompts)[0])

    @torch.inference_mode()
    def head_maps(self, image: npt.NDArray[np.uint8], text: str, block: int) -> Map:
        """The map of each head of a block, (H, g, g) in 0..1: equation 2 with one H at a time."""
        features, prompts = self._encode(image, text)
        attention = self.backbone.attention_at(block, features, prompts)[0]
        mask = prompts.query_mask.expand(len(attention), -1)
        return _array(attention_map(attention[:, None], mask, self.backbone.grid))

    def _encode(self, image: npt.NDArray[np.uint8], text: str) -> tuple[torch.Tensor, Prompts]:
        """Features and prompt, and the detector's adapter made the active one."""
        pixels = self._processor.image_processor(Image.fromarray(image), return_tensors="pt")
        features = self.backbone.look(pixels["pixel_values"])
        if self._detector is None:
            prompts = encode_prompts(self._processor, "detect", [text])
            return features, prompts.to(self.backbone.device)
        self._detector.adapters.use(self._detector.adapter)
        return features, self._detector.prompts(self._processor, [text])


def _array(maps: torch.Tensor) -> Map:
    return np.asarray(maps.float().cpu().numpy(), dtype=np.float32)


@torch.inference_mode()
def block_maps(backbone: Backbone, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
    """Maps of every block, (B, L, g, g) float32 in 0..1, by the active adapter, from one pass.

    features (B or 1, N, D). Holds the attention of all blocks at once: B * L * H * T * T numbers.
    """
    attentions = backbone.attentions(features, prompts)
    maps = [attention_map(a, prompts.query_mask, backbone.grid) for a in attentions]
    return torch.stack(maps, 1)


def load_base(model: str, device: str) -> tuple[Backbone, Any]:
    """A model's backbone and processor, without its adapters; bfloat16 on a GPU. ModelError."""
    base = find_base(find_model(model))
    place = choose_device(device)
    backbone = load_backbone(base, device=place, dtype=choose_dtype("auto", place))
    processor = load_processor(base)
    check_processor(processor, backbone, base)
    return backbone, processor
