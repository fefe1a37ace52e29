"""`clue train policy`: weigh the detector's and the decoder's probabilities (policy "both").

A logistic regression on the log odds of the two, on validation requests that neither learned from,
and the threshold with the best F1 there (the middle of its plateau). For a model with several views
of a picture (`num_views` in ivg.json) it also fits the confidence at which the first view decides
alone, and after which no further one is asked: the lowest one that costs next to nothing
(`spare_views`). For a model with a box head it fits which boxes to ask about (`fit_box`). Six
numbers from a thousand requests; nothing else of the model changes. `--policy zero-shot` fits that
policy instead (`clue_ros.lab.training.zero_shot`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm, trange

from clue_ros.dialogue.nouns import in_one_form
from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.errors import ClueError
from clue_ros.lab.language.requests import requests_about
from clue_ros.lab.logistic import logistic_regression
from clue_ros.lab.metrics import MIN_IOU
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.simulator.worlds import WORLDS
from clue_ros.lab.training.datasets import TrainingData, load_validation_data
from clue_ros.lab.training.detector import f1, fit_threshold
from clue_ros.lab.training.options import SourceOptions, named_folder
from clue_ros.lab.training.samples import Sample, held_out_adapter_samples
from clue_ros.lab.training.views import SceneViews
from clue_ros.lab.training.zero_shot import train_zero_shot
from clue_ros.model.backbone import DETECTOR, IVG, JOINT
from clue_ros.model.checkpoint import ZERO_SHOT, Checkpoint, load_checkpoint
from clue_ros.model.fusion import Fusion, log_odds, save_fusion, weights_digest
from clue_ros.model.loading import find_model
from clue_ros.model.policies import Both, Settings
from clue_ros.model.view import Encoded, View
from clue_ros.model.zero_shot import SETTINGS_FILE

BOXES = "boxes"  # `--policy`: fits `sure` and the box weights alone
RIDGE = 1e-4  # on the weights: requests that are separated perfectly would let them grow

# A wrong box costs as much as two needless questions: it points where a box is right as often.
TRUSTED = 1 / 3
PER_SORT = 2  # requests of a sort about a scene

SURE = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)  # see `Fusion.sure`
# What fewer further views may cost: of F1, and of the share of clear requests taken for clear.
SPARED = 0.003

OddsAndLabels = tuple[Tensor, Tensor]
"""Log odds of detector and decoder in each of V views (n, V, 2), and labels (n,)."""


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(SourceOptions):
    """The options of `clue train policy`."""

    model: str = required("model to fit: a folder, a name or a hub id")
    policy: str = option(
        "both",
        "both: weights of detector and decoder, when further views are asked, and trust in boxes,"
        " in fusion.json; boxes: the last two alone; zero-shot: how surely the base alone finds one"
        " thing, in zero_shot.json",
        choices=("both", BOXES, ZERO_SHOT),
    )
    also: str | None = option(
        None, "second world whose validation scenes count too", choices=(*WORLDS,)
    )
    out: Path | None = option(
        None, "file to write with --policy zero-shot; default: zero_shot.json beside the base"
    )
    pictures: int | None = option(
        None,
        "largest number of validation pictures of a data set with --policy zero-shot; default: all",
        type=at_least(1),
    )
    detector: Path | None = option(
        None, "folder of adapter A, where the weights are written; default: the model's"
    )
    ivg: Path | None = option(None, "folder of adapter B; default: the model's")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, PolicyOptions)


def run(args: argparse.Namespace) -> int:
    """Fit, and write fusion.json into the detector's folder; 0 when it is there."""
    train_policy(read_options(PolicyOptions, args))
    return 0


