"""The three measurements every data set shares.

clear        clear requests: does it point at the right thing? A question counts as wrong.
ambiguity    clear against ambiguous requests: does it ask exactly when it should?
interactive  ambiguous requests with a person who answers: is the right thing pointed at in the end?

They are taken on anything that behaves like :class:`clue_ros.engine.Clue`.

Each picture is looked at once (:meth:`Clue.look`), whatever is then asked about it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
)
from clue_ros.engine import DEFAULT_POLICY, POLICIES
from clue_ros.errors import BadImageError, ClueError
from clue_ros.lab.evaluation.metrics import Counts, count, ratio, wilson
from clue_ros.model.loading import add_model_argument

if TYPE_CHECKING:
    from clue_ros.engine import Clue


Grade = Callable[[Box], bool]
ViewT = TypeVar("ViewT")
PictureT = TypeVar("PictureT")


class Grounder(Protocol[ViewT]):
    """The part of :class:`clue_ros.engine.Clue` that is measured."""

    @property
    def policy(self) -> str:
        """Who decides to ask: "detector" or "decoder"."""

    def look(self, image: npt.NDArray[np.uint8]) -> ViewT:
        """Look once at uint8 RGB (H, W, 3)."""

    def ambiguity(self, view: ViewT, expression: str | Dialogue) -> AmbiguityEstimate:
        """Judge a request."""

    def reply(
        self, view: ViewT, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask or point."""


@dataclass(frozen=True)
class Request:
    """A request that means one thing. ``grades``: what makes a box right, "accuracy" first."""

    text: str
    grades: Mapping[str, Grade]


