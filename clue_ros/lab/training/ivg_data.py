"""What adapter B is trained on: pictures with dialogue moments from one data set or several.

A step's pictures are slots, each filled by whoever needs it: processes that share a step read
only their own photographs.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.errors import ClueError
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.invig import Invig, InvigSample, load_invig, reveal_pairs
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.adapter_samples import Sample, draw_samples, held_out_samples
from clue_ros.lab.training.datasets import TrainingData, data_notes, load_training_data
from clue_ros.lab.training.loop import Settings
from clue_ros.lab.training.samples import Query

# -------------------------------------------------------------------------------------------------
# InViG for adapter B: dialogues as pictures with queries, photographs read when they are needed.

HELD_OUT = 100  # dialogues at most
_ONE_IN = 50  # pictures held out where the source has no validation split of its own
_SHOWN = 20  # rows named on the terminal; the rest go to the file
_TRIES = 20  # photographs in place of one that cannot be read

Fit = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]


def fit_to(processor: Any) -> Fit:
    """How the model's processor brings a photograph (H, W, 3) to its input size (S, S, 3)."""
    pictures = processor.image_processor
    size = pictures.size["width"], pictures.size["height"]

    def fit(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        resized = Image.fromarray(image).resize(size, resample=pictures.resample)
        return np.asarray(resized, dtype=np.uint8)

    return fit


def invig_queries(sample: InvigSample) -> list[Query]:
    """The cumulative reveal of a dialogue (section III-A): each question, then the box."""
    *questions, (context, box) = reveal_pairs(sample)
    asked = [Query("clarify", before, text, (), (), True) for before, text in questions]
    return [*asked, Query("clarify", context, box, (), (), False)]


class InvigPictures:
    """Dialogues in random order, each once an epoch; a function of (seed, position) alone.

    pairs: at most so many training pairs of a dialogue, drawn at random; 0: all of them.
    """

    def __init__(self, samples: Sequence[InvigSample], fit: Fit, *, pairs: int, seed: int) -> None:
        if not samples:
            raise ClueError("InViG: no dialogue to train on")
        self._samples = samples
        self._fit = fit
        self._pairs = pairs
        self._seed = seed
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.zeros(0, dtype=np.int64))
        self._broken: set[str] = set()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._samples)

    def __call__(self, position: int) -> list[Sample]:
        """The `position`-th dialogue of the run with its queries.

        A photograph that cannot be read is named once and another dialogue takes its place.
        ClueError when that fails again and again.
        """
        rng = np.random.default_rng((self._seed, 17, position))
        sample = self._samples[self._shuffled(position)]
        for _ in range(_TRIES):
            image = self._read(sample)
            if image is not None:
                return self._with_queries(sample, image, rng)
            sample = self._samples[int(rng.integers(len(self._samples)))]
        raise ClueError(f"InViG: {_TRIES} photographs in a row cannot be read, see above")

    def _shuffled(self, position: int) -> int:
        """Which dialogue comes at this position: every epoch is another permutation."""
        epoch, place = divmod(position, len(self._samples))
        with self._lock:
            if self._order[0] != epoch:
                rng = np.random.default_rng((self._seed, 19, epoch))
                self._order = epoch, rng.permutation(len(self._samples))
            return int(self._order[1][place])

    def _read(self, sample: InvigSample) -> npt.NDArray[np.uint8] | None:
        try:
            return self._fit(sample.load())
        except (ClueError, OSError, ValueError) as error:
            with self._lock:
                if sample.id not in self._broken:
                    self._broken.add(sample.id)
                    print(f"left out: InViG {sample.id}: {error}", file=sys.stderr)
            return None

    def _with_queries(
        self, sample: InvigSample, image: npt.NDArray[np.uint8], rng: np.random.Generator
    ) -> list[Sample]:
        queries = invig_queries(sample)
        if 0 < self._pairs < len(queries):
            chosen = sorted(rng.choice(len(queries), size=self._pairs, replace=False))
            queries = [queries[i] for i in chosen]
        scene = Scene(image, (), np.zeros((1, 1), dtype=np.uint8))
        return [(scene, query) for query in queries]


def load_splits(
    source: str, language: str, report: Path | None
) -> tuple[list[InvigSample], list[InvigSample]]:
    """Training dialogues, and at most HELD_OUT of validation.

    Where the source has no validation split, one picture in fifty is held out, always the same.
    Rows that cannot be used are named on stderr and, all of them, in the file `report`.
    """
    train = load_invig(source, split="train", language=language)
    try:
        held_out = load_invig(source, split="validation", language=language)
    except ClueError:
        held_out = Invig((), ())
    _tell([*train.problems, *held_out.problems], report)
    samples = list(train.samples)
    known = {sample.id for sample in samples}
    fresh = [sample for sample in held_out.samples if sample.id not in known]
    if not fresh:
        samples, fresh = _one_in_fifty(samples)
    return samples, fresh[:HELD_OUT]


def split_episodes(folder: str, report: Path | None) -> tuple[list[InvigSample], list[InvigSample]]:
    """The robot's own dialogues that ended in a box, one in fifty of them held out.

    Those left out are named as those of InViG are. InvigError says what is missing.
    """
    found = load_episodes(folder)
    _tell(found.problems, None if report is None else report.with_name("left_out_episodes.txt"))
    samples, fresh = _one_in_fifty(list(found.samples))
    return samples, fresh[:HELD_OUT]


