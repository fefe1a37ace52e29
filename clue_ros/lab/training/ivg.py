"""`clue train ivg`: adapter B on the frozen base (section III-A), which asks or grounds.

`ivg_loss` is the paper's loss: token cross-entropy on the suffix only, averaged over the tokens of
each training pair, over pairs made by cumulative reveal. The defaults are the paper's recipe. In
that of the embedded models (`--recipe embedded`) the attention is taught the objects' masks
(`--look-weight`, `--point-weight`), location tokens get narrow Gaussian targets, because a
neighbouring bin is nearly right (`--location-sigma`), and all suffix tokens of a batch weigh the
same (`--average token`).

One process, or several with `accelerate launch` (config/accelerate/, docs/training-machines.md):
`--batch` is the whole step's, each process takes its share of it, and the loss is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from clue_ros.lab.language.references import MAX_BOXES
from clue_ros.lab.options import add_options, add_recipe, option, read_options
from clue_ros.lab.training.adapters import base_name, checkpoint_activations, frozen_base
from clue_ros.lab.training.ivg_data import (
    CLARIFY,
    IvgData,
    IvgDataOptions,
    Slot,
    load_ivg_data,
)
from clue_ros.lab.training.loop import Group, PartLosses, Parts, TrainingSettings, prefetch, train
from clue_ros.lab.training.options import EMBEDDED_RECIPE, AdapterOptions, check_shares
from clue_ros.lab.training.packing import Packed, PackedDecoder, pointer_maps, query_maps
from clue_ros.lab.training.parallel import PRECISIONS, Processes, start_processes
from clue_ros.lab.training.samples import Change, Sample, one_query_each, unchanged
from clue_ros.lab.training.vision import LOC_BINS, soft_bins
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import IVG
from clue_ros.model.checkpoint import IvgSettings, existing_folder, save_ivg_settings
from clue_ros.model.loading import find_base, find_model, fingerprint
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.torch_backbone import TorchModel

Number = TypeVar("Number", Tensor, float)
Judge = Callable[[Tensor, Packed], dict[str, Tensor]]


def ivg_loss(
    logits: Tensor,
    labels: Tensor,
    first_location: int,
    sigma: float = 0.0,
    weights: Tensor | None = None,
) -> dict[str, Tensor]:
    """The loss of interactive visual grounding: token cross-entropy on the suffix (section III-A).

        L = - 1/T sum_t log p(y_t | image, C(k), y_<t)

    C(k) is the dialogue so far, the prefix; the suffix y is the next question or, at the end, the
    four location tokens of the box, and <eos>: T tokens. Only suffix tokens count.

    logits: (S, V) float32, each row predicting one of the S suffix tokens of a batch. labels: (S,)
    int64. first_location: id of <loc0000>. sigma: 0 for the paper's loss; above 0, the target of a
    location token is a Gaussian of this width in bins instead of its single bin. weights: (S,), of
    each token: 1/T of its training pair (`example_weights`); None: each token weighs 1.

    Returns sums over the batch, to be divided by their counts (`combine`): "suffix" (), the loss;
    "word_right", words predicted right; "box_right", boxes with an IoU of at least 0.5.
    """
    log_p = logits.log_softmax(-1)
    is_location = _is_location(labels, first_location)
    bins = labels[is_location] - first_location
    words = log_p[~is_location]
    locations = log_p[is_location][:, first_location : first_location + LOC_BINS]
    word_loss = F.nll_loss(words, labels[~is_location], reduction="none")
    if sigma > 0:
        location_loss = -(soft_bins(bins.float(), sigma) * locations).sum(-1)
    else:
        location_loss = F.nll_loss(locations, bins, reduction="none")
    loss = torch.cat([word_loss, location_loss])
    if weights is not None:
        loss = loss * torch.cat([weights[~is_location], weights[is_location]])
    with torch.no_grad():
        word_right = (words.argmax(-1) == labels[~is_location]).float().sum()
        box_right = boxes_right(locations.argmax(-1), bins).sum()
    return {"suffix": loss.sum(), "word_right": word_right, "box_right": box_right}


def attention_losses(
    decoder: PackedDecoder, attention: Mapping[int, Tensor], packed: Packed, teaching: Teaching
) -> dict[str, Tensor]:
    """Summed cross-entropies of the attention to the objects' patches; not in the paper.

    attention: (B, H, T, N) by block. "look": the map of each query's words (equations 1 and 2, at
    the block that the detector reads) against the objects meant. "point": each suffix token, one
    block later, against the object that it names.
    """
    sums = {}
    if teaching.look:
        maps = query_maps(attention[decoder.block], packed)
        sums["look"] = cross_entropy_sum(packed.maps, maps)
    if teaching.point:
        maps = pointer_maps(attention[decoder.block + 1], packed)
        sums["point"] = cross_entropy_sum(packed.points, maps)
    return sums


@dataclass(frozen=True)
class Teaching:
    """The losses beside the suffix's cross-entropy, and the width of location targets.

    look, point: weights of `attention_losses`, 0 for none. sigma: width of the location tokens'
    Gaussian targets in bins; 0 for the paper's plain cross-entropy. first_sigma: their width when a
    stage begins (`at`). dense: weight of the tower's dense targets (`vision`) in stage 2. decide:
    weight of the detector's loss in joint training (`joint`).
    per_example: the suffix's loss is a mean over the tokens of each training pair, then over the
    pairs of a batch (the paper); else over all suffix tokens of a batch, where a long question
    weighs more than the four tokens of a box.
    """

    look: float = 0.15
    point: float = 0.15
    sigma: float = 1.5
    dense: float = 0.0
    decide: float = 0.0
    first_sigma: float = 8.0
    per_example: bool = False

    def at(self, progress: float) -> Teaching:
        """The teaching at a share of a stage's steps: the width narrows until 0.7 of them."""
        if self.sigma <= 0:
            return self
        wider = max(1.0, self.first_sigma / self.sigma) ** max(0.0, 1 - progress / 0.7)
        return replace(self, sigma=self.sigma * wider)