def train_policy(options: PolicyOptions) -> None:
    """Fit, and write fusion.json into the detector's folder, or zero_shot.json beside the base."""
    if options.policy == ZERO_SHOT:
        if options.detector is not None or options.ivg is not None:
            raise ClueError("--policy zero-shot uses no adapters: leave out --detector and --ivg")
        out = options.out or named_folder(options.model, SETTINGS_FILE, "--out")
        train_zero_shot(options, options.model, out, options.pictures)
        return
    options.start_device()
    folder, detector, ivg = find_model(options.model), options.detector, options.ivg
    if detector is None and ivg is None and (folder / JOINT).is_dir():
        detector = ivg = named_folder(options.model, JOINT, "--detector")
    if detector is None:
        detector = named_folder(options.model, DETECTOR, "--detector")
    if ivg is None:
        ivg = folder / IVG
    checkpoint = load_checkpoint(options.model, device=options.device, detector=detector, ivg=ivg)
    has_boxes = checkpoint.box_head is not None and checkpoint.box_score is not None
    if options.policy == BOXES and (checkpoint.fusion is None or not has_boxes):
        raise ClueError(
            f"{options.model}: boxes are weighed against a fusion.json of these adapters (--policy"
            " both), and need a box head and its score (`clue train boxes`, `clue train score`)"
        )
    vision = checkpoint.backbone.config.vision_config
    worlds = [options.world, *([] if options.also is None else [options.also])]
    sets = [
        load_validation_data(replace(options, world=world), vision, own_size=has_boxes)
        for world in worlds
    ]
    samples: dict[str, list[Sample]] = {}
    for data in sets:
        drawn = held_out_adapter_samples(data, checkpoint.detector.settings.instruction)
        for name, pictures in drawn.items():
            samples.setdefault(name, []).extend(pictures)
    seen = {name: judge(checkpoint, pictures, name) for name, pictures in samples.items()}
    odds, labels = (torch.cat(parts) for parts in zip(*seen.values(), strict=True))
    if options.policy == BOXES:
        assert checkpoint.fusion is not None
        fusion = spare_views(checkpoint.fusion, odds, labels)
    else:
        digests = weights_digest(detector), weights_digest(ivg)
        fusion = replace(fit(odds, labels), detector_sha256=digests[0], ivg_sha256=digests[1])
    own = checkpoint.detector.settings.threshold
    validation = {**figures(fusion, seen, own), "n": len(labels)}
    notes: dict[str, Any] = {"validation": validation, "world": ", ".join(worlds)}
    if has_boxes:
        checkpoint.fusion = fusion
        pointed = [found for data in sets for found in point(checkpoint, data)]
        fusion = fit_box(fusion, pointed)
        notes["validation"] |= box_figures(fusion, pointed)
    save_fusion(fusion, detector, **notes)
    print(json.dumps({"out": str(detector), "threshold": fusion.threshold, **notes}))


def judge(checkpoint: Checkpoint, samples: Sequence[Sample], name: str) -> OddsAndLabels:
    """Log odds of ambiguity by both, and the label, of each request of some pictures."""
    odds: list[list[tuple[float, float]]] = []
    labels: list[float] = []
    for scene, queries in tqdm(samples, desc=name):
        views = SceneViews(checkpoint, scene.image)
        for query in queries:
            opinions, _ = checkpoint.opinions(views.of(query.context)[0], query.context)
            odds.append([(log_odds(a), log_odds(b)) for a, b in opinions])
            labels.append(float(query.ambiguous))
    return torch.tensor(odds), torch.tensor(labels)


