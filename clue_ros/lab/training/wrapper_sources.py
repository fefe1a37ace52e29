"""Where the LLM-wrapper's training and evaluation items come from, and their candidates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clue_ros.dialogue.candidates import Candidate
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p, load_it2p
from clue_ros.lab.data.referring import (
    ReferringData,
    ReferringItem,
    ReferringPicture,
    episode_items,
    invig_items,
    it2p_items,
    simulated_items,
)
from clue_ros.lab.data.simulated_detector import SimulatedDetector
from clue_ros.lab.language.grammars import rich_grammar
from clue_ros.lab.options import at_least, option
from clue_ros.lab.simulator.scene import KINDS
from clue_ros.lab.simulator.shards import read_scenes
from clue_ros.lab.training.wrapper_data import Find, ListingSample, listing_samples
from clue_ros.wrapper.colors import with_measured_colors

HELD_OUT_SCENES = 100


@dataclass
class WrapperData:
    """Samples to train on and to validate on; notes: what they were made of."""

    train: list[ListingSample]
    val: list[ListingSample]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WrapperDataOptions:
    """The data of ``clue train wrapper``; several sets are put together."""

    simulated: Path | None = option(
        None, "folder of simulated scenes (clue data tabletop)", metavar="DIR"
    )
    world: str = option("rich", "world of the simulated scenes")
    scenes: int | None = option(None, "largest number of simulated scenes; default: all")
    per_picture: int = option(
        8, "dialogues about a picture of the simulator or IT2P", type=at_least(1)
    )
    it2p: Path | None = option(None, "IT2P folder ($CLUE_IT2P is not used)", metavar="DIR")
    invig: str | None = option(None, "InViG: a folder, a file or a hub id")
    episodes: Path | None = option(None, "folder of recorded dialogues", metavar="DIR")
    together: int = option(
        1, "dialogues about a picture in one sequence, which reads its boxes once", type=at_least(1)
    )
    seed: int = option(0, "seed of dialogues, orders, weights and dropout")

    def load(self) -> WrapperData:
        """Read all data sets that were named."""
        data = WrapperData([], [], {"per_picture": self.per_picture, "together": self.together})
        for name, split, items, find in self._sets():
            for problem in items.problems[:5]:
                print(f"note: {problem}", file=sys.stderr)
            samples, left_out = listing_samples(items.items, find, together=self.together)
            (data.train if split == "train" else data.val).extend(samples)
            data.notes[f"{name} {split}"] = {"items": len(items.items), "left out": left_out}
        return data

    def _sets(self) -> list[tuple[str, str, ReferringData, Find]]:
        found: list[tuple[str, str, ReferringData, Find]] = []
        for split in ("train", "val"):
            seed = self.seed if split == "train" else 1_000_000
            if self.simulated is not None:
                most = self.scenes if split == "train" else HELD_OUT_SCENES
                items = simulated(self.simulated, split, most, self.world, self.per_picture, seed)
                found.append(("simulated", split, items, simulated_find(self.world, seed)))
            if self.it2p is not None:
                photos = it2p_items(
                    load_it2p(self.it2p), split, per_picture=self.per_picture, seed=seed
                )
                found.append(("it2p", split, photos, it2p_find(seed)))
        return found


def simulated(
    folder: Path, split: str, most: int | None, world: str, per_picture: int, seed: int
) -> ReferringData:
    """Dialogues about simulated scenes."""
    scenes = read_scenes(folder, split, most, world)
    try:
        items = simulated_items(scenes, rich_grammar(world), per_picture=per_picture, seed=seed)
        return ReferringData(list(items))
    except ValueError as error:
        raise ClueError(str(error)) from error


def simulated_find(world: str, seed: int = 0) -> Find:
    """The simulated detector's candidates of a scene, with measured colours."""
    return _with_detector(SimulatedDetector(rich_grammar(world).nouns, seed=seed))


def it2p_find(seed: int = 0) -> Find:
    """The same for IT2P's photographs."""
    return _with_detector(SimulatedDetector({kind: kind for kind in KINDS}, seed=seed))


def _with_detector(detector: SimulatedDetector) -> Find:
    def find(picture: ReferringPicture, items: Sequence[ReferringItem]) -> tuple[Candidate, ...]:
        if picture.scene is None:
            raise ClueError(f"{picture.name} has no known objects for the simulated detector")
        return with_measured_colors(detector.find(picture.scene), picture.scene.image)

    return find


_ = (episode_items, invig_items, find_it2p)
