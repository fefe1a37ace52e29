"""What `clue train` reads: simulator shards and IT2P, as pools and held-out scenes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import It2pImage, find_it2p, it2p_scene, load_it2p
from clue_ros.lab.language.dialogues import Grammar
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import KINDS, Scene
from clue_ros.lab.simulator.shards import how_to_make, kinds_in, read_scenes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.lab.training.augment import ScenePool


@dataclass
class TrainingData:
    """Pools at the model's input size, and the IT2P records in the order of `photos`.

    world: of the simulated scenes, and what language is spoken of everything. kinds: those that the
    scenes can hold, the user's own and those of `--mix` among them. via: `--via`.
    """

    scenes: ScenePool
    photos: ScenePool
    records: list[It2pImage]
    held_out: ScenePool
    held_out_photos: ScenePool
    held_out_records: list[It2pImage]
    world: str = DEFAULT_WORLD
    kinds: tuple[str, ...] = KINDS
    via: bool = False

    @property
    def colors(self) -> tuple[str, ...]:
        """The colours that objects can have."""
        return tuple(world_spec(self.world).colors)

    @property
    def language(self) -> Grammar:
        """How people speak of the pictures."""
        return grammar_of(self.world, via=self.via)


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Options shared by every command that reads what training reads."""
    parser.add_argument(
        "--tabletop",
        type=Path,
        default=DEFAULT_FOLDER,
        help="simulator shards (clue data tabletop)",
    )
    parser.add_argument(
        "--world",
        choices=tuple(WORLDS),
        default=DEFAULT_WORLD,
        help="of the shards, and how people speak of them",
    )
    parser.add_argument(
        "--it2p",
        type=Path,
        default=None,
        help="IT2P folder; default: where CLUE_IT2P says, else none",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--threads", type=int, default=0, help="CPU threads; 0 leaves PyTorch's default"
    )


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Options shared by every command that trains."""
    add_source_arguments(parser)
    parser.add_argument(
        "--scenes", type=int, default=None, help="use at most this many training scenes"
    )
    parser.add_argument(
        "--mix",
        type=mixed_world,
        action="append",
        default=[],
        metavar="WORLD=SCENES",
        help="so many training scenes of another world beside them, spoken of as in --world",
    )
    parser.add_argument(
        "--run",
        type=Path,
        default=Path("runs/tabletop"),
        help="states and logs; resumed when present",
    )
    parser.add_argument("--seed", type=int, default=0)


def data_notes(args: argparse.Namespace, data: TrainingData) -> dict[str, Any]:
    """What a run's notes say of its data; a run with other data is not resumed."""
    return {
        "world": args.world,
        "mix": [list(more) for more in args.mix],
        "scenes": len(data.scenes),
        "photos": len(data.photos),
    }


def add_via_argument(parser: argparse.ArgumentParser) -> None:
    """The option of the commands that teach what is said."""
    parser.add_argument(
        "--via",
        action="store_true",
        help='answer "the third mug from the left" with the boxes of the three in turn',
    )


def mixed_world(text: str) -> tuple[str, int]:
    """An option's WORLD=SCENES. ArgumentTypeError says what is wrong with it."""
    world, _, count = text.partition("=")
    if world not in WORLDS or not count.isdecimal() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: want WORLD=SCENES, for example blocks=2000; worlds: {', '.join(WORLDS)}"
        )
    return world, int(count)


def all_kinds(args: argparse.Namespace) -> tuple[str, ...]:
    """The kinds that the training scenes of the options can hold, those of `--world` first."""
    worlds = [args.world, *(world for world, _ in args.mix)]
    kinds = (kind for world in worlds for kind in kinds_in(args.tabletop, "train", world))
    return tuple(dict.fromkeys(kinds))


def load_photos(root: Path | None, split: str, size: int) -> tuple[ScenePool, list[It2pImage]]:
    """IT2P photographs of a split as scenes; one with an unknown colour is named and left out."""
    records: list[It2pImage] = []
    scenes: list[Scene] = []
    if root is not None:
        for record in load_it2p(root).select(split):
            try:
                scenes.append(it2p_scene(record))
                records.append(record)
            except ValueError as error:
                print(f"left out: {error}", file=sys.stderr)
    return ScenePool(scenes, size), records


def load_training_data(
    args: argparse.Namespace,
    size: int,
    *,
    held_out: int = 400,
    names: Sequence[str] = ("tabletop", "it2p"),
) -> TrainingData:
    """Read everything into memory: about 150 kB a picture at 224 px.

    names: which of the two; the other's pools stay empty. FileNotFoundError says what to make,
    ClueError names a shard that is damaged.
    """
    root = (args.it2p if args.it2p is not None else find_it2p()) if "it2p" in names else None
    if root is None and "tabletop" not in names:
        raise ClueError("IT2P not found: set CLUE_IT2P or give --it2p DIR (it holds data/)")
    if root is None and "it2p" in names:
        print("IT2P not found (set CLUE_IT2P): training on simulated scenes alone", file=sys.stderr)
    photos, records = load_photos(root, "train", size)
    val_photos, val_records = load_photos(root, "val", size)
    try:
        shards = args.tabletop if "tabletop" in names else None
        scenes = ScenePool(_training_scenes(shards, args) if shards else (), size)
        val = ScenePool(read_scenes(shards, "val", held_out, args.world) if shards else (), size)
    except ValueError as error:
        raise ClueError(str(error)) from error
    print(
        f"{len(scenes)} training scenes, {len(photos)} IT2P photographs;"
        f" validation {len(val)} and {len(val_photos)}",
        file=sys.stderr,
    )
    return TrainingData(
        scenes,
        photos,
        records,
        val,
        val_photos,
        val_records,
        args.world,
        all_kinds(args),
        via=getattr(args, "via", False),
    )


def _training_scenes(shards: Path, args: argparse.Namespace) -> Iterator[Scene]:
    """Those of `--world`, then of each `--mix`; FileNotFoundError where a mixed world has fewer."""
    yield from read_scenes(shards, "train", args.scenes, args.world)
    for world, count in args.mix:
        colors = set(world_spec(world).colors) - set(world_spec(args.world).colors)
        if colors:
            raise ClueError(f"--mix {world}: {args.world} has no {', '.join(sorted(colors))}")
        scenes = list(read_scenes(shards, "train", count, world))
        yield from scenes
        if len(scenes) < count:
            raise FileNotFoundError(how_to_make(shards, "train", count, world))
