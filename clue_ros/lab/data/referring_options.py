"""Options that name referring expressions and the candidates about them.

Shared by `clue train wrapper` and `clue eval rec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.data.referring import (
    ReferringData,
    ReferringItem,
    episode_items,
    invig_items,
    it2p_items,
    simulated_items,
)
from clue_ros.lab.data.referring_files import hcrefloco_items, refcoco_items, talk2car_items
from clue_ros.lab.data.simulated_detector import SceneSource, SimulatedDetector
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.options import at_least, option
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import read_scenes
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.model.load_options import LoadOptions
from clue_ros.wrapper import WRAPPER
from clue_ros.wrapper.clue_source import ClueSource
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.preflight import require_wrapper
from clue_ros.wrapper.sources import OnceAsked, Source, open_source, tell_apart

SIMULATED = "simulated"
CANDIDATES = (SIMULATED,)
EVALUATION_SEED = 1_000_000  # of dialogues and detector errors outside of training


@dataclass(frozen=True, kw_only=True)
class ReferringOptions:
    """Options: the data sets, and the sources of candidates in their pictures."""

    simulated: Path | None = option(
        None, "folder of simulated scenes (clue data tabletop)", metavar="DIR"
    )
    world: str = option("rich", "world of the simulated scenes")
    per_picture: int = option(
        8, "dialogues about a picture of the simulator or IT2P", type=at_least(1)
    )
    it2p: Path | None = option(None, "IT2P folder ($CLUE_IT2P is not used)", metavar="DIR")
    invig: str | None = option(None, "InViG: a folder, a file or a hub id")
    refcoco: Path | None = option(
        None, "folder of RefCOCO, + or g: refs(*).p and instances.json", metavar="DIR"
    )
    coco: Path | None = option(
        None, "COCO's train2014 pictures; default: images in --refcoco", metavar="DIR"
    )
    talk2car: Path | None = option(None, "folder of Talk2Car", metavar="DIR")
    hcrefloco: Path | None = option(None, "folder of HC-RefLoCo (val and test)", metavar="DIR")
    episodes: Path | None = option(None, "folder of recorded dialogues", metavar="DIR")
    unreviewed: bool = option(False, "take unreviewed episodes too, with the robot's own boxes")
    candidates: tuple[str, ...] = option(
        (),
        f"source of boxes: {SIMULATED} (the ground truth with a detector's errors), or as for"
        f" --model wrapper; once more for an ensemble; default: {SIMULATED}",
        action="append",
        metavar="KIND:ARGUMENT",
    )
    device: str = option("auto", "auto, cpu or cuda")

    def read(
        self, split: str, seed: int, scenes: int | None = None
    ) -> Iterator[tuple[str, ReferringData]]:
        """The name and the items of each data set that was named. Raises ClueError."""
        if self.simulated is not None:
            found = read_scenes(self.simulated, split, scenes, self.world)
            grammar, count = grammar_of(self.world), self.per_picture
            try:
                items = list(simulated_items(found, grammar, per_picture=count, seed=seed))
            except ValueError as error:
                raise ClueError(str(error)) from error
            yield SIMULATED, ReferringData(items)
        if self.it2p is not None:
            data = load_it2p(self.it2p)
            yield "it2p", it2p_items(data, split, per_picture=self.per_picture, seed=seed)
        if self.invig is not None:
            yield "invig", invig_items(self.invig, "validation" if split == "val" else split)
        if self.refcoco is not None:
            yield self.refcoco.name.lower(), refcoco_items(self.refcoco, self.coco, split)
        if self.talk2car is not None:
            yield "talk2car", talk2car_items(self.talk2car, split)
        if self.hcrefloco is not None and split != "train":
            yield "hcrefloco", hcrefloco_items(self.hcrefloco, split)
        if self.episodes is not None and split == "train":
            yield "episodes", episode_items(self.episodes, unreviewed=self.unreviewed)

    def finder(
        self,
        name: str,
        items: Iterable[ReferringItem],
        seed: int,
        opened: dict[str, OnceAsked | ClueSource] | None = None,
    ) -> Wrapper:
        """A wrapper whose sources list the candidates in the pictures of a data set.

        opened: detectors by their lines, reused with their caches; detectors opened here are
        added.
        """
        lines = self.candidates or CANDIDATES
        known = {} if opened is None else opened
        new = [line for line in lines if line != SIMULATED and line not in known]
        require_wrapper(LoadOptions(WRAPPER, candidates=new, device=self.device))
        for line in new:
            source = open_source(line, self.device)
            known[line] = source if isinstance(source, ClueSource) else OnceAsked(source)
        sources: list[Source] = [
            self._simulated(name, items, seed) if line == SIMULATED else known[line].again()
            for line in lines
        ]
        tell_apart(sources, lines)
        return Wrapper(sources)

    def _simulated(self, name: str, items: Iterable[ReferringItem], seed: int) -> SceneSource:
        scenes: dict[str, Scene] = {
            i.picture.name: i.picture.scene for i in items if i.picture.scene is not None
        }
        if not scenes:
            raise ClueError(
                f"the objects of the pictures of {name} are not known: name a detector with"
                " --candidates"
            )
        nouns = grammar_of(BLOCKS.name if name == "it2p" else self.world).nouns
        detector = SimulatedDetector(nouns, seed=seed)
        return SceneSource(detector, scenes.values())
