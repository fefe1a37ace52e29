#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare a model with its export for OpenVINO (`clue export`): time, start, size, and replies.

    scripts/run python benchmarks/exported.py [--model household] [--repeats 12] [--starts 4]
    scripts/run python benchmarks/exported.py --repeats 0 --starts 0 --tabletop DIR --scenes 60

Both reply in turns in one process, to the requests of `clue bench` about the demo's pictures; the
first repetition is not counted. A start is `clue ground` in a process of its own, from its begin to
its answer.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import parse
from clue_ros.dialogue.types import Dialogue, Grounding, Question
from clue_ros.engine import Clue, Image
from clue_ros.images import load_image
from clue_ros.lab.evaluation.speed import (
    REQUESTS,
    Request,
    later_turn,
    quarters,
    time_to_first_line,
)
from clue_ros.lab.evaluation.tabletop import load_scenes, tabletop_samples
from clue_ros.lab.options import at_least, option
from clue_ros.lab.report import table
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.model.export import export_model
from clue_ros.model.loading import demo_folder

MODEL, EXPORT = "model", "export"
Timed = Callable[[Clue, Image, Request], float]  # seconds


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of this benchmark."""

    model: str = option("household", "household, a folder or a hub id")
    dtype: str = option("auto", "number format of the model")
    export_dtype: str = option("auto", "number format of the export")
    cpu_time: bool = option(False, "count CPU time in the rows, where other work shares the cores")
    repeats: int = option(12, "repetitions of each row", type=at_least(0))
    starts: int = option(4, "fresh processes of each", type=at_least(0))
    tabletop: Path | None = option(None, "folder of scenes about which replies are compared")
    world: str = option("rich", "world of these scenes, one of rich requests")
    split: str = option("val", "split of these scenes", choices=SPLITS)
    scenes: int = option(60, "largest number of these scenes", type=at_least(1))


clock: Callable[[], float] = time.perf_counter  # or the CPU's, with --cpu-time


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = clock()
    work()
    return clock() - start


def p_amb(policy: str) -> Timed:
    """The probability of ambiguity of a picture that is looked at already."""

    def timed(clue: Clue, image: Image, request: Request) -> float:
        view, clue.policy = clue.look(image), policy
        return seconds(lambda: clue.ambiguity(view, request.clear))

    return timed


def first(views: int, *, asks: bool = False) -> Timed:
    """The first answer, with the look."""

    def timed(clue: Clue, image: Image, request: Request) -> float:
        clue.policy, clue.threshold, clue.num_views = "both", 0.0 if asks else 1.0, views
        dialogue = Dialogue(request.ambiguous if asks else request.clear)
        return seconds(lambda: clue.reply(clue.look(image), dialogue))

    return timed


def later(clue: Clue, image: Image, request: Request) -> float:
    """The box after a question and its answer, with one view."""
    first(1, asks=True)(clue, image, request)
    clue.threshold, view = 1.0, clue.look(image)
    return seconds(lambda: clue.reply(view, later_turn(request)))


ROWS: dict[str, Timed] = {
    "look": lambda clue, image, _: seconds(lambda: clue.look(image)),
    "p_amb, detector": p_amb("detector"),
    "p_amb, both": p_amb("both"),
    "first answer, box, one view": first(1),
    "first answer, box, three views": first(3),
    "first answer, question": first(1, asks=True),
    "later turn, box, one view": later,
}


def compare_times(clues: dict[str, Clue], repeats: int) -> str:
    """A table of the rows: medians in ms, and the ratio of the pairs with its quarters."""
    images = [load_image(demo_folder() / request.image) for request in REQUESTS]
    taken: dict[str, dict[str, list[float]]] = {row: {n: [] for n in clues} for row in ROWS}
    for repeat in range(-1, repeats):
        for row, timed in ROWS.items():
            total = dict.fromkeys(clues, 0.0)
            for number, (image, request) in enumerate(zip(images, REQUESTS, strict=True)):
                fresh = image.copy()  # a frame that is looked at again is not encoded again
                fresh[0, 0] = repeat & 255, len(row), number
                # Neither is always the first, whose caches are cold.
                order = list(clues.items())[:: 1 if (repeat + number) % 2 else -1]
                for name, clue in order:
                    total[name] += timed(clue, fresh, request)
            if repeat >= 0:
                for name, value in total.items():
                    taken[row][name].append(value / len(REQUESTS))
    rows = []
    for row, found in taken.items():
        ms = [f"{1000 * statistics.median(found[name]):.1f}" for name in (MODEL, EXPORT)]
        rows.append([row, *ms, ratio(found)])
    return table(["", "model, ms", "export, ms", "export / model"], rows, markdown=True)


def ratio(found: dict[str, list[float]]) -> str:
    """The export's share of the model's time: median of the pairs, and quarters."""
    pairs = [e / m for e, m in zip(found[EXPORT], found[MODEL], strict=True)]
    middle, low, high = quarters(pairs)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def compare_starts(models: dict[str, tuple[str, str]], count: int) -> str:
    """A table of seconds of fresh processes. models: name, and dtype, of each."""
    request = REQUESTS[0]
    picture = str(demo_folder() / request.image)
    taken: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(-1, count):
        for name, (model, dtype) in models.items():
            command = [sys.executable, "-m", "clue_ros.cli", "ground", picture, request.clear]
            command += ["--model", model, "--device", "cpu", "--dtype", dtype]
            found, _ = time_to_first_line([*command, "--json", "--force-grounding"])
            if repeat >= 0:
                taken[name].append(found)
    row = ["start, s", *(f"{statistics.median(taken[n]):.2f}" for n in models), ratio(taken)]
    return table(["", *models, "export / model"], [row], markdown=True)


def compare_replies(clues: dict[str, Clue], options: ExportOptions) -> str:
    """How far the replies about simulated scenes agree; requests clear, ambiguous and absent."""
    assert options.tabletop is not None
    samples = tabletop_samples(
        load_scenes(options.tabletop, options.split, options.scenes, options.world), options.world
    )
    for clue in clues.values():
        clue.policy, clue.threshold, clue.num_views = "both", None, None
    kinds = words = questions = 0
    overlaps, moved = [], []
    for sample in samples:
        image = sample.load()
        for text in (*(r.text for r in sample.clear), *sample.ambiguous, *sample.absent):
            ours, theirs = (
                clues[name].reply(clues[name].look(image), Dialogue(text))
                for name in (EXPORT, MODEL)
            )
            moved.append(abs(ours.ambiguity.probability - theirs.ambiguity.probability))
            if isinstance(ours, Grounding) and isinstance(theirs, Grounding):
                overlaps.append(ours.box.iou(theirs.box))
            elif isinstance(ours, Question) and isinstance(theirs, Question):
                questions += 1
                words += ours.text == theirs.text
            else:
                kinds += 1
    shares = [sum(value >= least for value in overlaps) for least in (0.9999, 0.9, 0.5)]
    return (
        f"{len(moved)} requests about {len(samples)} scenes: {kinds} changed between box and"
        f" question; of {questions} questions {words} had the same words; of {len(overlaps)} boxes"
        f" {shares[0]} were the same, {shares[1]} had an IoU of 0.9 and {shares[2]} of 0.5 (mean"
        f" {np.mean(overlaps) if overlaps else 1:.4f}); the probability moved by"
        f" {max(moved):.5f} at most (median {np.median(moved):.6f})"
    )


def main() -> None:
    """Print the tables."""
    global clock
    options = parse(ExportOptions, __doc__)
    clock = time.process_time if options.cpu_time else clock
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / EXPORT
        export_model(options.model, folder)
        for name, place in (("export", folder), ("graphs", folder / "openvino")):
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            print(f"{name}: {size / 1e6:.1f} MB")
        models = {
            MODEL: (options.model, options.dtype),
            EXPORT: (str(folder), options.export_dtype),
        }
        clues = {
            name: Clue.load(model, device="cpu", dtype=dtype)
            for name, (model, dtype) in models.items()
        }
        print(*(f"{name}: {clue.dtype}" for name, clue in clues.items()), sep="\n")
        if options.repeats:
            print(compare_times(clues, options.repeats))
        if options.tabletop is not None:
            print(compare_replies(clues, options))
        if options.starts:
            print(compare_starts(models, options.starts))


if __name__ == "__main__":
    main()