def summed_losses(
    decoder: PackedDecoder,
    features: Tensor,
    packed: Packed,
    teaching: Teaching,
    *,
    image_sees_prefix: bool,
    judge: Judge | None = None,
) -> dict[str, Tensor]:
    """Losses and figures summed over a batch, so that parts of a larger one add up.

    features: (B, N, width), one row a sequence. judge: further ones, from the attention
    (B, H, T, N) of the block that the detector reads.
    """
    packed = packed.to(decoder.device)
    blocks = [decoder.block] if judge is not None else []
    if teaching.look or teaching.point:
        blocks = [decoder.block, decoder.block + 1]
    hidden, attention = decoder.run(
        features, packed, image_sees_prefix=image_sees_prefix, blocks=blocks
    )
    sequence, at = (packed.labels != -100).nonzero().unbind(1)
    # A token is predicted at the position before it.
    logits = decoder.logits(hidden[sequence, at + decoder.tokens - 1])
    labels = packed.labels[sequence, at]
    weights = example_weights(packed) if teaching.per_example else None
    return {
        **ivg_loss(logits, labels, decoder.first_location, teaching.sigma, weights),
        **attention_losses(decoder, attention, packed, teaching),
        **(judge(attention[decoder.block], packed) if judge is not None else {}),
    }


def example_weights(packed: Packed) -> Tensor:
    """1/T for each suffix token of a training pair with T of them: (S,) float32.

    The weights of a pair sum to 1; the order is that of the suffix tokens in `packed.labels`.
    """
    _, pair, lengths = _training_pairs(packed)
    return 1 / lengths[pair].float()


def _training_pairs(packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
    """The training pairs with a suffix (P, 2), the pair of each suffix token (S,), each T (P,)."""
    at = (packed.labels != -100).nonzero()
    names = torch.stack([at[:, 0], packed.owner[at[:, 0], at[:, 1]]], 1)
    found: tuple[Tensor, Tensor, Tensor] = torch.unique(
        names, dim=0, return_inverse=True, return_counts=True
    )
    return found


def loss_counts(packed: Packed, teaching: Teaching, first_location: int) -> dict[str, float]:
    """The number of terms that each of `summed_losses` is a sum over.

    Of "suffix" the number of training pairs or of tokens (`Teaching.per_example`).
    """
    labels = packed.labels[packed.labels != -100]
    locations = int(_is_location(labels, first_location).sum())
    terms = len(_training_pairs(packed)[0]) if teaching.per_example else len(labels)
    return {
        "suffix": float(terms),
        "look": float(len(packed.map_rows)) if teaching.look else 0.0,
        "point": float(len(packed.point_rows)) if teaching.point else 0.0,
        "word_right": float(len(labels) - locations),
        "box_right": locations / 4,
    }


def combine(
    sums: Mapping[str, Number], counts: Mapping[str, float], teaching: Teaching
) -> dict[str, Number]:
    """The means of summed losses and the weighted "loss" of them.

    With the counts of a larger batch: a part's contribution to that batch's means.
    """
    means = {name: total / max(counts[name], 1) for name, total in sums.items()}
    loss = means["suffix"]
    for name in ("look", "point", "dense", "decide"):
        if name in means:
            loss = loss + getattr(teaching, name) * means[name]
    # the mean of nothing is no figure
    return {"loss": loss, **{k: v for k, v in means.items() if counts[k] > 0}}


def cross_entropy_sum(target: Tensor, predicted: Tensor) -> Tensor:
    """Summed cross-entropy between distributions (M, N), less the targets' own entropy.

    Nothing can lower that entropy; without it, targets of many and of few patches weigh the same.
    """
    entropy = -(target * (target + 1e-9).log()).sum(-1)
    return (-(target * (predicted + 1e-6).log()).sum(-1) - entropy).sum()


def boxes_right(found: Tensor, truth: Tensor) -> Tensor:
    """Return whether each box has an IoU of at least 0.5: (n,) 0. or 1.

    found, truth: (4 n,) bins in the order y1 x1 y2 x2.
    """
    a, b = found.view(-1, 4).float(), truth.view(-1, 4).float()
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).clamp(min=0).prod(1) for x in (a, b))
    return (both / (area_a + area_b - both).clamp(min=1) >= 0.5).float()


