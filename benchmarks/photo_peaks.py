#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure what a vision tower alone knows about photographs, by its dense heads.

    scripts/run python benchmarks/photo_peaks.py RUN/vision/tower.safetensors --model models/mine \
        --data PHOTOS [--data PHOTOS ...] --tabletop data/large --world table --mix rich

TOWER is what stage 1 of `clue train base` wrote; --model has its sizes, and --tabletop the shards
whose kinds its heads know. For each clear request with a noun of these kinds and one true box, the
token with the highest score of the noun's kinds is looked for: the share of these peaks that lie
in the box, and the share of the boxes that the tower's side heads say there with an IoU of 0.5.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.dialogue.types import Box
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import load_photographs
from clue_ros.lab.metrics import MIN_IOU, ratio
from clue_ros.lab.simulator.shards import kinds_in
from clue_ros.lab.training.vision import LOC_BINS, DenseHeads
from clue_ros.model.conv_stem import holding
from clue_ros.model.loading import find_base, find_model
from clue_ros.model.prompts import open_processor, prepare_images, split_words
from clue_ros.model.torch_backbone import load_model


def kinds_named(text: str, kinds: Sequence[str]) -> list[int]:
    """The kinds that the longest known noun of a request names; [] for none."""
    words = split_words(text)
    for length in (3, 2, 1):
        for start in range(len(words) - length, -1, -1):
            noun = " ".join(words[start : start + length])
            found = [i for i, kind in enumerate(kinds) if _is_named(kind, noun)]
            if found:
                return found
    return []


def _is_named(kind: str, noun: str) -> bool:
    return noun == kind or noun in KIND_NAMES.get(kind, ()) or kind.endswith(f" {noun}")


class Eyes:
    """A tower with its heads."""

    def __init__(self, tower: Path, model: str, kinds: Sequence[str]) -> None:
        base = find_base(find_model(model))
        self.backbone, self.processor = load_model(base), open_processor(base)
        self.tower: Any = self.backbone.model.model.vision_tower
        weights = load_file(str(tower))
        colors = weights["heads.color.weight"]
        self.heads = DenseHeads(colors.shape[1], kinds, [str(i) for i in range(len(colors))])
        for part, module in (("tower.", self.tower), ("heads.", self.heads)):
            own = {k.removeprefix(part): v for k, v in weights.items() if k.startswith(part)}
            module.load_state_dict(own)

    @torch.inference_mode()
    def see(self, image: Any) -> Tensor:
        """The tower's features (P, width) of an image, uint8 RGB (H, W, 3)."""
        pixels = torch.from_numpy(prepare_images(self.processor, [image]))
        with holding(self.tower, self.backbone.image_details(image)):
            found: Tensor = self.tower(pixel_values=pixels).last_hidden_state[0]
        return found

    @torch.inference_mode()
    def find(self, features: Tensor, kinds: Sequence[int]) -> tuple[tuple[float, float], Box]:
        """The middle (x, y) of the token that shows these kinds most, and its box, fractions."""
        grid = self.backbone.grid
        score = self.heads.kind(features).log_softmax(-1)[:, list(kinds)].logsumexp(-1)
        score = score + functional.logsigmoid(self.heads.object(features)[:, 0])
        at = int(score.argmax())
        bins = self.heads.side_logits(features[at : at + 1])[0].softmax(-1)
        values = (bins * torch.arange(LOC_BINS)).sum(-1) / (LOC_BINS - 1)
        y0, x0, y1, x1 = (float(v) for v in values)
        middle = (at % grid + 0.5) / grid, (at // grid + 0.5) / grid
        return middle, Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


def measure(eyes: Eyes, folder: Path) -> dict[str, float | int]:
    """Shares over the requests of a folder of photographs."""
    peaks, boxes = [], []
    for photograph in load_photographs(folder):
        image = load_image(photograph.path)
        height, width = image.shape[:2]
        features = eyes.see(image)
        for request in photograph.requests:
            kinds = kinds_named(request.text, eyes.heads.kinds)
            if request.truth != "clear" or len(request.boxes) != 1 or not kinds:
                continue
            (truth,) = request.boxes
            (x, y), box = eyes.find(features, kinds)
            x, y = x * width, y * height
            peaks.append(truth.x_min <= x <= truth.x_max and truth.y_min <= y <= truth.y_max)
            boxes.append(box.in_pixels(width, height).iou(truth) >= MIN_IOU)
    count = len(peaks)
    return {
        "n": count,
        "peak": round(ratio(sum(peaks), count), 4),
        "box": round(ratio(sum(boxes), count), 4),
    }


def main() -> None:
    """Measure, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("tower", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--tabletop", type=Path, required=True)
    parser.add_argument("--world", default="table")
    parser.add_argument("--mix", action="append", default=[])
    options = parser.parse_args()
    worlds = [options.world, *options.mix]
    kinds = (kind for world in worlds for kind in kinds_in(options.tabletop, "train", world))
    eyes = Eyes(options.tower, options.model, tuple(dict.fromkeys(kinds)))
    print(json.dumps({str(folder): measure(eyes, folder) for folder in options.data}))


if __name__ == "__main__":
    main()
