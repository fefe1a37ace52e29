"""`clue train score`: calibrate box scores on photographs (`clue_ros.model.ranking`).

    clue train score --model models/mine --data PHOTOS --data MORE

The model points for every request about the photographs, also for absent things.
Logistic regression of "the box is right, and a box was the right reply" on the box's evidence is
written into the base's box_head.json. Each photograph is also scored by a fit of the others, and
these scores' errors are the notes beside the numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import load_photographs
from clue_ros.lab.logistic import logistic_regression
from clue_ros.lab.metrics import MIN_IOU, auroc, calibration
from clue_ros.lab.options import add_options, option, read_options, required
from clue_ros.lab.report import with_progress
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder, write_json
from clue_ros.model.policies import Detector
from clue_ros.model.ranking import SETTINGS_FILE, BoxScore, Evidence

PULL = 1.0  # towards weights of 0, of features with a spread of 1; weighs as one request


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of `clue train score`."""

    model: str = required("model with a box head: a folder; the fit is written into it")
    data: tuple[Path, ...] = option(
        (),
        "folder of photographs with requests; default: clue_ros's own",
        type=Path,
        action="append",
        metavar="DIR",
    )


@dataclass(frozen=True)
class Pointed:
    """A box for a request. photograph: its number. asked: whether the policy would have asked."""

    photograph: int
    evidence: Evidence
    right: bool
    asked: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, ScoreOptions)


def run(args: argparse.Namespace) -> int:
    """Fit, and write box_head.json; 0 when it is there."""
    options = read_options(ScoreOptions, args)
    if options.model == DEFAULT_MODEL:
        raise ClueError(f"{DEFAULT_MODEL} is shipped: name its folder to write into it")
    clue = Clue.load(options.model)
    pointed = point_everywhere(clue, options.data or (demo_folder() / "photos",))
    score = fit_score(pointed)
    notes = {"n": len(pointed), "left_out": left_out(pointed)}
    path = clue.checkpoint.base / SETTINGS_FILE
    write_json(path, {**notes, **asdict(score)})
    print(json.dumps({"out": str(path), **notes}))
    return 0


def point_everywhere(clue: Clue, folders: Sequence[Path]) -> list[Pointed]:
    """A box for every request. Raises ClueError for a model without a box head."""
    policy = clue.decides
    if clue.checkpoint.box_head is None or not isinstance(policy, Detector):
        raise ClueError(f"{clue.model_name} has no box head with adapters: `clue train boxes`")
    found: list[Pointed] = []
    photographs = [p for folder in folders for p in load_photographs(folder)]
    for number, photograph in enumerate(with_progress(photographs)):
        view = clue.look(load_image(photograph.path))
        for request in photograph.requests:
            estimate, box = policy.point(view, Dialogue(request.text).context())
            if box.evidence is None:
                continue
            hit = any(box.box.iou(true) >= MIN_IOU for true in request.boxes)
            right = hit and request.truth == "clear"
            found.append(Pointed(number, box.evidence, right, estimate.is_ambiguous))
    return found


def fit_score(pointed: Sequence[Pointed]) -> BoxScore:
    """The fit. Raises ClueError where all boxes are right, or all wrong."""
    seen = np.array([p.evidence for p in pointed], np.float64)
    right = np.array([p.right for p in pointed], np.float64)
    if not 0 < right.sum() < len(right):
        raise ClueError("all boxes are right, or all wrong: give more photographs (--data)")
    middle, spread = seen.mean(0), seen.std(0) + 1e-6
    features = np.c_[(seen - middle) / spread, np.ones(len(seen))]
    pull = np.array([PULL] * seen.shape[1] + [1e-6])
    weights = logistic_regression(features, right, pull)
    own = weights[:-1] / spread
    bias = weights[-1] - float(own @ middle)
    return BoxScore(*(round(float(value), 4) for value in (bias, *own)))


def left_out(pointed: Sequence[Pointed]) -> dict[str, Any]:
    """Errors of the scores of boxes that the policy shows, each photograph left out of its fit."""
    chances: list[float] = []
    right: list[bool] = []
    for number in sorted({p.photograph for p in pointed}):
        score = fit_score([p for p in pointed if p.photograph != number])
        shown = [p for p in pointed if p.photograph == number and not p.asked]
        chances += [score.of(p.evidence) for p in shown]
        right += [p.right for p in shown]
    if not chances:
        return {"boxes": 0}
    return {
        "boxes": len(chances),
        "right": sum(right),
        "ece": round(calibration(chances, right).ece, 4),
        "auroc": round(auroc(chances, right), 4),
    }
