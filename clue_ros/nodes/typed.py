"""The person's words, typed: each line of stdin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TextIO


class TypedLines:
    """Reads lines in a thread of its own.

    `say(line)` gets each one that is not empty, `over(why)` is called when there are no more.
    """

    def __init__(
        self,
        lines: TextIO | None,
        prompt: str,
        say: Callable[[str], object],
        over: Callable[[str], object],
    ) -> None:
        self._lines, self._prompt, self._say, self._over = lines, prompt, say, over
        self._terminal = lines is not None and not lines.closed and lines.isatty()
        threading.Thread(target=self._read, name="typed lines", daemon=True).start()

    def _read(self) -> None:
        if self._lines is None or self._lines.closed:
            self._over("stdin is closed")
            return
        try:
            while True:
                if self._terminal:
                    print(self._prompt, end="", flush=True)
                line = self._lines.readline()
                if not line:
                    break
                if line.strip():
                    self._say(line.rstrip("\r\n"))
        except (OSError, ValueError, UnicodeError) as error:
            self._over(f"stdin cannot be read ({error})")
            return
        self._over("stdin has ended")
