# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The protocol of whatever asks and points: look at an image, judge a sentence, reply.

`clue_ros.engine.Clue` and `clue_ros.wrapper.grounder.Wrapper` implement it. The nodes, the command
line, the evaluation and the recorder know nothing else of them.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, Question

ViewT = TypeVar("ViewT")


class Replier(Protocol):
    """The part that holds a conversation (`clue_ros.dialogue.conversation.converse`)."""

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask, say that there is no such thing (NotFound), or point; if forced, point."""


class Judge(Protocol[ViewT]):
    """The part that judges requests. A view is what `look` returns, for the same grounder."""

    def look(self, image: npt.NDArray[np.uint8]) -> ViewT:
        """Look once at uint8 RGB (H, W, 3), for all dialogues about it. Raises BadImageError."""

    def ambiguity(self, view: ViewT, expression: str | Dialogue) -> AmbiguityEstimate:
        """Judge whether a sentence, or a dialogue so far, names exactly one thing."""


class Grounder(Judge[ViewT], Replier, Protocol[ViewT]):
    """Asks and points."""

    @property
    def policy(self) -> str:
        """The policy that decides between a question and a box, such as "both" or "wrapper"."""


class RobotGrounder(Grounder[ViewT], Protocol[ViewT]):
    """A grounder for nodes and the command line: name, device, threshold, masks, words."""

    @property
    def memory(self) -> Any:
        """The objects that people showed and named, a `clue_ros.model.word_memory.WordMemory`."""

    def teach(
        self, view: ViewT, box: Box, name: str, *, who: str = "", instead: bool = False
    ) -> Any:
        """Learn what the thing in a box (pixels) is called; the `Word` as it is known now."""

    @property
    def threshold(self) -> float:
        """Probability of ambiguity from which it asks, 0..1; set it to None for the model's own."""

    @threshold.setter
    def threshold(self, threshold: float | None) -> None: ...

    @property
    def model_name(self) -> str:
        """The name of the loaded model."""

    @property
    def device(self) -> str:
        """The device, such as "cpu" or "cuda:0"."""

    @property
    def dtype(self) -> str:
        """The weights' type, such as "float32"."""

    def memory_bytes(self) -> int:
        """Bytes of weights."""

    def warm_up(self) -> None:
        """Make the first request as quick as the second."""

    def mask(self, view: ViewT, grounding: Grounding) -> npt.NDArray[np.bool_]:
        """The pixels of a grounding's object, bool (H, W)."""

    def peak_masks(
        self, view: ViewT, estimate: AmbiguityEstimate
    ) -> tuple[npt.NDArray[np.bool_], ...]:
        """The pixels of the object under each of an estimate's peaks, bool (H, W)."""
