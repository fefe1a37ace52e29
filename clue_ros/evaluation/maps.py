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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue import Peak, clean_text
from clue_ros.errors import ClueError
from clue_ros.evaluation.plots import figure_path, new_figure, save_figure
from clue_ros.images import load_image
from clue_ros.model.hub import add_model_argument

if TYPE_CHECKING:
    from clue_ros.model.map_reader import MapReader

EXAMPLES = (
    ("yellow_blocks.png", ("pick up the green block", "pick up the yellow block")),
    ("five_blocks.png", ("pick up the green block", "pick up the orange block")),
    ("ball_block_can.png", ("pick up the ball", "pick up the thing")),
)
PANEL, WORDS, SCALE = 2.4, 0.55, 0.9  # inches: a panel's width, its words, the colours' scale
MOST = 7  # panels in a line, then the next begins
HEAT = "inferno"  # steps of even lightness, from dark to light: safe for all colour vision
Image = npt.NDArray[np.uint8]
Map = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Panel:
    """One picture of the grid. attention: (g, g) in 0..1 laid over the image, None for none."""

    image: Image
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
    from clue_ros.model.map_reader import MapReader

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


def _wanted(args: argparse.Namespace) -> list[tuple[Image, tuple[str, ...]]]:
    """Pictures and their sentences: those given, or the examples."""
    if args.image is not None:
        if not args.sentences:
            raise ClueError(f"nothing is said of {args.image}: give at least one sentence")
        return [(load_image(args.image), tuple(clean_text(text) for text in args.sentences))]
    from clue_ros.model.hub import demo_folder

    return [(load_image(demo_folder() / name), sentences) for name, sentences in EXAMPLES]


def _rows(
    reader: MapReader,
    image: Image,
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
