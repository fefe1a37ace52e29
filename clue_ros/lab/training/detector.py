"""`clue train detector`: adapter A and its head on the frozen base (sections III-B, IV-A).

`--variant` names the detector (`model/variants.py`): how deep, which blocks, which conditioning
word, a CNN or the decoder's own answer. The loss is binary cross-entropy on whether the sentence
names exactly one thing. The shipped variant is also told where to look, with a small weight, where
masks are known (the simulator, and IT2P's estimated ones), so that its map goes on showing where
the confusion lies; the paper's are not (`--look-weight`). The threshold (best F1) and the
temperature (best log-likelihood) are chosen on validation data (`calibrate`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.metrics import calibration
from clue_ros.lab.training.adapter_samples import (
    AdapterBatch,
    base_name,
    collate,
    draw_samples,
    frozen_base,
    held_out_samples,
)
from clue_ros.lab.training.datasets import (
    TrainingData,
    add_data_arguments,
    data_notes,
    load_training_data,
)
from clue_ros.lab.training.loop import Group, Settings, train
from clue_ros.lab.training.packing import NAME_OF_ALL, attention_of, cross_entropy_to
from clue_ros.lab.training.parallel import autocast
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

# -------------------------------------------------------------------------------------------------
# A detector's temperature and threshold, from validation samples only (section IV-A).

NEIGHBOURS = 5  # hundredths on either side, over which F1 is averaged


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of bool predictions against 0/1 labels, ambiguous being positive."""
    both = float((predicted & (labels > 0.5)).sum())
    return 2 * both / max(1.0, float(predicted.sum()) + float((labels > 0.5).sum()))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the best log-likelihood, of 0.25 .. 4."""
    grid = [float(t) for t in np.geomspace(0.25, 4, 81)]
    return min(grid, key=lambda t: float(detector_loss(logits / t, labels)))


def fit_threshold(chance: Tensor, labels: Tensor) -> float:
    """The threshold of 0.05, 0.06 .. 0.95 in the middle of the best plateau of F1."""
    grid = np.arange(0.05, 0.951, 0.01)
    scores = np.array([f1(chance >= t, labels) for t in grid])
    return round(float(grid[middle_of_best(scores)]), 2)


def middle_of_best(scores: NDArray[np.float64]) -> int:
    """The index whose score, averaged over its five neighbours on either side, is highest.

    Of a plateau, where several are, its middle. Beyond the ends the scores go on as they end.
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

    Returns the figures found there: F1 of each set, expected calibration error of all before and
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


# -------------------------------------------------------------------------------------------------
# The card of a trained detector: README.md in its folder, made from what is known alone.

_READS = {
    "cnn": "a CNN over the attention map of that block",
    "ar": 'the decoder\'s own "yes" (ambiguous) or "no" after that block',
}


def write_card(
    folder: Path, variant: Variant, recipe: Mapping[str, Any], figures: Mapping[str, Any]
) -> None:
    """Write README.md: what the detector is, how it was made, what was measured on validation."""
    lines = [
        f"# {variant.title}",
        "",
        "An ambiguity detector of clue_ros, for the base that is named below: is there exactly one",
        "thing in the picture that the sentence names?",
        "",
        f"- depth: {variant.depth}; LoRA in {_blocks(variant)}; conditioning word"
        f" `{variant.instruction}`",
        f"- read from: {_READS[variant.head]}",
        "",
        '    Clue.load(MODEL, detector="THIS FOLDER")',
        "",
        "| Training | |",
        "| --- | --- |",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in recipe.items()),
        "",
        "| Validation | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in figures["validation"].items()),
        "",
        "Threshold and temperature (detector.json) were chosen on the same validation data, so its",
        "figures flatter; `clue eval detectors` measures on held-out test data.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _blocks(variant: Variant) -> str:
    return "the last block that is run" if variant.finetune == "last" else "every block that is run"


