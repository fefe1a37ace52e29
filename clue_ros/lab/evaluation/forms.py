"""Compare the replies to different forms of a request: "the banana", "hand me the banana, please".

Each thing that a data set's requests name is asked for in every form of `FORMS`. Two replies are
the same when the robot does the same (points, asks, says that there is none), and points at the
same thing. Replies in the first turn are compared, right or wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.grounder import Grounder
from clue_ros.dialogue.nouns import named_part
from clue_ros.dialogue.types import Dialogue, Grounding, NotFound, Reply
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import load_photographs
from clue_ros.lab.evaluation.options import PolicyOptions, RecordsOptions, RequestOptions, measured
from clue_ros.lab.evaluation.photos import ASKS, NOT_THERE, POINTS, default_folder
from clue_ros.lab.evaluation.tabletop import load_scenes
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.requests import requests_about
from clue_ros.lab.metrics import MIN_IOU, ratio, rounded
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import WORLDS

FORMS = ("{}", "pick up {}", "hand me {}, please", "could you get me {}")


@dataclass(frozen=True)
class Pictured:
    """A picture, uint8 RGB (H, W, 3), and the requests about it."""

    name: str
    image: Any
    texts: tuple[str, ...]


def pictures_of_photographs(folder: Path) -> Iterator[Pictured]:
    """The photographs of a folder with all their requests. Raises PhotographsError."""
    for photograph in load_photographs(folder):
        texts = tuple(request.text for request in photograph.requests)
        yield Pictured(photograph.path.name, load_image(photograph.path), texts)


def pictures_of_scenes(
    folder: Path, split: str, limit: int, world: str, per_image: int, seed: int
) -> Iterator[Pictured]:
    """Simulated scenes with clear, ambiguous and absent requests. Raises ClueError."""
    grammar = grammar_of(world)
    for number, scene in enumerate(load_scenes(folder, split, limit, world)):
        rng = np.random.default_rng([seed, number])
        found = [
            request.text
            for want in ("clear", "ambiguous", "absent")
            for request in requests_about(scene, grammar, want, per_image, rng)
        ]
        yield Pictured(f"scene {number}", scene.image, tuple(found))


def compare_forms(clue: Grounder[Any], pictures: Iterable[Pictured]) -> list[dict[str, Any]]:
    """Ask for each named thing in every form: one record a thing.

    "replies": the reply to each form; "same": the number of its pairs of forms with one reply.
    """
    records = []
    for picture in pictures:
        view = clue.look(picture.image)
        for thing in filter(None, dict.fromkeys(map(named_part, picture.texts))):
            replies = [clue.reply(view, Dialogue(form.format(thing))) for form in FORMS]
            same = sum(is_same_reply(a, b) for a, b in combinations(replies, 2))
            done = [_did(reply) for reply in replies]
            records.append({"image": picture.name, "thing": thing, "replies": done, "same": same})
    return records


def is_same_reply(a: Reply, b: Reply) -> bool:
    """Return whether two replies do the same, and point at the same thing (IoU of at least 0.5)."""
    if isinstance(a, Grounding) and isinstance(b, Grounding):
        return a.box.iou(b.box) >= MIN_IOU
    return _did(a) == _did(b)


def _did(reply: Reply) -> str:
    if isinstance(reply, Grounding):
        return POINTS
    return NOT_THERE if isinstance(reply, NotFound) else ASKS


def share_of_same(records: Sequence[dict[str, Any]]) -> dict[str, float | int | None]:
    """The share of pairs of forms with the same reply, and of things with one reply in all."""
    pairs = len(FORMS) * (len(FORMS) - 1) // 2
    return {
        "same": rounded(ratio(sum(r["same"] for r in records), pairs * len(records))),
        "all_same": rounded(ratio(sum(r["same"] == pairs for r in records), len(records))),
        "pairs": pairs * len(records),
        "n": len(records),
    }


@dataclass(frozen=True, kw_only=True)
class FormsOptions(RequestOptions):
    """The options of ``clue eval forms``."""

    model: PolicyOptions
    output: RecordsOptions
    data: Path | None = option(
        None, "folder with photos.json; default: clue_ros's own", metavar="DIR"
    )
    world: str | None = option(
        None, "simulated scenes of this world in place of photographs", choices=tuple(WORLDS)
    )
    tabletop: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    split: str = option("test", "split of the scenes", choices=SPLITS)
    scenes: int = option(100, "largest number of scenes", type=at_least(1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval forms``."""
    add_options(parser, FormsOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval forms``; the exit status."""
    options = read_options(FormsOptions, args)
    pictures = list(
        pictures_of_photographs(options.data or default_folder())
        if options.world is None
        else pictures_of_scenes(
            options.tabletop,
            options.split,
            options.scenes,
            options.world,
            options.per_image,
            options.seed,
        )
    )
    clue = options.model.load()
    records = compare_forms(clue, with_progress(pictures))
    options.output.write_records(records)
    shares = share_of_same(records)
    options.output.show(
        shares,
        lambda markdown: table(tuple(shares), [[*shares.values()]], markdown=markdown),
        measured(clue),
        options.seed,
    )
    return 0
