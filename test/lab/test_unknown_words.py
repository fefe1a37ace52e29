"""The robot says that it does not know a word that its tokenizer lacks, and doubts no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from object_scenes import random_table
from scene_helpers import random_objects
from transformers import AutoTokenizer

from clue_ros.dialogue import Dialogue, Grounding, NotFound, Question
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.conversation import Ask, Conversation, Think
from clue_ros.dialogue.types import Box, Turn
from clue_ros.dialogue.words import named_object
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.model.loading import demo_folder, find_model
from clue_ros.model.prompts import detokenize
from clue_ros.model.tasks import Detection
from clue_ros.model.unknown_words import UNSURE, ask_instead, in_sight, unknown_words


@pytest.fixture
def clue(household: Clue) -> Clue:
    return household


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(find_model("household"))


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
        ("the hourglass", "an hourglass"),
        ("grab the usb thingy", "a usb thingy"),
        ("the mug on the tablecloth", ""),
    ],
)
def test_only_the_noun_says_what_the_dialogue_is_about(
    tokenizer: Any, request_text: str, thing: str
) -> None:
    assert unknown_words(tokenizer, Dialogue(request_text)).thing == thing


@pytest.mark.parametrize(
    ("request_text", "doubt", "known"),
    [
        ("pick up the turquoise mug", "what turquoise means", "pick up the mug"),
        ("the striped mug", "what striped means", "the mug"),
        ("the red striped one", "what striped means", "the red one"),
        ("the mug with the turquoise handle", "what turquoise means", "the mug with the handle"),
        ("give me the Stanley knife", "what stanley means", "give me the knife"),
        ("hand me the laptop charger", "what laptop means", "hand me the charger"),
        ("the mug behind the laptop", "what a laptop is", "the mug"),
        ("the mug behind the laptop on the left", "what a laptop is", "the mug on the left"),
        ("take the mug next to my Stapler, please!", "what a stapler is", "take the mug please"),
        ("the mug that is on the laptop", "what a laptop is", "the mug"),
        ("the mug, not the stapler", "what stapler means", "the mug"),
        (
            "the transparent pepsi bottle",
            "what transparent means or what pepsi means",
            "the bottle",
        ),
    ],
)
def test_the_model_reads_the_rest_of_the_words(
    tokenizer: Any, request_text: str, doubt: str, known: str
) -> None:
    found = unknown_words(tokenizer, Dialogue(request_text))
    assert found.thing == ""
    assert found.doubt == f"I don't know {doubt}."
    assert found.known.request.replace(" ,", "") == known


@pytest.mark.parametrize(
    ("request_text", "doubt"),
    [
        ("hand me the tissues", "what tissues are"),
        ("a pair of tweezers", "what tweezers are"),
        ("the compass", "what a compass is"),
        ("the thing i can staple paper with", "what staple means"),
        ("something to staple with", "what staple means"),
        ("everything striped", "what striped means"),
        ("the striped one", "what striped means"),
        ("the one to the left of the stapler", "what a stapler is"),
    ],
)
def test_where_the_rest_names_nothing_it_says_so(
    tokenizer: Any, request_text: str, doubt: str
) -> None:
    found = unknown_words(tokenizer, Dialogue(request_text))
    assert found.thing
    assert found.doubt == f"I don't know {doubt}."
    assert found.known.request == request_text


def test_after_the_doubt_the_persons_next_words_are_what_the_dialogue_is_about(
    tokenizer: Any,
) -> None:
    dialogue = Dialogue("pick up the stapler")
    dialogue.add_question(ask_instead(unknown_words(tokenizer, dialogue).doubt, ())[0])
    turns = dialogue.turns
    dialogue.add_answer("the red one")
    found = unknown_words(tokenizer, dialogue)
    assert (found.words, found.thing, found.known.context()) == ((), "", "the red one")
    again = Dialogue(turns[0].text, [*turns[1:], Turn("user", "the harmonica")])
    assert unknown_words(tokenizer, again).thing == "a harmonica"


def test_a_modifier_is_doubted_once_and_the_noun_stays(tokenizer: Any) -> None:
    dialogue = Dialogue("the striped mug")
    dialogue.add_question("I don't know what striped means. the red one or the blue one?")
    dialogue.add_answer("the red one")
    found = unknown_words(tokenizer, dialogue)
    assert (found.words, found.thing, found.doubt) == (("striped",), "", "")
    asked = "assistant: the red one or the blue one? user: the red one"
    assert found.known.context() == f"the mug {asked}"
    assert named_object(dialogue.turns) == "striped mug"


class Listing:
    """A base that lists four things and finds two of them, one of them twice."""

    def list_objects(self) -> list[str]:
        """What it says."""
        return ["pen", "mug", "vase", "glove"]

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """Boxes of three of them, one a faint one."""
        boxes = {"pen": [(50, 0.9)], "mug": [(5, 0.7), (20, 0.8)], "vase": [(80, 0.4)]}
        return [
            Detection(
                tuple(Candidate(Box(x, 0, x + 9, 9), name, p) for x, p in boxes.get(name, ())), 0.0
            )
            for name in names
        ]


def test_it_names_what_the_base_finds_again_by_its_name() -> None:
    seen = in_sight(Listing())
    assert [(c.label, c.box.x_min, c.score) for c in seen] == [("mug", 20, 0.8), ("pen", 50, 0.9)]
    assert ask_instead("No.", seen) == (
        "No. I see a mug and a pen. Which one is it?",
        ("the mug", "the pen"),
    )
    apple = Candidate(Box(0, 0, 9, 9), "apple")
    many = ask_instead("No.", [apple, *seen])[0]
    assert many == "No. I see an apple, a mug and a pen. Which one is it?"
    assert ask_instead("No.", [apple]) == ("No. I see an apple. Is it that?", ("yes", "no"))
    assert ask_instead("No.", ()) == ("No. Say its colour, or where it is.", ())


def test_it_goes_on_by_what_it_sees(clue: Clue) -> None:
    clue.policy = "both"
    view = clue.look(load_image(demo_folder() / "ball_block_can.png"))
    conversation = Conversation("pick up the stapler")
    reply = clue.reply(view, conversation.dialogue)
    assert isinstance(reply, NotFound)
    assert "ball" in reply.text.split("I see ")[1]
    ball = reply.candidates[reply.suggested_answers.index("the ball")]
    assert [peak.box for peak in reply.ambiguity.peaks] == list(reply.candidates)
    assert isinstance(conversation.reply(reply), Ask)
    assert isinstance(conversation.answer("the ball"), Think)
    after = clue.reply(view, conversation.dialogue)
    assert isinstance(after, Grounding)
    assert after.box.iou(ball) > 0.5
    assert after.score >= 0.5


def test_without_a_modifier_it_asks_or_points_but_never_firmly(clue: Clue) -> None:
    clue.policy = "both"
    mugs = clue.look(load_image(demo_folder() / "mugs.png"))
    asked = clue.reply(mugs, Dialogue("the striped mug"))
    assert isinstance(asked, Question)
    assert asked.text.startswith("I don't know what striped means. ")
    plain = clue.reply(mugs, Dialogue("the mug"))
    assert isinstance(plain, Question)
    assert asked.suggested_answers == plain.suggested_answers
    one = clue.look(load_image(demo_folder() / "ball_block_can.png"))
    sure, unsure = (clue.reply(one, Dialogue(f"the {word}ball")) for word in ("", "striped "))
    assert isinstance(sure, Grounding)
    assert isinstance(unsure, Grounding)
    assert sure.score > UNSURE == unsure.score
    assert unsure.box == sure.box


@pytest.mark.parametrize("policy", ["detector", "decoder", "both", "zero-shot"])
def test_an_unknown_word_is_never_pointed_at_unless_forced(clue: Clue, policy: str) -> None:
    clue.policy = policy
    image = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    view, dialogue = clue.look(image), Dialogue("pick up the stapler")
    reply = clue.reply(view, dialogue)
    assert isinstance(reply, NotFound)
    assert reply.missing == "a stapler"
    assert reply.text.startswith("I don't know what a stapler is.")
    forced = clue.reply(view, dialogue, force_grounding=True)
    assert isinstance(forced, Grounding)
    assert forced.score <= UNSURE
    dialogue.add_question(reply.text)
    dialogue.add_answer("the red one")
    after = clue.reply(view, dialogue)
    assert isinstance(after, (Question, Grounding))
    assert "don't know" not in getattr(after, "text", "")


@pytest.mark.parametrize("world", ["rich", "table"])
def test_nothing_of_the_training_language_is_doubted(tokenizer: Any, world: str) -> None:
    rng, grammar, sentences = np.random.default_rng(7), grammar_of(world), 0
    draw = random_table if world == "table" else random_objects
    for _ in range(600):
        for state in grammar.dialogue(draw(rng), rng):
            for text in detokenize(state.context).split(" user: "):
                dialogue = Dialogue(text.split(" assistant: ")[0])
                found = unknown_words(tokenizer, dialogue)
                assert found.words == (), text
                assert found.known is dialogue
                sentences += 1
    assert sentences > 400


def test_no_command_of_it2p_is_doubted(tokenizer: Any, it2p_photographs: Path) -> None:
    for image in load_it2p(it2p_photographs).images:
        for command in image.commands:
            assert unknown_words(tokenizer, Dialogue(command.text)).words == (), command


def test_politeness_is_not_doubted(tokenizer: Any) -> None:
    polite = ("can't reach the mug, hand it to me please", "why don't you take the mug")
    for text in (*polite, "uh, the red one", "kindly fetch me the mug", "the mug without a lid"):
        assert unknown_words(tokenizer, Dialogue(text)).words == (), text
