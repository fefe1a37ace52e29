"""Referring expressions with any detector: P@1 at IoU 0.5, when to ask, and the choosers compared.

A clear dialogue is right when the box that is pointed at (questions forbidden, as in the papers)
has an IoU of at least 0.5 with the true one. "best possible" counts the dialogues for which any
candidate is right. Ambiguity is measured on all dialogues: several boxes or none against one.
"dialogues" is the share of ambiguous requests after which a simulated user gets the right box
(`clue_ros.lab.evaluation.rec_dialogues`).

Each --language-model is a row; "rules" and "detector" (its surest box) are always there, and
--clue MODEL adds an embedded or full-size CLUE on the same items. With several --candidate-set each
set has these rows. Within a run a detector is asked once about a picture and its nouns. "seconds to
look" is the detector's time (for CLUE: its look at the picture), "seconds to reply" the chooser's;
means over the dialogues, each counted as the first about its picture. A row is named "transfer" if
an adapter gets boxes of a source that is new to it.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.nouns import nouns_of
from clue_ros.dialogue.types import Dialogue, Grounding, NotFound
from clue_ros.errors import ClueError
from clue_ros.lab.data.referring import ReferringItem
from clue_ros.lab.data.referring_options import CANDIDATES, EVALUATION_SEED, ReferringOptions
from clue_ros.lab.evaluation.options import RecordsOptions, note
from clue_ros.lab.evaluation.rec_dialogues import converse_all, dialogue_samples, summary_of
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.metrics import MIN_IOU, count, mean, ratio, rounded, wilson
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.published import REFERRING
from clue_ros.lab.report import (
    Cell,
    add_grid,
    draw_intervals,
    new_figure,
    save_figure,
    table,
    with_progress,
)
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.model.quantization import QUANTIZATIONS
from clue_ros.wrapper.clue_source import ClueSource
from clue_ros.wrapper.deciding import best_scored, pointed_at
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.language_model import LanguageModel
from clue_ros.wrapper.prompt import AnswerKind
from clue_ros.wrapper.served_model import ServedModel, open_language_model
from clue_ros.wrapper.sources import CLUE, OnceAsked

LENGTHS = ((5, "up to 5 words"), (10, "6 to 10 words"), (20, "11 to 20"), (10**6, "over 20"))
ALIKE = ((1, "1"), (2, "2"), (3, "3"), (10**6, "4 or more"))
LISTED = ((1, "0 or 1"), (3, "2 to 3"), (6, "4 to 6"), (10, "7 to 10"), (10**6, "over 10"))
FORMS = ("no relation", "relation")
GROUPS = {
    "by number of candidates": ("listed", tuple(name for _, name in LISTED)),
    "by boxes with the same label": ("alike", tuple(name for _, name in ALIKE)),
    "by length": ("length", tuple(name for _, name in LENGTHS)),
    "by form": ("form", FORMS),
}
"""The breakdowns of P@1: the key of a record, and its values in their order."""
SECONDS = ("seconds to look", "seconds to reply")
Record = dict[str, Any]


@dataclass
class Row:
    """One chooser's results, a record for each item. rates: how its answers were.

    candidates: the sources of the boxes; none of CLUE, which finds its own. dialogues: a record for
    each dialogue with a simulated user. trained_with: the candidates of an adapter's training,
    where they are known.
    """

    name: str
    candidates: tuple[str, ...] = ()
    records: list[Record] = field(default_factory=list)
    rates: Mapping[str, float] = field(default_factory=dict)
    order_changes: float | None = None
    orders: int = 0
    dialogues: list[Record] = field(default_factory=list)
    trained_with: tuple[str, ...] = ()

    @property
    def listed_by(self) -> str:
        """The sources of the boxes, in words."""
        return " + ".join(self.candidates) or "its own"

    def summary(self) -> dict[str, Any]:
        """The figures as JSON; shares 0..1, None where there is nothing."""
        clear = [r for r in self.records if r["clear"]]
        decided = count([(not r["clear"], r["asked"]) for r in self.records])
        right = sum(r["right"] for r in clear)
        possible = sum(r["possible"] for r in clear) if self.candidates else None
        return {
            "candidates": list(self.candidates),
            "chooser": self.name,
            "P@1": rounded(ratio(right, len(clear))),
            "interval": [rounded(v) for v in wilson(right, len(clear))],
            "best possible": None if possible is None else rounded(ratio(possible, len(clear))),
            "n clear": len(clear),
            **{f"ambiguity {k}": v for k, v in decided.summary().items()},
            "n": len(self.records),
            **summary_of(self.dialogues),
            **{key: rounded(mean([r[key] for r in self.records])) for key in SECONDS},
            "order changes": self.order_changes,
            "orders": self.orders,
            "answers": dict(self.rates),
            "trained with": list(self.trained_with),
            **{title: _broken_down(clear, *group) for title, group in GROUPS.items()},
        }


def _broken_down(
    records: Sequence[Record], key: str, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[bool]] = {name: [] for name in names}
    for record in records:
        groups[record[key]].append(bool(record["right"]))
    return {
        name: {"P@1": rounded(ratio(sum(right), len(right))), "n": len(right)}
        for name, right in groups.items()
        if right
    }


def bucket(value: int, limits: Iterable[tuple[int, str]]) -> str:
    """The name of the first limit that a value does not exceed.

    >>> bucket(7, LENGTHS)
    '6 to 10 words'
    """
    return next(name for limit, name in limits if value <= limit)


_RELATIONS = ("left of", "right of", "next to", "behind", "in front of", "near", "beside", "above",
              "below", "close to")  # fmt: skip


def form_of(text: str) -> str:
    """Return whether a request has a relation to another thing.

    >>> form_of("the mug next to the plate"), form_of("the red mug")
    ('relation', 'no relation')
    """
    return FORMS[any(word in text for word in _RELATIONS)]


def measure(row: Row, grounder: Any, items: Sequence[ReferringItem], finder: Wrapper) -> None:
    """Add a record to the row for every item: the reply, and that with questions forbidden.

    finder: lists the candidates that the breakdown is by.
    """
    picture, view, looked = "", None, 0.0
    for item in with_progress(items, unit="dialogue"):
        if item.picture.name != picture:
            image = item.picture.load()
            begin = time.perf_counter()
            picture, view = item.picture.name, grounder.look(image)
            looked = time.perf_counter() - begin
        assert view is not None
        dialogue, size = item.dialogue, (view.width, view.height)
        candidates = finder.candidates(finder.look(view.image), dialogue)
        nouns, asked = nouns_of(dialogue), [s for s in finder.sources if isinstance(s, OnceAsked)]
        found = sum(source.seconds(view.image, nouns) for source in asked)
        truth = item.boxes(size)
        begin = time.perf_counter()
        reply = grounder.reply(view, dialogue)
        seconds = time.perf_counter() - begin
        forced = reply
        if not isinstance(forced, Grounding):
            forced = grounder.reply(view, dialogue, force_grounding=True)
        assert isinstance(forced, Grounding)
        row.records.append(
            {
                "picture": item.picture.name,
                "text": dialogue.context(),
                "clear": len(truth) == 1,
                "asked": not isinstance(reply, Grounding),
                "not found": isinstance(reply, NotFound),
                "right": len(truth) == 1 and forced.box.iou(truth[0]) >= MIN_IOU,
                "possible": len(truth) == 1
                and any(c.box.iou(truth[0]) >= MIN_IOU for c in candidates),
                "box": forced.box.as_list(),
                "candidates": len(candidates),
                "seconds to look": looked + (found if row.candidates else 0.0),
                "seconds to reply": seconds,
                **_about(dialogue, candidates, truth),
            }
        )
    if isinstance(grounder, Wrapper) and grounder.language_model is not None:
        row.rates = grounder.rates.summary()


def _about(dialogue: Dialogue, candidates: Sequence[Candidate], truth: Sequence[Any]) -> Record:
    """The groups that an item belongs to."""
    words = sum(len(t.text.split()) for t in dialogue.turns if t.speaker == "user")
    alike = 1
    if truth and candidates:
        meant = max(candidates, key=lambda c: c.box.iou(truth[0]))
        alike = sum(c.label == meant.label for c in candidates)
    return {
        "length": bucket(words, LENGTHS),
        "listed": bucket(len(candidates), LISTED),
        "alike": bucket(alike, ALIKE),
        "form": form_of(dialogue.context()),
    }


class DetectorAlone:
    """The detector without a chooser: always the surest candidate."""

    policy = "detector alone"

    def __init__(self, finder: Wrapper) -> None:
        self._finder = Wrapper([s for s in finder.sources if not isinstance(s, ClueSource)])

    def look(self, image: Any) -> Any:
        """See `Grounder.look`."""
        return self._finder.look(image)

    def reply(self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False) -> Any:
        """The surest candidate of the request's noun, or of all if none has its label."""
        candidates = self._finder.candidates(view, dialogue)
        estimate = self._finder.ambiguity(view, dialogue)
        if not candidates:
            return self._finder.reply(view, dialogue, force_grounding=True)
        best = candidates[best_scored(candidates, dialogue)]
        return Grounding(best.box, best.label, best.score, estimate)


