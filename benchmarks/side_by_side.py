# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Time replies of models in turns in one process, such as of two adapters and of a joint one.

    scripts/run python benchmarks/side_by_side.py --models models/two models/joint [--repeats 20]

Prints JSON: for policy `both` and one view, the milliseconds of CPU of p_amb, of a first answer
with a question and of one with a box, to images that the model has not seen, and their ratios to
the first model's: median, lowest and highest quarter. Judges nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.common import parse
from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.evaluation.speed import REQUESTS, quarters
from clue_ros.lab.options import at_least, option
from clue_ros.model.loading import demo_folder

Image = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class SideBySideOptions:
    """The options of this benchmark."""

    models: tuple[str, ...] = option((), "the models' names or folders", nargs="+")
    repeats: int = option(
        20, "answers of each kind after one that is not counted", type=at_least(1)
    )


def replies(clue: Clue) -> dict[str, Callable[[Image], object]]:
    """Replies of a model about an image, to be timed."""
    clear, ambiguous = REQUESTS[0].clear, REQUESTS[0].ambiguous

    def answer(text: str, threshold: float, image: Image) -> object:
        clue.threshold = threshold
        return clue.reply(clue.look(image), Dialogue(text))

    return {
        "p_amb": lambda image: clue.ambiguity(clue.look(image), clear),
        "question": lambda image: answer(ambiguous, 0.0, image),
        "box": lambda image: answer(clear, 1.0, image),
    }


def main() -> None:
    """Run the benchmark."""
    options = parse(SideBySideOptions, __doc__)
    models = {
        name: replies(Clue.load(name, device="cpu", policy="both", num_views=1))
        for name in options.models
    }
    image = load_image(demo_folder() / REQUESTS[0].image)
    taken: dict[tuple[str, str], list[float]] = {}
    turns = product(range(-1, options.repeats), ("p_amb", "question", "box"), models.items())
    for count, (repeat, what, (name, timed)) in enumerate(turns):
        new: Image = image.copy()
        new[0, 0] = count & 255, count >> 8, 7  # the look at an image is kept
        start = time.process_time()
        timed[what](new)
        if repeat >= 0:
            taken.setdefault((what, name), []).append(1000 * (time.process_time() - start))
    found = {
        what: {
            name: {
                "ms": quarters(taken[what, name]),
                "to_first": quarters(
                    [a / b for a, b in zip(taken[what, name], taken[what, first], strict=True)]
                ),
            }
            for name in models
        }
        for what in ("p_amb", "question", "box")
        for first in options.models[:1]
    }
    print(json.dumps({"repeats": options.repeats, "cpu": found}))


if __name__ == "__main__":
    main()
