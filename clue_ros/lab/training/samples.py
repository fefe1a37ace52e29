"""What is asked of one picture while training: prefix, suffix, and where the words should look.

A query's `looks` are the objects its sentence can mean; its `pointers` say which object each
suffix token speaks of (the four location tokens, a colour in a question).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clue_ros.lab.data.it2p import It2pImage
from clue_ros.lab.language.dialogues import DialogueState, Grammar
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.words import mirrored_text
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.augment import Mirror
from clue_ros.lab.training.vision import side_bins
from clue_ros.model.location_tokens import BETWEEN, to_text

PLAIN = grammar_of()
OWN_WORDS = 0.5  # share of ambiguous IT2P commands that are answered as the data set does
LISTED = 3  # objects that a "detect" suffix lists at most
TASKS = (("clarify", 0.62), ("list", 0.23), ("look", 0.15))
# Where counting is said aloud: few requests do, and each number has to be learned.
VIA_TASKS = (
    ("clarify", 0.56), ("order", 0.1), ("size", 0.1), ("list", 0.12), ("look", 0.12),
)  # fmt: skip
SORT_TASKS = ("order", "size")  # sorts of requests, drawn by themselves


@dataclass(frozen=True)
class Query:
    """One training sample on a picture.

    suffix: None where only the attention is taught. looks: objects meant. pointers: (index of the
    suffix token, object). ambiguous: the detector's label.
    """

    instruction: str
    context: str
    suffix: str | None
    looks: tuple[int, ...]
    pointers: tuple[tuple[int, int], ...]
    ambiguous: bool


def box_suffix(o: SceneObject) -> str:
    """The four location tokens of an object's box."""
    y0, x0, y1, x1 = (round(v) for v in side_bins(o.box))
    return to_text((y0, x0, y1, x1))


def dialogue_query(state: DialogueState, objects: Sequence[SceneObject]) -> Query:
    """The paper's pair: context so far, then a question or the box.

    Before the box come those of what is gone through (`DialogueState.via`), if the state says it.
    """
    looks, instruction = state.candidates, "clarify"
    if state.question is not None:
        return Query(instruction, state.context, state.question, looks, state.options, True)
    boxes = (*state.via, looks[0])
    pointers = tuple((5 * n + k, i) for n, i in enumerate(boxes) for k in range(4))
    suffix = BETWEEN.join(box_suffix(objects[i]) for i in boxes)
    return Query(instruction, state.context, suffix, looks, pointers, False)


def detect_query(context: str, looks: Sequence[int], instruction: str = "detect") -> Query:
    """The detector's view of a context: where to look, and nothing to say."""
    return Query(instruction, context, None, tuple(looks), (), len(looks) != 1)


def list_query(context: str, looks: Sequence[int], objects: Sequence[SceneObject]) -> Query:
    """PaliGemma's "detect": a box and a name for each object meant, from left to right."""
    order = sorted(looks, key=lambda i: objects[i].center[0])[:LISTED]
    parts, pointers, at = [], [], 0
    for i in order:
        parts.append(f"{box_suffix(objects[i])} {objects[i].color} {objects[i].kind}")
        named = 4 + len(f"{objects[i].color} {objects[i].kind}".split())  # and four locations
        pointers += [(at + k, i) for k in range(named)]
        at += named + 1  # ";"
    return Query(
        "detect", context, " ; ".join(parts), tuple(looks), tuple(pointers), len(looks) != 1
    )


def scene_queries(
    scene: Scene, count: int, rng: np.random.Generator, language: Grammar = PLAIN
) -> list[Query]:
    """Random queries about a scene, of all tasks; fewer than `count` if little can be said."""
    queries: list[Query] = []
    tasks = VIA_TASKS if language.via else TASKS
    names, shares = [name for name, _ in tasks], [share for _, share in tasks]
    for task in rng.choice(names, size=2 * count, p=shares):
        if len(queries) == count:
            break
        query = (
            _reference_query(scene, rng, language)
            if task == "list"
            else _state_query(scene, str(task), rng, language)
        )
        if query is not None:
            queries.append(query)
    return queries


