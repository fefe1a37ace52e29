# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Decides whether to act on a phrase: at once, after "Did you say ...?", or not at all.

A grammar turns any sound into a command, so a phrase of low confidence is read back first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from clue_ros.dialogue.reading import Kind, calls_off, read
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.words import is_offered, plain
from clue_ros.voice.command_words import words_of
from clue_ros.voice.grammar import Hypothesis


class Action(Enum):
    """The reaction to a phrase."""

    ACCEPT = "accept"  # pass the text on
    CONFIRM = "confirm"  # read it back and wait for yes or no
    REJECT = "reject"  # not understood
    DENIED = "denied"  # the person said no to the text that was read back


@dataclass(frozen=True)
class Decision:
    """The action; `text` is passed on or was rejected; the robot says `say` unless it is empty."""

    action: Action
    text: str = ""
    say: str = ""


@dataclass(frozen=True)
class Thresholds:
    """Lowest confidence of a text that is accepted, and of one that is read back, 0..1."""

    accept: float = 0.6
    confirm: float = 0.25


class Confirmer:
    """Decides about one phrase after another; remembers what it has read back. Not thread-safe."""

    def __init__(self, thresholds: Thresholds, language: str = "en-US") -> None:
        self.thresholds = thresholds
        self.language = language
        self.pending = ""  # the text that was read back and is not answered yet

    def forget(self) -> None:
        """Drop the text that was read back."""
        self.pending = ""

    def decide(self, heard: Hypothesis, offered: Sequence[str] = ()) -> Decision:
        """Decide about a phrase.

        Args:
            heard: the phrase.
            offered: the answers that the robot's open question offers. To "the left one or the
                right one?" the word "right" is an answer, also after "Did you say ...?".
        """
        text = heard.text
        confidence = 1.0 if math.isnan(heard.confidence) else heard.confidence
        # Yes and no are two words that were just asked for, so little confidence is enough.
        least = self.thresholds.confirm / 2 if self.pending else self.thresholds.confirm
        if not text or confidence < least:
            return Decision(Action.REJECT, text)
        pending, self.pending = self.pending, ""
        # "stop", "don't" and "wait" are obeyed at once: to stop wrongly costs less than to go on
        # wrongly.
        if calls_off(read(text, offered).kind):
            return Decision(Action.ACCEPT, text)
        if pending:
            kind = read(text, ("yes", "no"), pending).kind
            also = not is_offered(text, offered)  # "right" is a yes unless the question offers it
            if kind is Kind.YES and (also or plain(text) in words_of(self.language).yes):
                return Decision(Action.ACCEPT, pending)
            if also and kind in (Kind.NO, Kind.NONE):
                return Decision(Action.DENIED, pending, say(Saying.SAY_AGAIN, self.language))
        if confidence >= self.thresholds.accept:
            return Decision(Action.ACCEPT, text)
        self.pending = text
        return Decision(Action.CONFIRM, text, say(Saying.DID_YOU_SAY, self.language, text=text))
