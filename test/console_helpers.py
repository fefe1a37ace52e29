"""A robot and requests for the tests of the web pages, without a browser."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.live import LivePage
from clue_ros.console.robot import ShownObject, Status, TaughtThing
from clue_ros.console.server import Server, create_app, serve
from clue_ros.dialogue.types import Box, clean_text
from clue_ros.errors import ClueError

OFFERS = ("the left one", "the right one")
LEFT, RIGHT = Box(20, 100, 100, 200), Box(220, 100, 300, 200)


class ScriptedRobot:
    """A robot that asks one fixed question about two boxes, and notes what it is told."""

    def __init__(self, page: LivePage) -> None:
        self.page = page
        self.said: list[str] = []
        self.chosen: list[int] = []
        self.stops = 0
        self.lessons: list[tuple[npt.NDArray[np.uint8], Box, str]] = []
        self.options: list[tuple[str, str]] = []
        self.photographs: list[tuple[tuple[int, ...] | None, str]] = []
        self.sound: list[npt.NDArray[np.int16]] = []
        self.rates: set[int] = set()
        self.wait = threading.Event()  # `say` waits for it
        self.wait.set()

    def ask(self, text: str = "left or right?", offers: tuple[str, ...] = OFFERS) -> None:
        """Show a picture of 320 x 240 and an open question about its two sides."""
        self.page.show_frame(np.full((240, 320, 3), 90, np.uint8))
        candidates = (ShownObject(LEFT, "red mug"), ShownObject(RIGHT, "blue mug"))
        meant = tuple((number,) for number in range(len(offers)))
        self.page.show_question(ShownQuestion(text, candidates, offers, meant))
        self.page.show_turn("robot", text, time.time())
        self.page.show_status(Status("waiting", "1", seconds_left=60.0))

    def say(self, text: str) -> None:
        """Note it."""
        self.wait.wait(10.0)
        self.said.append(clean_text(text))
        self.page.show_turn("user", text, time.time())

    def choose(self, candidate: int) -> None:
        """Note it."""
        self.chosen.append(candidate)

    def stop(self) -> None:
        """Note it."""
        self.stops += 1

    def use_photograph(self, image: npt.NDArray[np.uint8] | None, name: str = "") -> None:
        """Note it."""
        self.photographs.append((None if image is None else image.shape, name))

    def teach(self, image: npt.NDArray[np.uint8], box: Box, name: str) -> None:
        """Note it, and know it."""
        self.lessons.append((image, box, name))
        self.list_taught()

    def forget(self, name: str) -> None:
        """Forget it."""
        self.lessons = [lesson for lesson in self.lessons if lesson[2] != name]
        self.list_taught()

    def list_taught(self) -> None:
        """Show it."""
        self.page.show_taught([TaughtThing((name,), 1) for _, _, name in self.lessons])

    def set_option(self, name: str, value: str) -> None:
        """Note it; "broken" cannot be set."""
        if value == "broken":
            raise ClueError(f"{name} cannot be broken")
        self.options.append((name, value))

    def hear(self, samples: npt.NDArray[np.int16], sample_rate: int) -> None:
        """Note it."""
        self.sound.append(samples)
        self.rates.add(sample_rate)


Console = tuple[Server, LivePage, ScriptedRobot]


@contextmanager
def scripted(token: str | None = None) -> Iterator[Console]:
    """A server on a free port with a scripted robot."""
    page = LivePage()
    robot = ScriptedRobot(page)
    with serve(create_app(page, robot, token=token), "127.0.0.1", 0) as server:
        yield server, page, robot


def request(
    server: Server,
    method: str,
    path: str,
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body (JSON where it is) of one request to 127.0.0.1."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    found = {name.lower(): value for name, value in response.getheaders()}
    is_json = "json" in found.get("content-type", "")
    return response.status, found, json.loads(content) if is_json else content.decode()


def heed_ctrl_c() -> None:
    """For a child before its program: a shell may have started the tests with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for it; fail if it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.01)
