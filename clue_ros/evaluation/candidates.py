"""What a request can mean, as boxes and masks: the truth that peaks of the map are held against."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.data.it2p import Ambiguous, Command, It2pImage, find_it2p, load_it2p
from clue_ros.data.it2p_boxes import block_boxes
from clue_ros.data.it2p_targets import Point
from clue_ros.data.tabletop.scene import Scene
from clue_ros.dialogue import Box
from clue_ros.errors import ClueError
from clue_ros.evaluation.in_domain import read_split
from clue_ros.evaluation.it2p import it2p_samples
from clue_ros.evaluation.tabletop import requests_about
from clue_ros.images import load_image


@dataclass(frozen=True)
class Candidate:
    """One thing that a request can mean.

    box: in pixels of the image. mask: bool, a grid of any size laid over the image.
    """

    box: Box
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Asked:
    """A request and what it can mean: one candidate is clear, several are ambiguous."""

    text: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Scenery:
    """An image and the requests about it. `load` gives uint8 RGB (H, W, 3)."""

    name: str
    load: Callable[[], npt.NDArray[np.uint8]]
    requests: tuple[Asked, ...]


def tabletop_truth(
    folder: Path, split: str, scenes: int, per_image: int, seed: int
) -> list[Scenery]:
    """Simulated scenes with the requests that ``clue eval tabletop`` asks, their truth known."""
    return [
        _scenery(scene, index, per_image, seed)
        for index, scene in enumerate(read_split(folder, split, scenes))
    ]


def _scenery(scene: Scene, index: int, per_image: int, seed: int) -> Scenery:
    rng = np.random.default_rng([seed, index])
    height, width = scene.image.shape[:2]
    candidates = []
    for number, o in enumerate(scene.objects, start=1):
        x0, y0, x1, y1 = o.box
        box = Box(x0 * width, y0 * height, x1 * width, y1 * height)
        candidates.append(Candidate(box, scene.instances == number))
    drawn = requests_about(scene.objects, rng, per_image, ambiguous=False)
    drawn += requests_about(scene.objects, rng, per_image, ambiguous=True)
    asked = [Asked(text, tuple(candidates[i] for i in meant)) for text, meant in drawn]
    return Scenery(f"scene {index}", lambda: scene.image, tuple(asked))


def it2p_truth(
    folder: Path | None, split: str, per_image: int, seed: int
) -> tuple[list[Scenery], list[str]]:
    """IT2P's commands as ``clue eval it2p`` chooses them, with the blocks they can mean.

    Boxes and masks are estimates around the annotated points. Commands whose blocks the data set
    does not tell, or tells in two ways, are left out; the notes say how many. Raises ClueError.
    """
    root = folder if folder is not None else find_it2p()
    if root is None:
        raise ClueError("no IT2P found: give its folder with --it2p DIR or set CLUE_IT2P")
    data = load_it2p(root)
    records = {image.path.name: image for image in data.select(split)}
    pictures, left_out = [], 0
    for sample in it2p_samples(data, split=split, per_image=per_image, seed=seed):
        record = records[sample.name]
        image = load_image(record.path)
        points = [block.point for block in record.blocks]
        blocks = [Candidate(Box(*region.box), region.mask) for region in block_boxes(image, points)]
        asked: list[Asked] = []
        for text in [*(request.text for request in sample.clear), *sample.ambiguous]:
            meant = _meant(record, text, ambiguous=text in sample.ambiguous)
            if meant:
                asked.append(Asked(text, tuple(blocks[i] for i in meant)))
            else:
                left_out += 1
        pictures.append(Scenery(sample.name, _always(image), tuple(asked)))
    notes = [f"{left_out} commands left out: the data set does not tell their blocks"]
    return pictures, notes if left_out else []


def _meant(record: It2pImage, text: str, *, ambiguous: bool) -> list[int]:
    """The blocks a command can mean, by number; none where that is not known."""
    if text in record.contradictory:
        return []
    rows: tuple[Command | Ambiguous, ...] = record.ambiguous if ambiguous else record.commands
    row = next(row for row in rows if row.text == text)
    if isinstance(row, Command):
        return [_nearest(record, row.point)]
    blocks = sorted({_nearest(record, point) for point in row.candidates})
    return blocks if len(blocks) > 1 else []


def _nearest(record: It2pImage, point: Point) -> int:
    gaps = [math.dist(block.point, point) for block in record.blocks]
    return gaps.index(min(gaps))


def _always(image: npt.NDArray[np.uint8]) -> Callable[[], npt.NDArray[np.uint8]]:
    return lambda: image
