"""The robot says that it does not know a word that its tokenizer lacks, and doubts no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scene_helpers import random_objects

from clue_ros.dialogue import Dialogue, Grounding, NotFound, Question
from clue_ros.dialogue.types import Turn
from clue_ros.engine import Clue
from clue_ros.lab.data.it2p import find_it2p, load_it2p
from clue_ros.lab.language.grammars import rich_grammar
from clue_ros.model.prompts import detokenize
from clue_ros.model.unknown_words import unknown_object


@pytest.fixture(scope="module")
def clue() -> Clue:
    return Clue.load("household")


@pytest.fixture(scope="module")
def tokenizer(clue: Clue) -> Any:
    return clue.checkpoint.processor.tokenizer


@pytest.mark.parametrize(
    ("request_text", "thing"),
    [
        ("pick up the stapler", "a stapler"),
        ("The Stapler!", "a stapler"),
        ("red stapler", "a stapler"),
        ("could you get me the harmonica on the left", "a harmonica"),
        ("grab the toy trombone", "a toy trombone"),
        ("the coke can", ""),
        ("pick up the mug", ""),
        ("pick up the red one", ""),
        ("hand me the thing on the left", ""),
        ("the mug next to the stapler", ""),
    ],
)
def test_the_noun_alone_counts(tokenizer: Any, request_text: str, thing: str) -> None:
    assert unknown_object(tokenizer, [Turn("user", request_text)])[0] == thing


def test_after_the_doubt_the_persons_next_words_are_what_the_dialogue_is_about(
    tokenizer: Any,
) -> None:
    turns = [Turn("user", "pick up the stapler")]
    turns += [Turn("robot", unknown_object(tokenizer, turns)[1])]
    assert unknown_object(tokenizer, [*turns, Turn("user", "the red one")]) == ("", "")
    assert unknown_object(tokenizer, [*turns, Turn("user", "the harmonica")])[0] == "a harmonica"


@pytest.mark.parametrize("policy", ["detector", "decoder", "both", "zero-shot"])
def test_an_unknown_word_is_never_pointed_at_unless_forced(clue: Clue, policy: str) -> None:
    clue.policy = policy
    image = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    view, dialogue = clue.look(image), Dialogue("pick up the stapler")
    reply = clue.reply(view, dialogue)
    assert isinstance(reply, NotFound)
    assert reply.missing == "a stapler"
    assert reply.text.startswith("I don't know what a stapler is.")
    assert isinstance(clue.reply(view, dialogue, force_grounding=True), Grounding)
    dialogue.add_question(reply.text)
    dialogue.add_answer("the red one")
    after = clue.reply(view, dialogue)
    assert isinstance(after, (Question, Grounding))
    assert "don't know" not in getattr(after, "text", "")


def test_no_request_of_the_training_language_is_doubted(tokenizer: Any) -> None:
    rng, grammar, requests = np.random.default_rng(7), rich_grammar(), 0
    for _ in range(600):
        for state in grammar.dialogue(random_objects(rng), rng)[:1]:
            text = detokenize(state.context)
            assert unknown_object(tokenizer, [Turn("user", text)]) == ("", ""), text
            requests += 1
    assert requests > 400


def test_no_command_of_it2p_is_doubted(tokenizer: Any) -> None:
    root = find_it2p()
    if root is None:
        pytest.skip("CLUE_IT2P names no folder")
    for image in load_it2p(root).images:
        for command in image.commands:
            assert unknown_object(tokenizer, [Turn("user", command.text)]) == ("", ""), command
