"""``clue eval layers``: Figure 7, which decoder block's attention tells ambiguous from clear.

Everything is frozen but a CNN: the base model without an adapter reads every sentence once at full
depth, and for each block a CNN of its own is trained on that block's maps (equations 1 and 2), with
several seeds. Epoch and threshold are chosen on validation images, the figures are from test images
that no choice was made on.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.attention_maps import block_maps, load_base
from clue_ros.lab.evaluation.metrics import Counts, count
from clue_ros.lab.evaluation.report import (
    COLORS,
    GREY,
    figure_path,
    new_figure,
    save_figure,
    spread,
    table,
)
from clue_ros.lab.evaluation.table1_detectors import (
    SOURCES,
    Picture,
    add_in_domain_arguments,
    digest,
    load_in_domain,
)
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.training.detector import fit_threshold
from clue_ros.model.backbone import Backbone
from clue_ros.model.detector import CnnHead, detector_loss
from clue_ros.model.loading import (
    add_model_argument,
    find_base,
    find_model,
    fingerprint,
    first_line,
    read_json,
    replacing,
    write_json,
)
from clue_ros.model.prompts import encode_prompts

METRICS = ("f1", "accuracy", "precision", "recall")


@dataclass(frozen=True)
class Point:
    """One block's CNN with one seed, on test images.

    counts: over all of them; by_source: per source of pictures. epoch: the one that was kept.
    """

    block: int
    seed: int
    epoch: int
    threshold: float
    counts: Counts
    by_source: dict[str, Counts]


@dataclass(frozen=True)
class Layers:
    """Figure 7's numbers: every point, the half-depth block, the number of samples a split."""

    points: tuple[Point, ...]
    half_depth: int
    samples: dict[str, int]

    @property
    def blocks(self) -> list[int]:
        """The blocks measured, in order."""
        return sorted({point.block for point in self.points})

    def values(self, block: int, metric: str, source: str | None = None) -> list[float]:
        """A metric of one block, a value a seed; of one source of pictures, or of all."""
        chosen = [point for point in self.points if point.block == block]
        return [float(getattr(p.by_source[source] if source else p.counts, metric)) for p in chosen]

    @property
    def always(self) -> float:
        """F1 of a detector that calls every test sentence ambiguous: what a blind one can reach."""
        counts = self.points[0].counts
        ambiguous = counts.true_positive + counts.false_negative
        return 2 * ambiguous / (counts.n + ambiguous)

    @property
    def sources(self) -> list[str]:
        """The sources that have test samples."""
        return [s for s in SOURCES if self.points and self.points[0].by_source[s].n]

    def summary(self) -> dict[str, Any]:
        """As ``clue eval layers --json`` prints it: of every block each seed's value."""
        rows = []
        for block in self.blocks:
            row: dict[str, Any] = {"block": block}
            row |= {m: [round(v, 4) for v in self.values(block, m)] for m in METRICS}
            for source in self.sources:
                row[f"{source}_f1"] = [round(v, 4) for v in self.values(block, "f1", source)]
            mine = [p for p in self.points if p.block == block]
            row["epoch"], row["threshold"] = [p.epoch for p in mine], [p.threshold for p in mine]
            rows.append(row)
        seeds = sorted({point.seed for point in self.points})
        return {
            "half_depth_block": self.half_depth,
            "seeds": seeds,
            "samples": self.samples,
            "always_ambiguous_f1": round(self.always, 4),
            "blocks": rows,
        }

    def text(self, *, markdown: bool = False) -> str:
        """The same as a table: mean and standard deviation over seeds."""
        header = ["block", "F1", "accuracy", "precision", "recall"]
        header += [f"F1 {source}" for source in self.sources]
        rows: list[list[str | int]] = []
        for block in self.blocks:
            cells = [self.values(block, metric) for metric in METRICS]
            cells += [self.values(block, "f1", source) for source in self.sources]
            name = f"{block} (half depth)" if block == self.half_depth else str(block)
            rows.append([name, *(spread(values, markdown=markdown) for values in cells)])
        return table(header, rows, markdown=markdown)


