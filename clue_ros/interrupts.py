# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM while a program still imports: it ends at once and prints no traceback.

Importing torch or rclpy takes seconds. A KeyboardInterrupt raised inside an import may be swallowed
there, or come out as another error.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # exit status of a command, as shells have it
_starting = False


def ends_at_once(
    program: Callable[[list[str] | None], int],
) -> Callable[[list[str] | None], int]:
    """Let SIGINT and SIGTERM end the program with status 0 until it calls `started`."""

    @functools.wraps(program)
    def run(args: list[str] | None = None) -> int:
        starting()
        return program(args)

    return run


def starting() -> None:
    """Let SIGINT and SIGTERM end this process with status 0, as a node that was told to stop."""
    global _starting
    if threading.current_thread() is not threading.main_thread():
        return
    _starting = True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def started() -> None:
    """Let SIGINT raise KeyboardInterrupt; rclpy, which is initialised now, handles both signals."""
    global _starting
    _starting = False


def _stop(number: int, _frame: FrameType | None) -> None:
    if _starting:
        os._exit(0)
    if number == signal.SIGINT:
        raise KeyboardInterrupt


def end_imports_at_once(message: str) -> None:
    """Let SIGINT end this process with a message and INTERRUPTED while the main thread imports.

    At any other time it raises KeyboardInterrupt, as without this. A process that ignores SIGINT,
    as a shell's background job does, keeps ignoring it.
    """
    ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if ignored or threading.current_thread() is not threading.main_thread():
        return

    def interrupt(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                os.write(2, f"{message}\n".encode())
                os._exit(INTERRUPTED)
            frame = frame.f_back
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
