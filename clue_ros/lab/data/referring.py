"""Referring expressions: one picture, one dialogue or phrase, and the boxes that it can mean.

The common form of RefCOCO, Talk2Car, HC-RefLoCo, InViG, IT2P, recorded episodes and the simulator,
for `clue train wrapper` and `clue eval rec`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Dialogue, Turn
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.invig import Invig, load_invig
from clue_ros.lab.data.it2p import It2p
from clue_ros.lab.data.it2p_boxes import it2p_scene
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.scene import Scene

Image = npt.NDArray[np.uint8]
_TURN = re.compile(r" (?:assistant|user): ")


@dataclass(frozen=True)
class ReferringPicture:
    """A picture. name: unique in its data set. load: gives uint8 RGB (H, W, 3).

    scene: its objects, where all are known (the simulator, IT2P).
    """

    name: str
    load: Callable[[], Image]
    scene: Scene | None = None


@dataclass(frozen=True)
class ReferringItem:
    """A dialogue about a picture, and the boxes that it means.

    turns: of the dialogue, the request first. meant: boxes in fractions 0..1 of the picture's width
    and height: one if the dialogue is clear, several if it is ambiguous, none if there is no such
    thing.
    """

    picture: ReferringPicture
    turns: tuple[Turn, ...]
    meant: tuple[Box, ...]

    @property
    def dialogue(self) -> Dialogue:
        """The dialogue. Raises EmptyExpressionError or BadExpressionError."""
        return Dialogue(self.turns[0].text, self.turns[1:])

    def boxes(self, size: tuple[int, int]) -> tuple[Box, ...]:
        """The boxes in pixels of a picture of this size (width, height)."""
        return tuple(box.in_pixels(*size) for box in self.meant)


@dataclass
class ReferringData:
    """Items, and one line for each row that was left out."""

    items: list[ReferringItem] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def user_says(*texts: str) -> tuple[Turn, ...]:
    """The turns of an alternating dialogue that the user begins.

    >>> [turn.speaker for turn in user_says("the mug", "which one?", "the red one")]
    ['user', 'robot', 'user']
    """
    return tuple(Turn("robot" if n % 2 else "user", text) for n, text in enumerate(texts))


def turns_of(context: str) -> tuple[Turn, ...]:
    """The turns of a dialogue context C(k).

    >>> [turn.text for turn in turns_of("the mug assistant: which one? user: red")]
    ['the mug', 'which one?', 'red']
    """
    request, *later = _TURN.split(context)
    return user_says(request, *later)


def simulated_items(
    scenes: Iterable[Scene], grammar: RichGrammar, *, per_picture: int, seed: int
) -> Iterator[ReferringItem]:
    """Moments of random dialogues about simulated scenes, the same for the same seed."""
    for number, scene in enumerate(scenes):
        picture = ReferringPicture(f"scene {number}", partial(_pixels, scene), scene)
        rng = np.random.default_rng([seed, number])
        boxes = [Box(*o.box) for o in scene.objects]
        for _ in range(per_picture):
            states = grammar.dialogue(scene.objects, rng)
            if not states:
                continue
            first = rng.uniform() < 0.6
            state = states[0 if first else int(rng.integers(len(states)))]
            meant = tuple(boxes[i] for i in state.candidates)
            yield ReferringItem(picture, turns_of(state.context), meant)


def it2p_items(data: It2p, split: str, *, per_picture: int, seed: int) -> ReferringData:
    """Clear and ambiguous commands of IT2P's photographs; boxes from the annotated points."""
    out = ReferringData()
    for record in data.select(split):
        try:
            scene = it2p_scene(record)
        except ValueError as error:
            out.problems.append(str(error))
            continue
        rng = np.random.default_rng([seed, int.from_bytes(record.id.encode()[-6:], "little")])
        boxes = [Box(*o.box) for o in scene.objects]
        picture = ReferringPicture(record.path.name, partial(_pixels, scene), scene)
        size = scene.image.shape[1], scene.image.shape[0]
        for i in rng.permutation(len(record.commands))[:per_picture]:
            clear = record.commands[int(i)]
            out.items.append(
                ReferringItem(picture, user_says(clear.text), (_nearest(boxes, clear.point, size),))
            )
        for i in rng.permutation(len(record.ambiguous))[:per_picture]:
            command = record.ambiguous[int(i)]
            meant = tuple(dict.fromkeys(_nearest(boxes, p, size) for p in command.candidates))
            if len(meant) > 1:
                out.items.append(ReferringItem(picture, user_says(command.text), meant))
    return out


def _pixels(scene: Scene) -> Image:
    return scene.image


def _nearest(boxes: Sequence[Box], point: tuple[float, float], size: tuple[int, int]) -> Box:
    """The box (fractions) whose centre is nearest to a point in pixels."""
    x, y = point[0] / size[0], point[1] / size[1]
    return min(boxes, key=lambda b: float(np.hypot(b.center[0] - x, b.center[1] - y)))


def invig_items(source: str | Path, split: str | None) -> ReferringData:
    """InViG's dialogues; the whole dialogue means the annotated box."""
    return _from_invig(load_invig(source, split=split))


def episode_items(folder: str | Path, *, unreviewed: bool = False) -> ReferringData:
    """Recorded dialogues of a robot (docs/episodes.md) that were reviewed, or all with a box."""
    return _from_invig(load_episodes(folder, unreviewed=unreviewed))


def _from_invig(data: Invig) -> ReferringData:
    out = ReferringData(problems=list(data.problems))
    for sample in data.samples:
        if sample.others:
            out.problems.append(f"{sample.id}: several targets, and the wrapper points at one")
            continue
        picture = ReferringPicture(sample.image_id, sample.load)
        turns = sample.dialogue().turns
        out.items.append(ReferringItem(picture, turns, (Box(*sample.box),)))
    return out
