"""Figure 7: measure how each decoder block's attention separates ambiguous from clear requests.

Only CNNs are trained. The base model, without an adapter, processes every sentence once at full
depth; one CNN for each block and seed learns from the maps of that block (equations 1 and 2).
Epoch and threshold are chosen on validation images; the figures are from test images.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.attention_maps import block_maps, load_base
from clue_ros.lab.evaluation.in_domain import (
    SOURCES,
    InDomainOptions,
    LabelledImage,
    digest,
    load_in_domain,
)
from clue_ros.lab.evaluation.options import ModelOptions, OutputOptions
from clue_ros.lab.metrics import Counts, count
from clue_ros.lab.options import FIGURE, above_zero, add_options, at_least, option, read_options
from clue_ros.lab.published import FIGURE_7
from clue_ros.lab.report import (
    COLORS,
    GREY,
    add_grid,
    new_figure,
    save_figure,
    spread,
    table,
)
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.training.detector import fit_threshold
from clue_ros.model.config import half_depth_block
from clue_ros.model.heads import CnnHead, detector_loss
from clue_ros.model.loading import (
    find_base,
    find_model,
    fingerprint,
    first_line,
    read_json,
    replacing,
    write_json,
)
from clue_ros.model.prompts import encode_prompts

# -------------------------------------------------------------------------------------------------
# The attention maps of every block for many sentences, from one pass each, kept on disk.

CHUNK = 32  # images a file
MANIFEST = "cache.json"


class MapCache:
    """Maps of every block for the images' sentences, kept in `folder` in the order of the images.

    They are those of the model's base, without any adapter.
    instruction: the conditioning word. Raises ModelError, and ClueError if the folder holds maps of
    other inputs.
    """

    def __init__(
        self, folder: Path, model: ModelOptions, instruction: str, images: Sequence[LabelledImage]
    ) -> None:
        self.backbone, self._processor = load_base(model)
        self.folder, self.blocks = folder, self.backbone.blocks
        self._instruction, self._images = instruction, images
        wanted = {
            "model": fingerprint(find_base(find_model(model.model))),
            "data": digest(images),
            "instruction": instruction,
            "dtype": str(self.backbone.dtype).removeprefix("torch."),
            "pictures a file": CHUNK,
        }
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
        """Make the missing files; yields the number of images done, file by file."""
        for path, chunk in self._chunks():
            if not path.is_file():
                maps = torch.cat([self._image_maps(image) for image in chunk])
                # Half precision: 0..1 in steps of at most 1/2048.
                with replacing(path) as partial:
                    save_file({"maps": maps.half()}, partial)
            yield len(chunk)

    def block(self, block: int) -> Tensor:
        """One block's maps, (n, g, g) float32, a row a sentence. ClueError names a damaged file."""
        rows = []
        for path, chunk in self._chunks():
            try:
                with safe_open(path, framework="pt") as file:
                    part: Tensor = file.get_slice("maps")[:, block]
            except (OSError, SafetensorError) as error:
                raise ClueError(
                    f"{path} cannot be read ({first_line(error)}): delete it and run again"
                ) from error
            if len(part) != sum(len(image.sentences) for image in chunk):
                raise ClueError(f"{path} holds {len(part)} maps, not what is asked: delete it")
            rows.append(part.float())
        return torch.cat(rows)

    def _chunks(self) -> Iterator[tuple[Path, Sequence[LabelledImage]]]:
        for first in range(0, len(self._images), CHUNK):
            name = f"maps-{first // CHUNK:04d}.safetensors"
            yield self.folder / name, self._images[first : first + CHUNK]

    @torch.inference_mode()
    def _image_maps(self, image: LabelledImage) -> Tensor:
        seen = image.load()
        picture = Image.fromarray(seen)
        pixels = self._processor.image_processor(picture, return_tensors="pt")["pixel_values"]
        texts = [text for text, _ in image.sentences]
        prompts = encode_prompts(self._processor, self._instruction, texts)
        features = self.backbone.look(pixels, self.backbone.image_details(seen))
        return block_maps(self.backbone, features, prompts.to(self.backbone.device)).cpu()


# -------------------------------------------------------------------------------------------------
# One CNN on the maps of one block: a point of Figure 7.


