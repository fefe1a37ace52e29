"""What adapter B is trained on: pictures with dialogue moments from one data set or several.

A step's pictures are slots, each filled by whoever needs it: processes that share a step read
only their own photographs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from clue_ros.data.invig import InvigSample
from clue_ros.errors import ClueError
from clue_ros.training.adapters_data import Sample, draw_samples, held_out_samples
from clue_ros.training.data import TrainingData, data_notes, load_training_data
from clue_ros.training.invig_pictures import (
    InvigPictures,
    fit_to,
    load_splits,
    split_episodes,
)
from clue_ros.training.loop import Settings

DATA = ("tabletop", "it2p", "invig", "episodes")
MASKED = {"tabletop", "it2p"}  # data sets that know where each object is
HELD_OUT = 100  # pictures of each

Picture = list[Sample]
Slot = Callable[[], Picture]


@dataclass(frozen=True)
class IvgData:
    """scenes: the simulator's and IT2P's. invig: dialogues. invig_share: of a step's pictures.

    Dialogues are InViG's, a robot's own (episodes), or both; held out by the data set's name.
    """

    scenes: TrainingData | None
    invig: InvigPictures | None
    invig_held_out: dict[str, list[Slot]]
    invig_share: float
    told: dict[str, int] = field(default_factory=dict)  # dialogues of each data set

    def slots(self, settings: Settings, step: int) -> list[Slot]:
        """The `settings.batch` pictures of a step; a function of (seed, step) alone."""
        count = 0
        out: list[Slot] = []
        if self.invig is not None:
            first, end = (int(n * settings.batch * self.invig_share) for n in (step, step + 1))
            count = end - first
            out = [partial(self.invig, position) for position in range(first, end)]
        if self.scenes is None or count == settings.batch:
            return out
        part = replace(settings, batch=settings.batch - count)
        drawn = draw_samples(self.scenes, part, step, "clarify")
        return [partial(_same, picture) for picture in drawn] + out

    def held_out(self) -> dict[str, list[Slot]]:
        """Fixed validation pictures of each data set, with their queries."""
        out: dict[str, list[Slot]] = {}
        if self.scenes is not None:
            samples = held_out_samples(self.scenes, "clarify", per_picture=2)
            for name, pictures in samples.items():
                out[name] = [partial(_same, picture) for picture in pictures[:HELD_OUT]]
        return {**out, **self.invig_held_out}

    def notes(self, args: argparse.Namespace) -> dict[str, Any]:
        """What there is, and how much of it."""
        simulated = {} if self.scenes is None else data_notes(args, self.scenes)
        return {**simulated, **self.told}


def _same(picture: Picture) -> Picture:
    return picture


def _sizes(data: TrainingData) -> dict[str, int]:
    return {"scenes": len(data.scenes), "photos": len(data.photos)}


def add_ivg_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say what to train on, beside those of every training command."""
    parser.add_argument(
        "--data", nargs="+", choices=DATA, default=["tabletop", "it2p"], help="one or several"
    )
    parser.add_argument("--invig", default=None, help="InViG: a folder, a file or a hub id")
    parser.add_argument(
        "--episodes", default="episodes", help="the folder that the robot's `record` named"
    )
    parser.add_argument("--invig-language", choices=("en", "cn"), default="en")
    parser.add_argument(
        "--invig-share",
        type=float,
        default=0.5,
        help="of InViG and episodes in a step",
    )
    parser.add_argument(
        "--pairs", type=int, default=3, help="training pairs of such a dialogue a step; 0: all"
    )


def load_ivg_data(args: argparse.Namespace, processor: Any, report: Path | None) -> IvgData:
    """Read what `--data` names; InViG's photographs stay on disk.

    report: a file for InViG's rows that cannot be used. ClueError says what is missing.
    """
    names = set(args.data)
    scenes = None
    if names & MASKED:
        size = processor.image_processor.size["height"]
        scenes = load_training_data(args, size, names=tuple(sorted(names & MASKED)))
    told = sorted(names - MASKED)
    if not told:
        return IvgData(scenes, None, {}, 0.0)
    if not 0 < args.invig_share <= 1:
        raise ClueError(f"--invig-share {args.invig_share} is not a share above 0 and up to 1")
    fit = fit_to(processor)
    train: list[InvigSample] = []
    kept: dict[str, list[Slot]] = {}
    counts: dict[str, int] = {}
    for name in told:
        samples, held_out = _dialogues(name, args, report)
        print(f"{len(samples)} {name} dialogues; validation {len(held_out)}", file=sys.stderr)
        train += samples
        counts[name] = len(samples)
        if held_out:
            fixed = InvigPictures(held_out, fit, pairs=args.pairs, seed=0)
            kept[name] = [partial(fixed, i) for i in range(len(fixed))]
    share = args.invig_share if scenes is not None else 1.0
    pictures = InvigPictures(train, fit, pairs=args.pairs, seed=args.seed)
    return IvgData(scenes, pictures, kept, share, counts)


def _dialogues(
    name: str, args: argparse.Namespace, report: Path | None
) -> tuple[list[InvigSample], list[InvigSample]]:
    """Dialogues to train on and to hold out, of "invig" or "episodes"."""
    if name == "episodes":
        return split_episodes(args.episodes, report)
    if args.invig is None:
        raise ClueError("--data invig needs --invig: a folder, a file, or a hub id")
    return load_splits(args.invig, args.invig_language, report)
