# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue eval intent`: measure the reading of utterances on labelled lists.

A list is JSON lines: {"text", "kind", "about", "offered", "wanted"}, the last three as far as they
are known. `kind` is one of "request", "answer", "unnamed", "yes", "no", "none", "refusal", "stop",
"wait" and "chat". A sentence that refuses one thing and asks for another counts apart, as "mixed";
`wanted` is its part for the model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.grounder import Replier
from clue_ros.dialogue.intent import WEIGHTS
from clue_ros.dialogue.reading import WANTED, Kind, read, wants
from clue_ros.errors import ClueError, NothingWantedError
from clue_ros.images import load_image
from clue_ros.lab.data.rows import checked_json_rows
from clue_ros.lab.evaluation.options import made_by
from clue_ros.lab.options import add_options, option, read_options
from clue_ros.model.loading import DEFAULT_MODEL

KINDS = ("request", "answer", "unnamed", "yes", "no", "none", "refusal", "stop", "wait", "chat")
MUST_NOT_ACT = ("refusal", "stop", "wait", "none", "chat")


@dataclass(frozen=True, kw_only=True)
class IntentEvaluation:
    """The options of `clue eval intent`."""

    lists: tuple[Path, ...] = option(
        (), "files of JSON lines", nargs="+", metavar="FILE", type=Path
    )
    picture: Path | None = option(
        None, "also run each refusal and stop as a dialogue about this picture; count the boxes"
    )
    model: str = option(DEFAULT_MODEL, "with --picture: the model")
    wrong: bool = option(False, "print the utterances whose reading differs from the list")
    json: bool = option(False, "print one JSON object")
    command_line: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, IntentEvaluation)


def run(args: argparse.Namespace) -> int:
    """Read the lists and print the figures."""
    options = read_options(IntentEvaluation, args)
    if not options.lists:
        raise ClueError("--lists: give at least one file of JSON lines (docs/reading.md)")
    rows = [row for path in options.lists for row in checked_json_rows(path, listed)]
    report = evaluate(rows, show=print if options.wrong else None)
    if options.picture is not None:
        from clue_ros.engine import Clue

        clue = Clue.load(options.model)
        report["boxes"] = boxes(clue, clue.look(load_image(options.picture)), rows)
    reader = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    report["made_by"] = made_by(options.command_line, {"sha256": reader})
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


def listed(row: Any) -> dict[str, Any]:
    """A row of a list. Raises ValueError, KeyError or TypeError."""
    if row["kind"] not in KINDS or not isinstance(row["text"], str):
        raise ValueError(f"kind must be one of {', '.join(KINDS)}")
    return dict(row)


def evaluate(rows: Iterable[dict[str, Any]], show: Any = None) -> dict[str, Any]:
    """Shares of each kind's rows: acted on at once, after a yes, not at all; read as that kind."""
    found: dict[str, dict[str, Any]] = {}
    seconds = []
    for row in rows:
        kind, offered = row["kind"], tuple(row.get("offered", ()))
        begin = time.perf_counter()
        said = read(row["text"], offered, row.get("about", ""))
        seconds.append(time.perf_counter() - begin)
        group = "mixed" if "wanted" in row else kind
        counts = found.setdefault(group, {"n": 0, "acted": 0, "confirmed": 0, "right": 0})
        acts = wants(said, offered)
        counts["n"] += 1
        counts["acted"] += acts and not said.confirm
        counts["confirmed"] += acts and said.confirm
        counts["right"] += is_right(said.kind, kind)
        if "wanted" in row:
            counts.setdefault("part", 0)
            counts["part"] += _same(said.text, row["wanted"])
        if show is not None and (acts == (kind in MUST_NOT_ACT) or not is_right(said.kind, kind)):
            read_as = f"{said.kind.value} {said.confidence:.2f}"
            confirmed = ", to be confirmed" if said.confirm else ""
            show(f"{kind}: {row['text']!r} read as {read_as}{confirmed}")
    median = round(1000 * float(np.median(seconds)), 3) if seconds else None
    return {"kinds": found, "median_ms": median}


def boxes(clue: Replier, view: Any, rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Count the refusals and stops that end in a box, though nobody answers the robot."""
    texts = [str(row["text"]) for row in rows if row["kind"] in ("refusal", "stop")]
    found = 0
    for text in texts:
        try:
            outcome = converse(clue, view, Conversation(text), lambda _question: None)
        except NothingWantedError:
            continue
        found += outcome is not None and outcome.grounding is not None
    return {"count": found, "n": len(texts)}


def is_right(read_as: Kind, kind: str) -> bool:
    """Return whether the reading agrees with the list; an offered answer is an answer."""
    if kind in ("request", "answer"):
        return read_as in WANTED
    return read_as.value == kind


def _same(a: str, b: str) -> bool:
    return [w for w in a.lower().split() if w.isalnum()] == [
        w for w in b.lower().split() if w.isalnum()
    ]
