# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Reads utterances of people: stop, refusal, wait, yes, no, answer, request.

`read` is the one place that decides it, and `clue_ros.dialogue.conversation` acts on it, so that
every way in (topic, service, action, command line, voice, page, evaluation) behaves the same. It
comes before the model, which makes a box of any words: a refusal must never reach it, and a request
always does, at once or after one yes.

Stops are a list, in several languages, read first (stops.txt). What the open question offers is
compared, with "not" before it too, and a place alone answers a question. Everything else is
learned (`clue_ros.dialogue.intent`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path

from clue_ros.dialogue.intent import Asked, load_intent, spoken_words
from clue_ros.dialogue.places import FORMS
from clue_ros.dialogue.words import asks_yes_or_no, is_offered


class Kind(Enum):
    """The kind of an utterance."""

    STOP = "stop"  # end the dialogue
    REFUSAL = "refusal"  # do not act; nothing else is wanted
    WAIT = "wait"  # give me time
    NONE = "none"  # of what was offered
    NO = "no"
    YES = "yes"
    CHAT = "chat"  # side talk, small talk, politeness: nothing that concerns the robot's task
    OFFERED = "offered"  # one of the answers that the question offers
    ANSWER = "answer"
    REQUEST = "request"  # while a question is open: for another object than the open request
    UNNAMED = "unnamed"  # a request that names nothing, "take it"


@dataclass(frozen=True)
class Reading:
    """An utterance, as it was understood.

    text: the part of it that says what is wanted, for the model: the utterance itself, unless it
    refuses one thing and asks for another ("leave the cup, take the mug"). confidence: the
    probability of the kind (of "something is wanted" for its kinds), 0..1. confirm: it is not sure
    that something is wanted; ask before the robot acts on it.
    """

    kind: Kind
    text: str
    confidence: float = 1.0
    confirm: bool = False


ANYTHING = "the object"
"""The model's text for a request that names nothing: it asks which one, if there are several."""
WANTED = (Kind.REQUEST, Kind.ANSWER, Kind.OFFERED, Kind.UNNAMED)
"""Kinds with which something is wanted."""
_JOINED_PLACES = frozenset(form.replace(" ", "") for form in FORMS)
_NOT_WANTED = (Kind.REFUSAL, Kind.WAIT, Kind.CHAT)

STOPS = Path(__file__).with_name("stops.txt")
"""Words that end a dialogue at once, read first and never learned away; see `add_stops`."""
_BEFORE_STOP = frozenset(("no", "oh", "hey", "robot", "please", "wait", "ok", "uh", "non"))

# Probabilities that something is wanted, chosen on development lists (`clue eval intent`): from the
# first one on it is done, from the second on it is confirmed before.
SURE, POSSIBLE = 0.65, 0.25
_PAUSE = re.compile(r"[.,;:!?()—–…]+")
_OTHER = re.compile(r"(?:no )?(?:i mean )?(?:the|that) other(?: one)?(?: please)?")
_GAP = re.compile(r"[\s,;.!?—–…]+(?:(and|but|et|mais)\s+)?")
CLEARLY = 0.85  # probability of each part from which an utterance falls into two
PAUSE = 0.1  # by which a pause between them lowers it
MAX_GAPS = 24  # that are looked at


def read(text: str, offered: Sequence[str] = (), about: str = "") -> Reading:
    """Say what an utterance asks for.

    Args:
        text: what was said.
        offered: the answers that the open question offers; () where none is open, or it offers
            none.
        about: what the open request names, for telling a new request from an answer; "" where no
            request is open.

    >>> read("no, don't touch it!").kind, read("don't forget to give me the mug").kind
    (<Kind.REFUSAL: 'refusal'>, <Kind.REQUEST: 'request'>)
    """
    if is_stop(text):
        return Reading(Kind.STOP, text)
    choices = () if asks_yes_or_no(offered) else offered
    if is_offered(text, choices):
        return Reading(Kind.OFFERED, text)
    asked = Asked(about, tuple(offered))
    found = _classified(text, asked)
    if found.kind is Kind.UNNAMED and not asked.is_open:
        return replace(found, text=ANYTHING)
    excludes = text.lower().startswith("not ") and is_offered(text[len("not ") :], choices)
    if asked.is_open and not asks_yes_or_no(offered) and (excludes or _is_place(text)):
        return replace(found, kind=Kind.ANSWER, confirm=False)
    if found.kind not in WANTED:
        return found
    said = _clauses(text)
    if any(_is_starred_stop(clause) for clause in said):
        return Reading(Kind.STOP, text)
    for clause in said if len(said) > 1 else ():
        if is_offered(clause, choices):
            return replace(found, kind=Kind.OFFERED, text=clause)
    if found.confirm:
        return found
    part = _wanted_part(text, asked)
    is_new = found.kind is Kind.REQUEST and asked.is_open
    return replace(found, text=_without_no(part) if is_new else part)


def _is_place(text: str) -> bool:
    """Whether an answer is a place and no more: "right", "upperright", "back please"."""
    said = [word for word in spoken_words(text) if word != "please"]
    return " ".join(said) in FORMS or "".join(said) in _JOINED_PLACES


def is_other(text: str) -> bool:
    """Whether an answer only means another thing than was shown: "no, the other one"."""
    return _OTHER.fullmatch(" ".join(spoken_words(text))) is not None


def after_no(text: str) -> str:
    """Return an answer's rest after a no: "the left one" of "no, the left one"; "" without a no."""
    first, *rest = text.split()
    return " ".join(rest).lstrip(" ,.;:!") if read(first).kind is Kind.NO else ""


def is_stop(text: str) -> bool:
    """Whether an utterance is a stop (STOPS), also after "no", "please" and the like.

    >>> is_stop("Stooop!"), is_stop("stop moving the arm"), is_stop("the stop sign")
    (True, True, False)
    """
    said, stops = spoken_words(text), _stops()
    while said:
        begins = (" ".join(said[:length]) for length in (1, 2))
        if " ".join(said) in stops or any(stops.get(begin) for begin in begins):
            return True
        if said[0] not in _BEFORE_STOP:
            return False
        said = said[1:]
    return False


def _is_starred_stop(clause: str) -> bool:
    """Whether a part of an utterance is a stop by itself: "the left one, stop"."""
    said = spoken_words(clause)
    while len(said) > 1 and said[0] in _BEFORE_STOP:
        said = said[1:]
    return bool(_stops().get(" ".join(said)))


def add_stops(phrases: Iterable[str]) -> None:
    """Let further phrases end a dialogue, in the form of stops.txt: "whole", or "first word *"."""
    _stops().update(_parsed(phrases))


@cache
def _stops() -> dict[str, bool]:
    """The stops in the spelling of `spoken_words`, and whether one also counts as first words."""
    lines = STOPS.read_text("utf-8").splitlines()
    return _parsed(line for line in lines if not line.startswith("#"))


def _parsed(phrases: Iterable[str]) -> dict[str, bool]:
    """Phrases in the form of stops.txt, as `_stops` has them."""
    found = {" ".join(spoken_words(p)): p.rstrip().endswith("*") for p in phrases}
    return {said: starred for said, starred in found.items() if said}


def wants(said: Reading, offered: Sequence[str] = ()) -> bool:
    """Whether the model is run on what was said, now or after a yes.

    offered: the answers that the open question offers; "yes" answers one that offers it.
    """
    return said.kind in WANTED or (said.kind is Kind.YES and asks_yes_or_no(offered))


def leaves_open(kind: Kind, offered: Sequence[str]) -> bool:
    """Whether a question is still open after this: "wait", side talk, what names nothing.

    offered: the answers that the question offers. "yes" and "no" answer one that offers them.
    """
    if kind in (Kind.YES, Kind.NO):
        return not asks_yes_or_no(offered)
    return kind in (Kind.WAIT, Kind.NONE, Kind.CHAT, Kind.UNNAMED)


def calls_off(kind: Kind) -> bool:
    """Whether it asks not to act, or not yet."""
    return kind in (Kind.STOP, Kind.REFUSAL, Kind.WAIT)


def _classified(text: str, asked: Asked) -> Reading:
    """The class of a text as a whole."""
    shares = {Kind(name): share for name, share in load_intent().probabilities(text, asked).items()}
    wanted = {kind: share for kind, share in shares.items() if kind in WANTED}
    total = sum(wanted.values())
    kind = max(shares.keys() - wanted, key=lambda k: shares[k])
    in_doubt = total >= POSSIBLE and kind in _NOT_WANTED
    if total < shares[kind] and not in_doubt:
        return Reading(kind, text, shares[kind])
    kind = max(wanted, key=lambda k: wanted[k]) if asked.is_open else Kind.REQUEST
    if not asked.is_open and wanted[Kind.UNNAMED] > total / 2:
        kind = Kind.UNNAMED
    return Reading(kind, text, total, confirm=total < SURE)


def _clauses(text: str) -> list[str]:
    return [part.strip() for part in _PAUSE.split(text) if any(map(str.isalnum, part))]


def _wanted_part(text: str, asked: Asked) -> str:
    """The text without the part that refuses, where it clearly falls into a refusal and a wish.

    A wish may follow a refusal anywhere, the longest one that there is; before a refusal it ends
    with "and" or "but": "the mug, not the red one" is for the model to read.
    """
    intent = load_intent()

    def shares_of(part: str) -> tuple[float, float]:
        shares = intent.probabilities(part, asked)
        return shares["refusal"], shares["request"] + shares["answer"]

    kept = text
    for gap in [*_GAP.finditer(text)][:MAX_GAPS]:
        first, second = text[: gap.start()].strip(" ,;.!"), text[gap.end() :].strip()
        if len(first.split()) < 2 or not second:
            continue
        (refused, asks), (refused_later, asks_later) = shares_of(first), shares_of(second)
        least = CLEARLY if gap[0].isspace() else CLEARLY - PAUSE
        if min(refused, asks_later) >= least:
            kept = second
        elif gap[1] and min(asks, refused_later) >= least:
            return first
    return kept


def _without_no(text: str) -> str:
    """A new request without the "no" before it: "no, pick up the mug"."""
    said = _clauses(text)
    while len(said) > 1 and read(said[0]).kind in (Kind.NO, Kind.WAIT):
        text = text[text.index(said[0]) + len(said[0]) :].lstrip(" ,.;:!")
        said = said[1:]
    return text
