"""Output of a measurement: its progress, and its results as tables and as figures.

Tables are aligned text or Markdown, figures matplotlib's in one style.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clue_ros.errors import ClueError
from clue_ros.lab.metrics import Calibration, wilson
from clue_ros.requirements import missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Cell = str | float | int | None
ItemT = TypeVar("ItemT")


def with_progress(
    items: Iterable[ItemT], unit: str = "image", total: int | None = None
) -> Iterator[ItemT]:
    """The items, with a progress bar on stderr if that is a terminal."""
    from tqdm import tqdm

    return iter(tqdm(items, None, total, False, unit=unit, disable=not sys.stderr.isatty()))


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, markdown: bool = False) -> str:
    """Rows under a header. Floats have three digits, None and NaN a dash; numbers align right."""
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


def _text(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def spread(values: Sequence[float], *, markdown: bool = False) -> str:
    """Mean and sample standard deviation over seeds; a single value alone.

    >>> spread([0.5, 0.7])
    '0.600 +- 0.141'
    """
    if len(values) < 2:
        return f"{values[0]:.3f}"
    sign = "±" if markdown else "+-"
    return f"{statistics.fmean(values):.3f} {sign} {statistics.stdev(values):.3f}"


# -------------------------------------------------------------------------------------------------
# Figures. matplotlib is imported only when one is drawn.

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#777777"
DPI = 100


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches. Raises ClueError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ClueError(missing("matplotlib", "a figure")) from error
    # No pyplot: it keeps global state and may ask for a display.
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def add_grid(axes: Any) -> None:
    """Light grid lines behind the data."""
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the file's suffix; a failure leaves no partial file.

    Raises ClueError naming the file.
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial)
        partial.replace(path)
    except (OSError, ValueError) as error:
        partial.unlink(missing_ok=True)
        raise ClueError(f"cannot write {path}: {error}") from error


def plot_reliability(path: Path, measured: Mapping[str, Calibration], title: str = "") -> None:
    """Reliability diagram: share of ambiguous requests over the predicted probability.

    One curve a name, with 95 % Wilson intervals; below it, the number of predictions in each bin.
    Raises ClueError where it cannot be drawn or written.
    """
    figure = new_figure(5.6, 6.2)
    upper, lower = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    upper.plot((0, 1), (0, 1), color=GREY, linestyle="--", linewidth=1, label="perfect")
    for i, (name, result) in enumerate(measured.items()):
        color = COLORS[i % len(COLORS)]
        _draw_curve(upper, result, f"{name} (ECE {result.ece:.3f})", i)
        edges = [b.low for b in result.bins] + [1.0]
        counts = [b.n for b in result.bins]
        lower.stairs(counts, edges, color=color, linewidth=1.6, fill=len(measured) == 1)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share of ambiguous requests")
    figure.legend(loc="outside lower center", fontsize="small")
    lower.set(xlabel="predicted probability of ambiguity", ylabel="predictions")
    for axes in (upper, lower):
        add_grid(axes)
    if title:
        upper.set_title(title)
    save_figure(figure, path)


def _draw_curve(axes: Any, result: Calibration, name: str, number: int) -> None:
    filled = [b for b in result.bins if b.n]
    points = [(b.confidence, b.frequency, b.n) for b in filled]
    draw_intervals(axes, points, name, number)


def draw_intervals(
    axes: Any, points: Sequence[tuple[float, float, int]], name: str, number: int
) -> None:
    """The curve of (x, share, n) with 95 % Wilson intervals; number: of the curve, its style."""
    ends = [wilson(round(share * n), n) for _, share, n in points]
    # At a share of 0 or 1 rounding can put an interval's end on the wrong side by 1e-17.
    below = [max(0.0, share - low) for (_, share, _), (low, _) in zip(points, ends, strict=True)]
    above = [max(0.0, high - share) for (_, share, _), (_, high) in zip(points, ends, strict=True)]
    axes.errorbar(
        [x for x, _, _ in points],
        [share for _, share, _ in points],
        yerr=[below, above],
        color=COLORS[number % len(COLORS)],
        marker=MARKERS[number % len(MARKERS)],
        capsize=3,
        linewidth=1.4,
        label=name,
    )
