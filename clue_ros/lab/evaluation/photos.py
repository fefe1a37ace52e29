"""Measure replies on photographs unlike any training image, where the robot should be uncertain.

Every request gets one reply. The right reply to a clear request is a box (IoU of at least 0.5), to
an ambiguous one a question, and to a request for an absent object the sentence that it is absent. A
box is firm when its score is at least 0.5. Two probabilities are evaluated too: the score of a box
as a prediction that it is right, and the probability of ambiguity as one that the request is
ambiguous.

Then every dialogue is held to its end with a person who knows the object: yes or no to "this one?",
the candidate that shows it to "which one?", "none of them" where none does.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.dialogue.conversation import Conversation, Outcome, Step, Think
from clue_ros.dialogue.grounder import Grounder
from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import BadImageError, ClueError, NothingWantedError
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import TRUTHS, Photograph, PhotoRequest, load_photographs
from clue_ros.lab.data.shown import Shown, examples_of, know
from clue_ros.lab.evaluation.options import PolicyOptions, RecordsOptions, measured, note
from clue_ros.lab.evaluation.questions import judge_question, share_of_helpful
from clue_ros.lab.metrics import (
    FIRM,
    MIN_IOU,
    auroc,
    calibration,
    mean,
    ratio,
    rounded,
    wilson,
)
from clue_ros.lab.options import add_options, option, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.model.loading import demo_folder

"""A box with at least this score counts as firm."""

POINTS, ASKS, NOT_THERE, CONFIRMS = "points", "asks", "not there", "confirms"
_RIGHT = {"clear": POINTS, "ambiguous": ASKS, "absent": NOT_THERE}


@dataclass(frozen=True)
class PhotoReply:
    """The reply to one request about one photograph.

    did: POINTS, CONFIRMS ("this one?"), ASKS or NOT_THERE. probability: of ambiguity, 0..1, by the
    policy. said: the question, or the sentence that nothing was found; "" where it points. box
    (pixels) and hit (whether the box has an IoU of 0.5 with a true one): None unless it points or
    confirms; score (0..1): None unless it points. forced_*: the same when a question is forbidden,
    for clear requests only. questions: of the whole dialogue. unconfirmed: whether the dialogue
    ended in a wrong box without a confirmation. offers, new, confirm: a question's properties
    (`clue_ros.lab.evaluation.questions`); None for any other reply.
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
    questions: int = 0
    unconfirmed: bool = False
    offers: bool | None = None
    new: bool | None = None
    confirm: bool | None = None

    @property
    def right(self) -> bool:
        """True if this was the right reply."""
        return self.did == _RIGHT[self.truth] and self.hit is not False

    @property
    def right_after_yes(self) -> bool:
        """True if it was right, or asked "this one?" about an object that is meant."""
        return self.right or (self.did == CONFIRMS and self.hit is True)

    @property
    def wrong(self) -> bool:
        """True if it points, and that is not the right reply."""
        return self.did == POINTS and not self.right

    @property
    def firm(self) -> bool:
        """True if it points with a score of at least FIRM."""
        return self.score is not None and self.score >= FIRM

    def record(self) -> dict[str, Any]:
        """The reply as one JSON line."""
        return asdict(self) | {"right": self.right, "firm": self.firm}


def reply_to_photographs(
    clue: Grounder[Any],
    photographs: Iterable[Photograph],
    *,
    problem: Callable[[str], None] = lambda reason: None,
) -> list[PhotoReply]:
    """Reply to every request. `problem` is called for a photograph that cannot be read."""
    replies = []
    for photograph in photographs:
        try:
            view = clue.look(load_image(photograph.path))
        except BadImageError as error:
            problem(f"left out, {error}")
            continue
        name = photograph.path.name
        replies += [_reply(clue, view, name, request) for request in photograph.requests]
    return replies


