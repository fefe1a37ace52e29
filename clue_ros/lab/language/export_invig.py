"""`clue data invig`: dialogues about simulated scenes in InViG's layout, with masks.

clue data invig --world rich --split train --out data/rich-invig

Reads the shards of `clue data tabletop` and plays dialogues in the world's language until each
points at one object. Written are OUT/SPLIT-SEED-NNNN.json (InViG's newer form, one file a shard),
OUT/images/*.png, and for each picture OUT/masks/ with the same name: 8-bit PNG, 0 background, k the
object that a row's `mask.value` says. `load_invig(OUT)` and every trainer of InViG read it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import InvigSample, write_invig
from clue_ros.lab.language.dialogues import DialogueState, Grammar
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS, how_to_make, list_shards, read_shard
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS

TRIES = 6  # dialogues drawn for each that is kept


def sentence(text: str) -> str:
    """Spoken tokens as people write them: "i don ' t see it ." -> "i don't see it."."""
    text = re.sub(r"\s+([.,?!;:])", r"\1", " ".join(text.split()))
    return re.sub(r"(\w)\s*'\s*(s|re|ll|ve|d|m|t)\b", r"\1'\2", text)


def exchanges_of(states: Sequence[DialogueState]) -> tuple[tuple[str, str], ...]:
    """The questions and answers of a revealed dialogue."""
    out = []
    for before, after in pairwise(states):
        asked = f"{before.context} assistant: {before.question} user: "
        out.append((sentence(before.question or ""), sentence(after.context[len(asked) :])))
    return tuple(out)


def told_samples(
    scenes: Iterable[Scene], grammar: Grammar, *, name: str, per_image: int, seed: int
) -> list[tuple[InvigSample, int]]:
    """Up to `per_image` different dialogues about each scene, each with its object's number.

    name: begins the ids. Every dialogue ends with one object meant.
    """
    out = []
    for number, scene in enumerate(scenes):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        found: dict[str, tuple[InvigSample, int]] = {}
        for _ in range(TRIES * per_image):
            if len(found) == per_image:
                break
            states = grammar.dialogue(scene.objects, rng)
            if not states or states[-1].question is not None:
                continue
            target = states[-1].candidates[0]
            request = sentence(states[0].context)
            sample = InvigSample(
                id=f"{name}-{number}#{len(found)}",
                image_id=f"{name}-{number}",
                load=partial(_pixels, scene),
                request=request,
                exchanges=exchanges_of(states),
                box=scene.objects[target].box,
                category=scene.objects[target].kind,
            )
            found.setdefault(request, (sample, target))
        out += list(found.values())
    return out


def _pixels(scene: Scene) -> npt.NDArray[np.uint8]:
    return scene.image


def masks_of(scene: Scene) -> npt.NDArray[np.uint8]:
    """The scene's masks at its picture's size; coarse where the world keeps no finer ones."""
    if scene.masks is not None:
        return scene.masks
    height, width = scene.image.shape[:2]
    whole = cv2.resize(scene.instances, (width, height), interpolation=cv2.INTER_NEAREST)
    return np.asarray(whole, dtype=np.uint8)


def write_told(
    scenes: Sequence[Scene],
    told: Sequence[tuple[InvigSample, int]],
    folder: Path,
    *,
    split: str,
    part: str,
) -> Path:
    """Write dialogues of `told_samples` with masks; the path of the JSON file."""
    path = write_invig([sample for sample, _ in told], folder, split=split, part=part)
    values = {sample.id: target + 1 for sample, target in told}
    rows = json.loads(path.read_text(encoding="utf-8"))
    (folder / "masks").mkdir(exist_ok=True)
    for row in rows:
        info = row["image_info"]
        name = f"masks/{info['file_name']}"
        mask = masks_of(scenes[int(info["id"].rsplit("-", 1)[1])])
        Image.fromarray(mask).save(folder / name)
        for ref in row["ref_list"]:
            ref["mask"] = {"file_name": name, "value": values[ref["id"]]}
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="folder of the shards")
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--scenes", type=int, default=None, metavar="N", help="at most")
    parser.add_argument("--per-image", type=int, default=3, metavar="N", help="dialogues (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")


def run(args: argparse.Namespace) -> int:
    """Write a shard's dialogues after the other; 0 when all are there."""
    from tqdm import tqdm

    paths = list_shards(args.data, args.split, args.world)
    if not paths:
        raise ClueError(how_to_make(args.data, args.split, 1000, args.world))
    if args.per_image < 1 or (args.scenes is not None and args.scenes < 1):
        raise ClueError("--per-image and --scenes must be 1 or more")
    grammar, left, dialogues = grammar_of(args.world), args.scenes, 0
    for path in tqdm(paths, unit="shard", disable=not sys.stderr.isatty()):
        try:
            scenes = list(read_shard(path, args.world))[:left]
        except ValueError as error:
            raise ClueError(str(error)) from error
        left = None if left is None else left - len(scenes)
        told = told_samples(
            scenes, grammar, name=path.stem, per_image=args.per_image, seed=args.seed
        )
        part = "-" + "-".join(path.stem.rsplit("-", 2)[1:])  # its seed and number
        write_told(scenes, told, args.out, split=args.split, part=part)
        dialogues += len(told)
        if left == 0:
            break
    print(json.dumps({"out": str(args.out), "dialogues": dialogues}))
    return 0
