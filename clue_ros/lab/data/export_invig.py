"""`clue data invig`: dialogues about simulated scenes in InViG's layout, with masks.

clue data invig --world rich --split train --out data/rich-invig

Reads the shards of `clue data tabletop` and draws dialogues in the world's grammar; each ends with
one object. Writes OUT/SPLIT-SEED-NNNN.json (InViG's newer layout, one file a shard),
OUT/images/*.png, and for each picture a file of the same name in OUT/masks/: 8-bit PNG, 0 is
background, k the object that a row's `mask.value` names. `load_invig(OUT)` and every trainer of
InViG read it.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import InvigSample, write_invig
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS, how_to_make, list_shards, read_shard
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.model.prompts import detokenize

_TRIES = 6  # dialogues drawn for each that is kept


def exchanges_of(states: Sequence[DialogueState]) -> tuple[tuple[str, str], ...]:
    """The questions and answers between the states of a dialogue."""
    out = []
    for before, after in pairwise(states):
        asked = f"{before.context} assistant: {before.question} user: "
        answer = after.context.removeprefix(asked)
        out.append((detokenize(before.question or ""), detokenize(answer)))
    return tuple(out)


def sample_dialogues(
    scenes: Iterable[Scene], grammar: RichGrammar, *, name: str, per_image: int, seed: int
) -> list[tuple[InvigSample, int]]:
    """Up to `per_image` dialogues about each scene, each with the index of the object it ends with.

    Requests about a scene differ. name: begins the ids.
    """
    out = []
    for number, scene in enumerate(scenes):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
        found: dict[str, tuple[InvigSample, int]] = {}
        for _ in range(_TRIES * per_image):
            if len(found) == per_image:
                break
            states = grammar.dialogue(scene.objects, rng)
            if not states or states[-1].question is not None:
                continue
            target = states[-1].candidates[0]
            request = detokenize(states[0].context)
            sample = InvigSample(
                id=f"{name}-{number}#{len(found)}",
                image_id=f"{name}-{number}",
                load=partial(getattr, scene, "image"),
                request=request,
                exchanges=exchanges_of(states),
                box=scene.objects[target].box,
                category=scene.objects[target].kind,
            )
            found.setdefault(request, (sample, target))
        out += list(found.values())
    return out


def write_dialogues(
    scenes: Sequence[Scene],
    dialogues: Sequence[tuple[InvigSample, int]],
    folder: Path,
    *,
    split: str,
    part: str,
) -> None:
    """Write the dialogues of `sample_dialogues` about these scenes, with masks."""
    path = write_invig([sample for sample, _ in dialogues], folder, split=split, part=part)
    values = {sample.id: target + 1 for sample, target in dialogues}
    rows = json.loads(path.read_text(encoding="utf-8"))
    (folder / "masks").mkdir(exist_ok=True)
    for row in rows:
        info = row["image_info"]
        name = f"masks/{info['file_name']}"
        mask = full_size_masks(scenes[int(info["id"].rsplit("-", 1)[1])])
        Image.fromarray(mask).save(folder / name)
        for ref in row["ref_list"]:
            ref["mask"] = {"file_name": name, "value": values[ref["id"]]}
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def full_size_masks(scene: Scene) -> npt.NDArray[np.uint8]:
    """Return the scene's masks at its picture's size; coarse if the world keeps no finer ones."""
    if scene.masks is not None:
        return scene.masks
    height, width = scene.image.shape[:2]
    whole = cv2.resize(scene.instances, (width, height), interpolation=cv2.INTER_NEAREST)
    return np.asarray(whole, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `clue data invig`."""

    world: str = option(
        DEFAULT_WORLD, "simulated world of the scenes; decides the grammar", choices=tuple(WORLDS)
    )
    tabletop: Path = option(
        DEFAULT_FOLDER, "folder of the scenes that `clue data tabletop` made", metavar="DIR"
    )
    split: str = option("train", "split of the scenes", choices=SPLITS)
    scenes: int | None = option(None, "largest number of scenes; default: all", type=at_least(1))
    per_image: int = option(3, "dialogues about each scene", type=at_least(1))
    seed: int = option(0, "seed of the dialogues")
    out: Path = required("folder to write", metavar="DIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data invig`."""
    add_options(parser, ExportOptions)


def run(args: argparse.Namespace) -> int:
    """Write the dialogues of one shard after the other; 0 when all are there."""
    options = read_options(ExportOptions, args)
    paths = list_shards(options.tabletop, options.split, options.world)
    if not paths:
        raise ClueError(how_to_make(options.tabletop, options.split, 1000, options.world))
    grammar, left, count = grammar_of(options.world), options.scenes, 0
    for path in tqdm(paths, unit="shard", disable=not sys.stderr.isatty()):
        try:
            scenes = list(read_shard(path, options.world))[:left]
        except ValueError as error:
            raise ClueError(str(error)) from error
        left = None if left is None else left - len(scenes)
        dialogues = sample_dialogues(
            scenes, grammar, name=path.stem, per_image=options.per_image, seed=options.seed
        )
        part = "-" + "-".join(path.stem.rsplit("-", 2)[1:])  # the shard's seed and number
        write_dialogues(scenes, dialogues, options.out, split=options.split, part=part)
        count += len(dialogues)
        if left == 0:
            break
    print(json.dumps({"out": str(options.out), "dialogues": count}))
    return 0
