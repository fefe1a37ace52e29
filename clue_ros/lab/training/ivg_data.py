"""The training data of adapter B: pictures with moments of dialogues, from one or more data sets.

A step's pictures are slots, each read by the process that needs it, so that processes that share a
step read their own photographs only.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch.utils.data import ConcatDataset

from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.errors import ClueError
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.invig import (
    InvigIndex,
    InvigSample,
    index_invig,
    reveal_pairs,
    without_tokens,
)
from clue_ros.lab.data.invig_layouts import STATUSES
from clue_ros.lab.options import option
from clue_ros.lab.training.datasets import (
    PHOTOS,
    SIMULATED,
    TrainingData,
    load_training_data,
    tell_problems,
)
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import GroundingOptions, TrainingOptions, data_set
from clue_ros.lab.training.photographs import Fit, RandomPhotographs, fit_to, positions
from clue_ros.lab.training.samples import (
    PER_PICTURE,
    Change,
    Query,
    Sample,
    adapter_samples,
    held_out_adapter_samples,
    unchanged,
)
from clue_ros.model.loading import imported_function
from clue_ros.model.location_tokens import encode_box
from clue_ros.model.oracle import ANSWER, DESCRIBE, instruction_for

HELD_OUT = 100  # pictures of a data set at most
_ONE_IN = 50  # pictures held out if the source has no validation split of its own

CLARIFY = "clarify"
INVIG, EPISODES, GUESSWHAT = "invig", "episodes", "guesswhat"
MASKED = {SIMULATED, PHOTOS}  # data sets with the objects' masks
DIALOGUES = {INVIG, EPISODES, GUESSWHAT}  # data sets of dialogues, without masks

Slot = Callable[[], Sample]


@dataclass(frozen=True, kw_only=True)
class IvgDataOptions(GroundingOptions):
    """The data sets of adapter B."""

    data: tuple[str, ...] = option(
        (SIMULATED, PHOTOS),
        f"data sets to train on: {SIMULATED}, {PHOTOS}, {INVIG}, {GUESSWHAT}, {EPISODES}, or"
        " dialogues that a function of your own yields (docs/bring-your-own.md); default: tabletop"
        " it2p",
        nargs="+",
        type=data_set(SIMULATED, PHOTOS, INVIG, GUESSWHAT, EPISODES),
        metavar="NAME|MODULE:FUNCTION",
    )
    invig: str | None = option(None, "InViG: a folder, a file or a hub id")
    guesswhat: str | None = option(
        None, "GuessWhat?!: a folder with guesswhat.*.jsonl.gz and COCO's pictures, or one file"
    )
    games: str = option(
        "success",
        "games of GuessWhat?! to train on: those that ended in success, or all",
        choices=("success", "all"),
    )
    episodes: str = option("episodes", "folder that the robot's parameter `record` names")
    unreviewed: bool = option(False, "also learn from unreviewed episodes that ended in a box")
    invig_language: str = option("en", "language of InViG's dialogues", choices=("en", "cn"))
    invig_share: float = option(
        0.5,
        "share of a step's pictures from InViG, GuessWhat?! and episodes beside other data sets",
    )
    pairs: int = option(0, "training pairs of a dialogue a step, drawn at random; 0 for all")
    together: int = option(
        0,
        "training pairs of a picture in one sequence, which reads the picture once and without"
        " seeing them: cheaper, but end with steps without it (--init). 0: a sequence each",
    )

    def __post_init__(self) -> None:
        """Raises ClueError for invalid options."""
        if not 0 < self.invig_share <= 1:
            raise ClueError(f"--invig-share {self.invig_share} is not a share above 0 and up to 1")
        if INVIG in self.data and self.invig is None:
            raise ClueError("--data invig needs --invig: a folder, a file, or a hub id")
        if GUESSWHAT in self.data and self.guesswhat is None:
            raise ClueError("--data guesswhat needs --guesswhat: a folder, or a file")
        if self.together < 0:
            raise ClueError(f"--together {self.together}: want a number of training pairs, or 0")


@dataclass(frozen=True)
class IvgData:
    """scenes: the simulator's and IT2P's. dialogues: of InViG, of a robot's episodes, of a table.

    dialogue_share: share of a step's pictures that come from the dialogues. dialogues_held_out: by
    data set. counts: training dialogues of each data set. instruction: "clarify" for adapter B's
    replies, ANSWER for the oracle's. per_picture: training pairs on a picture of the scenes.
    change: maps a query about the scenes.
    """

    scenes: TrainingData | None
    dialogues: RandomPhotographs[Any] | None
    dialogue_share: float
    dialogues_held_out: dict[str, list[Slot]]
    counts: dict[str, int]
    instruction: str = CLARIFY
    per_picture: int = PER_PICTURE
    change: Change = unchanged

    def slots(self, settings: TrainingSettings, step: int) -> list[Slot]:
        """The `settings.batch` pictures of a step; a function of (seed, step) alone."""
        out: list[Slot] = []
        if self.dialogues is not None:
            now = positions(settings, step, self.dialogue_share)
            out = [partial(self.dialogues, position) for position in now]
        if self.scenes is None or len(out) == settings.batch:
            return out
        rest = replace(settings, batch=settings.batch - len(out))
        drawn = adapter_samples(
            self.scenes, rest, step, self.instruction, self.per_picture, self.change
        )
        return _slots(drawn) + out

    def held_out(self) -> dict[str, list[Slot]]:
        """Fixed validation pictures of each data set, with their queries."""
        out: dict[str, list[Slot]] = {}
        if self.scenes is not None:
            samples = held_out_adapter_samples(
                self.scenes, self.instruction, per_picture=2, change=self.change
            )
            out = {name: _slots(pictures[:HELD_OUT]) for name, pictures in samples.items()}
        return {**out, **self.dialogues_held_out}

    def notes(self, options: TrainingOptions) -> dict[str, Any]:
        """The data sets and their sizes."""
        return {**({} if self.scenes is None else self.scenes.notes(options)), **self.counts}


def _slots(samples: Sequence[Sample]) -> list[Slot]:
    return [partial(_itself, sample) for sample in samples]


def _itself(sample: Sample) -> Sample:
    return sample


def load_ivg_data(
    options: IvgDataOptions,
    processor: Any,
    report: Path | None,
    instruction: str = CLARIFY,
    change: Change = unchanged,
) -> IvgData:
    """Read the data sets of `--data`; the dialogues' photographs stay on disk.

    report: a file for unusable rows. instruction, change: see `IvgData`.
    Raises ClueError naming missing data.
    """
    scenes = None
    if masked := MASKED & set(options.data):
        size = processor.image_processor.size["height"]
        scenes = load_training_data(options, size, sources=masked, via=options.via)
    train: list[Sequence[InvigSample]] = []
    held_out: dict[str, list[Slot]] = {}
    counts: dict[str, int] = {}
    fit = fit_to(processor)

    def queries(sample: InvigSample) -> list[Query]:
        said = oracle_queries(sample) if instruction == ANSWER else dialogue_queries(sample)
        return [query for before in said if (query := change(before)) is not None]

    mine = {name for name in options.data if ":" in name}
    for name in sorted(DIALOGUES & set(options.data) | mine):
        samples: Sequence[InvigSample]
        kept: Sequence[InvigSample]
        if name in mine:
            samples, kept = _one_in_fifty(own_dialogues(name))
        elif name == EPISODES:
            samples, kept = split_episodes(options.episodes, report, unreviewed=options.unreviewed)
        elif name == GUESSWHAT:
            games = STATUSES if options.games == "all" else STATUSES[:1]
            own = None if report is None else report.with_name("left_out_guesswhat.txt")
            samples, kept = load_splits(str(options.guesswhat), "en", own, games)
        else:
            samples, kept = load_splits(str(options.invig), options.invig_language, report)
        print(f"{len(samples)} {name} dialogues; validation {len(kept)}", file=sys.stderr)
        train.append(samples)
        counts[name] = len(samples)
        if kept:
            fixed = DialoguePictures(kept, fit, pairs=options.pairs, seed=0, queries=queries)
            held_out[name] = [partial(fixed, i) for i in range(len(fixed))]
    per_picture = options.together or PER_PICTURE
    if not counts:
        return IvgData(scenes, None, 0.0, {}, {}, instruction, per_picture, change)
    dialogues = train[0] if len(train) == 1 else _joined(train)
    pictures = DialoguePictures(
        dialogues, fit, pairs=options.pairs, seed=options.seed, queries=queries
    )
    share = options.invig_share if scenes is not None else 1.0
    return IvgData(scenes, pictures, share, held_out, counts, instruction, per_picture, change)


def _joined(parts: Sequence[Any]) -> Sequence[InvigSample]:
    """Several sequences, one after the other."""
    return cast("Sequence[InvigSample]", ConcatDataset(parts))


def dialogue_queries(sample: InvigSample) -> list[Query]:
    """The cumulative reveal of a dialogue (section III-A): each question, then each target."""
    asked = len(sample.exchanges)
    return [
        Query(CLARIFY, context, text, (), (), number < asked)
        for number, (context, text) in enumerate(reveal_pairs(sample))
    ]


def oracle_queries(sample: InvigSample) -> list[Query]:
    """Return the person's words about the (first) target: the request, each answer."""
    codes, escaped = encode_box(Box(*sample.box), 1, 1), without_tokens
    describe = instruction_for(DESCRIBE, codes)
    queries = [Query(describe, "", escaped(sample.request), (), (), False)]
    dialogue = Dialogue(sample.request)
    for question, answer in sample.exchanges:
        dialogue.add_question(question)
        context, said = dialogue.context(), escaped(answer)
        queries.append(Query(instruction_for(ANSWER, codes), context, said, (), (), False))
        dialogue.add_answer(answer)
    return queries


