# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What the live page shows: kept for pages that join late, and sent to all that are open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clue_ros.console.robot import Diagnostics, Option, ShownObject, Status
from clue_ros.dialogue.types import Speaker


class LivePage:
    """The state of the live page. Its methods never block and may be called from any thread."""

    def show_frame(
        self, image: npt.NDArray[np.uint8] | bytes, size: tuple[int, int] | None = None
    ) -> None:
        """The newest picture: uint8 RGB (H, W, 3), or the bytes of a JPEG with its (W, H).

        Only the newest is kept: one that comes while the page is busy replaces the one before.
        """

    def wants_frame(self) -> bool:
        """Whether a page is open and ready for the next picture; else it need not be converted."""
        return False

    def show_status(self, status: Status) -> None:
        """What the robot is doing now."""

    def show_turn(self, speaker: Speaker, text: str, stamp: float) -> None:
        """A line of the chat; stamp in seconds since the epoch."""

    def show_question(
        self, text: str, candidates: Sequence[ShownObject], suggested_answers: Sequence[str]
    ) -> None:
        """The open question; its candidates are numbered and coloured in the given order."""

    def show_grounding(self, found: ShownObject | None) -> None:
        """The object that the last dialogue ended with; None removes it, as a new one begins."""

    def show_attention(self, attention: npt.NDArray[np.float32] | None) -> None:
        """The attention map, float32 (rows, columns) in 0..1 over the whole image; None: none."""

    def show_options(self, options: Sequence[Option]) -> None:
        """The settings, with their values now."""

    def show_diagnostics(self, diagnostics: Diagnostics) -> None:
        """The health of the nodes."""

    def show_notice(self, text: str) -> None:
        """Something that the operator should know now, such as why a command was refused."""
