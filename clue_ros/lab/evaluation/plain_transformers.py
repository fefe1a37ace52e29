"""CLUE written with transformers and peft alone, the baseline of `clue bench speed`.

The same weights and the same answers, as a user of the two libraries would write it from their
documentation; nothing of `clue_ros` runs but the detector's CNN and equations 1 and 2. The image is
an argument of every call, as in the libraries' methods.

    python -m clue_ros.lab.evaluation.plain_transformers FOLDER IMAGE "the mug" 5 float32 cpu

prints the probability of ambiguity and a reply of five tokens, for the time of a fresh process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from peft import PeftModel
from PIL import Image

from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.heads import load_head
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_config

Pixels = npt.NDArray[np.uint8]


class PlainTransformers:
    """Both adapters of a model folder on transformers' model.

    best: at transformers' best settings for this use: fused attention (sdpa) in the vision tower
    (Gemma 2's softcap has no kernel but eager), attention weights only of the block that is read,
    logits of the last position. `generate` with a static cache fails for PaliGemma (transformers
    5.23), so it keeps its dynamic one.
    """

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        *,
        best: bool = False,
    ) -> None:
        self.best = best
        self.processor: Any = load_processor(folder)
        vision_attention = "sdpa" if best else "eager"
        load: Any = paligemma_class(load_config(folder)).from_pretrained
        base = load(
            folder,
            dtype=dtype,
            attn_implementation={"text_config": "eager", "vision_config": vision_attention},
            local_files_only=True,
        ).to(device)
        self.base = base
        place = {"torch_device": str(device)}  # peft takes any GPU that it finds
        self.model: Any = PeftModel.from_pretrained(base, folder / "detector", "detector", **place)
        self.model.load_adapter(folder / "ivg", "ivg", **place)
        self.model.eval()
        settings = json.loads((folder / "detector" / "detector.json").read_text())
        self.block: int = settings["block"]
        self.temperature: float = settings["temperature"]
        head: Any = load_head(folder / "detector", settings["head"], self.processor.tokenizer)
        self.head = head.to(device)
        vision = base.config.vision_config
        self.grid: int = vision.image_size // vision.patch_size

    def share_weights(self, other: PlainTransformers) -> None:
        """Hold the weights of `other`, of the same folder: 3b would need 6 GB more for its own."""
        theirs = dict(other.model.named_parameters())
        for name, weight in self.model.named_parameters():
            weight.data = theirs[name].data

    def memory_bytes(self) -> int:
        """Bytes of weights and buffers; a tensor used twice (tied embeddings) counts once."""
        parts = (self.model, self.head)
        tensors = [t for part in parts for t in (*part.parameters(), *part.buffers())]
        return sum({t.data_ptr(): t.nbytes for t in tensors}.values())

    def _inputs(self, image: Pixels, text: str) -> Any:
        inputs = self.processor(
            images=Image.fromarray(image), text=f"<image>{text}", return_tensors="pt"
        )
        inputs.pop("labels", None)  # they are for training
        return inputs.to(self.base.device, self.base.dtype)

    @torch.inference_mode()
    def probability(self, image: Pixels, request: str) -> float:
        """The detector's probability that a request is ambiguous: RGB uint8 (H, W, 3)."""
        inputs = self._inputs(image, f"detect {request}")
        self.model.set_adapter("detector")
        weights = self._attention(inputs)
        words = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
        words[:, self.grid**2 + 2 : -1] = True  # after the image, <bos> and "detect"; no newline
        attention = min_max(image_attention(weights.float(), words, self.grid))
        return float(torch.sigmoid(self.head(attention) / self.temperature)[0])

    def _attention(self, inputs: Any) -> torch.Tensor:
        if not self.best:
            weights: torch.Tensor = self.model(**inputs, output_attentions=True).attentions[
                self.block
            ]
            return weights
        kept: list[torch.Tensor] = []
        layer = self.base.model.language_model.layers[self.block].self_attn
        handle = layer.register_forward_hook(lambda _module, _inputs, out: kept.append(out[1]))
        try:
            self.model(**inputs, logits_to_keep=1, use_cache=False)
        finally:
            handle.remove()
        return kept[0]

    @torch.inference_mode()
    def reply(self, image: Pixels, context: str, tokens: int) -> list[int]:
        """`tokens` tokens of adapter B's reply, decoded greedily."""
        inputs = self._inputs(image, f"clarify {context}")
        self.model.set_adapter("ivg")
        out = self.model.generate(
            **inputs, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
        said: list[int] = out[0, inputs["input_ids"].shape[1] :].tolist()
        return said


def main() -> None:
    """The first answer of a fresh process."""
    folder, image, request, tokens, dtype, device = sys.argv[1:]
    pixels = np.asarray(Image.open(image).convert("RGB"))
    plain = PlainTransformers(Path(folder), getattr(torch, dtype), device)
    print(plain.probability(pixels, request), plain.reply(pixels, request, int(tokens)), flush=True)


if __name__ == "__main__":
    main()
