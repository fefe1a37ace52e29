"""`clue train detector`: adapter A and the CNN on the frozen base (section III-B), half depth only.

Binary cross-entropy on whether the sentence names exactly one thing. Where masks are known (the
simulator, and IT2P's estimated ones) the map is also told where to look, with a small weight, so
that it goes on showing where the confusion lies; `--look-weight 0` is the paper's loss alone.
The threshold (best F1) and the temperature (best log-likelihood) are chosen on validation data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from clue_ros.model.adapters import DETECTOR, Adapters, lora_config
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.backbone import Backbone
from clue_ros.model.config import half_depth_block
from clue_ros.model.detector import CnnHead, DetectorSettings, detector_loss, save_head
from clue_ros.training.adapters_data import (
    AdapterBatch,
    collate,
    draw_samples,
    frozen_base,
    held_out_samples,
)
from clue_ros.training.data import TrainingData, add_data_arguments, load_training_data
from clue_ros.training.loop import Group, Settings, autocast, train
from clue_ros.training.packed import cross_entropy_to

HEAD_STEPS, HEAD_BATCH, HEAD_LR = 3000, 256, 1e-3  # of the head alone
HEAD_LR_SCALE = 2.0  # the head is new, the adapter sits on a trained base


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_data_arguments(parser)
    parser.add_argument(
        "--model", type=Path, default=Path("models/tabletop"), help="folder with the base"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="detector folder; default MODEL/detector"
    )
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument(
        "--batch", type=int, default=12, help="pictures a step, three sentences each"
    )
    parser.add_argument(
        "--lr", type=float, default=7e-4, help="of the adapter; the head's is twice that"
    )
    parser.add_argument(
        "--finetune", choices=("last", "full"), default="full", help="blocks with LoRA"
    )
    parser.add_argument(
        "--head-batches", type=int, default=260, help="batches of maps for the head alone; 0: none"
    )
    parser.add_argument("--look-weight", type=float, default=0.15)


class DetectorTrainer:
    """One training step, and the fit of threshold and temperature."""

    def __init__(
        self, backbone: Backbone, processor: Any, settings: DetectorSettings, device: torch.device
    ) -> None:
        self.backbone, self.processor, self.settings, self.device = (
            backbone,
            processor,
            settings,
            device,
        )
        self.head = CnnHead().to(device)

    def forward(self, batch: AdapterBatch) -> tuple[Tensor, Tensor]:
        """Logits (B,) and where the words look (B, g, g), each map summing to 1."""
        with autocast(self.device):
            attention = self.backbone.attention_at(
                self.settings.block, batch.features, batch.prompts
            )
        looks = image_attention(attention, batch.prompts.query_mask, self.backbone.grid)
        return self.head(min_max(looks)), looks

    def losses(self, batch: AdapterBatch, look_weight: float) -> dict[str, Tensor]:
        """Loss and figures of a batch."""
        logits, looks = self.forward(batch)
        decide = detector_loss(logits, batch.ambiguous)
        look = cross_entropy_to(batch.maps, looks.flatten(1))
        right = ((logits > 0).float() == batch.ambiguous).float().mean()
        return {"loss": decide + look_weight * look, "decide": decide, "look": look, "right": right}

    def predict(self, pictures: list[Any]) -> tuple[Tensor, Tensor]:
        """Logits and labels of many samples, without gradients."""
        self.backbone.model.eval()
        self.head.eval()
        logits, labels = [], []
        with torch.no_grad():
            for i in range(0, len(pictures), 12):
                batch = collate(pictures[i : i + 12], self.backbone, self.processor, self.device)
                logits.append(self.forward(batch)[0].float().cpu())
                labels.append(batch.ambiguous.cpu())
        self.head.train()
        self.backbone.model.train()
        self.backbone.model.model.vision_tower.eval()
        return torch.cat(logits), torch.cat(labels)


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of bool predictions against 0/1 labels, ambiguous being positive."""
    both = float((predicted & (labels > 0.5)).sum())
    return 2 * both / max(1.0, float(predicted.sum()) + float((labels > 0.5).sum()))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the best log-likelihood, of 0.25 .. 4."""
    grid = [float(t) for t in np.geomspace(0.25, 4, 81)]
    return min(grid, key=lambda t: float(detector_loss(logits / t, labels)))


def fit_threshold(probability: Tensor, labels: Tensor) -> float:
    """The middle of the best plateau: the threshold whose F1, averaged over +-0.05, is highest."""
    grid = np.arange(0.05, 0.951, 0.01)
    scores = np.array([f1(probability >= t, labels) for t in grid])
    smooth = np.convolve(scores, np.ones(11) / 11, mode="same")
    return round(float(grid[int(smooth.argmax())]), 2)


def cached_maps(
    trainer: DetectorTrainer, data: TrainingData, settings: Settings, count: int, path: Path
) -> tuple[Tensor, Tensor]:
    """Maps (n, g, g) in 0..1 and labels (n,) of `count` new batches; kept in `path`."""
    if not path.exists():
        maps, labels = [], []
        trainer.backbone.model.eval()
        for step in tqdm(range(settings.steps, settings.steps + count), desc="maps"):
            pictures = draw_samples(data, settings, step, trainer.settings.instruction)
            batch = collate(pictures, trainer.backbone, trainer.processor, trainer.device)
            with torch.no_grad():
                maps.append(min_max(trainer.forward(batch)[1]).cpu())
            labels.append(batch.ambiguous.cpu())
        save_file({"maps": torch.cat(maps), "labels": torch.cat(labels)}, str(path))
    kept = load_file(str(path))
    return kept["maps"], kept["labels"]


def train_head(
    trainer: DetectorTrainer, data: TrainingData, settings: Settings, count: int, run: Path
) -> None:
    """The head alone, longer, on maps of the finished adapter: a thousand times cheaper a sample.

    A mirrored map is as ambiguous as the map itself.
    """
    folder = run / "detector-head"
    folder.mkdir(parents=True, exist_ok=True)
    maps, labels = cached_maps(trainer, data, settings, count, folder / "maps.safetensors")
    head = Settings(HEAD_STEPS, HEAD_BATCH, HEAD_LR, weight_decay=1e-3, seed=settings.seed)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((settings.seed, 13, step))
        rows = torch.from_numpy(rng.integers(len(maps), size=HEAD_BATCH))
        chosen = maps[rows]
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        logits = trainer.head(chosen.flip(axes).to(trainer.device))
        truth = labels[rows].to(trainer.device)
        right = ((logits > 0).float() == truth).float().mean()
        return {"loss": detector_loss(logits, truth), "right": right}

    trainer.head.train()
    train(losses, [Group(list(trainer.head.parameters()))], head, folder)


def calibrate(trainer: DetectorTrainer, data: TrainingData) -> dict[str, Any]:
    """Set temperature and threshold from validation samples; returns the figures found there."""
    samples = held_out_samples(data, trainer.settings.instruction)
    seen = {name: trainer.predict(pictures) for name, pictures in samples.items()}
    logits = torch.cat([logit for logit, _ in seen.values()])
    labels = torch.cat([label for _, label in seen.values()])
    trainer.settings.temperature = round(fit_temperature(logits, labels), 3)
    probability = torch.sigmoid(logits / trainer.settings.temperature)
    trainer.settings.threshold = fit_threshold(probability, labels)
    cut = float(
        np.log(trainer.settings.threshold / (1 - trainer.settings.threshold))
        * trainer.settings.temperature
    )
    figures = {
        f"{name}_f1": round(f1(logit >= cut, label), 4) for name, (logit, label) in seen.items()
    }
    return {"validation": {**figures, "n": len(labels)}}


def run(args: argparse.Namespace) -> int:
    """Train adapter A and the head, calibrate, write the detector folder."""
    backbone, processor, device = frozen_base(args)
    block = half_depth_block(backbone.blocks)
    adapters = Adapters(backbone)
    adapters.add(DETECTOR, lora_config([block] if args.finetune == "last" else range(block + 1)))
    adapters.use(DETECTOR, train=True)
    trainer = DetectorTrainer(backbone, processor, DetectorSettings(block=block), device)
    data = load_training_data(args, backbone.config.vision_config.image_size)
    settings = Settings(args.steps, args.batch, args.lr, seed=args.seed)
    backbone.model.train()
    backbone.model.model.vision_tower.eval()
    fixed = held_out_samples(data, trainer.settings.instruction, per_picture=2)

    def evaluate() -> dict[str, float]:
        seen = {name: trainer.predict(pictures[:100]) for name, pictures in fixed.items()}
        return {
            f"{name}_f1": round(f1(logits > 0, labels), 4)
            for name, (logits, labels) in seen.items()
        }

    train(
        lambda step: trainer.losses(
            collate(draw_samples(data, settings, step, "detect"), backbone, processor, device),
            args.look_weight,
        ),
        [
            Group([p for p in adapters.parameters(DETECTOR) if p.requires_grad]),
            Group(list(trainer.head.parameters()), lr_scale=HEAD_LR_SCALE),
        ],
        settings,
        args.run / "detector",
        evaluate=evaluate,
    )
    if args.head_batches:
        train_head(trainer, data, settings, args.head_batches, args.run)
    figures = calibrate(trainer, data)
    out = args.out if args.out is not None else args.model / DETECTOR
    adapters.save(DETECTOR, out)
    save_head(trainer.head, trainer.settings, out, variant=f"Half-{args.finetune}", **figures)
    print(json.dumps({"out": str(out), "threshold": trainer.settings.threshold, **figures}))
    return 0
