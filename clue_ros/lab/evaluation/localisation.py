"""Localisation: peaks of the attention map against the objects that a request can mean.

A peak hits a candidate when the centre of its box lies in the candidate's box ("center"), or when
the two boxes overlap with an IoU of at least 0.3 or 0.5. Each candidate is hit at most once, by the
strongest such peak. Pointing game: the point of the strongest peak lies on a candidate's mask.
Simulated scenes have true boxes and masks; IT2P annotates points, and its boxes and masks are
estimated from the colours of the photographs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.grounder import Judge
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Peak
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import It2pImage, load_it2p, nearest
from clue_ros.lab.data.it2p_boxes import block_boxes
from clue_ros.lab.evaluation.in_domain import require_scenes
from clue_ros.lab.evaluation.it2p import it2p_samples, require_it2p
from clue_ros.lab.evaluation.options import (
    DataOptions,
    DetectorModelOptions,
    RecordsOptions,
    measured,
    note,
)
from clue_ros.lab.evaluation.tabletop import pixel_box
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.requests import requests_about
from clue_ros.lab.metrics import mask_iou, mean, ratio, rounded
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS

# -------------------------------------------------------------------------------------------------
# The truth: the boxes and masks of the objects that each request can mean.


@dataclass(frozen=True)
class Candidate:
    """One object that a request can mean.

    box: in pixels of the image. mask: bool, a grid of any size over the whole image.
    """

    box: Box
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledRequest:
    """A request and its candidates: one makes it clear, several make it ambiguous."""

    text: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class LabelledScene:
    """An image and the requests about it. `load` returns uint8 RGB (H, W, 3)."""

    name: str
    load: Callable[[], npt.NDArray[np.uint8]]
    requests: tuple[LabelledRequest, ...]


@dataclass(frozen=True, kw_only=True)
class LocalisationOptions(DataOptions):
    """The options of ``clue eval localisation``."""

    data: str = option("tabletop", "simulated scenes or IT2P", choices=("tabletop", "it2p"))
    split: str = option("test", "split of the images", choices=SPLITS)
    seed: int = option(0, "seed of the choice of requests")
    scenes: int = option(300, "number of simulated scenes", type=at_least(1))
    model: DetectorModelOptions
    output: RecordsOptions


def tabletop_truth(options: LocalisationOptions) -> list[LabelledScene]:
    """Simulated scenes with the requests of ``clue eval tabletop``."""
    scenes = require_scenes(options.tabletop, options.split, options.scenes)
    return [
        _simulated(scene, index, options.per_image, options.seed)
        for index, scene in enumerate(scenes)
    ]


def _simulated(scene: Scene, index: int, per_image: int, seed: int) -> LabelledScene:
    rng = np.random.default_rng([seed, index])
    candidates = [
        Candidate(pixel_box(scene, i), scene.instances == i + 1) for i in range(len(scene.objects))
    ]
    requests = tuple(
        LabelledRequest(drawn.text, tuple(candidates[i] for i in drawn.candidates))
        for want in ("clear", "ambiguous")
        for drawn in requests_about(scene, grammar_of(), want, per_image, rng)
    )
    return LabelledScene(f"scene {index}", lambda: scene.image, requests)


def it2p_truth(options: LocalisationOptions) -> tuple[list[LabelledScene], list[str]]:
    """IT2P photographs with the commands of ``clue eval it2p``, and notes of those left out.

    Boxes and masks are estimates around the annotated points. Commands whose blocks the data set
    does not give, or gives in two ways, are left out. Raises ClueError.
    """
    data = load_it2p(require_it2p(options.it2p, "--it2p"))
    photographs = {image.path.name: image for image in data.select(options.split)}
    scenes, left_out = [], 0
    for sample in it2p_samples(
        data, split=options.split, per_image=options.per_image, seed=options.seed
    ):
        photograph = photographs[sample.name]
        regions = block_boxes(sample.load(), [block.point for block in photograph.blocks])
        blocks = [Candidate(Box(*region.box), region.mask) for region in regions]
        requests: list[LabelledRequest] = []
        for text in [*(request.text for request in sample.clear), *sample.ambiguous]:
            meant = _meant(photograph, text, ambiguous=text in sample.ambiguous)
            if meant:
                requests.append(LabelledRequest(text, tuple(blocks[i] for i in meant)))
            else:
                left_out += 1
        scenes.append(LabelledScene(sample.name, sample.load, tuple(requests)))
    notes = [f"{left_out} commands left out: the data set does not give their blocks"]
    return scenes, notes if left_out else []


def _meant(photograph: It2pImage, text: str, *, ambiguous: bool) -> list[int]:
    """The blocks that a command can mean, by index; none where they are not known."""
    if text in photograph.contradictory:
        return []
    if ambiguous:
        points = next(row for row in photograph.ambiguous if row.text == text).candidates
    else:
        points = (next(row for row in photograph.commands if row.text == text).point,)
    blocks = {photograph.blocks.index(nearest(photograph.blocks, point)) for point in points}
    return [] if ambiguous and len(blocks) < 2 else sorted(blocks)


# -------------------------------------------------------------------------------------------------
# Peaks against candidates.

Hit = Callable[[Box, Box], bool]
HITS: dict[str, Hit] = {
    "center": lambda peak, candidate: candidate.contains(peak.center),
    "iou30": lambda peak, candidate: peak.iou(candidate) >= 0.3,
    "iou50": lambda peak, candidate: peak.iou(candidate) >= 0.5,
}
GROUPS = ("all", "clear", "ambiguous", "2 candidates", "3 candidates", "4 or more")


@dataclass
class Tally:
    """Counts over a group of requests."""

    requests: int = 0
    candidates: int = 0
    peaks: int = 0
    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HITS, 0))
    pointed: int = 0
    counted: int = 0
    box_ious: list[float] = field(default_factory=list)
    mask_ious: list[float] = field(default_factory=list)

    def precision(self, hit: str) -> float:
        """Share of the peaks that hit a candidate; NaN without peaks."""
        return ratio(self.hits[hit], self.peaks)

    def recall(self, hit: str) -> float:
        """Share of the candidates that were hit."""
        return ratio(self.hits[hit], self.candidates)

    def f1(self, hit: str) -> float:
        """Harmonic mean of the two."""
        return ratio(2 * self.hits[hit], self.peaks + self.candidates)

    def summary(self) -> dict[str, Any]:
        """As ``--json`` prints it; None where there is nothing."""
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
    """The counts of all groups, and one record for each request."""

    groups: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in GROUPS})
    records: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Every group that has requests."""
        return {name: tally.summary() for name, tally in self.groups.items() if tally.requests}

    def text(self, *, markdown: bool = False) -> str:
        """The same as a table. Box and mask IoU: means over the hits by "center"."""
        header = ["requests", "n", "candidates", "peaks", "precision", "recall", "F1"]
        header += ["F1 IoU 0.3", "F1 IoU 0.5", "pointing", "count right", "box IoU", "mask IoU"]
        rows: list[list[Cell]] = []
        for name, tally in self.groups.items():
            if tally.requests:
                row: list[Cell] = [
                    name, tally.requests, tally.candidates, tally.peaks,
                    tally.precision("center"), tally.recall("center"),
                    *(tally.f1(hit) for hit in HITS),
                    ratio(tally.pointed, tally.requests), ratio(tally.counted, tally.requests),
                    mean(tally.box_ious), mean(tally.mask_ious),
                ]  # fmt: skip
                rows.append(row)
        return table(header, rows, markdown=markdown)


