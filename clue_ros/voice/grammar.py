# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The input and the output of a recognizer: hints of the next words, and a hypothesis.

The hints become a grammar (JSGF), a vocabulary, or a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from clue_ros.dialogue.words import plain
from clue_ros.voice.command_words import words_of

MAX_PHRASES = 50  # phrases taken into a grammar
MAX_WORDS = 12  # words in each
PLAIN = 10  # weight of the plain yes or no, where every other wording of it has 1


class Expecting(str, Enum):
    """The kind of utterance that is likely next."""

    COMMAND = "command"  # no dialogue is open
    ANSWER = "answer"  # a question is
    CONFIRMATION = "confirmation"  # "did you say ...?"
    ANYTHING = "anything"  # no help: dictation


@dataclass(frozen=True)
class Hints:
    """The context in which a phrase is recognized.

    Attributes:
        expecting: the kind of utterance.
        phrases: the most likely utterances: suggested answers and labels.
        language: a tag such as en-US.
    """

    expecting: Expecting = Expecting.COMMAND
    phrases: tuple[str, ...] = ()
    language: str = "en-US"

    @staticmethod
    def make(expecting: Expecting, phrases: Iterable[str], language: str) -> Hints:
        """Hints with the phrases in lower case, without punctuation, empty and long ones."""
        cleaned = dict.fromkeys(plain(phrase) for phrase in phrases)
        kept = [p for p in cleaned if p and len(p.split()) <= MAX_WORDS]
        return Hints(expecting, tuple(kept[:MAX_PHRASES]), language)


@dataclass(frozen=True)
class Hypothesis:
    """The result of recognizing a phrase.

    Attributes:
        text: in lower case without punctuation; empty if no words were recognized.
        confidence: 0 to 1; NaN if the recognizer does not say.
        unaided: the text without help from a grammar; empty if there was no such decoding.
        features: the three comparisons that the confidence was computed from (sphinx).
    """

    text: str
    confidence: float = math.nan
    unaided: str = ""
    features: tuple[float, ...] = ()


def jsgf(hints: Hints, known: Callable[[str], bool]) -> str:
    """The grammar for pocketsphinx, without phrases whose words its dictionary lacks (`known`).

    Suggested phrases have the largest weights, then the expected kind of utterance, then the rest.
    """
    words = words_of(hints.language)
    is_read_back = hints.expecting is Expecting.CONFIRMATION
    yes = (*words.yes, *words.yes_to_read_back) if is_read_back else words.yes
    no = (*words.no, *words.no_to_read_back) if is_read_back else words.no

    def rule(phrases: Iterable[str], first: int = 1) -> str:
        """The phrases as alternatives; the first has the weight `first`, every other 1."""
        kept = [p for p in dict.fromkeys(phrases) if all(known(word) for word in p.split())]
        if first > 1 and len(kept) > 1:
            kept = [f"/{first}/ {kept[0]}", *(f"/1/ {phrase}" for phrase in kept[1:])]
        return " | ".join(kept) or "<VOID>"

    thing = (
        "<the> [<place>] [<size>] <kind> [<color>] [<behind>]"
        if words.color_follows
        else "<the> [<place>] [<size>] [<color>] <kind> [<behind>]"
    )
    if is_read_back:
        utterance = (
            "/10/ <yes> | /10/ <no> | /4/ <stop> | /1/ <refusal> | /1/ <wait> | /1/ <command>"
            " | /1/ <answer>"
        )
    elif hints.expecting is Expecting.ANSWER:
        utterance = (
            "/4/ <answer> | /2/ <yes> | /2/ <no> | /1/ <stop> | /1/ <refusal> | /0.5/ <wait>"
            " | /0.1/ <command>"
        )
    else:
        utterance = (
            "/8/ <command> | /1/ <stop> | /1/ <refusal> | /0.5/ <answer> | /0.5/ <yes> | /0.5/ <no>"
            " | /0.2/ <wait>"
        )
    if hints.phrases:
        utterance = f"/10/ [<opening>] [<the>] <suggested> [<after>] | {utterance}"
    lines = [
        "#JSGF V1.0;",
        "grammar clue;",
        f"<color> = {rule(words.colors)};",
        f"<kind> = {rule(words.kinds)};",
        f"<size> = {rule(words.sizes)};",
        f"<place> = {rule(words.places)};",
        f"<behind> = {rule(words.behind)};",
        f"<the> = {rule(words.the)};",
        f"<verb> = {rule(words.verbs)};",
        f"<before> = {rule(words.polite_before)};",
        f"<after> = {rule(words.polite_after)};",
        f"<yes> = {rule(yes, PLAIN)};",
        f"<no> = {rule(no, PLAIN)};",
        f"<stop> = {rule(words.stop)};",
        f"<wait> = {rule(words.waits)};",
        f"<not> = {rule(words.do_not)};",
        f"<refusal> = {rule(words.refusals)} | <not> <verb> <thing> [<after>];",
        f"<opening> = {rule(words.answer_openings)};",
        f"<suggested> = {rule(hints.phrases)};",
        f"<thing> = {thing};",
        "<command> = [<before>] <verb> <thing> [<after>];",
        "<short> = [<the>] <color> | [<the>] <place> | [<the>] <kind> | <behind>;",
        "<answer> = [<opening>] ( <short> | <thing> ) [<after>];",
        f"public <utterance> = {utterance};",
    ]
    return "\n".join(lines) + "\n"


def word_list(hints: Hints) -> list[str]:
    """Every word that is likely now, for recognizers that take a vocabulary (Vosk)."""
    words = words_of(hints.language)
    groups = (
        words.colors, words.kinds, words.sizes, words.places, words.behind, words.verbs,
        words.polite_before, words.polite_after, words.the, words.answer_openings, words.yes,
        words.no, words.yes_to_read_back, words.no_to_read_back, words.stop, words.refusals,
        words.waits, words.do_not, hints.phrases,
    )  # fmt: skip
    return sorted({word for group in groups for phrase in group for word in phrase.split()})


def prompt(hints: Hints) -> str:
    """Likely phrases as the text prompt of a recognizer that takes one (Whisper)."""
    words = words_of(hints.language)
    if hints.expecting is Expecting.CONFIRMATION:
        return ", ".join((*words.yes[:2], *words.no[:2], *words.stop[:2]))
    likely = hints.phrases or tuple(f"{verb} {words.the[0]}" for verb in words.verbs[:6])
    return ", ".join((*likely, *words.colors[:8], *words.places[:6]))
