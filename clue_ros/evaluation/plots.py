"""Figures as files: one look for all of them, matplotlib imported only when one is drawn.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; every curve also
has a marker of its own, so that a figure survives a black and white printer.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from clue_ros.errors import ClueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