class DialoguePictures(RandomPhotographs[InvigSample]):
    """Dialogues about photographs.

    pairs: drawn from a dialogue at most; 0 for all of them. queries: those of a dialogue.
    """

    def __init__(
        self,
        samples: Sequence[InvigSample],
        fit: Fit,
        *,
        pairs: int,
        seed: int,
        queries: Callable[[InvigSample], list[Query]] = dialogue_queries,
    ) -> None:
        super().__init__(samples, fit, most=pairs, seed=seed, name="InViG")
        self._queries = queries

    def queries(self, item: InvigSample) -> list[Query]:
        """The training pairs of a dialogue."""
        return self._queries(item)


def load_splits(
    source: str, language: str, report: Path | None, games: tuple[str, ...] = STATUSES[:1]
) -> tuple[InvigIndex, InvigIndex]:
    """InViG's training dialogues, and at most HELD_OUT of validation; they stay on disk.

    If the source has no validation split, one picture in fifty is held out, always the same. Rows
    that cannot be used are named on stderr and, all of them, in the file `report`. games: see
    `index_invig`.
    """
    train = index_invig(source, split="train", language=language, games=games)
    problems, samples = list(train.problems), train.samples
    assert isinstance(samples, InvigIndex)
    fresh = samples[:0]
    try:
        held_out = index_invig(source, split="validation", language=language, games=games)
    except ClueError:
        pass
    else:
        problems += held_out.problems
        assert isinstance(held_out.samples, InvigIndex)
        known = np.isin(held_out.samples.id_hashes, samples.id_hashes)
        fresh = held_out.samples.select(~known)
    tell_problems(problems, report)
    if not len(fresh):
        kept = samples.image_checksums % _ONE_IN == 0
        if not kept.all():
            samples, fresh = samples.select(~kept), samples.select(kept)
    return samples, fresh[:HELD_OUT]


