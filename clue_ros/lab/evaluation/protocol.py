"""Three measurements that `clue eval it2p` and `clue eval tabletop` share, on any data set.

clear        clear requests: does the robot point at the right object? A question counts as wrong.
ambiguity    clear and ambiguous requests: does it ask exactly about the ambiguous ones?
interactive  ambiguous requests of a simulated user: does the dialogue end at the right object?

Dialogues run as on the robot (`clue_ros.dialogue.conversation.converse`). A dialogue that ends
without a box, because its questions are used up, is wrong for "accuracy"; "accuracy_forced" counts
the box that the robot gives when it must point then, in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.grounder import Grounder
from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
)
from clue_ros.dialogue.words import current_turns
from clue_ros.errors import BadImageError, ClueError
from clue_ros.lab.evaluation.options import PolicyOptions, RecordsOptions, measured, note
from clue_ros.lab.evaluation.questions import judge_question, share_of_helpful
from clue_ros.lab.metrics import FIRM, MIN_IOU, Counts, count, ratio, rounded, wilson
from clue_ros.lab.options import at_least, option
from clue_ros.lab.report import Cell, table, with_progress

Grade = Callable[[Box], bool]
Record = dict[str, Any]


@dataclass(frozen=True)
class ClearRequest:
    """A request that means one object. ``grades``: tests of a box by name, "accuracy" first."""

    text: str
    grades: Mapping[str, Grade]


@dataclass(frozen=True)
class DialogueRequest:
    """An ambiguous request, its target, and the user who answers questions about it.

    ``answer`` returns the user's answer to a question's text. ``about``: more fields of its record.
    ``meant`` returns the boxes, in pixels, that match the user's words so far; None: not known.
    ``confirms`` returns the answer to "do you mean this one?" about a box in pixels: by default
    "yes" if a grade holds, else the answer to "which one?".
    """

    text: str
    grades: Mapping[str, Grade]
    answer: Callable[[str], str]
    about: Mapping[str, Any] = field(default_factory=dict)
    meant: Callable[[], Sequence[Box]] | None = None
    confirms: Callable[[Box], str] | None = None


@dataclass(frozen=True)
class EvalSample:
    """One image and the requests about it. ``load`` returns uint8 RGB (H, W, 3).

    ``absent``: requests for objects that are not in the image. ``held_out``: requests for things
    that the model has no word for. ``about``: more fields of the record of a request, from its
    text.
    """

    name: str
    load: Callable[[], npt.NDArray[np.uint8]]
    clear: tuple[ClearRequest, ...] = ()
    ambiguous: tuple[str, ...] = ()
    interactive: tuple[DialogueRequest, ...] = ()
    about: Callable[[str], Mapping[str, Any]] = lambda text: {}
    absent: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationReport:
    """The results: one record for each request, in the order they were measured.

    Every record has "part" (clear, ambiguous, interactive, absent or held out), "image", "text",
    "right" and "box" (pixels; of the forced reply where the reply was a question; None where none
    was given). Held out: "unknown", whether the robot says so, and "firm", of its box.
    Clear: "asked", "grades" of the reply and "grades_forced", of the box with questions forbidden.
    Interactive: "outcome", "questions", "dialogue", both grades, and "useless", the number of
    questions that separated no candidates, where the user counts them. "judged": each question
    that was asked, if the data have the objects meant (`clue_ros.lab.evaluation.questions`).
    """

    records: list[Record] = field(default_factory=list)

    def of(self, part: str) -> list[Record]:
        """The records of one part."""
        return [record for record in self.records if record["part"] == part]

    def where(self, belongs: Callable[[Record], bool]) -> EvaluationReport:
        """The report of those records alone."""
        return EvaluationReport([record for record in self.records if belongs(record)])

    @property
    def counts(self) -> Counts:
        """Ambiguous or not: truth against decision."""
        decisions = [(False, record["asked"]) for record in self.of("clear")]
        return count([*decisions, *((True, record["right"]) for record in self.of("ambiguous"))])

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """The measurements as ``clue eval --json`` prints them; None where there is nothing."""
        clear, dialogues, absent = self.of("clear"), self.of("interactive"), self.of("absent")
        interactive = _shares(dialogues) | {
            "accuracy_forced": _shares(dialogues, "grades_forced")["accuracy"],
            "questions": _mean_of(dialogues, "questions"),
            "n": len(dialogues),
        }
        if any("useless" in record for record in dialogues):
            interactive["useless"] = _mean_of(dialogues, "useless")
        scores: dict[str, dict[str, float | int | None]] = {
            "clear": {**_shares(clear), "n": len(clear)},
            "ambiguity": {**self.counts.summary(), "n": self.counts.n},
            "interactive": interactive,
        }
        if absent:
            scores["absent"] = {**_shares(absent), "n": len(absent)}
        if held_out := self.of("held out"):
            known = {key: _mean_of(held_out, key) for key in ("unknown", "firm")}
            scores["held_out"] = {**known, "n": len(held_out)}
        if judged := [row for record in self.records for row in record.get("judged", ())]:
            shares = share_of_helpful(judged)
            scores["questions"] = {k: v if k == "n" else rounded(v) for k, v in shares.items()}
        return scores

    def text(self, *, markdown: bool = False) -> str:
        """The same as tables, with 95 % intervals."""
        clear, dialogues, absent = self.of("clear"), self.of("interactive"), self.of("absent")
        rows = [
            ("clear", clear, "grades", None),
            ("clear, questions forbidden", clear, "grades_forced", None),
            ("interactive", dialogues, "grades", _mean_of(dialogues, "questions")),
            ("interactive, forced at the end", dialogues, "grades_forced", None),
        ]
        if absent:
            rows.append(("absent, said to be absent", absent, "grades", None))
        more = [name for name in _shares(clear + dialogues) if name != "accuracy"]
        header = ["requests", "accuracy", "from", "to (95 %)", *more, "questions", "n"]
        lines: list[list[Cell]] = []
        for name, records, grades, questions in rows:
            shares, n = _shares(records, grades), len(records)
            interval = wilson(sum(record[grades]["accuracy"] for record in records), n)
            found = [shares.get(grade) for grade in more]
            lines.append([name, shares["accuracy"], *interval, *found, questions, n])
        counts = self.counts.summary() | {"n": self.counts.n}
        tables = [
            table(header, lines, markdown=markdown),
            table(["ambiguity", *counts], [["", *counts.values()]], markdown=markdown),
        ]
        summary = self.summary()
        for key, title in (("held_out", "held-out nouns"), ("questions", "questions")):
            if columns := summary.get(key):
                row: list[Cell] = ["", *columns.values()]
                tables.append(table([title, *columns], [row], markdown=markdown))
        return "\n\n".join(tables)


def _shares(records: list[Record], grades: str = "grades") -> dict[str, float | None]:
    """The share of right boxes by each grade."""
    names = records[0][grades] if records else ("accuracy",)
    return {name: _mean_of([record[grades] for record in records], name) for name in names}


def _mean_of(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return rounded(ratio(sum(record[key] for record in records), len(records)))


Breakdown = Callable[[EvaluationReport, list[EvalSample]], tuple[dict[str, Any], str]]


def evaluate(
    clue: Grounder[Any],
    samples: Iterable[EvalSample],
    *,
    max_questions: int = MAX_QUESTIONS,
    force_grounding: bool = False,
    problem: Callable[[str], None] = lambda reason: None,
) -> EvaluationReport:
    """Measure ``clue`` on every sample; each image is looked at once.

    ``force_grounding``: point when the questions are used up, instead of ending without a box.
    ``problem`` is called with the reason for an image that cannot be read, and for a request that
    the conversation refuses. The dialogue of a refused request counts as wrong.
    """
    records: list[Record] = []
    for sample in samples:
        try:
            view = clue.look(sample.load())
        except (OSError, ValueError, BadImageError) as error:
            problem(f"{sample.name}: left out, {error}")
            continue
        found = [_measure_clear(clue, view, request, sample) for request in sample.clear]
        for text in sample.ambiguous:
            right = _asks(clue, view, text)
            found.append({"part": "ambiguous", "text": text, "right": right, "box": None})
        for text in sample.absent:
            reply = clue.reply(view, Dialogue(text))
            right = isinstance(reply, NotFound)
            row = {"part": "absent", "text": text, "right": right, "box": None}
            found.append(row | {"grades": {"accuracy": right}} | _judged(reply, text, sample))
        found += [_measure_held_out(clue, view, text) for text in sample.held_out]
        for dialogue in sample.interactive:
            try:
                conversation = Conversation(
                    dialogue.text, max_questions=max_questions, force_grounding=force_grounding
                )
            except ClueError as error:  # it never reaches the model: nothing is grounded
                problem(f"{sample.name}: {error}")
                found.append(_dialogue_record(dialogue, error.code, None, None, 0, dialogue.text))
                continue
            found.append(_measure_dialogue(clue, view, dialogue, conversation))
        for record in found:
            about = record.pop("about", {})
            records.append(
                {"image": sample.name, **record, **sample.about(record["text"]), **about}
            )
    return EvaluationReport(records)


def _measure_held_out(clue: Grounder[Any], view: Any, text: str) -> Record:
    """Return whether the robot says that it lacks the word, and whether it points firmly."""
    reply = clue.reply(view, Dialogue(text))
    unknown = isinstance(reply, NotFound) and reply.text.startswith("I don't know ")
    firm = isinstance(reply, Grounding) and reply.score >= FIRM
    box = _corners(reply)
    return {
        "part": "held out", "text": text, "right": unknown, "unknown": unknown, "firm": firm,
        "box": box,
    }  # fmt: skip


def _judged(reply: Question | Grounding, text: str, sample: EvalSample) -> Record:
    """A first reply's question, judged by the boxes that the record of its request has."""
    truth = sample.about(text).get("truth")
    if truth is None or not isinstance(reply, Question) or isinstance(reply, NotFound):
        return {}
    return {"judged": [judge_question(reply, [text], [Box(*box) for box in truth])]}


