"""`clue eval ivg`: the guesser setting of Table III, on InViG, IT2P or simulated scenes.

The whole dialogue, with the true questions and answers, is the prefix, and the model must point
(`Clue.reply(..., force_grounding=True)`). Counted: the share of boxes with an IoU of at least 0.5
with the truth (Acc@0.5, the paper's figure), the same at 0.1 .. 0.9, the mean IoU and the share of
boxes whose centre lies in the true box. IT2P annotates points, not boxes: its true boxes are
estimated from the photograph, and the share of centres within 20 px of the point is told as well.
With --asker also the other half of the adapter: how likely the true questions are to it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.dialogue import Box, Grounding
from clue_ros.errors import BadImageError, ClueError
from clue_ros.evaluation.command import note, require_folder, write_records
from clue_ros.evaluation.it2p import NEAR_PX
from clue_ros.evaluation.ivg_data import DATA, Told, Wanted, load_told
from clue_ros.evaluation.metrics import center_inside, center_near, iou, ratio, rounded, wilson
from clue_ros.evaluation.protocol import Grounder, with_progress
from clue_ros.evaluation.tables import table
from clue_ros.model.hub import add_model_argument

MIN_IOU = 0.5
CURVE = tuple(round(0.1 * step, 1) for step in range(1, 10))


@dataclass(frozen=True)
class Guess:
    """One dialogue that was pointed at. box, truth: x_min, y_min, x_max, y_max in pixels.

    questions: asked in the dialogue. near: centre within 20 px of the point; None without a point.
    estimated: False where the true box is a stand-in.
    """

    id: str
    image: str
    questions: int
    context: str
    box: list[float]
    truth: list[float]
    iou: float
    center: bool
    near: bool | None
    estimated: bool


def guess_all(
    clue: Grounder[Any], told: Iterable[Told], *, problem: Callable[[str], None]
) -> list[Guess]:
    """Point at the end of each dialogue; pictures that cannot be read are told to `problem`.

    A picture is looked at once for all of its dialogues that follow each other.
    """
    guesses: list[Guess] = []
    seen: tuple[str, Any, tuple[int, int]] | None = None
    for item in told:
        sample = item.sample
        if seen is None or seen[0] != sample.image_id:
            try:
                image = sample.load()
            except BadImageError as error:
                problem(f"{sample.id}: left out, {error}")
                continue
            seen = sample.image_id, clue.look(image), (image.shape[1], image.shape[0])
        dialogue = sample.dialogue()
        reply = clue.reply(seen[1], dialogue, force_grounding=True)
        if not isinstance(reply, Grounding):
            raise ClueError("the model asked although it had to point")
        guesses.append(_guess(item, dialogue.context(), reply.box, seen[2]))
    return guesses


def _guess(item: Told, context: str, box: Box, size: tuple[int, int]) -> Guess:
    width, height = size
    x_min, y_min, x_max, y_max = item.sample.box
    truth = Box(x_min * width, y_min * height, x_max * width, y_max * height)
    near = None
    if item.point is not None:
        near = center_near(box, (item.point[0] * width, item.point[1] * height), NEAR_PX)
    return Guess(
        id=item.sample.id,
        image=item.sample.image_id,
        questions=len(item.sample.exchanges),
        context=context,
        box=box.as_list(),
        truth=truth.as_list(),
        iou=iou(box, truth),
        center=center_inside(box, truth),
        near=near,
        estimated=item.estimated,
    )


def summary(guesses: Sequence[Guess]) -> dict[str, Any]:
    """All of them, and by the number of questions in the dialogue; None of nothing."""
    groups = sorted({guess.questions for guess in guesses})
    by_questions = {
        str(count): _scores([guess for guess in guesses if guess.questions == count])
        for count in groups
    }
    whole = _scores(guesses)
    whole["curve"] = {
        str(level): rounded(ratio(sum(g.iou >= level for g in guesses), len(guesses)))
        for level in CURVE
    }
    return {"guesser": whole, "by_questions": by_questions}


def _scores(guesses: Sequence[Guess]) -> dict[str, Any]:
    right, n = sum(guess.iou >= MIN_IOU for guess in guesses), len(guesses)
    low, high = wilson(right, n)
    scores: dict[str, Any] = {
        "accuracy": rounded(ratio(right, n)),
        "low": rounded(low),
        "high": rounded(high),
        "mean_iou": rounded(sum(g.iou for g in guesses) / n if n else math.nan),
        "center": rounded(ratio(sum(g.center for g in guesses), n)),
    }
    points = [guess.near for guess in guesses if guess.near is not None]
    if points:
        scores["near_20px"] = rounded(ratio(sum(points), len(points)))
        scores["stand_in_boxes"] = sum(not guess.estimated for guess in guesses)
    return scores | {"n": n}


_COLUMNS = {
    "n": "n",
    "accuracy": "Acc@0.5",
    "low": "from",
    "high": "to (95 %)",
    "mean_iou": "mean IoU",
    "center": "centre in box",
    "near_20px": "within 20 px",
}


def as_table(result: dict[str, Any], *, markdown: bool) -> str:
    """The summary for people."""
    names = [name for name in _COLUMNS if name in result["guesser"]]
    rows = [["all", *(result["guesser"][name] for name in names)]]
    for count, scores in result["by_questions"].items():
        label = "no question" if count == "0" else f"{count} question{'s' * (count != '1')}"
        rows.append([label, *(scores[name] for name in names)])
    parts = [table(["guesser", *(_COLUMNS[name] for name in names)], rows, markdown=markdown)]
    curve = result["guesser"]["curve"]
    parts.append(
        table(["IoU of at least", *curve], [["share", *curve.values()]], markdown=markdown)
    )
    if "asker" in result:
        names = [name.replace("_", " ") for name in result["asker"]]
        row = ["true questions", *result["asker"].values()]
        parts.append(table(["asker", *names], [row], markdown=markdown))
    if "near_20px" in result["guesser"]:
        parts.append(
            "The true boxes are estimated from the photograph; IT2P has points"
            f" ({result['guesser']['stand_in_boxes']} of them are a fixed square)."
        )
    return "\n\n".join(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue eval ivg`."""
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument(
        "--source", metavar="PATH", help="folder of the data; for invig also a file or hub id"
    )
    parser.add_argument("--split", choices=("train", "val", "test", "all"), default="test")
    parser.add_argument("--language", choices=("en", "cn"), default="en", help="of InViG (en)")
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD, help="of tabletop")
    parser.add_argument(
        "--per-image", type=int, default=2, metavar="N", help="of each kind, not for invig (2)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N pictures only")
    parser.add_argument("--seed", type=int, default=0, help="fixes which requests are chosen (0)")
    add_model_argument(parser)
    parser.add_argument("--ivg", type=Path, metavar="DIR", help="another adapter B")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--asker", action="store_true", help="also score the true questions")
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line an item")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(args: argparse.Namespace) -> int:
    """Run `clue eval ivg`; the exit status."""
    if args.per_image < 1:
        raise ClueError(f"--per-image must be 1 or more, not {args.per_image}")
    if args.limit is not None and args.limit < 1:
        raise ClueError(f"--limit must be 1 or more, not {args.limit}")
    require_folder(args.records)
    told, problems = load_told(
        Wanted(
            args.data,
            args.source,
            split=args.split,
            per_image=args.per_image,
            limit=args.limit,
            seed=args.seed,
            language=args.language,
            world=args.world,
        )
    )
    if not told:
        raise ClueError("no dialogues to evaluate: check the source and the split")
    note(problems)
    from clue_ros.engine import Clue

    clue = Clue.load(args.model, device=args.device, ivg=args.ivg)
    lost: list[str] = []
    guesses = guess_all(
        clue, with_progress(told, sys.stderr.isatty(), "dialogue"), problem=lost.append
    )
    note(lost)
    if not guesses:
        raise ClueError("none of the pictures can be read")
    result: dict[str, Any] = {"data": args.data, "split": args.split} | summary(guesses)
    if args.asker:
        from clue_ros.evaluation.ivg_asker import score_questions

        result["asker"] = score_questions(clue, told, axes=args.data != "invig")
    write_records(args.records, map(asdict, guesses))
    print(json.dumps(result) if args.json else as_table(result, markdown=args.markdown))
    return 0
