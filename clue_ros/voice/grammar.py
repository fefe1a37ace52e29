"""What is likely to be said now, as engines take it: a JSGF grammar, words, or a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from clue_ros.dialogue.words import Words, plain, words_of

MAX_PHRASES = 50  # suggested answers taken into a grammar
MAX_WORDS = 12  # of each
PLAIN = 10  # how much more likely a plain yes or no is than another way to say it


class Expecting(str, Enum):
    """What the person is likely to say next."""

    COMMAND = "command"  # no dialogue is open
    ANSWER = "answer"  # a question is
    CONFIRMATION = "confirmation"  # "did you say ...?"
    ANYTHING = "anything"  # no help: dictation


@dataclass(frozen=True)
class Hints:
    """What is known before listening.

    Attributes:
        expecting: the kind of utterance.
        phrases: utterances that are the most likely of all: suggested answers, labels.
        language: a tag such as en-US.
    """

    expecting: Expecting = Expecting.COMMAND
    phrases: tuple[str, ...] = ()
    language: str = "en-US"

    @staticmethod
    def make(expecting: Expecting, phrases: Iterable[str], language: str) -> Hints:
        """Hints with the phrases cleaned; those that no person would say are left out."""
        cleaned = dict.fromkeys(plain(phrase) for phrase in phrases)
        kept = [p for p in cleaned if p and len(p.split()) <= MAX_WORDS]
        return Hints(expecting, tuple(kept[:MAX_PHRASES]), language)


def jsgf(hints: Hints, known: Callable[[str], bool]) -> str:
    """The grammar for pocketsphinx; words that it does not know (`known`) are left out.

    Weights: what was suggested before what is usual, and that before what is merely possible.
    """
    words = words_of(hints.language)

    def rule(phrases: Iterable[str], first: int = 1) -> str:
        """Alternatives; the first one is so many times as likely as another."""
        kept = [p for p in dict.fromkeys(phrases) if all(known(word) for word in p.split())]
        if first > 1 and len(kept) > 1:
            kept = [f"/{first}/ {kept[0]}", *(f"/1/ {phrase}" for phrase in kept[1:])]
        return " | ".join(kept) or "<VOID>"

    thing = (
        "<the> [<place>] [<size>] <kind> [<color>] [<behind>]"
        if words.color_follows
        else "<the> [<place>] [<size>] [<color>] <kind> [<behind>]"
    )
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
        f"<yes> = {rule(words.yes, PLAIN)};",
        f"<no> = {rule(words.no, PLAIN)};",
        f"<stop> = {rule(words.stop)};",
        f"<opening> = {rule(words.answer_openings)};",
        f"<suggested> = {rule(hints.phrases)};",
        f"<thing> = {thing};",
        "<command> = [<before>] <verb> <thing> [<after>];",
        "<short> = [<the>] <color> | [<the>] <place> | [<the>] <kind> | <behind>;",
        "<answer> = [<opening>] ( <short> | <thing> ) [<after>];",
    ]
    lines.append(f"public <utterance> = {_alternatives(hints, words)};")
    return "\n".join(lines) + "\n"


def _alternatives(hints: Hints, words: Words) -> str:
    suggested = "/10/ [<opening>] [<the>] <suggested> [<after>] | " if hints.phrases else ""
    if hints.expecting is Expecting.CONFIRMATION:
        return "/10/ <yes> | /10/ <no> | /4/ <stop> | /1/ <command> | /1/ <answer>"
    if hints.expecting is Expecting.ANSWER:
        return f"{suggested}/4/ <answer> | /2/ <yes> | /2/ <no> | /1/ <stop> | /0.1/ <command>"
    return f"{suggested}/8/ <command> | /1/ <stop> | /0.5/ <answer> | /0.5/ <yes> | /0.5/ <no>"


def word_list(hints: Hints) -> list[str]:
    """Every word that is likely now, for engines that take a vocabulary (Vosk)."""
    words = words_of(hints.language)
    groups = (
        words.colors, words.kinds, words.sizes, words.places, words.behind, words.verbs,
        words.polite_before, words.polite_after, words.the, words.answer_openings, words.yes,
        words.no, words.stop, hints.phrases,
    )  # fmt: skip
    return sorted({word for group in groups for phrase in group for word in phrase.split()})


def prompt(hints: Hints) -> str:
    """A sentence that an engine with a text prompt (Whisper) reads before listening."""
    words = words_of(hints.language)
    if hints.expecting is Expecting.CONFIRMATION:
        return ", ".join((*words.yes[:2], *words.no[:2], *words.stop[:2]))
    likely = hints.phrases or tuple(f"{verb} {words.the[0]}" for verb in words.verbs[:6])
    return ", ".join((*likely, *words.colors[:8], *words.places[:6]))
