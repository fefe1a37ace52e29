"""CLIP features of images, to find similar images as in InViG's retrieval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.errors import ModelError
from clue_ros.model.devices import choose_device
from clue_ros.model.loading import first_line


class ClipFeatures:
    """The vision tower of a CLIP, with its projection."""

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._processor = model.eval(), processor

    @classmethod
    def load(cls, name: str | Path, device: str = "auto") -> ClipFeatures:
        """Load a hub id or a folder with safetensors. Raises ModelError."""
        from transformers.models.clip.configuration_clip import CLIPConfig
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
        from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

        from clue_ros.model.torch_backbone import quietly

        try:
            with quietly():
                found = CLIPConfig.get_config_dict(str(name))[0].get("model_type")
                if found not in ("clip", "clip_vision_model"):
                    raise ModelError(f"{name} is a model of type {found}, want a clip")
                processor = CLIPImageProcessorPil.from_pretrained(name)
                loader: Any = CLIPVisionModelWithProjection.from_pretrained
                model = loader(name, use_safetensors=True)
        except ModelError:
            raise
        except Exception as error:  # whatever the hub's client and the libraries raise
            raise ModelError(f"cannot load the CLIP {name}: {first_line(error)}") from error
        return cls(model.to(choose_device(device)), processor)

    @torch.inference_mode()
    def __call__(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """An image, RGB (H, W, 3) -> its feature (D,), of unit length."""
        pixels = self._processor([Image.fromarray(image)], return_tensors="pt")["pixel_values"]
        device = next(self._model.parameters()).device
        found = self._model(pixel_values=pixels.to(device)).image_embeds[0].float().cpu().numpy()
        return np.asarray(found / (np.linalg.norm(found) + 1e-12), dtype=np.float32)
