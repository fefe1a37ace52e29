# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Words that a model's tokenizer does not have.

A tokenizer of whole words, as the embedded models have, reads a word that no training text had as
its unknown token: "pick up the stapler" and "pick up the drill" become the same tokens, and
whatever the model points at is a guess. The robot says so instead. A tokenizer of pieces of words,
as the full-size PaliGemma 2 has, has no unknown words, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clue_ros.dialogue.noun_phrases import read_phrase
from clue_ros.dialogue.types import Turn
from clue_ros.dialogue.words import named_object, with_article

NOT_KNOWN = "I don't know what {} is. Say its colour, or where it is."
NOT_A_WORD = "I don't know the word {!r}. Say it another way."


def unknown_object(tokenizer: Any, turns: Sequence[Turn]) -> tuple[str, str]:
    """What a dialogue is about, where the model lacks the word, and what the robot says to that.

    Empty texts where the noun of the phrase is known, or where it has no noun ("the red one"). In
    "tape dispenser" the last word counts; where only that one is unknown, the robot names it.

    >>> unknown_object(tokenizer, [Turn("user", "pick up the stapler")])
    ('a stapler', "I don't know what a stapler is. Say its colour, or where it is.")
    """
    noun = read_phrase(named_object(turns)).noun.split()
    unknown = [word for word in noun if _is_unknown(tokenizer, word)]
    if not noun or noun[-1] not in unknown:
        return "", ""
    thing = with_article(" ".join(noun))
    if len(unknown) == len(noun):
        return thing, NOT_KNOWN.format(thing)
    return thing, NOT_A_WORD.format(noun[-1])


def _is_unknown(tokenizer: Any, word: str) -> bool:
    tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id in tokens
