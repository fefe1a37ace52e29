# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Texts of people and of the robot's questions: spelling, what is named, what is offered."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from clue_ros.dialogue.types import Turn

TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


# Words that tell no answer from another.
_FILLERS = frozenset((
    "the", "a", "an", "one", "ones", "on", "to", "in", "at", "of", "it", "is", "that", "this",
    "please", "le", "la", "l'", "les", "un", "une", "celui", "celle", "de", "du", "à", "en",
))  # fmt: skip

_NEGATIONS = frozenset(("not", "no", "pas", "non"))  # alone they are no short form of an answer


def base_language(tag: str) -> str:
    """The language of a tag: "en" of "en-US"."""
    return tag.split("-")[0].lower()


def plain(text: str) -> str:
    """The text as a recognizer writes it: lower case, one space, no punctuation but ' and -."""
    return " ".join(re.findall(r"[^\W_]+(?:['’-][^\W_]*)*", text.lower())).replace("’", "'")


def without_accents(text: str) -> str:
    """A text in lower case, without accents.

    >>> without_accents("Arrête")
    'arrete'
    """
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in parts if not unicodedata.combining(c))


def asks_yes_or_no(suggested_answers: Sequence[str]) -> bool:
    """Whether these are the answers of a question that yes or no settles, and not of "which"."""
    return tuple(suggested_answers) == ("yes", "no")


def is_offered(text: str, suggested_answers: Sequence[str]) -> bool:
    """Whether the text is one of the answers that a question offers, in as few words as it takes.

    To ("the left one", "the right one") these are "right", "the right" and "the right one".

    >>> is_offered("Right.", ("the left one", "the right one"))
    True
    >>> is_offered("the one", ("the left one", "the right one"))
    False
    """
    said = _content(text)
    offered = [_content(answer) for answer in suggested_answers]
    if said and said in offered:
        return True
    return bool(said - _NEGATIONS) and sum(said <= answer for answer in offered) == 1


def _content(text: str) -> frozenset[str]:
    """The words of an answer that tell it from another."""
    return frozenset(plain(text).split()) - _FILLERS


# -------------------------------------------------------------------------------------------------
# Small, general readings of English: what a request names, what a question offers.

DETERMINERS = frozenset(
    ("the", "a", "an", "this", "that", "these", "those", "my", "your", "our", "some", "any")
)
VOCATIVES = ("dude", "mate", "buddy", "pal", "bro")
THANKS = "(?:thanks|thank you)(?: a lot| a million| a bunch| so much| very much)?"
# Words that come before what a request names: politeness, verbs and their particles.
_LEAD = re.compile(
    rf"(please|hey|hi|hello|ok|okay|{'|'.join(VOCATIVES)}|"
    r"could|can|would|will|you|robot|i|want|need|to|pick|take|grab|grasp|get|fetch|bring|"
    r"give|hand|pass|show|find|point|touch|lift|move|select|choose|push|locate|detect|where|is|"
    r"up|at|out|over|for|me|us|now)[,.]?",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    rf"[\s,]+(?:please|now|instead|{THANKS}"
    rf"|(?<!\bthe )(?<!\ba )(?<!\bmy )(?:{'|'.join(VOCATIVES)}))$",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"\b(do not|don't|cannot|can't) see\b", re.IGNORECASE)
# "I don't know what a stapler is. I see a mug. Is it that?": the next words name something else.
UNKNOWN = re.compile(r"^I don't know [^.]*\. (I see|Say)\b")
_YES_NO = re.compile(r"^(do|does|did|is|are|was|were|should|shall|can|could|would|will|have|has)\b")

_OPEN = re.compile(
    r"\b(wh\w+|how|quel\w*|lequel|laquelle|où|qui|que|comment)\b|^\W*(or\W*)*$", re.IGNORECASE
)


