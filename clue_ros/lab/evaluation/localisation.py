"""``clue eval localisation``: where is the confusion? Peaks of the map against the true candidates.

A peak hits a candidate when its box's centre lies in the candidate's box ("center"), or when the
boxes overlap with an IoU of at least 0.3 or 0.5; every candidate is hit at most once, by the
strongest peak that does. Pointing game: the strongest peak's point lies on a candidate's mask.
Simulated scenes know every box and mask; IT2P annotates points, and its boxes and masks are
estimated from the photographs' colours.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Peak
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import (
    AmbiguousCommand,
    ClearCommand,
    It2pImage,
    Point,
    find_it2p,
    load_it2p,
)
from clue_ros.lab.data.it2p_boxes import block_boxes
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.metrics import center_inside, iou, mean, ratio, rounded
from clue_ros.lab.evaluation.protocol import note, require_folder, write_records
from clue_ros.lab.evaluation.report import table
from clue_ros.lab.evaluation.table1_detectors import read_split
from clue_ros.lab.evaluation.tabletop import requests_about
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.model.loading import add_model_argument

# -------------------------------------------------------------------------------------------------
# What a request can mean, as boxes and masks: the truth that peaks of the map are held against.


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
    rows: tuple[ClearCommand | AmbiguousCommand, ...] = (
        record.ambiguous if ambiguous else record.commands
    )
    row = next(row for row in rows if row.text == text)
    if isinstance(row, ClearCommand):
        return [_nearest(record, row.point)]
    blocks = sorted({_nearest(record, point) for point in row.candidates})
    return blocks if len(blocks) > 1 else []


def _nearest(record: It2pImage, point: Point) -> int:
    gaps = [math.dist(block.point, point) for block in record.blocks]
    return gaps.index(min(gaps))


def _always(image: npt.NDArray[np.uint8]) -> Callable[[], npt.NDArray[np.uint8]]:
    return lambda: image


ViewT = TypeVar("ViewT")
Hit = Callable[[Box, Box], bool]
HITS: dict[str, Hit] = {
    "center": center_inside,
    "iou30": lambda peak, candidate: iou(peak, candidate) >= 0.3,
    "iou50": lambda peak, candidate: iou(peak, candidate) >= 0.5,
}
GROUPS = ("all", "clear", "ambiguous", "2 candidates", "3 candidates", "4 or more")


class Looker(Protocol[ViewT]):
    """The part of :class:`clue_ros.engine.Clue` that is measured."""

    def look(self, image: npt.NDArray[np.uint8]) -> ViewT:
        """Look once at uint8 RGB (H, W, 3)."""

    def ambiguity(self, view: ViewT, expression: str | Dialogue) -> AmbiguityEstimate:
        """Judge a request."""


@dataclass
class Tally:
    """What was counted over a group of requests."""

    requests: int = 0
    candidates: int = 0
    peaks: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HITS, 0))
    pointed: int = 0
    counted: int = 0
    box_ious: list[float] = field(default_factory=list)
    mask_ious: list[float] = field(default_factory=list)

    def precision(self, hit: str) -> float:
        """Share of the peaks that hit a candidate; NaN of no peaks."""
        return ratio(self.hits[hit], self.peaks)

    def recall(self, hit: str) -> float:
        """Share of the candidates that were hit."""
        return ratio(self.hits[hit], self.candidates)

    def f1(self, hit: str) -> float:
        """Harmonic mean of the two."""
        return ratio(2 * self.hits[hit], self.peaks + self.candidates)

    def summary(self) -> dict[str, Any]:
        """As ``--json`` prints it; None of nothing."""
        names = ("precision", "recall", "f1")
        scores = {hit: {n: rounded(getattr(self, n)(hit)) for n in names} for hit in HITS}
        return {
            "requests": self.requests,
            "candidates": self.candidates,
            "peaks": self.peaks,
            **scores,
            "pointing": rounded(ratio(self.pointed, self.requests)),
            "count_right": rounded(ratio(self.counted, self.requests)),
            "box_iou": rounded(mean(self.box_ious)),
            "mask_iou": rounded(mean(self.mask_ious)),
        }


@dataclass
class Localisation:
    """All groups, and a record a request."""

    groups: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in GROUPS})
    records: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Every group that holds requests."""
        return {name: tally.summary() for name, tally in self.groups.items() if tally.requests}

    def text(self, *, markdown: bool = False) -> str:
        """The same as a table. Box and mask IoU: means over the peaks that hit by their centre."""
        header = ["requests", "n", "candidates", "peaks", "precision", "recall", "F1"]
        header += ["F1 IoU 0.3", "F1 IoU 0.5", "pointing", "count right", "box IoU", "mask IoU"]
        rows: list[list[str | float | int]] = []
        for name, tally in self.groups.items():
            if tally.requests:
                row: list[str | float | int] = [
                    name, tally.requests, tally.candidates, tally.peaks,
                    tally.precision("center"), tally.recall("center"),
                    *(tally.f1(hit) for hit in HITS),
                    ratio(tally.pointed, tally.requests), ratio(tally.counted, tally.requests),
                    mean(tally.box_ious), mean(tally.mask_ious),
                ]  # fmt: skip
                rows.append(row)
        return table(header, rows, markdown=markdown)


