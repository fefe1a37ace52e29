"""`clue data tabletop`: render simulator scenes to shards, in several processes, resumable.

clue data tabletop --scenes 12000                            the default world, for training
clue data tabletop --world novel --split test --scenes 300   a world for evaluation only
clue data tabletop --world novel --contact-sheet FILE.png    a dozen scenes in one picture
clue data tabletop --world rich --scenes 20000               household objects in clutter
clue data tabletop --world rich --meshes DIR                 with your own meshes
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.physics import open_world
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.user_meshes import read_meshes, with_meshes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec

DEFAULT_FOLDER = Path("data/tabletop")
PICTURE_WIDTH = 640  # pixels of a 4:3 picture written as PNG

SCENES = 12  # of a contact sheet
COLUMNS = 3
TILE_WIDTH = 320  # pixels
COLORS = 200
INK = (255, 240, 60)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--world", choices=tuple(WORLDS), default=DEFAULT_WORLD, help="kind of scenes to render"
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="folder for the shards"
    )
    parser.add_argument(
        "--split", choices=shards.SPLITS, default="train", help="part of the data set to render"
    )
    parser.add_argument(
        "--scenes", type=int, default=20000, metavar="N",
        help="number of scenes, rounded up to whole shards",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the scenes")
    parser.add_argument(
        "--png", action="store_true", help="write PNG pictures and JSON files instead of shards"
    )
    parser.add_argument(
        "--contact-sheet", type=Path, metavar="FILE",
        help="write one PNG picture of a dozen scenes instead of shards",
    )  # fmt: skip
    parser.add_argument(
        "--meshes", type=Path, metavar="DIR",
        help="folder with your own meshes to add to the world rich or rich-unseen",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1), metavar="N",
        help="number of processes that render shards",
    )  # fmt: skip


@dataclass(frozen=True)
class RenderSettings:
    """Which scenes to render, and where to. meshes: a folder of the user's own meshes."""

    world: str
    split: str
    seed: int
    scenes: int
    out: Path
    meshes: Path | None

    def spec(self) -> tuple[WorldSpec, str]:
        """The world with the user's meshes, and their digest ("" without). Raises ClueError."""
        if self.meshes is None:
            return world_spec(self.world), ""
        own = read_meshes(self.meshes)
        return with_meshes(world_spec(self.world), own), own.digest

    def path(self, index: int) -> Path:
        """The file of one shard."""
        return shards.shard_path(self.out, self.split, self.seed, index, self.world)

    def open(self, spec: WorldSpec, index: int, width: int | None = None) -> TabletopWorld:
        """Open the world that draws one shard."""
        return open_world(spec, shards.shard_seed(self.split, self.seed, index, self.world), width)


def run(args: argparse.Namespace) -> int:
    """Render what is missing; 0 when everything is there. ClueError if nothing can be rendered."""
    settings = RenderSettings(args.world, args.split, args.seed, args.scenes, args.out, args.meshes)
    try:
        if args.contact_sheet is not None:
            write_contact_sheet(settings, args.contact_sheet)
        elif args.png:
            write_pictures(settings)
        else:
            write_shards(settings, args.processes)
    except RuntimeError as error:  # no renderer; the message says what to install
        raise ClueError(str(error)) from error
    return 0


def write_shards(settings: RenderSettings, processes: int) -> None:
    """Render the missing shards and keep those that exist.

    ClueError where the existing ones were made with other meshes.
    """
    if settings.meshes is not None:
        for problem in read_meshes(settings.meshes).problems:
            print(f"note: {problem}", file=sys.stderr)
    spec, digest = settings.spec()
    for path in shards.list_shards(settings.out, settings.split, settings.world)[:1]:
        if shards.meshes_of(path) != digest:
            raise ClueError(f"{path}: was made with other meshes; give another folder with --out")

    wanted = -(-settings.scenes // spec.scenes_per_shard)
    missing = [i for i in range(wanted) if not settings.path(i).exists()]
    print(
        f"{settings.split}: {wanted} shards wanted, {len(missing)} to make in {settings.out}",
        file=sys.stderr,
    )
    if not missing:
        return
    with multiprocessing.get_context("spawn").Pool(max(1, min(processes, len(missing)))) as pool:
        done = pool.imap_unordered(partial(_write_shard, settings, spec.scenes_per_shard), missing)
        for _ in tqdm(done, total=len(missing), unit="shard"):
            pass


def _write_shard(settings: RenderSettings, count: int, index: int) -> None:
    """Render one shard (in a worker process)."""
    # Each process has one renderer, whose software OpenGL would start one thread a core.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    spec, digest = settings.spec()
    world = settings.open(spec, index)
    try:
        scenes = [world.scene() for _ in range(count)]
        shards.write_shard(settings.path(index), scenes, settings.world, spec=spec, meshes=digest)
    finally:
        world.close()


def write_pictures(settings: RenderSettings) -> None:
    """Write scenes as PNG pictures 640 pixels wide, each with its ground truth as JSON beside it.

    The ground truth: kind, color and box [x_min, y_min, x_max, y_max] in pixels of every object.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    world = settings.open(settings.spec()[0], 0, PICTURE_WIDTH)
    for i in range(settings.scenes):
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
        path = settings.path(i)
        cv2.imwrite(str(path.with_suffix(".png")), scene.image[..., ::-1])
        path.with_suffix(".json").write_text(json.dumps({"objects": truth}, indent=1))
    world.close()


def write_contact_sheet(settings: RenderSettings, path: Path) -> None:
    """Draw SCENES scenes with their ground truth as one PNG, in few colours to keep it small."""
    world = settings.open(settings.spec()[0], 0, TILE_WIDTH)
    tiles = [_labelled(world.scene()) for _ in range(SCENES)]
    world.close()
    height = max(t.shape[0] for t in tiles)
    sheet = np.full((-(-SCENES // COLUMNS) * height, COLUMNS * TILE_WIDTH, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // COLUMNS * height, i % COLUMNS * TILE_WIDTH
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    path.parent.mkdir(parents=True, exist_ok=True)
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
