"""Options that several `clue train` commands share; the classes of the commands inherit them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.options import option, required
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.lab.training.loop import EMBEDDED_FINAL_RATE
from clue_ros.lab.training.parallel import pick_device
from clue_ros.model.loading import DEFAULT_MODEL

MOST_WORKERS = 16  # that are started unasked
EMBEDDED_RECIPE = {"lr": 7e-4, "final_rate": EMBEDDED_FINAL_RATE}  # of both adapters


def mixed_world(text: str) -> tuple[str, int]:
    """Read WORLD=SCENES. Raises ArgumentTypeError with the reason."""
    world, _, count = text.partition("=")
    if world not in WORLDS or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: want WORLD=SCENES, for example blocks=2000; worlds: {', '.join(WORLDS)}"
        )
    return world, int(count)


@dataclass(frozen=True, kw_only=True)
class SceneOptions:
    """Options: source of the simulated scenes, and the model's device."""

    tabletop: Path = option(DEFAULT_FOLDER, "folder of the simulated scenes (clue data tabletop)")
    world: str = option(
        DEFAULT_WORLD,
        "world of the simulated scenes, which also decides the language",
        choices=tuple(WORLDS),
    )
    device: str = option("auto", "auto, cpu or cuda")
    threads: int = option(0, "number of CPU threads, 0 for PyTorch's own choice")

    def start_device(self) -> torch.device:
        """Set the number of CPU threads; the device."""
        if self.threads:
            torch.set_num_threads(self.threads)
        return pick_device(self.device)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SceneOptions):
    """Options: source of the pictures, and the model's device."""

    it2p: Path | None = option(None, "IT2P folder; default: $CLUE_IT2P, or no photographs")


@dataclass(frozen=True, kw_only=True)
class RunOptions(SceneOptions):
    """Options: a run's training scenes and its state folder."""

    scenes: int | None = option(None, "largest number of simulated training scenes; default: all")
    mix: tuple[tuple[str, int], ...] = option(
        (),
        "add this many training scenes of another world; --world's language describes them",
        type=mixed_world,
        action="append",
        metavar="WORLD=SCENES",
    )
    run: Path | None = option(
        None, "folder of states and logs, resumed if it exists; default: runs/ and the model's name"
    )
    seed: int = option(0, "seed of weights, data order, augmentation and dropout")
    save_every: int = option(200, "steps between two saved states")

    def run_folder(self, model: str | Path) -> Path:
        """The folder of states and logs of a run that trains `model`."""
        return self.run if self.run is not None else Path("runs") / Path(model).name


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(SourceOptions, RunOptions):
    """Options of commands that train weights on augmented pictures."""

    features: Path | None = option(
        None,
        "draw pictures with a stem's stored features from this folder (clue data features) instead"
        " of the simulator's and IT2P's own; a model whose stem reads details needs it",
    )
    workers: int | None = option(
        None,
        "threads, on a GPU processes, that prepare pictures ahead of their step; default: 2, on a"
        f" GPU one fewer than there are cores, {MOST_WORKERS} at most",
    )

    def prefetch_workers(self, device: torch.device) -> int:
        """The given number of threads or processes, or one that suits the device."""
        if self.workers is not None:
            return self.workers
        if device.type != "cuda":
            return 2
        return min(MOST_WORKERS, max(1, len(os.sched_getaffinity(0)) - 1))


@dataclass(frozen=True, kw_only=True)
class GroundingOptions(TrainingOptions):
    """Options of commands that teach groundings."""

    via: bool = option(
        False, 'answer "the third mug from the left" with the boxes of all three mugs in turn'
    )


@dataclass(frozen=True, kw_only=True)
class BaseOptions:
    """Options: an adapter's memory on a frozen base, and its learning rate's decay."""

    base_dtype: str = option(
        "float32", "precision of the frozen base", choices=("float32", "bfloat16")
    )
    accumulate: int = option(1, "number of parts of each process's share of a step")
    final_rate: float = option(0.0, "share of the learning rate that is left after the last step")


@dataclass(frozen=True, kw_only=True)
class FrozenBaseOptions(BaseOptions):
    """Options: the training of an adapter on a frozen base."""

    gradient_checkpointing: bool = option(False, "use less memory and more time")


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(RunOptions, BaseOptions):
    """Options of commands that write an adapter of a model."""

    model: str = required("base model: a folder, a name or a hub id")
    out: Path | None = option(None, "folder to write; default: in the --model folder")

    def folder(self, part: str) -> Path:
        """The adapter's folder. Raises ClueError if the options do not name it."""
        return named_folder(self.model, part) if self.out is None else self.out


def data_set(*names: str) -> Callable[[str], str]:
    """Argparse type of a data set: one of these names, or MODULE:FUNCTION."""

    def known(text: str) -> str:
        if text in names or re.fullmatch(r"[\w.]+:\w+", text):
            return text
        raise argparse.ArgumentTypeError(
            f"invalid choice: {text!r} (choose from {', '.join(names)}, or MODULE:FUNCTION)"
        )

    return known


def check_shares(batch: int, accumulate: int, processes: int) -> None:
    """Raises ClueError if a step has fewer pictures than parts."""
    parts = processes * accumulate
    if accumulate < 1 or batch < parts:
        raise ClueError(
            f"--batch {batch} cannot be shared by {processes} processes with"
            f" --accumulate {accumulate}: want at least {parts} pictures a step"
        )


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(TrainingOptions, FrozenBaseOptions, LearnerOptions):
    """Options of commands that train an adapter on a frozen base."""


def named_folder(model: str, part: str, option: str = "--out") -> Path:
    """The folder `part` in a model's folder. Raises ClueError unless `model` is a path to it.

    The name of the shipped model is no path: nothing writes into it unless its folder is named.
    """
    if model == DEFAULT_MODEL:
        raise ClueError(
            f"--model {model} is shipped with clue_ros and not written to: give {option} FOLDER"
            f" for the {part}, or the path of the model's folder as --model"
        )
    if not Path(model).is_dir():
        raise ClueError(f"give {option} FOLDER: {model} is no local folder to write the {part} to")
    return Path(model) / part
