# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Keeps a node alive: a small process that forks the node, and forks it again after a crash.

The supervisor imports nothing that the node needs, so that it stays at some megabytes; the next
node imports it all again, which takes a second. A node that exits by itself ends the supervisor
with its exit status; then, or if the supervisor dies, the launch file starts again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from clue_ros.interrupts import starting

# Seconds before the next start; twice as many after each life shorter than SHORT_LIFE.
PAUSE, LONGEST_PAUSE, SHORT_LIFE = 0.1, 10.0, 10.0
_STOPS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def supervised(pid: int) -> int:
    """Return the process id of the node of the supervisor `pid`; 0 when there is none just now."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0
    return 0


class Supervisor:
    """Forks `node` until it exits by itself or the supervisor gets SIGINT or SIGTERM."""

    def __init__(self, name: str, node: Callable[[], int]) -> None:
        self._name, self._node = name, node
        self._child = 0
        self._stopping = False

    def run(self) -> int:
        """Return the node's exit status; 128 + the signal that ended it after a stop."""
        for number in _STOPS:
            signal.signal(number, self._stop)
        pause = PAUSE
        while True:
            began = time.monotonic()
            self._fork()
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            self._child = 0
            if status >= 0 or self._stopping:
                return status if status >= 0 else 128 - status
            if time.monotonic() - began > SHORT_LIFE:
                pause = PAUSE
            print(
                f"{self._name}: ended by signal {-status}, started again in {pause:g} s",
                file=sys.stderr,
                flush=True,
            )
            end = time.monotonic() + pause
            while not self._stopping and time.monotonic() < end:
                time.sleep(0.05)
            pause = min(2 * pause, LONGEST_PAUSE)
            if self._stopping:
                return 0

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        if self._child:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self._child, number)

    def _fork(self) -> None:
        # Signals are blocked until both processes handle them in their own way.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        supervisor = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._run_node(supervisor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if self._stopping:  # the signal came before the fork
            os.kill(self._child, signal.SIGTERM)

    def _run_node(self, supervisor: int) -> None:
        """Run the node in the forked process, which ends here."""
        starting()
        # The node must not outlive a killed supervisor: the next one starts a node of this name.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        status = 1
        try:
            status = self._node()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:  # noqa: BLE001 - printed, as at an interpreter's end
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not exit(): its handlers join library threads that exist only in the supervisor, and
            # crash. The node has closed what it opened.
            os._exit(status)