def fit(odds: Tensor, labels: Tensor) -> Fusion:
    """The numbers of a `Fusion` for log odds (n, V, 2) and labels (n,), ambiguous being 1."""
    start, first = Fusion(), odds[:, 0]
    weights = torch.tensor([start.detector, start.decoder, start.bias], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        wrong = F.binary_cross_entropy_with_logits(first @ weights[:2] + weights[2], labels)
        total = wrong + RIDGE * weights[:2].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    detector, decoder, bias = (round(float(w), 4) for w in weights.detach())
    fusion = Fusion(detector, decoder, bias)
    return spare_views(fusion, odds, labels)


def spare_views(fusion: Fusion, odds: Tensor, labels: Tensor) -> Fusion:
    """Fit `sure`, and the threshold of a fusion that has none: the middle of the best F1's plateau.

    `sure` is the smallest one whose F1, and whose share of clear requests that are taken for clear,
    are at most SPARED below those of the `sure` with the best F1. Arguments as for `fit`.
    """
    found = []
    for sure in SURE if odds.shape[1] > 1 else SURE[:1]:
        chances, own = _chances(replace(fusion, sure=sure), odds), fusion.threshold
        threshold = fit_threshold(chances, labels) if own is None else own
        asked, clear = chances >= threshold, labels == 0
        kept = float((~asked & clear).sum() / clear.sum().clamp(min=1))
        found.append((f1(asked, labels), kept, sure, threshold))
    best = max(found)
    near = (one for one in found if min(one[0] - best[0], one[1] - best[1]) >= -SPARED)
    *_, sure, threshold = next(near)
    return replace(fusion, threshold=threshold, sure=sure)


def _chances(fusion: Fusion, odds: Tensor) -> Tensor:
    """Probabilities (n,) of ambiguity, as the engine has them: of the views that it asks."""
    each = odds @ torch.tensor([fusion.detector, fusion.decoder]) + fusion.bias
    after = torch.sigmoid(each.cumsum(1) / torch.arange(1, each.shape[1] + 1))
    is_sure = torch.maximum(after, 1 - after) >= fusion.sure
    last = (~is_sure[:, :-1]).int().cumprod(1).sum(1, keepdim=True)
    return after.gather(1, last)[:, 0]


def figures(fusion: Fusion, seen: Mapping[str, OddsAndLabels], own: float) -> dict[str, float]:
    """F1 of each set as fitted, by the first view alone, and by its detector alone."""
    out: dict[str, float] = {}
    for name, (odds, labels) in seen.items():
        assert fusion.threshold is not None
        out[f"{name}_f1"] = round(f1(_chances(fusion, odds) >= fusion.threshold, labels), 4)
        alone = _chances(replace(fusion, sure=0.5), odds)
        out[f"{name}_f1_one_view"] = round(f1(alone >= fusion.threshold, labels), 4)
        out[f"{name}_f1_detector"] = round(f1(torch.sigmoid(odds[:, 0, 0]) >= own, labels), 4)
    return out


# -------------------------------------------------------------------------------------------------
# Boxes with too little confidence.


class Pointed(NamedTuple):
    """The model's box for a request if it must point, and whether that box is right.

    probability: of ambiguity. score: the box's. right: the request means one thing, and the box has
    an IoU of 0.5 with it.
    """

    probability: float
    score: float
    right: bool


def point(checkpoint: Checkpoint, data: TrainingData) -> list[Pointed]:
    """A box for requests about each held-out scene: clear, ambiguous and absent ones alike.

    The checkpoint has a fusion and a box head. An adapter's own samples have few absent things, for
    which a robot must not point either.
    """
    policy = Both(checkpoint, Settings(None, None, None))
    found = []
    for number in trange(len(data.held_out), desc="boxes"):
        scene, rng = data.held_out[number], np.random.default_rng([0, number])
        height, width = scene.image.shape[:2]
        view = View(scene.image, Encoded(scene.image, checkpoint.look(scene.image)), checkpoint)
        for want in ("clear", "ambiguous", "absent"):
            for request in requests_about(scene, data.language, want, PER_SORT, rng):
                context = in_one_form(Dialogue(request.text)).context()
                estimate, box = policy.point(view, context)
                if box.evidence is None:  # counted
                    continue
                meant = [
                    Box(*scene.objects[i].box).in_pixels(width, height) for i in request.candidates
                ]
                right = want == "clear" and box.box.iou(meant[0]) >= MIN_IOU
                found.append(Pointed(estimate.probability, box.score, right))
    return found


def fit_box(fusion: Fusion, pointed: Sequence[Pointed]) -> Fusion:
    """Fit the fusion's box weights: the robot asks about boxes that are right less than TRUSTED.

    Logistic regression of "right" on the log odds of the two; returns the fusion unchanged if a
    higher score does not make a right box likelier.
    """
    odds = [[log_odds(p.probability), log_odds(p.score), 1.0] for p in pointed]
    features, right = np.array(odds), np.array([p.right for p in pointed], np.float64)
    if not 0 < right.sum() < len(right):
        return fusion
    pull = np.array([RIDGE * len(right), RIDGE * len(right), 1e-9])
    weights = logistic_regression(features, right, pull)
    ambiguity, score, bias = (float(w) for w in weights)
    if ambiguity >= 0 or score <= 0:
        return fusion
    # The line where "right" has the odds TRUSTED, in log odds of ambiguity from the threshold on.
    assert fusion.threshold is not None
    shift = (bias - log_odds(TRUSTED)) / ambiguity + log_odds(fusion.threshold)
    return replace(fusion, box=round(-score / ambiguity, 4), box_bias=round(shift, 4))


def box_figures(fusion: Fusion, pointed: Sequence[Pointed]) -> dict[str, float]:
    """Count the boxes shown, and the right ones among them, with and without the box weights."""
    assert fusion.threshold is not None
    shown = [p for p in pointed if p.probability < fusion.threshold]
    kept = [p for p in shown if fusion.after(p.probability, p.score) < fusion.threshold]
    return {
        "boxes": len(shown),
        "boxes_right": sum(p.right for p in shown),
        "boxes_trusted": len(kept),
        "boxes_trusted_right": sum(p.right for p in kept),
    }