@dataclass(frozen=True)
class Exchange:
    """An ambiguous request with one target, and what its person says to a question.

    ``about``: what is to be recorded of it, over what the sample says of its text.
    """

    text: str
    grades: Mapping[str, Grade]
    answer: Callable[[str], str]
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One picture and what is asked about it. ``load`` gives uint8 RGB (H, W, 3).

    ``about``: what is to be recorded of a request beside its outcome. ``absent``: requests for what
    is not in the picture.
    """

    name: str
    load: Callable[[], npt.NDArray[np.uint8]]
    clear: tuple[Request, ...] = ()
    ambiguous: tuple[str, ...] = ()
    interactive: tuple[Exchange, ...] = ()
    about: Callable[[str], Mapping[str, Any]] = lambda text: {}
    absent: tuple[str, ...] = ()


@dataclass
class Report:
    """Everything counted so far, and one record an item for those who want to look."""

    clear: list[dict[str, bool]] = field(default_factory=list)
    pointed: list[dict[str, bool]] = field(default_factory=list)
    decisions: list[tuple[bool, bool]] = field(default_factory=list)
    interactive: list[dict[str, bool]] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)
    absent: list[bool] = field(default_factory=list)  # whether it said that there is none
    useless: list[int] = field(default_factory=list)  # questions that told nothing, where known
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        """Ambiguous or not: truth against decision."""
        return count(self.decisions)

    def part(self, belongs: Callable[[Mapping[str, Any]], bool]) -> Report:
        """The report of those records alone, without grades other than "accuracy"."""
        part = Report(records=[record for record in self.records if belongs(record)])
        for record in part.records:
            right = {"accuracy": bool(record["right"])}
            if record["part"] == "clear":
                part.clear.append(right)
                part.pointed.append({"accuracy": record["pointed"]})
                part.decisions.append((False, record["asked"]))
            elif record["part"] == "ambiguous":
                part.decisions.append((True, record["right"]))
            elif record["part"] == "absent":
                part.absent.append(record["right"])
            else:
                part.interactive.append(right)
                part.questions.append(record["questions"])
                part.useless += [record["useless"]] if "useless" in record else []
        return part

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """The three measurements, as ``clue eval --json`` prints them; None of nothing."""
        table = self.counts
        asked = ratio(sum(self.questions), len(self.questions))
        scores: dict[str, dict[str, float | int]] = {
            "clear": _shares(self.clear),
            "ambiguity": {
                "accuracy": table.accuracy,
                "precision": table.precision,
                "recall": table.recall,
                "f1": table.f1,
                "n": table.n,
            },
            "interactive": _shares(self.interactive, questions=asked),
        }
        if self.useless:
            scores["interactive"]["useless"] = ratio(sum(self.useless), len(self.useless))
        if self.absent:
            share = ratio(sum(self.absent), len(self.absent))
            scores["absent"] = {"accuracy": share, "n": len(self.absent)}
        return {part: {k: _plain(v) for k, v in row.items()} for part, row in scores.items()}

    def text(self) -> str:
        """The same for people, with 95 % intervals and the pointing alone, questions forbidden."""
        table, asked = self.counts, ratio(sum(self.questions), len(self.questions))
        return "\n".join(
            [
                _line("clear", self.clear),
                _line("  if never asking", self.pointed),
                f"{'ambiguity':<20}F1 {table.f1:.3f}  precision {table.precision:.3f}  "
                f"recall {table.recall:.3f}  accuracy {table.accuracy:.3f}  (n = {table.n})",
                f"{_line('interactive', self.interactive)}  {asked:.2f} questions each",
                *(
                    [_line("not there", [{"accuracy": a} for a in self.absent])]
                    if self.absent
                    else []
                ),
            ]
        )


def evaluate(
    clue: Grounder[Any],
    samples: Iterable[Sample],
    *,
    max_questions: int = MAX_QUESTIONS,
    problem: Callable[[str], None] = lambda reason: None,
) -> Report:
    """Measure ``clue`` on every sample. A picture that cannot be read is told to ``problem``."""
    report = Report()
    for sample in samples:
        try:
            view = clue.look(sample.load())
        except (OSError, ValueError, BadImageError) as error:
            problem(f"{sample.name}: left out, {error}")
            continue
        for request in sample.clear:
            _clear(clue, view, sample, request, report)
        for text in sample.ambiguous:
            asks = _asks(clue, view, text)
            report.decisions.append((True, asks))
            report.records.append(_record("ambiguous", sample, text, right=asks))
        for text in sample.absent:
            found = isinstance(clue.reply(view, Dialogue(text)), NotFound)
            report.absent.append(found)
            report.records.append(_record("absent", sample, text, right=found))
        for exchange in sample.interactive:
            _converse(clue, view, sample, exchange, max_questions, report)
    return report


def _clear(
    clue: Grounder[Any], view: Any, sample: Sample, request: Request, report: Report
) -> None:
    reply = clue.reply(view, Dialogue(request.text))
    asked = isinstance(reply, Question)
    pointed = clue.reply(view, Dialogue(request.text), force_grounding=True) if asked else reply
    report.clear.append(_graded(reply, request.grades))
    report.pointed.append(_graded(pointed, request.grades))
    report.decisions.append((False, asked))
    right = report.clear[-1]["accuracy"]
    record = _record("clear", sample, request.text, right=right, box=pointed)
    report.records.append(record | {"asked": asked, "pointed": report.pointed[-1]["accuracy"]})


def _asks(clue: Grounder[Any], view: Any, text: str) -> bool:
    """Whether it would ask. A judgement is cheaper than a whole reply, and the same."""
    if clue.policy != "decoder":
        return clue.ambiguity(view, Dialogue(text)).is_ambiguous
    return isinstance(clue.reply(view, Dialogue(text)), Question)


def _converse(
    clue: Grounder[Any],
    view: Any,
    sample: Sample,
    exchange: Exchange,
    max_questions: int,
    report: Report,
) -> None:
    dialogue = Dialogue(exchange.text)
    reply = clue.reply(view, dialogue, force_grounding=max_questions == 0)
    while isinstance(reply, Question) and dialogue.questions < max_questions:
        dialogue.add_question(reply.text)
        dialogue.add_answer(exchange.answer(reply.text))
        forced = dialogue.questions >= max_questions
        reply = clue.reply(view, dialogue, force_grounding=forced)
    report.interactive.append(_graded(reply, exchange.grades))
    report.questions.append(dialogue.questions)
    right = report.interactive[-1]["accuracy"]
    record = _record("interactive", sample, exchange.text, right=right, box=reply)
    more = {"dialogue": dialogue.context(), "questions": dialogue.questions}
    useless = getattr(exchange.answer, "useless", None)
    if useless is not None:
        report.useless.append(useless)
        more["useless"] = useless
    report.records.append(record | more | dict(exchange.about))


def _graded(reply: Question | Grounding, grades: Mapping[str, Grade]) -> dict[str, bool]:
    if isinstance(reply, Question):
        return dict.fromkeys(grades, False)
    return {name: bool(grade(reply.box)) for name, grade in grades.items()}


def _record(
    part: str, sample: Sample, text: str, *, right: bool, box: Question | Grounding | None = None
) -> dict[str, Any]:
    corners = box.box.as_list() if isinstance(box, Grounding) else None
    record = {"part": part, "image": sample.name, "text": text, "right": right, "box": corners}
    return record | dict(sample.about(text))


def _shares(rows: list[dict[str, bool]], **means: float) -> dict[str, float | int]:
    names = rows[0] if rows else ("accuracy",)
    shares: dict[str, float | int] = {
        name: ratio(sum(row[name] for row in rows), len(rows)) for name in names
    }
    return shares | means | {"n": len(rows)}


def _plain(value: float | int) -> float | int | None:
    """JSON has no NaN."""
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 4)
    return value


def _line(name: str, rows: list[dict[str, bool]]) -> str:
    right, n = sum(row["accuracy"] for row in rows), len(rows)
    low, high = wilson(right, n)
    extra = "".join(
        f"  {key.replace('_', ' ')} {value:.3f}"
        for key, value in _shares(rows).items()
        if key not in ("accuracy", "n")
    )
    share = ratio(right, n)
    return f"{name:<20}accuracy {share:.3f} ({low:.3f} to {high:.3f}){extra}  (n = {n})"


def with_progress(
    pictures: Sequence[PictureT], show: bool, unit: str = "image"
) -> Iterator[PictureT]:
    """The pictures (or what else ``unit`` says), with a progress bar on stderr if ``show``."""
    if not show:
        yield from pictures
        return
    from tqdm import tqdm

    yield from tqdm(pictures, unit=unit, leave=False)


# -------------------------------------------------------------------------------------------------
# ``clue eval DATASET``: options and output that every data set shares.


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
        num_views=args.looks,
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
