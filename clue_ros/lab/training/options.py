"""Options of the `clue train` commands: a frozen dataclass for each command, declared once.

A field made with `option` is a command-line option: `base_dtype` is `--base-dtype`. Options that
several commands share are in the classes here; a command's own class inherits them.
"""

from __future__ import annotations

import argparse
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.lab.training.parallel import pick_device
from clue_ros.model.loading import EMBEDDED

T = TypeVar("T")


def option(default: Any, help: str, **more: Any) -> Any:
    """A dataclass field that is a command-line option.

    more: settings of argparse's option; old_name: of an option that was renamed.
    """
    return field(default=default, metadata={"help": help, **more})


def required(help: str) -> Any:
    """A command-line option that must be given."""
    return field(metadata={"help": help, "required": True})


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Declare the options of a dataclass; a field's type decides how its value is read."""
    hints = get_type_hints(options)
    for declared in fields(options):
        hint, settings = hints[declared.name], dict(declared.metadata)
        old_name = settings.pop("old_name", None)
        if declared.default is not MISSING:
            default = declared.default
            settings["default"] = list(default) if isinstance(default, tuple) else default
            if not isinstance(default, (bool, tuple, NoneType)):
                settings["help"] += "; default: %(default)s"
        if hint is bool:
            settings["action"] = "store_true"
        elif bool in get_args(hint):
            settings["action"] = argparse.BooleanOptionalAction
        elif get_origin(hint) is not tuple:
            settings["type"] = (get_args(hint) or (hint,))[0]  # of `Path | None`: Path
        parser.add_argument(f"--{declared.name.replace('_', '-')}", **settings)
        if old_name:  # accepted for a release
            hidden = {
                "dest": declared.name,
                "help": argparse.SUPPRESS,
                "default": argparse.SUPPRESS,
            }
            parser.add_argument(f"--{old_name}", **{**settings, **hidden})


def read_options(options: type[T], args: argparse.Namespace) -> T:
    """The dataclass from parsed arguments. Raises ClueError for values that cannot work."""
    values = {declared.name: getattr(args, declared.name) for declared in fields(options)}  # type: ignore[arg-type]
    return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def mixed_world(text: str) -> tuple[str, int]:
    """Read WORLD=SCENES. Raises ArgumentTypeError that says what is wrong with it."""
    world, _, count = text.partition("=")
    if world not in WORLDS or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: want WORLD=SCENES, for example blocks=2000; worlds: {', '.join(WORLDS)}"
        )
    return world, int(count)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where the pictures come from and where the model runs."""

    tabletop: Path = option(DEFAULT_FOLDER, "folder of the simulated scenes (clue data tabletop)")
    world: str = option(
        DEFAULT_WORLD,
        "world of the simulated scenes, which also decides the language",
        choices=tuple(WORLDS),
    )
    it2p: Path | None = option(None, "IT2P folder; default: $CLUE_IT2P, or no photographs")
    device: str = option("auto", "auto, cpu or cuda")
    threads: int = option(0, "number of CPU threads, 0 for PyTorch's own choice")

    def start_device(self) -> torch.device:
        """Set the number of CPU threads; the device."""
        if self.threads:
            torch.set_num_threads(self.threads)
        return pick_device(self.device)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(SourceOptions):
    """What every command has that trains weights."""

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
class GroundingOptions(TrainingOptions):
    """What the commands have that teach groundings."""

    workers: int | None = option(
        None, "threads that prepare pictures ahead of their step; default: 2, on a GPU 8"
    )

    via: bool = option(
        False, 'answer "the third mug from the left" with the boxes of all three mugs in turn'
    )

    def prefetch_workers(self, device: torch.device) -> int:
        """The given number of threads, or one that suits the device."""
        return self.workers if self.workers is not None else 8 if device.type == "cuda" else 2


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(TrainingOptions):
    """What the commands have that train an adapter on a frozen base."""

    model: str = required("base model: a folder, a name or a hub id")
    out: Path | None = option(None, "folder to write; default: in the --model folder")
    base_dtype: str = option(
        "float32", "precision of the frozen base", choices=("float32", "bfloat16")
    )

    def folder(self, part: str) -> Path:
        """The adapter's folder. Raises ClueError if the options do not name it."""
        return named_folder(self.model, part) if self.out is None else self.out


def named_folder(model: str, part: str, option: str = "--out") -> Path:
    """The folder `part` in a model's folder. Raises ClueError unless `model` is a path to it.

    The name of a shipped model is no path: nothing writes into it unless its folder is named.
    """
    if model in EMBEDDED:
        raise ClueError(
            f"--model {model} is shipped with clue_ros and not written to: give {option} FOLDER"
            f" for the {part}, or the path of the model's folder as --model"
        )
    if not Path(model).is_dir():
        raise ClueError(f"give {option} FOLDER: {model} is no local folder to write the {part} to")
    return Path(model) / part
