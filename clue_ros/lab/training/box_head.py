"""`clue train boxes`: the box head on a stem's frozen features (`clue_ros.model.box_head`).

    clue train boxes --model models/mine --tabletop data/large --world table --mix rich=1200

Each step draws scenes as `clue data features` draws its versions (mirrored, zoomed, cropped, relit,
developed), computes the model's frozen features, and trains the head on the objects' boxes.
A cell learns from the object that covers it. An uncovered cell with its centre in a box learns from
the smallest such box with half the weight. The loss is 1 - GIoU (Rezatofighi and
others, 2019) with a smooth L1 of the sides in shares of the object; each object counts as the
square root of its cells. The quality learns the IoU that its box has, the object logit the masks.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p
from clue_ros.lab.data.it2p_boxes import it2p_scenes
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import how_to_make, list_shards, read_shard
from clue_ros.lab.training import stored
from clue_ros.lab.training.options import SourceOptions, mixed_world, named_folder
from clue_ros.model.box_head import (
    CELL,
    DILATIONS,
    OUTPUTS,
    REACH,
    SIDE,
    WEIGHTS_FILE,
    boxes_at,
    head_channels,
    head_stages,
    load_box_head,
    overlaps,
)
from clue_ros.model.checkpoint import open_backbone
from clue_ros.model.details import detailed_picture
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import find_base, find_model, replacing

WIDTH = 64  # of the hidden layers
BATCH = 8  # pictures a step
AVERAGE = 0.99  # decay of the weights' moving mean, which is written
PHOTOS = 0.07  # share of IT2P's photographs among the pictures
IN_BOX = 0.5  # weight of a cell that its box holds and no object covers
NOWHERE, COVERED, INSIDE = 0, 1, 2  # of a cell: no object, one that covers it, in a box only


@dataclass(frozen=True, kw_only=True)
class BoxOptions(SourceOptions):
    """The options of `clue train boxes`."""

    model: str = required("model whose stem reads the pictures: a folder or a name")
    out: Path | None = option(None, "folder to write; default: the --model folder")
    mix: tuple[tuple[str, int], ...] = option(
        (),
        "add at most this many scenes of another world",
        type=mixed_world,
        action="append",
        metavar="WORLD=SCENES",
    )
    steps: int = option(3000, "steps of 8 pictures", type=at_least(1))
    lr: float = option(1.2e-3, "highest learning rate")
    init: Path | None = option(None, "head to start from, a box_head.safetensors")
    seed: int = option(0, "seed of weights, data order and augmentation")


class BoxHeadModule(nn.Module):
    """The head as layers, with the names that its weights have in the file."""

    def __init__(self, channels: int, width: int = WIDTH) -> None:
        super().__init__()
        self.inp = nn.Linear(channels, width)
        self.blocks = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=d, dilation=d) for d in DILATIONS
        )
        self.out = nn.Linear(width, OUTPUTS)
        for block in self.blocks:
            assert isinstance(block, nn.Conv2d)
            assert block.bias is not None
            nn.init.kaiming_normal_(block.weight, nonlinearity="relu")
            block.weight.data *= 0.5
            nn.init.zeros_(block.bias)
        nn.init.zeros_(self.out.weight)
        self.out.bias.data = torch.tensor([-2.5] * 4 + [0.0, -2.0])  # 50 pixels each way

    @classmethod
    def of(cls, path: Path) -> BoxHeadModule:
        """The head in a file."""
        weights = load_file(path)
        module = cls(weights["inp.weight"].shape[1], len(weights["inp.bias"]))
        module.load_state_dict(weights)
        return module

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Levels (B, C, h, w) of strides 8, 16 and 32 -> (B, 6, h, w) of stride 16."""
        fine, middle, coarse = levels
        seen = [functional.pixel_unshuffle(fine, 2), middle]
        seen.append(functional.interpolate(coarse, scale_factor=2, mode="nearest"))
        hidden = functional.relu(self.inp(torch.cat(seen, 1).movedim(1, -1))).movedim(-1, 1)
        for block in self.blocks:
            hidden = hidden + functional.relu(block(hidden))
        out: Tensor = self.out(hidden.movedim(1, -1)).movedim(-1, 1)
        return out


