"""`clue data tabletop`: render simulator scenes to shards, several processes, resumable."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

from clue_ros.data.tabletop import shards

DEFAULT_FOLDER = Path("data/tabletop")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder for the shards")
    parser.add_argument("--split", choices=shards.SPLITS, default="train")
    parser.add_argument("--scenes", type=int, default=20000, help="rounded up to whole shards")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))


def _make(job: tuple[Path, str, int, int]) -> Path:
    """Render one shard (in a worker process)."""
    # One renderer a process, and software OpenGL would otherwise start a thread a core in each.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    from clue_ros.data.tabletop.world import TabletopWorld

    folder, split, seed, index = job
    path = shards.shard_path(folder, split, seed, index)
    world = TabletopWorld(shards.shard_seed(split, seed, index))
    try:
        shards.write_shard(path, [world.scene() for _ in range(shards.SCENES_PER_SHARD)])
    finally:
        world.close()
    return path


def run(args: argparse.Namespace) -> int:
    """Make the missing shards; 0 when all are there."""
    from tqdm import tqdm

    wanted = -(-args.scenes // shards.SCENES_PER_SHARD)
    jobs = [
        (args.out, args.split, args.seed, i)
        for i in range(wanted)
        if not shards.shard_path(args.out, args.split, args.seed, i).exists()
    ]
    print(
        f"{args.split}: {wanted} shards wanted, {len(jobs)} to make in {args.out}", file=sys.stderr
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(max(1, args.processes)) as pool:
        for _ in tqdm(pool.imap_unordered(_make, jobs), total=len(jobs), unit="shard"):
            pass
    return 0
