"""Dataset 1 of section IV-A: simulated scenes and IT2P, with clear and ambiguous requests.

Table I, Figure 7 and the training of the detector's variants share it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import It2p, find_it2p, load_it2p
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.options import DataOptions
from clue_ros.lab.evaluation.protocol import EvalSample
from clue_ros.lab.evaluation.tabletop import load_scenes, tabletop_samples
from clue_ros.lab.options import at_least, option
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SHARES, SPLITS, how_to_make
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS

SOURCES = ("tabletop", "it2p")


@dataclass(frozen=True)
class LabelledImage:
    """One image and its sentences, each with whether it is ambiguous.

    source: one of SOURCES. split: train, val or test. load returns uint8 RGB (H, W, 3).
    """

    name: str
    source: str
    split: str
    load: Callable[[], npt.NDArray[np.uint8]]
    sentences: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, kw_only=True)
class InDomainOptions(DataOptions):
    """Options: the folders of the data, and the amounts used."""

    scenes: int = option(
        1000, "number of simulated scenes in all splits together", type=at_least(0)
    )
    world: str = option(DEFAULT_WORLD, "simulated world", choices=tuple(WORLDS))


def load_in_domain(options: InDomainOptions) -> list[LabelledImage]:
    """Every image: train, then val, then test.

    Raises ClueError (too few scenes, a damaged shard, no data at all) and says on stderr when there
    is no IT2P.
    """
    photos = optional_it2p(options.it2p)
    images: list[LabelledImage] = []
    for split in SPLITS:
        count = round(options.scenes * SHARES[split])
        scenes = require_scenes(options.tabletop, split, count, options.world)
        samples = tabletop_samples(scenes, options.world, per_image=options.per_image)
        images += labelled_images(samples, "tabletop", split)
        if photos is not None:
            samples = it2p_samples(photos, split=split, per_image=options.per_image)
            images += labelled_images(samples, "it2p", split)
    if not images:
        raise ClueError("nothing to learn from: give --scenes above 0 or an IT2P folder")
    return images


def optional_it2p(folder: Path | None) -> It2p | None:
    """IT2P in the folder, or in $CLUE_IT2P; None, with a note on stderr, where neither is given."""
    root = folder if folder is not None else find_it2p()
    if root is None:
        print("IT2P not found (set CLUE_IT2P): simulated scenes alone", file=sys.stderr)
    return load_it2p(root) if root is not None else None


def require_scenes(folder: Path, split: str, count: int, world: str = DEFAULT_WORLD) -> list[Scene]:
    """The first `count` simulated scenes of a world's split.

    Raises ClueError if there are fewer, or one is damaged.
    """
    scenes = load_scenes(folder, split, count, world) if count else []
    if len(scenes) < count:
        raise ClueError(
            f"{folder} has {len(scenes)} {split} scenes, {count} are wanted:"
            f" {how_to_make(folder, split, count, world)}"
        )
    return scenes


def labelled_images(samples: Sequence[EvalSample], source: str, split: str) -> list[LabelledImage]:
    """The clear and ambiguous requests of each sample; a sample without any is left out."""
    images = []
    for sample in samples:
        sentences = [(clean_text(request.text), False) for request in sample.clear]
        sentences += [(clean_text(text), True) for text in sample.ambiguous]
        if sentences:
            name = f"{source} {split} {sample.name}"
            images.append(LabelledImage(name, source, split, sample.load, tuple(sentences)))
    return images


def digest(images: Sequence[LabelledImage]) -> str:
    """Hex SHA-256 of the sentences of every image, in order.

    The sentences of a simulated scene depend on all its objects, so another scene has another
    digest.
    """
    rows = [(i.name, i.source, i.split, i.sentences) for i in images]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
