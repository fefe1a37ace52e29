"""InViG for adapter B: dialogues as pictures with queries, photographs read when they are needed.

InViG has no masks, so its queries say nothing of where to look.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.data.episodes import load_episodes
from clue_ros.data.invig import Invig, InvigSample, load_invig, reveal_pairs
from clue_ros.data.tabletop.scene import Scene
from clue_ros.errors import ClueError
from clue_ros.training.adapters_data import Sample
from clue_ros.training.queries import Query

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
