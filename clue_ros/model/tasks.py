# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The prompts of PaliGemma's tasks, and how their answers are read.

The published mix checkpoints know "detect THING ; THING" and "answer en QUESTION", each ended by a
newline (Google's page "PaliGemma prompt and system instructions"). Whatever a model answers is read
as far as it makes sense, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clue_ros.dialogue.candidates import Candidate
from clue_ros.model.location_tokens import LAST, Codes, nearest_valid

DETECT = "detect"
ANSWER = "answer en"

# Questions for ANSWER; {} is a noun phrase without an article.
WHAT_COLOR = "what color is the {}?"
WHAT_IS = "what is this?"
WHAT_OBJECTS = "what objects are in the image?"
IS_THERE = "is there a {} in the image?"
IS_THIS = "is this {}?"

SIDES = 4  # location tokens of a box
MAX_BOXES = 8  # of one answer
SHORT = 3  # words of a short answer
BOX_TOKENS = 9  # of a box with its label, and what stands between two
DETECT_TOKENS = MAX_BOXES * BOX_TOKENS
ANSWER_TOKENS = 6
LIST_TOKENS = 24  # of an answer that lists things
THINNEST = 3  # steps of 1023: a thinner box encloses nothing


@dataclass(frozen=True)
class ListedBox:
    """A box of an answer to DETECT: its codes, and which tokens say them and its label."""

    codes: Codes
    at: tuple[int, int, int, int]
    label: tuple[int, int]  # first token of the label, and the one behind its last


@dataclass(frozen=True)
class Detection:
    """An answer to DETECT.

    candidates: boxes in pixels, near-duplicates merged. going_on: probability that the answer goes
    on after its first box.
    """

    candidates: tuple[Candidate, ...]
    going_on: float


def read_boxes(steps: Sequence[int | None]) -> tuple[ListedBox, ...]:
    """Every whole box of an answer, in its order; the first MAX_BOXES of them.

    steps: of each token, the step of a location token (0..1023), None for any other token. Four
    location tokens in a row make a box; a fifth and further ones are left out, and so are fewer.
    Corners in the wrong order are put in order; a box without an area is left out.
    """
    found: list[ListedBox] = []
    at = 0
    while at < len(steps) and len(found) < MAX_BOXES:
        if steps[at] is None:
            at += 1
            continue
        end = at
        while end < len(steps) and steps[end] is not None:
            end += 1
        words = end
        while words < len(steps) and steps[words] is None:
            words += 1
        run = [step for step in steps[at : at + SIDES] if step is not None]
        if len(run) == SIDES and all(0 <= step <= LAST for step in run):
            y1, x1, y2, x2 = nearest_valid(run)
            if y2 - y1 >= THINNEST and x2 - x1 >= THINNEST:
                place = (at, at + 1, at + 2, at + 3)
                found.append(ListedBox((y1, x1, y2, x2), place, (end, words)))
        at = words
    return tuple(found)


def clean_label(text: str) -> str:
    """The label of a box: up to the separator, without special tokens and signs.

    >>> clean_label(" Red mug ;"), clean_label("; <seg001> mug"), clean_label("")
    ('red mug', 'mug', '')
    """
    text = re.sub(r"<[^<>]{0,20}>", " ", text)
    parts = [" ".join(re.findall(r"[^\W_]+(?:['-][^\W_]+)*", part)) for part in text.split(";")]
    return next((part.lower() for part in parts if part), "")[:60]


def short_answer(text: str) -> str | None:
    """An answer of SHORT words or fewer, in lower case; None for any other, or location tokens."""
    if "<loc" in text or "<seg" in text:
        return None
    said = re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())
    return " ".join(said) if 0 < len(said) <= SHORT else None
