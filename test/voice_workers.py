"""Start functions of worker processes for tests: light imports, because each process does them."""

from __future__ import annotations

import os
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clue_ros.errors import VoiceError


def echo(how: str) -> tuple[str, Callable[[tuple[str, bytes]], dict[str, int]]]:
    """Answer with its process id and the length of what it got, or misbehave as it is told."""
    print("a library prints")
    if how == "broken":
        raise VoiceError("no model here")
    if how == "slow":
        time.sleep(600)

    def answer(request: tuple[str, bytes]) -> dict[str, int]:
        do, payload = request
        if do == "hang":
            time.sleep(60)
        if do == "die":
            os._exit(7)
        if do == "refuse":
            raise VoiceError("not that")
        return {"pid": os.getpid(), "got": len(payload)}

    return "ready", answer


def tones(_settings: Any) -> tuple[str, Callable[[tuple[str, Path]], None]]:
    """Write tones of 0.05 s for each character; the first text with "hang" in it hangs."""

    def answer(request: tuple[str, Path]) -> None:
        text, wav = request
        mark = wav.parent / "hung"
        if "hang" in text and not mark.exists():
            mark.touch()
            time.sleep(60)
        with wave.open(str(wav), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(b"\x01\x10" * 800 * len(text))

    return "tones", answer