@dataclass(frozen=True)
class Targets:
    """The targets of the cells (h, w) of a picture.

    boxes: (n, 4) of its objects, in cells. owner: int64, the object that a cell learns from, -1 for
    none. kind: int64, NOWHERE, COVERED or INSIDE.
    """

    boxes: Tensor
    owner: Tensor
    kind: Tensor


def targets_of(scene: Scene, rows: int, columns: int) -> Targets:
    """The targets of a scene for a map of these many cells."""
    size = np.array([columns, rows, columns, rows], np.float32)
    boxes = np.array([o.box for o in scene.objects], np.float32).reshape(-1, 4) * size
    grid = len(scene.instances)
    y, x = np.arange(0.5, rows), np.arange(0.5, columns)
    cells = scene.instances[(y / rows * grid).astype(int)][:, (x / columns * grid).astype(int)]
    owner = cells.astype(np.int64) - 1
    kind = np.where(owner >= 0, COVERED, NOWHERE)
    holds = [_holds(box, y, x) for box in boxes]
    for number, inside in enumerate(holds):  # masks are coarser than boxes
        beyond = (owner == number) & ~inside
        kind[beyond], owner[beyond] = NOWHERE, -1
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for number in np.argsort(-areas, kind="stable"):
        free = holds[number] & (kind != COVERED)
        owner[free], kind[free] = number, INSIDE
        if not holds[number].any():  # thinner than a cell: the nearest one
            row, column = (boxes[number, [1, 0]] + boxes[number, [3, 2]]) / 2
            at = min(rows - 1, int(row)), min(columns - 1, int(column))
            owner[at], kind[at] = number, COVERED
    return Targets(torch.from_numpy(boxes), torch.from_numpy(owner), torch.from_numpy(kind))