def _is_location(labels: Tensor, first_location: int) -> Tensor:
    return (labels >= first_location) & (labels < first_location + LOC_BINS)


# --- the command

USUAL = Teaching()  # of the embedded models
PAPER = Teaching(look=0.0, point=0.0, sigma=0.0, per_example=True)
AVERAGES = ("example", "token")
EMBEDDED = {
    **EMBEDDED_RECIPE,
    "average": AVERAGES[1],
    "look_weight": USUAL.look,
    "point_weight": USUAL.point,
    "location_sigma": USUAL.sigma,
}
_ATTENTION = "weight of the attention loss on the {} where objects have masks (not in the paper)"


@dataclass(frozen=True, kw_only=True)
class IvgOptions(IvgDataOptions, AdapterOptions):
    """The options of `clue train ivg`."""

    steps: int = option(260, "optimizer steps")
    batch: int = option(8, "pictures a step, over all processes")
    lr: float = option(1e-4, "learning rate")
    warmup: float = option(0.05, "share of the steps with linear warm-up")
    weight_decay: float = option(1e-4, "weight decay of AdamW")
    rank: int = option(16, "rank of the LoRA")
    alpha: int = option(32, "alpha of the LoRA")
    init: Path | None = option(
        None,
        "folder of an adapter to go on from, of this base; default: a new one. Its own rank, alpha"
        " and dropout hold",
        metavar="ADAPTER",
    )
    dropout: float = option(0.05, "dropout of the LoRA")
    average: str = option(
        AVERAGES[0],
        "average the loss over the tokens of each training pair first (example, the paper), or over"
        " all suffix tokens of a batch (token)",
        choices=AVERAGES,
    )
    look_weight: float = option(0.0, _ATTENTION.format("objects meant"))
    point_weight: float = option(0.0, _ATTENTION.format("object named"))
    location_sigma: float = option(
        0.0,
        "width of location targets in bins, 0 for plain cross-entropy (the paper)",
    )
    precision: str = option(
        "auto", "mixed precision; auto is bfloat16 if the device has it", choices=PRECISIONS
    )
    max_new_tokens: int = option(48, "longest question in tokens, when the model is used")
    views: int = option(
        1,
        "number of augmented views that agree on the box, when the model is used",
        choices=range(1, MAX_VIEWS + 1),
    )
    log_every: int = option(20, "steps between two rows of the log")

    @property
    def teaching(self) -> Teaching:
        """The losses and their weights."""
        return Teaching(
            self.look_weight,
            self.point_weight,
            self.location_sigma,
            per_example=self.average == "example",
        )

    @property
    def settings(self) -> TrainingSettings:
        """The loop's settings."""
        return TrainingSettings(
            self.steps,
            self.batch,
            self.lr,
            weight_decay=self.weight_decay,
            warmup=self.warmup,
            schedule="linear",
            final_rate=self.final_rate,
            seed=self.seed,
            save_every=self.save_every,
        )


