# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of `clue ground`: with a model as it is, and exported in 8 bits.

    scripts/run python benchmarks/start_memory.py [--model household|FOLDER] [--random 300m]

Prints JSON: the largest resident memory, in MB, of a process from its start to the end of its first
answer, by plain transformers, by ours at the first start of all (which compiles) and by ours at a
later one (which reads the cache). Plain transformers has the files' type. Judges nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.common import cache_in, parse
from clue_ros.lab.evaluation.random_models import write_random_model
from clue_ros.lab.evaluation.speed import RANDOM, REQUESTS, START, time_to_first_line
from clue_ros.lab.options import option
from clue_ros.model.export import export_model
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder, find_model


@dataclass(frozen=True, kw_only=True)
class StartMemoryOptions:
    """The options of this benchmark."""

    model: str = option(DEFAULT_MODEL, "a name or a folder of a model with both adapters")
    random: str | None = option(
        None, "a model of this size with random weights in bfloat16 instead", choices=RANDOM
    )


def peak(*words: str) -> int:
    """The largest resident memory of a module's process in MB."""
    return round(time_to_first_line([sys.executable, "-m", *words])[1])


def measure(options: StartMemoryOptions, scratch: Path) -> dict[str, dict[str, int]]:
    """MB of each form of the model."""
    folder, dtype = find_model(options.model), "float32"
    if options.random is not None:
        folder, dtype = scratch / "model", "bfloat16"
        write_random_model(folder, options.random, torch.bfloat16)
    picture, text = str(demo_folder() / REQUESTS[0].image), REQUESTS[0].clear
    found = {"plain": {"all": peak(START["plain"], str(folder), picture, text, "5", dtype, "cpu")}}
    small = scratch / "int8"
    export_model(str(folder), small)
    for name, path in (("as it is", folder), ("int8", small)):
        words = ("ground", picture, text, "--json", "--model", str(path), "--force-grounding")
        with cache_in(scratch / f"cache {name}"):
            starts = [peak(START["ours"], *words, "--backend", "openvino") for _ in range(2)]
        found[name] = dict(zip(("first", "later"), starts, strict=True))
    return found


def main() -> None:
    """Run the benchmark."""
    options = parse(StartMemoryOptions, __doc__)
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps({**vars(options), "megabytes": measure(options, Path(scratch))}))


if __name__ == "__main__":
    main()