def _reply(clue: Grounder[Any], view: Any, name: str, request: PhotoRequest) -> PhotoReply:
    reply = forced = clue.reply(view, Dialogue(request.text))
    found: dict[str, Any] = {"did": POINTS}
    if isinstance(reply, Question):
        found = {"did": NOT_THERE if isinstance(reply, NotFound) else ASKS, "said": reply.text}
        if reply.confirm:
            found |= {"did": CONFIRMS, **_shown(reply.candidates[0], request)}
        if not isinstance(reply, NotFound):
            judged = judge_question(reply, [request.text], request.boxes)
            found |= {name: judged[name] for name in ("offers", "new", "confirm")}
    else:
        found |= _pointed(reply, request)
    found |= _dialogue(clue, view, request)
    if request.truth == "clear":
        if isinstance(reply, Question):
            forced = clue.reply(view, Dialogue(request.text), force_grounding=True)
        if isinstance(forced, Grounding):
            found |= {f"forced_{key}": value for key, value in _pointed(forced, request).items()}
    probability = float(reply.ambiguity.probability)
    return PhotoReply(name, request.text, request.truth, probability=probability, **found)


def _pointed(reply: Grounding, request: PhotoRequest) -> dict[str, Any]:
    # A product of shares may exceed 1 by a rounding.
    return {**_shown(reply.box, request), "score": min(1.0, float(reply.score))}


def _shown(box: Box, request: PhotoRequest) -> dict[str, Any]:
    return {
        "box": [round(side, 1) for side in box.as_list()],
        "hit": any(box.iou(true) >= MIN_IOU for true in request.boxes),
    }


def _dialogue(clue: Grounder[Any], view: Any, request: PhotoRequest) -> dict[str, Any]:
    """Run the dialogue with a person who means the first true box."""
    target = request.boxes[0] if request.boxes else None
    try:
        conversation = Conversation(request.text)
    except NothingWantedError:  # "stop", say: no robot asks or points
        return {}
    step: Step = conversation.think()
    while not isinstance(step, Outcome):
        if isinstance(step, Think):
            reply = clue.reply(view, conversation.dialogue, force_grounding=step.force)
            step = conversation.reply(conversation.hold(reply))
        else:
            step = _answered(conversation, step.question, target)
    asked, found = conversation.questions, step.grounding
    if found is None or found.confirmed:
        return {"questions": asked}
    guessed = request.truth == "ambiguous" and asked == 0
    missed = target is None or found.box.iou(target) < MIN_IOU
    return {"questions": asked, "unconfirmed": guessed or missed}


def _answered(conversation: Conversation, question: Question, target: Box | None) -> Step:
    hits = [0.0 if target is None else box.iou(target) for box in question.candidates]
    best = max(range(len(hits)), key=hits.__getitem__, default=None)
    if best is not None and hits[best] >= MIN_IOU:
        return conversation.answer("yes") if question.confirm else conversation.choose(best)
    return conversation.answer("no" if question.confirm else "none of them")


def behaviour(replies: Sequence[PhotoReply]) -> dict[str, float | int]:
    """Shares of the replies that did something; NaN of no replies.

    points, asks, confirms, not_there: the kind of reply. unsure: all but a box. points_firmly: a
    firm box. firmly_wrong: a firm box where it was not the right reply. firmly_one_of_several: a
    firm box at one of the objects that an ambiguous request means. right_after_yes: right, or a
    "this one?" that is answered by yes. unconfirmed: the dialogue ended in a wrong box without a
    confirmation. questions: mean number of questions of the dialogues.
    """

    def share(belongs: Callable[[PhotoReply], bool]) -> float:
        return ratio(sum(map(belongs, replies)), len(replies))

    return {
        "n": len(replies),
        "right": share(lambda r: r.right),
        "points": share(lambda r: r.did == POINTS),
        "points_firmly": share(lambda r: r.firm),
        "firmly_wrong": share(lambda r: r.firm and not r.right),
        "firmly_one_of_several": share(lambda r: r.firm and not r.right and r.hit is True),
        "asks": share(lambda r: r.did == ASKS),
        "not_there": share(lambda r: r.did == NOT_THERE),
        "unsure": share(lambda r: r.did != POINTS),
        "confirms": share(lambda r: r.did == CONFIRMS),
        "right_after_yes": share(lambda r: r.right_after_yes),
        "unconfirmed": share(lambda r: r.unconfirmed),
        "questions": ratio(sum(r.questions for r in replies), len(replies)),
    }


