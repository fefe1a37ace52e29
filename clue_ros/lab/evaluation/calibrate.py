"""`clue calibrate DATA`: find the trust in a box from which a model keeps `max_risk`.

Asks the model about labelled requests of one place (photos.json, or reviewed episodes) and writes
calibration.json (`clue_ros.model.risk`) beside the model, which then keeps any `max_risk` that so
many requests support. Prints the risk, and the shares of requests that are pointed at, confirmed
and asked about.

    clue calibrate photos/ --out models/mine
    clue ground table.jpg "the mug" --model models/mine --max-risk 0.05
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from clue_ros.engine import Clue
from clue_ros.errors import BadImageError, ClueError, ModelError
from clue_ros.images import load_image
from clue_ros.lab.data.labels import SUFFIXES
from clue_ros.lab.data.photographs import Photograph, load_requests
from clue_ros.lab.evaluation.options import OutputOptions, RobotOptions, measured, note
from clue_ros.lab.evaluation.photos import (
    POINTS,
    PhotoReply,
    reply_to_photographs,
    taught_by_the_others,
)
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.model.load_options import check_max_risk
from clue_ros.model.loading import CALIBRATION, find_model
from clue_ros.model.risk import (
    DELTA,
    Calibration,
    Promise,
    needed,
    pooled,
    save_calibration,
    supported,
    trust,
)
from clue_ros.model.taught import digest_of

RISKS = (0.02, 0.05, 0.1, 0.2)
"""Values of `max_risk` in the table, beside the one that was asked for."""


def trust_of(reply: PhotoReply) -> float:
    """Return the trust in a reply's box, 0..1; -1 without a box."""
    if reply.did != POINTS or reply.score is None:
        return -1.0
    return trust(reply.score, reply.probability)


def calibrated(
    clue: Clue,
    replies: Sequence[PhotoReply],
    photographs: Sequence[Photograph],
    *,
    delta: float | None = DELTA,
    data: str = "",
) -> Calibration:
    """Calibrate on a model's replies to labelled requests, given without a bound.

    photographs: those of the requests; an unreadable one is left out.
    """
    pictures = []
    for photograph in photographs:
        try:
            view = clue.look(load_image(photograph.path))
        except BadImageError:  # it has no replies either
            continue
        pictures.append(tuple(pooled(view.features).tolist()))
    return Calibration(
        tuple(round(trust_of(reply), 6) for reply in replies),
        tuple(reply.wrong for reply in replies),
        tuple(pictures),
        delta,
        **clue.decision(),
        data=data,
        date=date.today().isoformat(),
    )


def outcomes(promise: Promise, replies: Sequence[PhotoReply]) -> dict[str, float]:
    """Return shares of requests under a promise: wrong and unconfirmed, pointed at, confirmed.

    The others are asked about ("which one?"), or nothing of that name is seen.
    """
    boxes = [reply for reply in replies if reply.did == POINTS]
    pointed = [r for r in boxes if promise.trusts(r.score or 0.0, r.probability)]
    shares = {
        "wrong": sum(reply.wrong for reply in pointed),
        "pointed": len(pointed),
        "confirmed": len(boxes) - len(pointed),
    }
    return {name: count / max(len(replies), 1) for name, count in shares.items()}


def rows(calibration: Calibration, replies: Sequence[PhotoReply], risks: Sequence[float]) -> Any:
    """Return a row of the table for each `max_risk`: its needs and its shares."""
    found = []
    for risk in risks:
        promise = Promise(risk, calibration)
        found.append(
            {
                "max_risk": risk,
                "needed": needed(risk, calibration.delta),
                "supported": not calibration.shortage(risk),
                "trust_from": calibration.bound(risk),
                **{name: round(share, 4) for name, share in outcomes(promise, replies).items()},
            }
        )
    return found


