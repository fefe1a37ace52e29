"""`clue data tabletop`: render simulator scenes to shards, in several processes, resumable.

clue data tabletop --scenes 20000                            household objects in clutter (rich)
clue data tabletop --meshes DIR                              with your own meshes
clue data tabletop --world rich-unseen --split test          a world for evaluation only
clue data tabletop --world table --assets DIR                scanned objects under real light
clue data tabletop --preset paper                            CLUE's Dataset 1, all splits
clue data tabletop --contact-sheet FILE.png                  a dozen scenes in one picture

Filament draws the world `table`, and OpenGL where Filament cannot run: --renderer chooses.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.simulator import filament, shards
from clue_ros.lab.simulator.assets import Assets, read_assets
from clue_ros.lab.simulator.physics import open_world
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.table import RENDERERS, TableWorld
from clue_ros.lab.simulator.user_meshes import read_meshes
from clue_ros.lab.simulator.worlds import (
    DEFAULT_WORLD,
    PAPER,
    WORLDS,
    with_assets,
    with_meshes,
    world_spec,
)

DEFAULT_FOLDER = Path("data/tabletop")
PICTURE_WIDTH = 640  # pixels of a 4:3 picture written as PNG
SCENES_OF_A_SPLIT = 20000  # rendered unasked
PAPER_SCENES = 2000  # of the paper's Dataset 1, in all splits

SCENES = 12  # of a contact sheet
COLUMNS = 3
TILE_WIDTH = 320  # pixels
COLORS, JPEG_QUALITY = 200, 82
INK = (255, 240, 60)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """The options of `clue data tabletop`."""

    world: str = option(DEFAULT_WORLD, "kind of scenes to render", choices=tuple(WORLDS))
    out: Path = option(DEFAULT_FOLDER, "folder for the shards", metavar="DIR")
    split: str = option("train", "part of the data set to render", choices=shards.SPLITS)
    scenes: int | None = option(
        None,
        f"number of scenes, rounded up to whole shards; default: 20000, of a preset {PAPER_SCENES}",
        type=at_least(1),
    )
    preset: str | None = option(
        None,
        f"paper: --scenes scenes of the world {PAPER.name}, 70 %% for train, 15 %% for val and test"
        " each",
        choices=(PAPER.name,),
    )
    seed: int = option(0, "seed of the scenes")
    png: bool = option(False, "write PNG pictures and JSON files instead of shards")
    contact_sheet: Path | None = option(
        None, "write a dozen scenes as one .png or .jpg file instead of shards", metavar="FILE"
    )
    meshes: Path | None = option(
        None, "folder with your own meshes to add to the world rich or rich-unseen", metavar="DIR"
    )
    assets: Path | None = option(
        None,
        "folder with hdri/, textures/ and objects for the worlds table, table-unseen and heaps",
        metavar="DIR",
    )
    objects: tuple[Path, ...] = option(
        (), "more folders or .sh3f files with objects for these worlds", type=Path, nargs="+",
        metavar="DIR",
    )  # fmt: skip
    renderer: str = option(
        "auto",
        "what draws table, table-unseen and heaps: filament, physically based; classic, OpenGL,"
        " simpler light; auto: classic, with a warning, where filament cannot run",
        choices=("auto", *RENDERERS),
    )
    width: int | None = option(
        None,
        "pixels of the widest picture of a shard; default: the world's own (rich 400, table 448)",
        type=at_least(64),
    )
    processes: int = option(
        max(1, (os.cpu_count() or 2) - 1),
        "number of processes that render shards",
        type=at_least(1),
    )

    def spec(self) -> tuple[WorldSpec, str]:
        """The world with the user's meshes or assets, and their digest ("" without).

        Raises ClueError.
        """
        if self.assets is not None or self.objects:
            if self.meshes is not None:
                raise ClueError("--meshes and --assets are for different worlds; give one of them")
            assets = _assets(self.assets, tuple(self.objects))
            return with_assets(world_spec(self.world), assets), assets.digest
        if self.meshes is None:
            return world_spec(self.world), ""
        own = read_meshes(self.meshes)
        return with_meshes(world_spec(self.world), own), own.digest

    def path(self, index: int) -> Path:
        """The file of one shard."""
        return shards.shard_path(self.out, self.split, self.seed, index, self.world)

    def open(
        self, spec: WorldSpec, index: int, width: int | None = None
    ) -> TabletopWorld | TableWorld:
        """Open the world that draws one shard. width: pixels; None is that of the options."""
        seed = shards.shard_seed(self.split, self.seed, index, self.world)
        return open_world(spec, seed, self.width if width is None else width, self.renderer)


@lru_cache(maxsize=1)
def _assets(folder: Path | None, objects: tuple[Path, ...]) -> Assets:
    """The assets, read once a process."""
    return read_assets(folder, objects)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data tabletop`."""
    add_options(parser, RenderOptions)


def run(args: argparse.Namespace) -> int:
    """Render the missing scenes; the exit status. ClueError if nothing can be rendered."""
    options = with_renderer(read_options(RenderOptions, args))
    if options.preset is not None and (options.png or options.contact_sheet is not None):
        raise ClueError("--preset renders shards of all splits: give --world for pictures")
    try:
        if options.contact_sheet is not None:
            write_contact_sheet(options, options.contact_sheet)
        elif options.png:
            write_pictures(options)
        else:
            for part in parts_of(options):
                write_shards(part)
    except RuntimeError as error:  # no renderer; the message says what to install
        raise ClueError(str(error)) from error
    return 0


