"""A child process that is asked in lines of JSON, so that what hangs or holds the GIL is not us.

Speech engines do both. A request is one line of JSON whose key "bytes" says how many raw bytes
follow; the answer is one line. A child first writes {"ready": ...} or {"fatal": REASON}.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from clue_ros.errors import VoiceError

Message = dict[str, Any]


class ChildError(VoiceError):
    """The child has ended, hangs, or cannot start; the message says which."""


class Child:
    """One child process: `python -m MODULE ARGUMENTS`. Use from one thread at a time."""

    def __init__(self, module: str, arguments: Sequence[str], start_timeout: float) -> None:
        """Start it; `get_ready` waits for it."""
        self._start_timeout = start_timeout
        self._name = module.rsplit(".", 1)[-1]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, name=self._name, daemon=True).start()
        self.ready: Message = {}  # what it said when it was

    def get_ready(self) -> None:
        """Wait until it is ready.

        Raises:
            ChildError: it did not get ready; the message is the reason it gave.
        """
        self.ready = self._answer(self._start_timeout)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def ask(self, request: Message, payload: bytes = b"", *, timeout: float) -> Message:
        """Send a request and return the answer.

        Raises:
            ChildError: no answer within `timeout` seconds, or the child has ended. It is of no more
                use then and has been killed.
            VoiceError: the child answered that it could not do this; it goes on.
        """
        line = json.dumps({**request, "bytes": len(payload)}).encode() + b"\n"
        pipe = self._process.stdin
        assert pipe is not None
        # A child that hangs does not read: a long payload would block here, so it goes by thread.
        writer = threading.Thread(target=_write, args=(pipe, line + payload), daemon=True)
        writer.start()
        return self._answer(timeout)

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _answer(self, timeout: float) -> Message:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise ChildError(f"{self._name} said nothing for {timeout:g} s") from None
        if not line:
            self.close()
            raise ChildError(f"{self._name} has stopped (exit status {self._process.returncode})")
        answer: Message = json.loads(line)
        if "fatal" in answer:
            self.close()
            raise ChildError(str(answer["fatal"]))
        if "error" in answer:
            raise VoiceError(str(answer["error"]))
        return answer


class Service:
    """A child that is started when it is needed, and again after it failed. Thread-safe."""

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._child: Child | None = None
        self._lock = threading.Lock()
        self.restarts = 0

    def open(self) -> Message:
        """Start it now and return what it said when it was ready. Raises ChildError."""
        with self._lock:
            return self._running().ready

    def ask(self, request: Message, payload: bytes = b"", *, timeout: float) -> Message:
        """See `Child.ask`; after a ChildError the next request starts a new child."""
        with self._lock:
            child = self._running()
            try:
                return child.ask(request, payload, timeout=timeout)
            except ChildError:
                self._child = None
                self.restarts += 1
                raise

    def close(self) -> None:
        """End the child; a later request starts one again."""
        child = self._child  # without the lock: a request may be under way, and hang
        if child is not None:
            child.close()
        with self._lock:
            self._child = None

    def _running(self) -> Child:
        if self._child is None:
            child = self._child = self._start()  # before it is ready: `close` must reach it
            try:
                child.get_ready()
            except ChildError:
                self._child = None
                raise
        return self._child


def serve(start: Callable[[], tuple[Message, Callable[[Message, bytes], Message]]]) -> int:
    """Be the child: get ready, then answer requests until stdin is closed.

    `start` returns the ready message and what answers a request; a VoiceError of the latter becomes
    the answer, one of the former, or anything else it raises, ends the child with that as reason.
    """
    # Libraries print to stdout: it becomes stderr for them, and the answers keep the real one.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        requests = sys.stdin.buffer
        try:
            ready, handle = start()
        except Exception as error:  # noqa: BLE001 - engines raise whatever they like
            kind = "" if isinstance(error, VoiceError) else f"{type(error).__name__}: "
            _send(out, {"fatal": kind + " ".join(str(error).split())})
            return 1
        _send(out, ready)
        for line in requests:
            request = json.loads(line)
            payload = requests.read(request["bytes"])
            try:
                answer = handle(request, payload)
            except VoiceError as error:
                answer = {"error": str(error)}
            except Exception as error:  # noqa: BLE001 - as above; the child goes on
                answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
            _send(out, answer)
    return 0


def _send(out: BinaryIO, message: Message) -> None:
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def _write(pipe: Any, data: bytes) -> None:
    try:
        pipe.write(data)
        pipe.flush()
    except (OSError, ValueError):
        pass  # the child has ended; who waits for its answer learns it
