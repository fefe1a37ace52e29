"""Photographs with sentences, read from disk when a step needs them: dialogues, labelled rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.samples import Query, Sample

_TRIES = 20  # photographs in place of one that cannot be read

Pixels = npt.NDArray[np.uint8]
Fit = Callable[[Pixels], Pixels]


class Photograph(Protocol):
    """An item to draw: `load` reads uint8 RGB (H, W, 3)."""

    @property
    def id(self) -> str:
        """A unique name."""
        ...

    @property
    def load(self) -> Callable[[], Pixels]:
        """Reads the photograph. Raises BadImageError."""
        ...


ItemT = TypeVar("ItemT", bound=Photograph)


def fit_to(processor: Any) -> Fit:
    """Return the processor's resizing of a photograph (H, W, 3) to the input size (S, S, 3)."""
    pictures = processor.image_processor
    size = pictures.size["width"], pictures.size["height"]

    def fit(image: Pixels) -> Pixels:
        resized = Image.fromarray(image).resize(size, resample=pictures.resample)
        return np.asarray(resized, dtype=np.uint8)

    return fit


def positions(settings: TrainingSettings, step: int, share: float) -> range:
    """Return the positions of a step's photographs: a share of its `settings.batch` pictures."""
    return range(*(int(n * settings.batch * share) for n in (step, step + 1)))


class RandomPhotographs(Generic[ItemT]):
    """Photographs in random order, each once an epoch; a function of (seed, position) alone.

    most: queries drawn from a photograph at most; 0 for all of them. name: of the data set.
    """

    def __init__(
        self, items: Sequence[ItemT], fit: Fit, *, most: int, seed: int, name: str
    ) -> None:
        if not items:
            raise ClueError(f"{name}: nothing to train on")
        self.items = items
        self._fit = fit
        self._most = most
        self._seed = seed
        self._name = name
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.zeros(0, dtype=np.int64))
        self._broken: set[int] = set()
        self._lock = Lock()

    def queries(self, item: ItemT) -> list[Query]:
        """All queries about a photograph."""
        raise NotImplementedError

    def scene(self, item: ItemT, image: Pixels) -> Scene:
        """The photograph at the model's size, with its objects where they are known."""
        return Scene(image, (), np.zeros((1, 1), dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.items)

    def __call__(self, position: int) -> Sample:
        """The `position`-th photograph of the run with its queries.

        Another one replaces an unreadable one, which is named once, and one without queries. Raises
        ClueError after too many failures.
        """
        rng = np.random.default_rng((self._seed, 17, position))
        place = self._shuffled(position)
        for _ in range(_TRIES):
            found = self._read(place)
            queries = [] if found is None else self.queries(found[0])
            if found is not None and queries:
                item, image = found
                if 0 < self._most < len(queries):
                    chosen = sorted(rng.choice(len(queries), size=self._most, replace=False))
                    queries = [queries[i] for i in chosen]
                return self.scene(item, image), queries
            place = int(rng.integers(len(self.items)))
        raise ClueError(
            f"{self._name}: {_TRIES} photographs in a row cannot be read, see above, or say nothing"
            " to learn"
        )

    def _shuffled(self, position: int) -> int:
        """The photograph at this position; every epoch is another permutation."""
        epoch, place = divmod(position, len(self.items))
        with self._lock:
            if self._order[0] != epoch:
                rng = np.random.default_rng((self._seed, 19, epoch))
                self._order = epoch, rng.permutation(len(self.items))
            return int(self._order[1][place])

    def _read(self, place: int) -> tuple[ItemT, Pixels] | None:
        """An item and its photograph; None, and its name once, if either cannot be read."""
        name = ""
        try:
            item = self.items[place]
            name = f"{item.id}: "
            return item, self._fit(item.load())
        except (ClueError, OSError, ValueError) as error:
            with self._lock:
                if place not in self._broken:
                    self._broken.add(place)
                    print(f"left out: {self._name} {name}{error}", file=sys.stderr)
            return None
