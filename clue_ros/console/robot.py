# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The requests of the operator's page to a robot, and the plain data between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box

State = Literal["inactive", "idle", "looking", "thinking", "waiting", "ended", "lost"]
"""As clue_msgs/DialogueState has them; lost: perception does not run, or no message comes."""


@dataclass(frozen=True)
class Status:
    """The robot's state.

    error: why the last dialogue ended, or why perception is not active: the name of a code of
    clue_msgs ("MAX_TURNS"), or empty. message: the problem and the remedy. seconds_left: until an
    open question times out, None without one.
    """

    state: State
    dialogue_id: str = ""
    error: str = ""
    message: str = ""
    seconds_left: float | None = None


@dataclass(frozen=True)
class ShownObject:
    """An object on the page: a candidate of a question, or the grounding.

    box: pixels of the image that it was found in. score: 0..1, NaN for none. position: x, y, z in
    metres in the camera's optical frame, None where it is not known; then no_pose_reason says why.
    """

    box: Box
    label: str = ""
    score: float = math.nan
    position: tuple[float, float, float] | None = None
    frame_id: str = ""
    no_pose_reason: str = ""


@dataclass(frozen=True)
class Option:
    """A setting that the page can change.

    choices: what it may be; empty for a text, or for a number from minimum to maximum.
    """

    name: str
    value: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Diagnostics:
    """The health of the nodes.

    level: "ok", "warn", "error" or "stale". rows: (name, value) as text, such as ("model",
    "household"). latency: milliseconds of the last reply by stage, such as {"ambiguity": 94.0}.
    """

    level: str
    message: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    latency: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class TaughtThing:
    """An object that a person showed and named.

    names: the first is its name, the others are further ones. examples: how many were shown.
    thumbnail: the last one, a JPEG; may be empty.
    """

    names: tuple[str, ...]
    examples: int
    thumbnail: bytes = b""


class Robot(Protocol):
    """A robot for the page. Calls may block for seconds and come from several threads.

    Each raises ClueError for an impossible request; the page shows its message.
    """

    def say(self, text: str) -> None:
        """A person said this: a request, or the answer to the open question.

        The robot shows the words that it took (`LivePage.show_turn`).
        """

    def choose(self, candidate: int) -> None:
        """A person chose this candidate of the open question, counted from 0."""

    def stop(self) -> None:
        """End the dialogue now, whatever it is doing."""

    def use_photograph(self, image: npt.NDArray[np.uint8] | None, name: str = "") -> None:
        """Look at this picture, uint8 RGB (H, W, 3), in place of the camera's; None: the camera.

        The robot shows it (`LivePage.show_frame`); the page shows the name by itself.
        """

    def set_option(self, name: str, value: str) -> None:
        """Change a setting that was shown as an `Option`."""

    def teach(self, image: npt.NDArray[np.uint8], box: Box, name: str) -> None:
        """Learn that the box, in pixels of this picture, uint8 RGB (H, W, 3), shows a `name`."""

    def forget(self, name: str) -> None:
        """Forget a taught object by one of its names."""

    def list_taught(self) -> None:
        """Show the taught objects (`LivePage.show_taught`)."""

    def hear(self, samples: npt.NDArray[np.int16], sample_rate: int) -> None:
        """Sound from the page's microphone: one channel of int16 samples, `sample_rate` in Hz.

        In chunks of 0.1 s, in order, while a person holds the button, and 1.5 s of silence after
        it. Of several pages' microphones the chunks alternate.
        """