def _measure_clear(
    clue: Grounder[Any], view: Any, request: ClearRequest, sample: EvalSample
) -> Record:
    reply = forced = clue.reply(view, Dialogue(request.text))
    if isinstance(reply, Question):
        forced = clue.reply(view, Dialogue(request.text), force_grounding=True)
    grades = _graded(reply, request.grades)
    return {
        "part": "clear",
        "text": request.text,
        "right": grades["accuracy"],
        "asked": isinstance(reply, Question),
        "box": _corners(forced),
        "grades": grades,
        "grades_forced": _graded(forced, request.grades),
        **_judged(reply, request.text, sample),
    }


def _asks(clue: Grounder[Any], view: Any, text: str) -> bool:
    """Return whether the reply would be a question, by the cheaper and equivalent judgement."""
    if clue.policy != "decoder":
        return clue.ambiguity(view, Dialogue(text)).is_ambiguous
    return isinstance(clue.reply(view, Dialogue(text)), Question)


def _measure_dialogue(
    clue: Grounder[Any], view: Any, request: DialogueRequest, conversation: Conversation
) -> Record:
    judged = []

    def answer(question: Question) -> str:
        if request.meant is not None and not isinstance(question, NotFound):
            refused = conversation.dialogue.refused
            meant = [box for box in request.meant() if all(box.iou(no) < MIN_IOU for no in refused)]
            turns = current_turns(conversation.dialogue.turns)
            said = [turn.text for turn in turns if turn.speaker == "user"]
            judged.append(judge_question(question, said, meant))
        if not question.confirm:
            return request.answer(question.text)
        (shown,) = question.candidates
        if request.confirms is not None:
            return request.confirms(shown)
        is_meant = any(grade(shown) for grade in request.grades.values())
        return "yes" if is_meant else request.answer("which one?")

    outcome = converse(clue, view, conversation, answer)
    assert outcome is not None  # the user answers every question
    dialogue, reached = conversation.dialogue, outcome.grounding
    forced: Question | Grounding | None = reached
    if outcome.code not in ("NONE", "CANCELED"):  # who refused wants no box, a forced one neither
        forced = clue.reply(view, dialogue, force_grounding=True)
    record = _dialogue_record(
        request, outcome.code, reached, forced, conversation.questions, dialogue.context()
    )
    return record | ({"judged": judged} if request.meant is not None else {})


