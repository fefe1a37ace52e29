"""Tables of results as aligned text for a terminal, or as Markdown for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
