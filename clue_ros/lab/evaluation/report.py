"""Tables of results as aligned text for a terminal, or as Markdown for a page."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clue_ros.errors import ClueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Cell = str | float | int | None


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, markdown: bool = False) -> str:
    """Rows under a header; floats get three digits, None and NaN a dash, numbers stand right."""
    words = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in words) for i in range(len(header))]
    right = [all(not isinstance(row[i], str) for row in rows) for i in range(len(header))]
    if markdown:
        rule = ["---:" if r else "---" for r in right]
        return "\n".join(f"| {' | '.join(line)} |" for line in (words[0], rule, *words[1:]))
    lines = (
        "  ".join(
            cell.rjust(width) if r else cell.ljust(width)
            for cell, width, r in zip(line, widths, right, strict=True)
        )
        for line in words
    )
    return "\n".join(line.rstrip() for line in lines)


def spread(values: Sequence[float], *, markdown: bool = False) -> str:
    """Mean and sample standard deviation of several seeds; of one, the value alone.

    >>> spread([0.5, 0.7])
    '0.600 +- 0.141'
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return f"{mean:.3f} {'±' if markdown else '+-'} {deviation:.3f}"


def _text(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


# -------------------------------------------------------------------------------------------------
# Figures as files: one look for all of them, matplotlib imported only when one is drawn.

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#777777"
FORMATS = (".png", ".svg", ".pdf")
DPI = 100


def figure_path(text: str) -> Path:
    """The type of a command's option that names a figure: refuses what could not be written."""
    path = Path(text)
    if path.suffix.lower() not in FORMATS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no figure's name: it must end in {', '.join(FORMATS)}"
        )
    if not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"there is no folder {path.parent} to write {path.name} in"
        )
    return path


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, that finds room for its own labels.

    Raises ClueError where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ClueError(
            f"a figure needs matplotlib ({error}): pip install -r requirements.txt"
        ) from error
    # No pyplot: it keeps global state and may ask for a display.
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write it, in the format that the name ends in; a failure leaves no half a file.

    Raises ClueError naming the file.
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial)
        partial.replace(path)
    except (OSError, ValueError) as error:
        partial.unlink(missing_ok=True)
        raise ClueError(f"cannot write {path}: {error}") from error
