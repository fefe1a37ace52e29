"""The requests and answers of the simulator's language, and IT2P's, reach the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from object_scenes import random_table
from scene_helpers import random_objects

from clue_ros.dialogue.reading import Reading, leaves_open, read, wants
from clue_ros.dialogue.words import offered_answers
from clue_ros.lab.data.export_invig import exchanges_of
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.model.prompts import detokenize

BLOCK_KINDS = dict(zip(("mug", "bowl", "apple", "fork", "knife"), 2 * BLOCKS.kinds, strict=False))


def at_once(said: Reading) -> bool:
    """Whether the model is run at once, on all that was said."""
    return wants(said) and not said.confirm


@pytest.mark.parametrize("world", ["rich", "blocks"])
def test_generated_requests_and_answers_are_read_as_such(world: str) -> None:
    grammar, rng = grammar_of(world), np.random.default_rng(5)
    requests, answers = Counter[bool](), Counter[bool]()
    for _ in range(600):
        objects = random_objects(rng)
        if world == "blocks":
            colors = {color: color for color in BLOCKS.colors}
            objects = [
                replace(o, kind=BLOCK_KINDS[o.kind], color=colors.get(o.color, "yellow"))
                for o in objects
            ]
        states = grammar.dialogue(objects, rng)
        if not states:
            continue
        context = states[0].context
        for request in {context, detokenize(context)}:
            said = read(request)
            good = at_once(said) and said.text == request
            requests[good] += 1
            if not good:
                print(request, said)
        for question, answer in exchanges_of(states):
            offered = offered_answers(question)
            said = read(answer, offered, context)
            good = not leaves_open(said.kind, offered) and said.text == answer
            answers[good] += 1
            if not good:
                print(question, answer, said)
    assert requests.total() > 500
    assert answers.total() > 200
    assert requests[True] >= 0.99 * requests.total()
    assert answers[True] >= 0.98 * answers.total()


def test_requests_about_scanned_objects_are_read_as_such() -> None:
    grammar, rng = grammar_of("table"), np.random.default_rng(3)
    found = Counter[bool]()
    for _ in range(400):
        objects = random_table(rng)
        for want in ("clear", "ambiguous", "absent"):
            drawn = grammar.reference(objects, rng, want)
            if drawn is not None:
                found[at_once(read(grammar.phrasing.request(drawn[0], rng)))] += 1
    assert found.total() > 1000
    assert found[True] > 0.98 * found.total()


def test_commands_of_it2p_are_read_as_such(it2p_photographs: Path) -> None:
    images = load_it2p(it2p_photographs).images
    texts = {command.text for image in images for command in image.commands}
    texts |= {command.text for image in images for command in image.ambiguous}
    assert len(texts) > 500
    assert np.mean([at_once(read(text)) for text in texts]) >= 0.99
