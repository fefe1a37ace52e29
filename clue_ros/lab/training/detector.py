"""`clue train detector`: adapter A and its head on the frozen base (sections III-B, IV-A).

`--variant` names the detector (`model/detector_variants.py`): depth, adapted blocks, conditioning
word, and a CNN or the decoder's own answer. A CNN's loss is binary cross-entropy on whether the
sentence names exactly one thing; an AR variant learns to generate its answer among the whole
vocabulary. `--head` and `--loss` name a head and a loss of one's own, `--data` rows of one's own
(docs/bring-your-own.md). The defaults are the paper's recipe. That of the embedded models
(`--recipe embedded`) has other learning rates, trains the CNN further alone (`--head-batches`),
and, where object masks are known, supervises the map with its objects (`--look-weight`), so that it
still shows the candidates. The threshold (best F1) and the temperature (best
log-likelihood) are chosen on validation data (`calibrate`). Several processes (`accelerate launch`)
share a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
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
from clue_ros.lab.metrics import calibration
from clue_ros.lab.options import add_options, add_recipe, at_least, option, read_options
from clue_ros.lab.simulator.worlds import PAPER as PAPER_WORLD
from clue_ros.lab.training.adapters import base_name, checkpoint_activations, frozen_base
from clue_ros.lab.training.datasets import PHOTOS, SIMULATED
from clue_ros.lab.training.detector_data import (
    DetectorData,
    DetectorDataOptions,
    load_detector_data,
)
from clue_ros.lab.training.ivg import cross_entropy_sum, silence
from clue_ros.lab.training.loop import Group, Parts, TrainingSettings, prefetch, train
from clue_ros.lab.training.options import (
    EMBEDDED_RECIPE,
    AdapterOptions,
    FrozenBaseOptions,
    check_shares,
)
from clue_ros.lab.training.packing import patch_shares, target_map, training_attention
from clue_ros.lab.training.parallel import (
    PRECISIONS,
    Processes,
    autocast,
    start_processes,
)
from clue_ros.lab.training.samples import Sample, one_query_each
from clue_ros.lab.training.stored import stem_features
from clue_ros.lab.training.vision import batch_tensor
from clue_ros.model.adapters import DROPOUT, Adapters, lora_config
from clue_ros.model.attention import min_max
from clue_ros.model.backbone import DETECTOR
from clue_ros.model.checkpoint import existing_folder
from clue_ros.model.detector import (
    SETTINGS_FILE,
    DetectorSettings,
    check_trusted,
    load_settings,
)
from clue_ros.model.detector_variants import PAPER, VARIANTS, Variant
from clue_ros.model.heads import (
    AnswerHead,
    Head,
    MapHead,
    NewWord,
    Reading,
    detector_loss,
    head_class,
    load_head,
    plain_head,
    probability,
    save_head,
)
from clue_ros.model.loading import (
    find_base,
    find_model,
    fingerprint,
    imported_function,
    read_json,
    replacing,
)
from clue_ros.model.prompts import Prompts, encode_prompts
from clue_ros.model.torch_backbone import TorchModel

HEAD_STEPS, HEAD_BATCH, HEAD_LR = 3000, 256, 1e-3  # of the head alone
BINARY, VOCABULARY = LOSSES = ("binary", "vocabulary")
Loss = Callable[[Reading, Tensor], Tensor]
EMBEDDED = {
    **EMBEDDED_RECIPE,
    "variant": "half-full-detect-cnn",
    "head_lr": 1.4e-3,
    "head_batches": 260,
    "look_weight": 0.15,
    "loss": BINARY,
}
# Its Dataset 1, of `clue data tabletop --preset paper` and IT2P, with the defaults' numbers.
PAPERS_DATA = {"world": PAPER_WORLD.name, "scenes": 1400, "data": (SIMULATED, PHOTOS)}
NEIGHBOURS = 5  # hundredths on either side of a threshold to average F1 over
_READS = {
    "cnn": "a CNN over the attention map of that block",
    "ar": 'the decoder\'s own "yes" (ambiguous) or "no" after that block',
}


@dataclass(frozen=True, kw_only=True)
class DetectorRecipe(FrozenBaseOptions):
    """The numbers of a detector's training."""

    steps: int = option(260, "optimizer steps of adapter and head together")
    batch: int = option(12, "pictures a step, three sentences each")
    lr: float = option(5e-6, "learning rate of the adapter")
    head_lr: float = option(1e-4, "learning rate of the CNN")
    dropout: float = option(DROPOUT, "dropout of the LoRA")
    precision: str = option(
        "auto", "mixed precision; auto is bfloat16 if the device has it", choices=PRECISIONS
    )
    head_batches: int = option(
        0,
        "batches of maps that the CNN alone is trained on afterwards; 0 for none (the paper)",
    )
    head_steps: int = option(HEAD_STEPS, "steps of the CNN alone", type=at_least(1))
    look_weight: float = option(
        0.0,
        "weight of the attention loss where objects have masks (not in the paper)",
    )
    loss: str | None = option(
        None,
        f"{BINARY}: cross-entropy of the judgement; {VOCABULARY}: of generating the answer among"
        " all words; or a function of your own (docs/bring-your-own.md); default, as in the paper:"
        f" {VOCABULARY} for AR variants, else {BINARY}",
        metavar=f"{BINARY}|{VOCABULARY}|MODULE:FUNCTION",
    )


