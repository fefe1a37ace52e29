"""The nouns that a detector is asked for, of commands and of descriptions in data sets."""

import pytest

from clue_ros.dialogue.nouns import head_noun, nouns_of
from clue_ros.dialogue.types import Dialogue, Turn


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("a giraffe drinking", ("giraffe",)),
        ("kid in yellow jacket", ("kid", "jacket")),
        ("woman standing at a counter using a phone", ("woman", "counter", "phone")),
        ("pull up behind the van", ("van",)),
        ("stop by the stop sign", ("stop sign",)),
        ("The boy sits on a bench. He wears a cap.", ("boy", "bench", "cap")),
        ("a girl holding a kite next to a blue bike", ("girl", "kite", "bike")),
        ("My aunt is waiting on this side of the road, pull over near her", ("aunt", "road")),
        ("turn right at that black truck, my dog is in it", ("truck", "dog")),
        ("a man and a horse", ("man", "horse")),
        ("the cow in front of the barn", ("cow", "barn")),
        ("excuse me, can I have the red block?", ("block",)),
        ("would you mind passing me the left block?", ("block",)),
    ],
)
def test_a_description_is_cut_into_its_things(text: str, nouns: tuple[str, ...]) -> None:
    assert nouns_of(Dialogue(text)) == nouns
    assert head_noun(text) == nouns[0]


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("pick up the red mug left of the plate", ("mug", "plate")),
        ("the frying pan", ("frying pan",)),
        ("the cup of tea", ("cup of tea",)),
        ("the mug with a blue handle", ("mug",)),
        ("the soup can next to the drinking glass", ("soup can", "drinking glass")),
        ("the left one", ("object",)),
        ("the one with a handle", ("object",)),
    ],
)
def test_a_command_is_read_as_everywhere(text: str, nouns: tuple[str, ...]) -> None:
    assert nouns_of(Dialogue(text)) == nouns


def test_a_request_for_the_one_next_to_something_names_no_thing() -> None:
    assert head_noun("the one next to the plate") == ""
    assert nouns_of(Dialogue("the one next to the plate")) == ("plate",)


def test_the_robots_words_are_not_looked_for() -> None:
    turns = [Turn("robot", "the cup or the bowl?"), Turn("user", "the bowl")]
    assert nouns_of(Dialogue("give me the dishes", turns)) == ("dishes", "bowl")
