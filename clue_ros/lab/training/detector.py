"""`clue train detector`: adapter A and its head on the frozen base (sections III-B, IV-A).

`--variant` names the detector (`model/detector_variants.py`): depth, adapted blocks, conditioning
word, and a CNN or the decoder's own answer. The loss is binary cross-entropy on whether the
sentence names exactly one thing. Where object masks are known (the simulator, and estimated ones of
IT2P), the default variant's map is also taught its objects with a small weight (`--look-weight`),
so that it goes on showing where the confusion lies; the paper's variants are not. The threshold
(best F1) and the temperature (best log-likelihood) are chosen on validation data (`calibrate`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from clue_ros.lab.evaluation.metrics import calibration
from clue_ros.lab.options import add_options, option, read_options
from clue_ros.lab.training.adapters import base_name, frozen_base
from clue_ros.lab.training.datasets import TrainingData, load_training_data
from clue_ros.lab.training.ivg import cross_entropy_sum
from clue_ros.lab.training.loop import Group, TrainingSettings, train
from clue_ros.lab.training.options import AdapterOptions
from clue_ros.lab.training.packing import patch_shares, target_map, training_attention
from clue_ros.lab.training.parallel import autocast
from clue_ros.lab.training.samples import (
    Sample,
    adapter_samples,
    held_out_adapter_samples,
    one_query_each,
)
from clue_ros.lab.training.vision import batch_tensor
from clue_ros.model.adapters import DETECTOR, Adapters, lora_config
from clue_ros.model.attention import min_max
from clue_ros.model.backbone import Backbone
from clue_ros.model.detector import (
    HEADS,
    CnnHead,
    DetectorSettings,
    Reading,
    detector_loss,
    probability,
    save_head,
)
from clue_ros.model.detector_variants import DEFAULT, VARIANTS, Variant
from clue_ros.model.loading import find_base, find_model, fingerprint, replacing
from clue_ros.model.prompts import Prompts, encode_prompts

LOOK_WEIGHT = {DEFAULT: 0.15}  # weight of the attention loss; the paper's variants have none
HEAD_STEPS, HEAD_BATCH, HEAD_LR = 3000, 256, 1e-3  # of the CNN alone
HEAD_LR_SCALE = 2.0  # the head is new, the adapter sits on a trained base
NEIGHBOURS = 5  # hundredths on either side of a threshold, over which F1 is averaged
_READS = {
    "cnn": "a CNN over the attention map of that block",
    "ar": 'the decoder\'s own "yes" (ambiguous) or "no" after that block',
}


@dataclass(frozen=True, kw_only=True)
class DetectorOptions(AdapterOptions):
    """The options of `clue train detector`."""

    variant: str = option(DEFAULT, "detector to train (Table I)", choices=tuple(VARIANTS))
    steps: int = option(260, "optimizer steps of adapter and head together")
    batch: int = option(12, "pictures a step, three sentences each")
    lr: float = option(7e-4, "learning rate of the adapter; the head has twice as much")
    head_batches: int = option(260, "batches of maps that the CNN alone is trained on; 0 for none")
    look_weight: float | None = option(
        None, "weight of the attention loss; default: 0.15 for the default variant, else 0"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, DetectorOptions)


def run(args: argparse.Namespace) -> int:
    """Train adapter A and the head, calibrate, write the detector folder."""
    train_detector(read_options(DetectorOptions, args))
    return 0


def train_detector(options: DetectorOptions) -> None:
    """Train adapter A and the head, calibrate, write the detector folder."""
    variant, out = VARIANTS[options.variant], options.folder(DETECTOR)
    device, base = options.start_device(), find_base(find_model(options.model))
    backbone, processor = frozen_base(options, base, device)
    adapters = Adapters(backbone)
    config = lora_config(variant.adapted(backbone.blocks))
    adapters.add(DETECTOR, config)
    config.base_model_name_or_path = base_name(options.model, out)
    adapters.use(DETECTOR, train=True)
    detector = DetectorSettings(variant.block(backbone.blocks), variant.instruction, variant.head)
    trainer = DetectorTrainer(backbone, processor, detector, device)
    data = load_training_data(options, backbone.config.vision_config.image_size)
    settings = TrainingSettings(
        options.steps, options.batch, options.lr, seed=options.seed, save_every=options.save_every
    )
    look_weight = LOOK_WEIGHT.get(variant.name, 0.0)
    if options.look_weight is not None:
        look_weight = options.look_weight
    folder = options.run_folder(options.model) / f"{DETECTOR}-{variant.name}"
    notes = {
        "fingerprint": fingerprint(base),
        "base_dtype": options.base_dtype,
        "look_weight": look_weight,
        **data.notes(options),
    }
    train_adapter(trainer, adapters, data, settings, notes, folder)
    head_batches = options.head_batches if variant.head == "cnn" else 0
    if head_batches:
        more = {**notes, "head_batches": head_batches}
        train_head(trainer, data, settings, more, folder / "head")
    held_out = held_out_adapter_samples(data, detector.instruction)
    figures = calibrate(detector, {name: trainer.predict(rows) for name, rows in held_out.items()})
    recipe = {
        "base": options.model,
        **notes,
        "head_batches": head_batches,
        **{name: getattr(options, name) for name in ("steps", "batch", "lr", "seed")},
    }
    adapters.save(DETECTOR, out)
    save_head(trainer.head, detector, out, variant=variant.name, training=recipe, **figures)
    write_card(out, variant, recipe, figures)
    print(json.dumps({"out": str(out), "threshold": detector.threshold, **figures}))


@dataclass(frozen=True)
class DetectorBatch:
    """B sequences. features (B, N, D); maps (B, N), each summing to 1; ambiguous (B,) 0. or 1."""

    features: Tensor
    prompts: Prompts
    maps: Tensor
    ambiguous: Tensor


def collate(
    samples: Sequence[Sample], backbone: Backbone, processor: Any, device: torch.device
) -> DetectorBatch:
    """One query a sequence, with prompts and features as at inference; one look a picture."""
    with torch.no_grad(), autocast(device):
        features = backbone.look(batch_tensor([scene for scene, _ in samples], device))
    single, rows = one_query_each(samples)
    queries = [query for _, (query,) in single]
    prompts = encode_prompts(processor, queries[0].instruction, [q.context for q in queries])
    maps = [target_map(patch_shares(s, backbone.grid), q.meant) for s, (q,) in single]
    return DetectorBatch(
        features[rows].float(),
        prompts.to(device),
        torch.from_numpy(np.stack(maps)).to(device),
        torch.tensor([float(q.ambiguous) for q in queries], device=device),
    )


class DetectorTrainer:
    """One training step, and predictions."""

    def __init__(
        self, backbone: Backbone, processor: Any, settings: DetectorSettings, device: torch.device
    ) -> None:
        self.backbone, self.processor = backbone, processor
        self.settings, self.device = settings, device
        self.head = HEADS[settings.head](processor.tokenizer).to(device)

    def collate(self, samples: Sequence[Sample]) -> DetectorBatch:
        """Samples as a batch for this detector."""
        return collate(samples, self.backbone, self.processor, self.device)

    def read(self, batch: DetectorBatch) -> Reading:
        """The head's logits and maps of a batch."""
        decoder = self.backbone.model.model.language_model
        with autocast(self.device), training_attention(decoder):
            return self.head.read(self.backbone, self.settings.block, batch.features, batch.prompts)

    def losses(self, batch: DetectorBatch, look_weight: float) -> dict[str, Tensor]:
        """Loss and figures of a batch."""
        reading = self.read(batch)
        decide = detector_loss(reading.logits, batch.ambiguous)
        look = cross_entropy_sum(batch.maps, reading.attention.flatten(1)) / max(len(batch.maps), 1)
        right = ((reading.logits > 0).float() == batch.ambiguous).float().mean()
        return {"loss": decide + look_weight * look, "decide": decide, "look": look, "right": right}

    def training_mode(self) -> None:
        """Dropout on, except in the frozen vision tower."""
        self.head.train()
        self.backbone.model.train()
        self.backbone.model.model.vision_tower.eval()

    @torch.no_grad()
    def predict(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Logits (n,) and labels (n,) of many samples."""
        self.backbone.model.eval()
        self.head.eval()
        logits, labels = [], []
        for i in range(0, len(samples), 12):
            batch = self.collate(samples[i : i + 12])
            logits.append(self.read(batch).logits.float().cpu())
            labels.append(batch.ambiguous.cpu())
        self.training_mode()
        return torch.cat(logits), torch.cat(labels)


def train_adapter(
    trainer: DetectorTrainer,
    adapters: Adapters,
    data: TrainingData,
    settings: TrainingSettings,
    notes: Mapping[str, Any],
    folder: Path,
) -> None:
    """Train adapter and head together."""
    instruction = trainer.settings.instruction
    held_out = held_out_adapter_samples(data, instruction, per_picture=2)

    def losses(step: int) -> dict[str, Tensor]:
        samples = adapter_samples(data, settings, step, instruction)
        return trainer.losses(trainer.collate(samples), notes["look_weight"])

    def evaluate() -> dict[str, float]:
        seen = {name: trainer.predict(samples[:100]) for name, samples in held_out.items()}
        return {
            f"{name}_f1": round(f1(logits > 0, labels), 4)
            for name, (logits, labels) in seen.items()
        }

    trainer.training_mode()
    groups = [Group([p for p in adapters.parameters(DETECTOR) if p.requires_grad])]
    if head := list(trainer.head.parameters()):
        groups.append(Group(head, lr_scale=HEAD_LR_SCALE))
    train(losses, groups, settings, folder, evaluate=evaluate, notes=notes)


def train_head(
    trainer: DetectorTrainer,
    data: TrainingData,
    settings: TrainingSettings,
    notes: Mapping[str, Any],
    folder: Path,
) -> None:
    """Train the CNN alone on maps of the finished adapter: a thousand times cheaper a sample.

    A mirrored map is as ambiguous as the map itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    maps, labels = cached_maps(trainer, data, settings, notes, folder / "maps.safetensors")
    head = TrainingSettings(HEAD_STEPS, HEAD_BATCH, HEAD_LR, weight_decay=1e-3, seed=settings.seed)
    cnn = trainer.head
    assert isinstance(cnn, CnnHead)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((settings.seed, 13, step))
        rows = torch.from_numpy(rng.integers(len(maps), size=HEAD_BATCH))
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        logits = cnn(maps[rows].flip(axes).to(trainer.device))
        truth = labels[rows].to(trainer.device)
        right = ((logits > 0).float() == truth).float().mean()
        return {"loss": detector_loss(logits, truth), "right": right}

    cnn.train()
    train(losses, [Group(list(cnn.parameters()))], head, folder, notes=notes)


def cached_maps(
    trainer: DetectorTrainer,
    data: TrainingData,
    settings: TrainingSettings,
    notes: Mapping[str, Any],
    path: Path,
) -> tuple[Tensor, Tensor]:
    """Maps (n, g, g) in 0..1 and labels (n,) of `head_batches` new batches.

    `path` keeps them with the notes that they follow from; other notes make them anew.
    """
    made_of = {"notes": json.dumps({**asdict(settings), **notes}, sort_keys=True)}
    if _metadata(path) != made_of:
        maps, labels = [], []
        trainer.backbone.model.eval()
        first = settings.steps
        for step in tqdm(range(first, first + notes["head_batches"]), desc="maps"):
            batch = trainer.collate(
                adapter_samples(data, settings, step, trainer.settings.instruction)
            )
            with torch.no_grad():
                maps.append(min_max(trainer.read(batch).attention).cpu())
            labels.append(batch.ambiguous.cpu())
        kept = {"maps": torch.cat(maps), "labels": torch.cat(labels)}
        with replacing(path) as partial:
            save_file(kept, str(partial), metadata=made_of)
    kept = load_file(str(path))
    return kept["maps"], kept["labels"]


def _metadata(path: Path) -> dict[str, str] | None:
    """The metadata of a safetensors file; None if there is no file."""
    if not path.exists():
        return None
    with safe_open(str(path), framework="pt") as file:
        found: dict[str, str] | None = file.metadata()
        return found


# --- temperature and threshold, from validation samples only (section IV-A)


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of bool predictions against 0/1 labels, ambiguous being positive."""
    both = float((predicted & (labels > 0.5)).sum())
    return 2 * both / max(1.0, float(predicted.sum()) + float((labels > 0.5).sum()))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature from 0.25 to 4 with the best log-likelihood."""
    grid = [float(t) for t in np.geomspace(0.25, 4, 81)]
    return min(grid, key=lambda t: float(detector_loss(logits / t, labels)))


def fit_threshold(chance: Tensor, labels: Tensor) -> float:
    """The threshold from 0.05 to 0.95, in hundredths, in the middle of F1's best plateau."""
    grid = np.arange(0.05, 0.951, 0.01)
    scores = np.array([f1(chance >= t, labels) for t in grid])
    return round(float(grid[middle_of_best(scores)]), 2)


def middle_of_best(scores: NDArray[np.float64]) -> int:
    """The index whose score, averaged with its NEIGHBOURS on either side, is highest.

    The middle of them if several are equal. Beyond the ends the last scores are repeated.
    """
    padded = np.pad(scores, NEIGHBOURS, mode="edge")
    window = 2 * NEIGHBOURS + 1
    smooth = np.convolve(padded, np.ones(window) / window, mode="valid")
    best = smooth >= smooth.max() - 1e-9
    first = int(best.argmax())
    rest = best[first:]
    length = len(rest) if rest.all() else int(rest.argmin())
    return first + (length - 1) // 2


def calibrate(
    settings: DetectorSettings, seen: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[str, Any]:
    """Set temperature and threshold from logits (n,) and labels (n,) of each validation set.

    Returns validation figures: F1 of each set, expected calibration error of all before and
    after the temperature.
    """
    logits = torch.cat([logit for logit, _ in seen.values()])
    labels = torch.cat([label for _, label in seen.values()])
    settings.temperature = round(fit_temperature(logits, labels), 3)
    chance = probability(logits, settings.temperature)
    settings.threshold = fit_threshold(chance, labels)
    truth = (labels > 0.5).tolist()
    figures = {
        f"{name}_f1": round(
            f1(probability(logit, settings.temperature) >= settings.threshold, label), 4
        )
        for name, (logit, label) in seen.items()
    }
    for name, values in (("ece_before", probability(logits)), ("ece", chance)):
        figures[name] = round(calibration(values.tolist(), truth).ece, 4)
    return {"validation": {**figures, "n": len(labels)}}


def write_card(
    folder: Path, variant: Variant, recipe: Mapping[str, Any], figures: Mapping[str, Any]
) -> None:
    """Write README.md: the detector, its recipe and its validation figures."""
    which = (
        "the last block that is run" if variant.finetune == "last" else "every block that is run"
    )
    lines = [
        f"# {variant.title}",
        "",
        "An ambiguity detector of clue_ros, for the base that is named below: is there exactly one",
        "thing in the picture that the sentence names?",
        "",
        f"- depth: {variant.depth}; LoRA in {which}; conditioning word `{variant.instruction}`",
        f"- read from: {_READS[variant.head]}",
        "",
        '    Clue.load(MODEL, detector="THIS FOLDER")',
        "",
        *_table("Training", {k.replace("_", " "): v for k, v in recipe.items()}),
        *_table("Validation", figures["validation"]),
        "Threshold and temperature (detector.json) were chosen on the same validation data, so its",
        "figures flatter; `clue eval detectors` measures on held-out test data.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _table(title: str, rows: Mapping[str, Any]) -> list[str]:
    return [f"| {title} | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in rows.items()), ""]