@dataclass(frozen=True)
class HeadSettings:
    """The training settings of a CNN.

    weight_decay is the paper's. Its lr (1e-4) is for a CNN with an adapter; alone on frozen maps,
    ten times that reached a lower validation loss in fewer epochs.
    """

    epochs: int = option(15, "largest number of epochs; the best is kept", type=at_least(1))
    batch: int = option(64, "number of maps in a step", type=at_least(1))
    lr: float = option(1e-3, "learning rate of the CNN", type=above_zero)
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class HeadResult:
    """The result of one training.

    epoch: the one that was kept, counted from 1. val_loss: its mean loss in nats. threshold: chosen
    on validation data. test: probabilities of the test samples, in their order.
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

    rows: the indices of the "train", "val" and "test" samples.
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


@torch.no_grad()
def _logits(head: CnnHead, maps: Tensor) -> Tensor:
    head.eval()
    return torch.cat([head(part) for part in torch.split(maps, 512)])


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


# -------------------------------------------------------------------------------------------------
# Figure 7 as JSON, as a table and as a plot.

METRICS = ("f1", "accuracy", "precision", "recall")


@dataclass(frozen=True)
class BlockResult:
    """The CNN of one block and one seed on test images.

    counts: of "all" and of each source of images. epoch: the one that was kept.
    """

    block: int
    seed: int
    epoch: int
    threshold: float
    counts: dict[str, Counts]


@dataclass(frozen=True)
class Figure7:
    """All results, the half-depth block, and the number of samples of each split."""

    results: tuple[BlockResult, ...]
    half_depth: int
    samples: dict[str, int]

    @property
    def blocks(self) -> list[int]:
        """The blocks measured, in order."""
        return sorted({result.block for result in self.results})

    def values(self, block: int, metric: str, source: str = "all") -> list[float]:
        """A metric of one block for each seed; of one source of images, or of all."""
        return [float(getattr(r.counts[source], metric)) for r in self.results if r.block == block]

    @property
    def always(self) -> float:
        """F1 of a detector that calls every test sentence ambiguous."""
        counts = self.results[0].counts["all"]
        ambiguous = counts.true_positive + counts.false_negative
        return 2 * ambiguous / (counts.n + ambiguous)

    @property
    def sources(self) -> list[str]:
        """The sources that have test samples."""
        return [s for s in SOURCES if self.results and self.results[0].counts[s].n]

    def summary(self) -> dict[str, Any]:
        """As ``clue eval layers --json`` prints it: each seed's value for every block."""
        rows = []
        for block in self.blocks:
            row: dict[str, Any] = {"block": block}
            row |= {m: [round(v, 4) for v in self.values(block, m)] for m in METRICS}
            for source in self.sources:
                row[f"{source}_f1"] = [round(v, 4) for v in self.values(block, "f1", source)]
            mine = [r for r in self.results if r.block == block]
            row["epoch"], row["threshold"] = [r.epoch for r in mine], [r.threshold for r in mine]
            rows.append(row)
        return {
            "half_depth_block": self.half_depth,
            "seeds": sorted({result.seed for result in self.results}),
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
        text = table(header, rows, markdown=markdown)
        published = "Published: F1 {best:.3f} on block 14 of 26, the best; {last:.3f} on the last."
        return f"{text}\n\n{published.format(**FIGURE_7)}" if markdown else text

    def plot(self, path: Path, title: str = "") -> None:
        """F1 and accuracy over blocks, for all test images (left) and F1 by source (right).

        Lines are means over seeds, bars the lowest and the highest seed. Raises ClueError where it
        cannot be drawn or written.
        """
        figure = new_figure(9.5, 4.8)
        left, right = figure.subplots(1, 2, sharey=True)
        self._plot_line(left, "f1", "all", "F1", 0)
        self._plot_line(left, "accuracy", "all", "accuracy", 1)
        for number, source in enumerate(self.sources):
            name = {"tabletop": "F1, simulated scenes", "it2p": "F1, photographs (IT2P)"}[source]
            self._plot_line(right, "f1", source, name, 2 + number)
        left.axhline(self.always, color=GREY, linestyle="-.", label='F1 of always "ambiguous"')
        step = 1 + (len(self.blocks) - 1) // 14
        for axes in (left, right):
            axes.axvline(self.half_depth, color=GREY, linestyle=":", label="half depth")
            axes.set(xlabel="decoder block (counted from 0)", xticks=self.blocks[::step])
            add_grid(axes)
            # Below the axes, so that it hides no point.
            axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
        left.set(ylabel="score on held-out images (0 to 1)", title="all held-out images")
        right.set(title="by source")
        if title:
            figure.suptitle(title)
        save_figure(figure, path)

    def _plot_line(self, axes: Any, metric: str, source: str, name: str, index: int) -> None:
        values = np.array([self.values(block, metric, source) for block in self.blocks])
        mean = values.mean(1)
        axes.errorbar(
            self.blocks,
            mean,
            yerr=(mean - values.min(1), values.max(1) - mean),
            color=COLORS[index],
            marker="os^D"[index],
            linestyle=("-", "--")[index % 2],
            capsize=3,
            label=name,
        )


# -------------------------------------------------------------------------------------------------
# The command.


@dataclass(frozen=True, kw_only=True)
class LayersOptions:
    """The options of ``clue eval layers``."""

    data: InDomainOptions
    model: ModelOptions
    head: HeadSettings
    output: OutputOptions
    instruction: str = option("detect", "conditioning word")
    blocks: tuple[int, ...] | None = option(
        None, "decoder blocks; default: all", type=int, nargs="+", metavar="B"
    )
    seeds: int = option(3, "number of CNNs for each block", type=at_least(1))
    run: Path = option(
        Path("runs/layers"), "folder of maps and results; an interrupted run resumes"
    )
    plot: Path | None = option(None, "draw Figure 7", type=FIGURE, metavar="FILE.png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval layers``."""
    add_options(parser, LayersOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval layers``; the exit status."""
    options = read_options(LayersOptions, args)
    figure = measure(options, load_in_domain(options.data))
    if options.plot is not None:
        figure.plot(options.plot, f"CNN on one frozen block's attention ({options.model.model})")
    maps = read_json(options.run / MANIFEST)
    options.output.show(
        figure.summary(),
        lambda markdown: figure.text(markdown=markdown),
        {"model": options.model.model, "sha256": maps["model"], "dtype": maps["dtype"]},
    )
    return 0


def measure(options: LayersOptions, images: Sequence[LabelledImage]) -> Figure7:
    """Make or find the maps, train or find the CNNs, and score them."""
    samples = [(i.split, i.source, label) for i in images for _, label in i.sentences]
    rows = {split: [n for n, s in enumerate(samples) if s[0] == split] for split in SPLITS}
    labels = [label for _, _, label in samples]
    for split in SPLITS:
        if len({labels[n] for n in rows[split]}) < 2:
            raise ClueError(f"the {split} images need clear and ambiguous sentences: give more")
    cache = MapCache(options.run, options.model, options.instruction, images)
    wanted = range(cache.blocks) if options.blocks is None else sorted(set(options.blocks))
    if not all(0 <= block < cache.blocks for block in wanted):
        raise ClueError(f"--blocks must be 0 to {cache.blocks - 1} for this model")
    show = sys.stderr.isatty()
    with tqdm(total=len(images), unit="image", desc="maps", disable=not show) as bar:
        for done in cache.fill():
            bar.update(done)
    results = []
    for block in tqdm(wanted, desc="blocks", disable=not show):
        maps = cache.block(block)
        for seed in range(options.seeds):
            path = options.run / "heads" / f"block-{block:02d}-seed-{seed}.json"
            device = cache.backbone.device
            result = kept_or_trained(path, maps, labels, rows, options.head, seed, device)
            decided = [
                (samples[n][1], labels[n], chance >= result.threshold)
                for n, chance in zip(rows["test"], result.test, strict=True)
            ]
            counts = {
                name: count(
                    (truth, said) for source, truth, said in decided if name in (source, "all")
                )
                for name in ("all", *SOURCES)
            }
            results.append(BlockResult(block, seed, result.epoch, result.threshold, counts))
    sizes = {split: len(rows[split]) for split in SPLITS}
    return Figure7(tuple(results), half_depth_block(cache.blocks), sizes)
