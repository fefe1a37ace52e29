"""`clue demo-page`: the page in one command, on a model with random weights."""

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from console_helpers import heed_ctrl_c, until
from PIL import Image
from websockets.sync.client import connect

from clue_ros.cli import main
from clue_ros.console.demo_page import demo_pictures
from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.dialogue.types import Dialogue, Grounding, Question
from clue_ros.errors import ClueError, ModelError
from clue_ros.grounders import load_grounder


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    paths = [tmp_path / "one.png", tmp_path / "two.jpg"]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(path)
    return paths


def test_the_demos_photographs_come_before_its_simulated_scenes() -> None:
    kinds = [path.suffix for path in demo_pictures()]
    assert set(kinds) == {".jpg", ".png"}
    assert kinds == sorted(kinds)


def test_one_command_serves_the_page_and_answers(random_model: Path, pictures: list[Path]) -> None:
    command = [sys.executable, "-m", "clue_ros.cli", "demo-page", *map(str, pictures)]
    command += ["--port", "0", "--model", str(random_model), "--threshold", "1"]
    command += ["--policy", "detector"]  # never asks
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c)
    try:
        assert process.stdout is not None
        address = re.search(r"http://localhost:\d+/", process.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=10) as page:
            assert b"<title>Live" in page.read()
        assert "is loaded" in process.stdout.readline()
        socket = address[0].replace("http", "ws") + "ws/live"
        with connect(socket, proxy=None, max_size=None) as live:
            live.send(json.dumps({"type": "say", "text": "pick up the block"}))
            until(lambda: is_found(live.recv(timeout=20)), 30.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()


def is_found(message: str | bytes) -> bool:
    if isinstance(message, bytes):
        return False
    part = json.loads(message)
    return bool(part["type"] == "grounding" and part["object"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["missing.png"], "missing.png does not exist"),
        (["FOLDER"], "is a folder"),
        (["BROKEN"], "not a picture"),
        (["ONE", "--threshold", "2"], "between 0 and 1"),
        (["ONE", "--port", "70000"], "65535"),
        (["ONE", "--token", "two words"], "the token must be"),
        (["ONE", "--host", "no.such.host.invalid"], "no address"),
        (["ONE", "--port", "0", "--model", "FOLDER"], "has no config.json"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    words: list[str], reason: str, pictures: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = pictures[0].with_name("broken.png")
    broken.write_text("no picture")
    names = {"ONE": pictures[0], "FOLDER": pictures[0].parent, "BROKEN": broken}
    assert main(["demo-page", *(str(names.get(word, word)) for word in words)]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert len(error.splitlines()) == 1


class SlowGrounder:
    """Wraps a model: `reply` waits for `go`, or fails with `error`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.go = threading.Event()
        self.go.set()
        self.replying = threading.Event()
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """As the model, once it may."""
        self.replying.set()
        assert self.go.wait(10.0)
        if self.error is not None:
            raise self.error
        reply: Question | Grounding = self.inner.reply(
            view, dialogue, force_grounding=force_grounding
        )
        return reply


class Watcher:
    """The newest parts of a live page, as an open page gets them."""

    def __init__(self, page: LivePage) -> None:
        self._viewer = page.join(lambda: None)
        self.parts: dict[str, Any] = {}
        self.turns: list[str] = []
        self.notices: list[str] = []

    def look(self) -> dict[str, Any]:
        """Take what is new, and return the newest of each part."""
        for message in self._viewer.take():
            if isinstance(message, bytes):
                continue
            part = json.loads(message)
            self.parts[part["type"]] = part
            if part["type"] == "turn":
                self.turns.append(f"{part['speaker']}: {part['text']}")
            if part["type"] == "notice":
                self.notices.append(part["text"])
        return self.parts

    def state(self) -> str:
        """The robot's state now."""
        return str(self.look()["status"]["state"])


@contextmanager
def started(model: Path, pictures: list[Path]) -> Iterator[tuple[PictureRobot, Watcher, Any]]:
    grounders: list[SlowGrounder] = []

    def load(name: str) -> Any:
        if name == "missing":
            raise ModelError("there is no such model")
        grounders.append(SlowGrounder(load_grounder(name)))
        return grounders[-1]

    page = LivePage()
    robot = PictureRobot(page, {p.name: p for p in pictures}, load, [str(model), "missing"])
    watcher = Watcher(page)
    robot.start()
    try:
        robot.wait_until_loaded()
        yield robot, watcher, grounders[0]
    finally:
        robot.close()


def test_a_stop_ends_a_dialogue_while_the_model_thinks(
    random_model: Path, pictures: list[Path]
) -> None:
    with started(random_model, pictures) as (robot, watcher, grounder):
        grounder.go.clear()
        robot.say("pick up the block")
        assert grounder.replying.wait(10.0)
        with pytest.raises(ClueError, match="still thinks"):
            robot.say("the red block")
        robot.stop()
        assert watcher.state() == "ended"
        robot.stop()
        grounder.go.set()
        robot.set_option("picture", "two.jpg")
        assert watcher.state() == "idle"
        assert watcher.turns == ["user: pick up the block", "robot: All right, I stop."]
        robot.say("stop")
        assert watcher.look() is not None
        assert watcher.turns[-1] == "robot: All right."
        robot.say("yes")  # to no question: nobody is answered
        assert watcher.look() is not None
        assert watcher.turns[-1] == "user: yes"


def test_an_error_of_the_model_ends_the_dialogue_and_the_next_one_works(
    random_model: Path, pictures: list[Path]
) -> None:
    with started(random_model, pictures) as (robot, watcher, grounder):
        grounder.error = MemoryError("no memory")
        robot.say("pick up the block")
        until(lambda: watcher.state() == "ended")
        assert watcher.parts["status"]["error"] == "MODEL_ERROR"
        grounder.error = None
        robot.say("pick up the block")
        until(lambda: watcher.state() in ("waiting", "ended"))
        assert watcher.parts["status"]["error"] == ""


def test_settings_that_cannot_be_are_refused_and_the_old_model_stays(
    random_model: Path, pictures: list[Path]
) -> None:
    with started(random_model, pictures) as (robot, watcher, _):
        for name, value, reason in (
            ("picture", "/etc/passwd", "no picture"),
            ("model", "/tmp", "not offered"),
            ("volume", "11", "no setting"),
        ):
            with pytest.raises(ClueError, match=reason):
                robot.set_option(name, value)
        robot.set_option("model", "missing")
        until(lambda: watcher.look() and watcher.notices)
        assert "no such model" in watcher.notices[0]
        until(lambda: watcher.state() == "idle")
        robot.say("pick up the block")
        until(lambda: watcher.state() in ("waiting", "ended"))


def test_a_name_of_two_pictures_is_told_apart_by_their_folders(
    random_model: Path, tmp_path: Path, pictures: list[Path]
) -> None:
    from clue_ros.console.demo_page import by_name

    other = tmp_path / "other" / "one.png"
    other.parent.mkdir()
    other.write_bytes(pictures[0].read_bytes())
    assert list(by_name([*pictures, other])) == [str(pictures[0]), "two.jpg", str(other)]
