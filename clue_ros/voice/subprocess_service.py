# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A worker process that is killed when it hangs and started again when it is next needed.

Speech engines hang, crash, and hold Python's lock (the GIL) for seconds, so each one runs in a
process of its own: `python -m clue_ros.voice.subprocess_service FD NAME`. Requests and answers are
Python objects, pickled onto a pipe that only the node and its own worker share.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from clue_ros.errors import VoiceError

DONE, REFUSED, FATAL = "done", "refused", "fatal"  # the worker's answers: (one of these, value)
Start = Callable[[Any], tuple[Any, Callable[[Any], Any]]]


class WorkerError(VoiceError):
    """The worker process has stopped, hangs, or cannot start; the message says which."""


class WorkerProcess:
    """A worker process, started when it is first needed and again after it failed. Thread-safe."""

    def __init__(self, name: str, start: Start, settings: Any, start_timeout: float) -> None:
        """Say what to run; `open` or the first `ask` starts it.

        Args:
            name: the worker's name in error messages and in the process list.
            start: a module-level function that the worker calls with `settings`. It returns what
                `open` is to return, and the function that answers each request.
            settings: a picklable object.
            start_timeout: seconds until a worker that is not ready is killed.
        """
        self._name, self._start, self._settings = name, start, settings
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection
        self._ready: Any = None
        self._lock = threading.Lock()

    def open(self) -> Any:
        """Start the worker now and return what it reported when it was ready.

        Raises:
            WorkerError: it did not get ready; the message is the reason it gave.
        """
        with self._lock:
            self._ensure_started()
            return self._ready

    def ask(self, request: Any, timeout: float) -> Any:
        """Send a picklable request and return the answer.

        Raises:
            WorkerError: no answer within `timeout` seconds, or the worker has stopped. It has been
                killed, and the next request starts a new one.
            VoiceError: the worker could not do this and goes on.
        """
        with self._lock:
            self._ensure_started()
            return self._exchange(request, timeout)

    def close(self) -> None:
        """End the worker; a later request starts one again."""
        while not self._lock.acquire(timeout=0.05):  # a request is under way, and may hang
            process = self._process
            if process is not None:
                process.kill()
        try:
            self._discard()
        finally:
            self._lock.release()

    def _ensure_started(self) -> None:
        if self._process is not None:
            return
        self._pipe, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(descriptor), self._name],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._ready = self._exchange((self._start, self._settings), self._start_timeout)

    def _exchange(self, request: Any, timeout: float) -> Any:
        try:
            self._pipe.send(request)
            if self._pipe.poll(timeout):
                outcome, value = self._pipe.recv()
            else:
                outcome, value = FATAL, f"{self._name} said nothing for {timeout:g} s"
        except (OSError, EOFError):
            status = self._discard()
            raise WorkerError(f"{self._name} has stopped (exit status {status})") from None
        if outcome == FATAL:
            self._discard()
            raise WorkerError(value)
        if outcome == REFUSED:
            raise VoiceError(value)
        return value

    def _discard(self) -> int | None:
        """Kill the worker if there is one, and return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        self._pipe.close()
        return process.wait()


def main(descriptor: int) -> int:
    """Be the worker: get ready, then answer requests until the pipe is closed."""
    pipe = Connection(descriptor)
    try:
        start, settings = pipe.recv()
        ready, answer = start(settings)
    except Exception as error:  # noqa: BLE001 - engines raise anything
        pipe.send((FATAL, _reason(error)))
        return 1
    pipe.send((DONE, ready))
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return 0
        try:
            pipe.send((DONE, answer(request)))
        except Exception as error:  # noqa: BLE001 - as above; the worker goes on
            pipe.send((REFUSED, _reason(error)))


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, VoiceError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
