"""`clue data stats SOURCE...`: statistics of dialogues, as in the InViG paper.

    clue data stats DIR data/guesswhat tabletop:data/tabletop --out figures

A source is InViG in any layout, GuessWhat?! (a folder or guesswhat.*.jsonl.gz), a folder of a
robot's episodes, or simulated scenes, about which dialogues are drawn in their world's grammar. The
kind is found by itself, or stands before the name: invig:, guesswhat:, episodes:, tabletop:.

Prints the number of dialogues and pictures, questions a dialogue ("rounds"), words of a sentence,
objects of a picture and their categories, box areas, the vocabulary, and for each turn its kind of
question, its words and the share of sentences with a spatial word. One row is in memory at a time,
beside the counts of words and categories, and one number for each picture.

Objects of a picture: all objects in GuessWhat?! and in simulated scenes; InViG's files and episodes
name the targets of the dialogues only.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from clue_ros.dialogue.episodes import episode_files
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.data.episodes import episode_rows
from clue_ros.lab.data.export_invig import sample_dialogues
from clue_ros.lab.data.invig import InvigSample, read_entries
from clue_ros.lab.data.invig_layouts import (
    DIALOG_FIELDS,
    GUESSWHAT_REQUEST,
    STATUSES,
    entry_boxes,
    entry_size,
    name_of,
)
from clue_ros.lab.data.invig_sources import BadRow, Row, find_picture, read_rows
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.words import OTHERS
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import (
    COLORS,
    Cell,
    add_grid,
    new_figure,
    save_figure,
    table,
)
from clue_ros.lab.simulator.shards import SPLITS, list_shards, read_shard
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.requirements import missing

KINDS = ("invig", "guesswhat", "episodes", "tabletop")
ROLES = ("request", "question", "answer")
QUESTION_TYPES = ("which", "choice", "confirm", "thanks", "other")
"""which: open ("which one?", "what color?"). choice: "the red one or the blue one?". confirm: can
be answered by yes or no. thanks: ends the dialogue ("ok, here you are")."""
AREA_BINS = 20
_SHOWN = 10  # problems, and categories
_WORDS = 60  # of a turn
_TURNS = 10  # turns that are told apart; later ones count as the last
_LONG = 40  # words of a sentence from which all lengths share a bin
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u4e00-\u9fff]")
_SPATIAL_WORDS = (
    "left right leftmost rightmost top bottom upper lower middle center centre front back behind"
    " above below under underneath beside near next between corner edge side far farthest closest"
    " nearest inside outside"
)
_AUXILIARIES = "is are was were do does did can could would should will has have am isn't aren't"
_CLOSING_WORDS = "thanks thank ok okay got alright sure here understood"
_OPEN_WORDS = "which what where who whose how when why"
_STOP_WORDS = (
    f"{OTHERS} i you it's don't its me my your be are s t can have has and please there in by for"
)
_SPATIAL, _AUXILIARY = frozenset(_SPATIAL_WORDS.split()), frozenset(_AUXILIARIES.split())
_CLOSING, _OPEN = frozenset(_CLOSING_WORDS.split()), frozenset(_OPEN_WORDS.split())
_STOP = frozenset(_STOP_WORDS.split()) - _SPATIAL - {"color"}


def words_of(text: str) -> list[str]:
    """Words in lower case; a Chinese character is a word.

    >>> words_of("Is it the RED one, or what's left?")
    ['is', 'it', 'the', 'red', 'one', 'or', "what's", 'left']
    """
    return _WORD.findall(text.lower())


def question_type(text: str) -> str:
    """One of QUESTION_TYPES.

    >>> question_type("Which one?"), question_type("the red one or the blue one?")
    ('which', 'choice')
    >>> question_type("Do you mean the left one?"), question_type("OK, here you are.")
    ('confirm', 'thanks')
    """
    words = words_of(text)
    if not words:
        return "other"
    asks = "?" in text or "？" in text
    if words[0] in _CLOSING and not asks:
        return "thanks"
    if "or" in words:
        return "choice"
    lead = words[1:] if words[0] in _CLOSING | {"and", "so", "then"} else words
    if any(word.partition("'")[0] in _OPEN for word in lead[:3]):
        return "which"
    if (lead and lead[0] in _AUXILIARY) or asks:
        return "confirm"
    return "other"


@dataclass(frozen=True)
class DialogueFacts:
    """The counted facts of a dialogue.

    picture: a name, the same for dialogues about the same picture. request: "" where nobody said
    one. objects: of the picture, None where only targets are known. areas: of the targets' boxes as
    shares of the picture, none where unknown. categories: of the objects, where known; those of
    the target alone where objects is None.
    """

    picture: str
    request: str
    exchanges: tuple[tuple[str, str], ...]
    objects: int | None
    areas: tuple[float, ...]
    categories: tuple[str, ...] = ()


@dataclass
class Lengths:
    """Words of the sentences of one role, in bins that do not grow with their number."""

    n: int = 0
    words: int = 0
    longest: int = 0
    below_ten: int = 0
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, count: int) -> None:
        """Count a sentence."""
        self.n, self.words, self.longest = self.n + 1, self.words + count, max(self.longest, count)
        self.below_ten += count < 10
        self.bins[min(count, _LONG)] += 1

    def summary(self) -> dict[str, Any]:
        """Number, mean, longest, and the share below 10 words (0.8 in the paper)."""
        share = None if not self.n else round(self.below_ten / self.n, 4)
        mean = None if not self.n else round(self.words / self.n, 3)
        return {
            "n": self.n,
            "mean": mean,
            "longest": self.longest,
            "below_10_words": share,
            "histogram": {str(k): self.bins[k] for k in sorted(self.bins)},
        }


class Statistics:
    """Counts dialogues one after the other."""

    def __init__(self) -> None:
        self.dialogues = 0
        self.rounds: Counter[int] = Counter()
        self.lengths = {role: Lengths() for role in ROLES}
        self.areas: Counter[int] = Counter()
        self.small = 0
        self.vocabulary: Counter[str] = Counter()
        self.types: list[Counter[str]] = []
        self.spatial: Counter[tuple[str, int]] = Counter()
        self.sentences: Counter[tuple[str, int]] = Counter()
        self.words: dict[tuple[str, int], Counter[str]] = {}
        self.problems = 0
        self.first_problems: list[str] = []
        self.categories: Counter[str] = Counter()
        self._objects: dict[int, int] = {}  # by the hash of the picture's name

    def problem(self, text: str) -> None:
        """Count an unusable row; keep the first ones."""
        self.problems += 1
        if len(self.first_problems) < _SHOWN:
            self.first_problems.append(text)

    def add(self, facts: DialogueFacts) -> None:
        """Count a dialogue."""
        self.dialogues += 1
        picture = hash(facts.picture)
        if facts.objects is None or picture not in self._objects:
            self.categories.update(filter(None, facts.categories))
        if facts.objects is not None:
            self._objects[picture] = facts.objects
        else:
            self._objects[picture] = self._objects.get(picture, 0) + max(1, len(facts.areas))
        for area in facts.areas:
            self.areas[min(AREA_BINS - 1, int(area * AREA_BINS))] += 1
            self.small += area < 0.05
        self.rounds[len(facts.exchanges)] += 1
        if facts.request:
            self._sentence("request", 0, facts.request)
        for number, (question, answer) in enumerate(facts.exchanges, start=1):
            turn = min(number, _TURNS)
            while len(self.types) < turn:
                self.types.append(Counter())
            self.types[turn - 1][question_type(question)] += 1
            self._sentence("question", turn, question)
            self._sentence("answer", turn, answer)

    def _sentence(self, role: str, turn: int, text: str) -> None:
        words = words_of(text)
        self.lengths[role].add(len(words))
        self.vocabulary.update(words)
        self.sentences[role, turn] += 1
        self.spatial[role, turn] += not _SPATIAL.isdisjoint(words)
        self.words.setdefault((role, turn), Counter()).update(w for w in words if w not in _STOP)

    def summary(self) -> dict[str, Any]:
        """All figures, for JSON."""
        asked = sum(rounds * n for rounds, n in self.rounds.items())
        within = sum(n for rounds, n in self.rounds.items() if rounds <= 6)
        objects = Counter(self._objects.values())
        pictures, boxes = sum(objects.values()), sum(self.areas.values())
        return {
            "dialogues": self.dialogues,
            "pictures": pictures,
            "problems": self.problems,
            "first_problems": self.first_problems,
            "rounds": {
                "mean": _share(asked, self.dialogues),
                "most": max(self.rounds, default=0),
                "within_6": _share(within, self.dialogues),
                "histogram": {str(k): self.rounds[k] for k in sorted(self.rounds)},
            },
            "words": {role: lengths.summary() for role, lengths in self.lengths.items()},
            "objects_per_picture": {
                "mean": _share(sum(k * n for k, n in objects.items()), pictures),
                "histogram": {str(k): objects[k] for k in sorted(objects)},
            },
            "objects": sum(k * n for k, n in objects.items()),
            "categories": {
                "n": len(self.categories),
                "most_frequent": dict(self.categories.most_common(_SHOWN)),
            },
            "box_area": {
                "n": boxes,
                "below_5_percent": _share(self.small, boxes),
                "histogram": [self.areas[k] for k in range(AREA_BINS)],
            },
            "vocabulary": len(self.vocabulary),
            "tokens": sum(self.vocabulary.values()),
            "questions": [
                {"turn": turn, "n": n, **{k: _share(types[k], n) for k in QUESTION_TYPES}}
                for turn, types in enumerate(self.types, start=1)
                if (n := sum(types.values()))
            ],
            "turns": [
                {
                    "role": role,
                    "turn": turn,
                    "n": self.sentences[role, turn],
                    "spatial": _share(self.spatial[role, turn], self.sentences[role, turn]),
                    "words": dict(self.words[role, turn].most_common(_WORDS)),
                }
                for role, turn in sorted(self.words, key=lambda key: (key[1], ROLES.index(key[0])))
            ],
        }


def _share(part: int, whole: int) -> float | None:
    return None if not whole else round(part / whole, 4)


# -------------------------------------------------------------------------------------------------
# Sources, as streams of facts.


@dataclass(frozen=True, kw_only=True)
class StatsOptions:
    """The options of `clue data stats`."""

    source: tuple[str, ...] = ()
    split: str | None = option(
        None, "split of the data; default: all", choices=("train", "validation", "test")
    )
    language: str = option("en", "language of InViG's dialogues", choices=tuple(DIALOG_FIELDS))
    games: str = option(
        "success",
        "games of GuessWhat?!: those that ended in success, or all",
        choices=("success", "all"),
    )
    world: str = option(DEFAULT_WORLD, "world of simulated scenes", choices=tuple(WORLDS))
    per_image: int = option(2, "dialogues drawn about a simulated scene", type=at_least(1))
    seed: int = option(0, "seed of simulated dialogues")
    limit: int | None = option(None, "count the first N dialogues only", type=at_least(1))
    json: bool = option(False, "print JSON")
    markdown: bool = option(False, "print the tables as Markdown")
    out: Path | None = option(None, "folder for the plots (PNG) and statistics.json", metavar="DIR")


def source_kind(text: str, world: str) -> tuple[str, str]:
    """Kind and name of a source.

    >>> source_kind("guesswhat:data/gw", "blocks")
    ('guesswhat', 'data/gw')
    """
    kind, colon, name = text.partition(":")
    if colon and kind in KINDS:
        return kind, name
    folder = Path(text).expanduser()
    if folder.is_dir():
        if episode_files(folder):
            return "episodes", text
        if any(list_shards(folder, split, world) for split in SPLITS):
            return "tabletop", text
    return "invig", text


def stream_facts(
    source: str, options: StatsOptions, problem: Callable[[str], None]
) -> Iterator[DialogueFacts]:
    """The dialogues of a source, one after the other. Raises ClueError."""
    kind, name = source_kind(source, options.world)
    if kind == "tabletop":
        return _simulated(Path(name), options)
    if kind == "episodes":  # in English, of no split
        return _published(episode_rows(name), name, replace(options, language="en"), problem)
    return _published(read_rows(name, options.split), name, options, problem)


def _published(
    rows: Iterable[Row | str], name: str, options: StatsOptions, problem: Callable[[str], None]
) -> Iterator[DialogueFacts]:
    games = STATUSES if options.games == "all" else STATUSES[:1]
    entries = read_entries(rows, name, options.language, problem, games=games)
    for row, _, entry, spoken in entries:
        areas: tuple[float, ...] = ()
        try:
            size = entry_size(entry)
            if size is None:
                size = find_picture(entry.picture, row.folder).size
            areas = tuple(Box(*box).area for box in entry_boxes(entry, size))
        except (BadRow, ClueError) as error:
            problem(f"{entry.id}: box not counted: {error}")
        request = "" if spoken.request == GUESSWHAT_REQUEST else spoken.request
        objects = len(entry.objects) or None
        named = [c for c, _ in entry.objects] or [name_of(entry.category) or ""]
        yield DialogueFacts(entry.image_id, request, spoken.exchanges, objects, areas, tuple(named))


def _simulated(folder: Path, options: StatsOptions) -> Iterator[DialogueFacts]:
    wanted = {None: SPLITS, "validation": ("val",)}.get(options.split, (options.split,))
    paths = [p for split in wanted for p in list_shards(folder, str(split), options.world)]
    if not paths:
        raise ClueError(f"{folder}: no scenes of world {options.world} (`clue data tabletop`)")
    grammar = grammar_of(options.world)
    for path in paths:
        try:
            for number, scene in enumerate(read_shard(path, options.world)):
                drawn = sample_dialogues(
                    [scene],
                    grammar,
                    name=f"{path.stem}-{number}",
                    per_image=options.per_image,
                    seed=options.seed,
                )
                kinds = tuple(o.kind for o in scene.objects)
                yield from (_facts(sample, kinds) for sample, _ in drawn)
        except ValueError as error:
            raise ClueError(str(error)) from error


def _facts(sample: InvigSample, kinds: tuple[str, ...]) -> DialogueFacts:
    told = sample.image_id, sample.request, sample.exchanges
    return DialogueFacts(*told, len(kinds), (Box(*sample.box).area,), kinds)


# -------------------------------------------------------------------------------------------------
# Tables and plots.


def statistics_text(found: Mapping[str, Mapping[str, Any]], *, markdown: bool = False) -> str:
    """Three tables: the sources, their sentences, their questions by turn."""
    head = ["source", "dialogues", "pictures", "rounds", "most", "within 6", "objects a picture"]
    head += ["objects", "categories", "boxes < 5 %", "vocabulary", "tokens", "problems"]
    rows: list[list[Cell]] = [
        [
            name, s["dialogues"], s["pictures"], s["rounds"]["mean"], s["rounds"]["most"],
            s["rounds"]["within_6"], s["objects_per_picture"]["mean"],
            s["objects"], s["categories"]["n"], s["box_area"]["below_5_percent"],
            s["vocabulary"], s["tokens"], s["problems"],
        ]
        for name, s in found.items()
    ]  # fmt: skip
    sentences: list[list[Cell]] = [
        [name, role, *(s["words"][role][k] for k in ("n", "mean", "longest", "below_10_words"))]
        for name, s in found.items()
        for role in ROLES
    ]
    turns: list[list[Cell]] = []
    for name, s in found.items():
        spatial = {(t["role"], t["turn"]): t["spatial"] for t in s["turns"]}
        for q in s["questions"]:
            shares = [q[k] for k in QUESTION_TYPES]
            by_turn = [spatial.get((role, q["turn"])) for role in ("question", "answer")]
            turns.append([name, q["turn"], q["n"], *shares, *by_turn])
    blocks = [
        table(head, rows, markdown=markdown),
        table(
            ["source", "sentence", "n", "words", "longest", "below 10"],
            sentences,
            markdown=markdown,
        ),
    ]
    if turns:
        columns = ["source", "turn", "questions", *QUESTION_TYPES, "spatial asked", "said"]
        blocks.append(table(columns, turns, markdown=markdown))
    return "\n\n".join(blocks)


def draw_statistics(found: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Write the plots: rounds, sentence lengths, objects, box areas, questions, word clouds."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [
        _histograms(
            folder / "rounds.png",
            {name: s["rounds"]["histogram"] for name, s in found.items()},
            "questions of a dialogue",
            "share of dialogues",
        ),
        _histograms(
            folder / "objects_per_picture.png",
            {name: s["objects_per_picture"]["histogram"] for name, s in found.items()},
            "objects of a picture",
            "share of pictures",
        ),
        _histograms(
            folder / "box_areas.png",
            {
                name: {
                    str((k + 0.5) / AREA_BINS): n for k, n in enumerate(s["box_area"]["histogram"])
                }
                for name, s in found.items()
            },
            "area of the target's box, share of the picture",
            "share of boxes",
        ),
    ]
    figure = new_figure(10, 3.4)
    for axes, role in zip(figure.subplots(1, 3, sharey=True), ROLES, strict=True):
        _lines(axes, {name: s["words"][role]["histogram"] for name, s in found.items()})
        axes.set(xlabel="words", title=role)
    figure.axes[0].set_ylabel("share of sentences")
    figure.axes[0].legend(fontsize="small")
    save_figure(figure, folder / "sentence_lengths.png")
    written.append(folder / "sentence_lengths.png")
    for number, (name, s) in enumerate(found.items(), start=1):
        written += _turn_plots(folder, name, number, s)
    return written


def _turn_plots(folder: Path, name: str, number: int, s: Mapping[str, Any]) -> list[Path]:
    suffix = f"-{number}" if number > 1 else ""
    questions = s["questions"]
    figure = new_figure(6.4, 4)
    axes = figure.subplots()
    bottom = [0.0] * len(questions)
    turns = [q["turn"] for q in questions]
    for color, kind in zip(COLORS, QUESTION_TYPES, strict=False):
        shares = [q[kind] or 0.0 for q in questions]
        axes.bar(turns, shares, bottom=bottom, color=color, label=kind)
        bottom = [a + b for a, b in zip(bottom, shares, strict=True)]
    asked = {t["turn"]: t["spatial"] for t in s["turns"] if t["role"] == "question"}
    if asked:
        axes.plot(list(asked), list(asked.values()), color="black", marker="o", label="spatial")
    axes.set(xlabel="turn", ylabel="share of questions", title=name, ylim=(0, 1))
    axes.set_xticks(turns)
    figure.legend(loc="outside right center", fontsize="small")
    types = folder / f"question_types{suffix}.png"
    save_figure(figure, types)
    shown = [t for t in s["turns"] if t["turn"] <= 4 and t["words"]]
    rows = max(1, (len(shown) + 2) // 3)
    figure = new_figure(9, 0.4 + 2.2 * rows)
    grid = list(figure.subplots(rows, 3, squeeze=False).flat)
    for axes, turn in zip(grid, shown, strict=False):
        axes.imshow(word_cloud(turn["words"]))
        axes.set_title(f"{turn['role']} {turn['turn'] or ''}".strip(), fontsize="small")
    for axes in grid:
        axes.axis("off")
    words = folder / f"word_clouds{suffix}.png"
    save_figure(figure, words)
    return [types, words]


def word_cloud(counts: Mapping[str, int]) -> npt.NDArray[np.uint8]:
    """A picture (H, W, 3) of words, larger where they were said more often."""
    from wordcloud import WordCloud

    cloud = WordCloud(width=450, height=300, background_color="white", random_state=0)
    drawn: npt.NDArray[np.uint8] = cloud.generate_from_frequencies(dict(counts)).to_array()
    return drawn


def _histograms(path: Path, counts: Mapping[str, Mapping[str, int]], x: str, y: str) -> Path:
    figure = new_figure(6, 3.6)
    axes = figure.subplots()
    _lines(axes, counts)
    axes.set(xlabel=x, ylabel=y)
    axes.legend(fontsize="small")
    save_figure(figure, path)
    return path


def _lines(axes: Any, counts: Mapping[str, Mapping[str, int]]) -> None:
    for i, (name, histogram) in enumerate(counts.items()):
        whole = sum(histogram.values()) or 1
        places = [float(k) for k in histogram]
        shares = [n / whole for n in histogram.values()]
        axes.plot(places, shares, color=COLORS[i % len(COLORS)], marker=".", label=name)
    add_grid(axes)


# -------------------------------------------------------------------------------------------------
# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data stats`."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="folder, file or hub id; with the kind before it if needed:"
        f" {', '.join(f'{kind}:PATH' for kind in KINDS)}",
    )
    add_options(parser, StatsOptions)


def measure(source: str, options: StatsOptions) -> Statistics:
    """Count the dialogues of a source. Raises ClueError where there are none."""
    statistics = Statistics()
    facts: Iterable[DialogueFacts] = stream_facts(source, options, statistics.problem)
    facts = islice(facts, options.limit)
    for dialogue in tqdm(facts, unit="dialogue", leave=False, disable=not sys.stderr.isatty()):
        statistics.add(dialogue)
    if not statistics.dialogues:
        first = statistics.first_problems[:1]
        reason = f"; the first problem: {first[0]}" if first else ""
        raise ClueError(f"{source}: no dialogue to count{reason}")
    return statistics


def run(args: argparse.Namespace) -> int:
    """Run `clue data stats`; the exit status."""
    options = read_options(StatsOptions, args)
    if options.out is not None and find_spec("wordcloud") is None:
        raise ClueError(missing("wordcloud", "--out"))
    found = {source: measure(source, options).summary() for source in options.source}
    for source, summary in found.items():
        for text in summary["first_problems"]:
            print(f"note: {source}: {text}", file=sys.stderr)
    if options.out is not None:
        draw_statistics(found, options.out)
        path = options.out / "statistics.json"
        path.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        print(statistics_text(found, markdown=options.markdown))
    return 0