@dataclass(frozen=True, kw_only=True)
class DetectorOptions(DetectorRecipe, DetectorDataOptions, AdapterOptions):
    """The options of `clue train detector`."""

    variant: str | None = option(
        None,
        f"detector to train (Table I); default: that of --init, else {PAPER}",
        choices=tuple(VARIANTS),
    )
    head: str | None = option(
        None,
        "head of your own in place of the variant's (docs/bring-your-own.md)",
        metavar="MODULE:CLASS",
    )
    new_word: bool = option(
        False,
        "learn the embedding of the conditioning word too, as of a new token (the paper's"
        " disambiguate); torch alone runs such a detector",
    )
    init: Path | None = option(
        None,
        "folder of a detector of this variant to go on from, of this base; default: a new one",
        metavar="DETECTOR",
    )

    @property
    def settings(self) -> TrainingSettings:
        """The loop's settings."""
        return TrainingSettings(
            self.steps,
            self.batch,
            self.lr,
            final_rate=self.final_rate,
            seed=self.seed,
            save_every=self.save_every,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, DetectorOptions)
    add_recipe(parser, paper=PAPERS_DATA, embedded=EMBEDDED)


def run(args: argparse.Namespace) -> int:
    """Train adapter A and the head, calibrate, write the detector folder."""
    options = read_options(DetectorOptions, args)
    processes = start_processes(str(options.start_device()), options.precision)
    train_detector(options, processes)
    processes.close()
    return 0


def train_detector(
    options: DetectorOptions,
    processes: Processes,
    load: Callable[[Any, str], DetectorData] | None = None,
) -> None:
    """Train adapter A and the head, calibrate, write the detector folder.

    load: the data by the model's processor and the conditioning word; None: those of the options.
    """
    options = _with_variant(options)
    check_shares(options.batch, options.accumulate, processes.count)
    variant, out = VARIANTS[options.variant or PAPER], options.folder(DETECTOR)
    head = options.head or variant.head
    base = find_base(find_model(options.model))
    backbone, processor = frozen_base(options, base, processes.device, options.data)
    adapters = Adapters(backbone)
    instruction: str = variant.instruction
    if options.new_word and UNUSED in processor.tokenizer.get_vocab():
        instruction = UNUSED  # a token that nothing else uses
    detector = DetectorSettings(
        variant.block(backbone.blocks), instruction, head, new_word=options.new_word
    )
    trainer = DetectorTrainer(backbone, processor, detector, processes.device, options, processes)
    if options.loss == VOCABULARY and not isinstance(trainer.head, AnswerHead):
        raise ClueError(f"--loss {VOCABULARY} is of AR variants, which answer in words")
    if options.new_word:
        trainer.head = new_word(trainer.head, backbone, processor.tokenizer, detector, variant)
    if options.init is not None:
        trainer.head = _go_on_from(options, backbone, adapters, processor.tokenizer)
    else:
        config = lora_config(variant.adapted(backbone.blocks), dropout=options.dropout)
        adapters.add(DETECTOR, config)
        config.base_model_name_or_path = base_name(options.model, out)
    adapters.use(DETECTOR, train=True)
    if options.gradient_checkpointing:
        checkpoint_activations(backbone)
    folder = options.run_folder(options.model) / f"{DETECTOR}-{variant.name}"
    # Every process reads the data, one says so.
    with contextlib.nullcontext() if processes.is_main else silence():
        report = folder / "left_out.txt" if processes.is_main else None
        if load is not None:
            data = load(processor, instruction)
        else:
            data = load_detector_data(options, processor, instruction, report)
    notes = {
        "fingerprint": fingerprint(base),
        "base_dtype": options.base_dtype,
        "data": sorted(options.data),
        **{name: getattr(options, name) for name in ("head_lr", "look_weight")},
        **{key: str(value) for key in _IF_GIVEN if (value := getattr(options, key)) is not None},
        **({"new_word": True} if options.new_word else {}),
        **({"dropout": options.dropout} if options.dropout != DROPOUT else {}),
        **data.notes(options),
    }
    train_adapter(trainer, adapters, data, notes, folder)
    head_batches = options.head_batches if isinstance(plain_head(trainer.head), MapHead) else 0
    if head_batches:
        more = {**notes, "head_batches": head_batches}
        if processes.is_main:  # it takes a thousandth of the time
            train_head(trainer, data, more, folder / "head")
        processes.share_weights(trainer.head.parameters())
    held_out = data.held_out()
    figures = calibrate(detector, {name: trainer.predict(rows) for name, rows in held_out.items()})
    recipe = {
        "base": options.model,
        **notes,
        "head_batches": head_batches,
        **{name: getattr(options, name) for name in ("steps", "batch", "lr", "final_rate", "seed")},
    }
    if not processes.is_main:
        return
    adapters.save(DETECTOR, out)
    save_head(trainer.head, detector, out, variant=variant.name, training=recipe, **figures)
    write_card(out, variant, head, recipe, figures)
    print(json.dumps({"out": str(out), "threshold": detector.threshold, **figures}))


