"""The training data in memory: simulated scenes and IT2P photographs, as pools to draw from."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p
from clue_ros.lab.data.it2p_boxes import it2p_scenes
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.public_tasks import PublicTasks, public_tasks
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.object_catalogue import COLORS as SCANNED_COLORS
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import how_to_make, kinds_in, read_scenes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec
from clue_ros.lab.training.augment import Picture, ScenePool
from clue_ros.lab.training.options import RunOptions, SourceOptions, TrainingOptions
from clue_ros.lab.training.stored import IT2P, StoredPool, stored_paths
from clue_ros.model.details import details_in

SIMULATED, PHOTOS = "tabletop", "it2p"  # as `--data` calls them
HELD_OUT = 400  # simulated validation scenes at most
_SHOWN = 20  # rows named on the terminal; the rest go to the file


Pool = ScenePool | StoredPool


@dataclass
class TrainingData:
    """Pools of pictures at the model's input size.

    world: of the simulated scenes, which decides the language of all sentences. kinds: the kinds
    that the scenes can hold, of the user's own meshes and of `--mix` too. via: whether a grounding
    names the boxes that it counts before the target's (`--via`). public: whether the base learns
    PaliGemma's public tasks too (`--tasks public`).
    """

    scenes: Pool
    photos: Pool
    held_out: Pool
    held_out_photos: Pool
    world: str = DEFAULT_WORLD
    kinds: tuple[str, ...] = world_spec(DEFAULT_WORLD).kinds
    via: bool = False
    public: bool = False

    @property
    def colors(self) -> tuple[str, ...]:
        """The colours that objects can have, those of scanned objects too."""
        spec = world_spec(self.world)
        scanned = SCANNED_COLORS if spec.assets is not None else ()
        return tuple(dict.fromkeys([*spec.colors, *scanned]))

    @property
    def language(self) -> RichGrammar:
        """The sentences about the pictures."""
        return grammar_of(self.world, via=self.via)

    @property
    def public_tasks(self) -> PublicTasks | None:
        """The sentences of PaliGemma's public tasks, if the base learns them."""
        return public_tasks(self.world) if self.public else None

    def draw(self, rng: np.random.Generator, photo_share: float, *, turns: bool = False) -> Picture:
        """A random picture, augmented; a photograph with probability `photo_share`."""
        photo = len(self.photos) > 0 and (rng.uniform() < photo_share or not len(self.scenes))
        pool = self.photos if photo else self.scenes
        return pool.augmented(int(rng.integers(len(pool))), rng, turns=turns)

    def notes(self, options: TrainingOptions) -> dict[str, Any]:
        """The data sets for a run's notes; a run with other data is not resumed."""
        return {
            "world": self.world,
            "mix": options.mix,
            "scenes": len(self.scenes),
            "photos": len(self.photos),
        }


def load_training_data(
    options: TrainingOptions,
    size: int,
    *,
    sources: Collection[str] = (SIMULATED, PHOTOS),
    via: bool = False,
    public: bool = False,
) -> TrainingData:
    """Read pictures into memory, about 150 kB each at 224 px.

    sources: SIMULATED, PHOTOS or both; the other's pools stay empty. Raises FileNotFoundError
    naming the missing scenes, ClueError for a damaged shard or missing IT2P.
    """
    photos = it2p_folder(options) if PHOTOS in sources else None
    if photos is None and SIMULATED not in sources:
        raise ClueError("IT2P not found: set CLUE_IT2P or give --it2p DIR (it holds data/)")
    if photos is None and PHOTOS in sources:
        print("IT2P not found (set CLUE_IT2P): training on simulated scenes alone", file=sys.stderr)
    pools: tuple[Pool, Pool, Pool, Pool]
    if options.features is not None:
        pools = _stored_pools(options, options.features, photos, sources)
    else:
        scenes = training_scenes(options) if SIMULATED in sources else iter(())
        pools = (
            _pool(scenes, size),
            load_photos(photos, "train", size),
            load_scenes(options, size) if SIMULATED in sources else ScenePool((), size),
            load_photos(photos, "val", size),
        )
    data = TrainingData(
        *pools,
        options.world,
        all_kinds(options),
        via,
        public,
    )
    print(
        f"{len(data.scenes)} training scenes, {len(data.photos)} IT2P photographs;"
        f" validation {len(data.held_out)} and {len(data.held_out_photos)}",
        file=sys.stderr,
    )
    return data


