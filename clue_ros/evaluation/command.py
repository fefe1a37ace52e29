"""``clue eval DATASET``: options and output that every data set shares."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clue_ros.engine import DEFAULT_POLICY, POLICIES
from clue_ros.errors import ClueError
from clue_ros.evaluation.protocol import MAX_QUESTIONS, Report, Sample, evaluate, with_progress
from clue_ros.model.hub import add_model_argument

if TYPE_CHECKING:
    from clue_ros.engine import Clue


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every ``clue eval``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line an item")
    parser.add_argument("--seed", type=int, default=0, help="fixes which requests are chosen (0)")
    parser.add_argument("--max-turns", type=int, default=MAX_QUESTIONS, metavar="N")
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N images only")
    add_model_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which model is measured, and how it decides."""
    add_model_argument(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--detector", help="another detector's folder, or a baseline's name")
    parser.add_argument("--ivg", help="another folder of adapter B")
    parser.add_argument("--policy", choices=POLICIES, default=DEFAULT_POLICY)
    parser.add_argument("--threshold", type=float, help="ask from this probability on")
    parser.add_argument("--looks", type=int, metavar="N", help="at a picture before it points")


def load_clue(args: argparse.Namespace) -> Clue:
    """The model that `add_model_arguments` describes. Raises ModelError."""
    from clue_ros.engine import Clue

    return Clue.load(
        args.model,
        device=args.device,
        policy=args.policy,
        threshold=args.threshold,
        looks=args.looks,
        detector=args.detector,
        ivg=args.ivg,
    )


def note(reasons: Iterable[str]) -> None:
    """Tell a person what was left out, and why."""
    for reason in reasons:
        print(f"note: {reason}", file=sys.stderr)


def require_folder(path: Path | None) -> None:
    """Refuse a file that could not be written, before what takes long. Raises ClueError."""
    if path is not None and not path.resolve().parent.is_dir():
        raise ClueError(f"{path} cannot be written: there is no folder {path.parent}")


def write_records(path: Path | None, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON line a record, where a file is given."""
    if path is not None:
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_evaluation(
    args: argparse.Namespace,
    load: Callable[[], tuple[list[Sample], list[str]]],
    groups: Mapping[str, Callable[[Mapping[str, Any]], bool]] = MappingProxyType({}),
    breakdown: Callable[[Report, list[Sample]], tuple[dict[str, Any], str]] | None = None,
) -> int:
    """Load the samples, measure the model on them and print the result; the exit status.

    ``load`` gives the samples and the rows of the data that could not be used as they are.
    ``groups``: which records to report apart as well, by name; left out where all fall into one.
    ``breakdown``: more of a report, as JSON and for people.
    """
    if args.limit is not None and args.limit < 1:
        raise ClueError(f"--limit must be 1 or more, not {args.limit}")
    require_folder(args.records)
    if args.max_turns < 0:
        raise ClueError(f"--max-turns must be 0 or more, not {args.max_turns}")
    samples, problems = load()
    samples = samples[: args.limit]
    if not samples:
        raise ClueError("no images to evaluate: check the folder and the split")
    note(problems)
    clue = load_clue(args)
    lost: list[str] = []
    report = evaluate(
        clue,
        with_progress(samples, sys.stderr.isatty()),
        max_questions=args.max_turns,
        problem=lost.append,
    )
    note(lost)
    if len(lost) == len(samples):
        raise ClueError(f"none of the {len(samples)} images can be read")
    write_records(args.records, report.records)
    parts = {name: report.part(belongs) for name, belongs in groups.items()}
    if any(len(part.records) == len(report.records) for part in parts.values()):
        parts = {}
    found, told = breakdown(report, samples) if breakdown is not None else ({}, "")
    if args.json:
        more = {"groups": {name: part.summary() for name, part in parts.items()}} if parts else {}
        print(json.dumps(report.summary() | more | found))
    else:
        lines = [report.text(), *(f"{n}:\n{part.text()}" for n, part in parts.items())]
        print("\n".join([*lines, told] if told else lines))
    return 0
