"""``clue eval maps``: where the words look, as a picture (Figures 5, 8 and 9).

    clue eval maps --out maps.png                                    examples of clear and ambiguous
    clue eval maps IMAGE "the ball" "the red ball" --out maps.png    the detector's map (8, 9)
    clue eval maps IMAGE "the ball" --blocks all --out maps.png      one map a decoder block (5)
    clue eval maps IMAGE "the ball" --blocks 3 --heads --out ...     one map an attention head

A row a picture, or with --blocks and --heads a row a sentence. Each map is stretched to 0..1 by
itself, as the detector sees it (section III-B.1). White boxes are the map's peaks, strongest first.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.dialogue.types import Peak, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.evaluation.report import figure_path, new_figure, save_figure
from clue_ros.model.attention import attention_map
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.checkpoint import check_processor, choose_device, choose_dtype, load_checkpoint
from clue_ros.model.config import half_depth_block
from clue_ros.model.loading import add_model_argument, find_base, find_model
from clue_ros.model.peaks import find_peaks
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor

EXAMPLES = (
    ("yellow_blocks.png", ("pick up the green block", "pick up the yellow block")),
    ("five_blocks.png", ("pick up the green block", "pick up the orange block")),
    ("ball_block_can.png", ("pick up the ball", "pick up the thing")),
)
PANEL, WORDS, SCALE = 2.4, 0.55, 0.9  # inches: a panel's width, its words, the colours' scale
MOST = 7  # panels in a line, then the next begins
HEAT = "inferno"  # steps of even lightness, from dark to light: safe for all colour vision
ImageArray = npt.NDArray[np.uint8]
Map = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Panel:
    """One picture of the grid. attention: (g, g) in 0..1 laid over the image, None for none."""

    image: ImageArray
    attention: Map | None
    title: str
    note: str = ""
    peaks: tuple[Peak, ...] = ()


def draw_grid(path: Path, rows: Sequence[Sequence[Panel]]) -> None:
    """Draw the panels with one scale of colours. Raises ClueError where that cannot be written."""
    columns = max(len(row) for row in rows)
    heights = [PANEL * row[0].image.shape[0] / row[0].image.shape[1] + WORDS for row in rows]
    figure = new_figure(PANEL * columns + SCALE, sum(heights))
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes in grid.ravel():
        axes.axis("off")
    scale: Any = None
    for row, line in zip(rows, grid, strict=True):
        for panel, axes in zip(row, line, strict=False):
            scale = _draw(axes, panel) or scale
    if scale is not None:
        share = 0.2 / figure.get_figwidth()
        bar = figure.colorbar(scale, ax=grid, aspect=sum(heights) / 0.2, fraction=share, pad=0.01)
        bar.set_label("attention (0 to 1 in each map)", fontsize="small")
    save_figure(figure, path)


def _draw(axes: Any, panel: Panel) -> Any:
    """One panel; the colours' scale, or None without a map."""
    height, width = panel.image.shape[:2]
    axes.axis("on")
    axes.set(xticks=(), yticks=())
    axes.set_xlabel(panel.note, fontsize="small")
    axes.set_title("\n".join(textwrap.wrap(panel.title, 30)), fontsize="small")
    axes.imshow(panel.image)
    if panel.attention is None:
        return None
    heat = _enlarged(panel.attention, width, height)
    colors = axes.imshow(heat, cmap=HEAT, vmin=0, vmax=1, alpha=0.25 + 0.5 * heat)
    for number, peak in enumerate(panel.peaks, start=1):
        _outline(axes, peak, str(number))
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(colors.norm, colors.cmap)  # without the panels' transparency


def _enlarged(attention: Map, width: int, height: int) -> Map:
    from PIL import Image as Pictures

    big = Pictures.fromarray(attention).resize((width, height), Pictures.Resampling.BICUBIC)
    return np.clip(np.asarray(big, dtype=np.float32), 0, 1)


