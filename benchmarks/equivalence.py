#!/usr/bin/env python3
"""Our code path against transformers' own: same prompts, same half-depth map, same greedy tokens.

    scripts/run python benchmarks/equivalence.py [--config 3b|tiny|FOLDER] [--dtype bfloat16] ...

"3b" is google/paligemma2-3b-mix-448's configuration, "3b-224" that of its sister for smaller
pictures (a third of the work) and "tiny" a small one of the same family, all with random weights
and a stand-in tokenizer at the real ids; a folder, "tabletop" or a hub id is a model with its own
weights. Adapters are random ones. "3b" takes 13 GB or more (with --dtype bfloat16 too: at the end
the same weights are compared in float32); --scratch needs less memory and more time.
Exit status: 0 everything holds, 1 something does not, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

from benchmarks.equivalence_checks import CLARIFY, CONTEXTS, DETECT, Report, compare, precision
from benchmarks.full_size import (
    full_config,
    map_weights,
    random_adapters,
    random_backbone,
    small_config,
    stand_in_processor,
)
from clue_ros.errors import ClueError
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.checkpoint import DTYPES
from clue_ros.model.loading import find_base, find_model
from clue_ros.model.prompts import load_processor

CONFIGS: dict[str, Callable[[], PaliGemmaConfig]] = {
    "3b": full_config,
    "3b-224": partial(full_config, 224),
    "tiny": small_config,
}


def build(args: argparse.Namespace, scratch: Path | None) -> tuple[Backbone, Any]:
    """The backbone and its processor: made here with random weights, or loaded."""
    dtype = DTYPES[args.dtype]
    if args.config in CONFIGS:
        sizes = CONFIGS[args.config]()
        file = scratch / "weights" if scratch else None
        backbone = random_backbone(
            sizes, dtype=dtype, device=args.device, seed=args.seed, file=file
        )
        return backbone, stand_in_processor(sizes, (DETECT, CLARIFY, *CONTEXTS))
    folder = find_base(find_model(args.config))
    return load_backbone(folder, device=args.device, dtype=dtype), load_processor(folder)


def run(args: argparse.Namespace, scratch: Path | None) -> tuple[Report, dict[str, Any]]:
    """Compare, and say on what."""
    start = time.perf_counter()
    backbone, processor = build(args, scratch)

    def widen(narrow: Backbone) -> None:
        if scratch:
            map_weights(narrow.model, torch.float32, scratch / "float32")
        narrow.model.float()

    about: dict[str, Any] = {
        "config": args.config,
        "dtype": args.dtype,
        "device": str(backbone.device),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "parameters": sum(weight.numel() for weight in backbone.model.parameters()),
        "weights_gb": round(backbone.memory_bytes() / 1e9, 2),
        "blocks": backbone.blocks,
        "seed": args.seed,
        "build_s": round(time.perf_counter() - start, 1),
    }
    adapters = random_adapters(backbone, seed=args.seed)
    report = compare(backbone, processor, adapters, new_tokens=args.tokens, seed=args.seed)
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


def as_text(report: Report, about: dict[str, Any], *, markdown: bool = False) -> str:
    """A table of the checks, then what was measured beside them."""
    head = ("", "what", "through", "found", "wanted")
    rows = [
        ("ok" if check.holds else "NO", check.name, check.subject, check.found, check.wanted)
        for check in report.checks
    ]
    facts = [f"{name}: {value}" for name, value in about.items()]
    facts += [f"{name}: {value:.3g}" for name, value in report.measured.items()]
    if markdown:
        lines = [_row(head), _row(("---",) * len(head)), *map(_row, rows), ""]
        return "\n".join(lines + [f"- {fact}" for fact in facts])
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    table = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*table, "", *facts, "everything holds" if report.holds else "DIFFERENT"])


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(report: Report, about: dict[str, Any]) -> str:
    """One object: holds, about, checks, measured."""
    checks = [vars(check) for check in report.checks]
    return json.dumps({"holds": report.holds, **about, "checks": checks, **_measured(report)})


def _measured(report: Report) -> dict[str, dict[str, float]]:
    return {"measured": {name: float(f"{value:.6g}") for name, value in report.measured.items()}}


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", default="3b", help="3b (default), 3b-224, tiny, a folder or a hub id"
    )
    parser.add_argument("--dtype", default="float32", choices=tuple(DTYPES))
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--tokens", type=int, default=8, metavar="N", help="greedy tokens (8)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and picture (0)")
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="FOLDER",
        help="keep random weights in a temporary file there, mapped: slower, but runs in 3 GB",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    args = parser.parse_args(argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        if args.tokens < 1:
            raise ClueError(f"--tokens must be 1 or more, not {args.tokens}")
        if args.scratch is None:
            report, about = run(args, None)
        else:
            with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
                report, about = run(args, Path(folder))
    except ClueError as error:
        print(f"equivalence: {error}", file=sys.stderr)
        return 2
    print(as_json(report, about) if args.json else as_text(report, about, markdown=args.markdown))
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