def _dialogue_record(
    request: DialogueRequest,
    outcome: str,
    reached: Grounding | None,
    forced: Question | Grounding | None,
    questions: int,
    context: str,
) -> Record:
    grades = _graded(reached, request.grades)
    useless = getattr(request.answer, "useless", None)
    return {
        "part": "interactive",
        "text": request.text,
        "right": grades["accuracy"],
        "outcome": outcome,
        "questions": questions,
        "box": _corners(forced),
        "grades": grades,
        "grades_forced": _graded(forced, request.grades),
        "dialogue": context,
        **({} if useless is None else {"useless": useless}),
        "about": request.about,
    }


def _graded(reply: Question | Grounding | None, grades: Mapping[str, Grade]) -> dict[str, bool]:
    if not isinstance(reply, Grounding):
        return dict.fromkeys(grades, False)
    return {name: bool(grade(reply.box)) for name, grade in grades.items()}


def _corners(reply: Question | Grounding | None) -> list[float] | None:
    return reply.box.as_list() if isinstance(reply, Grounding) else None


# -------------------------------------------------------------------------------------------------
# The command line of an evaluation with dialogues.


@dataclass(frozen=True, kw_only=True)
class DialogueOptions:
    """The options that ``clue eval it2p`` and ``clue eval tabletop`` share."""

    model: PolicyOptions
    output: RecordsOptions
    max_turns: int = option(
        MAX_QUESTIONS,
        "largest number of questions in a dialogue; 0: never ask, point",
        type=at_least(0),
    )
    force_grounding: bool = option(
        False, "point when the questions are used up; default: the dialogue ends without a box"
    )
    limit: int | None = option(None, "use the first N images only", type=at_least(1))

    def evaluate(
        self,
        samples: list[EvalSample],
        problems: Iterable[str] = (),
        breakdown: Breakdown | None = None,
        seed: int | None = None,
    ) -> None:
        """Measure the model on the samples and print the report.

        ``problems``: the reason for each row of the data that was left out. ``breakdown``: further
        results of the report, as JSON and as text. ``seed``: of the choice of requests.
        """
        samples = samples[: self.limit]
        if not samples:
            raise ClueError("no images to evaluate: check the folder and the split")
        note(problems)
        lost: list[str] = []
        clue = self.model.load()
        report = evaluate(
            clue,
            with_progress(samples),
            max_questions=self.max_turns,
            force_grounding=self.force_grounding or self.max_turns == 0,
            problem=lost.append,
        )
        note(lost)
        if len(lost) == len(samples):
            raise ClueError(f"none of the {len(samples)} images can be read")
        self.output.write_records(report.records)
        more, more_text = breakdown(report, samples) if breakdown is not None else ({}, "")

        def text(markdown: bool) -> str:
            return "\n\n".join(filter(None, [report.text(markdown=markdown), more_text]))

        self.output.show(report.summary() | more, text, measured(clue), seed)
