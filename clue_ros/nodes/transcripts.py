"""What was heard, as a message."""

from __future__ import annotations

import math

from builtin_interfaces.msg import Time
from clue_msgs.msg import Transcript

from clue_ros.voice.engines import EngineSettings
from clue_ros.voice.sphinx import Heard


def time_msg(seconds: float) -> Time:
    """Return seconds (>= 0) as a Time."""
    whole = math.floor(seconds)
    return Time(sec=int(whole), nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def transcript_msg(
    settings: EngineSettings, heard: Heard, status: int, start: float, text: str | None = None
) -> Transcript:
    """Return a transcript of a phrase that began at `start`; `text` replaces what was heard."""
    message = Transcript(
        text=heard.text if text is None else text,
        confidence=heard.confidence,
        language=settings.language,
        is_final=status != Transcript.PARTIAL,
        status=status,
        unaided_text=heard.unaided,
        engine=settings.engine,
    )
    message.header.stamp = time_msg(start)
    message.header.frame_id = "microphone"
    return message


def keyboard(text: str, language: str, now: float) -> Transcript:
    """Return a typed line as a transcript."""
    message = Transcript(
        text=text,
        confidence=1.0,
        language=language,
        is_final=True,
        status=Transcript.ACCEPTED,
        engine="keyboard",
    )
    message.header.stamp = time_msg(now)
    return message
