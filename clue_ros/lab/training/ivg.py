"""`clue train ivg`: adapter B on the frozen base (section III-A), which asks or grounds.

Token cross-entropy on the suffix only, over pairs made by cumulative reveal. Where masks are known
(the simulator, and IT2P's estimated ones) each suffix token's attention is also shown its object,
and location tokens are taught with narrow Gaussian targets (a neighbouring bin is nearly right).
`--look-weight 0 --point-weight 0 --location-sigma 0` is the paper's loss alone, InViG's default.

One process, or several with `accelerate launch` (config/accelerate/, docs/training.md): `--batch`
is the whole step's, each process takes its share of it, and the loss is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.lab.language.references import MAX_BOXES
from clue_ros.lab.training.adapter_samples import base_name, frozen_base
from clue_ros.lab.training.datasets import add_data_arguments, add_via_argument
from clue_ros.lab.training.decoder import (
    LOCATION_SIGMA,
    LOOK_WEIGHT,
    POINT_WEIGHT,
    PackedDecoder,
    Teaching,
    combine,
)
from clue_ros.lab.training.ivg_data import (
    MASKED,
    IvgData,
    Picture,
    Slot,
    add_ivg_data_arguments,
    load_ivg_data,
)
from clue_ros.lab.training.loop import Ahead, Group, PartLosses, Parts, Settings, train
from clue_ros.lab.training.packing import Packed
from clue_ros.lab.training.parallel import PRECISIONS, Processes, start_processes
from clue_ros.model.adapters import IVG, Adapters, lora_config
from clue_ros.model.backbone import Backbone
from clue_ros.model.checkpoint import IvgSettings, save_ivg_settings
from clue_ros.model.loading import find_base, find_model, fingerprint
from clue_ros.model.multi_view import MOST_LOOKS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_ivg_data_arguments(parser)
    add_data_arguments(parser)
    add_via_argument(parser)
    option = parser.add_argument
    option("--model", default="models/tabletop", help="the base: a folder or a hub id")
    option("--out", type=Path, default=None, help="adapter folder; default MODEL/ivg")
    option("--steps", type=int, default=260)
    option("--batch", type=int, default=8, help="pictures a step, over all processes")
    option("--accumulate", type=int, default=1, help="parts of each process's share of a step")
    option("--lr", type=float, default=7e-4, help="the paper's, for the full-size model: 1e-4")
    option("--warmup", type=float, default=0.05, help="share of the steps of linear warm-up")
    option("--weight-decay", type=float, default=1e-4)
    option("--rank", type=int, default=16, help="of the LoRA")
    option("--alpha", type=int, default=32, help="of the LoRA")
    option("--dropout", type=float, default=0.05, help="of the LoRA")
    masks = "of the attention's losses; default {} with tabletop or it2p, 0 for InViG (no masks)"
    option("--look-weight", type=float, default=None, help=masks.format(LOOK_WEIGHT))
    option("--point-weight", type=float, default=None, help=masks.format(POINT_WEIGHT))
    option(
        "--location-sigma",
        type=float,
        default=None,
        help="width of location targets in bins, 0: plain cross-entropy; "
        f"default {LOCATION_SIGMA} with tabletop or it2p, else 0",
    )
    option("--precision", choices=PRECISIONS, default="auto", help="auto: bf16 where it is fast")
    option("--base-dtype", choices=PRECISIONS[1:], default="float32", help="of the frozen base")
    option("--gradient-checkpointing", action="store_true", help="less memory, more time")
    option("--max-new-tokens", type=int, default=48, help="of a question, at run time")
    option(
        "--looks",
        type=int,
        choices=range(1, MOST_LOOKS + 1),
        default=1,
        help="at a picture before it points, at run time",
    )
    option("--workers", type=int, default=2, help="threads that prepare pictures ahead")
    option("--save-every", type=int, default=200, help="steps between states to resume from")
    option("--log-every", type=int, default=20, help="steps between rows of the log")


def teaching_of(args: argparse.Namespace) -> Teaching:
    """The options' weights, or the data's defaults."""
    masked = bool(MASKED & set(args.data))
    given = (
        (args.look_weight, LOOK_WEIGHT),
        (args.point_weight, POINT_WEIGHT),
        (args.location_sigma, LOCATION_SIGMA),
    )
    look, point, sigma = ((value if masked else 0.0) if v is None else v for v, value in given)
    return Teaching(look, point, sigma)


class IvgTrainer:
    """Steps of adapter B, in parts, on this process's share of the pictures."""

    def __init__(
        self,
        backbone: Backbone,
        decoder: PackedDecoder,
        teaching: Teaching,
        processes: Processes,
        accumulate: int,
    ) -> None:
        self.backbone = backbone
        self.decoder = decoder
        self.teaching = teaching
        self.processes = processes
        self.accumulate = accumulate

    def shares(self, slots: Sequence[Slot]) -> list[list[Picture]]:
        """This process's pictures of a step, in `accumulate` parts; fills the slots."""
        parts = self.processes.count * self.accumulate
        first = self.processes.rank * self.accumulate
        mine = [slots[first + part :: parts] for part in range(self.accumulate)]
        return [[slot() for slot in part] for part in mine if part]

    def step(self, parts: Sequence[Sequence[Picture]]) -> Parts:
        """The losses of this process's share."""
        packed = [self.decoder.pack(_sequences(part)) for part in parts]

        def losses(totals: Mapping[str, float]) -> Iterator[PartLosses]:
            for part, texts in zip(parts, packed, strict=True):
                yield partial(self._losses, part, texts, totals)

        return Parts(self._counts(packed), losses)

    def _losses(
        self, pictures: Sequence[Picture], texts: Packed, totals: Mapping[str, float]
    ) -> dict[str, Tensor]:
        return combine(self._sums(pictures, texts), totals, self.teaching)

    def _counts(self, packed: Sequence[Packed]) -> dict[str, float]:
        names = ("suffix", "look", "point", "word_right", "box_right")
        counts = [self.decoder.counts(part, self.teaching) for part in packed]
        return {name: sum(count[name] for count in counts) for name in names}

    def _sums(self, pictures: Sequence[Picture], texts: Packed) -> dict[str, Tensor]:
        features = self.decoder.features([picture[0][0] for picture in pictures])
        rows = [i for i, picture in enumerate(pictures) for _ in picture]
        return self.decoder.sums(features[rows], texts, self.teaching, image_sees_prefix=True)

    def training_mode(self) -> None:
        """Dropout on, but for the frozen tower."""
        self.backbone.model.train()
        self.backbone.model.model.vision_tower.eval()

    @torch.no_grad()
    def evaluate(self, held_out: Mapping[str, Sequence[Slot]], size: int) -> dict[str, float]:
        """Means over held-out pictures, `size` at a time; every process takes its share."""
        self.backbone.model.eval()
        figures: dict[str, float] = {}
        for name, slots in held_out.items():
            mine = slots[self.processes.rank :: self.processes.count]
            counts = self._counts([])
            sums = dict.fromkeys(counts, 0.0)
            for i in range(0, len(mine), size):
                pictures = [slot() for slot in mine[i : i + size]]
                texts = self.decoder.pack(_sequences(pictures))
                for key, value in self._counts([texts]).items():
                    counts[key] += value
                for key, total in self._sums(pictures, texts).items():
                    sums[key] += float(total)
            sums, counts = self.processes.add_up(sums), self.processes.add_up(counts)
            means = combine(sums, counts, self.teaching)
            figures.update({f"{name}_{key}": round(mean, 4) for key, mean in means.items()})
        self.training_mode()
        return figures


