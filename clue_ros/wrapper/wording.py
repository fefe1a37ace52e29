# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A question in the language model's own words, within limits.

The rules have a question with its options; the model may say it in other words. What it says is
used only if it names every option, names no colour, place, size or thing that is not among them,
and is one short question; else the rules' sentence stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from clue_ros.dialogue.candidates import Asked
from clue_ros.dialogue.noun_phrases import ENGLISH
from clue_ros.dialogue.types import Dialogue
from clue_ros.dialogue.words import ENGLISH as COMMAND_WORDS
from clue_ros.dialogue.words import plain

MAX_WORDS = 20
_REQUEST = (
    "Say this question of a robot in other words, as one short question, and name the same"
    " choices: {question}"
)
_MEANINGFUL = frozenset((
    *ENGLISH.colors, *ENGLISH.sizes, *(w for form in ENGLISH.places for w in form.split()),
    *ENGLISH.numbers, *COMMAND_WORDS.kinds,
)) - frozenset(("the", "on", "to", "at", "in", "of", "side", "part", "me", "hand", "table",
                "image", "corner"))  # fmt: skip


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
    words = re.findall(r"[a-z]+", plain(text))
    if not text.endswith("?") or text.count("?") > 1:
        return "it is not one question"
    if len(words) > MAX_WORDS:
        return f"it has {len(words)} words, more than {MAX_WORDS}"
    for option in asked.options:
        telling = [w for w in re.findall(r"[a-z]+", plain(option)) if w not in ("the", "one")]
        if not all(word in words for word in telling):
            return f"it does not name {option!r}"
    known = {w for option in asked.options for w in re.findall(r"[a-z]+", plain(option))}
    known |= set(re.findall(r"[a-z]+", plain(dialogue.context())))
    foreign = [word for word in words if word in _MEANINGFUL and word not in known]
    return f"it says {foreign[0]!r}, which is no option" if foreign else ""