_IF_GIVEN = ("loss", "head", "init")  # settings that decide a run


def _with_variant(options: DetectorOptions) -> DetectorOptions:
    """The options with the variant and the head that the folder of `--init` names."""
    if options.init is None:
        return options
    path = existing_folder(options.init, "a detector") / SETTINGS_FILE
    known = read_json(path)
    own = known.get("head")
    check_trusted(str(own), options.head, path)
    if options.head not in (None, own):
        raise ClueError(f"{path} has the head {own}: leave out --head {options.head}")
    variant = options.variant or known.get("variant")
    if variant not in VARIANTS:
        raise ClueError(f"{path} names no variant: give it as --variant")
    return replace(options, variant=variant)


UNUSED = "<unused0>"  # in PaliGemma's vocabulary, for new words


def new_word(
    head: Head, backbone: TorchModel, tokenizer: Any, settings: DetectorSettings, variant: Variant
) -> NewWord:
    """Return the head of a learned conditioning word, initialised as the variant's word."""
    tokens = [
        tokenizer(word, add_special_tokens=False)["input_ids"]
        for word in (settings.instruction, variant.instruction)
    ]
    with torch.no_grad():
        pieces = backbone.embed_tokens(torch.tensor(tokens[1], device=backbone.device))
    start = pieces if len(tokens[0]) == len(pieces) else pieces.mean(0).expand(len(tokens[0]), -1)
    return NewWord(head, start).to(backbone.device)


def _go_on_from(
    options: DetectorOptions, backbone: TorchModel, adapters: Adapters, tokenizer: Any
) -> Head:
    """Load the adapter of `--init`, and return its head. Raises ClueError for another variant."""
    assert options.init is not None
    folder = existing_folder(options.init, "a detector")
    known = load_settings(folder, backbone.blocks)
    if known.new_word != options.new_word:
        said = "has" if known.new_word else "has not"
        raise ClueError(f"{folder} {said} a learned word: give --new-word as it was trained")
    head = load_head(folder, known.head, tokenizer, new_word=known.new_word)
    settings = read_json(folder / SETTINGS_FILE)
    if settings.get("variant") != options.variant:
        raise ClueError(
            f"--init {folder} is a detector of the variant {settings.get('variant')}: give it as"
            f" --variant, instead of {options.variant}"
        )
    adapters.load(DETECTOR, folder)
    return head.to(backbone.device)


@dataclass(frozen=True)
class DetectorBatch:
    """B sequences.

    features (B, N, D); ambiguous (B,) 0. or 1.; maps (M, N), each summing to 1, of the M sequences
    map_rows (M,) whose objects are known.
    """

    features: Tensor
    prompts: Prompts
    maps: Tensor
    map_rows: Tensor
    ambiguous: Tensor


