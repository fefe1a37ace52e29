#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure how often a vision tower in training names the kind of an object: by patch, object, size.

    scripts/run python benchmarks/tower_kinds.py --run runs/household --tabletop DIR --mix blocks \
        [--model household] [--split val] [--world rich] [--scenes 300]

It reads the state of the first stage of `clue train base`, whose heads are not part of a model. An
object's kind is the sum of its patches' votes. `--mix`: the worlds that the training mixed in, in
its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from benchmarks.common import parse
from clue_ros.lab.options import at_least, option, required
from clue_ros.lab.report import table
from clue_ros.lab.simulator.shards import SPLITS, kinds_in, read_scenes
from clue_ros.lab.simulator.worlds import WORLDS, world_spec
from clue_ros.lab.training.augment import ScenePool
from clue_ros.lab.training.loop import (
    TrainingSettings,
    make_optimizers,
    parameters_of,
    scratch_groups,
)
from clue_ros.lab.training.vision import VisionTeacher
from clue_ros.model.backbone import load_backbone
from clue_ros.model.loading import find_base, find_model

SIZES = ((1, 3), (4, 8), (9, 196))  # patches of an object
BATCH = 50


@dataclass(frozen=True, kw_only=True)
class TowerOptions:
    """The options of this benchmark."""

    run: Path = required("run folder of clue train base")
    tabletop: Path = required("folder of simulated scenes")
    model: str = option("household", "any model with a tower of this size")
    training_world: str = option("rich", "world of the training", choices=tuple(WORLDS))
    mix: tuple[str, ...] = option((), "worlds mixed in", nargs="*", choices=tuple(WORLDS))
    world: str = option("rich", "world to measure", choices=tuple(WORLDS))
    split: str = option("val", "scenes to measure", choices=SPLITS)
    scenes: int = option(300, "largest number of scenes", type=at_least(1))


def restored(options: TowerOptions) -> VisionTeacher:
    """The tower and its heads as the run left them."""
    config = load_backbone(find_base(find_model(options.model))).config.vision_config
    worlds = (options.training_world, *options.mix)
    kinds = dict.fromkeys(k for w in worlds for k in kinds_in(options.tabletop, "train", w))
    teacher = VisionTeacher(config, tuple(kinds), tuple(world_spec(options.training_world).colors))
    groups = scratch_groups(teacher.named_parameters())
    state = load_file(options.run / "vision" / "state.safetensors")
    optimizers = make_optimizers(groups, TrainingSettings(1, 1, 1.0))
    with torch.no_grad():
        for i, (_, p) in enumerate(parameters_of(optimizers)):
            p.copy_(state[f"p{i}"])
    return teacher.eval()


@torch.no_grad()
def votes(teacher: VisionTeacher, pool: ScenePool) -> list[tuple[int, int, bool]]:
    """Of each object that has patches: how many, how many name it right, whether their sum does."""
    found: list[tuple[int, int, bool]] = []
    for start in range(0, len(pool), BATCH):
        scenes = [pool[i] for i in range(start, min(start + BATCH, len(pool)))]
        pixel_values, targets = teacher.prepared(scenes)
        logits = teacher.heads.kind(teacher.features(pixel_values).flatten(0, 1)).log_softmax(-1)
        for number, kind in enumerate(targets.kinds.tolist()):
            mine = logits[targets.owner == number]
            if len(mine):
                right = int((mine.argmax(-1) == kind).sum())
                found.append((len(mine), right, int(mine.sum(0).argmax()) == kind))
    return found


def main() -> None:
    """Print one row of a table."""
    options = parse(TowerOptions, __doc__)
    teacher = restored(options)
    scenes = islice(
        read_scenes(options.tabletop, options.split, options.scenes, options.world), options.scenes
    )
    found = votes(teacher, ScenePool(scenes, teacher.tower.config.image_size))
    patches = [n for n, _, _ in found]
    header = ["scenes", "patches", "objects", *(f"{low} to {high}" for low, high in SIZES)]
    row: list[str | float] = [
        f"{options.world}, {options.split}",
        sum(right for _, right, _ in found) / sum(patches),
        float(np.mean([named for *_, named in found])),
        *(
            float(np.mean([named for n, _, named in found if low <= n <= high]))
            for low, high in SIZES
        ),
    ]
    print(table(header, [row], markdown=True))


if __name__ == "__main__":
    main()
