"""The supervisor, with nodes of a few lines of Python, real processes and real signals."""

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

from clue_ros.nodes.supervisor import supervised  # noqa: E402

# argv: a file that gets a line at every start of the node, and what the node then does
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from clue_ros.nodes.supervisor import Supervisor

def node():
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()}\\n")
    starts = len(Path(sys.argv[1]).read_text().split())
%s

sys.exit(Supervisor("test", node).run())
"""


class Supervised:
    """A supervisor in a process of its own."""

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
        """Wait for the supervisor's end: its exit status, and what it printed."""
        _, errors = self.popen.communicate(timeout=TIMEOUT)
        return self.popen.returncode, errors


def test_a_supervisor_imports_nothing_that_its_node_needs() -> None:
    script = (
        "import sys\n"
        "from clue_ros.nodes import executables, supervisor\n"
        "heavy = ('numpy', 'rclpy', 'cv2', 'openvino', 'torch', 'clue_msgs')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


FOREVER = "while True: time.sleep(0.05)"


@pytest.fixture
def lives(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Supervised]:
    supervisor = Supervised(tmp_path, request.param)
    yield supervisor
    supervisor.popen.kill()
    supervisor.popen.wait()


@pytest.mark.parametrize(
    ("lives", "status"),
    [("return 0", 0), ("return 2", 2), ("sys.exit(3)", 3), ("raise ValueError('no')", 1)],
    indirect=["lives"],
)
def test_a_node_that_ends_by_itself_ends_its_supervisor_with_its_status(
    lives: Supervised, status: int
) -> None:
    assert lives.end()[0] == status
    assert len(lives.starts(1)) == 1


@pytest.mark.parametrize(
    "lives", ["if starts < 4: os.kill(os.getpid(), signal.SIGSEGV)\nreturn 0"], indirect=True
)
def test_a_node_that_crashes_is_started_again_later_and_later(lives: Supervised) -> None:
    status, errors = lives.end()
    assert status == 0
    assert len(set(lives.starts(4))) == 4
    for pause in ("0.1", "0.2", "0.4"):
        assert f"ended by signal {signal.SIGSEGV.value}, started again in {pause} s" in errors


@pytest.mark.parametrize("lives", [FOREVER], indirect=True)
def test_a_killed_node_comes_back_under_the_same_keeper(lives: Supervised) -> None:
    first = lives.starts(1)[0]
    assert supervised(lives.popen.pid) == first
    os.kill(first, signal.SIGKILL)
    again = lives.starts(2)[1]
    assert again != first
    assert lives.popen.poll() is None
    assert supervised(lives.popen.pid) == again


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "lives",
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
def test_what_stops_the_supervisor_is_passed_on_and_nothing_is_started_again(
    lives: Supervised, number: signal.Signals
) -> None:
    pids = lives.starts(2)  # its handlers are there
    lives.popen.send_signal(number)
    assert lives.end()[0] == 0
    assert lives.starts(2) == pids


@pytest.mark.parametrize("lives", ["os.kill(os.getpid(), signal.SIGKILL)"], indirect=True)
def test_a_supervisor_that_waits_to_start_a_node_again_can_be_stopped(lives: Supervised) -> None:
    last = lives.starts(4)[3]  # the pauses are long by now
    # told before, it would end a node that has started and not yet killed itself: by SIGTERM
    wait_until(lambda: not Path(f"/proc/{last}").exists(), "the node's end")
    lives.popen.send_signal(signal.SIGTERM)
    assert lives.end()[0] in (0, 128 + signal.SIGKILL)


@pytest.mark.parametrize("lives", [FOREVER], indirect=True)
def test_a_killed_supervisor_takes_its_node_along(lives: Supervised) -> None:
    node = lives.starts(1)[0]
    lives.popen.kill()
    lives.popen.wait()
    wait_until(lambda: not Path(f"/proc/{node}").exists(), "the node's end")
