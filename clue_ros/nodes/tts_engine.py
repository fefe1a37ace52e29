"""The child process of the tts node: one pyttsx3 engine, one WAV at a time, a separate player.

It is a process of its own because pyttsx3's engine hangs beside a second one or a second thread.
Protocol, a line of JSON each: in {"text": ...}; out {"ready": PLAYER}, {"done": true}, {"done":
false, "reason": REASON} when a text gave no sound, or {"error": REASON} (and it ends).
Run by `clue_ros.nodes.voice`: python -m clue_ros.nodes.tts_engine VOICE RATE VOLUME
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import wave
from pathlib import Path
from typing import Any

PLAYERS = (["pw-play"], ["paplay"], ["aplay", "-q"])
ATTEMPTS = 3  # at making a WAV with sound in it
FINISH_TIMEOUT = 30.0  # seconds for pyttsx3 to say that a text is finished


def send(**fields: object) -> None:
    """Write one line to the parent."""
    print(json.dumps(fields), flush=True)


def find_player(folder: Path) -> list[str] | str:
    """Return the command that plays a WAV here, or why there is none.

    Each is tried on 50 ms of silence.
    """
    silence = folder / "silence.wav"
    with wave.open(str(silence), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(22050)
        file.writeframes(bytes(2 * 22050 // 20))
    found = [player for player in PLAYERS if shutil.which(player[0])]
    if not found:
        return "no sound player is installed (apt-get install alsa-utils)"
    for player in found:
        try:
            done = subprocess.run([*player, str(silence)], capture_output=True, timeout=5)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            return player
    return f"no sound device works (tried {', '.join(player[0] for player in found)})"


def start_engine(voice: str, rate: str, volume: str) -> Any:
    """Return a warmed-up engine. Raises whatever pyttsx3 raises."""
    import pyttsx3

    engine = pyttsx3.init()
    engine.setProperty("rate", int(rate))
    engine.setProperty("volume", float(volume))
    if voice:
        known = [found.id for found in engine.getProperty("voices")]
        if voice not in known:  # pyttsx3 would ignore it in silence
            raise ValueError(f"no voice {voice!r}; there are {', '.join(known[:20])}")
        engine.setProperty("voice", voice)
    engine.runAndWait()  # the first one returns before synthesis ends
    return engine


class Synthesis:
    """Makes WAV files with one engine, and knows when each is really finished.

    `runAndWait` alone does not: the driver takes espeak for playing while its settings are still
    being applied, and then cancels the text that comes next, which leaves a WAV with no sound.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._finished = threading.Event()
        engine.connect("finished-utterance", lambda **_: self._finished.set())

    def write(self, text: str, wav: Path) -> None:
        """Write `text` as speech into `wav`. Raises RuntimeError when no sound came of it."""
        for _ in range(ATTEMPTS):
            self._finished.clear()
            wav.unlink(missing_ok=True)
            self._engine.save_to_file(text, str(wav))
            self._engine.runAndWait()
            if self._finished.wait(FINISH_TIMEOUT) and has_sound(wav):
                return
        raise RuntimeError(f"pyttsx3 made no sound of a text {ATTEMPTS} times")


def has_sound(wav: Path) -> bool:
    """Tell if the file is there and has at least one frame."""
    try:
        with wave.open(str(wav), "rb") as file:
            return file.getnframes() > 0
    except (OSError, EOFError, wave.Error):
        return False


def main(arguments: list[str]) -> int:
    """Speak each line of stdin until it is closed."""
    with tempfile.TemporaryDirectory(prefix="clue_tts_") as name:
        folder = Path(name)
        player = find_player(folder)
        if isinstance(player, str):
            send(error=player)
            return 1
        try:
            engine = start_engine(*arguments)
        except Exception as error:  # noqa: BLE001 - drivers raise OSError, RuntimeError, KeyError, ...
            reason = " ".join(str(error).split())
            send(error=f"pyttsx3 does not work ({reason}); apt-get install espeak-ng libespeak-ng1")
            return 1
        send(ready=player[0])
        synthesis, wav = Synthesis(engine), folder / "text.wav"
        for line in sys.stdin:
            try:
                synthesis.write(json.loads(line)["text"], wav)
            except RuntimeError as error:
                send(done=False, reason=str(error))
                continue
            subprocess.run([*player, str(wav)], capture_output=True, check=False)
            send(done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
