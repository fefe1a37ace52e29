"""`clue data tabletop`: render simulator scenes to shards, several processes, resumable.

clue data tabletop --scenes 12000                          the default world, for training
clue data tabletop --world novel --split test --scenes 300   one that training never has
clue data tabletop --world novel --contact-sheet FILE.png  some scenes to look at
clue data tabletop --world rich --scenes 20000               household objects in clutter
clue data tabletop --world rich --meshes DIR                 with your own meshes
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.errors import ClueError
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.objects import read_meshes, with_meshes
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec

# -------------------------------------------------------------------------------------------------
# A contact sheet: scenes of a world side by side, each object with its box and its name.

SCENES = 12
COLUMNS = 3
TILE_WIDTH = 320  # pixels
COLORS = 200
INK = (255, 240, 60)


def labelled(scene: Scene) -> npt.NDArray[np.uint8]:
    """A copy of the picture, uint8 RGB (H, W, 3), with the truth drawn on it."""
    out: npt.NDArray[np.uint8] = scene.image.copy()
    height, width = out.shape[:2]
    for o in scene.objects:
        x0, y0, x1, y1 = (round(v * n) for v, n in zip(o.box, (width, height) * 2, strict=True))
        cv2.rectangle(out, (x0, y0), (x1 - 1, y1 - 1), INK, 1)
        text, at = f"{o.color} {o.kind}", (x0, max(9, y0 - 3))
        for ink, thick in (((0, 0, 0), 3), (INK, 1)):
            cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.36, ink, thick, cv2.LINE_AA)
    return out


def write_contact_sheet(path: Path, world: str, split: str, seed: int, count: int = SCENES) -> None:
    """Draw `count` scenes as one PNG, COLUMNS in a row, in few colours so that it stays small."""
    from clue_ros.lab.simulator.physics import open_world

    first = shards.shard_seed(split, seed, 0, world)
    drawn = open_world(world_spec(world), first, TILE_WIDTH)
    tiles = [labelled(drawn.scene()) for _ in range(count)]
    drawn.close()
    height = max(t.shape[0] for t in tiles)
    sheet = np.full((-(-count // COLUMNS) * height, COLUMNS * TILE_WIDTH, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // COLUMNS * height, i % COLUMNS * TILE_WIDTH
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    path.parent.mkdir(parents=True, exist_ok=True)
    _paletted(sheet).save(path, optimize=True)


def _paletted(image: npt.NDArray[np.uint8]) -> Image.Image:
    """The picture in the COLORS colours that fit it best: a third of the bytes of full colour."""
    pixels = image.reshape(-1, 3)
    some = pixels[:: max(1, len(pixels) // 20000)].astype(np.float32)
    stop = (cv2.TERM_CRITERIA_MAX_ITER, 10, 0.0)
    cv2.setRNGSeed(0)
    _, _, centers = cv2.kmeans(
        some, min(COLORS, len(some)), np.array([]), stop, 1, cv2.KMEANS_PP_CENTERS
    )
    palette = Image.new("P", (1, 1))
    palette.putpalette(centers.round().astype(np.uint8).tobytes())
    return Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)


DEFAULT_FOLDER = Path("data/tabletop")
PICTURE_WIDTH = 640  # pixels of a 4:3 picture written as PNG


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD)
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder for the shards")
    parser.add_argument("--split", choices=shards.SPLITS, default="train")
    parser.add_argument("--scenes", type=int, default=20000, help="rounded up to whole shards")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--png", action="store_true", help="PNG pictures and JSON, not shards")
    parser.add_argument(
        "--contact-sheet", type=Path, metavar="FILE", help="one PNG with a dozen scenes, not shards"
    )
    parser.add_argument(
        "--meshes",
        type=Path,
        metavar="DIR",
        help="your own meshes to add to a rich world",
    )
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))


def spec_of(world: str, meshes: Path | None) -> tuple[WorldSpec, str]:
    """A world, with the user's own meshes, and their digest ("" without). Raises ClueError."""
    spec = world_spec(world)
    if meshes is None:
        return spec, ""
    own = read_meshes(meshes)
    try:
        return with_meshes(spec, own), own.digest
    except ValueError as error:
        raise ClueError(str(error)) from error


