"""The training data of adapter A: pictures with sentences and whether each is ambiguous.

Simulated scenes, IT2P, and rows about photographs from anywhere (`lab/data/rows.py`), alone or
together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.data.rows import RowsImage, load_rows, own_rows
from clue_ros.lab.options import option
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.datasets import (
    PHOTOS,
    SIMULATED,
    TrainingData,
    load_training_data,
    tell_problems,
)
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import TrainingOptions, data_set
from clue_ros.lab.training.photographs import Fit, Pixels, RandomPhotographs, fit_to, positions
from clue_ros.lab.training.samples import (
    PER_PICTURE,
    Query,
    Sample,
    adapter_samples,
    detect_query,
    held_out_adapter_samples,
)

ROWS = "rows"
HELD_OUT = 400  # validation photographs of the rows at most
_RASTER = 128  # side of the instance map drawn from boxes


@dataclass(frozen=True, kw_only=True)
class DetectorDataOptions(TrainingOptions):
    """The data sets of adapter A."""

    data: tuple[str, ...] = option(
        (SIMULATED, PHOTOS),
        f"data sets to train on: {SIMULATED}, {PHOTOS}, {ROWS}, or rows that a function of your own"
        " yields (docs/bring-your-own.md); default: tabletop it2p",
        nargs="+",
        type=data_set(SIMULATED, PHOTOS, ROWS),
        metavar="NAME|MODULE:FUNCTION",
    )
    rows: tuple[Path, ...] = option(
        (), "files of rows: picture, sentence, ambiguous (docs/rows.md)", type=Path, nargs="+"
    )
    rows_share: float = option(0.5, "share of a step's pictures from rows beside other data sets")

    def __post_init__(self) -> None:
        """Raises ClueError for invalid options."""
        if not 0 < self.rows_share <= 1:
            raise ClueError(f"--rows-share {self.rows_share} is not a share above 0 and up to 1")
        if (ROWS in self.data) != bool(self.rows):
            raise ClueError("--data rows and --rows FILE belong together: give both or neither")


class RowsPhotographs(RandomPhotographs[RowsImage]):
    """Photographs of rows, with the detector's queries about them."""

    def __init__(
        self,
        images: Sequence[RowsImage],
        fit: Fit,
        *,
        instruction: str,
        most: int = PER_PICTURE,
        seed: int = 0,
    ) -> None:
        super().__init__(images, fit, most=most, seed=seed, name=ROWS)
        self._instruction = instruction

    def queries(self, item: RowsImage) -> list[Query]:
        """A query for each sentence; without boxes it means no object in particular."""
        boxes = _boxes(item)
        queries = []
        for sentence in item.sentences:
            meant = [boxes.index(box) for box in sentence.boxes] if boxes else []
            query = detect_query(sentence.text, meant, self._instruction)
            queries.append(replace(query, ambiguous=sentence.ambiguous))
        return queries

    def scene(self, item: RowsImage, image: Pixels) -> Scene:
        """The photograph with an object for each box."""
        boxes = [box.in_fractions(*item.size) for box in _boxes(item)]
        instances = np.zeros((_RASTER, _RASTER), np.uint8)
        # large boxes first, so that a small one before or in it is seen
        for number in sorted(range(len(boxes)), key=lambda n: -boxes[n].area):
            x0, y0, x1, y1 = (round(side * _RASTER) for side in boxes[number].as_tuple())
            instances[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = number + 1
        objects = (SceneObject("object", "", box.as_tuple()) for box in boxes)
        return Scene(image, tuple(objects), instances)


def _boxes(item: RowsImage) -> list[Box]:
    """All boxes in pixels of a picture's sentences, each once; none unless all have theirs."""
    found = [box for s in item.sentences for box in s.boxes]
    boxes = list(dict.fromkeys(found))
    known = all(sentence.boxes for sentence in item.sentences)
    return boxes if known and len(boxes) < 256 else []  # an instance map counts to 255


@dataclass(frozen=True)
class DetectorData:
    """scenes: the simulator's and IT2P's. rows, rows_held_out: of `--rows`. instruction: the word.

    rows_share: share of a step's pictures that come from rows.
    """

    instruction: str
    scenes: TrainingData | None
    rows: RandomPhotographs[Any] | None = None
    rows_held_out: RowsPhotographs | None = None
    rows_share: float = 0.0

    def samples(self, settings: TrainingSettings, step: int) -> list[Sample]:
        """The `settings.batch` pictures of a step; a function of (seed, step) alone."""
        out: list[Sample] = []
        if self.rows is not None:
            out = [self.rows(position) for position in positions(settings, step, self.rows_share)]
        if self.scenes is None or len(out) == settings.batch:
            return out
        rest = replace(settings, batch=settings.batch - len(out))
        return adapter_samples(self.scenes, rest, step, self.instruction) + out

    def held_out(self, per_picture: int = 4, most: int | None = None) -> dict[str, list[Sample]]:
        """Fixed validation samples of each data set; of `most` pictures each at most."""
        out: dict[str, list[Sample]] = {}
        if self.scenes is not None:
            out = held_out_adapter_samples(self.scenes, self.instruction, per_picture=per_picture)
        out = {name: samples[:most] for name, samples in out.items()}
        if self.rows_held_out is not None:
            count = len(self.rows_held_out)
            out[ROWS] = [self.rows_held_out(i) for i in range(count)[:most]]
        return out

    def notes(self, options: TrainingOptions) -> dict[str, Any]:
        """The data sets and their sizes; a run with other data is not resumed."""
        notes = {} if self.scenes is None else self.scenes.notes(options)
        if self.rows is not None:
            notes |= {"rows": len(self.rows.items), "rows_share": self.rows_share}
        return notes


def load_detector_data(
    options: DetectorDataOptions, processor: Any, instruction: str, report: Path | None
) -> DetectorData:
    """Read the data sets of `--data`; the rows' photographs stay on disk.

    report: a file for unusable rows. Raises ClueError naming missing data.
    """
    scenes = None
    if drawn := {SIMULATED, PHOTOS} & set(options.data):
        size = processor.image_processor.size["height"]
        scenes = load_training_data(options, size, sources=drawn)
    own = [name for name in options.data if ":" in name]
    if not own and not options.rows:
        return DetectorData(instruction, scenes)
    images: dict[str, RowsImage] = {}
    problems: list[str] = []
    sources = [
        *((file, load_rows(file)) for file in options.rows),
        *((n, own_rows(n)) for n in own),
    ]
    for file, found in sources:
        problems += found.problems
        for image in found.images:
            if image.id in images:
                problems.append(f"{file}: {image.path} is in another file too: left out here")
            images.setdefault(image.id, image)
    tell_problems(problems, report)
    by_split = {
        split: [i for i in images.values() if i.split == split] for split in ("train", "val")
    }
    count = {split: sum(len(i.sentences) for i in by_split[split]) for split in by_split}
    print(
        f"rows: {count['train']} sentences about {len(by_split['train'])} photographs;"
        f" validation {count['val']} about {len(by_split['val'])}",
        file=sys.stderr,
    )
    held_out = by_split["val"][:HELD_OUT]
    if not held_out and scenes is None:
        raise ClueError("the rows have no photograph for validation: give some the split val")
    fit = fit_to(processor)
    return DetectorData(
        instruction,
        scenes,
        RowsPhotographs(by_split["train"], fit, instruction=instruction, seed=options.seed),
        RowsPhotographs(held_out, fit, instruction=instruction, most=0) if held_out else None,
        options.rows_share if scenes is not None else 1.0,
    )
