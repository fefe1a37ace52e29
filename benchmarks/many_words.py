# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure what many taught words cost a look and a reply.

    scripts/run python benchmarks/many_words.py [--words 200] [--repeats 21]

Teaches boxes of the open photographs, three examples a word, and asks in turns a model that knows
one word, and one that knows all of them: for the thing that both know, and for a mug, which nobody
taught. Prints JSON: medians of the processor's time in ms, and of the ratios. Judges nothing.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.common import ModelOptions, parse
from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import load_photographs
from clue_ros.lab.options import at_least, option
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import demo_folder
from clue_ros.model.taught import make_example

SHOTS = 3


@dataclass(frozen=True, kw_only=True)
class ManyWordsOptions(ModelOptions):
    """The options of this benchmark."""

    words: int = option(200, "taught words", type=at_least(2))
    repeats: int = option(21, "looks and replies of each kind", type=at_least(1))


def main() -> None:
    """Run the benchmark."""
    options = parse(ManyWordsOptions, __doc__)
    plain = LoadOptions(options.model, device=options.device, memory="")
    few = Clue.load(plain)
    many = Clue(few.checkpoint, plain)  # the same weights
    photographs = load_photographs(demo_folder() / "photos")
    images = [load_image(photograph.path) for photograph in photographs]
    each = -(-SHOTS * options.words // len(images))  # boxes of a photograph
    columns = math.ceil(math.sqrt(each))
    for shot in range(SHOTS * options.words):
        view = few.look(images[shot // each])
        row, column = divmod(shot % each, columns)
        width, height = view.width / columns, view.height / columns
        box = Box(column * width, row * height, (column + 1) * width, (row + 1) * height)
        example = make_example(view.patches, view.image, box)
        name = f"thing{shot % options.words}"
        many.memory.add(name, example)
        if name == "thing0":
            few.memory.add(name, example)
    cost: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.repeats + 1):  # the first one prepares
        for request in ("thing0", "mug"):
            spent = []
            for clue in (few, many):
                begin = time.process_time()
                view = clue.look(np.roll(images[number % len(images)], number, 0))
                clue.reply(view, Dialogue(f"pick up the {request}"))
                spent.append(1000 * (time.process_time() - begin))
            if number:
                cost.setdefault(request, []).append((spent[0], spent[1]))
    names = {"thing0": "taught", "mug": "not_taught"}
    print(
        json.dumps(
            {
                "words": options.words,
                "ms": {
                    names[request]: {
                        "one_word": round(median(one for one, _ in rows), 1),
                        "all_words": round(median(all_ for _, all_ in rows), 1),
                        "more": round(median(all_ - one for one, all_ in rows), 1),
                        "ratio": round(median(all_ / one for one, all_ in rows), 3),
                    }
                    for request, rows in cost.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
