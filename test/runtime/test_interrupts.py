"""Ctrl-C and SIGTERM in the seconds in which a program imports: it ends at once, without a word."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ros_helpers
from ros_helpers import ROOT, isolate, wait_until

SOON = 10.0  # seconds that a busy machine may take for what is done in a tenth of one


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=isolate(),
        cwd=ROOT,
        # As from a terminal: what a shell started in the background ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def handles(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Return whether the process has a handler of its own for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def has_loaded(process: subprocess.Popen[str], library: str) -> bool:
    """Return whether the process has a library in its memory."""
    return library in Path(f"/proc/{process.pid}/maps").read_text()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send the signal; return the exit status and what was printed."""
    process.send_signal(number)
    try:
        output, _ = process.communicate(timeout=SOON)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"it did not end: {output}")
    return process.returncode, output


@pytest.mark.parametrize(
    ("program", "number", "delay"),
    [
        ("perception", signal.SIGINT, 0.0),
        ("perception", signal.SIGTERM, 0.2),
        ("perception", signal.SIGINT, 0.6),
        ("speech", signal.SIGTERM, 0.0),
        ("speech", signal.SIGINT, 0.4),
    ],
)
def test_a_node_that_still_imports_ends_at_once(
    program: str, number: signal.Signals, delay: float
) -> None:
    ros_helpers.need_ros()
    keep = ["--keep"] if program == "perception" else []  # imports in the second process
    process = start("-m", "clue_ros.nodes.executables", program, *keep)
    wait_until(lambda: handles(process, signal.SIGTERM), "its first line of code")
    time.sleep(delay)
    status, output = end(process, number)
    # on a quick machine it may have begun to run, and to say so
    rest = [line for line in output.splitlines() if not line.startswith("[INFO]")]
    assert (status, rest) == (0, []), output


@pytest.mark.parametrize("library", ["multiarray_umath", "libopenvino.so"])
def test_clue_that_still_imports_ends_at_once(library: str) -> None:
    process = start("-m", "clue_ros.cli", "ground", "demo/mugs.png", "pick up the mug")
    wait_until(lambda: has_loaded(process, library), f"{library} to be loaded")
    assert end(process, signal.SIGINT) == (130, "clue: interrupted\n")


def test_a_background_job_keeps_ignoring_ctrl_c() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from clue_ros.cli import main; main(['--version'])\n"
    code += "os.kill(os.getpid(), signal.SIGINT); print('goes on')"
    output, _ = start("-c", code).communicate(timeout=SOON)
    assert output.endswith("goes on\n")
