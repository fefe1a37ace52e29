#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure how often a base's boxes are right, by the sort of a clear request.

    scripts/run python benchmarks/boxes_by_sort.py --tabletop DIR [--model household] [--split val]
        [--world rich] [--scenes 300] [--max-boxes 1] [--views 1]

The base alone, without adapters, must give a box, as `clue train base` taught it. It gets one clear
request of each sort about each scene that allows one; the requests are the same for every model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from benchmarks.common import parse
from clue_ros.dialogue.types import Box
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.references import Reference, referents
from clue_ros.lab.language.rich_grammar import SORTS, RichGrammar, random_reference, request_form
from clue_ros.lab.options import at_least, option, required
from clue_ros.lab.report import table
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS, read_scenes
from clue_ros.lab.simulator.worlds import WORLDS
from clue_ros.lab.training.augment import ScenePool
from clue_ros.lab.training.vision import pixel_values
from clue_ros.model.backbone import load_backbone
from clue_ros.model.decoding import Generation, Vocabulary, generate
from clue_ros.model.loading import find_base, find_model
from clue_ros.model.multi_view import MAX_VIEWS, agreed, windows
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor

TRIES = 60
INSTRUCTION = "clarify"


def clear_request(
    grammar: RichGrammar, scene: Scene, sort: str, rng: np.random.Generator
) -> tuple[str, Reference, int] | None:
    """A request of a sort that means one object, and that object; None if no draw gives one."""
    for _ in range(TRIES):
        reference = random_reference(scene.objects, rng, request_form(sort, *rng.uniform(size=2)))
        found = referents(reference, scene.objects)
        if found is not None and len(found) == 1 and reference != Reference():
            return grammar.phrasing.request(reference, rng), reference, found[0]
    return None


def name_of(sort: str, reference: Reference) -> str:
    """A sort as a row of the table, each number of an order by itself."""
    return sort if reference.order is None else f"{sort}, number {reference.order[0]}"


@dataclass(frozen=True, kw_only=True)
class BoxesOptions:
    """The options of this benchmark."""

    tabletop: Path = required("folder of simulated scenes")
    model: str = option("household", "household, a folder or a hub id")
    world: str = option("rich", "simulated world", choices=tuple(WORLDS))
    split: str = option("val", "which scenes", choices=SPLITS)
    scenes: int = option(300, "largest number of scenes", type=at_least(1))
    seed: int = option(5, "seed of the requests")
    max_boxes: int = option(1, "boxes in a reply: 4 for a base trained with --via")
    views: int = option(
        1, "number of augmented views", choices=range(1, MAX_VIEWS + 1), old_name="looks"
    )


class Pointer:
    """A base that is asked for boxes."""

    def __init__(self, options: BoxesOptions) -> None:
        folder = find_base(find_model(options.model))
        self.backbone = load_backbone(folder)
        self.processor: Any = load_processor(folder)
        text = self.backbone.text
        self.vocabulary = Vocabulary(self.processor.tokenizer, text.vocab_size)
        self.max_boxes, self.views = options.max_boxes, options.views
        self.size: int = self.backbone.config.vision_config.image_size

    @torch.inference_mode()
    def boxes(self, scene: Scene, texts: list[str]) -> list[Box]:
        """The box of each request about a scene, in pixels of its image."""
        through = windows(self.views, self.size, self.size)
        prompts = encode_prompts(self.processor, INSTRUCTION, texts)
        said = [self._said(window.onto(scene.image), prompts) for window in through]
        return [agreed(replies, through).box for replies in zip(*said, strict=True)]

    def _said(self, image: npt.NDArray[np.uint8], prompts: Prompts) -> list[Generation]:
        """The reply to each request about an image of any size."""
        resized = cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_AREA)
        picture = torch.from_numpy(np.asarray(resized, np.uint8)).permute(2, 0, 1)
        seen = pixel_values(picture[None])
        return generate(
            self.backbone,
            self.vocabulary,
            self.backbone.look(seen.to(self.backbone.device)),
            prompts,
            "grounding",
            max_boxes=self.max_boxes,
        )


def main() -> None:
    """Print a table with one row for each sort."""
    options = parse(BoxesOptions, __doc__)
    pointer = Pointer(options)
    grammar = grammar_of(options.world)
    rng = np.random.default_rng(options.seed)
    right: dict[str, list[bool]] = defaultdict(list)
    pool = ScenePool(
        read_scenes(options.tabletop, options.split, options.scenes, options.world), pointer.size
    )
    for i in range(len(pool)):
        scene = pool[i]
        drawn = {sort: clear_request(grammar, scene, sort, rng) for sort in SORTS}
        asked = [(sort, *found) for sort, found in drawn.items() if found]
        answers = pointer.boxes(scene, [text for _, text, _, _ in asked])
        for (sort, _, reference, target), box in zip(asked, answers, strict=True):
            truth = Box(*(pointer.size * side for side in scene.objects[target].box))
            hit = box.iou(truth) >= 0.5
            for name in {sort, name_of(sort, reference), "all"}:
                right[name].append(hit)
    rows: list[list[str | float]] = [
        [name, float(np.mean(hits)), len(hits)] for name, hits in sorted(right.items())
    ]
    print(table(["clear requests", "boxes right", "n"], rows, markdown=True))


if __name__ == "__main__":
    main()
