"""IT2P: clear and ambiguous commands about coloured blocks, and their clarification.

Right means that the centre of the box is within 20 px of the annotated point, on the data set's
250 px photographs. In the interactive part the person says the data set's own word for the target,
the colour where that tells it apart and else the position, to whatever is asked.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import SPLITS, It2p, It2pImage, Point, find_it2p, load_it2p
from clue_ros.lab.evaluation.metrics import center_near
from clue_ros.lab.evaluation.protocol import (
    Exchange,
    Grade,
    Request,
    Sample,
    add_shared_arguments,
    run_evaluation,
)

NEAR_PX = 20.0
"""How far the centre may be from the annotated point, in pixels of the photograph."""

ItemT = TypeVar("ItemT")


def it2p_samples(
    data: It2p, *, split: str = "all", per_image: int = 2, seed: int = 0
) -> list[Sample]:
    """What to ask about each photograph of a split (``train``, ``val``, ``test`` or ``all``).

    Of every photograph at most ``per_image`` clear commands, as many ambiguous ones, and at most
    ``per_image`` ambiguous commands with a target (0: all of them). The choice follows from
    the seed and the image id alone.
    """
    return [_sample(image, per_image, seed) for image in data.select(split)]


def load_samples(
    folder: Path, *, split: str = "all", per_image: int = 2, seed: int = 0
) -> tuple[list[Sample], list[str]]:
    """Samples of the data set in ``folder`` and the rows of it that could not be used."""
    data = load_it2p(folder)
    samples = it2p_samples(data, split=split, per_image=per_image, seed=seed)
    return samples, [str(problem) for problem in data.problems]


def _sample(image: It2pImage, per_image: int, seed: int) -> Sample:
    clear = choose(image.commands, per_image, f"{seed}:{image.id}:clear")
    ambiguous = choose(image.ambiguous, 0, f"{seed}:{image.id}:ambiguous")[: len(clear)]
    dialogues = choose(image.interactive, per_image, f"{seed}:{image.id}:interactive")
    return Sample(
        name=image.path.name,
        load=_loader(image.path),
        clear=tuple(Request(c.text, {"accuracy": _near(c.point)}) for c in clear),
        ambiguous=tuple(a.text for a in ambiguous),
        interactive=tuple(
            Exchange(d.text, {"accuracy": _near(d.point)}, _always(d.answer)) for d in dialogues
        ),
    )


def choose(items: Sequence[ItemT], at_most: int, seed: str) -> list[ItemT]:
    """At most so many of the items (0: all), in a random order that the seed fixes."""
    mixed = random.Random(seed).sample(list(items), len(items))
    return mixed[:at_most] if at_most else mixed


def _near(point: Point) -> Grade:
    return lambda box: center_near(box, point, NEAR_PX)


def _always(word: str) -> Callable[[str], str]:
    return lambda question: word


def _loader(path: Path) -> Callable[[], npt.NDArray[np.uint8]]:
    return lambda: load_image(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval it2p``."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder that holds data/train_img (or $CLUE_IT2P)"
    )
    parser.add_argument(
        "--per-image",
        type=int,
        default=2,
        metavar="N",
        help="at most N clear, N ambiguous and N interactive commands an image; 0: all (2)",
    )
    parser.add_argument(
        "--split",
        choices=("all", *SPLITS),
        default="all",
        help="images by id: all in the folder (default), or those that training never saw: test",
    )
    add_shared_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval it2p``; the exit status."""
    folder = args.data or find_it2p()
    if folder is None:
        raise ClueError("no IT2P found: give its folder with --data DIR or set CLUE_IT2P")
    if args.per_image < 0:
        raise ClueError(f"--per-image must be 0 or more, not {args.per_image}")
    return run_evaluation(
        args,
        lambda: load_samples(folder, split=args.split, per_image=args.per_image, seed=args.seed),
    )
