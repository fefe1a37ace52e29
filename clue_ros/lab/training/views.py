"""`clue train views`: the score from which the first view of a picture needs no further ones.

A box is looked for in several views of a picture (`clue_ros.model.multi_view`) and most requests do
not need them: where the decoder is sure of its box in the first view, the others find the same one.
On validation requests that mean one object, this finds a score above which the further views
can be left out with as many boxes right, and writes it into ivg.json as `doubtful_score`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.metrics import MIN_IOU
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.training.datasets import load_validation_data
from clue_ros.lab.training.options import SourceOptions, named_folder
from clue_ros.lab.training.samples import Sample, held_out_adapter_samples
from clue_ros.model.backbone import IVG, JOINT, Array
from clue_ros.model.checkpoint import SETTINGS_FILE, Checkpoint, load_checkpoint
from clue_ros.model.loading import find_model, read_json, write_json
from clue_ros.model.multi_view import Window, agreed, settled, window_features, windows
from clue_ros.model.peaks import find_peaks


@dataclass(frozen=True, kw_only=True)
class ViewsOptions(SourceOptions):
    """The options of `clue train views`."""

    model: str = required("model to fit: a folder, a name or a hub id")
    ivg: Path | None = option(None, "folder of adapter B, whose ivg.json is written")
    per_image: int = option(8, "requests and answers drawn for a picture", type=at_least(1))


@dataclass(frozen=True)
class Found:
    """One request: the first view's score, and whether boxes are right.

    one: the first view's. doubt: that of the views that are looked at in doubt. all: of all views.
    """

    score: float
    one: bool
    doubt: bool
    all: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, ViewsOptions)


def run(args: argparse.Namespace) -> int:
    """Fit, and write the score into ivg.json; 0 when it is there."""
    options = read_options(ViewsOptions, args)
    options.start_device()
    part = JOINT if (find_model(options.model) / JOINT).is_dir() else IVG
    folder = options.ivg if options.ivg is not None else named_folder(options.model, part, "--ivg")
    checkpoint = load_checkpoint(options.model, device=options.device, ivg=options.ivg)
    if checkpoint.ivg.num_views < 2:
        raise ClueError(f"{folder / SETTINGS_FILE}: num_views is 1, there are no further views")
    data = load_validation_data(options, checkpoint.backbone.config.vision_config)
    samples = held_out_adapter_samples(
        data, checkpoint.ivg.instruction, per_picture=options.per_image
    )
    seen = {name: look(checkpoint, pictures, name) for name, pictures in samples.items()}
    score = fit([found for part in seen.values() for found in part])
    notes = {name: figures(score, part) for name, part in seen.items()}
    content = read_json(folder / SETTINGS_FILE)
    content |= {"doubtful_score": score, "views_validation": {**notes, "world": options.world}}
    write_json(folder / SETTINGS_FILE, content)
    print(json.dumps({"out": str(folder), "doubtful_score": score, **notes}))
    return 0


def look(checkpoint: Checkpoint, samples: Sequence[Sample], name: str) -> list[Found]:
    """Measure the views on each request that means one object."""
    found = []
    for scene, queries in tqdm(samples, desc=name):
        clear = [query for query in queries if not query.ambiguous and len(query.meant) == 1]
        if not clear:
            continue
        height, width = scene.image.shape[:2]
        views = SceneViews(checkpoint, scene.image)
        for query in clear:
            features, through = views.of(query.context)
            truth = Box(*scene.objects[query.meant[0]].box).in_pixels(width, height)
            said = checkpoint.point(features, query.context)
            counts = 1, 2 if settled(said, through) else len(said), len(said)
            right = (agreed(said[:n], through[:n]).box.iou(truth) >= MIN_IOU for n in counts)
            found.append(Found(said[0].score, *right))
    return found


class SceneViews:
    """The views that the engine has of an image, for one context after the other.

    image: uint8 RGB (H, W, 3).
    """

    def __init__(self, checkpoint: Checkpoint, image: npt.NDArray[np.uint8]) -> None:
        self._checkpoint, self._image = checkpoint, image
        self._whole = checkpoint.look(image)
        self._further: dict[Window, Array] = {}

    def of(self, context: str) -> tuple[Array, list[Window]]:
        """Features (V, N, D) and windows of the views for a context."""
        height, width = self._image.shape[:2]
        attention = self._checkpoint.judge(self._whole, context)[1]
        attended = [peak.box for peak in find_peaks(attention, width, height)]
        views, zooms = self._checkpoint.ivg.num_views, self._checkpoint.box_head is not None
        through = windows(views, width, height, attended, zoom_first=zooms)
        if len(through) == 1:
            return self._whole, through
        look = self._checkpoint.look
        further = window_features(self._image, through[1:], self._further, look)
        return np.concatenate([self._whole, further]), through


def fit(seen: Sequence[Found]) -> float:
    """The middle between 1 and the lowest score from which on no score makes fewer boxes right.

    In hundredths. Right boxes are compared with those of all views for every request. The middle,
    because a score that just suffices here loses boxes on other pictures.
    """
    every = sum(found.all for found in seen)
    fewer = [step for step in range(101) if _right(step / 100, seen) < every]
    return (max(fewer, default=-1) + 1 + 100) // 2 / 100


def _right(score: float, seen: Sequence[Found]) -> int:
    return sum(found.one if found.score > score else found.doubt for found in seen)


def figures(score: float, seen: Sequence[Found]) -> dict[str, Any]:
    """Shares of right boxes by one view, by all and by all in doubt only; and of the doubts."""
    count = max(len(seen), 1)
    return {
        "one_view": round(sum(found.one for found in seen) / count, 4),
        "all_views": round(sum(found.all for found in seen) / count, 4),
        "views_in_doubt": round(_right(score, seen) / count, 4),
        "doubts": round(sum(found.score <= score for found in seen) / count, 4),
        "n": len(seen),
    }