def _one_in_fifty(samples: list[InvigSample]) -> tuple[list[InvigSample], list[InvigSample]]:
    """Always the same pictures are held out; never all of them."""
    fresh = [s for s in samples if zlib.crc32(s.image_id.encode()) % _ONE_IN == 0]
    pictures = {s.image_id for s in fresh}
    rest = [s for s in samples if s.image_id not in pictures]
    return (rest, fresh) if rest else (samples, [])


def _tell(problems: Sequence[str], report: Path | None) -> None:
    for problem in problems[:_SHOWN]:
        print(f"note: {problem}", file=sys.stderr)
    if report is None or not problems:
        return
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("".join(f"{problem}\n" for problem in problems))
    if len(problems) > _SHOWN:
        print(f"note: {len(problems)} rows in all, see {report}", file=sys.stderr)


DATA = ("tabletop", "it2p", "invig", "episodes")
MASKED = {"tabletop", "it2p"}  # data sets that know where each object is

Picture = list[Sample]
Slot = Callable[[], Picture]


@dataclass(frozen=True)
class IvgData:
    """scenes: the simulator's and IT2P's. invig: dialogues. invig_share: of a step's pictures.

    Dialogues are InViG's, a robot's own (episodes), or both; held out by the data set's name.
    """

    scenes: TrainingData | None
    invig: InvigPictures | None
    invig_held_out: dict[str, list[Slot]]
    invig_share: float
    told: dict[str, int] = field(default_factory=dict)  # dialogues of each data set

    def slots(self, settings: Settings, step: int) -> list[Slot]:
        """The `settings.batch` pictures of a step; a function of (seed, step) alone."""
        count = 0
        out: list[Slot] = []
        if self.invig is not None:
            first, end = (int(n * settings.batch * self.invig_share) for n in (step, step + 1))
            count = end - first
            out = [partial(self.invig, position) for position in range(first, end)]
        if self.scenes is None or count == settings.batch:
            return out
        part = replace(settings, batch=settings.batch - count)
        drawn = draw_samples(self.scenes, part, step, "clarify")
        return [partial(_same, picture) for picture in drawn] + out

    def held_out(self) -> dict[str, list[Slot]]:
        """Fixed validation pictures of each data set, with their queries."""
        out: dict[str, list[Slot]] = {}
        if self.scenes is not None:
            samples = held_out_samples(self.scenes, "clarify", per_picture=2)
            for name, pictures in samples.items():
                out[name] = [partial(_same, picture) for picture in pictures[:HELD_OUT]]
        return {**out, **self.invig_held_out}

    def notes(self, args: argparse.Namespace) -> dict[str, Any]:
        """What there is, and how much of it."""
        simulated = {} if self.scenes is None else data_notes(args, self.scenes)
        return {**simulated, **self.told}


def _same(picture: Picture) -> Picture:
    return picture


def _sizes(data: TrainingData) -> dict[str, int]:
    return {"scenes": len(data.scenes), "photos": len(data.photos)}


def add_ivg_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say what to train on, beside those of every training command."""
    parser.add_argument(
        "--data", nargs="+", choices=DATA, default=["tabletop", "it2p"], help="one or several"
    )
    parser.add_argument("--invig", default=None, help="InViG: a folder, a file or a hub id")
    parser.add_argument(
        "--episodes", default="episodes", help="the folder that the robot's `record` named"
    )
    parser.add_argument("--invig-language", choices=("en", "cn"), default="en")
    parser.add_argument(
        "--invig-share",
        type=float,
        default=0.5,
        help="of InViG and episodes in a step",
    )
    parser.add_argument(
        "--pairs", type=int, default=3, help="training pairs of such a dialogue a step; 0: all"
    )


def load_ivg_data(args: argparse.Namespace, processor: Any, report: Path | None) -> IvgData:
    """Read what `--data` names; InViG's photographs stay on disk.

    report: a file for InViG's rows that cannot be used. ClueError says what is missing.
    """
    names = set(args.data)
    scenes = None
    if names & MASKED:
        size = processor.image_processor.size["height"]
        scenes = load_training_data(args, size, names=tuple(sorted(names & MASKED)))
    told = sorted(names - MASKED)
    if not told:
        return IvgData(scenes, None, {}, 0.0)
    if not 0 < args.invig_share <= 1:
        raise ClueError(f"--invig-share {args.invig_share} is not a share above 0 and up to 1")
    fit = fit_to(processor)
    train: list[InvigSample] = []
    kept: dict[str, list[Slot]] = {}
    counts: dict[str, int] = {}
    for name in told:
        samples, held_out = _dialogues(name, args, report)
        print(f"{len(samples)} {name} dialogues; validation {len(held_out)}", file=sys.stderr)
        train += samples
        counts[name] = len(samples)
        if held_out:
            fixed = InvigPictures(held_out, fit, pairs=args.pairs, seed=0)
            kept[name] = [partial(fixed, i) for i in range(len(fixed))]
    share = args.invig_share if scenes is not None else 1.0
    pictures = InvigPictures(train, fit, pairs=args.pairs, seed=args.seed)
    return IvgData(scenes, pictures, kept, share, counts)


def _dialogues(
    name: str, args: argparse.Namespace, report: Path | None
) -> tuple[list[InvigSample], list[InvigSample]]:
    """Dialogues to train on and to hold out, of "invig" or "episodes"."""
    if name == "episodes":
        return split_episodes(args.episodes, report)
    if args.invig is None:
        raise ClueError("--data invig needs --invig: a folder, a file, or a hub id")
    return load_splits(args.invig, args.invig_language, report)