def _holds(
    box: npt.NDArray[np.float32], y: npt.NDArray[Any], x: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Return the cells with these centres that a box contains, bool (h, w)."""
    within = ((y > box[1]) & (y < box[3]))[:, None] & ((x > box[0]) & (x < box[2]))[None]
    return np.asarray(within, np.bool_)


def box_loss(out: Tensor, targets: Targets) -> tuple[Tensor, float]:
    """The loss of a picture's output (6, h, w), and the mean IoU of its boxes; 0 without objects.

    See the module's first lines.
    """
    kind, owner = targets.kind, targets.owner
    learned = (kind != INSIDE).float()
    covered = (kind == COVERED).float()
    loss = 3 * functional.binary_cross_entropy_with_logits(out[5], covered, learned)
    seen = kind != NOWHERE
    if not bool(seen.any()):
        return loss, 0.0
    found, true = _boxes(out)[seen], targets.boxes[owner[seen]]
    counts = torch.bincount(owner[seen], minlength=len(targets.boxes)).clamp(min=1)
    weights = counts[owner[seen]] ** -0.5 * torch.where(kind[seen] == INSIDE, IN_BOX, 1.0)
    weights = weights / weights.sum()
    low, high = torch.maximum(found, true), torch.minimum(found, true)
    shared = (high[:, 2:] - low[:, :2]).clamp(min=0).prod(1)
    around = (low[:, 2:] - high[:, :2]).prod(1)
    union = (found[:, 2:] - found[:, :2]).prod(1) + (true[:, 2:] - true[:, :2]).prod(1) - shared
    iou = shared / union.clamp(min=1e-6)
    giou = iou - (around - union) / around.clamp(min=1e-6)
    size = (true[:, 2:] - true[:, :2]).amax(1, keepdim=True)
    sides = functional.smooth_l1_loss(found / size, true / size, beta=0.1, reduction="none")
    loss = loss + ((1 - giou + 2 * sides.mean(1)) * weights).sum()
    right = iou.detach()
    quality = functional.binary_cross_entropy_with_logits(out[4][seen], right, reduction="none")
    return loss + 0.5 * (quality * weights).sum(), float(right.mean())


def _boxes(out: Tensor) -> Tensor:
    """The boxes (h, w, 4) of an output (6, h, w), in cells."""
    rows, columns = out.shape[1:]
    reach = out[:4].clamp(*REACH).exp() * (SIDE / CELL)
    x = torch.arange(columns) + 0.5
    y = (torch.arange(rows) + 0.5)[:, None]
    return torch.stack([x - reach[0], y - reach[1], x + reach[2], y + reach[3]], -1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, BoxOptions)


def run(args: argparse.Namespace) -> int:
    """Train and write the head; 0 when it is there."""
    train_boxes(read_options(BoxOptions, args))
    return 0


def train_boxes(options: BoxOptions) -> None:
    """Train the head and write it beside the base. Raises ClueError, ModelError."""
    out = named_folder(options.model, "") if options.out is None else options.out
    options.start_device()
    base = find_base(find_model(options.model))
    backbone: Any = open_backbone(base, LoadOptions(base, device="cpu"))
    sizes = getattr(backbone.config.vision_config, "conv_stem", None)
    if sizes is None:
        raise ClueError(f"{base}: this model's vision tower has no stem for a box head to read")
    stages = head_stages(sizes)
    torch.manual_seed(options.seed)
    module = BoxHeadModule(head_channels(sizes))
    if options.init is not None:
        module = BoxHeadModule.of(options.init)
    optimizer = torch.optim.AdamW(module.parameters(), lr=options.lr, weight_decay=1e-2)
    mean = {name: weight.clone() for name, weight in module.state_dict().items()}
    pictures = _pictures(options)
    progress = tqdm(range(options.steps), file=sys.stderr, mininterval=5)
    for step in progress:
        rate = 0.02 + 0.98 * (1 + math.cos(math.pi * step / options.steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = options.lr * rate * min(1, (step + 1) / 50)
        optimizer.zero_grad()
        right = 0.0
        for _ in range(BATCH):
            scene = next(pictures)
            levels = backbone.stages(detailed_picture(scene.image, SIDE), stages)
            found = module([torch.from_numpy(level)[None] for level in levels])[0]
            loss, iou = box_loss(found, targets_of(scene, *found.shape[1:]))
            (loss / BATCH).backward()  # type: ignore[no-untyped-call]
            right += iou / BATCH
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        for name, weight in module.state_dict().items():
            mean[name].lerp_(weight, 1 - AVERAGE)
        progress.set_postfix(iou=round(right, 3), refresh=False)
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / WEIGHTS_FILE) as partial:
        save_file(mean, partial, metadata={"format": "pt"})
    print(json.dumps({"out": str(out / WEIGHTS_FILE), **_validation(options, backbone, out)}))


def _pictures(options: BoxOptions) -> Iterator[Scene]:
    """Versions of scenes and photographs without end, at their own aspect."""
    rng = np.random.default_rng((options.seed, 5))
    worlds = [(options.world, None), *options.mix]
    scenes = [
        scene
        for world, most in worlds
        for scene in _scenes(options.tabletop, "train", world)[:most]
    ]
    folder = options.it2p or find_it2p()
    photos = it2p_scenes(folder, "train")[0] if folder is not None else []
    while True:
        is_photo = len(photos) > 0 and rng.uniform() < PHOTOS
        pool = photos if is_photo else scenes
        yield stored.drawn(pool[int(rng.integers(len(pool)))], rng, is_photo=is_photo).scene


def _scenes(folder: Path, split: str, world: str) -> list[Scene]:
    paths = list_shards(folder, split, world)
    if not paths:
        raise FileNotFoundError(how_to_make(folder, split, 1000, world))
    return [scene for path in paths for scene in read_shard(path, world)]


def _validation(options: BoxOptions, backbone: Any, out: Path) -> dict[str, Any]:
    """Measure the boxes at the centres of validation objects; NaN without scenes."""
    head = load_box_head(out, backbone.config.vision_config)
    assert head is not None
    paths = list_shards(options.tabletop, "val", options.world)
    overlap: list[float] = []
    for path in paths[:1]:
        for scene in read_shard(path, options.world):
            found = head(backbone.stages(detailed_picture(scene.image, SIDE), head.stages))
            boxes = np.array([o.box for o in scene.objects], np.float32).reshape(-1, 4)
            at, _ = boxes_at(found, [o.center for o in scene.objects])
            overlap += overlaps(at, boxes).tolist()
    right = np.mean(np.array(overlap) >= 0.5) if overlap else math.nan
    return {"objects": len(overlap), "right": round(float(right), 4)}
