"""A simulated detector: boxes from the ground truth of a scene, with a detector's errors.

It replaces a real detector in simulated scenes and IT2P photographs: it misses objects (hidden ones
more often), shifts boxes, gives wrong labels, finds some things twice and adds boxes that show
nothing. Labels name kinds and no colours, as a detector's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.images import image_digest
from clue_ros.lab.simulator.scene import Scene, SceneObject


@dataclass(frozen=True)
class DetectorErrors:
    """The rates of the detector's errors.

    missed: share of objects in full view that it misses; a hidden part adds as much again. shift:
    standard deviation of each side, as a fraction of the box's width or height. mislabelled: share
    of labels of another kind. twice: share of objects with a second box. nothing: boxes of an image
    that show no object, on average.
    """

    missed: float = 0.03
    shift: float = 0.04
    mislabelled: float = 0.05
    twice: float = 0.03
    nothing: float = 0.15


REALISTIC = DetectorErrors()
SOURCE = "simulated"  # the name of the candidates' source


class SimulatedDetector:
    """Lists the objects of a scene, with errors that depend on the seed and the scene alone.

    nouns: kind -> the label.
    """

    def __init__(
        self,
        nouns: Mapping[str, str],
        errors: DetectorErrors = REALISTIC,
        *,
        seed: int = 0,
    ) -> None:
        self._nouns, self._errors, self._seed = dict(nouns), errors, seed

    def find(self, scene: Scene) -> tuple[Candidate, ...]:
        """The candidates of a scene, in pixels, the surest first."""
        height, width = scene.image.shape[:2]
        corners = (round(1e4 * v) for o in scene.objects for v in o.box)
        rng = np.random.default_rng([self._seed, *corners])
        found = []
        for o in scene.objects:
            if rng.uniform() < self._errors.missed * (1 + 10 * (1 - o.visible)):
                continue
            for _ in range(1 + int(rng.uniform() < self._errors.twice)):
                score = float(np.clip(rng.normal(0.35 + 0.4 * o.visible, 0.12), 0.2, 0.98))
                found.append(self._candidate(o.box, self._label(o, rng), score, rng))
        for _ in range(rng.poisson(self._errors.nothing)):
            x, y = rng.uniform(0, 0.85, 2)
            w, h = rng.uniform(0.05, 0.15, 2)
            label = self._any(rng)
            found.append(self._candidate((x, y, x + w, y + h), label, 0.25, rng))
        scaled = [
            Candidate(_pixels(c.box, width, height), c.label, round(c.score, 2), c.source)
            for c in found
        ]
        return tuple(sorted(scaled, key=lambda c: -c.score))

    def _label(self, o: SceneObject, rng: np.random.Generator) -> str:
        wrong = rng.uniform() < self._errors.mislabelled
        return self._any(rng) if wrong else self._nouns.get(o.kind, o.kind)

    def _any(self, rng: np.random.Generator) -> str:
        names = sorted(set(self._nouns.values()))
        return names[int(rng.integers(len(names)))]

    def _candidate(
        self, box: Sequence[float], label: str, score: float, rng: np.random.Generator
    ) -> Candidate:
        x0, y0, x1, y1 = box
        sides = np.array([x1 - x0, y1 - y0, x1 - x0, y1 - y0])
        off = np.array(box) + rng.normal(0, self._errors.shift, 4) * sides
        x0, y0, x1, y1 = (float(v) for v in np.clip(off, 0, 1))
        found = Box(x0, y0, max(x1, x0 + 0.01), max(y1, y0 + 0.01))
        return Candidate(found, label, score, SOURCE)


class SceneSource:
    """A `clue_ros.wrapper.sources.Source` of the pictures of known scenes."""

    open_vocabulary = False

    name = SOURCE

    def __init__(self, detector: SimulatedDetector, scenes: Iterable[Scene]) -> None:
        self._detector = detector
        self._scenes = {image_digest(scene.image): scene for scene in scenes}

    def find(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> Sequence[Candidate]:
        """Return the candidates of the picture's scene. Raises ClueError for unknown pictures."""
        scene = self._scenes.get(image_digest(image))
        if scene is None:
            raise ClueError("the simulated detector knows no objects of this picture")
        return self._detector.find(scene)


def _pixels(box: Box, width: int, height: int) -> Box:
    return Box(*(round(v, 1) for v in box.in_pixels(width, height).as_tuple()))
