"""Small, general readings of English: what a request names, what a question offers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from clue_ros.dialogue import Turn

_DETERMINERS = frozenset(
    ("the", "a", "an", "this", "that", "these", "those", "my", "your", "our", "some", "any")
)
# Words that come before what a request names: politeness, verbs and their particles.
_LEAD = re.compile(
    r"(please|could|can|would|will|you|robot|i|want|need|to|pick|take|grab|grasp|get|fetch|bring|"
    r"give|hand|pass|show|find|point|touch|lift|move|select|choose|push|locate|detect|where|is|"
    r"up|at|out|over|for|me|us|now)[,.]?",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"\b(do not|don't|cannot|can't) see\b", re.IGNORECASE)
ASKS_WHERE = "where is it?"  # what the embedded models were taught to ask of things alike
_YES_NO = re.compile(r"^(do|does|did|is|are|was|were|should|shall|can|could|would|will|have|has)\b")


def noun_phrase(request: str) -> str:
    """What a request names, without its verb: "please pick up the left block" -> "left block".

    Falls back on the request itself when nothing would be left.
    """
    text = re.sub(r"[.?!,]+$", "", request.strip())
    text = re.sub(r"[\s,]*\b(please|now|thanks|thank you)$", "", text, flags=re.IGNORECASE)
    words = text.split()
    while words and _LEAD.fullmatch(words[0]):
        words.pop(0)
    if len(words) > 1 and words[0].lower() in _DETERMINERS:
        words.pop(0)
    return " ".join(words) or request.strip()


def named_object(turns: Sequence[Turn]) -> str:
    """What a dialogue is about: what its request names, or what replaced it.

    Once the robot has said that it does not see that, the person's next words name something else.
    """
    said = turns[0].text
    for asked, answered in pairwise(turns):
        if asked.speaker == "robot" and _UNSEEN.search(asked.text):
            said = answered.text
    return noun_phrase(said)


def missing_thing(text: str) -> str | None:
    """What the robot says that it does not see: "I don't see a banana." -> "a banana".

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

    A question that only begins with a verb offers yes and no; any other offers nothing.
    """
    return tuple(dict.fromkeys(_offered(question)))


def asked_well(question: str) -> str:
    """The question, or ASKS_WHERE in place of one that offers the same thing twice.

    "the red one or the red one?" says that the robot cannot tell them apart by what it names;
    where the thing is can always be said.
    """
    offered = [answer.lower() for answer in _offered(question)]
    return question if len(set(offered)) == len(offered) else ASKS_WHERE


def _offered(question: str) -> list[str]:
    sentence = re.split(r"(?<=[.!;:])\s+", question.strip().rstrip("?! ."))[-1].strip()
    parts = re.split(r",?\s+or\s+", sentence, flags=re.IGNORECASE)
    if len(parts) < 2:
        return ["yes", "no"] if _YES_NO.match(sentence.lower()) else []
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
        determiners = [i for i, word in enumerate(words) if word.lower() in _DETERMINERS]
        starts = determiners if model[0].lower() in _DETERMINERS else []
    if starts:
        best = min(starts, key=lambda i: abs(len(words) - i - len(model)))
        return words[best:]
    if words[0].lower() in {"which", "what", "where", "who"} and len(words) <= len(model) + 1:
        return words
    return words[-len(model) :]