def measure(clue: Looker[ViewT], pictures: Iterable[Scenery]) -> Localisation:
    """Judge every request of every picture, and compare the peaks with the candidates."""
    result = Localisation()
    for picture in pictures:
        image = picture.load()
        view = clue.look(image)
        for asked in picture.requests:
            estimate = clue.ambiguity(view, asked.text)
            _count(result, picture.name, asked, estimate, (image.shape[1], image.shape[0]))
    return result


def matches(peaks: Sequence[Box], candidates: Sequence[Box], hit: Hit) -> list[tuple[int, int]]:
    """(peak, candidate) pairs, each at most once: strongest peak first, the best overlap first."""
    pairs: list[tuple[int, int]] = []
    free = set(range(len(candidates)))
    for number, peak in enumerate(peaks):
        fitting = [i for i in sorted(free) if hit(peak, candidates[i])]
        if fitting:
            best = max(fitting, key=lambda i: iou(peak, candidates[i]))
            free.remove(best)
            pairs.append((number, best))
    return pairs


def _count(
    result: Localisation,
    name: str,
    asked: Asked,
    estimate: AmbiguityEstimate,
    size: tuple[int, int],
) -> None:
    peaks, candidates = estimate.peaks, asked.candidates
    boxes, truth = [peak.box for peak in peaks], [candidate.box for candidate in candidates]
    pairs = {key: matches(boxes, truth, hit) for key, hit in HITS.items()}
    pointed = bool(peaks) and any(_on(peaks[0], candidate, size) for candidate in candidates)
    overlaps = [
        (iou(boxes[p], truth[c]), _mask_iou(estimate, peaks[p], candidates[c], size))
        for p, c in pairs["center"]
    ]
    for group in _groups(len(candidates)):
        tally = result.groups[group]
        tally.requests += 1
        tally.candidates += len(candidates)
        tally.peaks += len(peaks)
        for key, found in pairs.items():
            tally.hits[key] += len(found)
        tally.pointed += pointed
        tally.counted += len(peaks) == len(candidates)
        tally.box_ious += [box for box, _ in overlaps]
        tally.mask_ious += [mask for _, mask in overlaps]
    result.records.append(
        {
            "image": name,
            "text": asked.text,
            "probability": round(estimate.probability, 4),
            "candidates": [_rounded(box) for box in truth],
            "peaks": [{"box": _rounded(p.box), "score": round(p.score, 4)} for p in peaks],
            "hits": {key: len(found) for key, found in pairs.items()},
            "pointed": pointed,
        }
    )


def _groups(candidates: int) -> list[str]:
    if candidates == 1:
        return ["all", "clear"]
    return ["all", "ambiguous", f"{candidates} candidates" if candidates < 4 else "4 or more"]


def _on(peak: Peak, candidate: Candidate, size: tuple[int, int]) -> bool:
    """Whether the peak's point lies on the candidate's mask."""
    x, y = peak.point if peak.point is not None else peak.box.center
    rows, columns = candidate.mask.shape
    row = min(rows - 1, max(0, int(y / size[1] * rows)))
    column = min(columns - 1, max(0, int(x / size[0] * columns)))
    return bool(candidate.mask[row, column])


def _mask_iou(
    estimate: AmbiguityEstimate, peak: Peak, candidate: Candidate, size: tuple[int, int]
) -> float:
    from clue_ros.model.peaks import peak_masks

    width, height = size
    (found,) = peak_masks(estimate.attention, (peak,), width, height)
    rows, columns = candidate.mask.shape
    true = candidate.mask[
        (np.arange(height) * rows // height)[:, None], (np.arange(width) * columns // width)[None]
    ]
    return ratio(int((found & true).sum()), int((found | true).sum()))


def _rounded(box: Box) -> list[float]:
    return [round(float(value), 1) for value in box.as_list()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval localisation``."""
    parser.add_argument("--data", choices=("tabletop", "it2p"), default="tabletop")
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--tabletop", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    parser.add_argument("--it2p", type=Path, metavar="DIR", help="IT2P (or $CLUE_IT2P)")
    parser.add_argument("--scenes", type=int, default=300, metavar="N", help="simulated (300)")
    parser.add_argument("--per-image", type=int, default=2, metavar="N", help="of each kind (2)")
    parser.add_argument("--seed", type=int, default=0, help="fixes which requests are chosen (0)")
    add_model_argument(parser)
    parser.add_argument("--detector", metavar="DIR", help="another detector's folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line a request")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval localisation``; the exit status."""
    require_folder(args.records)
    if args.scenes < 1 or args.per_image < 1:
        raise ClueError("--scenes and --per-image must be 1 or more")
    if args.data == "it2p":
        pictures, notes = it2p_truth(args.it2p, args.split, args.per_image, args.seed)
    else:
        pictures, notes = (
            tabletop_truth(args.tabletop, args.split, args.scenes, args.per_image, args.seed),
            [],
        )
    if not any(picture.requests for picture in pictures):
        raise ClueError(f"the {args.split} split has no requests: nothing to measure")
    note(notes)
    from tqdm import tqdm

    from clue_ros.engine import Clue

    clue = Clue.load(args.model, device=args.device, detector=args.detector)
    result = measure(clue, tqdm(pictures, unit="image", disable=not sys.stderr.isatty()))
    write_records(args.records, result.records)
    print(json.dumps(result.summary()) if args.json else result.text(markdown=args.markdown))
    return 0
