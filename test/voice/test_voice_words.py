"""Words: the grammar, what yes and stop mean, reading back, and text made safe to be spoken."""

from __future__ import annotations

import math
import re

import pytest

from benchmarks.word_error_rate import word_error_rate, word_errors
from clue_ros.dialogue.reading import Kind, read, wants
from clue_ros.dialogue.sayings import ending, in_other_words
from clue_ros.dialogue.words import plain
from clue_ros.lab.language import words
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.voice.command_words import LANGUAGES, words_of
from clue_ros.voice.confirmation import Action, Confirmer, Thresholds
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis, jsgf, prompt, word_list
from clue_ros.voice.speaker import MAX_PIECE, clean, sentences
from clue_ros.voice.sphinx import CONFIDENCE, confidence

# The grammar.


def test_the_grammar_has_every_word_of_the_templates() -> None:
    """What people say to the embedded model can be heard."""
    known = set(word_list(Hints(language="en-US")))

    def unheard(template: str) -> set[str]:
        return set(re.findall(r"[a-z]+", re.sub(r"{\w*}", " ", template))) - known

    for answer in (*words.BY_COLOR, *words.BY_PLACE, *words.BY_KIND, *words.BY_NOT, *words.NO):
        assert not unheard(answer)
    for table in (BLOCKS.nouns, words.PLACE_BEFORE_NOUN, words.PLACE_AFTER_NOUN):
        assert not any(unheard(phrase) for phrases in table.values() for phrase in phrases)
    for word in (*BLOCKS.colors, *words.ANY_NOUNS):
        assert not unheard(word)
    requests = [bool(unheard(template)) for template in words.REQUESTS]
    assert sum(requests) < 0.2 * len(requests)


def test_a_grammar_leaves_out_what_the_recognizer_does_not_know() -> None:
    hints = Hints.make(Expecting.ANSWER, ["the zorgblat", "the RED one!", "", "<loc0001>"], "en")
    assert hints.phrases == ("the zorgblat", "the red one", "loc0001")
    text = jsgf(hints, lambda word: word not in ("zorgblat", "loc0001", "purple"))
    assert "zorgblat" not in text
    assert "purple" not in text
    assert "<suggested> = the red one;" in text
    assert text.startswith("#JSGF V1.0;\ngrammar clue;\n")
    # an injected rule stays words
    assert plain("x | <NULL>; public <a> = b") == "x null public a b"


def test_what_is_expected_decides_what_is_likely() -> None:
    command = jsgf(Hints(), lambda _word: True)
    answer = jsgf(Hints.make(Expecting.ANSWER, ["left"], "en"), lambda _word: True)
    yes_no = jsgf(Hints(Expecting.CONFIRMATION), lambda _word: True)
    assert "/8/ <command>" in command
    assert "<suggested>" in answer.splitlines()[-1]
    assert yes_no.splitlines()[-1].startswith("public <utterance> = /10/ <yes> | /10/ <no>")
    assert "left" in prompt(Hints.make(Expecting.ANSWER, ["left"], "en"))
    many = Hints.make(Expecting.ANSWER, [f"word{i}" for i in range(999)], "en")
    assert len(many.phrases) == 50


@pytest.mark.parametrize("expecting", [Expecting.COMMAND, Expecting.ANSWER, Expecting.CONFIRMATION])
def test_what_calls_off_can_be_heard_at_any_time(expecting: Expecting) -> None:
    lines = jsgf(Hints(expecting), lambda _word: True).splitlines()
    assert "<not> = don't | do not;" in lines
    refusal = next(line for line in lines if line.startswith("<refusal>"))
    assert "don't touch it" in refusal
    assert "<not> <verb> <thing>" in refusal
    for rule in ("<stop>", "<refusal>", "<wait>"):
        assert rule in lines[-1]


@pytest.mark.parametrize("tag", LANGUAGES)
def test_every_language_can_say_yes_no_and_stop(tag: str) -> None:
    words = words_of(tag)
    assert all(read(word, ("yes", "no")).kind is Kind.YES for word in words.yes)
    assert all(read(word, ("yes", "no")).kind in (Kind.NO, Kind.NONE) for word in words.no)
    called_off = [not wants(read(w)) for w in (*words.stop, *words.refusals, *words.waits)]
    assert all(called_off)
    assert not set(words.yes) & set(words.no)
    assert not set(words.yes) & set(words.stop)
    sentences_ = {ending(code, tag) for code in ("NO_IMAGE", "BUSY", "CANCELED", "", "NONE")}
    assert len(sentences_) == 5
    assert words_of(f"{tag}-XX") is words


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("Stop!", True),
        ("please stop", True),
        ("never mind", True),
        ("No, cancel, please.", True),
        ("robot stop", True),
        ("No, please stop!", True),
        ("oh please stop", True),
        ("ok robot stop", True),
        ("no no stop", True),
        ("please robot", False),
        ("stop at the red block", True),
        ("the one at the bus stop", False),
        ("cancel the left one", True),
        ("no", False),
        ("", False),
    ],
)
def test_only_a_stop_stops(text: str, stops: bool) -> None:
    assert (read(text).kind is Kind.STOP) is stops


# Reading back.


def confirmer() -> Confirmer:
    return Confirmer(Thresholds(0.6, 0.25))


