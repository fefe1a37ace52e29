"""What an utterance asks for: stops, refusals and waits, and the answers that look like them."""

from __future__ import annotations

import pytest
from wordings import (
    ANSWERS,
    MORE_ANSWERS,
    MORE_REQUESTS,
    NONE_OF_THEM,
    READINGS,
    REQUESTS,
    SAID_BESIDE,
    WANTED,
)

from clue_ros.dialogue.reading import Kind, leaves_open, read

RED_OR_GREEN = ("the red one", "the green one")
LEFT_OR_RIGHT = ("the left one", "the right one")
ANSWER = (Kind.OTHER, Kind.OFFERED)


@pytest.mark.parametrize("offered", [RED_OR_GREEN, LEFT_OR_RIGHT, ("yes", "no"), ()])
@pytest.mark.parametrize("text", READINGS)
def test_stops_refusals_and_waits_are_read_as_such(text: str, offered: tuple[str, ...]) -> None:
    assert read(text, offered, "mug").kind is READINGS[text]


@pytest.mark.parametrize("offered", [RED_OR_GREEN, ()])
@pytest.mark.parametrize("text", NONE_OF_THEM)
def test_what_names_nothing_answers_no_question_that_asks_which(
    text: str, offered: tuple[str, ...]
) -> None:
    kind = read(text, offered, "mug").kind
    assert kind in (Kind.NO, Kind.NONE)
    assert leaves_open(kind, offered)


@pytest.mark.parametrize("text", ["no", "nope", "non", "yes", "oui", "Yes, please."])
def test_yes_and_no_answer_a_question_that_offers_them(text: str) -> None:
    assert not leaves_open(read(text, ("yes", "no")).kind, ("yes", "no"))


@pytest.mark.parametrize("text", ["neither", "none of them", "please", "robot", "wait"])
def test_nothing_else_that_names_nothing_does(text: str) -> None:
    assert leaves_open(read(text, ("yes", "no")).kind, ("yes", "no"))


@pytest.mark.parametrize("offered", [RED_OR_GREEN, LEFT_OR_RIGHT, ()])
@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_an_answer(text: str, offered: tuple[str, ...]) -> None:
    said = read(text, offered, "mug")
    assert said.kind in ANSWER
    assert said.text == text


@pytest.mark.parametrize("text", REQUESTS)
def test_a_request_is_a_request(text: str) -> None:
    said = read(text)
    assert said.kind is Kind.OTHER
    assert said.text == text


@pytest.mark.parametrize("text", WANTED)
def test_the_model_does_not_read_what_is_refused_beside_what_is_wanted(text: str) -> None:
    said = read(text, RED_OR_GREEN, "mug")
    assert said.kind in ANSWER
    assert said.text == WANTED[text]


@pytest.mark.parametrize(
    "text",
    [
        "neither the red one nor the green one",
        "not the red one and not the green one",
        "not the red or the green one",
        "don't take the red one",  # which one is it then?
        "leave the red one",
        "not the mugs",
    ],
)
def test_refusing_what_is_offered_leaves_the_question_open(text: str) -> None:
    assert leaves_open(read(text, RED_OR_GREEN, "mug").kind, RED_OR_GREEN)


def test_excluding_one_of_three_is_an_answer() -> None:
    three = ("the red one", "the green one", "the blue one")
    assert read("neither the red one nor the green one", three).kind is Kind.OTHER


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pick up the mug instead", "pick up the mug"),
        ("no, pick up the mug", "pick up the mug"),
        ("stop, pick up the mug instead", "pick up the mug"),
        ("wait, take the blue mug on the left", "take the blue mug on the left"),
        ("don't pick it up, take the mug", "take the mug"),
        ("no, don't pick up the block, pick up the mug", "pick up the mug"),
        ("I want the mug instead", "I want the mug"),
        ("prends la tasse", "prends la tasse"),
    ],
)
def test_a_request_for_another_object_is_new(text: str, wanted: str) -> None:
    said = read(text, RED_OR_GREEN, "block")
    assert (said.kind, said.text) == (Kind.REQUEST, wanted)


@pytest.mark.parametrize(
    "text",
    [
        "take the red block",
        "take the green one",
        "take red",
        "pick up the one on the left",
        "I mean the mug",  # a correction: the model has learnt to read it in its dialogue
        "the mug instead",
    ],
)
def test_the_same_object_in_a_request_is_an_answer(text: str) -> None:
    assert read(text, RED_OR_GREEN, "block").kind in ANSWER


@pytest.mark.parametrize("text", ["stop", "the stop", "the stop one", "wait"])
def test_an_answer_that_is_offered_is_that_answer(text: str) -> None:
    offered = ("the stop sign or the wait sign", "the stop one", "the wait one")
    assert read(text, offered[1:]).kind is Kind.OFFERED


def test_a_negation_alone_is_no_short_form_of_an_answer() -> None:
    offered = ("the one that is not red", "the red one")
    assert read("not that", offered).kind is Kind.NO
    assert read("not red", offered).kind is Kind.OFFERED


MODEL_READS = (Kind.OTHER, Kind.OFFERED, Kind.REQUEST)


@pytest.mark.parametrize("offered", [RED_OR_GREEN, LEFT_OR_RIGHT, ("yes", "no"), ()])
def test_what_is_no_answer_never_reaches_the_model(offered: tuple[str, ...]) -> None:
    reached = [text for text in SAID_BESIDE if read(text, offered, "mug").kind in MODEL_READS]
    assert reached == []


def test_more_answers_and_requests_reach_the_model() -> None:
    for text in MORE_ANSWERS:
        assert read(text, RED_OR_GREEN, "mug").kind in (*MODEL_READS, Kind.YES), text
        assert read(text, (), "mug").kind in (*MODEL_READS, Kind.YES), text
    for text in MORE_REQUESTS:
        assert read(text).kind is Kind.OTHER, text


@pytest.mark.parametrize(
    "text",
    [
        "no need to pick up the mug",
        "nobody touches the mug",
        "keep your gripper off the mug",
        "there's a child near the mug",
        "someone is using the mug",
        "the mug is broken",
    ],
)
def test_a_first_request_with_a_sign_against_it_is_none(text: str) -> None:
    assert read(text).kind in (Kind.REFUSAL, Kind.UNCLEAR)


def test_dont_of_french_is_no_negation() -> None:
    for text in ("celui dont j'ai besoin", "la tasse dont je me sers"):
        assert read(text, RED_OR_GREEN, "mug").kind is Kind.OTHER


@pytest.mark.parametrize(
    "text", ["two strawberries", "candies please", "pairs of glasses", "the loaves", "the scissors"]
)
def test_a_plural_is_known_as_its_noun_is(text: str) -> None:
    assert read(text).kind is Kind.OTHER
    assert read(text, RED_OR_GREEN).kind is Kind.OTHER