def _reference_query(scene: Scene, rng: np.random.Generator, language: Grammar) -> Query | None:
    named = language.noun_phrase(scene.objects, rng)
    return list_query(named[0], named[1], scene.objects) if named else None


def _state_query(
    scene: Scene, task: str, rng: np.random.Generator, language: Grammar
) -> Query | None:
    if task in SORT_TASKS:
        states = language.dialogue_of_sort(scene.objects, rng, task)
    else:
        states = language.dialogue(scene.objects, rng)
    return _of_state(states, scene, task, rng) if states else None


def _of_state(
    states: Sequence[DialogueState], scene: Scene, task: str, rng: np.random.Generator
) -> Query:
    state = states[int(rng.integers(len(states)))]
    if task == "look":
        return detect_query(state.context, state.candidates)
    return dialogue_query(state, scene.objects)


def photo_states(
    record: It2pImage,
    scene: Scene,
    mirror: Mirror,
    rng: np.random.Generator,
    language: Grammar = PLAIN,
) -> list[DialogueState]:
    """A dialogue from IT2P's own commands, told of the (perhaps mirrored) photograph.

    scene: the photograph after augmentation, objects in the order of `record.blocks`.
    """
    ambiguous = [
        a for a in record.ambiguous if len(a.candidates) > 1 and a.text not in record.contradictory
    ]
    if ambiguous and rng.uniform() < 0.5:
        chosen = ambiguous[int(rng.integers(len(ambiguous)))]
        candidates = tuple(sorted({_block_at(record, p) for p in chosen.candidates}))
        if rng.uniform() < OWN_WORDS:
            told = _told_in_its_words(record, chosen.text, candidates, scene, mirror, rng, language)
            if told:
                return told
        text = chosen.text
    else:
        clear = [c for c in record.commands if c.text not in record.contradictory]
        if not clear:
            return []
        command = clear[int(rng.integers(len(clear)))]
        candidates, text = (_block_at(record, command.point),), command.text
    if len(candidates) == 1 and text in {a.text for a in ambiguous}:
        return []
    return language.dialogue_from(mirrored_text(text, mirror), candidates, scene.objects, rng)


def _told_in_its_words(
    record: It2pImage,
    text: str,
    candidates: tuple[int, ...],
    scene: Scene,
    mirror: Mirror,
    rng: np.random.Generator,
    language: Grammar,
) -> list[DialogueState]:
    """An ambiguous command, a question, and the data set's own answer; [] where it has none.

    Its people answer in one word ("lowerright"), often another than was asked for.
    """
    dialogues = [d for d in record.interactive if d.text == text]
    if not dialogues:
        return []
    dialogue = dialogues[int(rng.integers(len(dialogues)))]
    told = mirrored_text(text, mirror)
    first, *_ = language.dialogue_from(told, candidates, scene.objects, rng)
    if first.question is None:
        return []
    word = mirrored_text(dialogue.answers[int(rng.integers(len(dialogue.answers)))], mirror)
    context = f"{first.context} assistant: {first.question} user: {word}"
    return [first, DialogueState(context, (_block_at(record, dialogue.point),), None)]


def _block_at(record: It2pImage, point: tuple[float, float]) -> int:
    distance = [np.hypot(b.point[0] - point[0], b.point[1] - point[1]) for b in record.blocks]
    return int(np.argmin(distance))


def photo_queries(
    record: It2pImage,
    scene: Scene,
    mirror: Mirror,
    count: int,
    rng: np.random.Generator,
    language: Grammar = PLAIN,
) -> list[Query]:
    """Queries about an IT2P photograph: mostly its own, some in the simulator's language."""
    queries: list[Query] = []
    for _ in range(2 * count):
        if len(queries) == count:
            break
        if rng.uniform() < 0.25:
            query = (
                _reference_query(scene, rng, language)
                if rng.uniform() < 0.5
                else _state_query(scene, "clarify", rng, language)
            )
        else:
            states = photo_states(record, scene, mirror, rng, language)
            task = "look" if rng.uniform() < 0.2 else "clarify"
            query = _of_state(states, scene, task, rng) if states else None
        if query is not None:
            queries.append(query)
    return queries
