# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A question in the language model's own words, within limits.

The rules have a question with its options; the model may say it in other words. Its text is used
only if it names every option, is one short question, and has only words of the options, of the
dialogue, of the candidates' labels, and of a list of words that name nothing. Otherwise the rules'
sentence stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from clue_ros.dialogue.candidates import Asked
from clue_ros.dialogue.inflection import plural
from clue_ros.dialogue.types import Dialogue
from clue_ros.dialogue.words import plain

MAX_WORDS = 20
_REQUEST = (
    "Say this question of a robot in other words, as one short question, and name the same"
    " choices: {question}"
)
# Words that name no thing, colour, place or size, nor deny one. No prepositions of place: those of
# "the one on the left" stand in the option.
_FUNCTION_WORDS = frozenset((
    "a", "an", "the", "this", "that", "these", "those", "one", "ones", "it", "i", "you", "me", "my",
    "your", "we", "us", "or", "and", "either", "of", "to", "for", "so", "is", "are", "was", "be",
    "am", "do", "does", "did", "should", "shall", "would", "will", "can", "could", "may", "might",
    "must", "let", "which", "what", "choice", "option", "want", "wanted", "need", "mean", "meant",
    "like", "prefer", "rather", "choose", "select", "say", "tell", "ask", "asking", "pick", "take",
    "grab", "get", "fetch", "bring", "give", "please", "ok", "okay", "s", "d", "m", "re", "ll",
))  # fmt: skip


def worded(asked: Asked, dialogue: Dialogue, say: Callable[[str], str]) -> Asked:
    """The question as `say` words it, if that passes `problem`; else as it was."""
    text = say(_REQUEST.format(question=asked.text)).strip().strip('"').strip()
    text = text[:1].lower() + text[1:]
    return asked if problem(text, asked, dialogue) else replace(asked, text=text)


def problem(text: str, asked: Asked, dialogue: Dialogue) -> str:
    """Why a text cannot stand for a question; empty if it can.

    >>> asked = Asked("the red one or the blue one?", ("the red one", "the blue one"))
    >>> said = Dialogue("the mug")
    >>> problem("do you want the red or the blue mug?", asked, said)
    ''
    >>> problem("the red one or the green one?", asked, said)
    "it does not name 'the blue one'"
    >>> problem("red, blue or green?", asked, said)
    "it says 'green', which is no option"
    """
    words = _words(text)
    if not text.endswith("?") or text.count("?") > 1:
        return "it is not one question"
    if len(words) > MAX_WORDS:
        return f"it has {len(words)} words, more than {MAX_WORDS}"
    for option in asked.options:
        telling = [w for w in _words(option) if w not in ("the", "one")]
        if not all(word in words for word in telling):
            return f"it does not name {option!r}"
    said = [asked.text, *asked.options, *(turn.text for turn in dialogue.turns)]
    labels = [c.label for group in asked.groups for c in group]
    known = {word for text in (*said, *labels) for word in _words(text)}
    known |= {plural(word) for label in labels for word in _words(label)[-1:]}
    foreign = [word for word in words if word not in known | _FUNCTION_WORDS]
    return f"it says {foreign[0]!r}, which is no option" if foreign else ""


def _words(text: str) -> list[str]:
    """The words and numbers of a text in lower case, parted at apostrophes and hyphens."""
    return re.findall(r"[^\W_]+", plain(text))
