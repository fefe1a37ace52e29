"""Whether to act on what was heard: at once, after "did you say ...?", or not at all.

A grammar makes a command of any sound: what is not sure is read back before it is acted on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.words import means_no, means_stop, means_yes
from clue_ros.voice.grammar import Expecting
from clue_ros.voice.sphinx import Heard


class Action(Enum):
    """What to do with a phrase."""

    ACCEPT = "accept"  # pass the text on
    CONFIRM = "confirm"  # read it back and wait for yes or no
    REJECT = "reject"  # not understood
    DENIED = "denied"  # the person said no to what was read back


@dataclass(frozen=True)
class Decision:
    """What to do. `text` is to be passed on or was rejected; `say` is to be said, or empty."""

    action: Action
    text: str = ""
    say: str = ""


@dataclass(frozen=True)
class Thresholds:
    """Confidence from which a text is accepted, and from which it is worth a question, 0..1."""

    accept: float = 0.6
    confirm: float = 0.25


class Confirmer:
    """Decides about one phrase after another; remembers what it has read back. Not thread-safe."""

    def __init__(self, thresholds: Thresholds, language: str = "en-US") -> None:
        self.thresholds = thresholds
        self.language = language
        self.pending = ""  # the text that was read back and not answered yet

    def forget(self) -> None:
        """Drop what was read back: nobody answered in time."""
        self.pending = ""

    def decide(self, heard: Heard, expecting: Expecting) -> Decision:
        """Say what to do with a phrase."""
        sure = 1.0 if math.isnan(heard.confidence) else heard.confidence
        if self.pending:
            return self._answered(heard.text, sure)
        if not heard.text or sure < self.thresholds.confirm:
            return Decision(Action.REJECT, heard.text)
        # "stop" is always obeyed at once: to stop wrongly costs less than to go on wrongly.
        if sure >= self.thresholds.accept or means_stop(heard.text, self.language):
            return Decision(Action.ACCEPT, heard.text)
        return self._read_back(heard.text)

    def _read_back(self, text: str) -> Decision:
        self.pending = text
        return Decision(Action.CONFIRM, text, say(Saying.DID_YOU_SAY, self.language, text=text))

    def _answered(self, text: str, sure: float) -> Decision:
        """Take what was said after a text was read back.

        Yes and no are one of two words that were just asked for, so little certainty is enough.
        """
        pending = self.pending
        if not text or sure < self.thresholds.confirm / 2:
            return Decision(Action.REJECT, text)  # once more; who waits too long is forgotten
        self.pending = ""
        if means_yes(text, self.language):
            return Decision(Action.ACCEPT, pending)
        if means_no(text, self.language):
            return Decision(Action.DENIED, pending, say(Saying.SAY_AGAIN, self.language))
        if means_stop(text, self.language):
            return Decision(Action.ACCEPT, text)
        # Something else: what they meant, said again or in other words.
        if sure >= self.thresholds.accept:
            return Decision(Action.ACCEPT, text)
        return self._read_back(text)