def _outline(axes: Any, peak: Peak, number: str) -> None:
    from matplotlib.patches import Rectangle

    box = peak.box
    corner, width, height = (box.x_min, box.y_min), box.x_max - box.x_min, box.y_max - box.y_min
    # Dark under light, so that it shows on everything.
    for color, line in (("black", 3.0), ("white", 1.4)):
        axes.add_patch(
            Rectangle(corner, width, height, fill=False, edgecolor=color, linewidth=line)
        )
    axes.text(
        *corner, number, color="black", fontsize=7, verticalalignment="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval maps``."""
    parser.add_argument("image", nargs="?", type=Path, metavar="IMAGE", help="a picture file")
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="what is said of it")
    parser.add_argument("--out", type=figure_path, required=True, metavar="FILE.png")
    parser.add_argument(
        "--blocks", type=_blocks, metavar="all|B,B,...", help="decoder blocks, counted from 0"
    )
    parser.add_argument("--heads", action="store_true", help="each head of one block (--blocks B)")
    parser.add_argument(
        "--base", action="store_true", help="the frozen model, without the detector's adapter"
    )
    add_model_argument(parser)
    parser.add_argument("--detector", metavar="DIR", help="another detector's folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")


def _blocks(text: str) -> tuple[int, ...]:
    """Numbers with commas; "all" gives an empty tuple."""
    try:
        return () if text == "all" else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not 'all' or numbers as in 0,3,5") from error


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval maps``; the exit status."""
    wanted = _wanted(args)
    if args.base and args.detector is not None:
        raise ClueError("--base reads the model without any detector: leave out --detector")
    if args.heads and (args.blocks is None or len(args.blocks) != 1):
        raise ClueError("--heads shows one block: name it, as in --blocks 3 --heads")

    reader = MapReader(args.model, args.device, detector=args.detector, base=args.base)
    known = range(reader.blocks)
    blocks = None if args.blocks is None else args.blocks or tuple(known)
    if blocks is not None and not set(blocks) <= set(known):
        raise ClueError(f"--blocks must be 0 to {known[-1]} for this model")
    rows: list[list[Panel]] = []
    for image, sentences in wanted:
        rows += _rows(reader, image, sentences, blocks, heads=args.heads)
    draw_grid(args.out, rows)
    print(args.out)
    return 0


def _wanted(args: argparse.Namespace) -> list[tuple[ImageArray, tuple[str, ...]]]:
    """Pictures and their sentences: those given, or the examples."""
    if args.image is not None:
        if not args.sentences:
            raise ClueError(f"nothing is said of {args.image}: give at least one sentence")
        return [(load_image(args.image), tuple(clean_text(text) for text in args.sentences))]
    from clue_ros.model.loading import demo_folder

    return [(load_image(demo_folder() / name), sentences) for name, sentences in EXAMPLES]


def _rows(
    reader: MapReader,
    image: ImageArray,
    sentences: Sequence[str],
    blocks: tuple[int, ...] | None,
    *,
    heads: bool,
) -> list[list[Panel]]:
    if blocks is None:
        judged = [reader.judge(image, text) for text in sentences]
        return [
            [
                Panel(image, seen.attention, text, seen.verdict, seen.peaks)
                for text, seen in zip(sentences, judged, strict=True)
            ]
        ]
    rows = []
    for text in sentences:
        if heads:
            block = blocks[0]
            maps = reader.head_maps(image, text, block)
            names = [f"block {block}, head {i}" for i in range(len(maps))]
        else:
            maps = reader.block_maps(image, text)[list(blocks)]
            names = [f"block {i}{' (half depth)' * (i == reader.half_depth)}" for i in blocks]
        panels = [Panel(image, one, name) for one, name in zip(maps, names, strict=True)]
        line = [Panel(image, None, text), *panels]
        rows += [line[first : first + MOST] for first in range(0, len(line), MOST)]
    return rows


# -------------------------------------------------------------------------------------------------
# Attention maps of one picture and one sentence, of any block and head, for the figures.


@dataclass(frozen=True)
class Seen:
    """A map (g, g) in 0..1, its peaks in pixels, and the detector's word in one short line."""

    attention: Map
    peaks: tuple[Peak, ...]
    verdict: str