def test_sure_is_accepted_unsure_read_back_and_noise_rejected() -> None:
    made = confirmer()
    assert made.decide(Hypothesis("pick up the cube", 0.9)).action is Action.ACCEPT
    assert made.decide(Hypothesis("pick up the cube", 0.1)).action is Action.REJECT
    assert made.decide(Hypothesis("", 0.0)).action is Action.REJECT
    engine_says_nothing = made.decide(Hypothesis("hello", math.nan))
    assert engine_says_nothing.action is Action.ACCEPT
    asked = made.decide(Hypothesis("pick up the cube", 0.4))
    assert (asked.action, asked.say) == (Action.CONFIRM, "Did you say: pick up the cube?")
    assert made.pending == "pick up the cube"


@pytest.mark.parametrize(
    ("reply", "sure", "action", "text", "pending"),
    [
        ("yes", 0.9, Action.ACCEPT, "pick up the cube", ""),
        ("yes please", 0.2, Action.ACCEPT, "pick up the cube", ""),
        ("right", 0.9, Action.ACCEPT, "pick up the cube", ""),
        ("wrong", 0.9, Action.DENIED, "pick up the cube", ""),
        ("no", 0.9, Action.DENIED, "pick up the cube", ""),
        ("stop", 0.9, Action.ACCEPT, "stop", ""),
        ("pick up the tube", 0.9, Action.ACCEPT, "pick up the tube", ""),
        ("pick up the tube", 0.4, Action.CONFIRM, "pick up the tube", "pick up the tube"),
        ("", 0.0, Action.REJECT, "", "pick up the cube"),
        ("yes", 0.05, Action.REJECT, "yes", "pick up the cube"),
    ],
)
def test_the_answer_to_what_was_read_back(
    reply: str, sure: float, action: Action, text: str, pending: str
) -> None:
    made = confirmer()
    made.decide(Hypothesis("pick up the cube", 0.4))
    decision = made.decide(Hypothesis(reply, sure))
    assert (decision.action, decision.text, made.pending) == (action, text, pending)
    assert bool(decision.say) is (action in (Action.CONFIRM, Action.DENIED))


@pytest.mark.parametrize("text", ["stop", "don't pick up the cube", "wait", "no thanks"])
def test_an_unsure_stop_or_refusal_is_obeyed(text: str) -> None:
    assert confirmer().decide(Hypothesis(text, 0.3)).action is Action.ACCEPT


def test_confidence_grows_with_what_speaks_for_the_text() -> None:
    assert all(weight > 0 for weight in CONFIDENCE[1:])
    low, middle, high = (confidence((d, d, 0.5)) for d in (-3.0, 0.0, 3.0))
    assert 0.0 <= low < middle < high <= 1.0
    assert confidence((math.nan, math.nan, math.nan)) == confidence((0.0, 0.0, 0.0))


# What the robot says.


def test_a_question_in_other_words_keeps_its_choices() -> None:
    again = in_other_words("do you mean the red one or the blue one ?", "en", heard=True)
    assert again == "Sorry, I did not understand. Please tell me: the red one or the blue one ?"
    silent = in_other_words("I do not see a cup. Which one do you mean?", "en-GB", heard=False)
    assert silent.startswith("I did not hear you.")
    assert "Which one do you mean?" in silent
    shown = in_other_words("Do you mean this one?", "en", heard=False)
    assert shown == "I did not hear you. Please say yes or no. Do you mean this one?"
    assert "compris" in in_other_words("Le rouge ?", "fr-FR", heard=True)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 20_000,
        "word " * 6_000,
        "\x00\x01\x07\x1b[31mred\x1b[0m",
        "\ud800 broken \udfff",
        "日本語のテキスト。" * 500,
        "Привет, мир! " * 300,
        "\u202eright to left\u202c \u200b",
        "'; rm -rf / \" `id` $(id) <speak>&amp;</speak> [[h@l'oU]]",
        "\N{GRINNING FACE}\N{GRINNING FACE}",
        "",
        "   \n\t ",
        "...!?",
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_any_text_becomes_short_safe_sentences(text: str) -> None:
    pieces = sentences(text)
    assert all(0 < len(piece) <= MAX_PIECE for piece in pieces)
    assert all(piece.isprintable() for piece in pieces)
    assert all(any(c.isalnum() for c in piece) for piece in pieces)
    if any(c.isalnum() for c in clean(text)):
        spoken = re.sub(r"\s", "", "".join(pieces))
        whole = re.sub(r"\s", "", clean(text))
        assert sum(map(str.isalnum, spoken)) == sum(map(str.isalnum, whole))
    else:
        assert pieces == []
    for piece in pieces:
        piece.encode("utf-8")


def test_sentences_are_cut_where_one_pauses() -> None:
    assert sentences("I see it. Which one? The red!") == ["I see it.", "Which one?", "The red!"]
    long = ", ".join(f"the number {i} block" for i in range(30))
    assert all(piece.endswith(",") or piece == sentences(long)[-1] for piece in sentences(long))


# Word error rate.


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [
        ("pick up the block", "pick up the block", 0),
        ("Pick up the block!", "pick up the block", 0),
        ("pick up the block", "pick the red block", 2),
        ("pick up the block", "", 4),
        ("no", "no no no", 2),
        ("", "something", 1),
    ],
)
def test_word_errors(said: str, heard: str, errors: int) -> None:
    assert word_errors(said, heard) == (errors, len(said.split()))


def test_word_error_rate_is_over_all_words() -> None:
    assert word_error_rate([("a b c", "a b c"), ("d", "e")]) == 0.25
    assert math.isnan(word_error_rate([]))