def plot_layers(path: Path, layers: Layers, title: str = "") -> None:
    """Figure 7: F1 and accuracy over blocks, all test images left, F1 by source right.

    Lines are means over seeds, bars the lowest and the highest seed. Raises ClueError where it
    cannot be drawn or written.
    """
    figure = new_figure(9.5, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    _line(left, layers, "f1", None, "F1", 0)
    _line(left, layers, "accuracy", None, "accuracy", 1)
    for number, source in enumerate(layers.sources):
        name = {"tabletop": "F1, simulated scenes", "it2p": "F1, photographs (IT2P)"}[source]
        _line(right, layers, "f1", source, name, 2 + number)
    left.axhline(layers.always, color=GREY, linestyle="-.", label='F1 of always "ambiguous"')
    step = 1 + (len(layers.blocks) - 1) // 14
    for axes in (left, right):
        axes.axvline(layers.half_depth, color=GREY, linestyle=":", label="half depth")
        axes.set(xlabel="decoder block (counted from 0)", xticks=layers.blocks[::step])
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        # Below the axes, where no point can hide behind it.
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    left.set(ylabel="score on held-out images (0 to 1)", title="all held-out images")
    right.set(title="by source")
    if title:
        figure.suptitle(title)
    save_figure(figure, path)


def _line(
    axes: Any, layers: Layers, metric: str, source: str | None, name: str, index: int
) -> None:
    values = np.array([layers.values(block, metric, source) for block in layers.blocks])
    mean = values.mean(1)
    axes.errorbar(
        layers.blocks,
        mean,
        yerr=(mean - values.min(1), values.max(1) - mean),
        color=COLORS[index],
        marker="os^D"[index],
        linestyle=("-", "--")[index % 2],
        capsize=3,
        label=name,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval layers``."""
    add_in_domain_arguments(parser)
    add_model_argument(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--instruction", default="detect", help="conditioning word (detect)")
    parser.add_argument(
        "--blocks", type=int, nargs="+", metavar="B", help="only these; default all"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="CNNs a block (3)")
    parser.add_argument("--epochs", type=int, default=15, help="at most, the best is kept (15)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3, help="of the CNN (1e-3)")
    parser.add_argument(
        "--run", type=Path, default=Path("runs/layers"), help="maps and results; resumed if present"
    )
    parser.add_argument("--plot", type=figure_path, metavar="FILE.png", help="draw Figure 7")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval layers``; the exit status."""
    if min(args.seeds, args.epochs, args.batch) < 1 or not args.lr > 0:
        raise ClueError("--seeds, --epochs and --batch must be 1 or more, --lr above 0")
    pictures = load_in_domain(args)
    layers = measure(args, pictures)
    if args.plot is not None:
        plot_layers(args.plot, layers, f"CNN on one frozen block's attention ({args.model})")
    if args.json:
        print(json.dumps(layers.summary()))
    else:
        print(layers.text(markdown=args.markdown))
    return 0


def measure(args: argparse.Namespace, pictures: Sequence[Picture]) -> Layers:
    """Make or find the maps, train or find the CNNs, and score them."""
    from tqdm import tqdm

    from clue_ros.model.config import half_depth_block

    samples = _samples(pictures)
    cache = open_cache(
        args.run, args.model, args.device, args.instruction, pictures, digest(pictures)
    )
    wanted = list(range(cache.blocks)) if args.blocks is None else sorted(set(args.blocks))
    if not all(0 <= block < cache.blocks for block in wanted):
        raise ClueError(f"--blocks must be 0 to {cache.blocks - 1} for this model")
    show = sys.stderr.isatty()
    with tqdm(total=len(pictures), unit="image", desc="maps", disable=not show) as bar:
        for done in cache.fill():
            bar.update(done)
    rows = {split: samples.rows(split) for split in SPLITS}
    settings = HeadSettings(args.epochs, args.batch, args.lr)
    points = []
    for block in tqdm(wanted, desc="blocks", disable=not show):
        maps = cache.block(block)
        for seed in range(args.seeds):
            path = args.run / "heads" / f"block-{block:02d}-seed-{seed}.json"
            device = cache.backbone.device
            result = kept_or_trained(path, maps, samples.labels, rows, settings, seed, device)
            points.append(samples.point(block, seed, result))
    sizes = {split: len(rows[split]) for split in SPLITS}
    return Layers(tuple(points), half_depth_block(cache.blocks), sizes)


@dataclass(frozen=True)
class _Samples:
    """Every sentence's split, source and label, in the order of the maps."""

    splits: tuple[str, ...]
    sources: tuple[str, ...]
    labels: tuple[bool, ...]

    def rows(self, split: str) -> list[int]:
        """The samples of a split."""
        return [i for i, name in enumerate(self.splits) if name == split]

    def point(self, block: int, seed: int, result: HeadResult) -> Point:
        """Score a CNN's probabilities of the test samples."""
        decided = [chance >= result.threshold for chance in result.test]
        test = list(zip(self.rows("test"), decided, strict=True))
        by_source = {
            source: count((self.labels[i], said) for i, said in test if self.sources[i] == source)
            for source in SOURCES
        }
        counts = count((self.labels[i], said) for i, said in test)
        return Point(block, seed, result.epoch, result.threshold, counts, by_source)


def _samples(pictures: Sequence[Picture]) -> _Samples:
    flat = [(p.split, p.source, label) for p in pictures for _, label in p.sentences]
    for name in SPLITS:
        if len({label for split, _, label in flat if split == name}) < 2:
            raise ClueError(f"the {name} images need clear and ambiguous sentences: give more")
    splits, sources, labels = zip(*flat, strict=True)
    return _Samples(splits, sources, labels)


# -------------------------------------------------------------------------------------------------
# The attention maps of every decoder block for many sentences, from one full pass each, on disk.

CHUNK = 32  # pictures a file
MANIFEST = "cache.json"


class MappedPicture(Protocol):
    """What is read of a picture: its pixels, uint8 RGB (H, W, 3), and what is said of it."""

    @property
    def sentences(self) -> tuple[tuple[str, bool], ...]:
        """Sentences and their labels."""

    def load(self) -> npt.NDArray[np.uint8]:
        """The pixels."""


class MapCache:
    """Maps of every block for pictures' sentences, kept in `folder` in the pictures' order.

    made_from: what decides the maps (model, data, instruction, dtype), plain JSON values. Raises
    ClueError when the folder holds maps made from something else.
    """

    def __init__(
        self,
        folder: Path,
        backbone: Backbone,
        processor: Any,
        instruction: str,
        pictures: Sequence[MappedPicture],
        made_from: dict[str, Any],
    ) -> None:
        self.folder, self.backbone, self.blocks = folder, backbone, backbone.blocks
        self._processor, self._instruction, self._pictures = processor, instruction, pictures
        dtype = str(backbone.dtype).removeprefix("torch.")
        wanted = {**made_from, "instruction": instruction, "dtype": dtype, "pictures a file": CHUNK}
        path = folder / MANIFEST
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, wanted)
        kept = read_json(path)
        other = [name for name in wanted if kept.get(name) != wanted[name]]
        if other:
            raise ClueError(
                f"{folder} holds maps made with another {', '.join(other)}: give another --run"
                " folder or delete it"
            )

    def fill(self) -> Iterator[int]:
        """Make the chunks that are missing; yields the number of pictures done, chunk by chunk."""
        for path, chunk in self._chunks():
            if not path.is_file():
                maps = torch.cat([self._picture_maps(picture) for picture in chunk])
                # Half precision: 0..1 in steps of at most 1/2048.
                with replacing(path) as partial:
                    save_file({"maps": maps.half()}, partial)
            yield len(chunk)

    def block(self, block: int) -> Tensor:
        """One block's maps, (n, g, g) float32, a row a sentence. ClueError names a bad chunk."""
        rows = []
        for path, chunk in self._chunks():
            try:
                with safe_open(path, framework="pt") as file:
                    part: Tensor = file.get_slice("maps")[:, block]
            except (OSError, SafetensorError) as error:
                raise ClueError(
                    f"{path} cannot be read ({first_line(error)}): delete it and run again"
                ) from error
            if len(part) != sum(len(picture.sentences) for picture in chunk):
                raise ClueError(f"{path} holds {len(part)} maps, not what is asked: delete it")
            rows.append(part.float())
        return torch.cat(rows)

    def _chunks(self) -> Iterator[tuple[Path, Sequence[MappedPicture]]]:
        for first in range(0, len(self._pictures), CHUNK):
            name = f"maps-{first // CHUNK:04d}.safetensors"
            yield self.folder / name, self._pictures[first : first + CHUNK]

    @torch.inference_mode()
    def _picture_maps(self, picture: MappedPicture) -> Tensor:
        image = Image.fromarray(picture.load())
        pixels = self._processor.image_processor(image, return_tensors="pt")["pixel_values"]
        texts = [text for text, _ in picture.sentences]
        prompts = encode_prompts(self._processor, self._instruction, texts)
        features = self.backbone.look(pixels)
        return block_maps(self.backbone, features, prompts.to(self.backbone.device)).cpu()


def open_cache(
    folder: Path,
    model: str,
    device: str,
    instruction: str,
    pictures: Sequence[MappedPicture],
    data: str,
) -> MapCache:
    """The cache for a model's base (embedded name, folder or hub id) without any adapter.

    data: a digest of the pictures. Raises ModelError, ClueError.
    """
    backbone, processor = load_base(model, device)
    made_from = {"model": fingerprint(find_base(find_model(model))), "data": data}
    return MapCache(folder, backbone, processor, instruction, pictures, made_from)


# -------------------------------------------------------------------------------------------------
# One CNN on one block's maps, everything else frozen: a point of Figure 7.


@dataclass(frozen=True)
class HeadSettings:
    """How a head is trained.

    weight_decay is the paper's. Its lr (1e-4) is for a CNN that learns beside an adapter; alone on
    frozen maps, ten times that reached a lower validation loss in fewer epochs.
    """

    epochs: int = 15
    batch: int = 64
    lr: float = 1e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class HeadResult:
    """What came out of one training.

    epoch: the one kept, counted from 1. val_loss: its mean loss in nats. threshold: chosen on
    validation data. test: probabilities of the test samples, in their order.
    """

    epoch: int
    val_loss: float
    threshold: float
    test: list[float]


def train_head(
    maps: Tensor,
    is_ambiguous: Sequence[bool],
    rows: Mapping[str, Sequence[int]],
    settings: HeadSettings,
    seed: int,
    device: torch.device,
) -> HeadResult:
    """Train on maps (n, g, g) in 0..1 and their n labels.

    rows: the numbers of the "train", "val" and "test" samples.
    """
    maps, labels = maps.to(device), torch.tensor(is_ambiguous, device=device).float()
    learn, val, test = (torch.tensor(rows[split]) for split in ("train", "val", "test"))
    val, test = val.to(device), test.to(device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = CnnHead().to(device)
        optimizer = torch.optim.AdamW(
            head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        best, best_loss, best_epoch = head.state_dict(), float("inf"), 0
        for epoch in range(settings.epochs):
            _one_epoch(head, optimizer, maps, labels, learn, settings.batch, (seed, epoch))
            loss = float(detector_loss(_logits(head, maps[val]), labels[val]))
            if loss < best_loss:
                best, best_loss, best_epoch = copy.deepcopy(head.state_dict()), loss, epoch + 1
    head.load_state_dict(best)
    threshold = fit_threshold(_logits(head, maps[val]).sigmoid(), labels[val])
    chances = _logits(head, maps[test]).sigmoid()
    return HeadResult(best_epoch, best_loss, threshold, [round(float(p), 6) for p in chances])


def _one_epoch(
    head: CnnHead,
    optimizer: torch.optim.Optimizer,
    maps: Tensor,
    labels: Tensor,
    rows: Tensor,
    batch: int,
    seed: tuple[int, int],
) -> None:
    rng = np.random.default_rng((17, *seed))
    head.train()
    order = rows[torch.from_numpy(rng.permutation(len(rows)))]
    for chosen in torch.split(order, batch):
        at = chosen.to(maps.device)
        # A mirrored map is as ambiguous as the map itself.
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        loss = detector_loss(head(maps[at].flip(axes)), labels[at])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def kept_or_trained(
    path: Path,
    maps: Tensor,
    is_ambiguous: Sequence[bool],
    rows: Mapping[str, Sequence[int]],
    settings: HeadSettings,
    seed: int,
    device: torch.device,
) -> HeadResult:
    """`train_head`'s result, from `path` if it was written there with the same settings."""
    asked = {**asdict(settings), "seed": seed}
    if path.is_file():
        kept = read_json(path)
        if kept.get("settings") == asked:
            return HeadResult(**kept["result"])
    result = train_head(maps, is_ambiguous, rows, settings, seed, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        write_json(partial, {"settings": asked, "result": asdict(result)})
    return result


@torch.no_grad()
def _logits(head: CnnHead, maps: Tensor) -> Tensor:
    head.eval()
    return torch.cat([head(part) for part in torch.split(maps, 512)])
