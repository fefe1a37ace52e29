"""`clue train policy`: how detector and decoder put their judgement together (policy "both").

A logistic regression on the log odds of the two, on validation requests that neither learned from,
and the threshold with the best F1 there (the middle of its plateau, `calibrate`). Three numbers
from a thousand requests; nothing else of the model changes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p
from clue_ros.lab.simulator.shards import how_to_make, kinds_in, read_scenes
from clue_ros.lab.training.adapter_samples import Sample, held_out_samples
from clue_ros.lab.training.augment import ScenePool
from clue_ros.lab.training.datasets import TrainingData, add_source_arguments, load_photos
from clue_ros.lab.training.detector import f1, fit_threshold
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.fusion import MEAN, Fusion, log_odds, save_fusion, weights_digest
from clue_ros.model.loading import find_model

HELD_OUT = 400  # simulated validation scenes at most
RIDGE = 1e-4  # on the weights: requests that are told apart without a fault let them grow

Judged = tuple[Tensor, Tensor]  # log odds of detector and decoder (n, 2), labels (n,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_source_arguments(parser)
    parser.add_argument("--model", default="models/tabletop", help="a folder, name or hub id")
    parser.add_argument("--detector", type=Path, default=None, help="folder; default the model's")
    parser.add_argument("--ivg", type=Path, default=None, help="folder; default the model's")


def validation_data(args: argparse.Namespace, size: int) -> TrainingData:
    """Validation scenes of `--world` and IT2P's validation photographs; no training pictures."""
    root = args.it2p if args.it2p is not None else find_it2p()
    photos, records = load_photos(root, "val", size)
    try:
        scenes = ScenePool(read_scenes(args.tabletop, "val", HELD_OUT, args.world), size)
    except ValueError as error:
        raise ClueError(str(error)) from error
    if not len(scenes):
        raise FileNotFoundError(how_to_make(args.tabletop, "val", HELD_OUT, args.world))
    none = ScenePool((), size)
    kinds = kinds_in(args.tabletop, "train", args.world)
    return TrainingData(none, none, [], scenes, photos, records, args.world, kinds)


def judge(checkpoint: Checkpoint, pictures: list[list[Sample]], name: str) -> Judged:
    """What both think of each request of some pictures, and which requests are ambiguous."""
    odds: list[tuple[float, float]] = []
    labels: list[float] = []
    for picture in tqdm(pictures, desc=name):
        features = checkpoint.look(picture[0][0].image)
        for _, query in picture:
            detector, _ = checkpoint.judge(features, query.context)
            decoder, _ = checkpoint.second_opinion(features, query.context)
            odds.append((log_odds(detector), log_odds(decoder)))
            labels.append(float(query.ambiguous))
    return torch.tensor(odds), torch.tensor(labels)


def fit(odds: Tensor, labels: Tensor) -> Fusion:
    """Weights, bias and threshold for log odds (n, 2) and labels (n,), ambiguous being 1."""
    weights = torch.tensor([MEAN.detector, MEAN.decoder, MEAN.bias], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        wrong = F.binary_cross_entropy_with_logits(odds @ weights[:2] + weights[2], labels)
        total = wrong + RIDGE * weights[:2].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    detector, decoder, bias = (round(float(w), 4) for w in weights.detach())
    fusion = Fusion(detector, decoder, bias)
    return Fusion(detector, decoder, bias, fit_threshold(_chances(fusion, odds), labels))


def _chances(fusion: Fusion, odds: Tensor) -> Tensor:
    return torch.sigmoid(odds @ torch.tensor([fusion.detector, fusion.decoder]) + fusion.bias)


def figures(fusion: Fusion, seen: Mapping[str, Judged], own: float) -> dict[str, float]:
    """F1 of each set by both as fitted, and by their mean at the detector's own threshold."""
    out: dict[str, float] = {}
    for name, (odds, labels) in seen.items():
        assert fusion.threshold is not None
        out[f"{name}_f1"] = round(f1(_chances(fusion, odds) >= fusion.threshold, labels), 4)
        out[f"{name}_f1_mean"] = round(f1(_chances(MEAN, odds) >= own, labels), 4)
    return out


def run(args: argparse.Namespace) -> int:
    """Fit, and write fusion.json into the detector's folder; 0 when it is there."""
    if args.threads:
        torch.set_num_threads(args.threads)
    folder = find_model(str(args.model))
    detector = args.detector if args.detector is not None else folder / DETECTOR
    ivg = args.ivg if args.ivg is not None else folder / IVG
    checkpoint = load_checkpoint(args.model, args.device, detector=detector, ivg=ivg)
    data = validation_data(args, checkpoint.backbone.config.vision_config.image_size)
    samples = held_out_samples(data, checkpoint.detector.settings.instruction)
    seen = {name: judge(checkpoint, pictures, name) for name, pictures in samples.items()}
    odds, labels = (torch.cat(parts) for parts in zip(*seen.values(), strict=True))
    found = fit(odds, labels)
    fusion = Fusion(
        found.detector,
        found.decoder,
        found.bias,
        found.threshold,
        weights_digest(detector),
        weights_digest(ivg),
    )
    own = checkpoint.detector.settings.threshold
    notes: dict[str, Any] = {
        "validation": {**figures(fusion, seen, own), "n": len(labels)},
        "world": args.world,
    }
    save_fusion(fusion, detector, **notes)
    print(json.dumps({"out": str(detector), "threshold": fusion.threshold, **notes}))
    return 0