LOOK_WEIGHT = {DEFAULT: 0.15}  # of the loss that says where to look; the paper's have none
HEAD_STEPS, HEAD_BATCH, HEAD_LR = 3000, 256, 1e-3  # of the head alone
HEAD_LR_SCALE = 2.0  # the head is new, the adapter sits on a trained base


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_data_arguments(parser)
    parser.add_argument("--model", default="models/tabletop", help="the base: a folder or a hub id")
    parser.add_argument(
        "--out", type=Path, default=None, help="detector folder; default MODEL/detector"
    )
    parser.add_argument(
        "--base-dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of the frozen base",
    )
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument(
        "--batch", type=int, default=12, help="pictures a step, three sentences each"
    )
    parser.add_argument(
        "--lr", type=float, default=7e-4, help="of the adapter; the head's is twice that"
    )
    parser.add_argument(
        "--variant", choices=tuple(VARIANTS), default=DEFAULT, help="which detector (Table I)"
    )
    parser.add_argument(
        "--head-batches", type=int, default=260, help="batches of maps for the head alone; 0: none"
    )
    parser.add_argument(
        "--look-weight",
        type=float,
        default=None,
        help="of telling the map where to look; default 0.15 for the shipped variant, else 0",
    )


class DetectorTrainer:
    """One training step, and predictions."""

    def __init__(
        self, backbone: Backbone, processor: Any, settings: DetectorSettings, device: torch.device
    ) -> None:
        self.backbone, self.processor, self.settings, self.device = (
            backbone,
            processor,
            settings,
            device,
        )
        self.head = HEADS[settings.head](processor.tokenizer).to(device)

    def read(self, batch: AdapterBatch) -> Reading:
        """What the head reads of a batch."""
        decoder = self.backbone.model.model.language_model
        with autocast(self.device), attention_of(decoder, NAME_OF_ALL):
            return self.head.read(self.backbone, self.settings.block, batch.features, batch.prompts)

    def losses(self, batch: AdapterBatch, look_weight: float) -> dict[str, Tensor]:
        """Loss and figures of a batch."""
        reading = self.read(batch)
        decide = detector_loss(reading.logits, batch.ambiguous)
        look = cross_entropy_to(batch.maps, reading.looks.flatten(1))
        right = ((reading.logits > 0).float() == batch.ambiguous).float().mean()
        return {"loss": decide + look_weight * look, "decide": decide, "look": look, "right": right}

    def training_mode(self) -> None:
        """Dropout on, except in the frozen vision tower."""
        self.head.train()
        self.backbone.model.train()
        self.backbone.model.model.vision_tower.eval()

    def predict(self, pictures: list[Any]) -> tuple[Tensor, Tensor]:
        """Logits and labels of many samples, without gradients."""
        self.backbone.model.eval()
        self.head.eval()
        logits, labels = [], []
        with torch.no_grad():
            for i in range(0, len(pictures), 12):
                batch = collate(pictures[i : i + 12], self.backbone, self.processor, self.device)
                logits.append(self.read(batch).logits.float().cpu())
                labels.append(batch.ambiguous.cpu())
        self.training_mode()
        return torch.cat(logits), torch.cat(labels)


def cached_maps(
    trainer: DetectorTrainer,
    data: TrainingData,
    settings: Settings,
    notes: Mapping[str, Any],
    path: Path,
) -> tuple[Tensor, Tensor]:
    """Maps (n, g, g) in 0..1 and labels (n,) of `head_batches` new batches.

    They are kept in `path` with the notes that they follow from; others are made anew.
    """
    made_of = {"notes": json.dumps({**asdict(settings), **notes}, sort_keys=True)}
    if _metadata(path) != made_of:
        maps, labels = [], []
        trainer.backbone.model.eval()
        first = settings.steps
        for step in tqdm(range(first, first + notes["head_batches"]), desc="maps"):
            pictures = draw_samples(data, settings, step, trainer.settings.instruction)
            batch = collate(pictures, trainer.backbone, trainer.processor, trainer.device)
            with torch.no_grad():
                maps.append(min_max(trainer.read(batch).looks).cpu())
            labels.append(batch.ambiguous.cpu())
        kept = {"maps": torch.cat(maps), "labels": torch.cat(labels)}
        with replacing(path) as partial:
            save_file(kept, str(partial), metadata=made_of)
    kept = load_file(str(path))
    return kept["maps"], kept["labels"]


def _metadata(path: Path) -> dict[str, str] | None:
    """What a safetensors file says of itself; None where there is none."""
    if not path.exists():
        return None
    with safe_open(str(path), framework="pt") as file:
        found: dict[str, str] | None = file.metadata()
        return found


