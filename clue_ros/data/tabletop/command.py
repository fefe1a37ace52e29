"""`clue data tabletop`: render simulator scenes to shards, several processes, resumable."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from pathlib import Path

from clue_ros.data.tabletop import shards
from clue_ros.errors import ClueError

DEFAULT_FOLDER = Path("data/tabletop")
PICTURE_WIDTH = 640  # pixels of a 4:3 picture written as PNG


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder for the shards")
    parser.add_argument("--split", choices=shards.SPLITS, default="train")
    parser.add_argument("--scenes", type=int, default=20000, help="rounded up to whole shards")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--png", action="store_true", help="PNG pictures and JSON, not shards")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))


def write_pictures(folder: Path, split: str, seed: int, count: int) -> None:
    """Draw `count` scenes at 640 pixels as PNG pictures, each with its truth as JSON beside it.

    The truth: kind, color and box [x_min, y_min, x_max, y_max] in pixels of every object.
    """
    import cv2

    from clue_ros.data.tabletop.world import TabletopWorld

    folder.mkdir(parents=True, exist_ok=True)
    world = TabletopWorld(shards.shard_seed(split, seed, 0), width=PICTURE_WIDTH)
    for i in range(count):
        scene = world.scene()
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
        name = folder / f"{split}-{seed}-{i:04d}"
        cv2.imwrite(f"{name}.png", scene.image[..., ::-1])
        Path(f"{name}.json").write_text(json.dumps({"objects": truth}, indent=1))
    world.close()


def _make(job: tuple[Path, str, int, int, int]) -> Path:
    """Render one shard (in a worker process)."""
    # One renderer a process, and software OpenGL would otherwise start a thread a core in each.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    from clue_ros.data.tabletop.world import TabletopWorld

    folder, split, seed, index, count = job
    path = shards.shard_path(folder, split, seed, index)
    world = TabletopWorld(shards.shard_seed(split, seed, index))
    try:
        shards.write_shard(path, [world.scene() for _ in range(count)])
    finally:
        world.close()
    return path


def write_shards(folder: Path, split: str, seed: int, scenes: int, processes: int) -> None:
    """Make the shards that are missing; those that are there are kept as they are."""
    from tqdm import tqdm

    count = shards.SCENES_PER_SHARD
    wanted = -(-scenes // count)
    jobs = [
        (folder, split, seed, i, count)
        for i in range(wanted)
        if not shards.shard_path(folder, split, seed, i).exists()
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
        if args.png:
            write_pictures(args.out, args.split, args.seed, args.scenes)
        else:
            write_shards(args.out, args.split, args.seed, args.scenes, args.processes)
    except RuntimeError as error:  # no renderer; the message says what to install
        raise ClueError(str(error)) from error
    return 0
