"""The nouns that a detector is asked for, of commands and of descriptions in data sets."""

import pytest

from clue_ros.dialogue.nouns import Tag, head_noun, in_one_form, named_part, nouns_of, tagged
from clue_ros.dialogue.types import Dialogue, Turn

DESCRIPTIONS = {
    "a giraffe drinking": ("giraffe",),
    "kid in yellow jacket": ("kid", "jacket"),
    "woman standing at a counter using a phone": ("woman", "counter", "phone"),
    "pull up behind the van": ("van",),
    "The boy sits on a bench. He wears a cap.": ("boy", "bench", "cap"),
    "a girl holding a kite next to a blue bike": ("girl", "kite", "bike"),
    "turn right at that black truck, my dog is in it": ("truck", "dog"),
    "a man and a horse": ("man", "horse"),
    "the cow in front of the barn": ("cow", "barn"),
    "excuse me, can I have the red block?": ("block",),
    "would you mind passing me the left block?": ("block",),
    "could do with the stapler": ("stapler",),
}


def test_most_nouns_of_descriptions_are_found_and_the_first_is_the_head() -> None:
    wanted = found = extra = heads = 0
    for text, nouns in DESCRIPTIONS.items():
        read = nouns_of(Dialogue(text))
        print(text, read)
        wanted += len(nouns)
        found += len({*nouns} & {*read})
        extra += len({*read} - {*nouns})
        heads += head_noun(text) == nouns[0]
    assert found >= 0.75 * wanted
    assert extra <= 0.25 * wanted
    assert heads >= 0.75 * len(DESCRIPTIONS)


@pytest.mark.parametrize(
    ("text", "nouns"),
    [
        ("pick up the red mug left of the plate", ("mug", "plate")),
        ("the frying pan", ("frying pan",)),
        ("the soup can next to the drinking glass", ("soup can", "drinking glass")),
        ("give me the flurb", ("flurb",)),
        ("the left one", ("object",)),
    ],
)
def test_a_commands_nouns_are_found(text: str, nouns: tuple[str, ...]) -> None:
    assert nouns_of(Dialogue(text)) == nouns


def test_words_keep_their_spelling_and_have_tags() -> None:
    found = tagged("Could you hand me the RED mug, please?")
    assert [t.word for t in found] == ["Could", "you", "hand", "me", "the", "RED", "mug", "please"]
    assert {t.word: t.tag for t in found}["mug"] is Tag.NOUN
    assert {t.word: t.tag for t in found}["RED"] is Tag.MODIFIER
    assert tagged("...") == []


def test_a_request_for_the_one_next_to_something_names_no_thing() -> None:
    assert head_noun("the one next to the plate") == ""
    assert nouns_of(Dialogue("the one next to the plate")) == ("plate",)


def test_the_robots_words_are_not_looked_for() -> None:
    turns = [Turn("robot", "the cup or the bowl?"), Turn("user", "the bowl")]
    assert nouns_of(Dialogue("give me the dishes", turns)) == ("dishes", "bowl")


@pytest.mark.parametrize(
    ("text", "thing"),
    [
        ("the banana", "the banana"),
        ("pick up the banana", "the banana"),
        ("hand me the banana, please", "the banana"),
        ("could you get me the banana", "the banana"),
        ("grab red block", "the red block"),
        ("pick up the second mug from the left", "the second mug from the left"),
        ("bring me the one, not the green one", "the one, not the green one"),
        ("give me both mugs", "both mugs"),
        ("i'd like something to eat", "something to eat"),
        ("rather than the sponge, get the brush", ""),  # what is before it says more
        ("lettuce, no tomato", ""),
        ("whatever is in the blue bowl", ""),
        ("take that", ""),
    ],
)
def test_the_part_that_names_a_thing(text: str, thing: str) -> None:
    assert named_part(text) == thing


def test_a_model_reads_every_form_of_a_request_as_one() -> None:
    answer = [Turn("robot", "The red one or the blue one?"), Turn("user", "the red one, please")]
    forms = ("the mug", "pick up the mug", "hand me the mug, please", "could you get me the mug")
    read = {in_one_form(Dialogue(form, answer)).context() for form in forms}
    assert len(read) == 1
    assert read.pop().endswith("user: the red one, please"), "answers stay as they are"
    assert in_one_form(Dialogue("take that")).request == "take that"