def measure(clue: Judge[Any], scenes: Iterable[LabelledScene]) -> Localisation:
    """Judge every request about every scene, and compare the peaks with the candidates."""
    result = Localisation()
    for scene in scenes:
        image = scene.load()
        view = clue.look(image)
        for request in scene.requests:
            estimate = clue.ambiguity(view, request.text)
            _count(result, scene.name, request, estimate, (image.shape[1], image.shape[0]))
    return result


def matches(peaks: Sequence[Box], candidates: Sequence[Box], hit: Hit) -> list[tuple[int, int]]:
    """Pairs (peak, candidate), each at most once: strongest peak first, best overlap first."""
    pairs: list[tuple[int, int]] = []
    free = set(range(len(candidates)))
    for number, peak in enumerate(peaks):
        fitting = [i for i in sorted(free) if hit(peak, candidates[i])]
        if fitting:
            best = max(fitting, key=lambda i: peak.iou(candidates[i]))
            free.remove(best)
            pairs.append((number, best))
    return pairs


def _count(
    result: Localisation,
    name: str,
    request: LabelledRequest,
    estimate: AmbiguityEstimate,
    size: tuple[int, int],
) -> None:
    peaks, candidates = estimate.peaks, request.candidates
    boxes, truth = [peak.box for peak in peaks], [candidate.box for candidate in candidates]
    pairs = {key: matches(boxes, truth, hit) for key, hit in HITS.items()}
    pointed = bool(peaks) and any(_on(peaks[0], candidate, size) for candidate in candidates)
    overlaps = [
        (boxes[p].iou(truth[c]), _mask_iou(estimate, peaks[p], candidates[c], size))
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
            "text": request.text,
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
    """Return whether the peak's point lies on the candidate's mask."""
    from clue_ros.model.peaks import cell_of

    return bool(candidate.mask[cell_of(peak, *size, candidate.mask.shape)])


def _mask_iou(
    estimate: AmbiguityEstimate, peak: Peak, candidate: Candidate, size: tuple[int, int]
) -> float:
    from clue_ros.model.peaks import peak_masks, stretched

    (found,) = peak_masks(estimate.attention, (peak,), *size)
    return mask_iou(found, stretched(candidate.mask, *size))


def _rounded(box: Box) -> list[float]:
    return [round(float(value), 1) for value in box.as_list()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval localisation``."""
    add_options(parser, LocalisationOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval localisation``; the exit status."""
    options = read_options(LocalisationOptions, args)
    notes: list[str] = []
    if options.data == "it2p":
        scenes, notes = it2p_truth(options)
    else:
        scenes = tabletop_truth(options)
    if not any(scene.requests for scene in scenes):
        raise ClueError(f"the {options.split} split has no requests: nothing to measure")
    note(notes)
    clue = options.model.load()
    result = measure(clue, with_progress(scenes))
    options.output.write_records(result.records)
    options.output.show(
        result.summary(),
        lambda markdown: result.text(markdown=markdown),
        measured(clue),
        options.seed,
    )
    return 0