def _sequences(pictures: Sequence[Picture]) -> list[tuple[Any, list[Any]]]:
    """One query a sequence, with PaliGemma's own mask."""
    return [(scene, [query]) for picture in pictures for scene, query in picture]


def run(args: argparse.Namespace) -> int:
    """Train adapter B and write its folder."""
    processes = start_processes(args.device, args.precision)
    _run(args, processes)
    processes.close()
    return 0


def _run(args: argparse.Namespace, processes: Processes) -> None:
    settings = Settings(
        args.steps,
        args.batch,
        args.lr,
        args.weight_decay,
        args.warmup,
        "linear",
        args.seed,
        args.save_every,
    )
    out = _check(args, processes)
    backbone, processor, adapters = _with_adapter(args, processes, out)
    decoder = PackedDecoder(
        backbone.model, processor.tokenizer, processes.device, processes.precision
    )
    teaching = teaching_of(args)
    trainer = IvgTrainer(backbone, decoder, teaching, processes, args.accumulate)
    folder = args.run / "ivg"
    with contextlib.nullcontext() if processes.is_main else _silence():
        report = folder / "left_out.txt" if processes.is_main else None
        data = load_ivg_data(args, processor, report)
    notes = _notes(args, teaching, data, fingerprint(find_base(find_model(args.model))))
    held_out = data.held_out()
    size = -(-args.batch // (processes.count * args.accumulate))
    figures: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        figures.update(trainer.evaluate(held_out, size))
        return figures

    trainer.training_mode()
    with Ahead(
        lambda step: trainer.shares(data.slots(settings, step)), args.workers, args.steps
    ) as batches:
        train(
            lambda step: trainer.step(batches(step)),
            [Group([p for p in adapters.parameters(IVG) if p.requires_grad])],
            settings,
            folder,
            evaluate=evaluate,
            log_every=args.log_every,
            notes=notes,
            processes=processes,
        )
    if not figures:  # nothing was left to train
        evaluate()
    if processes.is_main:
        adapters.save(IVG, out)
        told = {"steps": args.steps, "batch": args.batch, "lr": args.lr, "seed": args.seed}
        reply = IvgSettings(
            max_new_tokens=args.max_new_tokens,
            max_boxes=MAX_BOXES if args.via else 1,
            looks=args.looks,
        )
        save_ivg_settings(reply, out, validation=figures, training={**told, **notes})
        print(json.dumps({"out": str(out), **figures}))


def _with_adapter(
    args: argparse.Namespace, processes: Processes, out: Path
) -> tuple[Backbone, Any, Adapters]:
    """The frozen base, its processor, and a new adapter B that is ready to learn."""
    base = find_base(find_model(args.model))
    placed = {**vars(args), "model": base, "device": str(processes.device)}
    backbone, processor, _ = frozen_base(argparse.Namespace(**placed))
    adapters = Adapters(backbone)
    config = lora_config(
        range(backbone.blocks), rank=args.rank, alpha=args.alpha, dropout=args.dropout
    )
    adapters.add(IVG, config)
    config.base_model_name_or_path = base_name(args.model, out)
    adapters.use(IVG, train=True)
    if args.gradient_checkpointing:
        _checkpoint(backbone.model)
    return backbone, processor, adapters


def _checkpoint(model: Any) -> None:
    """Keep each block's input only and run the block again in the backward pass."""
    if hasattr(model, "activation_checkpointing_enable"):  # its name from transformers 5.21 on
        model.activation_checkpointing_enable({"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})


def _silence() -> contextlib.redirect_stderr[io.StringIO]:
    """Every process reads the data, one says so."""
    return contextlib.redirect_stderr(io.StringIO())


def _check(args: argparse.Namespace, processes: Processes) -> Path:
    """Refuse options that cannot work, before anything is loaded; the adapter's folder."""
    parts = processes.count * args.accumulate
    if args.accumulate < 1 or args.batch < parts:
        raise ClueError(
            f"--batch {args.batch} cannot be shared by {processes.count} processes with"
            f" --accumulate {args.accumulate}: want at least {parts} pictures a step"
        )
    if args.out is not None:
        return Path(args.out)
    if not Path(args.model).is_dir():
        raise ClueError(f"--out is needed: {args.model} is no folder to put the adapter in")
    return Path(args.model) / IVG


def _notes(
    args: argparse.Namespace, teaching: Teaching, data: IvgData, base: str
) -> dict[str, Any]:
    """What decides the run beside the settings; also for ivg.json."""
    notes = {
        "fingerprint": base,
        "base_dtype": args.base_dtype,
        "data": sorted(args.data),
        **data.notes(args),
        "via": args.via,
        "look_weight": teaching.look,
        "point_weight": teaching.point,
        "location_sigma": teaching.sigma,
        "rank": args.rank,
        "alpha": args.alpha,
        "dropout": args.dropout,
    }
    if {"invig", "episodes"} & set(args.data):
        notes |= {"pairs": args.pairs, "invig_share": data.invig_share}
        notes |= {"invig_language": args.invig_language}
    return notes
