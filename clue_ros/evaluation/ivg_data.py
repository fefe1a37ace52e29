"""Whole dialogues with a known target, from every data set, for the guesser setting (Table III).

invig     the published dialogues.
it2p      IT2P has commands and answers but no questions: a clear command is a dialogue of one
          sentence; an ambiguous one gets our oracle's question about its candidates and the data
          set's own word for the target as the answer. It annotates points: the box is estimated
          from the photograph (`clue_ros.data.it2p_boxes`).
tabletop  simulated scenes: a drawn request, then the oracle's questions and a person's answers
          (`clue_ros.data.dialogues`) until one object is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.data import dialogues
from clue_ros.data.invig import InvigSample, load_invig
from clue_ros.data.it2p import It2pImage, find_it2p, load_it2p
from clue_ros.data.it2p_boxes import BlockRegion, block_boxes
from clue_ros.data.it2p_targets import Point, nearest
from clue_ros.data.languages import language_of
from clue_ros.data.tabletop.command import DEFAULT_FOLDER
from clue_ros.data.tabletop.scene import Scene, SceneObject
from clue_ros.data.tabletop.shards import SPLITS, read_scenes
from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, world_spec
from clue_ros.data.told import told_samples
from clue_ros.errors import BadImageError, ClueError
from clue_ros.evaluation.it2p import choose
from clue_ros.evaluation.tabletop import requests_about
from clue_ros.images import load_image

DATA = ("invig", "it2p", "tabletop")
_MAX_TURNS = 6  # a person who has not said which one by then is left out


@dataclass(frozen=True)
class Told:
    """A whole dialogue and its target.

    point: the annotated point as fractions, where the data set has points instead of boxes. The
    sample's box is then an estimate; `estimated` is False where a square stands in for it.
    """

    sample: InvigSample
    point: Point | None = None
    estimated: bool = True


@dataclass(frozen=True)
class Wanted:
    """Which dialogues: what the options of `clue eval ivg` say.

    data: one of DATA. source: a folder (for invig also a file or a hub id); None for the usual
    place. split: train, val, test or all. per_image: of each kind, not for invig. limit: the first
    pictures only. language: of InViG. world: of the simulator.
    """

    data: str
    source: str | None = None
    split: str = "test"
    per_image: int = 2
    limit: int | None = None
    seed: int = 0
    language: str = "en"
    world: str = DEFAULT_WORLD


def load_told(wanted: Wanted) -> tuple[list[Told], list[str]]:
    """The dialogues, picture by picture, and what could not be used. Raises ClueError."""
    load = {"invig": _invig, "it2p": _it2p, "tabletop": _tabletop}[wanted.data]
    told, problems = load(wanted)
    order = {name: i for i, name in enumerate(dict.fromkeys(t.sample.image_id for t in told))}
    if wanted.limit is not None:
        told = [item for item in told if order[item.sample.image_id] < wanted.limit]
    return sorted(told, key=lambda item: order[item.sample.image_id]), problems


def _invig(wanted: Wanted) -> tuple[list[Told], list[str]]:
    if wanted.source is None:
        raise ClueError("give InViG's folder, file or hub id with --source")
    split = None if wanted.split == "all" else wanted.split
    found = load_invig(wanted.source, split=split, language=wanted.language)
    return [Told(sample) for sample in found.samples], list(found.problems)


def _it2p(wanted: Wanted) -> tuple[list[Told], list[str]]:
    folder = Path(wanted.source) if wanted.source is not None else find_it2p()
    if folder is None:
        raise ClueError("no IT2P found: give its folder with --source DIR or set CLUE_IT2P")
    data = load_it2p(folder)
    images = data.select(wanted.split)[: wanted.limit]
    told, problems = it2p_told(images, per_image=wanted.per_image, seed=wanted.seed)
    return told, [str(problem) for problem in data.problems] + problems


def _tabletop(wanted: Wanted) -> tuple[list[Told], list[str]]:
    folder = Path(wanted.source) if wanted.source is not None else DEFAULT_FOLDER
    try:
        scenes = [
            scene
            for split in (SPLITS if wanted.split == "all" else (wanted.split,))
            for scene in read_scenes(folder, split, wanted.limit, wanted.world)
        ]
    except (FileNotFoundError, ValueError) as error:
        raise ClueError(str(error)) from error
    if world_spec(wanted.world).language == "rich":
        return _rich(scenes, wanted), []
    samples = tabletop_told(scenes, per_image=wanted.per_image, seed=wanted.seed)
    return [Told(sample) for sample in samples], []


def _rich(scenes: Sequence[Scene], wanted: Wanted) -> list[Told]:
    """Dialogues in the rich worlds' language, as it tells them; as many as of the plain ones."""
    told = told_samples(
        scenes,
        language_of(wanted.world),
        name="scene",
        per_image=2 * wanted.per_image,
        seed=wanted.seed,
    )
    return [Told(sample) for sample, _ in told]