def order_changes(
    model: LanguageModel | ServedModel,
    finder: Wrapper,
    items: Sequence[ReferringItem],
    orders: int,
) -> tuple[float, int]:
    """Share of answers that point at another box when the boxes come in another order.

    And how many answers these are: of clear items with two candidates or more.
    """
    changed: list[bool] = []
    rng = np.random.default_rng(0)
    for item in items:
        view = finder.look(item.picture.load())
        candidates = finder.candidates(view, item.dialogue)
        if len(candidates) < 2 or len(item.meant) != 1:
            continue
        size, context = (view.width, view.height), item.dialogue.context()
        choice = model.choose(model.read(candidates, size), context)
        first = candidates[pointed_at(choice, candidates, item.dialogue)]
        for _ in range(orders):
            mixed = [candidates[int(i)] for i in rng.permutation(len(candidates))]
            other = model.choose(model.read(mixed, size), context)
            changed.append(mixed[pointed_at(other, mixed, item.dialogue)].box != first.box)
    return ratio(sum(changed), len(changed)), len(changed)


@dataclass(frozen=True, kw_only=True)
class RecOptions(ReferringOptions):
    """The options of ``clue eval rec``."""

    output: RecordsOptions
    split: str = option("test", "split of the data", choices=SPLITS)
    scenes: int | None = option(None, "largest number of simulated scenes", type=at_least(1))
    limit: int | None = option(None, "use the first N dialogues of each data set", type=at_least(1))
    language_model: tuple[str, ...] = option(
        (),
        "chooser to measure: a hub id, folder, .gguf file, folder of `clue train wrapper` or a"
        " server's address; once more for another row",
        action="append",
        metavar="NAME",
    )
    candidate_set: tuple[str, ...] = option(
        (),
        "measure every chooser on these candidates, several sources separated by commas; once more"
        " for another set in the same table; in place of --candidates",
        action="append",
        metavar="KIND:ARGUMENT[,...]",
    )
    clue: tuple[str, ...] = option(
        (), "model of CLUE to measure on the same items", action="append", metavar="MODEL"
    )
    orders: int = option(0, "further orders of the boxes of each clear dialogue", type=at_least(0))
    order_limit: int = option(50, "dialogues that --orders uses", type=at_least(1))
    dialogues: int | None = option(
        None,
        "largest number of dialogues with a simulated user, for each data set whose objects are"
        " known; 0: none; default: all ambiguous requests",
        type=at_least(0),
    )
    threshold: float | None = option(
        None, "probability of ambiguity from which to ask; default: the model's", metavar="P"
    )
    figures: Path | None = option(
        None,
        "folder for a plot (PNG) of each data set: P@1 by number of candidates, by boxes with the"
        " same label and by length",
        metavar="DIR",
    )
    dtype: str = option("auto", "of the language model: auto, float32 or bfloat16")
    quantization: str = option(
        QUANTIZATIONS[0],
        "of the language models' weights: that which an adapter was trained with",
        choices=QUANTIZATIONS,
    )

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The sets of candidates to measure, each once. Raises ClueError for one without any."""
        if not self.candidate_set:
            return (self.candidates or CANDIDATES,)
        if self.candidates:
            raise ClueError("--candidates and --candidate-set: name one of them")
        sets = [tuple(filter(None, map(str.strip, s.split(",")))) for s in self.candidate_set]
        if not all(sets):
            raise ClueError("--candidate-set is empty: name sources, such as simulated,base:NAME")
        return tuple(dict.fromkeys(sets))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval rec``."""
    add_options(parser, RecOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval rec``; the exit status."""
    options = read_options(RecOptions, args)
    measured = _Run(options, options.sets)
    results: dict[str, list[Row]] = {}
    for name, data in options.read(options.split, EVALUATION_SEED + 1, options.scenes):
        note(data.problems[:5])
        items = data.items[: options.limit]
        if items:
            results[name] = measured.rows(name, items)
    if not results:
        unread = ", but --episodes, which are for training alone" if options.episodes else ""
        raise ClueError(
            f"no data{unread}: name some with --simulated, --it2p, --invig, --refcoco, --talk2car"
            " or --hcrefloco"
        )
    options.output.write_records(
        {"data": name, "listed by": row.listed_by, "chooser": row.name, **record}
        for name, rows in results.items()
        for row in rows
        for record in (*row.records, *row.dialogues)
    )
    summary = {
        name: {key: row.summary() for key, row in keyed(rows).items()}
        for name, rows in results.items()
    }
    if options.figures is not None:
        draw_breakdowns(summary, options.figures)
    options.output.show(
        summary,
        lambda markdown: as_text(summary, options.split, markdown),
        {"model": [*options.language_model, *options.clue], "dtype": options.dtype},
        EVALUATION_SEED,
    )
    return 0


@dataclass
class _Run:
    """A run of ``clue eval rec``: its measurements, and the models loaded for them."""

    options: RecOptions
    sets: tuple[tuple[str, ...], ...]
    detectors: dict[str, OnceAsked | ClueSource] = field(default_factory=dict)
    models: dict[str, LanguageModel | ServedModel] = field(default_factory=dict)

    def rows(self, name: str, items: Sequence[ReferringItem]) -> list[Row]:
        """The rows of a data set: each set of candidates with each chooser, then each CLUE."""
        options = self.options
        rows: list[Row] = []
        finders = [
            replace(options, candidates=lines).finder(
                name, items, EVALUATION_SEED + 1, self.detectors
            )
            for lines in self.sets
        ]
        for lines, finder in zip(self.sets, finders, strict=True):
            grounders = {"detector alone": DetectorAlone(finder), "rules": finder}
            for chooser, grounder in grounders.items():
                rows.append(self._measured(Row(chooser, lines), name, grounder, items, finder))
            for line in options.language_model:
                rows.append(self._by_language_model(line, lines, name, items, finder))
        for line in options.clue:
            from clue_ros.engine import Clue

            clue = Clue.load(line, device=options.device)
            rows.append(self._measured(Row(line), name, clue, items, finders[0]))
        return rows

    def _by_language_model(
        self,
        line: str,
        lines: tuple[str, ...],
        name: str,
        items: Sequence[ReferringItem],
        finder: Wrapper,
    ) -> Row:
        options = self.options
        if line not in self.models:
            self.models[line] = open_language_model(
                line,
                device=options.device,
                dtype=options.dtype,
                quantization=options.quantization,
            )
        model = self.models[line]
        wrapper = Wrapper(finder.sources, model, threshold=options.threshold)
        trained_with = model.settings.candidates
        row = Row(row_name(line, lines, trained_with), lines, trained_with=trained_with)
        self._measured(row, name, wrapper, items, finder)
        if options.orders:
            some = [i for i in items if len(i.meant) == 1][: options.order_limit]
            share, n = order_changes(model, finder, some, options.orders)
            row.order_changes, row.orders = rounded(share), n
        return row

    def _measured(
        self, row: Row, name: str, grounder: Any, items: Sequence[ReferringItem], finder: Wrapper
    ) -> Row:
        """The row with its records. name: of the data set."""
        measure(row, grounder, items, finder)
        grammar = grammar_of(BLOCKS.name if name == "it2p" else self.options.world)
        samples = dialogue_samples(items, grammar, EVALUATION_SEED, self.options.dialogues)
        row.dialogues = converse_all(grounder, samples)
        return row


def keyed(rows: Sequence[Row]) -> dict[str, Row]:
    """The rows by their choosers; by candidates and chooser where several sets were measured."""
    several = len({row.candidates for row in rows if row.candidates}) > 1
    return {
        f"{row.listed_by}: {row.name}" if several and row.candidates else row.name: row
        for row in rows
    }


def draw_breakdowns(summary: Mapping[str, Mapping[str, Mapping[str, Any]]], folder: Path) -> None:
    """Write DATA.png for each data set: P@1 of each chooser, with 95 % Wilson intervals."""
    folder.mkdir(parents=True, exist_ok=True)
    titles = [title for title in GROUPS if title != "by form"]
    for data, rows in summary.items():
        figure = new_figure(4.2 * len(titles), 4)
        for axes, title in zip(figure.subplots(1, len(titles), sharey=True), titles, strict=True):
            for i, (name, figures) in enumerate(rows.items()):
                groups = figures[title]
                points = [
                    (x, groups[g]["P@1"], groups[g]["n"])
                    for x, g in enumerate(GROUPS[title][1])
                    if g in groups
                ]
                draw_intervals(axes, points, name, i)
            names = GROUPS[title][1]
            axes.set(title=title, ylim=(-0.02, 1.02), xlim=(-0.5, len(names) - 0.5))
            axes.set_xticks(range(len(names)), names, fontsize="x-small")
            add_grid(axes)
        figure.axes[0].set_ylabel("P@1")
        labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(*labels, loc="outside lower center", fontsize="small", ncols=2)
        save_figure(figure, folder / f"{data}.png")


def row_name(line: str, used: Sequence[str], trained_with: Sequence[str]) -> str:
    """A language model's name in the table; "transfer" where a source is new to its adapter.

    trained_with: empty where it is not known, as of a model without an adapter. A `clue:` source
    lists nothing that an adapter could know.

    >>> row_name("tuned", ["owlv2:x"], ["simulated"]), row_name("tuned", ["a"], ["a", "b"])
    ('tuned, transfer', 'tuned')
    """
    listing = {name for name in used if not name.startswith(f"{CLUE}:")}
    new = trained_with and listing - set(trained_with)
    return f"{line}, transfer" if new else line


def published_rows(name: str) -> Mapping[str, tuple[float | None, float | None]]:
    """The paper's rows of a data set, by its name or that of its folder; empty without any.

    >>> len(published_rows("RefCOCO+")) == len(published_rows("refcoco_plus")) > 0
    True
    """
    plain = re.sub(r"[-_ ]", "", name.lower()).replace("plus", "+")
    return REFERRING.get(plain, {})


COLUMNS = ("P@1", "n clear", "best possible", "ambiguity f1", "n", "dialogues", "questions",
           "n dialogues", *SECONDS, "order changes")  # fmt: skip
INVALID = (AnswerKind.OUT_OF_RANGE.value, AnswerKind.NO_INTEGER.value)


def as_text(
    summary: Mapping[str, Mapping[str, Mapping[str, Any]]], split: str, markdown: bool
) -> str:
    """The tables of each data set, the published rows beside ours."""
    blocks = []
    for name, rows in summary.items():
        lines: list[list[Cell]] = [
            [
                " + ".join(figures["candidates"]) or "its own",
                figures["chooser"],
                *(figures[c] for c in COLUMNS),
                *(figures["answers"].get(kind) for kind in INVALID),
            ]
            for figures in rows.values()
        ]
        blocks.append(f"{name}, {split}:")
        header = ["candidates", "chooser", *COLUMNS, *INVALID]
        blocks.append(table(header, lines, markdown=markdown))
        for key, (_, names) in GROUPS.items():
            groups = [g for g in names if any(g in figures[key] for figures in rows.values())]
            lines = [
                [chooser, *(figures[key].get(g, {}).get("P@1") for g in groups)]
                for chooser, figures in rows.items()
            ]
            blocks.append(f"P@1 {key}:")
            blocks.append(table(["chooser", *groups], lines, markdown=markdown))
        asked = {key: figures["answers"] for key, figures in rows.items() if figures["answers"]}
        if asked:
            kinds = list(next(iter(asked.values())))
            lines = [[c, *(rates.get(k) for k in kinds)] for c, rates in asked.items()]
            blocks += ["answers:", table(["chooser", *kinds], lines, markdown=markdown)]
        rows_of_paper = published_rows(name)
        if rows_of_paper:
            published: list[list[Cell]] = [
                [row, *(None if value is None else value / 100 for value in pair)]
                for row, pair in rows_of_paper.items()
            ]
            blocks += [
                "published (Cardiel and others 2025):",
                table(["detector + model", "val", "test"], published, markdown=markdown),
            ]
    return "\n\n".join(blocks)