def kept_in_splits(
    replies: Sequence[PhotoReply],
    max_risk: float,
    delta: float | None,
    *,
    splits: int,
    seed: int = 0,
) -> dict[str, float]:
    """Calibrate on a random half of the photographs, and measure the risk on the other half.

    kept: share of splits in which the risk on the other half is at most `max_risk`. promised: share
    in which the half had enough requests to promise anything. wrong, pointed: means over splits of
    the other half's shares.
    """
    names = sorted({reply.image for reply in replies})
    rng = np.random.default_rng(seed)
    found: list[dict[str, float]] = []
    for _ in range(splits):
        chosen = set(rng.choice(names, len(names) // 2, replace=False).tolist())
        half = [reply for reply in replies if reply.image in chosen]
        other = [reply for reply in replies if reply.image not in chosen]
        made = Calibration(
            tuple(map(trust_of, half)), tuple(reply.wrong for reply in half), delta=delta
        )
        shares = outcomes(Promise(max_risk, made), other)
        kept, enough = shares["wrong"] <= max_risk, not made.shortage(max_risk)
        found.append({"kept": kept, "promised": enough, **shares})
    columns = "kept", "promised", "wrong", "pointed"
    means = {name: round(fmean(split[name] for split in found), 4) for name in columns}
    return {"max_risk": max_risk, **means}


def unknown_pictures(calibration: Calibration, clue: Clue, folder: Path) -> dict[str, Any]:
    """Count the pictures of a folder that are unlike all calibration pictures."""
    paths = [path for path in sorted(folder.glob("*")) if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise ClueError(f"--elsewhere {folder}: there are no pictures")
    features = (clue.look(load_image(path)).features for path in paths)
    unknown = sum(calibration.is_unknown(found) for found in features)
    return {"folder": folder.name, "pictures": len(paths), "unknown": unknown}


def as_text(
    found: Sequence[dict[str, Any]],
    n: int,
    halves: Sequence[dict[str, float]] = (),
    elsewhere: Sequence[dict[str, Any]] = (),
    *,
    markdown: bool = False,
) -> str:
    """The tables of `rows`, of `kept_in_splits` and of `unknown_pictures`.

    A dash where nothing is promised and every box is confirmed.
    """
    heads = (
        "max risk",
        "requests needed",
        "points from a trust of",
        "pointed at",
        "confirmed",
        "wrong without a confirmation",
    )
    cells: list[list[Cell]] = [
        [
            row["max_risk"],
            row["needed"],
            row["trust_from"],
            row["pointed"],
            row["confirmed"],
            row["wrong"],
        ]
        for row in found
    ]
    blocks = [f"{n} labelled requests", table(heads, cells, markdown=markdown)]
    more = (
        (("max risk", "kept on the other half", "half was enough", "wrong", "pointed at"), halves),
        (("other pictures", "number", "unknown"), elsewhere),
    )
    for names, lines in more:
        if lines:
            blocks.append(table(names, [list(row.values()) for row in lines], markdown=markdown))
    return "\n\n".join(blocks)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """The options of ``clue calibrate``."""

    model: RobotOptions
    output: OutputOptions
    out: Path | None = option(
        None,
        "folder of the model or of taught words, or a .json file to write; default: only the table"
        " is printed",
        metavar="FOLDER_OR_FILE",
    )
    delta: float = option(
        DELTA,
        "probability that a calibration does not keep its promise",
        metavar="SHARE",
    )
    on_average: bool = option(
        False,
        "keep the promise on average over calibrations (conformal risk control), which needs fewer"
        " requests, and not with probability 1 - delta",
    )
    splits: int = option(
        0,
        "also calibrate on so many random halves of the photographs, and count how often the other"
        " half keeps the promise",
        type=at_least(0),
    )
    teach: bool = option(
        False,
        "measure the answers of a model taught with the other photographs' objects (nothing is"
        " written: `clue adapt` makes such a model)",
    )
    elsewhere: tuple[Path, ...] = option(
        (),
        "folders of pictures of other places: also count those that are taken for unknown, where"
        " every box is shown",
        nargs="+",
        type=Path,
        metavar="FOLDER",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue calibrate``."""
    parser.add_argument(
        "data", type=Path, metavar="DATA", help="folder with photos.json, or of reviewed episodes"
    )
    add_options(parser, CalibrateOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue calibrate``; the exit status."""
    options = read_options(CalibrateOptions, args)
    wanted = options.model.max_risk
    check_max_risk(wanted)
    if not 0 < options.delta < 1:
        raise ClueError(f"--delta {options.delta:g}: want a number above 0 and below 1")
    if options.teach and options.out is not None:
        raise ClueError("--teach only measures: leave out --out, or use `clue adapt`")
    out = calibration_path(options.out)
    lost: list[str] = []
    photographs = load_requests(args.data, lost.append)
    delta = None if options.on_average else options.delta
    asked = sum(len(photograph.requests) for photograph in photographs)
    if wanted is not None and asked < needed(wanted, delta):
        raise ClueError(Calibration((0.0,) * asked, (False,) * asked, delta=delta).shortage(wanted))
    clue = replace(options.model, max_risk=None).load("" if options.teach else None)
    if not isinstance(clue, Clue):
        raise ClueError("only a model of CLUE can be calibrated: leave out --model wrapper")
    if options.teach:
        replies = taught_by_the_others(clue, photographs, lost.append)
    else:
        refuse_own_examples(clue, photographs)
        replies = reply_to_photographs(clue, with_progress(photographs), problem=lost.append)
    note(lost)
    if not replies:
        raise ClueError(f"none of {len(photographs)} photographs can be read")
    made = calibrated(clue, replies, photographs, delta=delta, data=args.data.name)
    if wanted is not None and (shortage := made.shortage(wanted)):
        raise ClueError(shortage)
    risks = sorted({*RISKS, *([wanted] if wanted is not None else [])})
    found = rows(made, replies, risks)
    if out is not None:
        try:
            save_calibration(made, out)
        except OSError as error:
            raise ClueError(f"{out} cannot be written: {error.strerror or error}") from error
    halves = [
        kept_in_splits(replies, risk, delta, splits=options.splits)
        for risk in risks
        if options.splits
    ]
    others = [unknown_pictures(made, clue, folder) for folder in options.elsewhere]
    written = None if out is None else str(out)
    options.output.show(
        {
            "n": made.n,
            "delta": delta,
            "out": written,
            "risks": found,
            "splits": halves,
            "elsewhere": others,
        },
        lambda markdown: as_text(found, made.n, halves, others, markdown=markdown),
        measured(clue),
    )
    if wanted is None:
        least = math.ceil(supported(made.n, delta) * 1000) / 1000
        note([f"so many requests support a max_risk of {least:g} or more"])
    return 0


def refuse_own_examples(clue: Clue, photographs: Sequence[Photograph]) -> None:
    """Raises ClueError if the model was taught words on one of these photographs.

    Its answers about them are better than about new ones.
    """
    taught = {e.picture for word in clue.memory.words.values() for e in word.examples}
    for photograph in photographs if taught else ():
        with contextlib.suppress(BadImageError):  # it has no replies
            if digest_of(load_image(photograph.path)) in taught:
                raise ClueError(
                    f"{photograph.path.name} has taught this model words: calibrate on other"
                    " photographs, or use `clue adapt`, which leaves each one out in turn"
                )


def calibration_path(out: Path | None) -> Path | None:
    """The file to write for `--out`, a model's folder or a .json file. Raises ClueError."""
    if out is None:
        return None
    if out.suffix == ".json":
        if not out.resolve().parent.is_dir():
            raise ClueError(f"--out {out}: there is no folder {out.parent}")
        return out
    if out.is_dir():
        return out / CALIBRATION
    try:
        return find_model(out) / CALIBRATION
    except ModelError:
        wanted = "name one that exists, or a .json file"
        raise ClueError(f"--out {out}: no such folder or model; {wanted}") from None