class IvgTrainer:
    """Steps of adapter B, in parts, on this process's share of the pictures."""

    def __init__(
        self,
        decoder: PackedDecoder,
        teaching: Teaching,
        processes: Processes,
        accumulate: int = 1,
        *,
        together: bool = False,
    ) -> None:
        """together: the training pairs of a picture in one sequence (`IvgOptions.together`)."""
        self.decoder = decoder
        self.teaching = teaching
        self.processes = processes
        self.accumulate = accumulate
        self.together = together

    def shares(self, slots: Sequence[Slot]) -> list[list[Sample]]:
        """This process's pictures of a step, in `accumulate` parts; reads them."""
        parts = self.processes.count * self.accumulate
        first = self.processes.rank * self.accumulate
        mine = [slots[first + part :: parts] for part in range(self.accumulate)]
        return [[slot() for slot in part] for part in mine if part]

    def step(self, shares: Sequence[Sequence[Sample]]) -> Parts:
        """The losses of this process's share."""
        packed = [self._pack(samples, self.together) for samples in shares]

        def losses(totals: Mapping[str, float]) -> Iterator[PartLosses]:
            for samples, texts in zip(shares, packed, strict=True):
                yield partial(self._losses, samples, texts, totals)

        return Parts(self._counts(packed), losses)

    def _losses(
        self, samples: Sequence[Sample], packed: Packed, totals: Mapping[str, float]
    ) -> dict[str, Tensor]:
        return combine(self._sums(samples, packed, self.together), totals, self.teaching)

    def _pack(self, samples: Sequence[Sample], together: bool) -> Packed:
        return self.decoder.pack(samples if together else one_query_each(samples)[0])

    def _sums(self, samples: Sequence[Sample], packed: Packed, together: bool) -> dict[str, Tensor]:
        features = self.decoder.features([scene for scene, _ in samples])
        if not together:
            features = features[one_query_each(samples)[1]]
        return summed_losses(
            self.decoder, features, packed, self.teaching, image_sees_prefix=not together
        )

    def _counts(self, packed: Sequence[Packed]) -> dict[str, float]:
        first = self.decoder.first_location
        counts = [loss_counts(part, self.teaching, first) for part in packed]
        names = ("suffix", "look", "point", "word_right", "box_right")
        return {name: sum(count[name] for count in counts) for name in names}

    def groups(self, adapter: Sequence[torch.nn.Parameter], options: IvgOptions) -> list[Group]:
        """The trained parameters: the adapter's weights."""
        return [Group(list(adapter))]

    def training_mode(self) -> None:
        """Dropout on, except in the frozen tower."""
        self.decoder.model.train()
        self.decoder.model.model.vision_tower.eval()

    @torch.no_grad()
    def evaluate(self, held_out: Mapping[str, Sequence[Slot]], size: int) -> dict[str, float]:
        """Means over held-out pictures, `size` at a time; every process takes its share."""
        self.decoder.model.eval()
        figures: dict[str, float] = {}
        for name, slots in held_out.items():
            mine = slots[self.processes.rank :: self.processes.count]
            counts = self._counts([])
            sums = dict.fromkeys(counts, 0.0)
            for i in range(0, len(mine), size):
                samples = [slot() for slot in mine[i : i + size]]
                packed = self._pack(samples, together=False)
                for key, value in self._counts([packed]).items():
                    counts[key] += value
                for key, total in self._sums(samples, packed, together=False).items():
                    sums[key] += float(total)
            sums, counts = self.processes.sum(sums), self.processes.sum(counts)
            means = combine(sums, counts, self.teaching)
            figures.update({f"{name}_{key}": round(mean, 4) for key, mean in means.items()})
        self.training_mode()
        return figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, IvgOptions)
    add_recipe(parser, embedded=EMBEDDED)


def run(args: argparse.Namespace) -> int:
    """Train adapter B and write its folder."""
    return run_training(args, ADAPTER_B)


def run_training(
    args: argparse.Namespace, learner: DialogueAdapter, kind: type[IvgOptions] = IvgOptions
) -> int:
    """Train an adapter of dialogues from the options of ``clue train ivg``; the exit status."""
    options = read_options(kind, args)
    processes = start_processes(str(options.start_device()), options.precision)
    train_ivg(options, processes, learner)
    processes.close()
    return 0


@dataclass(frozen=True)
class DialogueAdapter:
    """An adapter that learns moments of dialogues.

    name: of the adapter and its folder. instruction: of its samples (`ivg_data.IvgData`). save:
    writes its settings beside the weights, from the options, the folder and the notes. check:
    raises ClueError for an unsuitable tokenizer. trainer: see `IvgTrainer`. finish: runs after the
    training and before `save`, and returns more settings for it. notes: its own options that decide
    the run. change: maps a query by its own options; None drops it.
    """

    name: str
    instruction: str
    save: Callable[..., None]
    check: Callable[[Any], None] = lambda tokenizer: None
    trainer: Callable[..., IvgTrainer] = IvgTrainer
    finish: Callable[..., Mapping[str, Any]] = lambda *_parts: {}
    notes: Callable[[Any], Mapping[str, Any]] = lambda _options: {}
    change: Callable[[Any], Change] = lambda _options: unchanged


