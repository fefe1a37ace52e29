"""Photographs unlike any training: whether it says that it is unsure, or points firmly and wrongly.

Every request gets one reply, as a person would get it. Right is: a clear request pointed at (IoU of
at least 0.5), an ambiguous one asked about, what is absent said to be absent. Firm is a box whose
score is at least 0.5. Whether the scores mean anything is measured beside it: the box's score
against the box being right, and the detector's probability against the request being ambiguous.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import BadImageError, ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import TRUTHS, Photograph, PhotoRequest, load_photographs
from clue_ros.lab.evaluation.metrics import auroc, calibration, iou, mean, ratio, rounded, wilson
from clue_ros.lab.evaluation.protocol import (
    Grounder,
    add_model_arguments,
    load_clue,
    note,
    require_folder,
    with_progress,
    write_records,
)
from clue_ros.lab.evaluation.report import Cell, table
from clue_ros.lab.evaluation.tabletop import MIN_IOU

FIRM = 0.5
"""The score from which on a box counts as pointed at firmly."""

POINTS, ASKS, NOT_THERE = "points", "asks", "not there"
_RIGHT = {"clear": POINTS, "ambiguous": ASKS, "absent": NOT_THERE}


@dataclass(frozen=True)
class Judged:
    """What became of one request.

    did: one of POINTS, ASKS, NOT_THERE. probability: the policy's, of ambiguous, 0..1. said: its
    question, or that there is none; "" where it points. box (pixels), score (0..1) and hit (whether
    the box has an IoU of 0.5 with one of the true ones): None unless it points. forced_*: the same
    where it may not ask, of clear requests only.
    """

    image: str
    text: str
    truth: str
    did: str
    probability: float
    said: str = ""
    box: list[float] | None = None
    score: float | None = None
    hit: bool | None = None
    forced_box: list[float] | None = None
    forced_score: float | None = None
    forced_hit: bool | None = None

    @property
    def right(self) -> bool:
        """Whether this was the thing to do."""
        return self.did == _RIGHT[self.truth] and self.hit is not False

    @property
    def firm(self) -> bool:
        """Whether it points, and is sure of it."""
        return self.score is not None and self.score >= FIRM

    def record(self) -> dict[str, Any]:
        """One line for those who want to look."""
        return asdict(self) | {"right": self.right, "firm": self.firm}


def judge_all(
    clue: Grounder[Any],
    photographs: Iterable[Photograph],
    *,
    problem: Callable[[str], None] = lambda reason: None,
) -> list[Judged]:
    """Ask for everything in every photograph. One that cannot be read is told to ``problem``."""
    judged = []
    for photograph in photographs:
        try:
            view = clue.look(load_image(photograph.path))
        except BadImageError as error:
            problem(f"left out, {error}")
            continue
        name = photograph.path.name
        judged += [_judge(clue, view, name, request) for request in photograph.requests]
    return judged


def _judge(clue: Grounder[Any], view: Any, name: str, request: PhotoRequest) -> Judged:
    reply = clue.reply(view, Dialogue(request.text))
    found: dict[str, Any] = {}
    if isinstance(reply, Question):
        found["did"] = NOT_THERE if isinstance(reply, NotFound) else ASKS
        found["said"] = reply.text
    else:
        found = {"did": POINTS} | _pointed(reply, request)
    if request.truth == "clear":
        forced = reply
        if isinstance(reply, Question):
            forced = clue.reply(view, Dialogue(request.text), force_grounding=True)
        if isinstance(forced, Grounding):
            pointed = _pointed(forced, request)
            found |= {f"forced_{key}": value for key, value in pointed.items()}
    probability = float(reply.ambiguity.probability)
    return Judged(name, request.text, request.truth, probability=probability, **found)


def _pointed(reply: Grounding, request: PhotoRequest) -> dict[str, Any]:
    return {
        "box": [round(side, 1) for side in reply.box.as_list()],
        "score": min(1.0, float(reply.score)),  # a product of shares may exceed 1 by a rounding
        "hit": _hits(reply.box, request.boxes),
    }


def _hits(box: Box, true: Sequence[Box]) -> bool:
    return any(iou(box, one) >= MIN_IOU for one in true)


def behaviour(judged: Sequence[Judged]) -> dict[str, float | int]:
    """What was done, as shares of these requests; NaN of none.

    points, asks, not_there: what it did; unsure: one of the latter two. points_firmly: with a score
    of at least FIRM; firmly_wrong: that, where it was not the thing to do. firmly_one_of_several:
    of these, the ambiguous requests where the box is at one of the things meant.
    """

    def share(belongs: Callable[[Judged], bool]) -> float:
        return ratio(sum(map(belongs, judged)), len(judged))

    return {
        "n": len(judged),
        "right": share(lambda j: j.right),
        "points": share(lambda j: j.did == POINTS),
        "points_firmly": share(lambda j: j.firm),
        "firmly_wrong": share(lambda j: j.firm and not j.right),
        "firmly_one_of_several": share(lambda j: j.firm and not j.right and j.hit is True),
        "asks": share(lambda j: j.did == ASKS),
        "not_there": share(lambda j: j.did == NOT_THERE),
        "unsure": share(lambda j: j.did != POINTS),
    }


def trust(chances: Sequence[float], labels: Sequence[bool]) -> dict[str, float | int]:
    """How far a number between 0 and 1 can be trusted to say whether something is so.

    so: how often it is. mean_if_so, mean_if_not: of the number. ece: expected calibration error.
    auroc: how well the number tells the two apart (0.5: not at all). NaN where there are none.
    """
    so = [chance for chance, label in zip(chances, labels, strict=True) if label]
    other = [chance for chance, label in zip(chances, labels, strict=True) if not label]
    return {
        "n": len(labels),
        "so": ratio(len(so), len(labels)),
        "mean_if_so": mean(so),
        "mean_if_not": mean(other),
        "ece": calibration(chances, labels).ece if labels else math.nan,
        "auroc": auroc(chances, labels),
    }


def measure(judged: Sequence[Judged]) -> dict[str, dict[str, float | int]]:
    """Every figure.

    "all" and each truth: `behaviour`. "score" (boxes pointed at unasked), "forced_score" (clear
    requests, questions forbidden): `trust` of the score in an IoU of 0.5. "ambiguity": `trust` of
    the detector's probability in a request, clear or ambiguous, being ambiguous.
    """
    parts = {"all": list(judged)} | {t: [j for j in judged if j.truth == t] for t in TRUTHS}
    at_once = [(j.score, j.hit) for j in judged if j.score is not None]
    forced = [(j.forced_score, j.forced_hit) for j in judged if j.forced_score is not None]
    told = [(j.probability, j.truth == "ambiguous") for j in judged if j.truth != "absent"]
    figures = {name: behaviour(part) for name, part in parts.items()}
    for name, pairs in (("score", at_once), ("forced_score", forced), ("ambiguity", told)):
        figures[name] = trust([float(c) for c, _ in pairs], [bool(label) for _, label in pairs])
    return figures


def summary(figures: Mapping[str, Mapping[str, float | int]]) -> dict[str, dict[str, Any]]:
    """The figures as JSON: four digits, null of nothing."""
    return {
        part: {k: v if isinstance(v, int) else rounded(v) for k, v in row.items()}
        for part, row in figures.items()
    }


def as_text(figures: Mapping[str, Mapping[str, float | int]], *, markdown: bool = False) -> str:
    """Three tables, and the one figure that matters most with its 95 % interval."""
    everything = figures["all"]
    n = int(everything["n"])
    wrong = round(float(everything["firmly_wrong"]) * n)
    low, high = wilson(wrong, n)
    done: list[list[Cell]] = [[name, *figures[name].values()] for name in ("all", *TRUTHS)]
    heads = ("requests", *(key.replace("_", " ") for key in everything))
    scores: list[list[Cell]] = [
        ["pointed at once", *figures["score"].values()],
        ["clear, may not ask", *figures["forced_score"].values()],
    ]
    sure = "box's score", "n", "IoU 0.5", "mean if so", "mean if not", "ECE", "AUROC"
    asked: list[list[Cell]] = [["clear and ambiguous", *figures["ambiguity"].values()]]
    doubt = "probability of ambiguous", "n", "ambiguous", *sure[3:]
    blocks = (
        table(heads, done, markdown=markdown),
        f"points firmly (score {FIRM} or more) and wrongly: {wrong} of {n}, "
        f"{wrong / n:.3f} ({low:.3f} to {high:.3f})",
        table(sure, scores, markdown=markdown),
        table(doubt, asked, markdown=markdown),
    )
    return "\n\n".join(blocks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval photos``."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder with photos.json (those of clue_ros)"
    )
    add_model_arguments(parser)
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line a request")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval photos``; the exit status."""
    require_folder(args.records)
    photographs = load_photographs(args.data or default_folder())
    clue = load_clue(args)
    lost: list[str] = []
    judged = judge_all(clue, with_progress(photographs, sys.stderr.isatty()), problem=lost.append)
    note(lost)
    if not judged:
        raise ClueError(f"none of {len(photographs)} photographs can be read")
    write_records(args.records, (j.record() for j in judged))
    figures = measure(judged)
    print(json.dumps(summary(figures)) if args.json else as_text(figures, markdown=args.markdown))
    return 0


def default_folder() -> Path:
    """The photographs that come with clue_ros."""
    from clue_ros.model.loading import demo_folder

    return demo_folder() / "photos"
