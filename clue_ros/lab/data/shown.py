"""Objects that labelled photographs show, as examples of words (`clue_ros.model.word_memory`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.dialogue.words import named_object
from clue_ros.engine import Clue
from clue_ros.errors import BadBoxError, BadImageError, BadNameError
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import LabelledObject, Photograph
from clue_ros.model.taught import make_example
from clue_ros.model.word_memory import Example, WordMemory

Shown = tuple[int, str, Example]
"""A photograph's position, and an object of it as an example of a name."""


def named_objects(photograph: Photograph) -> tuple[LabelledObject, ...]:
    """The labels of a photograph; without any, what its requests call the objects they mean."""
    if photograph.objects:
        return photograph.objects
    found: dict[Box, LabelledObject] = {}
    for request in photograph.requests:
        name = named_object(Dialogue(request.text).turns)
        for box in request.boxes if name else ():
            found.setdefault(box, LabelledObject(name, box))
    return tuple(found.values())


def examples_of(
    clue: Clue, photographs: Sequence[Photograph], problem: Callable[[str], None]
) -> tuple[Shown, ...]:
    """Return an example of each labelled object; call `problem` for each that cannot be taught."""
    found: list[Shown] = []
    trial = WordMemory(None, clue.memory.tower)
    for n, photograph in enumerate(photographs):
        try:
            view = clue.look(load_image(photograph.path))
        except BadImageError as error:
            problem(f"left out, {error}")
            continue
        for labelled in named_objects(photograph):
            try:
                example = make_example(view.patches, view.image, labelled.box)
                word = trial.add(labelled.name, example)
            except (BadBoxError, BadNameError) as error:
                problem(f"not taught, {photograph.path.name}: {error}")
                continue
            found.append((n, word.name, example))
    return tuple(found)


def know(memory: WordMemory, shown: Iterable[Shown]) -> None:
    """Let a memory hold these examples and no others."""
    for name in [*memory.words]:
        memory.forget(name)
    for _, name, example in shown:
        memory.add(name, example)
