"""The multi-turn guesser: a belief about the objects, carried from turn to turn (InViG-Base-MT).

At each turn it reads the image, the current text alone (the request, later the request with the
newest question and its answer), and its belief after the last turn:

    log b_t(o) = memory * log b_(t-1)(o) + evidence * log p(o | image, text_t) + constant

p is adapter B's distribution over the proposals: the softmax of the log-probabilities of their
location tokens (`box_scores`). The belief before the first turn is uniform. The paper trains a
separate model; here adapter B does the work, and the two numbers are fitted on other dialogues by
the likelihood of their targets after the last turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import (
    SAME_BOX,
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Question,
)
from clue_ros.lab.data.invig import InvigSample
from clue_ros.model.decoding import log_softmax

if TYPE_CHECKING:
    from clue_ros.engine import Clue

Evidence = npt.NDArray[np.float32]
"""(turns, objects): log p(o | image, text_t), each row of a distribution."""
_SPREAD = np.geomspace(0.02, 4, 40)  # values of both numbers that are tried


@dataclass(frozen=True)
class Belief:
    """memory: weight of the belief before. evidence: weight of a turn's evidence."""

    memory: float = 1.0
    evidence: float = 1.0

    def after(self, evidence: Evidence) -> npt.NDArray[np.float64]:
        """Log-probabilities of the objects after each turn, as `Evidence`."""
        logits, rows = np.zeros(evidence.shape[1]), []
        for row in evidence:
            logits = self.memory * logits + self.evidence * row
            rows.append(logits - np.logaddexp.reduce(logits))
        return np.array(rows)


def current_texts(dialogue: Dialogue) -> list[str]:
    """The context of each turn: the request, then the request with each exchange alone."""
    turns = dialogue.turns
    told = [Dialogue(dialogue.request, turns[n : n + 2]) for n in range(1, len(turns), 2)]
    return [Dialogue(dialogue.request).context(), *(part.context() for part in told)]


def evidence_of(scores: Sequence[npt.NDArray[Any]]) -> Evidence:
    """The evidence of turns whose proposals have these log-probabilities (n,), in nats."""
    return np.stack([log_softmax(np.asarray(row, np.float32)) for row in scores])


def fit_belief(told: Iterable[tuple[Evidence, npt.NDArray[np.bool_]]]) -> Belief:
    """Fit the belief that makes targets likeliest after the last turn.

    told: for each dialogue its evidence, and which objects are targets. Dialogues without a target
    among the objects do not count; if none counts, both numbers are 1.
    """
    pairs = [(evidence, right) for evidence, right in told if right.any() and not right.all()]
    if not pairs:
        return Belief()

    def likelihood(belief: Belief) -> float:
        ends = ((belief.after(evidence)[-1], right) for evidence, right in pairs)
        return float(sum(np.logaddexp.reduce(end[right]) for end, right in ends))

    memories = [0.0, *_SPREAD] if any(len(evidence) > 1 for evidence, _ in pairs) else [1.0]
    grid = (Belief(float(m), float(e)) for m in memories for e in _SPREAD)
    return max(grid, key=likelihood)


def targets_among(sample: InvigSample, boxes: Sequence[Box]) -> npt.NDArray[np.bool_]:
    """Return the proposals that are targets of a dialogue, by an IoU of 0.5: (n,)."""
    return np.array([sample.iou(box) >= SAME_BOX for box in boxes], dtype=bool)


class NewestTurn:
    """A robot that reads the request and the newest exchange alone."""

    def __init__(self, clue: Clue) -> None:
        self._clue, self.policy = clue, clue.policy

    def look(self, image: npt.NDArray[np.uint8]) -> Any:
        """See `Grounder.look`."""
        return self._clue.look(image)

    def ambiguity(self, view: Any, expression: str | Dialogue) -> AmbiguityEstimate:
        """See `Grounder.ambiguity`."""
        said = expression.newest() if isinstance(expression, Dialogue) else expression
        return self._clue.ambiguity(view, said)

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """See `Grounder.reply`."""
        return self._clue.reply(view, dialogue.newest(), force_grounding=force_grounding)