def own_dialogues(name: str) -> list[InvigSample]:
    """The dialogues that a function of the user's own, MODULE:FUNCTION, returns or yields.

    Raises ClueError for a function that fails or returns anything but `InvigSample`.
    """
    try:
        samples = list(imported_function(name)())
    except ClueError:
        raise
    except Exception as error:  # whatever that code raises
        raise ClueError(f"{name} failed: {type(error).__name__}: {error}") from error
    if not samples or not all(isinstance(sample, InvigSample) for sample in samples):
        raise ClueError(f"{name}: want clue_ros.lab.data.invig.InvigSample objects, at least one")
    return samples


def split_episodes(
    folder: str, report: Path | None, *, unreviewed: bool = False
) -> tuple[list[InvigSample], list[InvigSample]]:
    """The robot's own reviewed dialogues, one picture in fifty of them held out.

    unreviewed: include unreviewed dialogues that ended in a box.

    Raises InvigError naming missing data.
    """
    found = load_episodes(folder, unreviewed=unreviewed)
    tell_problems(
        found.problems, None if report is None else report.with_name("left_out_episodes.txt")
    )
    samples, fresh = _one_in_fifty(list(found.samples))
    return samples, fresh[:HELD_OUT]


def _one_in_fifty(samples: list[InvigSample]) -> tuple[list[InvigSample], list[InvigSample]]:
    """Split off the held-out pictures: always the same ones, never all."""
    fresh = [s for s in samples if zlib.crc32(s.image_id.encode()) % _ONE_IN == 0]
    pictures = {s.image_id for s in fresh}
    rest = [s for s in samples if s.image_id not in pictures]
    return (rest, fresh) if rest else (samples, [])
