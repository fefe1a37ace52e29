"""Figures 5, 8 and 9: attention maps drawn over the image.

    clue eval maps --out maps.png                                    examples of clear and ambiguous
    clue eval maps IMAGE "the ball" "the red ball" --out maps.png    the detector's map (8, 9)
    clue eval maps IMAGE "the ball" --blocks all --out maps.png      one map for each block (5)
    clue eval maps IMAGE "the ball" --blocks 3 --heads --out ...     one map for each attention head
    clue eval maps IMAGE "the ball" --words detect disambiguate --out maps.png    word by word (8)
    clue eval maps IMAGE "the ball" --detector A --beside B --out maps.png        of two detectors

One row for each image, or with --blocks and --heads one row for each sentence. Each map is scaled
to 0..1 by itself, as for the detector (section III-B.1). White boxes are the peaks of the map,
strongest first.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.dialogue.types import Peak, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.evaluation.options import DetectorModelOptions, ModelOptions
from clue_ros.lab.options import FIGURE, add_options, option, read_options, required
from clue_ros.lab.report import new_figure, save_figure
from clue_ros.model.attention import attention_map
from clue_ros.model.checkpoint import check_processor, load_checkpoint
from clue_ros.model.config import half_depth_block
from clue_ros.model.devices import choose_device, choose_dtype
from clue_ros.model.loading import demo_folder, find_base, find_model
from clue_ros.model.peaks import find_peaks
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchBackbone, TorchModel, load_model

ImageArray = npt.NDArray[np.uint8]
Map = npt.NDArray[np.float32]


# -------------------------------------------------------------------------------------------------
# The maps of one image and one sentence, of any block and head.


@dataclass(frozen=True)
class DetectorMap:
    """A map (g, g) in 0..1, its peaks in pixels, and the detector's decision in a few words."""

    attention: Map
    peaks: tuple[Peak, ...]
    verdict: str


class MapReader:
    """A model with its detector's adapter active, or with `base` without any adapter.

    Raises ModelError.
    """

    def __init__(self, model: DetectorModelOptions, *, base: bool = False) -> None:
        if base:
            self.backbone, self._processor = load_base(model)
            self._detector = None
        else:
            checkpoint = load_checkpoint(**vars(model), backend="torch")
            assert isinstance(checkpoint.backbone, TorchBackbone)
            self._torch, self.backbone = checkpoint.backbone, checkpoint.backbone.model
            self._processor = load_processor(checkpoint.base)
            self._detector = checkpoint.detector
        self.blocks = self.backbone.blocks
        self.half_depth = half_depth_block(self.blocks)

    @torch.inference_mode()
    def detector_map(self, image: ImageArray, text: str, word: str | None = None) -> DetectorMap:
        """The detector's map and decision; of a base the map of its half-depth block.

        word: in place of the detector's own conditioning word, or of a base's "detect".
        """
        features, prompts = self._encode(image, text, word)
        if self._detector is None:
            maps = block_maps(self.backbone, features, prompts)[:, self.half_depth]
            verdict = f"block {self.half_depth}, no adapter"
        else:
            asked = encode_prompts(self._processor, word or self.word, [text])
            chance, found = self._detector(_array(features), asked)
            maps = torch.from_numpy(found)
            ambiguous = float(chance[0]) >= self._detector.settings.threshold
            verdict = (
                f"{'ambiguous' if ambiguous else 'clear'} (probability {float(chance[0]):.2f})"
            )
        attention = _array(maps[0])
        height, width = image.shape[:2]
        return DetectorMap(attention, find_peaks(attention, width, height), verdict)

    @torch.inference_mode()
    def block_maps(self, image: ImageArray, text: str) -> Map:
        """The map of every block, (L, g, g) in 0..1."""
        features, prompts = self._encode(image, text)
        return _array(block_maps(self.backbone, features, prompts)[0])

    @torch.inference_mode()
    def head_maps(self, image: ImageArray, text: str, block: int) -> Map:
        """The map of each head of a block, (H, g, g) in 0..1: eq. 2 over one head at a time."""
        features, prompts = self._encode(image, text)
        attention = self.backbone.attention_at(block, features, prompts)[0]
        mask = prompts.query_mask.expand(len(attention), -1)
        return _array(attention_map(attention[:, None], mask, self.backbone.grid))

    @property
    def word(self) -> str:
        """The conditioning word."""
        return "detect" if self._detector is None else self._detector.settings.instruction

    def _encode(
        self, image: ImageArray, text: str, word: str | None = None
    ) -> tuple[torch.Tensor, Prompts]:
        """Features and prompt; activates the detector's adapter."""
        pixels = self._processor.image_processor(Image.fromarray(image), return_tensors="pt")
        features = self.backbone.look(pixels["pixel_values"], self.backbone.image_details(image))
        if self._detector is not None:
            self._torch.peft.use(self._detector.reader.adapter)
        prompts = encode_prompts(self._processor, word or self.word, [text])
        return features, prompts.to(self.backbone.device)


