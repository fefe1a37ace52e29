# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure an export of a large model beside plain transformers in bfloat16, each by itself.

    scripts/run python benchmarks/large_model.py [--random 3b] [--weights int8 int4] --scratch DIR

Prints JSON: of each contender the seconds of the detector and of a box from one view, in wall time
and in CPU time, and the largest resident memory in MB since its start, once with an empty cache of
graphs and then with a full one. The contenders take turns, each in a process of its own, so that
the memory of one is enough. CPU time says more where other programs run. Judges nothing.

`--blocks` cuts the decoder and the vision tower to so many blocks, as wide as they are.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import cache_in, parse
from clue_ros import memory
from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.evaluation.speed import RANDOM, REQUESTS, time_to_first_line
from clue_ros.lab.options import at_least, option
from clue_ros.model.export import export_model
from clue_ros.model.loading import demo_folder
from clue_ros.model.shapes import SCALES

PLAIN, TOKENS = "plain", 5  # a box: four locations and the end


@dataclass(frozen=True, kw_only=True)
class LargeModelOptions:
    """The options of this benchmark."""

    scratch: Path = option(Path("large_model"), "folder of the models and of the compiled graphs")
    random: str = option("3b", "size of the random weights", choices=RANDOM)
    blocks: int | None = option(None, "blocks of decoder and vision tower; default: all")
    weights: tuple[str, ...] = option(
        ("int8",), "forms of the export", nargs="+", choices=tuple(SCALES)
    )
    turns: int = option(1, "turns after the first one, which compiles", type=at_least(1))
    repeats: int = option(1, "answers in a turn after one that is not counted", type=at_least(1))
    threads: int = option(
        1,
        "number of CPU threads; more than one wait for each other, and CPU time counts that",
        type=at_least(1),
    )
    contender: str | None = option(None, "measure this one here: plain, or a form of the export")


def timed(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median seconds of some work after one that is not counted."""
    taken: list[tuple[float, float]] = []
    for _ in range(-1, repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*taken[1:], strict=True)
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus)}


def measure(options: LargeModelOptions) -> dict[str, Any]:
    """Seconds of one contender in this process."""
    image, text = load_image(demo_folder() / REQUESTS[0].image), REQUESTS[0].clear
    start = time.process_time()
    if options.contender == PLAIN:  # ours imports no torch
        import torch

        from clue_ros.lab.evaluation.plain_transformers import PlainTransformers

        plain = PlainTransformers(options.scratch / PLAIN, torch.bfloat16)

        def judge() -> object:
            return plain.probability(image, text)

        def box() -> object:
            return plain.probability(image, text), plain.reply(image, text, TOKENS)
    else:
        memory.map_blocks()  # as `clue ground` does
        clue = Clue.load(options.scratch / str(options.contender), num_views=1, threshold=1.0)

        def judge() -> object:
            clue.policy = "detector"
            return clue.ambiguity(clue.look(image), text)

        def box() -> object:
            clue.policy = "both"
            return clue.reply(clue.look(image), Dialogue(text))

    loaded = {"cpu": time.process_time() - start}
    found = {"detector": timed(judge, options.repeats), "box": timed(box, options.repeats)}
    return {"load": loaded, **found}


def in_a_process(options: LargeModelOptions, contender: str) -> dict[str, Any]:
    """Figures that a process of its own measured, and its largest memory."""
    words = ["--scratch", str(options.scratch), "--contender", contender]
    words += ["--repeats", str(options.repeats), "--threads", str(options.threads)]
    report = options.scratch / f"{contender}.json"
    command = [sys.executable, "-m", "benchmarks.large_model", *words]
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    _, most = time_to_first_line(command)
    return {**json.loads(report.read_text(encoding="utf-8")), "megabytes": round(most)}


def prepare(options: LargeModelOptions) -> None:
    """Write the model and its exports, unless they are there."""
    import torch

    from clue_ros.lab.evaluation.random_models import SIZES, write_random_model

    folder = options.scratch / PLAIN
    if options.blocks is not None:
        size = replace(SIZES[options.random], layers=options.blocks, vision_layers=options.blocks)
        SIZES[options.random] = size
    if not (folder / "ivg").is_dir():
        write_random_model(folder, options.random, torch.bfloat16)
    for form in options.weights:
        if not (options.scratch / form / "ivg").is_dir():
            export_model(str(folder), options.scratch / form, form)


def main() -> None:
    """Run the benchmark."""
    options = parse(LargeModelOptions, __doc__)
    if options.contender is not None:
        path = options.scratch / f"{options.contender}.json"
        path.write_text(json.dumps(measure(options)), encoding="utf-8")
        print(path, flush=True)
        return
    prepare(options)
    found: list[dict[str, Any]] = []
    for turn in range(-1, options.turns):
        for contender in (PLAIN, *options.weights):
            if turn < 0 and contender == PLAIN:
                continue
            with cache_in(options.scratch / "cache"):
                measured = in_a_process(options, contender)
            found.append({"contender": contender, "compiles": turn < 0, **measured})
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "turns": found}))


if __name__ == "__main__":
    main()
