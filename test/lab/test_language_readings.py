"""No request and no answer of the simulator's language, or of IT2P, is read as a refusal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from object_scenes import random_table
from scene_helpers import random_objects

from clue_ros.dialogue.reading import Kind, leaves_open, read
from clue_ros.dialogue.words import offered_answers
from clue_ros.lab.data.export_invig import exchanges_of
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.model.prompts import detokenize

ANSWERS = (Kind.OTHER, Kind.OFFERED, Kind.YES, Kind.NO)
BLOCK_KINDS = dict(zip(("mug", "bowl", "apple", "fork", "knife"), 2 * BLOCKS.kinds, strict=False))


@pytest.mark.parametrize("world", ["rich", "blocks"])
def test_generated_requests_and_answers_are_read_as_such(world: str) -> None:
    grammar, rng = grammar_of(world), np.random.default_rng(5)
    requests = answers = 0
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
            assert (said.kind, said.text) == (Kind.OTHER, request)
            requests += 1
        for question, answer in exchanges_of(states):
            offered = offered_answers(question)
            said = read(answer, offered, context)
            assert said.kind in ANSWERS, (question, answer)
            assert not leaves_open(said.kind, offered), (question, answer)
            assert said.text == answer
            answers += 1
    assert requests > 500
    assert answers > 200


def test_requests_about_scanned_objects_are_read_as_such() -> None:
    """Typing errors and corrections with bare nouns ("lid, no, bag") are asked again: 1 in 100."""
    grammar, rng = grammar_of("table"), np.random.default_rng(3)
    read_as = Counter[Kind]()
    for _ in range(400):
        objects = random_table(rng)
        for want in ("clear", "ambiguous", "absent"):
            drawn = grammar.reference(objects, rng, want)
            if drawn is not None:
                read_as[read(grammar.phrasing.request(drawn[0], rng)).kind] += 1
    assert read_as.total() > 1000
    assert read_as[Kind.OTHER] > 0.98 * read_as.total(), read_as


def test_commands_of_it2p_are_read_as_such(it2p_photographs: Path) -> None:
    images = load_it2p(it2p_photographs).images
    texts = {command.text for image in images for command in image.commands}
    texts |= {command.text for image in images for command in image.ambiguous}
    assert len(texts) > 500
    for text in texts:
        assert read(text).kind is Kind.OTHER, text