def noun_phrase(request: str) -> str:
    """Return a request's phrase without its verb: "please pick up the left block" -> "left block".

    Falls back on the request itself when nothing would be left.
    """
    words = without_courtesy(request).split()
    while words and _LEAD.fullmatch(words[0]):
        words.pop(0)
    if len(words) > 1 and words[0].lower() in DETERMINERS:
        words.pop(0)
    return " ".join(words) or request.strip()


def without_courtesy(text: str) -> str:
    """A sentence without its last full stop and what is only polite before it.

    >>> without_courtesy("Hand me the mug, thanks a lot dude!")
    'Hand me the mug'
    """
    before = None
    while text != before:
        before, text = text, _COURTESY.sub("", re.sub(r"[\s.?!,]+$", "", text.strip()))
    return text


def named_object(turns: Sequence[Turn]) -> str:
    """Return the phrase that a dialogue is about: its request's, or the one that replaced it."""
    return noun_phrase(current_turns(turns)[0].text)


def current_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns about the present object, from the words that name it on.

    Once the robot has said that it does not see what was named, or does not know it, the person's
    next words name something else.
    """
    begin = 0
    for at, (asked, _) in enumerate(pairwise(turns)):
        if asked.speaker != "robot":
            continue
        if _UNSEEN.search(asked.text) or UNKNOWN.match(asked.text):
            begin = at + 1
    return turns[begin:]


def missing_thing(text: str) -> str | None:
    """Return the thing that the robot does not see: "I don't see a banana." -> "a banana".

    None when it says nothing of the kind, and when it goes on to ask: "I do not see a banana, which
    one do you mean?" is a question like any other.
    """
    if "?" in text:
        return None
    found = _UNSEEN.search(text)
    if found is None or not re.match(r"(sorry[\s,]+)?i\b", text.strip(), re.IGNORECASE):
        return None
    rest = re.split(r"[.,;!?]", text[found.end() :])[0].strip()
    return rest or None


def offered_answers(question: str) -> tuple[str, ...]:
    """The answers a question offers: "is it red or blue?" -> ("red", "blue").

    A question that begins with a verb, or only names something ("the red one?"), offers yes and no;
    any other offers nothing.
    """
    return tuple(dict.fromkeys(_offered(question)))


def offers_twice(question: str) -> bool:
    """Whether a question offers the same answer twice: "the red one or the red one?"."""
    offered = [answer.lower() for answer in _offered(question)]
    return len(set(offered)) < len(offered)


def _offered(question: str) -> list[str]:
    sentence = re.split(r"(?<=[.!;:])\s+", question.strip().rstrip("?! ."))[-1].strip()
    parts = re.split(r",?\s+or\s+", sentence, flags=re.IGNORECASE)
    if len(parts) < 2:
        names = question.rstrip().endswith("?") and not _OPEN.search(question)
        return ["yes", "no"] if names or _YES_NO.match(sentence.lower()) else []
    pieces = [piece.strip() for part in parts for piece in part.split(",")]
    pieces = [piece for piece in pieces if piece.lower() not in ("", "or")]
    if len(pieces) < 2:
        return []
    last = pieces[-1].split()
    options = [_tail_like(piece.split(), last) for piece in pieces[:-1]]
    # In "which one, the red or the blue?" the first piece asks and offers nothing.
    asking = {"which", "what", "where", "who"}
    kept = [words for words in options if words and words[0].lower() not in asking]
    return [" ".join(words) for words in [*kept, last]]


def _tail_like(words: list[str], model: list[str]) -> list[str]:
    """The end of `words` built like `model`: it begins with the same word, or is as long."""
    starts = [i for i, word in enumerate(words) if word.lower() == model[0].lower()]
    if not starts:
        determiners = [i for i, word in enumerate(words) if word.lower() in DETERMINERS]
        starts = determiners if model[0].lower() in DETERMINERS else []
    if starts:
        best = min(starts, key=lambda i: abs(len(words) - i - len(model)))
        return words[best:]
    if words[0].lower() in {"which", "what", "where", "who"} and len(words) <= len(model) + 1:
        return words
    return words[-len(model) :]
