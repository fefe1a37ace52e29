#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare our code path with transformers' own: same prompts, half-depth map and greedy tokens.

    scripts/run python benchmarks/equivalence.py [--config 3b|tiny|FOLDER] [--dtype bfloat16] ...

"3b" is the configuration of google/paligemma2-3b-mix-448, "3b-224" that of its sister for smaller
images (a third of the work) and "tiny" a small one of the same family, all with random weights and
a stand-in tokenizer at the real ids; a folder, "household" or a hub id is a model with its own
weights. Adapters are random. "3b" takes 13 GB or more (with --dtype bfloat16 too: at the end the
same weights are compared in float32); --scratch needs less memory and more time.
Exit status: 0 everything holds, 1 something does not, 2 bad input.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

from benchmarks.common import parse
from benchmarks.equivalence_checks import (
    CLARIFY,
    CONTEXTS,
    DETECT,
    EquivalenceReport,
    compare,
    precision,
)
from benchmarks.full_size import (
    full_config,
    map_weights,
    random_adapters,
    random_backbone,
    small_config,
    stand_in_processor,
)
from clue_ros.errors import ClueError
from clue_ros.lab.options import at_least, option
from clue_ros.lab.report import table
from clue_ros.model.devices import DTYPES
from clue_ros.model.loading import find_base, find_model
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model

CONFIGS: dict[str, Callable[[], PaliGemmaConfig]] = {
    "3b": full_config,
    "3b-224": partial(full_config, 224),
    "tiny": small_config,
}


@dataclass(frozen=True, kw_only=True)
class EquivalenceOptions:
    """The options of this benchmark."""

    config: str = option("3b", "3b, 3b-224, tiny, a folder or a hub id")
    dtype: str = option("float32", "type of the weights", choices=tuple(DTYPES))
    device: str = option("cpu", "cpu or cuda")
    tokens: int = option(8, "number of greedy tokens", type=at_least(1))
    seed: int = option(0, "seed of the weights and the image")
    scratch: Path | None = option(
        None,
        "keep random weights in a temporary file in this folder, mapped into memory: slower, but"
        " runs in 3 GB",
        metavar="FOLDER",
    )
    json: bool = option(False, "print one JSON object", exclusive=True)
    markdown: bool = option(False, "print a Markdown table", exclusive=True)


def build(options: EquivalenceOptions, scratch: Path | None) -> tuple[TorchModel, Any]:
    """The backbone and its processor: made here with random weights, or loaded."""
    dtype = getattr(torch, options.dtype)
    if options.config in CONFIGS:
        sizes = CONFIGS[options.config]()
        file = scratch / "weights" if scratch else None
        backbone = random_backbone(
            sizes, dtype=dtype, device=options.device, seed=options.seed, file=file
        )
        return backbone, stand_in_processor(sizes, (DETECT, CLARIFY, *CONTEXTS))
    folder = find_base(find_model(options.config))
    return load_model(folder, device=options.device, dtype=dtype), load_processor(folder)


def run(
    options: EquivalenceOptions, scratch: Path | None
) -> tuple[EquivalenceReport, dict[str, Any]]:
    """Compare, and say on what."""
    start = time.perf_counter()
    backbone, processor = build(options, scratch)

    def widen(narrow: TorchModel) -> None:
        if scratch:
            map_weights(narrow.model, torch.float32, scratch / "float32")
        narrow.model.float()

    about: dict[str, Any] = {
        "config": options.config,
        "dtype": options.dtype,
        "device": str(backbone.device),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "parameters": sum(weight.numel() for weight in backbone.model.parameters()),
        "weights_gb": round(backbone.memory_bytes() / 1e9, 2),
        "blocks": backbone.blocks,
        "seed": options.seed,
        "build_s": round(time.perf_counter() - start, 1),
    }
    adapters = random_adapters(backbone, seed=options.seed)
    report = compare(backbone, processor, adapters, new_tokens=options.tokens, seed=options.seed)
    about["peak_gb"] = round(_peak(backbone.device) / 1e9, 2)
    if backbone.dtype is not torch.float32:
        report.measured |= precision(backbone, processor, adapters, widen)
    about["total_s"] = round(time.perf_counter() - start, 1)
    return report, about


def _peak(device: torch.device) -> int:
    """Bytes: of GPU memory there, else the largest this process has been."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux


def as_text(report: EquivalenceReport, about: dict[str, Any], *, markdown: bool = False) -> str:
    """A table of the checks, then what was measured beside them."""
    rows = [
        ["ok" if check.holds else "NO", check.name, check.subject, check.found, check.wanted]
        for check in report.checks
    ]
    checks = table(("", "what", "through", "found", "wanted"), rows, markdown=markdown)
    facts = [f"{name}: {value}" for name, value in about.items()]
    facts += [f"{name}: {value:.3g}" for name, value in report.measured.items()]
    if markdown:
        return "\n".join([checks, "", *(f"- {fact}" for fact in facts)])
    return "\n".join([checks, "", *facts, "everything holds" if report.holds else "DIFFERENT"])


def as_json(report: EquivalenceReport, about: dict[str, Any]) -> str:
    """One object: holds, about, checks, measured."""
    measured = {name: float(f"{value:.6g}") for name, value in report.measured.items()}
    checks = [vars(check) for check in report.checks]
    return json.dumps({"holds": report.holds, **about, "checks": checks, "measured": measured})


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; the exit status."""
    options = parse(EquivalenceOptions, __doc__, argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        if options.scratch is None:
            report, about = run(options, None)
        else:
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                report, about = run(options, Path(folder))
    except ClueError as error:
        print(f"equivalence: {error}", file=sys.stderr)
        return 2
    text = as_json(report, about) if options.json else None
    print(text or as_text(report, about, markdown=options.markdown))
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
