# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""CLUE beside detectors: it reads the whole dialogue, and they list the objects.

    Wrapper.load(["topic:/detections", "clue:household"])

A detector labels each thing, and its chooser counts the labels that match. CLUE reads every word,
but confuses things and overlooks some. They err on different dialogues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import SAME_BOX, AmbiguityEstimate, Dialogue, Grounding, Question
from clue_ros.model.fusion import log_odds

if TYPE_CHECKING:
    from clue_ros.engine import Clue

# Both chosen on 450 dialogues about 200 validation scenes of `rich`, of a simulated detector.
CHOOSER_WEIGHT = 0.3  # of the chooser's log odds beside CLUE's
SURE = 0.8  # score from which CLUE's box replaces the only thing that the chooser has left
_CERTAIN = 1e-4  # a probability nearer to 0 or 1 counts as this, or it would outweigh all doubt


class ClueSource:
    """A `Source` that lists nothing and judges every dialogue."""

    open_vocabulary = False

    def __init__(self, clue: Clue, name: str = "clue") -> None:
        self._clue, self.name = clue, name
        self._last: tuple[npt.NDArray[np.uint8], Any] | None = None

    @property
    def device(self) -> str:
        """The model's device."""
        return self._clue.device

    def memory_bytes(self) -> int:
        """Bytes of its weights."""
        return self._clue.memory_bytes()

    def warm_up(self) -> None:
        """See `Clue.warm_up`."""
        self._clue.warm_up()

    def again(self) -> ClueSource:
        """Return the same source for another ensemble: see `OnceAsked.again`."""
        return self

    def find(self, image: npt.NDArray[np.uint8], nouns: Sequence[str]) -> Sequence[Candidate]:
        """No candidates: see `Source.find`."""
        return ()

    def knows(self, dialogue: Dialogue) -> bool:
        """Whether the model has tokens for the words of a dialogue; else it has no say."""
        from clue_ros.model.unknown_words import unknown_words

        tokenizer = self._clue.checkpoint.processor.tokenizer
        return not unknown_words(tokenizer, dialogue).words

    def ambiguity(self, image: npt.NDArray[np.uint8], dialogue: Dialogue) -> AmbiguityEstimate:
        """See `Clue.ambiguity`. image: uint8 RGB (H, W, 3)."""
        return self._clue.ambiguity(self._view(image), dialogue)

    def reply(self, image: npt.NDArray[np.uint8], dialogue: Dialogue) -> Question | Grounding:
        """See `Clue.reply`."""
        return self._clue.reply(self._view(image), dialogue)

    def point(self, image: npt.NDArray[np.uint8], dialogue: Dialogue) -> Grounding:
        """The box of `Clue.reply` where it must point."""
        found = self._clue.reply(self._view(image), dialogue, force_grounding=True)
        assert isinstance(found, Grounding)
        return found

    def _view(self, image: npt.NDArray[np.uint8]) -> Any:
        if self._last is None or self._last[0] is not image:
            self._last = image, self._clue.look(image)
        return self._last[1]


def agreed_probability(chooser: float, threshold: float, clue: AmbiguityEstimate) -> float:
    """The probability of ambiguity by both, 0..1, to be compared with the chooser's threshold.

    CLUE's log odds over its own threshold, and CHOOSER_WEIGHT of the chooser's over its.
    """
    over = CHOOSER_WEIGHT * (_log_odds(chooser) - _log_odds(threshold))
    over += _log_odds(clue.probability) - _log_odds(clue.threshold)
    return 1 / (1 + math.exp(-over - _log_odds(threshold)))


def agreed_thing(
    left: Sequence[Candidate], candidates: Sequence[Candidate], clue: Grounding
) -> Candidate:
    """The candidate to point at. left: those that the chooser has left.

    The first of these that exists: one of `left` under CLUE's box; the surest of `left`, unless
    CLUE is SURE; any candidate under CLUE's box; CLUE's own box.
    """
    meant = [c for c in left if c.box.iou(clue.box) >= SAME_BOX]
    if meant or (left and clue.score < SURE):
        return max(meant or left, key=lambda c: c.score)
    seen = [c for c in candidates if c.box.iou(clue.box) >= SAME_BOX]
    own = Candidate(clue.box, clue.label, clue.score)
    return max(seen, key=lambda c: c.box.iou(clue.box), default=own)


def _log_odds(probability: float) -> float:
    return log_odds(min(max(probability, _CERTAIN), 1 - _CERTAIN))
