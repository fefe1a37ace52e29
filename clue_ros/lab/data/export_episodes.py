"""`clue data episodes`: reviewed episodes in InViG's layout, or as the detector's rows.

clue data episodes FOLDER --out DIR [--layout invig|detector]

Writes DIR/episodes.json, or DIR/rows.jsonl, and the pictures in DIR/images. DIR/left_out.txt lists
the episodes without a row, with the reasons (docs/episodes.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clue_ros.dialogue.episode_export import DETECTOR, INVIG, LAYOUTS, Export
from clue_ros.dialogue.episodes import episode_files
from clue_ros.errors import ClueError
from clue_ros.files import open_private
from clue_ros.lab.options import add_options, option, read_options, required

_SHOWN = 5  # episodes without a row that are named on stderr


@dataclass(frozen=True, kw_only=True)
class EpisodeExportOptions:
    """The options of `clue data episodes`."""

    out: Path = required("folder to write; files of the same names are replaced", type=Path)
    layout: str = option(
        INVIG, "invig: whole dialogues; detector: requests, clear or ambiguous", choices=LAYOUTS
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `clue data episodes`."""
    parser.add_argument("folder", type=Path, help="folder of episodes, named by `record`")
    add_options(parser, EpisodeExportOptions)


def run(args: argparse.Namespace) -> int:
    """Write the export."""
    options = read_options(EpisodeExportOptions, args)
    export_episodes(args.folder, options.out, options.layout)
    return 0


def export_episodes(folder: Path, out: Path, layout: str) -> Export:
    """Write the reviewed episodes of a folder to `out`, and print how many.

    Only the owner can read the files. Raises ClueError if there is nothing to export.
    """
    folder, out = folder.expanduser(), out.expanduser()
    files = episode_files(folder) if folder.is_dir() else []
    if not files:
        raise ClueError(f"{folder}: no episodes there (a folder that `record` named)")
    if out.resolve() == folder.resolve():
        raise ClueError("--out is the folder of the episodes: name another one")
    export = Export(folder, layout)
    for name, content in export:
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "wb", opener=open_private) as file:
            file.write(content)
    _report(export.left_out)
    if not export.count:
        raise ClueError(f"{folder}: no reviewed episode gives a row: `clue review {folder}`")
    kind = "requests" if layout == DETECTOR else "dialogues"
    print(f"{export.count} {kind} in {out}")
    return export


def _report(left_out: Sequence[str]) -> None:
    for line in left_out[:_SHOWN]:
        print(f"note: left out: {line}", file=sys.stderr)
    if len(left_out) > _SHOWN:
        print(f"note: {len(left_out)} left out in all, see left_out.txt", file=sys.stderr)
