"""IT2P photographs: clear and ambiguous commands about coloured blocks, and dialogues.

A box is right when its centre is within 20 px of the annotated point, on the data set's 250 px
photographs. In a dialogue the user answers every question with the data set's own word for the
target: its colour where that is unique, else its position.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import SPLITS, It2p, It2pImage, Point, find_it2p, load_it2p
from clue_ros.lab.evaluation.options import RequestOptions
from clue_ros.lab.evaluation.protocol import (
    ClearRequest,
    DialogueOptions,
    DialogueRequest,
    EvalSample,
    Grade,
)
from clue_ros.lab.metrics import center_near
from clue_ros.lab.options import add_options, at_least, option, read_options

NEAR_PX = 20.0
"""Largest distance of a right box's centre from the annotated point, in px of the photograph."""

ItemT = TypeVar("ItemT")


def it2p_samples(
    data: It2p, *, split: str = "all", per_image: int = 2, seed: int = 0
) -> list[EvalSample]:
    """The requests about each photograph of a split (``train``, ``val``, ``test`` or ``all``).

    At most ``per_image`` clear commands of each photograph, as many ambiguous ones, and at most
    ``per_image`` ambiguous commands with a target (0: all). The choice depends only on the seed and
    the image id.
    """
    return [_sample(image, per_image, seed) for image in data.select(split)]


def _sample(image: It2pImage, per_image: int, seed: int) -> EvalSample:
    clear = choose(image.commands, per_image, f"{seed}:{image.id}:clear")
    ambiguous = choose(image.ambiguous, 0, f"{seed}:{image.id}:ambiguous")[: len(clear)]
    dialogues = choose(image.interactive, per_image, f"{seed}:{image.id}:interactive")
    return EvalSample(
        name=image.path.name,
        load=partial(load_image, image.path),
        clear=tuple(ClearRequest(c.text, _near(c.point)) for c in clear),
        ambiguous=tuple(a.text for a in ambiguous),
        interactive=tuple(
            DialogueRequest(d.text, _near(d.point), _says(d.answer)) for d in dialogues
        ),
    )


def choose(items: Sequence[ItemT], at_most: int, seed: str) -> list[ItemT]:
    """At most so many of the items (0: all), in a random order that the seed fixes."""
    mixed = random.Random(seed).sample(list(items), len(items))
    return mixed[:at_most] if at_most else mixed


def _says(word: str) -> Callable[[str], str]:
    return lambda question: word


def _near(point: Point) -> dict[str, Grade]:
    return {"accuracy": lambda box: center_near(box, point, NEAR_PX)}


@dataclass(frozen=True, kw_only=True)
class It2pOptions(RequestOptions):
    """The options of ``clue eval it2p``."""

    data: Path | None = option(None, "IT2P folder; default: $CLUE_IT2P", metavar="DIR")
    per_image: int = option(
        2, "largest number of requests of each kind for an image; 0: all", type=at_least(0)
    )
    split: str = option(
        "all", "split of the photographs; training never uses test", choices=("all", *SPLITS)
    )
    dialogues: DialogueOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval it2p``."""
    add_options(parser, It2pOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval it2p``; the exit status."""
    options = read_options(It2pOptions, args)
    data = load_it2p(require_it2p(options.data, "--data"))
    samples = it2p_samples(
        data, split=options.split, per_image=options.per_image, seed=options.seed
    )
    options.dialogues.evaluate(samples, map(str, data.problems), seed=options.seed)
    return 0


def require_it2p(folder: Path | None, option: str) -> Path:
    """Return the folder, or $CLUE_IT2P's. Raises ClueError if neither is given."""
    found = folder or find_it2p()
    if found is None:
        raise ClueError(f"no IT2P found: give its folder with {option} DIR or set CLUE_IT2P")
    return found
