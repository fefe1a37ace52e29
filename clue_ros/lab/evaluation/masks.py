"""Masks from RGB alone against the simulator's exact ones: mean intersection over union.

Three questions, each with its own requests about simulated scenes:

true box      the object's own box is given (clear requests)
model's box   the box that the model points at, right or wrong (the same requests); and the same
              where that box is right (IoU 0.5 or more with the true one)
candidate     a question's candidates (ambiguous requests): each candidate whose box holds a peak's
              centre, by the strongest such peak

Ways to a mask: the filled box, the attention peak alone (its region on a grid four times finer than
the patches), GrabCut in the box, GrabCut with the attention map as prior, and with a mask decoder
PaliGemma's segment tokens in the box. Times are CPU time of the calling process per mask, without
the model's look and reply (and with the decoding, for the segment tokens).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import AmbiguityEstimate, Dialogue, Grounding, Peak
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.in_domain import require_scenes
from clue_ros.lab.evaluation.localisation import HITS, matches
from clue_ros.lab.evaluation.options import PER_IMAGE, ModelOptions, RecordsOptions, measured
from clue_ros.lab.evaluation.tabletop import pixel_box
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.requests import requests_about
from clue_ros.lab.metrics import MIN_IOU, mask_iou, mean, rounded
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS

Mask = npt.NDArray[np.bool_]
RICH = ("rich", "rich-unseen")  # the worlds that keep masks at the pictures' own size
TRUE, MODEL, RIGHT, CANDIDATE = "true box", "model's box", "model's box, right", "candidate"


@dataclass(frozen=True, kw_only=True)
class MaskModelOptions(ModelOptions):
    """Options: the measured model and its mask decoder."""

    mask_decoder: Path | None = option(
        None, "PaliGemma's mask decoder; default: the model folder's", metavar="FILE.safetensors"
    )


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """The options of ``clue eval masks``."""

    world: str = option("rich-unseen", "simulated world", choices=RICH)
    tabletop: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    split: str = option("test", "split of the scenes", choices=SPLITS)
    scenes: int = option(100, "number of scenes", type=at_least(1), metavar="N")
    per_image: int = PER_IMAGE
    seed: int = option(0, "seed of the choice of requests")
    model: MaskModelOptions
    output: RecordsOptions


@dataclass
class MaskResults:
    """IoU and CPU seconds of each mask, by question and by way; and one record for each."""

    ious: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, group: str, way: str, make: Callable[[], Mask], truth: Mask, about: Mapping[str, Any]
    ) -> None:
        """Make one mask, measure it, and keep both figures."""
        begin = time.process_time()
        mask = make()
        seconds = time.process_time() - begin
        iou = mask_iou(mask, truth)
        self._keep(group, way, iou, seconds)
        if about.get("box_iou", 0.0) >= MIN_IOU:
            self._keep(RIGHT, way, iou, seconds)
        self.records.append({"group": group, "way": way, "iou": round(iou, 4), **about})

    def _keep(self, group: str, way: str, iou: float, seconds: float) -> None:
        self.ious.setdefault((group, way), []).append(iou)
        self.seconds.setdefault((group, way), []).append(seconds)

    def summary(self) -> dict[str, Any]:
        """As ``--json`` prints it: by question, then by way."""
        found: dict[str, Any] = {}
        for (group, way), ious in self._ordered():
            found.setdefault(group, {})[way] = {
                "iou": rounded(mean(ious)),
                "median_iou": rounded(statistics.median(ious)),
                "ms": round(1000 * mean(self.seconds[group, way]), 1),
                "n": len(ious),
            }
        return found

    def text(self, *, markdown: bool = False) -> str:
        """The same as a table."""
        rows: list[list[Cell]] = [
            [
                group,
                way,
                len(ious),
                mean(ious),
                statistics.median(ious),
                f"{1000 * mean(self.seconds[group, way]):.1f}",
            ]
            for (group, way), ious in self._ordered()
        ]
        return table(
            ["given", "mask", "n", "mean IoU", "median IoU", "CPU ms"], rows, markdown=markdown
        )

    def _ordered(self) -> list[tuple[tuple[str, str], list[float]]]:
        groups = (TRUE, MODEL, RIGHT, CANDIDATE)
        return sorted(self.ious.items(), key=lambda item: groups.index(item[0][0]))


def measure(clue: Any, scenes: Iterable[Scene], options: MaskOptions) -> MaskResults:
    """Measure every way to a mask on the requests about each scene.

    clue: a loaded `clue_ros.engine.Clue`. Raises ClueError for scenes without masks.
    """
    grammar, result = grammar_of(options.world), MaskResults()
    for number, scene in enumerate(scenes):
        if scene.masks is None:
            raise ClueError(f"scene {number} has no mask at its picture's size: render it again")
        rng = np.random.default_rng([options.seed, number])
        view = clue.look(scene.image)
        for request in requests_about(scene, grammar, "clear", options.per_image, rng):
            reply = clue.reply(view, Dialogue(request.text), force_grounding=True)
            target = request.candidates[0]
            about = {"image": f"scene {number}", "text": request.text}
            _grounding(result, clue, view, reply, scene, target, about)
        for request in requests_about(scene, grammar, "ambiguous", options.per_image, rng):
            estimate = clue.ambiguity(view, request.text)
            about = {"image": f"scene {number}", "text": request.text}
            _candidates(result, clue, view, estimate, scene, request.candidates, about)
    return result


def _truth(scene: Scene, target: int) -> Mask:
    assert scene.masks is not None
    return np.asarray(scene.masks == target + 1, dtype=np.bool_)


def _grounding(
    result: MaskResults,
    clue: Any,
    view: Any,
    reply: Grounding,
    scene: Scene,
    target: int,
    about: dict[str, Any],
) -> None:
    """Measure the masks in the true box of a clear request's target, and in the model's box."""
    true_box, truth = pixel_box(scene, target), _truth(scene, target)
    box_iou = round(reply.box.iou(true_box), 4)
    for way, make in _ways(clue, view, replace(reply, box=true_box)).items():
        result.add(TRUE, way, make, truth, about)
    for way, make in _ways(clue, view, reply).items():
        result.add(MODEL, way, make, truth, {**about, "box_iou": box_iou})


def _ways(clue: Any, view: Any, reply: Grounding) -> dict[str, Callable[[], Mask]]:
    """The ways to the mask of a grounding."""
    from clue_ros.model.masks import box_mask, grabcut_mask
    from clue_ros.model.peaks import peak_masks

    estimate, size = reply.ambiguity, (view.width, view.height)

    def peak() -> Mask:
        """Return the region of the peak with the largest overlap; nothing without overlap."""
        best = max(estimate.peaks, key=lambda peak: peak.box.iou(reply.box), default=None)
        if best is None or best.box.iou(reply.box) == 0:
            return np.zeros((view.height, view.width), dtype=np.bool_)
        return peak_masks(estimate.attention, (best,), *size)[0]

    ways: dict[str, Callable[[], Mask]] = {
        "box": lambda: box_mask(reply.box, *size),
        "attention peak": peak,
        "GrabCut": lambda: grabcut_mask(view.image, reply.box),
        "GrabCut, map as prior": lambda: grabcut_mask(view.image, reply.box, estimate.attention),
    }
    if clue.checkpoint.mask_decoder is not None:
        ways["segment tokens"] = lambda: clue.mask(view, reply)
    return ways


def _candidates(
    result: MaskResults,
    clue: Any,
    view: Any,
    estimate: AmbiguityEstimate,
    scene: Scene,
    candidates: Sequence[int],
    about: dict[str, Any],
) -> None:
    """Measure the masks of the peaks that hit a candidate."""
    peaks = estimate.peaks
    boxes = [pixel_box(scene, candidate) for candidate in candidates]
    for p, c in matches([peak.box for peak in peaks], boxes, HITS["center"]):
        for way, make in _peak_ways(view, estimate, peaks[p]).items():
            result.add(CANDIDATE, way, make, _truth(scene, candidates[c]), about)


def _peak_ways(view: Any, estimate: AmbiguityEstimate, peak: Peak) -> dict[str, Callable[[], Mask]]:
    """The ways to the mask of a candidate."""
    from clue_ros.model.masks import box_mask, grabcut_mask, peak_object_mask
    from clue_ros.model.peaks import peak_masks

    size = (view.width, view.height)
    return {
        "box": lambda: box_mask(peak.box, *size),
        "attention peak": lambda: peak_masks(estimate.attention, (peak,), *size)[0],
        "GrabCut": lambda: grabcut_mask(view.image, peak.box),
        "GrabCut around it, map as prior": lambda: peak_object_mask(
            view.image, peak, estimate.attention
        ),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval masks``."""
    add_options(parser, MaskOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval masks``; the exit status."""
    options = read_options(MaskOptions, args)
    scenes = require_scenes(options.tabletop, options.split, options.scenes, options.world)
    clue = options.model.load()
    result = measure(clue, with_progress(scenes), options)
    options.output.write_records(result.records)
    options.output.show(
        result.summary(), lambda markdown: result.text(markdown=markdown), measured(clue)
    )
    return 0