class MapReader:
    """A model, read through its detector's adapter, or with `base` as it was before any.

    Raises ModelError.
    """

    def __init__(
        self, model: str, device: str, *, detector: str | None = None, base: bool = False
    ) -> None:
        if base:
            self.backbone, self._processor = load_base(model, device)
            self._detector = None
        else:
            checkpoint = load_checkpoint(model, device, detector=detector)
            self.backbone, self._processor = checkpoint.backbone, checkpoint.processor
            self._detector = checkpoint.detector
        self.blocks = self.backbone.blocks
        self.half_depth = half_depth_block(self.blocks)

    @torch.inference_mode()
    def judge(self, image: npt.NDArray[np.uint8], text: str) -> Seen:
        """The detector's map and probability; of the base the half-depth map alone."""
        features, prompts = self._encode(image, text)
        if self._detector is None:
            maps = block_maps(self.backbone, features, prompts)[:, self.half_depth]
            verdict = f"block {self.half_depth}, no adapter"
        else:
            chance, maps = self._detector(features, prompts)
            ambiguous = float(chance[0]) >= self._detector.settings.threshold
            verdict = (
                f"{'ambiguous' if ambiguous else 'clear'} (probability {float(chance[0]):.2f})"
            )
        attention = _array(maps[0])
        height, width = image.shape[:2]
        return Seen(attention, find_peaks(attention, width, height), verdict)

    @torch.inference_mode()
    def block_maps(self, image: npt.NDArray[np.uint8], text: str) -> Map:
        """Every block's map, (L, g, g) in 0..1."""
        features, prompts = self._encode(image, text)
        return _array(block_maps(self.backbone, features, prompts)[0])

    @torch.inference_mode()
    def head_maps(self, image: npt.NDArray[np.uint8], text: str, block: int) -> Map:
        """The map of each head of a block, (H, g, g) in 0..1: equation 2 with one H at a time."""
        features, prompts = self._encode(image, text)
        attention = self.backbone.attention_at(block, features, prompts)[0]
        mask = prompts.query_mask.expand(len(attention), -1)
        return _array(attention_map(attention[:, None], mask, self.backbone.grid))

    def _encode(self, image: npt.NDArray[np.uint8], text: str) -> tuple[torch.Tensor, Prompts]:
        """Features and prompt, and the detector's adapter made the active one."""
        pixels = self._processor.image_processor(Image.fromarray(image), return_tensors="pt")
        features = self.backbone.look(pixels["pixel_values"])
        if self._detector is None:
            prompts = encode_prompts(self._processor, "detect", [text])
            return features, prompts.to(self.backbone.device)
        self._detector.adapters.use(self._detector.adapter)
        return features, self._detector.prompts(self._processor, [text])


def _array(maps: torch.Tensor) -> Map:
    return np.asarray(maps.float().cpu().numpy(), dtype=np.float32)


@torch.inference_mode()
def block_maps(backbone: Backbone, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
    """Maps of every block, (B, L, g, g) float32 in 0..1, by the active adapter, from one pass.

    features (B or 1, N, D). Holds the attention of all blocks at once: B * L * H * T * T numbers.
    """
    attentions = backbone.attentions(features, prompts)
    maps = [attention_map(a, prompts.query_mask, backbone.grid) for a in attentions]
    return torch.stack(maps, 1)


def load_base(model: str, device: str) -> tuple[Backbone, Any]:
    """A model's backbone and processor, without its adapters; bfloat16 on a GPU. ModelError."""
    base = find_base(find_model(model))
    place = choose_device(device)
    backbone = load_backbone(base, device=place, dtype=choose_dtype("auto", place))
    processor = load_processor(base)
    check_processor(processor, backbone, base)
    return backbone, processor