def _array(maps: torch.Tensor) -> Map:
    return np.asarray(maps.float().cpu().numpy(), dtype=np.float32)


@torch.inference_mode()
def block_maps(backbone: TorchModel, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
    """Maps of every block through the active adapter, (B, L, g, g) float32 in 0..1, in one pass.

    features: (B or 1, N, D). Holds the attention of all blocks at once: B * L * H * T * T numbers.
    """
    attentions = backbone.attentions(features, prompts)
    maps = [attention_map(a, prompts.query_mask, backbone.grid) for a in attentions]
    return torch.stack(maps, 1)


def load_base(model: ModelOptions) -> tuple[TorchModel, Any]:
    """A model's backbone and processor, without adapters. Raises ModelError."""
    base = find_base(find_model(model.model))
    place = choose_device(model.device)
    backbone = load_model(base, device=place, dtype=choose_dtype(model.dtype, place))
    processor = load_processor(base)
    check_processor(processor, backbone.config, base)
    return backbone, processor


# -------------------------------------------------------------------------------------------------
# The figure.

PANEL, WORDS, SCALE = 2.4, 0.55, 0.9  # inches: width of a panel, of its text, of the colour scale
PANELS_PER_LINE = 7
COLOR_MAP = "inferno"  # even steps of lightness: readable for all colour vision


@dataclass(frozen=True)
class Panel:
    """A panel of the figure. attention: (g, g) in 0..1, drawn over the image, or None."""

    image: ImageArray
    attention: Map | None
    title: str
    note: str = ""
    peaks: tuple[Peak, ...] = ()


def draw_grid(path: Path, rows: Sequence[Sequence[Panel]]) -> None:
    """Draw the panels with one colour scale. Raises ClueError if the file cannot be written."""
    columns = max(len(row) for row in rows)
    heights = [PANEL * row[0].image.shape[0] / row[0].image.shape[1] + WORDS for row in rows]
    figure = new_figure(PANEL * columns + SCALE, sum(heights))
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes in grid.ravel():
        axes.axis("off")
    scale: Any = None
    for row, line in zip(rows, grid, strict=True):
        for panel, axes in zip(row, line, strict=False):
            scale = _draw_panel(axes, panel) or scale
    if scale is not None:
        share = 0.2 / figure.get_figwidth()
        bar = figure.colorbar(scale, ax=grid, aspect=sum(heights) / 0.2, fraction=share, pad=0.01)
        bar.set_label("attention (0 to 1 in each map)", fontsize="small")
    save_figure(figure, path)


def _draw_panel(axes: Any, panel: Panel) -> Any:
    """Draw one panel; returns its colour scale, or None without a map."""
    height, width = panel.image.shape[:2]
    axes.axis("on")
    axes.set(xticks=(), yticks=())
    axes.set_xlabel(panel.note, fontsize="small")
    axes.set_title("\n".join(textwrap.wrap(panel.title, 30)), fontsize="small")
    axes.imshow(panel.image)
    if panel.attention is None:
        return None
    enlarged = Image.fromarray(panel.attention).resize((width, height), Image.Resampling.BICUBIC)
    heat = np.clip(np.asarray(enlarged, dtype=np.float32), 0, 1)
    colors = axes.imshow(heat, cmap=COLOR_MAP, vmin=0, vmax=1, alpha=0.25 + 0.5 * heat)
    for number, peak in enumerate(panel.peaks, start=1):
        _draw_peak(axes, peak, str(number))
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(colors.norm, colors.cmap)  # without the panels' transparency


def _draw_peak(axes: Any, peak: Peak, number: str) -> None:
    from matplotlib.patches import Rectangle

    box = peak.box
    corner, width, height = (box.x_min, box.y_min), box.x_max - box.x_min, box.y_max - box.y_min
    for color, line in (("black", 3.0), ("white", 1.4)):  # visible on every background
        axes.add_patch(
            Rectangle(corner, width, height, fill=False, edgecolor=color, linewidth=line)
        )
    axes.text(
        *corner, number, color="black", fontsize=7, verticalalignment="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------
# The command.

EXAMPLES = (
    ("yellow_blocks.png", ("pick up the green block", "pick up the yellow block")),
    ("five_blocks.png", ("pick up the green block", "pick up the orange block")),
    ("ball_block_can.png", ("pick up the ball", "pick up the thing")),
)


def block_numbers(text: str) -> tuple[int, ...]:
    """Argparse type of numbers with commas; "all" gives an empty tuple."""
    try:
        return () if text == "all" else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not 'all' or numbers as in 0,3,5") from error


@dataclass(frozen=True, kw_only=True)
class MapsOptions:
    """The options of ``clue eval maps``. blocks: None for the detector's map, () for all."""

    image: Path | None
    sentences: tuple[str, ...]
    out: Path = required("figure to write", type=FIGURE, metavar="FILE.png")
    blocks: tuple[int, ...] | None = option(
        None,
        "draw the maps of these decoder blocks, counted from 0",
        type=block_numbers,
        metavar="all|B,B,...",
    )
    heads: bool = option(False, "draw the map of each head of one block (--blocks B)")
    base: bool = option(False, "use the base model without the detector's adapter")
    words: tuple[str, ...] = option(
        (),
        "conditioning words, a map for each side by side; default: the detector's own",
        nargs="+",
        metavar="WORD",
    )
    beside: str | None = option(
        None, "folder of a second detector, whose map stands beside the first one's", metavar="DIR"
    )
    model: DetectorModelOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval maps``."""
    parser.add_argument("image", nargs="?", type=Path, metavar="IMAGE", help="image file")
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentence about the image")
    add_options(parser, MapsOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval maps``; the exit status."""
    options = read_options(MapsOptions, args)
    shown: list[tuple[Path, tuple[str, ...]]] = [
        (demo_folder() / name, sentences) for name, sentences in EXAMPLES
    ]
    if options.image is not None:
        if not options.sentences:
            raise ClueError(f"no sentence about {options.image}: give at least one")
        shown = [(options.image, tuple(clean_text(text) for text in options.sentences))]
    if options.base and options.model.detector is not None:
        raise ClueError("--base reads the model without any detector: leave out --detector")
    if options.heads and (options.blocks is None or len(options.blocks) != 1):
        raise ClueError("--heads shows one block: name it, as in --blocks 3 --heads")
    if options.blocks is not None and (options.words or options.beside):
        raise ClueError("--words and --beside show detectors' maps: leave out --blocks")
    images = [(load_image(path), sentences) for path, sentences in shown]

    reader = MapReader(options.model, base=options.base)
    readers = [reader]
    if options.beside is not None:
        readers.append(MapReader(replace(options.model, detector=options.beside)))
    known = range(reader.blocks)
    blocks = None if options.blocks is None else options.blocks or tuple(known)
    if blocks is not None and not set(blocks) <= set(known):
        raise ClueError(f"--blocks must be 0 to {known[-1]} for this model")
    rows: list[list[Panel]] = []
    for image, sentences in images:
        if blocks is None:
            compared = [(r, word) for r in readers for word in options.words or (r.word,)]
            named = len(compared) > 1
            rows.append([])
            for text, (each, word) in product(sentences, compared):
                found = each.detector_map(image, text, word)
                title = f"{word} {text}" if named else text
                panel = Panel(image, found.attention, title, found.verdict, found.peaks)
                rows[-1].append(panel)
        else:
            for text in sentences:
                rows += _sentence_rows(reader, image, text, blocks, heads=options.heads)
    draw_grid(options.out, rows)
    print(options.out)
    return 0


def _sentence_rows(
    reader: MapReader, image: ImageArray, text: str, blocks: tuple[int, ...], *, heads: bool
) -> list[list[Panel]]:
    """The image, and one panel for each block or each head of the block, in lines."""
    if heads:
        maps = reader.head_maps(image, text, blocks[0])
        names = [f"block {blocks[0]}, head {i}" for i in range(len(maps))]
    else:
        maps = reader.block_maps(image, text)[list(blocks)]
        names = [f"block {i}{' (half depth)' * (i == reader.half_depth)}" for i in blocks]
    line = [Panel(image, None, text)]
    line += [Panel(image, one, name) for one, name in zip(maps, names, strict=True)]
    return [line[first : first + PANELS_PER_LINE] for first in range(0, len(line), PANELS_PER_LINE)]