def train_head(
    trainer: DetectorTrainer,
    data: TrainingData,
    settings: Settings,
    notes: Mapping[str, Any],
    folder: Path,
) -> None:
    """The head alone, longer, on maps of the finished adapter: a thousand times cheaper a sample.

    A mirrored map is as ambiguous as the map itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    maps, labels = cached_maps(trainer, data, settings, notes, folder / "maps.safetensors")
    head = Settings(HEAD_STEPS, HEAD_BATCH, HEAD_LR, weight_decay=1e-3, seed=settings.seed)

    cnn = trainer.head
    assert isinstance(cnn, CnnHead)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((settings.seed, 13, step))
        rows = torch.from_numpy(rng.integers(len(maps), size=HEAD_BATCH))
        chosen = maps[rows]
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        logits = cnn(chosen.flip(axes).to(trainer.device))
        truth = labels[rows].to(trainer.device)
        right = ((logits > 0).float() == truth).float().mean()
        return {"loss": detector_loss(logits, truth), "right": right}

    trainer.head.train()
    train(losses, [Group(list(trainer.head.parameters()))], head, folder, notes=notes)


def run(args: argparse.Namespace) -> int:
    """Train adapter A and the head, calibrate, write the detector folder."""
    variant, model = VARIANTS[args.variant], str(args.model)
    if args.out is None and not Path(model).is_dir():
        raise ClueError(f"say with --out where the detector of {model} is to be written")
    out = args.out if args.out is not None else Path(model) / DETECTOR
    base = find_base(find_model(model))
    backbone, processor, device = frozen_base(argparse.Namespace(**{**vars(args), "model": base}))
    adapters = Adapters(backbone)
    config = lora_config(variant.adapted(backbone.blocks))
    adapters.add(DETECTOR, config)
    config.base_model_name_or_path = base_name(model, out)
    adapters.use(DETECTOR, train=True)
    asked = DetectorSettings(variant.block(backbone.blocks), variant.instruction, variant.head)
    trainer = DetectorTrainer(backbone, processor, asked, device)
    data = load_training_data(args, backbone.config.vision_config.image_size)
    settings = Settings(args.steps, args.batch, args.lr, seed=args.seed)
    look_weight = LOOK_WEIGHT.get(variant.name, 0.0)
    if args.look_weight is not None:
        look_weight = args.look_weight
    state = args.run / f"{DETECTOR}-{variant.name}"
    notes = {
        "fingerprint": fingerprint(base),
        "base_dtype": args.base_dtype,
        "look_weight": look_weight,
        **data_notes(args, data),
    }
    _train_adapter(trainer, adapters, data, settings, notes, state)
    head_batches = args.head_batches if variant.head == "cnn" else 0
    if head_batches:
        more = {**notes, "head_batches": head_batches}
        train_head(trainer, data, settings, more, state / "head")
    samples = held_out_samples(data, asked.instruction)
    figures = calibrate(asked, {name: trainer.predict(rows) for name, rows in samples.items()})
    recipe = {
        "base": model,
        **notes,
        "head_batches": head_batches,
        **{key: getattr(settings, key) for key in ("steps", "batch", "lr", "seed")},
    }
    adapters.save(DETECTOR, out)
    save_head(trainer.head, asked, out, variant=variant.name, training=recipe, **figures)
    write_card(out, variant, recipe, figures)
    print(json.dumps({"out": str(out), "threshold": asked.threshold, **figures}))
    return 0


def _train_adapter(
    trainer: DetectorTrainer,
    adapters: Adapters,
    data: TrainingData,
    settings: Settings,
    notes: Mapping[str, Any],
    run: Path,
) -> None:
    """Adapter and head together."""
    instruction = trainer.settings.instruction
    fixed = held_out_samples(data, instruction, per_picture=2)

    def losses(step: int) -> dict[str, Tensor]:
        pictures = draw_samples(data, settings, step, instruction)
        batch = collate(pictures, trainer.backbone, trainer.processor, trainer.device)
        return trainer.losses(batch, notes["look_weight"])

    def evaluate() -> dict[str, float]:
        seen = {name: trainer.predict(pictures[:100]) for name, pictures in fixed.items()}
        return {
            f"{name}_f1": round(f1(logits > 0, labels), 4)
            for name, (logits, labels) in seen.items()
        }

    trainer.training_mode()
    groups = [Group([p for p in adapters.parameters(DETECTOR) if p.requires_grad])]
    head = list(trainer.head.parameters())
    if head:
        groups.append(Group(head, lr_scale=HEAD_LR_SCALE))
    train(losses, groups, settings, run, evaluate=evaluate, notes=notes)