def trust(chances: Sequence[float], labels: Sequence[bool]) -> dict[str, float | int]:
    """Measure how well a number between 0 and 1 predicts a label.

    so: share of true labels. mean_if_so, mean_if_not: mean number of the true and the false ones.
    ece: expected calibration error. auroc: area under the ROC curve (0.5: no separation).
    NaN where there are none.
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


def measure(replies: Sequence[PhotoReply]) -> dict[str, dict[str, float | int]]:
    """Every figure.

    "all" and each truth: `behaviour`. "score" (boxes of replies), "forced_score" (boxes of clear
    requests when a question is forbidden): `trust` in the score of the box, for an IoU of 0.5.
    "ambiguity": `trust` in the probability of ambiguity, for clear and ambiguous requests.
    "questions": `share_of_helpful`.
    """
    figures = {"all": behaviour(replies)}
    figures |= {truth: behaviour([r for r in replies if r.truth == truth]) for truth in TRUTHS}
    pairs: dict[str, list[tuple[float | None, bool | None]]] = {
        "score": [(r.score, r.hit) for r in replies if r.score is not None],
        "forced_score": [
            (r.forced_score, r.forced_hit) for r in replies if r.forced_score is not None
        ],
        "ambiguity": [
            (r.probability, r.truth == "ambiguous") for r in replies if r.truth != "absent"
        ],
    }
    for name, rows in pairs.items():
        figures[name] = trust([c or 0.0 for c, _ in rows], [bool(label) for _, label in rows])
    asked = [asdict(r) for r in replies if r.did in (ASKS, CONFIRMS)]
    return figures | {"questions": share_of_helpful(asked)}


def summary(figures: Mapping[str, Mapping[str, float | int]]) -> dict[str, dict[str, Any]]:
    """The figures for JSON: four digits, null instead of NaN."""
    return {
        part: {k: v if isinstance(v, int) else rounded(v) for k, v in row.items()}
        for part, row in figures.items()
    }


def as_text(figures: Mapping[str, Mapping[str, float | int]], *, markdown: bool = False) -> str:
    """Three tables, and the share of firm wrong boxes with its 95 % interval."""
    everything = figures["all"]
    n = int(everything["n"])
    wrong = round(float(everything["firmly_wrong"]) * n)
    low, high = wilson(wrong, n)
    unconfirmed = round(float(everything["unconfirmed"]) * n)
    done: list[list[Cell]] = [[name, *figures[name].values()] for name in ("all", *TRUTHS)]
    heads = ("requests", *(key.replace("_", " ") for key in everything))
    scores: list[list[Cell]] = [
        ["boxes of replies", *figures["score"].values()],
        ["clear, questions forbidden", *figures["forced_score"].values()],
    ]
    of_score = "score of the box", "n", "IoU 0.5", "mean if so", "mean if not", "ECE", "AUROC"
    asked: list[list[Cell]] = [["clear and ambiguous", *figures["ambiguity"].values()]]
    of_ambiguity = "probability of ambiguity", "n", "ambiguous", *of_score[3:]
    questions = figures["questions"]
    blocks = (
        table(heads, done, markdown=markdown),
        f"firm (score {FIRM} or more) and wrong: {wrong} of {n}, "
        f"{wrong / n:.3f} ({low:.3f} to {high:.3f})",
        f"dialogues that end in a wrong box without a confirmation: {unconfirmed} of {n}, "
        f"{unconfirmed / n:.3f}; questions a request: {everything['questions']:.2f}",
        table(of_score, scores, markdown=markdown),
        table(of_ambiguity, asked, markdown=markdown),
        table(("questions", *questions), [["", *questions.values()]], markdown=markdown),
    )
    return "\n\n".join(blocks)


def default_folder() -> Path:
    """The photographs that come with clue_ros."""
    return demo_folder() / "photos"


@dataclass(frozen=True, kw_only=True)
class PhotosOptions:
    """The options of ``clue eval photos``."""

    model: PolicyOptions
    output: RecordsOptions
    data: Path | None = option(
        None, "folder with photos.json; default: clue_ros's own", metavar="DIR"
    )
    teach: Path | None = option(
        None,
        "folder with photos.json whose objects are taught before; of --data itself, each photograph"
        " is replied to with what the others show",
        metavar="DIR",
    )
    shots: int | None = option(
        None, "with --teach, examples of a word at most, drawn anew for each", metavar="N"
    )
    split: int | None = option(
        None,
        "with --teach of --data itself, teach so many photographs and reply to the others",
        metavar="N",
    )
    seed: int = option(0, "of the photographs and examples that are drawn")


def reply_after_teaching(
    clue: Any,
    photographs: Sequence[Photograph],
    options: PhotosOptions,
    problem: Callable[[str], None],
) -> list[PhotoReply]:
    """Reply to photographs after other ones have shown their objects.

    The others are those of the folder `teach`; if that holds the photographs themselves, the rest
    of them, or with `split` that many drawn. Raises ClueError.
    """
    assert options.teach is not None
    rng, data = random.Random(options.seed), options.data or default_folder()
    same = options.teach.resolve() == data.resolve()

    def drawn(shown: Sequence[Shown]) -> Sequence[Shown]:
        return shown if options.shots is None else _fewer(shown, options.shots, rng)

    if same and options.split is None:
        return taught_by_the_others(clue, photographs, problem, drawn)
    teachers = list(photographs) if same else load_photographs(options.teach)
    shown, everything = examples_of(clue, teachers, problem), range(len(teachers))
    alike = options.split is None or not same
    taught = everything if alike else rng.sample(everything, options.split or 0)
    know(clue.memory, drawn([row for row in shown if row[0] in taught]))
    rest = [p for n, p in enumerate(photographs) if not (same and n in taught)]
    return reply_to_photographs(clue, with_progress(rest), problem=problem)


def taught_by_the_others(
    clue: Any,
    photographs: Sequence[Photograph],
    problem: Callable[[str], None],
    drawn: Callable[[Sequence[Shown]], Sequence[Shown]] = lambda shown: shown,
) -> list[PhotoReply]:
    """Reply to each photograph with words drawn from those that the others show.

    Raises ClueError.
    """
    shown, replies = examples_of(clue, photographs, problem), list[PhotoReply]()
    for n, photograph in enumerate(with_progress(photographs)):
        know(clue.memory, drawn([row for row in shown if row[0] != n]))
        replies += reply_to_photographs(clue, [photograph], problem=problem)
    return replies


def _fewer(shown: Sequence[Shown], shots: int, rng: random.Random) -> list[Shown]:
    """Draw at most so many examples of each word."""
    kept: dict[str, list[Shown]] = {}
    for row in rng.sample(shown, len(shown)):
        kept.setdefault(row[1], []).append(row)
    return [row for rows in kept.values() for row in rows[:shots]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval photos``."""
    add_options(parser, PhotosOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval photos``; the exit status."""
    options = read_options(PhotosOptions, args)
    photographs = load_photographs(options.data or default_folder())
    lost: list[str] = []
    clue = options.model.load("" if options.teach else options.model.own_words)
    if options.teach is None:
        replies = reply_to_photographs(clue, with_progress(photographs), problem=lost.append)
    else:
        replies = reply_after_teaching(clue, photographs, options, lost.append)
    note(lost)
    if not replies:
        raise ClueError(f"none of {len(photographs)} photographs can be read")
    options.output.write_records(reply.record() for reply in replies)
    figures = measure(replies)
    options.output.show(
        summary(figures),
        lambda markdown: as_text(figures, markdown=markdown),
        measured(clue),
        options.seed,
    )
    return 0