def _save_ivg(options: IvgOptions, folder: Path, **notes: Any) -> None:
    reply = IvgSettings(
        max_new_tokens=options.max_new_tokens,
        max_boxes=MAX_BOXES if options.via else 1,
        num_views=options.views,
    )
    save_ivg_settings(reply, folder, **notes)


ADAPTER_B = DialogueAdapter(IVG, CLARIFY, _save_ivg)


def train_ivg(
    options: IvgOptions,
    processes: Processes,
    learner: DialogueAdapter = ADAPTER_B,
    load: Callable[[Any], IvgData] | None = None,
) -> None:
    """Train adapter B, or another one that learns dialogues, and write its folder.

    load: the data by the model's processor; None: those that the options name.
    """
    check_shares(options.batch, options.accumulate, processes.count)
    name, out = learner.name, options.folder(learner.name)
    base = find_base(find_model(options.model))
    backbone, processor = frozen_base(options, base, processes.device, options.data)
    learner.check(processor.tokenizer)
    adapters = _first_adapter(options, backbone, name, out)
    decoder = PackedDecoder(
        backbone.model, processor.tokenizer, processes.device, processes.precision
    )
    trainer = learner.trainer(
        decoder, options.teaching, processes, options.accumulate, together=options.together > 0
    )
    folder = options.run_folder(options.model) / name
    # Every process reads the data, one says so.
    with contextlib.nullcontext() if processes.is_main else silence():
        report = folder / "left_out.txt" if processes.is_main else None
        if load is not None:
            data = load(processor)
        else:
            change = learner.change(options)
            data = load_ivg_data(options, processor, report, learner.instruction, change)
    teaching = options.teaching
    notes = {
        "fingerprint": fingerprint(base),
        "base_dtype": options.base_dtype,
        "data": sorted(options.data),
        **data.notes(options),
        "via": options.via,
        "look_weight": teaching.look,
        "point_weight": teaching.point,
        "location_sigma": teaching.sigma,
        "average": options.average,
        "rank": options.rank,
        "alpha": options.alpha,
        "dropout": options.dropout,
        "together": options.together,
    }
    notes |= learner.notes(options)
    if options.init is not None:
        notes["init"] = str(options.init)
    if data.dialogues is not None:
        notes |= {"pairs": options.pairs, "invig_share": data.dialogue_share}
        notes |= {"invig_language": options.invig_language}
    held_out = data.held_out()
    size = -(-options.batch // (processes.count * options.accumulate))
    figures: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        figures.update(trainer.evaluate(held_out, size))
        return figures

    def draw(step: int) -> list[list[Sample]]:
        return trainer.shares(data.slots(options.settings, step))

    trainer.training_mode()
    workers = options.prefetch_workers(processes.device)
    with prefetch(draw, workers, options.steps, processes.device) as shares:
        train(
            lambda step: trainer.step(shares(step)),
            trainer.groups([p for p in adapters.parameters(name) if p.requires_grad], options),
            options.settings,
            folder,
            evaluate=evaluate,
            log_every=options.log_every,
            notes=notes,
            processes=processes,
        )
    if not figures:  # nothing was left to train
        evaluate()
    if processes.is_main:
        more = learner.finish(options, backbone, processor, trainer, data, notes, folder)
        adapters.save(name, out)
        recipe = {key: getattr(options, key) for key in ("steps", "batch", "lr", "seed")}
        learner.save(options, out, validation=figures, training={**recipe, **notes}, **more)
        print(json.dumps({"out": str(out), **figures}))


def _first_adapter(options: IvgOptions, backbone: TorchModel, name: str, out: Path) -> Adapters:
    """A new adapter on the base, or that of `--init`, ready to learn."""
    adapters = Adapters(backbone)
    if options.init is not None:
        adapters.load(name, existing_folder(options.init, "an adapter"))
    else:
        config = lora_config(
            range(backbone.blocks), rank=options.rank, alpha=options.alpha, dropout=options.dropout
        )
        adapters.add(name, config)
        config.base_model_name_or_path = base_name(options.model, out)
    adapters.use(name, train=True)
    if options.gradient_checkpointing:
        checkpoint_activations(backbone)
    return adapters


def silence() -> contextlib.redirect_stderr[io.StringIO]:
    """Discard output to stderr."""
    return contextlib.redirect_stderr(io.StringIO())
