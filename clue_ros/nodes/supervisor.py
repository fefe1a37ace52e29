"""Keeps a node alive: a small process that forks it, again when a signal ends it.

Importing torch, transformers and peft takes seconds of CPU, each time that a process starts. The
keeper imports them once and computes nothing; the node is a fork of it, so that after `kill -9`, a
crash or the kernel's out-of-memory killer the next one begins with the model's loading. What the
node ends with by itself (an exit status) ends the keeper too: starting it again then is the launch
file's business, as is a keeper that was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from clue_ros import memory

# The classes of the backbone, which transformers imports when a model is loaded, and ours.
MODEL_CODE = (
    "clue_ros.model.checkpoint",
    "clue_ros.model.attention",
    "clue_ros.model.peaks",
    "clue_ros.model.location_tokens",
    "clue_ros.dialogue.words",
    "transformers.models.gemma2.modeling_gemma2",
    "transformers.models.siglip.modeling_siglip",
)
# Seconds before the next start; twice as many after each life shorter than SHORT_LIFE.
PAUSE, LONGEST_PAUSE, SHORT_LIFE = 0.1, 10.0, 10.0
_STOPS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def import_model_code() -> None:
    """Import what loading and running a model needs, and start no thread of it nor any GPU.

    A process that has initialised CUDA cannot be forked: with PYTORCH_NVML_BASED_CUDA_CHECK
    torch.cuda.is_available(), which libraries call while they are imported, does not.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for name in MODEL_CODE:
        importlib.import_module(name)


def kept_by(keeper: int) -> int:
    """Return the process id of the node that a keeper keeps; 0 when there is none just now."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        return int(children[0]) if children else 0
    return 0


class Keeper:
    """Forks `node` until it ends by itself or the keeper is told to stop (SIGINT, SIGTERM)."""

    def __init__(self, name: str, node: Callable[[], int]) -> None:
        self._name, self._node = name, node
        self._child = 0
        self._stopping = False

    def run(self) -> int:
        """Return the node's exit status; 128 + the signal that ended it after a stop."""
        # What the parent holds moves to where the collector of the child does not touch it: pages
        # that nobody writes stay shared.
        memory.freeze_garbage()
        for number in _STOPS:
            signal.signal(number, self._stop)
        pause = PAUSE
        while True:
            began = time.monotonic()
            status = os.waitstatus_to_exitcode(os.waitpid(self._fork(), 0)[1])
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
            self._wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if self._stopping:
                return 0

    def _wait(self, seconds: float) -> None:
        """Sleep, unless told to stop."""
        end = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < end:
            time.sleep(0.05)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        if self._child:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self._child, number)

    def _fork(self) -> int:
        # No signal between the fork and what each of the two does about signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        keeper = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._be_the_node(keeper)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if self._stopping:  # told so just before
            os.kill(self._child, signal.SIGTERM)
        return self._child

    def _be_the_node(self, keeper: int) -> None:
        """Run the node in the forked process, which ends here."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Two nodes of one name would answer once a killed keeper is started again.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        status = 1
        try:
            status = self._node()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:  # noqa: BLE001 - what an interpreter does with it at its end
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not through exit(): libraries' handlers there end threads that only the keeper has,
            # and crash. The node has closed what it opened.
            os._exit(status)