def parts_of(options: RenderOptions) -> list[RenderOptions]:
    """The splits that are rendered: that of the options, or all of a preset."""
    if options.preset is None:
        return [options]
    scenes = options.scenes or PAPER_SCENES
    counts = {split: max(1, round(scenes * share)) for split, share in shards.SHARES.items()}
    whole = replace(options, world=options.preset)
    return [replace(whole, split=split, scenes=count) for split, count in counts.items()]


def with_renderer(options: RenderOptions) -> RenderOptions:
    """The options with the renderer that will draw: no "auto" any more, "" for other worlds.

    Where Filament cannot run, "auto" is "classic", with a warning on stderr. ClueError for a
    renderer of another world.
    """
    if world_spec(options.world).assets is None:
        if options.renderer != "auto":
            raise ClueError(
                f"--renderer is for the worlds table, table-unseen and heaps, not {options.world}"
            )
        return replace(options, renderer="")
    if options.renderer != "auto":
        return options
    problem = filament.missing()
    if problem:
        print(
            f"warning: the classic renderer draws, with simpler light: {problem}", file=sys.stderr
        )
    return replace(options, renderer="classic" if problem else "filament")


def write_shards(options: RenderOptions) -> None:
    """Render the missing shards and keep those that exist.

    ClueError where the existing ones were made with other meshes, by another renderer or in
    another width.
    """
    if options.meshes is not None:
        for problem in read_meshes(options.meshes).problems:
            print(f"note: {problem}", file=sys.stderr)
    spec, digest = options.spec()
    for path in shards.list_shards(options.out, options.split, options.world)[:1]:
        if shards.meshes_of(path) != digest:
            raise ClueError(
                f"{path}: was made with other meshes or assets; give another folder with --out"
            )
        if (found := shards.renderer_of(path)) != options.renderer:
            raise ClueError(
                f"{path}: was drawn by the renderer {found}, and {options.renderer} would draw the"
                f" rest: give --renderer {found}, or another folder with --out"
            )
        if (width := shards.width_of(path)) != options.width:
            own = "the world's own width" if width is None else f"--width {width}"
            raise ClueError(f"{path}: was drawn in {own}; give that, or another folder with --out")

    wanted = -(-(options.scenes or SCENES_OF_A_SPLIT) // spec.scenes_per_shard)
    missing = [i for i in range(wanted) if not options.path(i).exists()]
    print(
        f"{options.split}: {wanted} shards wanted, {len(missing)} to make in {options.out}",
        file=sys.stderr,
    )
    if not missing:
        return
    workers = min(options.processes, len(missing))
    # Filament keeps half a gigabyte of every shard until its process ends.
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=4) as pool:
        done = pool.imap_unordered(partial(_write_shard, options, spec.scenes_per_shard), missing)
        for _ in tqdm(done, total=len(missing), unit="shard"):
            pass


def _write_shard(options: RenderOptions, count: int, index: int) -> None:
    """Render one shard (in a worker process)."""
    # Each process has one renderer, whose software OpenGL would start one thread a core.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    spec, digest = options.spec()
    world = options.open(spec, index)
    try:
        scenes = [world.scene() for _ in range(count)]
        shards.write_shard(
            options.path(index), scenes, options.world,
            spec=spec, meshes=digest, renderer=options.renderer, width=options.width,
        )  # fmt: skip
    finally:
        world.close()


def write_pictures(options: RenderOptions) -> None:
    """Write scenes as PNG pictures 640 pixels wide, each with its ground truth as JSON beside it.

    The ground truth: kind, color and box [x_min, y_min, x_max, y_max] in pixels of every object.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    world = options.open(options.spec()[0], 0, options.width or PICTURE_WIDTH)
    for i in range(options.scenes or SCENES_OF_A_SPLIT):
        scene = world.scene()
        height, width = scene.image.shape[:2]
        truth = [
            {
                "kind": o.kind,
                "color": o.color,
                "box": np.round(np.multiply(o.box, (width, height) * 2), 1).tolist(),
            }
            for o in scene.objects
        ]
        path = options.path(i)
        cv2.imwrite(str(path.with_suffix(".png")), scene.image[..., ::-1])
        path.with_suffix(".json").write_text(json.dumps({"objects": truth}, indent=1))
    world.close()


def write_contact_sheet(options: RenderOptions, path: Path) -> None:
    """Draw SCENES scenes with their ground truth as one picture.

    A PNG has few colours to keep it small; a path that ends in .jpg gets a JPEG.
    """
    world = options.open(options.spec()[0], 0, TILE_WIDTH)
    tiles = [_labelled(world.scene()) for _ in range(SCENES)]
    world.close()
    height = max(t.shape[0] for t in tiles)
    sheet = np.full((-(-SCENES // COLUMNS) * height, COLUMNS * TILE_WIDTH, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // COLUMNS * height, i % COLUMNS * TILE_WIDTH
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in (".jpg", ".jpeg"):
        Image.fromarray(sheet).save(path, quality=JPEG_QUALITY, optimize=True)
        return
    few_colors = Image.fromarray(sheet).quantize(COLORS, Image.Quantize.FASTOCTREE)
    few_colors.save(path, optimize=True)


def _labelled(scene: Scene) -> npt.NDArray[np.uint8]:
    """A copy of the picture, uint8 RGB (H, W, 3), with each object's box and name."""
    out: npt.NDArray[np.uint8] = scene.image.copy()
    height, width = out.shape[:2]
    for o in scene.objects:
        x0, y0, x1, y1 = (round(v * n) for v, n in zip(o.box, (width, height) * 2, strict=True))
        cv2.rectangle(out, (x0, y0), (x1 - 1, y1 - 1), INK, 1)
        text, at = f"{o.color} {o.kind}", (x0, max(9, y0 - 3))
        for ink, thick in (((0, 0, 0), 3), (INK, 1)):
            cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.36, ink, thick, cv2.LINE_AA)
    return out
