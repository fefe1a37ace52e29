"""`clue data clips`: simulated videos with ambiguous and clear requests, in IC-Seg's layout.

clue data clips --out data/clips --clips 40 --split test

In each clip something is pushed, dropped or only filmed (`clue_ros.lab.simulator.clips`). Requests
mean objects as the first frame shows them ("the left mug"), or by a motion ("the one that
fell"). An ambiguous request has 2 candidates (simple), 3 (medium) or more (difficult); a clear one
is "other". The layout is that of `clue_ros.lab.data.videos`; `max_count` is the number of objects.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.videos import (
    FOLDERS,
    ability_of,
    parquet,
    write_masks,
    write_rows,
)
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.words import REQUESTS, pick
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.simulator.clips import HAND, PUSH, Clip, ClipWorld
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec
from clue_ros.model.prompts import detokenize

WORLDS = (DEFAULT_WORLD, "rich-unseen")  # worlds whose objects can fall
SEEDS = {"train": 0, "test": 1, "val": 2}
SHOWN = 6  # frames that a row names and describes its object in
QUALITY = 92  # of the JPEG files
# Motions in words. A `{}` is a noun or "one".
MOVED = ("the {} that moved", "the {} that was moved", "the moving {}")
STILL = ("the {} that did not move", "the {} that stayed where it was")
PUSHED = ("the {} that was pushed", "the {} that got pushed away")
BY_HAND = ("the {} that the hand pushed", "the {} she pushed", "the {} he moved")
FELL = ("the {} that fell", "the {} that was dropped", "the {} that fell down")


@dataclass(frozen=True)
class Wanted:
    """A request about a clip, the objects that it can mean, and whether it refers to a motion."""

    text: str
    candidates: tuple[int, ...]
    motion: bool


def motions(clip: Clip) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return the motions: forms of words with one `{}`, and the objects that they hold for."""
    still = tuple(i for i in range(len(clip.objects)) if i not in clip.moved)
    found = [(MOVED, clip.moved), (STILL, still if clip.moved else ())]
    if len(clip.moved) == 1:  # of several, one was pushed and pushed the others
        found += [(PUSHED, clip.moved)] if clip.event == PUSH else []
        found += [(BY_HAND, clip.moved)] if clip.event == HAND else []
    found.append((FELL, clip.fell))
    return [(words, meant) for words, meant in found if meant]


def requests_of(
    clip: Clip, grammar: RichGrammar, count: int, rng: np.random.Generator
) -> list[Wanted]:
    """Draw up to `count` different requests: ambiguous, clear, and some by a motion."""
    found: dict[str, Wanted] = {}

    def add(phrase: str, candidates: tuple[int, ...], motion: bool) -> None:
        text = detokenize(pick(rng, REQUESTS).format(phrase)) if motion else phrase
        if len(found) < count:
            found.setdefault(text, Wanted(text, candidates, motion))

    happened = motions(clip)
    if happened:
        words, meant = happened[int(rng.integers(len(happened)))]
        kind = clip.objects[meant[int(rng.integers(len(meant)))]].kind
        if rng.uniform() < 0.5:  # the noun narrows it down
            meant = tuple(i for i in meant if clip.objects[i].kind == kind)
            noun = grammar.phrasing.noun(kind, rng)
        else:
            noun = "one"
        add(pick(rng, words).format(noun), meant, True)
    for want in ("ambiguous", "clear") * count:
        drawn = grammar.reference(clip.objects, rng, want, tries=20)
        if drawn is not None:
            add(detokenize(grammar.phrasing.request(drawn[0], rng)), drawn[1], False)
    return list(found.values())


def described(mask: npt.NDArray[np.bool_], most: int) -> dict[str, Any]:
    """An object in a frame: box and innermost pixel in 0..1000, areas relative to its largest.

    mask: bool (H, W). most: its largest area in the clip, pixels.
    """
    height, width = mask.shape
    if not mask.any():
        return {"bbox_2d": [0, 0, 0, 0], "point_2d": [0, 0], "area": 0.0, "largest_area": 0.0}
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    small = mask.astype(np.uint8)
    padded = np.pad(small, 1)  # the picture's edge is an edge of the object too
    depth = cv2.distanceTransform(padded, cv2.DIST_L2, 5)[1:-1, 1:-1]
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    parts = cv2.connectedComponentsWithStats(small)[2][1:, cv2.CC_STAT_AREA]
    across, down = 1000 / width, 1000 / height
    box = (columns[0] * across, rows[0] * down, (columns[-1] + 1) * across, (rows[-1] + 1) * down)
    return {
        "bbox_2d": [round(v) for v in box],
        "point_2d": [round((x + 0.5) * across), round((y + 0.5) * down)],
        "area": float(mask.sum() / most),
        "largest_area": float(parts.max() / most),
    }


