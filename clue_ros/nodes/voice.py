"""A voice that speaks through a child process, or says why it cannot. No ROS in it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable

MAX_SPOKEN = 1000  # characters; pyttsx3 crashes on very long texts, and nobody listens that long
START_TIMEOUT = 20.0  # seconds for the engine to start; 60 for a text to be spoken
SPEAK_TIMEOUT = 60.0


class VoiceError(Exception):
    """The voice cannot speak; the message says why, in one line."""


class Voice:
    """Owns the child process (`clue_ros.nodes.tts_engine`). Use from one thread."""

    def __init__(self, voice: str, rate: int, volume: float) -> None:
        """Start the child and wait until it is ready.

        Raises:
            VoiceError: no sound device, no player, no pyttsx3, or no such voice.
        """
        command = [sys.executable, "-m", "clue_ros.nodes.tts_engine", voice, str(rate), str(volume)]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.player = str(self._expect("ready", START_TIMEOUT))

    def speak(self, text: str) -> bool:
        """Speak and return when it has been spoken; False when no sound came of the text.

        Raises:
            VoiceError: the child has ended or hangs; the voice is of no more use.
        """
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"text": text[:MAX_SPOKEN]}) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise VoiceError(f"the speech engine has stopped ({error})") from error
        return bool(self._expect("done", SPEAK_TIMEOUT))

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _expect(self, key: str, timeout: float) -> object:
        reason = f"the speech engine said nothing for {timeout:g} s"
        try:
            # Libraries print to stdout too: lines that are not ours are passed over.
            while (line := self._lines.get(timeout=timeout)) != "":
                message = _parse(line)
                if key in message:
                    return message[key]
                if "error" in message:
                    reason = str(message["error"])
                    break
            else:
                reason = "the speech engine has stopped"
        except queue.Empty:
            pass
        self.close()
        raise VoiceError(reason)


def _parse(line: str) -> dict[str, object]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


class Speaker:
    """Speaks texts one after another in a thread of its own; prints them where there is no voice.

    `show` gets every text as it is begun, `warn` gets the reason once when speaking does not work.
    """

    def __init__(
        self,
        start: Callable[[], Voice] | None,
        show: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._start, self._show, self._warn = start, show, warn
        self._thread = threading.Thread(target=self._run, name="voice", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Queue a text."""
        self._texts.put(text)

    def stop(self) -> None:
        """End after what is queued."""
        self._texts.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end."""
        self._thread.join(timeout)

    def _run(self) -> None:
        voice: Voice | None = None
        try:
            voice = self._start() if self._start is not None else None
        except (VoiceError, OSError) as error:
            self._warn(str(error))
        while (text := self._texts.get()) is not None:
            self._show(text)
            if voice is not None:
                try:
                    if not voice.speak(text):
                        self._warn("the engine made no sound of that text")
                except VoiceError as error:
                    self._warn(str(error))
                    voice = None
        if voice is not None:
            voice.close()
