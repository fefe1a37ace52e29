"""What can go wrong with sound and speech; messages are one line and say what to do."""

from __future__ import annotations

from clue_ros.errors import ClueError


class VoiceError(ClueError):
    """Something is missing or broken: an engine, a model, a sound device."""

    code = "VOICE_ERROR"


class BadAudioError(VoiceError):
    """A sound file or chunk cannot be used."""

    code = "BAD_AUDIO"
