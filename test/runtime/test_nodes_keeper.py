"""The keeper with nodes that are a few lines of Python, in real processes and with real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import ros_helpers

ros_helpers.need_ros()

from ros_helpers import ROOT, TIMEOUT, wait_until  # noqa: E402

from clue_ros.nodes.supervisor import kept_by  # noqa: E402

# argv: a file that gets a line at every start of the node, and what the node then does
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from clue_ros.nodes.supervisor import Keeper

def node():
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()}\\n")
    starts = len(Path(sys.argv[1]).read_text().split())
%s

sys.exit(Keeper("test", node).run())
"""


class Kept:
    """A keeper in a process of its own."""

    def __init__(self, folder: Path, body: str) -> None:
        self.starts_file = folder / "starts"
        self.starts_file.touch()
        script = SCRIPT % textwrap.indent(textwrap.dedent(body), "    ")
        self.popen = subprocess.Popen(
            [sys.executable, "-c", script, str(self.starts_file)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def starts(self, at_least: int) -> list[int]:
        """Return the process ids of the node's lives, once there are so many."""

        def read() -> list[int]:
            pids = [int(pid) for pid in self.starts_file.read_text().split()]
            return pids if len(pids) >= at_least else []

        pids: list[int] = wait_until(read, f"start {at_least}")
        return pids

    def end(self) -> tuple[int, str]:
        """Wait for the keeper's end: its exit status, and what it printed."""
        _, errors = self.popen.communicate(timeout=TIMEOUT)
        return self.popen.returncode, errors


FOREVER = "while True: time.sleep(0.05)"


@pytest.fixture
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    keeper = Kept(tmp_path, request.param)
    yield keeper
    keeper.popen.kill()
    keeper.popen.wait()


@pytest.mark.parametrize(
    ("kept", "status"),
    [("return 0", 0), ("return 2", 2), ("sys.exit(3)", 3), ("raise ValueError('no')", 1)],
    indirect=["kept"],
)
def test_a_node_that_ends_by_itself_ends_its_keeper_with_its_status(
    kept: Kept, status: int
) -> None:
    assert kept.end()[0] == status
    assert len(kept.starts(1)) == 1


@pytest.mark.parametrize(
    "kept", ["if starts < 4: os.kill(os.getpid(), signal.SIGSEGV)\nreturn 0"], indirect=True
)
def test_a_node_that_crashes_is_started_again_later_and_later(kept: Kept) -> None:
    status, errors = kept.end()
    assert status == 0
    assert len(set(kept.starts(4))) == 4
    for pause in ("0.1", "0.2", "0.4"):
        assert f"ended by signal {signal.SIGSEGV.value}, started again in {pause} s" in errors


@pytest.mark.parametrize("kept", [FOREVER], indirect=True)
def test_a_killed_node_comes_back_under_the_same_keeper(kept: Kept) -> None:
    first = kept.starts(1)[0]
    assert kept_by(kept.popen.pid) == first
    os.kill(first, signal.SIGKILL)
    again = kept.starts(2)[1]
    assert again != first
    assert kept.popen.poll() is None
    assert kept_by(kept.popen.pid) == again


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "kept",
    [
        """
        def stop(*_): raise SystemExit(0)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        with Path(sys.argv[1]).open("a") as file: file.write("0\\n")
        while True: time.sleep(0.05)
        """
    ],
    indirect=True,
)
def test_what_stops_the_keeper_is_passed_on_and_nothing_is_started_again(
    kept: Kept, number: signal.Signals
) -> None:
    pids = kept.starts(2)  # its handlers are there
    kept.popen.send_signal(number)
    assert kept.end()[0] == 0
    assert kept.starts(2) == pids


@pytest.mark.parametrize("kept", ["os.kill(os.getpid(), signal.SIGKILL)"], indirect=True)
def test_a_keeper_that_waits_to_start_a_node_again_can_be_stopped(kept: Kept) -> None:
    last = kept.starts(4)[3]  # the pauses are long by now
    # told before, it would end a node that has started and not yet killed itself: by SIGTERM
    wait_until(lambda: not Path(f"/proc/{last}").exists(), "the node's end")
    kept.popen.send_signal(signal.SIGTERM)
    assert kept.end()[0] in (0, 128 + signal.SIGKILL)


@pytest.mark.parametrize("kept", [FOREVER], indirect=True)
def test_a_killed_keeper_takes_its_node_along(kept: Kept) -> None:
    node = kept.starts(1)[0]
    kept.popen.kill()
    kept.popen.wait()
    wait_until(lambda: not Path(f"/proc/{node}").exists(), "the node's end")
