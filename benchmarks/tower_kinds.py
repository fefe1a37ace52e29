#!/usr/bin/env python3
"""How often a vision tower in training names an object's kind, by patch, by object and by its size.

    scripts/run python benchmarks/tower_kinds.py --run runs/household --tabletop DIR --mix blocks \
        [--model household] [--split val] [--world rich] [--scenes 300]

It reads the state of `clue train base`'s first stage, whose heads are not part of a model. Every
patch of an object votes. `--mix`: the worlds that the training mixed in, in its order.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from clue_ros.lab.evaluation.report import table
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


def restored(args: argparse.Namespace) -> VisionTeacher:
    """The tower and its heads as the run left them."""
    config = load_backbone(find_base(find_model(args.model))).config.vision_config
    worlds = (args.training_world, *args.mix)
    kinds = dict.fromkeys(k for w in worlds for k in kinds_in(args.tabletop, "train", w))
    teacher = VisionTeacher(config, tuple(kinds), tuple(world_spec(args.training_world).colors))
    groups = scratch_groups(teacher.named_parameters())
    state = load_file(args.run / "vision" / "state.safetensors")
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


def main() -> int:
    """Print one row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="of clue train base")
    parser.add_argument("--tabletop", type=Path, required=True, help="simulator shards")
    parser.add_argument("--model", default="household", help="any of the tower's sizes")
    parser.add_argument("--training-world", choices=tuple(WORLDS), default="rich")
    parser.add_argument("--mix", nargs="*", choices=tuple(WORLDS), default=[])
    parser.add_argument("--world", choices=tuple(WORLDS), default="rich")
    parser.add_argument("--split", choices=SPLITS, default="val")
    parser.add_argument("--scenes", type=int, default=300)
    args = parser.parse_args()
    teacher = restored(args)
    scenes = islice(read_scenes(args.tabletop, args.split, args.scenes, args.world), args.scenes)
    found = votes(teacher, ScenePool(scenes, teacher.tower.config.image_size))
    patches = [n for n, _, _ in found]
    header = ["scenes", "patches", "objects", *(f"{low} to {high}" for low, high in SIZES)]
    row: list[str | float] = [
        f"{args.world}, {args.split}",
        sum(right for _, right, _ in found) / sum(patches),
        float(np.mean([named for *_, named in found])),
        *(
            float(np.mean([named for n, _, named in found if low <= n <= high]))
            for low, high in SIZES
        ),
    ]
    print(table(header, [row], markdown=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
