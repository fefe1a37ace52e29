# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Training with transformers and peft alone: what `training_speed.py` compares our steps with.

As a user of the two libraries would write it from their documentation: the processor makes one
sequence of each query, with a picture of its own; attention is eager (transformers has no other one
for Gemma 2's softcap that trains); peft adds the LoRA; AdamW trains what may learn. Nothing of
clue_ros runs but what no library has: stage 1's dense heads and targets, the detector's CNN,
equations 1 and 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from torch import Tensor, nn

from clue_ros.lab.training.samples import Query, Sample
from clue_ros.lab.training.vision import SIGMA_BINS, DenseHeads, dense_loss, dense_targets
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.heads import detector_loss
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import escape, load_processor
from clue_ros.model.torch_backbone import load_config


class PlainTraining:
    """One loop: a loss of samples, and AdamW over the parameters that learn."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        loss: Callable[[Sequence[Sample]], Tensor],
        device: torch.device,
        lr: float,
    ) -> None:
        self._optimizer = torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=lr)
        self._loss, self.device = loss, device

    def step(self, samples: Sequence[Sample], dtype: torch.dtype = torch.float32) -> float:
        """Take one step; the loss. dtype: float32, or of autocast."""
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            loss = self._loss(samples)
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())


class PlainModel:
    """A PaliGemma of transformers and its processor, from a model folder."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.processor: Any = load_processor(folder)
        self.processor.tokenizer.padding_side = "right"  # image tokens first, for equation 1
        make: Any = paligemma_class(load_config(folder))
        self.model: Any = make.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        ).to(device)
        self.device = device
        self.base: Any = self.model.model  # inside peft's too, once an adapter is added
        vision = self.model.config.vision_config
        self.grid: int = vision.image_size // vision.patch_size

    def inputs(self, samples: Sequence[Sample], *, suffixes: bool) -> tuple[Any, list[Query]]:
        """The processor's batch of all queries, one a sequence, and the queries."""
        asked = [(scene, query) for scene, queries in samples for query in queries]
        tokenizer = self.processor.tokenizer
        batch = self.processor(
            images=[Image.fromarray(scene.image) for scene, _ in asked],
            text=[f"<image>{q.instruction} {escape(q.context, tokenizer)}" for _, q in asked],
            suffix=[q.suffix for _, q in asked] if suffixes else None,
            padding=True,
            return_tensors="pt",
        )
        return batch.to(self.device), [query for _, query in asked]

    def add_lora(self, config: LoraConfig) -> None:
        """Freeze the base and add an adapter, which learns."""
        self.model = get_peft_model(self.model, config)
        self.model.train()


def tower_training(plain: PlainModel, heads: DenseHeads, lr: float) -> PlainTraining:
    """Stage 1: the vision tower and a copy of these dense heads."""
    tower, heads = plain.base.vision_tower, copy.deepcopy(heads)

    def loss(samples: Sequence[Sample]) -> Tensor:
        scenes = [scene for scene, _ in samples]
        pictures = [Image.fromarray(scene.image) for scene in scenes]
        pixels = plain.processor.image_processor(pictures, return_tensors="pt")["pixel_values"]
        targets = dense_targets(scenes, plain.grid, heads.kinds, heads.colors)
        features = tower(pixel_values=pixels.to(plain.device)).last_hidden_state
        return dense_loss(features, heads, targets, SIGMA_BINS[1])["loss"]

    return PlainTraining([*tower.parameters(), *heads.parameters()], loss, plain.device, lr)


def suffix_training(plain: PlainModel, lr: float) -> PlainTraining:
    """Stage 2 and adapter B: the loss of transformers, a mean over the suffixes' tokens."""

    def loss(samples: Sequence[Sample]) -> Tensor:
        batch, _ = plain.inputs(samples, suffixes=True)
        found: Tensor = plain.model(**batch).loss
        return found

    return PlainTraining(plain.model.parameters(), loss, plain.device, lr)


def detector_training(plain: PlainModel, head: nn.Module, block: int, lr: float) -> PlainTraining:
    """Adapter A, and a copy of this CNN on the attention map of a block."""
    head = copy.deepcopy(head)

    def loss(samples: Sequence[Sample]) -> Tensor:
        batch, queries = plain.inputs(samples, suffixes=False)
        batch.pop("labels", None)
        weights = plain.model(**batch, output_attentions=True).attentions[block]
        real = batch["attention_mask"].cumsum(1)
        instruction = plain.processor.tokenizer(queries[0].instruction, add_special_tokens=False)
        before = plain.grid**2 + 1 + len(instruction["input_ids"])  # the image, <bos>
        words = (real > before) & (real < real[:, -1:])  # the last token is the newline
        logits = head(min_max(image_attention(weights, words, plain.grid)))
        truth = torch.tensor([float(query.ambiguous) for query in queries], device=plain.device)
        return detector_loss(logits, truth)

    parameters = [*plain.model.parameters(), *head.parameters()]
    return PlainTraining(parameters, loss, plain.device, lr)
