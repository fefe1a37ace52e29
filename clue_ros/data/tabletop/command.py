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

from clue_ros.data.tabletop import shards
from clue_ros.data.tabletop.contact import write_contact_sheet
from clue_ros.data.tabletop.own_meshes import read_meshes, with_meshes
from clue_ros.data.tabletop.spec import WorldSpec
from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.errors import ClueError

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

    from clue_ros.data.tabletop.settled import open_world

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
    from clue_ros.data.tabletop.settled import open_world

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
