# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors a person or a caller can act on.

Each has a stable `code` (the ROS interfaces use the same words) and a message of one line: what was
wrong, what to do.
"""

from __future__ import annotations


class ClueError(Exception):
    """Base of all errors that clue_ros raises on purpose."""

    code: str = "CLUE_ERROR"

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ClueWarning(UserWarning):
    """Something works in an unexpected way; the message says how."""


class EmptyExpressionError(ClueError):
    """The person said nothing."""

    code = "EMPTY_EXPRESSION"


class BadExpressionError(ClueError):
    """The text is too long, or holds no readable word."""

    code = "BAD_EXPRESSION"


class NothingWantedError(ClueError):
    """The person asks for nothing to be done: "stop", "don't touch the mug", "wait".

    is_chat: it is side talk, which nobody answers.
    """

    code = "CANCELED"

    def __init__(self, message: str, *, is_chat: bool = False) -> None:
        super().__init__(message)
        self.is_chat = is_chat


class BadImageError(ClueError):
    """The picture cannot be used: missing, broken, empty, too large or of the wrong kind."""

    code = "BAD_IMAGE"


class ModelError(ClueError):
    """The model cannot be loaded or does not fit its configuration."""

    code = "MODEL_ERROR"


class NoPoseError(ClueError):
    """The place of an object in space is unknown: no depth, or none that fits the image."""

    code = "NO_POSE"


# -------------------------------------------------------------------------------------------------
# Errors of sound and speech; messages are one line and say what to do.


class VoiceError(ClueError):
    """Something is missing or broken: an engine, a model, a sound device."""

    code = "VOICE_ERROR"


class BadAudioError(VoiceError):
    """A sound file or chunk cannot be used."""

    code = "BAD_AUDIO"


class BadCalibrationError(ClueError):
    """A camera's calibration file cannot be used; the message names the file."""

    code = "BAD_CALIBRATION"


# -------------------------------------------------------------------------------------------------
# Errors of teaching.


class BadNameError(ClueError):
    """The name of an object is empty, too long, or means another one."""

    code = "BAD_NAME"


class BadBoxError(ClueError):
    """The box around an object is empty, outside the image, or another object's."""

    code = "BAD_BOX"


class WordMemoryError(ClueError):
    """The folder of taught objects cannot be read or written, or belongs to another model."""

    code = "MEMORY_ERROR"


class UnknownNameError(ClueError):
    """Nothing of this name was taught."""

    code = "UNKNOWN_NAME"