def _stored_pools(
    options: TrainingOptions, folder: Path, photos: Path | None, sources: Collection[str]
) -> tuple[Pool, Pool, Pool, Pool]:
    """The pools of `load_training_data` from the files of `clue data features`.

    All files of `--world` and of each world of `--mix` are used. Raises FileNotFoundError.
    """
    worlds = [options.world, *(world for world, _ in options.mix)] if SIMULATED in sources else []
    made: dict[str, list[Path]] = {"train": [], "val": []}
    for world in worlds:
        found = stored_paths(folder, world, "train")
        if not found:
            raise FileNotFoundError(
                f"no features of {world} in {folder}: make them with `clue data features --model"
                f" MODEL --world {world} --out {folder}`"
            )
        made["train"] += found
    if worlds:
        made["val"] = stored_paths(folder, options.world, "val")
    pools: list[Pool] = []
    for split, paths in made.items():
        pools.append(StoredPool(paths))
        _, records = it2p_scenes(photos, split)
        pools.append(StoredPool(stored_paths(folder, IT2P, split) if records else (), records))
    scenes, shots, held_out, held_out_shots = pools
    return scenes, shots, held_out, held_out_shots


def load_validation_data(
    options: SourceOptions, vision_config: Any, *, own_size: bool = False
) -> TrainingData:
    """Validation scenes and photographs; the pools to draw training pictures from stay empty.

    Pictures have the size of the vision tower's, or their own where its stem reads details, and
    with `own_size`.
    """
    own_size = own_size or details_in(vision_config) is not None
    size = None if own_size else int(vision_config.image_size)
    scenes, photos = load_scenes(options, size), load_photos(it2p_folder(options), "val", size)
    none = ScenePool((), size)
    kinds = kinds_in(options.tabletop, "train", options.world)
    return TrainingData(none, none, scenes, photos, options.world, kinds)


def load_scenes(options: SourceOptions, size: int | None) -> ScenePool:
    """Simulated validation scenes of `--world`."""
    return _pool(read_scenes(options.tabletop, "val", HELD_OUT, options.world), size)


def load_photos(root: Path | None, split: str, size: int | None) -> ScenePool:
    """IT2P photographs of a split."""
    scenes, records = it2p_scenes(root, split)
    return ScenePool(scenes, size, records)


def tell_problems(problems: Sequence[str], report: Path | None) -> None:
    """Print the first rows that were left out on stderr; write all of them to `report`."""
    for problem in problems[:_SHOWN]:
        print(f"note: {problem}", file=sys.stderr)
    if report is None or not problems:
        return
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("".join(f"{problem}\n" for problem in problems))
    if len(problems) > _SHOWN:
        print(f"note: {len(problems)} rows in all, see {report}", file=sys.stderr)


def it2p_folder(options: SourceOptions) -> Path | None:
    """The folder of `--it2p` or `$CLUE_IT2P`."""
    return options.it2p if options.it2p is not None else find_it2p()


def all_kinds(options: TrainingOptions) -> tuple[str, ...]:
    """The kinds that the training scenes can hold, those of `--world` first."""
    worlds = [options.world, *(world for world, _ in options.mix)]
    kinds = (kind for world in worlds for kind in kinds_in(options.tabletop, "train", world))
    return tuple(dict.fromkeys(kinds))


def _pool(scenes: Iterator[Scene], size: int | None) -> ScenePool:
    try:
        return ScenePool(scenes, size)
    except ValueError as error:
        raise ClueError(str(error)) from error


def training_scenes(options: RunOptions) -> Iterator[Scene]:
    """The scenes of `--world`, then of each `--mix`."""
    shards = options.tabletop
    yield from read_scenes(shards, "train", options.scenes, options.world)
    for world, count in options.mix:
        colors = set(world_spec(world).colors) - set(world_spec(options.world).colors)
        if colors:
            raise ClueError(f"--mix {world}: {options.world} has no {', '.join(sorted(colors))}")
        scenes = list(read_scenes(shards, "train", count, world))
        yield from scenes
        if len(scenes) < count:
            raise FileNotFoundError(how_to_make(shards, "train", count, world))