def collate(
    samples: Sequence[Sample],
    backbone: TorchModel,
    processor: Any,
    device: torch.device,
    precision: str = "auto",
) -> DetectorBatch:
    """One query a sequence, with prompts and features as at inference; one look a picture."""
    with torch.no_grad(), autocast(device, precision):
        scenes = [scene for scene, _ in samples]
        features = backbone.look(batch_tensor(scenes, device), stem_features(scenes, device))
    single, rows = one_query_each(samples)
    queries = [query for _, (query,) in single]
    prompts = encode_prompts(processor, queries[0].instruction, [q.context for q in queries])
    known = [i for i, (scene, _) in enumerate(single) if scene.objects]
    maps = np.zeros((len(known), backbone.grid**2), np.float32)
    for row, i in enumerate(known):
        scene, (query,) = single[i]
        maps[row] = target_map(patch_shares(scene, backbone.grid), query.meant)
    return DetectorBatch(
        features[rows].float(),
        prompts.to(device),
        torch.from_numpy(maps).to(device),
        torch.tensor(known, dtype=torch.long, device=device),
        torch.tensor([float(q.ambiguous) for q in queries], device=device),
    )


class DetectorTrainer:
    """One training step, and predictions."""

    def __init__(
        self,
        backbone: TorchModel,
        processor: Any,
        settings: DetectorSettings,
        device: torch.device,
        options: DetectorOptions,
        processes: Processes | None = None,
    ) -> None:
        self.backbone, self.processor = backbone, processor
        self.settings, self.device, self.options = settings, device, options
        self.processes = processes or Processes(device, options.precision)
        self.head = head_class(settings.head).make(processor.tokenizer).to(device)
        self._loss = own_loss(options.loss)

    def parts(self, samples: Sequence[Sample], processes: int = 1) -> list[Sequence[Sample]]:
        """A step's pictures in the parts of all processes, `--accumulate` of each."""
        count = min(self.options.accumulate * processes, len(samples))
        return [samples[i::count] for i in range(count)]

    def collate(self, samples: Sequence[Sample]) -> DetectorBatch:
        """Samples as a batch for this detector."""
        precision = self.processes.precision
        return collate(samples, self.backbone, self.processor, self.device, precision)

    def read(self, batch: DetectorBatch) -> Reading:
        """The head's logits and maps of a batch."""
        decoder = self.backbone.model.model.language_model
        precision = self.processes.precision
        with autocast(self.device, precision), training_attention(decoder):
            return self.head.read(self.backbone, self.settings.block, batch.features, batch.prompts)

    def losses(self, batch: DetectorBatch) -> dict[str, Tensor]:
        """Loss and figures of a batch."""
        reading, figures = self.read(batch), {}
        if self._loss is not None:
            decide = checked_loss(self._loss(reading, batch.ambiguous), self.options.loss)
        elif isinstance(answers := plain_head(self.head), AnswerHead) and self.options.loss in (
            None,
            VOCABULARY,
        ):
            assert reading.answers is not None
            decide, said = answers.generation_loss(reading.answers, batch.ambiguous)
            figures["yes_or_no"] = said
        else:
            decide = detector_loss(reading.logits, batch.ambiguous)
        attention = reading.attention.flatten(1)[batch.map_rows]
        look = cross_entropy_sum(batch.maps, attention) / max(len(batch.maps), 1)
        right = ((reading.logits > 0).float() == batch.ambiguous).float().mean()
        loss = decide + self.options.look_weight * look
        return {"loss": loss, "decide": decide, "look": look, "right": right, **figures}

    def step(self, samples: Sequence[Sample]) -> Parts:
        """The losses of this process's parts, each weighed by its share of a step's sentences."""
        rank, count = self.processes.rank, self.processes.count
        parts = self.parts(samples, count)[rank::count]
        total = sum(len(queries) for _, queries in samples)

        def losses(part: Sequence[Sample]) -> dict[str, Tensor]:
            share = sum(len(queries) for _, queries in part) / total
            return {k: v * share for k, v in self.losses(self.collate(part)).items()}

        return Parts({}, lambda _totals: [partial(losses, part) for part in parts])

    def groups(self, adapters: Adapters) -> list[Group]:
        """Adapter and head, each with its own rate."""
        groups = [Group([p for p in adapters.parameters(DETECTOR) if p.requires_grad])]
        if head := list(self.head.parameters()):
            groups.append(Group(head, lr_scale=self.options.head_lr / self.options.lr))
        return groups

    def training_mode(self) -> None:
        """Dropout on, except in the frozen vision tower."""
        self.head.train()
        self.backbone.model.train()
        self.backbone.model.model.vision_tower.eval()

    @torch.no_grad()
    def predict(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Logits (n,) and labels (n,) of many samples; every process takes its share."""
        self.backbone.model.eval()
        self.head.eval()
        logits, labels = [], []
        size = max(1, 12 // self.options.accumulate)
        mine = samples[self.processes.rank :: self.processes.count]
        for i in range(0, len(mine), size):
            batch = self.collate(mine[i : i + size])
            logits.append(self.read(batch).logits.float().cpu())
            labels.append(batch.ambiguous.cpu())
        self.training_mode()
        both = [(torch.cat(logits), torch.cat(labels))] if logits else []
        every = self.processes.gather(both)
        return torch.cat([found for found, _ in every]), torch.cat([truth for _, truth in every])


def own_loss(name: str | None) -> Loss | None:
    """The loss MODULE:FUNCTION, imported; None for those of `LOSSES`. Raises ClueError."""
    if name is None or name in LOSSES:
        return None
    if ":" not in name:
        raise ClueError(f"--loss {name}: want {', '.join(LOSSES)} or MODULE:FUNCTION")
    return imported_function(name)


def checked_loss(loss: object, name: str | None) -> Tensor:
    """Return the user's loss. Raises ClueError for a value that is not a scalar tensor."""
    if not isinstance(loss, Tensor) or loss.ndim != 0:
        raise ClueError(f"--loss {name} returned {loss!r:.60}, want a tensor of one number")
    return loss


def train_adapter(
    trainer: DetectorTrainer,
    adapters: Adapters,
    data: DetectorData,
    notes: Mapping[str, Any],
    folder: Path,
) -> None:
    """Train adapter and head together."""
    options, settings = trainer.options, trainer.options.settings
    held_out = data.held_out(per_picture=2, most=100)

    def evaluate() -> dict[str, float]:
        seen = {name: trainer.predict(samples) for name, samples in held_out.items()}
        return {
            f"{name}_f1": round(f1(logits > 0, labels), 4)
            for name, (logits, labels) in seen.items()
        }

    trainer.training_mode()
    workers = options.prefetch_workers(trainer.device)
    with prefetch(
        partial(data.samples, settings), workers, options.steps, trainer.device
    ) as samples:
        train(
            lambda step: trainer.step(samples(step)),
            trainer.groups(adapters),
            settings,
            folder,
            evaluate=evaluate,
            notes=notes,
            processes=trainer.processes,
        )


def train_head(
    trainer: DetectorTrainer, data: DetectorData, notes: Mapping[str, Any], folder: Path
) -> None:
    """Train the head alone on the finished adapter's maps, at a thousandth of the cost a sample.

    A mirrored map is as ambiguous as the map itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    maps, labels = cached_maps(trainer, data, notes, folder / "maps.safetensors")
    seed, steps = trainer.options.seed, trainer.options.head_steps
    settings = TrainingSettings(steps, HEAD_BATCH, HEAD_LR, weight_decay=1e-3, seed=seed)
    head = plain_head(trainer.head)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((seed, 13, step))
        rows = torch.from_numpy(rng.integers(len(maps), size=HEAD_BATCH))
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        logits = head(maps[rows].flip(axes).to(trainer.device))
        truth = labels[rows].to(trainer.device)
        right = ((logits > 0).float() == truth).float().mean()
        return {"loss": detector_loss(logits, truth), "right": right}

    head.train()
    alone = Processes(trainer.device)  # the first of several does this for all
    train(losses, [Group(list(head.parameters()))], settings, folder, notes=notes, processes=alone)


def cached_maps(
    trainer: DetectorTrainer, data: DetectorData, notes: Mapping[str, Any], path: Path
) -> tuple[Tensor, Tensor]:
    """Maps (n, g, g) in 0..1 and labels (n,) of `head_batches` new batches.

    `path` caches them with their notes; other notes recompute them.
    """
    settings = trainer.options.settings
    made_of = {"notes": json.dumps({**asdict(settings), **notes}, sort_keys=True)}
    if _metadata(path) != made_of:
        maps, labels = [], []
        trainer.backbone.model.eval()
        first = settings.steps
        for step in tqdm(range(first, first + notes["head_batches"]), desc="maps"):
            for part in trainer.parts(data.samples(settings, step)):
                batch = trainer.collate(part)
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
    folder: Path,
    variant: Variant,
    head: str,
    recipe: Mapping[str, Any],
    figures: Mapping[str, Any],
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
        f"- read from: {_READS.get(head, f'the head `{head}`, which is code of its author')}",
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
