"""The in-domain data of section IV-A (the paper's Dataset 1): simulated scenes and IT2P together.

70/15/15 by image, at most two clear and two ambiguous commands an image. IT2P is split by the
photographs' ids; simulated scenes come from the shards of their own split, in the same shares.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.data.it2p import find_it2p, load_it2p
from clue_ros.data.tabletop.command import DEFAULT_FOLDER
from clue_ros.data.tabletop.scene import Scene
from clue_ros.data.tabletop.shards import SPLITS, how_to_make, read_scenes
from clue_ros.data.tabletop.worlds import DEFAULT_WORLD
from clue_ros.dialogue import clean_text
from clue_ros.errors import ClueError
from clue_ros.evaluation.it2p import it2p_samples
from clue_ros.evaluation.protocol import Sample
from clue_ros.evaluation.tabletop import tabletop_samples

SHARES = {"train": 0.70, "val": 0.15, "test": 0.15}
SOURCES = ("tabletop", "it2p")


@dataclass(frozen=True)
class Picture:
    """One image and its sentences, each with whether it is ambiguous.

    source: one of SOURCES; split: train, val or test; load: gives uint8 RGB (H, W, 3).
    """

    name: str
    source: str
    split: str
    load: Callable[[], npt.NDArray[np.uint8]]
    sentences: tuple[tuple[str, bool], ...]


def add_in_domain_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the data is and how much of it is used."""
    parser.add_argument(
        "--tabletop", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="simulator shards"
    )
    parser.add_argument(
        "--it2p", type=Path, metavar="DIR", help="IT2P; default: where CLUE_IT2P says, else none"
    )
    parser.add_argument(
        "--scenes", type=int, default=1000, metavar="N", help="simulated scenes, all splits (1000)"
    )
    parser.add_argument(
        "--per-image", type=int, default=2, metavar="N", help="sentences of each kind an image (2)"
    )


def load_in_domain(args: argparse.Namespace) -> list[Picture]:
    """Every picture of the data that `args` names, train, then val, then test.

    Raises ClueError (no scenes, a damaged shard, no data at all) and says on stderr when there is
    no IT2P.
    """
    if args.scenes < 0 or args.per_image < 1:
        raise ClueError("--scenes must be 0 or more and --per-image 1 or more")
    root = args.it2p if args.it2p is not None else find_it2p()
    if root is None:
        print("IT2P not found (set CLUE_IT2P): simulated scenes alone", file=sys.stderr)
    photos = load_it2p(root) if root is not None else None
    pictures: list[Picture] = []
    for split in SPLITS:
        scenes = read_split(args.tabletop, split, round(args.scenes * SHARES[split]))
        samples = tabletop_samples(scenes, per_image=args.per_image)
        pictures += as_pictures(samples, "tabletop", split)
        if photos is not None:
            samples = it2p_samples(photos, split=split, per_image=args.per_image)
            pictures += as_pictures(samples, "it2p", split)
    if not pictures:
        raise ClueError("nothing to learn from: give --scenes above 0 or an IT2P folder")
    return pictures


def read_split(folder: Path, split: str, count: int, world: str = DEFAULT_WORLD) -> list[Scene]:
    """The first `count` simulated scenes of a world's split.

    ClueError if there are fewer, or damaged.
    """
    if count == 0:
        return []
    try:
        scenes = list(read_scenes(folder, split, count, world))
    except (FileNotFoundError, ValueError) as error:
        raise ClueError(str(error)) from error
    if len(scenes) < count:
        raise ClueError(
            f"{folder} has {len(scenes)} {split} scenes, {count} are wanted:"
            f" {how_to_make(folder, split, count, world)}"
        )
    return scenes


def as_pictures(samples: Sequence[Sample], source: str, split: str) -> list[Picture]:
    """Samples as pictures with their sentences; one without any is left out."""
    found = []
    for sample in samples:
        sentences = [(clean_text(request.text), False) for request in sample.clear]
        sentences += [(clean_text(text), True) for text in sample.ambiguous]
        if sentences:
            name = f"{source} {split} {sample.name}"
            found.append(Picture(name, source, split, sample.load, tuple(sentences)))
    return found


def digest(pictures: Sequence[Picture]) -> str:
    """Hex SHA-256 of which sentences are asked of which picture, in which order.

    A simulated scene's sentences follow from all its objects, so another scene has another digest.
    """
    rows = [(p.name, p.source, p.split, p.sentences) for p in pictures]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