def tabletop_told(scenes: Iterable[Scene], *, per_image: int, seed: int) -> list[InvigSample]:
    """Of each scene up to `per_image` clear requests and as many dialogues that need a question.

    The requests are those of `clue eval tabletop`; one that no answers settle is left out.
    """
    samples = []
    for index, scene in enumerate(scenes):
        rng = np.random.default_rng([seed, index])
        for kind, ambiguous in (("clear", False), ("asked", True)):
            requests = requests_about(scene.objects, rng, per_image, ambiguous=ambiguous)
            for number, (text, candidates) in enumerate(requests):
                target = int(rng.choice(candidates)) if ambiguous else candidates[0]
                exchanges = _settle(candidates, target, scene.objects, rng)
                if exchanges is not None:
                    sample = InvigSample(
                        id=f"scene {index} {kind} {number}",
                        image_id=f"scene {index}",
                        load=partial(_pixels, scene),
                        request=text,
                        exchanges=exchanges,
                        box=scene.objects[target].box,
                        category=scene.objects[target].kind,
                    )
                    samples.append(sample)
    return samples


def _settle(
    candidates: tuple[int, ...],
    target: int,
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
) -> tuple[tuple[str, str], ...] | None:
    """Questions and answers until only the target is meant; None where words do not get there."""
    exchanges: list[tuple[str, str]] = []
    while len(candidates) > 1 and len(exchanges) < _MAX_TURNS:
        question = dialogues.ask(candidates, objects)
        said = dialogues.answer(question, target, candidates, objects, rng)
        if said is None:
            return None
        exchanges.append((question.text, said[0]))
        candidates = said[1]
    return tuple(exchanges) if candidates == (target,) else None


def it2p_told(
    images: Iterable[It2pImage], *, per_image: int, seed: int
) -> tuple[list[Told], list[str]]:
    """Of each photograph up to `per_image` clear commands and as many with one answer (0: all).

    The choice of commands is that of `clue eval it2p`. Commands that the data set contradicts are
    left out: there is no one target.
    """
    told: list[Told] = []
    problems: list[str] = []
    for image in images:
        try:
            regions = block_boxes(load_image(image.path), [b.point for b in image.blocks])
        except BadImageError as error:
            problems.append(str(error))
            continue
        photo = _Photo(image, regions)
        clear = choose(image.commands, per_image, f"{seed}:{image.id}:clear")
        for number, command in enumerate(clear):
            if command.text not in image.contradictory:
                told.append(photo.told(f"clear {number}", command.text, (), command.point))
        asked = choose(image.interactive, per_image, f"{seed}:{image.id}:interactive")
        for number, row in enumerate(asked):
            question = photo.question(row.text, row.point)
            if question is None:
                problems.append(f"{image.id}: {row.text!r} leaves its candidates open, left out")
                continue
            exchange = (question, row.answer)
            told.append(photo.told(f"asked {number}", row.text, (exchange,), row.point))
    return told, problems


class _Photo:
    """A photograph and its blocks' estimated boxes, in the order of `image.blocks`."""

    def __init__(self, image: It2pImage, regions: Sequence[BlockRegion]) -> None:
        self._image, self._regions = image, regions
        self._height, self._width = regions[0].mask.shape if regions else (1, 1)

    def told(
        self, name: str, text: str, exchanges: tuple[tuple[str, str], ...], point: Point
    ) -> Told:
        """A dialogue about the block at a point."""
        region = self._regions[self._block(point)]
        sample = InvigSample(
            id=f"{self._image.id} {name}",
            image_id=self._image.id,
            load=partial(load_image, self._image.path),
            request=text,
            exchanges=exchanges,
            box=self._fractions(region),
            category="block",
        )
        at = (point[0] / self._width, point[1] / self._height)
        return Told(sample, at, region.estimated)

    def question(self, text: str, point: Point) -> str | None:
        """What the oracle asks about the blocks a command can mean; None where that is not known.

        The target is among them, whatever the words say of it.
        """
        points = next((a.candidates for a in self._image.ambiguous if a.text == text), ())
        candidates = sorted({self._block(p) for p in (*points, point)})
        blocks = self._image.blocks
        if len(candidates) < 2 or any(blocks[i].color is None for i in candidates):
            return None
        objects = [
            SceneObject("block", block.color or "", self._fractions(region))
            for block, region in zip(blocks, self._regions, strict=True)
        ]
        return dialogues.ask(candidates, objects).text

    def _block(self, point: Point) -> int:
        return self._image.blocks.index(nearest(self._image.blocks, point))

    def _fractions(self, region: BlockRegion) -> tuple[float, float, float, float]:
        x_min, y_min, x_max, y_max = region.box
        return (
            max(x_min, 0.0) / self._width,
            max(y_min, 0.0) / self._height,
            min(x_max, self._width) / self._width,
            min(y_max, self._height) / self._height,
        )


def _pixels(scene: Scene) -> npt.NDArray[np.uint8]:
    return scene.image