def write_clip(
    folder: Path, video: str, clip: Clip, wanted: list[Wanted], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Write a clip's frames, masks and descriptions; returns the rows of its requests."""
    images = folder / "JPEGImages" / video
    images.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(clip.frames):
        Image.fromarray(frame).save(images / f"{number:05d}.jpg", quality=QUALITY)
    write_masks(folder, video, clip.masks, len(clip.objects))
    happens = dict.fromkeys(clip.moved, " that moves") | dict.fromkeys(clip.fell, " that falls")
    says = [f"the {o.color} {o.kind}{happens.get(i, '')}" for i, o in enumerate(clip.objects)]
    for i, o in enumerate(clip.objects):
        _write_json(
            folder / "description_oid" / video / f"{i + 1}.json",
            {"description": says[i]} | asdict(o),
        )
    shown = np.linspace(0, len(clip.frames) - 1, SHOWN).round().astype(int)
    rows = []
    for n, request in enumerate(wanted):
        target = int(rng.choice(request.candidates))
        aid, masks = f"{video}_{n}", clip.masks == target + 1
        most = int(masks.sum((1, 2)).max())
        _write_json(
            folder / "description_id" / f"{aid}.json",
            {
                "description": [says[i] for i in request.candidates],
                "candidates": [str(i + 1) for i in request.candidates],
                "event": clip.event,
                "camera": clip.camera,
                "motion": request.motion,
            },
        )
        rows.append(
            {
                "question": request.text,
                "images": [f"{folder.name}/JPEGImages/{video}/{k:05d}.jpg" for k in shown],
                "ability": ability_of(len(request.candidates)),
                "video": video,
                "id": aid,
                "oid": str(target + 1),
                "aid": aid,
                "initial_count": len(request.candidates),
                "max_count": len(clip.objects),
                "object": [described(masks[k], most) for k in shown],
            }
        )
    return rows


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """The options of `clue data clips`."""

    out: Path = required("folder to write", metavar="DIR")
    world: str = option(DEFAULT_WORLD, "world of the objects and tables", choices=WORLDS)
    split: str = option("train", "part of the data set", choices=tuple(FOLDERS))
    clips: int = option(40, "number of clips", type=at_least(1))
    per_clip: int = option(3, "largest number of requests about a clip", type=at_least(1))
    width: int = option(640, "pixels of a frame's width; its height is 3/4", type=at_least(64))
    seed: int = option(0, "seed of the clips and requests")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue data clips``."""
    add_options(parser, ClipOptions)


def run(args: argparse.Namespace) -> int:
    """Film the clips and write them; the exit status."""
    options = read_options(ClipOptions, args)
    path = options.out / f"{options.world}-{options.split}.parquet"
    parquet(f"{path}: this")  # before an hour of films
    folder = options.out / FOLDERS[options.split]
    folder.mkdir(parents=True, exist_ok=True)
    seed = [options.seed, SEEDS[options.split], WORLDS.index(options.world)]
    rng, grammar = np.random.default_rng(seed), grammar_of(options.world)
    rows, counted = list[dict[str, Any]](), Counter[str]()
    world = ClipWorld(world_spec(options.world), int(rng.integers(2**31)), options.width)
    try:
        for number in tqdm(range(options.clips), unit="clip", disable=not sys.stderr.isatty()):
            clip = world.clip()
            wanted = requests_of(clip, grammar, options.per_clip, rng)
            video = f"{options.world}-{options.seed}-{number:04d}"
            rows += write_clip(folder, video, clip, wanted, rng)
            counted[clip.event] += 1
    except RuntimeError as error:  # no renderer; the message names the package to install
        raise ClueError(str(error)) from error
    finally:
        world.close()
    write_rows(path, rows)
    made = {"out": str(path), "requests": len(rows), "events": counted}
    print(json.dumps(made | {"ability": Counter(row["ability"] for row in rows)}))
    return 0
