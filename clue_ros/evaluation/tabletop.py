"""Held-out simulated scenes: the same three measurements, with boxes known exactly.

Right ("accuracy") means an IoU of at least 0.5 with the target's box; "center" counts the boxes
whose centre lies in the target's. Scenes are new to the model, and requests are drawn by
the same grammar as its training data. In the interactive part a person who sees the target answers
what was asked, by the words of the question.

``--world novel`` measures the same out of domain: objects, tables and camera that training never
had. Requests of words that training used are then told apart from those that name a kind or a
colour by a word that it never did.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.data import dialogues
from clue_ros.data.language import (
    AXES,
    COLORS,
    NOUNS,
    meant,
    named_by,
    request,
    unseen_words,
)
from clue_ros.data.tabletop.command import DEFAULT_FOLDER
from clue_ros.data.tabletop.scene import Scene, SceneObject
from clue_ros.data.tabletop.shards import SPLITS, how_to_make, list_shards, read_shard
from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.errors import ClueError
from clue_ros.evaluation.command import add_shared_arguments, run_evaluation
from clue_ros.evaluation.protocol import Exchange, Request, Sample
from clue_ros.evaluation.slices import (
    breakdown_of,
    grades_of,
    loader,
    require_picture,
    rich_samples,
)

GROUPS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "only words of blocks": lambda record: not record["unseen"],
    "a word that blocks lacks": lambda record: bool(record["unseen"]),
}
_TRIES = 60  # draws for one request; a scene that has none of the kind goes without


def tabletop_samples(scenes: Iterable[Scene], *, per_image: int = 2, seed: int = 0) -> list[Sample]:
    """What to ask about each scene: ``per_image`` requests of each kind where it has them."""
    return [_sample(scene, index, per_image, seed) for index, scene in enumerate(scenes)]


def _sample(scene: Scene, index: int, per_image: int, seed: int) -> Sample:
    rng = np.random.default_rng([seed, index])
    clear = requests_about(scene.objects, rng, per_image, ambiguous=False)
    ambiguous = requests_about(scene.objects, rng, per_image, ambiguous=True)
    return Sample(
        name=f"scene {index}",
        load=loader(scene.image),
        clear=tuple(Request(text, grades_of(scene, meant[0])) for text, meant in clear),
        ambiguous=tuple(text for text, _ in ambiguous)[: len(clear)],
        interactive=tuple(_exchange(scene, text, meant, rng) for text, meant in ambiguous),
        about=what_it_names,
    )


def what_it_names(text: str) -> dict[str, Any]:
    """What the records say of a request.

    names: which of "kind", "color" and "place"; unseen: its words that training never used.
    """
    return {"names": list(named_by(text)), "unseen": list(unseen_words(text))}


def requests_about(
    objects: Sequence[SceneObject], rng: np.random.Generator, wanted: int, *, ambiguous: bool
) -> list[tuple[str, tuple[int, ...]]]:
    """Different requests and the objects they can mean: one, or several."""
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(_TRIES):
        if len(found) == wanted:
            break
        reference = dialogues.random_reference(objects, rng, absent=False)
        candidates = meant(reference, objects)
        if candidates and (len(candidates) > 1) == ambiguous:
            found[request(reference, rng)] = candidates
    return list(found.items())


def _exchange(
    scene: Scene, text: str, candidates: tuple[int, ...], rng: np.random.Generator
) -> Exchange:
    target = int(rng.choice(candidates))
    person = Person(scene.objects, target, candidates, int(rng.integers(2**32)))
    return Exchange(text, grades_of(scene, target), person)


class Person:
    """Someone with one object in mind, who answers questions about it.

    Once the answers have settled it, the last one is repeated.
    """

    def __init__(
        self, objects: Sequence[SceneObject], target: int, candidates: tuple[int, ...], seed: int
    ) -> None:
        self._objects, self._target = objects, target
        self._candidates = candidates
        self._rng = np.random.default_rng(seed)
        self._last = f"the {objects[target].color} {objects[target].kind}"

    def __call__(self, question: str) -> str:
        """Answer a question."""
        if len(self._candidates) > 1:
            asked = dialogues.Question(question, question_axis(question))
            said = dialogues.answer(asked, self._target, self._candidates, self._objects, self._rng)
            if said is not None:
                self._last, self._candidates = said
        return self._last


def question_axis(question: str) -> str:
    """What a question asks for: "color", "kind", "place", or "nothing" when it saw nothing.

    >>> question_axis("do you mean the red one or the blue one ?")
    'color'
    """
    words = re.findall(r"[a-z]+", question.lower())
    kinds = {kind for kind, names in NOUNS.items() if set(names) & set(words)}
    if "not" in words and "see" in words:
        return "nothing"
    if {"color", "colour", *COLORS} & set(words):
        return "color"
    if len(kinds) > 1:
        return "kind"
    if {"where", "middle", *AXES} & set(words):
        return "place"
    return "color"


def load_samples(
    folder: Path,
    *,
    world: str = DEFAULT_WORLD,
    split: str = "test",
    scenes: int = 400,
    per_image: int = 2,
    seed: int = 0,
) -> list[Sample]:
    """Samples of at most ``scenes`` scenes of a world's shards in ``folder``.

    Raises ClueError when there are none or one cannot be read, with what to do.
    """
    found = _read(folder, split, scenes, world)
    if world_spec(world).language == "rich":
        return rich_samples(found, world, per_image=per_image, seed=seed)
    return tabletop_samples(found, per_image=per_image, seed=seed)


def _read(folder: Path, split: str, at_most: int, world: str = DEFAULT_WORLD) -> list[Scene]:
    """Scenes of a world's split; a shard that cannot be read is named."""
    paths = list_shards(folder, split, world)
    if not paths:
        raise ClueError(how_to_make(folder, split, at_most, world))
    scenes: list[Scene] = []
    for path in paths:
        if len(scenes) < at_most:
            try:
                scenes += read_shard(path, world)
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                reason = "not a whole file of scenes: delete it and make it again"
                raise ClueError(f"{path}: {reason} ({type(error).__name__})") from error
    return scenes[:at_most]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval tabletop``."""
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--scenes", type=int, default=400, metavar="N", help="at most (400)")
    parser.add_argument("--per-image", type=int, default=2, metavar="N", help="of each kind (2)")
    parser.add_argument(
        "--worst", type=Path, metavar="FILE", help="of a rich world: a picture of its worst slices"
    )
    add_shared_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval tabletop``; the exit status."""
    if args.per_image < 1 or args.scenes < 1:
        raise ClueError("--per-image and --scenes must be 1 or more")
    require_picture(args.worst)

    def load() -> tuple[list[Sample], list[str]]:
        samples = load_samples(
            args.data,
            world=args.world,
            split=args.split,
            scenes=args.scenes,
            per_image=args.per_image,
            seed=args.seed,
        )
        return samples, []

    if world_spec(args.world).language == "rich":
        return run_evaluation(args, load, breakdown=breakdown_of(args.worst))
    return run_evaluation(args, load, GROUPS)