def write_pictures(
    folder: Path,
    split: str,
    seed: int,
    count: int,
    world: str = DEFAULT_WORLD,
    meshes: Path | None = None,
) -> None:
    """Draw `count` scenes at 640 pixels as PNG pictures, each with its truth as JSON beside it.

    The truth: kind, color and box [x_min, y_min, x_max, y_max] in pixels of every object.
    """
    import cv2

    from clue_ros.lab.simulator.physics import open_world

    folder.mkdir(parents=True, exist_ok=True)
    first = shards.shard_path(folder, split, seed, 0, world)
    spec, _ = spec_of(world, meshes)
    drawn = open_world(spec, shards.shard_seed(split, seed, 0, world), PICTURE_WIDTH)
    for i in range(count):
        scene = drawn.scene()
        height, width = scene.image.shape[:2]
        size = (width, height, width, height)
        truth = [
            {
                "kind": o.kind,
                "color": o.color,
                "box": [round(v * n, 1) for v, n in zip(o.box, size, strict=True)],
            }
            for o in scene.objects
        ]
        name = first.with_name(f"{first.stem[:-5]}-{i:04d}")
        cv2.imwrite(f"{name}.png", scene.image[..., ::-1])
        Path(f"{name}.json").write_text(json.dumps({"objects": truth}, indent=1))
    drawn.close()


Job = tuple[Path, str, str, int, int, int, Path | None]


def _make(job: Job) -> Path:
    """Render one shard (in a worker process)."""
    # One renderer a process, and software OpenGL would otherwise start a thread a core in each.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    from clue_ros.lab.simulator.physics import open_world

    folder, world, split, seed, index, count, meshes = job
    path = shards.shard_path(folder, split, seed, index, world)
    spec, digest = spec_of(world, meshes)
    drawn = open_world(spec, shards.shard_seed(split, seed, index, world))
    try:
        scenes = [drawn.scene() for _ in range(count)]
        shards.write_shard(path, scenes, world, spec=spec, meshes=digest)
    finally:
        drawn.close()
    return path


def write_shards(
    folder: Path,
    split: str,
    seed: int,
    scenes: int,
    processes: int,
    world: str = DEFAULT_WORLD,
    meshes: Path | None = None,
) -> None:
    """Make the shards that are missing; those that are there are kept as they are.

    ClueError where those that are there were made with other meshes.
    """
    from tqdm import tqdm

    if meshes is not None:
        for problem in read_meshes(meshes).problems:
            print(f"note: {problem}", file=sys.stderr)
    digest = spec_of(world, meshes)[1]
    for path in shards.list_shards(folder, split, world)[:1]:
        if shards.meshes_of(path) != digest:
            raise ClueError(f"{path}: was made with other meshes; give another folder with --out")

    count = world_spec(world).scenes_per_shard
    wanted = -(-scenes // count)
    jobs = [
        (folder, world, split, seed, i, count, meshes)
        for i in range(wanted)
        if not shards.shard_path(folder, split, seed, i, world).exists()
    ]
    print(f"{split}: {wanted} shards wanted, {len(jobs)} to make in {folder}", file=sys.stderr)
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(max(1, min(processes, len(jobs)))) as pool:
        for _ in tqdm(pool.imap_unordered(_make, jobs), total=len(jobs), unit="shard"):
            pass


def run(args: argparse.Namespace) -> int:
    """Make what is missing; 0 when all is there. ClueError where nothing can be rendered."""
    try:
        if args.contact_sheet is not None:
            write_contact_sheet(args.contact_sheet, args.world, args.split, args.seed)
        elif args.png:
            write_pictures(args.out, args.split, args.seed, args.scenes, args.world, args.meshes)
        else:
            write_shards(
                args.out,
                args.split,
                args.seed,
                args.scenes,
                args.processes,
                args.world,
                args.meshes,
            )
    except RuntimeError as error:  # no renderer; the message says what to install
        raise ClueError(str(error)) from error
    return 0
