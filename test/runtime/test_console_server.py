"""The web server of the operator's page: who may use it, and what it takes and sends."""

import io
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from console_helpers import LEFT, RIGHT, Console, ScriptedRobot, request, scripted, until
from fastapi import APIRouter
from PIL import Image
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from clue_ros.console import access
from clue_ros.console.access import token_for
from clue_ros.console.live import LivePage
from clue_ros.console.live_routes import MAX_UPLOADS
from clue_ros.console.robot import Diagnostics, Option, ShownObject, Status
from clue_ros.console.server import Server, create_app, serve
from clue_ros.dialogue.types import MAX_PIXELS
from clue_ros.errors import ClueError

TOKEN = "a-secret"


@pytest.fixture
def console() -> Iterator[Console]:
    with scripted() as started:
        yield started


def live(server: Server, **headers: str) -> ClientConnection:
    """A page's WebSocket."""
    return connect(
        f"ws://127.0.0.1:{server.port}/ws/live",
        additional_headers={name.replace("_", "-"): value for name, value in headers.items()},
        max_size=None,
        proxy=None,
    )


def receive(page: ClientConnection, kind: str, **content: Any) -> Any:
    """The next message of a kind, or with this content; "frame": (number, width, height, JPEG)."""
    while True:
        message = page.recv(timeout=5.0)
        if isinstance(message, bytes):
            if kind == "frame":
                return *struct.unpack("<3I", message[:12]), message[12:]
            continue
        found = json.loads(message)
        if found["type"] == kind and content.items() <= found.items():
            return found


def send(page: ClientConnection, **command: Any) -> None:
    page.send(json.dumps(command))


# Who may use it.


def test_a_token_is_asked_for_once_and_then_kept_in_a_cookie_that_scripts_cannot_read() -> None:
    with scripted(TOKEN) as (server, _, _):
        assert request(server, "GET", "/live")[0] == 401
        status, headers, _ = request(server, "GET", f"/live?token={TOKEN}")
        assert status == 200
        cookie = headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        pair = cookie.split(";")[0]
        status, headers, _ = request(server, "GET", "/live", Cookie=pair)
        assert status == 200
        assert "set-cookie" not in headers
        assert TOKEN in server.url
        with live(server, Cookie=pair) as page:
            receive(page, "hello")


@pytest.mark.parametrize("path", ["/", "/live", "/api/pages", "/review", "/nothing"])
@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong", "?token=%ff", "?token=a-secre"])
def test_without_the_right_token_nothing_is_shown(path: str, query: str) -> None:
    with scripted(TOKEN) as (server, _, _):
        status, headers, body = request(server, "GET", path + query)
        assert status == 401
        assert "set-cookie" not in headers
        assert TOKEN not in body
        assert ("not the right one" in body) == bool(query)


def test_without_the_right_token_nothing_is_done() -> None:
    with scripted(TOKEN) as (server, _, robot):
        assert request(server, "POST", "/api/photograph", png())[0] == 401
        for headers in ({}, {"Cookie": f"clue_token_{server.port}=wrong"}, {"Cookie": "=;,\\"}):
            with pytest.raises(InvalidStatus), live(server, **headers):
                pass
        assert robot.photographs == []


def test_a_token_is_made_for_every_address_that_other_machines_reach() -> None:
    assert token_for("localhost", None) is None
    assert token_for("127.0.0.1", None) is None
    assert token_for("::1", None) is None
    made = {token_for("0.0.0.0", None), token_for("192.168.1.2", None), token_for("robot", None)}
    assert len(made) == 3
    assert None not in made
    assert all(len(token) >= 32 for token in made if token)
    assert token_for("0.0.0.0", "given") == token_for("localhost", "given") == "given"
    with pytest.raises(ClueError, match="ASCII"):
        token_for("localhost", "with space")


def test_a_server_without_a_token_refuses_an_address_that_other_machines_reach() -> None:
    app = create_app(None, None, token=None)
    with pytest.raises(ClueError, match="give a token"):
        serve(app, "0.0.0.0", 0)


def test_a_name_that_is_not_localhost_is_refused_without_a_token(console: Console) -> None:
    # DNS rebinding: a website's name that was turned to 127.0.0.1
    server, _, robot = console
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", ""):
        assert request(server, "GET", "/live", Host=host)[0] == 403
        assert request(server, "POST", "/api/photograph", png(), Host=host)[0] == 403
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "LOCALHOST:1"):
        assert request(server, "GET", "/live", Host=host)[0] == 200
    assert robot.photographs == []


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://", "http://localhost"]
)
def test_another_website_may_not_use_the_robot(console: Console, origin: str) -> None:
    server, _, robot = console
    with pytest.raises(InvalidStatus), live(server, Origin=origin):
        pass
    assert request(server, "POST", "/api/photograph", png(), Origin=origin)[0] == 403
    assert robot.photographs == []
    with live(server, Origin=f"http://127.0.0.1:{server.port}") as page:
        receive(page, "hello")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_headers_that_cannot_be_read_are_refused_before_anything_else(
    token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted(token) as (server, _, robot):
        for host in ("[::1", "localhost:x", "localhost:99999", "localhost/a", "a@localhost", "[a]"):
            for path in ("/", "/live", f"/live?token={TOKEN}"):
                status, _, text = request(server, "GET", path, Host=host)
                assert (status, text) == (400, "The header Host cannot be read.\n"), host
        for origin in ("http://[", "http://[::1"):
            status, _, text = request(server, "POST", "/api/photograph", png(), Origin=origin)
            assert (status, text) == (400, "The header Origin cannot be read.\n")
        with pytest.raises(InvalidStatus), live(server, Origin="http://["):
            pass
        assert robot.photographs == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_every_answer_forbids_other_websites_code(console: Console) -> None:
    server, _, _ = console
    for path in ("/live", "/static/live.js", "/api/pages", "/nothing"):
        _, headers, _ = request(server, "GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert request(server, "GET", "/docs")[0] == request(server, "GET", "/openapi.json")[0] == 404
    assert request(server, "GET", "/static/%2e%2e/server.py")[0] == 404


# The server.


def test_a_port_that_is_taken_is_a_clear_error(console: Console) -> None:
    port = console[0].port
    with pytest.raises(ClueError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*another port"):
        serve(create_app(None, None, token=None), "127.0.0.1", port)
    with pytest.raises(ClueError, match="65535"):
        serve(create_app(None, None, token=None), "127.0.0.1", 70000)
    with pytest.raises(ClueError, match="no address"):
        serve(create_app(None, None, token="x"), "no.such.host.invalid", 0)
    with pytest.raises(ClueError, match="https needs a certificate"):
        serve(create_app(None, None, token=None), "localhost", 0, certificate=Path(__file__))


def test_a_server_that_was_stopped_frees_its_port_though_a_page_is_open() -> None:
    with scripted() as (server, _, _):
        port = server.port
        with live(server) as page:
            receive(page, "hello")
            begin = time.monotonic()
            server.stop()
            assert time.monotonic() - begin < 4.0
    with serve(create_app(None, None, token=None), "127.0.0.1", port) as again:
        assert again.port == port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1.0)


def test_the_navigation_names_the_pages_that_the_server_has() -> None:
    router = APIRouter()

    @router.get("/review")
    def review() -> str:
        return "recorded episodes"

    live_page = LivePage()
    for page, robot, pages in (
        (live_page, ScriptedRobot(live_page), ["/live", "/review"]),
        (None, None, ["/review"]),
    ):
        app = create_app(page, robot, token=None, routers=[router])
        with serve(app, "127.0.0.1", 0) as server:
            assert [p["path"] for p in request(server, "GET", "/api/pages")[2]] == pages
            status, headers, _ = request(server, "GET", "/")
            assert (status, headers["location"]) == (307, pages[0])


# What it takes.


def png(width: int = 8, height: int = 6) -> bytes:
    out = io.BytesIO()
    Image.new("1", (width, height)).save(out, "PNG")
    return out.getvalue()


def jpeg_head() -> bytes:
    """The first half of a picture file."""
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(out, "JPEG")
    return out.getvalue()[: len(out.getvalue()) // 2]


def test_a_photograph_reaches_the_robot(console: Console) -> None:
    server, _, robot = console
    status, _, answer = request(server, "POST", "/api/photograph?name=my%20desk.png", png())
    assert (status, answer) == (200, {"width": 8, "height": 6})
    assert robot.photographs == [((6, 8, 3), "my desk.png")]
    with live(server) as page:
        assert receive(page, "photograph")["name"] == "my desk.png"
        send(page, type="camera")
        receive(page, "photograph", name=None)
    assert robot.photographs[1] == (None, "")


def test_a_photographs_name_is_one_line_without_direction_marks(console: Console) -> None:
    server, _, robot = console
    name = "%E2%80%AEgnp.ksed%E2%80%8F%0D%0Aand%00more%1b"
    assert request(server, "POST", f"/api/photograph?name={name}", png())[0] == 200
    assert request(server, "POST", "/api/photograph?name=%E2%80%AE%0A", png())[0] == 200
    assert [name for _, name in robot.photographs] == ["gnp.ksed and more", "photograph"]


def begin_upload(server: Server, sent: bytes = b"the beginning") -> socket.socket:
    """A photograph of which only the beginning is sent."""
    stalled = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
    head = f"POST /api/photograph HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
    stalled.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + sent)
    return stalled


def test_a_photograph_that_stalls_holds_no_other_one_up(console: Console) -> None:
    server, _, robot = console
    with begin_upload(server), begin_upload(server, b""):
        assert request(server, "POST", "/api/photograph?name=mine", png())[0] == 200
    assert [name for _, name in robot.photographs] == ["mine"]


def test_a_photograph_that_stalls_is_given_up(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "STALL_SECONDS", 0.2)
    with begin_upload(console[0]) as stalled:
        assert stalled.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_more_photographs_than_may_come_at_once_are_told_to_wait(console: Console) -> None:
    server, _, _ = console
    stalled = [begin_upload(server) for _ in range(MAX_UPLOADS)]
    until(lambda: request(server, "POST", "/api/photograph", png())[0] == 503)
    for each in stalled:
        each.close()
    until(lambda: request(server, "POST", "/api/photograph", png())[0] == 200)


def test_a_photograph_that_cannot_be_used_is_refused_with_the_reason(console: Console) -> None:
    server, _, robot = console
    for body, reason in (
        (b"", "empty"),
        (b"no picture", "not a picture"),
        (jpeg_head(), "cannot be read"),
    ):
        status, _, answer = request(server, "POST", "/api/photograph?name=it", body)
        assert status == 400
        assert reason in answer["error"]
    side = int(MAX_PIXELS**0.5) + 1
    status, _, answer = request(server, "POST", "/api/photograph", png(side, side))
    assert status == 400
    assert "64 megapixels" in answer["error"]
    status, _, answer = request(
        server, "POST", "/api/photograph", None, Content_Length=str(64 * 1024 * 1024 + 1)
    )
    assert status == 413
    assert "64 MB" in answer["error"]
    assert robot.photographs == []
    assert request(server, "POST", "/api/photograph", png())[0] == 200


def test_what_a_page_asks_reaches_the_robot(console: Console) -> None:
    server, _, robot = console
    robot.ask()
    with live(server) as page:
        number = receive(page, "question")["number"]
        send(page, type="say", text="<script>alert(1)</script> the mug")
        receive(page, "turn", text="<script>alert(1)</script> the mug")
        send(page, type="choose", question=number, candidate=1)
        receive(page, "turn", text="You chose 2.")
        send(page, type="say", text="number 1")
        receive(page, "turn", text="You chose 1.")
        send(page, type="option", name="policy", value="detector")
        send(page, type="stop")
        until(lambda: robot.options and robot.stops)
    assert robot.said == ["<script>alert(1)</script> the mug"]
    assert robot.chosen == [1, 0]
    assert robot.options == [("policy", "detector")]


def test_what_cannot_be_done_is_told_to_the_page_that_asked(console: Console) -> None:
    server, page_state, robot = console
    robot.ask()
    with live(server) as page:
        number = receive(page, "question")["number"]
        for command, reason in (
            ({"type": "say", "text": "x" * 10_000}, "at most 1000"),
            ({"type": "say", "text": " "}, "empty"),
            ({"type": "option", "name": "policy", "value": "broken"}, "cannot be broken"),
            ({"type": "choose", "question": number - 1, "candidate": 0}, "no longer open"),
            ({"type": "choose", "question": number, "candidate": 7}, "no longer open"),
            ({"type": "fly"}, "reload"),
            ({"type": "say"}, "reload"),
            ([1, 2], "reload"),
        ):
            page.send(json.dumps(command))
            assert reason in receive(page, "refused")["text"]
        page.send("no JSON")
        assert "reload" in receive(page, "refused")["text"]
        send(page, type="say", text="the left one")
        receive(page, "turn", text="the left one")
    page_state.show_status(Status("ended"))
    with live(server) as page:
        assert receive(page, "question")["text"] is None
        send(page, type="say", text="the blue one")
        receive(page, "turn", text="the blue one")


def test_a_stop_overtakes_what_the_robot_is_at(console: Console) -> None:
    server, _, robot = console
    robot.wait.clear()
    with live(server) as page:
        for _ in range(12):
            send(page, type="say", text="the mug")
        assert "still busy" in receive(page, "refused")["text"]
        send(page, type="stop")
        until(lambda: robot.stops)
        assert robot.said == []
        robot.wait.set()
        until(lambda: len(robot.said) == 8)


def test_sound_reaches_the_robot_in_order(console: Console) -> None:
    server, _, robot = console
    sent = np.arange(-800, 800, dtype="<i2")
    with live(server) as page:
        for part in np.split(sent, 20):
            page.send(part.tobytes())
        page.send(b"\x01")  # half a sample
        until(lambda: sum(map(len, robot.sound)) == len(sent))
    np.testing.assert_array_equal(np.concatenate(robot.sound), sent)
    assert robot.rates == {16_000}
    assert all(part.dtype == np.int16 for part in robot.sound)


# What it sends.


def test_a_page_that_joins_late_gets_the_whole_state(console: Console) -> None:
    server, page_state, robot = console
    robot.ask()
    found = ShownObject(LEFT, "mug", 0.9, (0.1, -0.2, 0.75), "camera")
    page_state.show_grounding(found)
    page_state.show_attention(np.eye(4, dtype=np.float32))
    page_state.show_options([Option("policy", "both", "who decides", ("both", "detector"))])
    page_state.show_diagnostics(Diagnostics("ok", "", (("model", "m"),), (("image", 12.5),)))
    with live(server) as page:
        parts = {}
        while not isinstance(message := page.recv(timeout=5.0), bytes):
            part = json.loads(message)
            parts[part["type"]] = part
        assert parts["turn"]["text"] == "left or right?"
        assert parts["status"]["state"] == "waiting"
        asked = parts["question"]
        assert [c["box"] for c in asked["candidates"]] == [LEFT.as_list(), RIGHT.as_list()]
        assert [c["name"] for c in asked["candidates"]] == ["the left one", "the right one"]
        assert (asked["confirm"], asked["others"]) == (False, [])
        assert asked["candidates"][0]["score"] is None
        assert parts["grounding"]["object"]["position"] == [0.1, -0.2, 0.75]
        assert parts["attention"]["rows"] == 4
        assert parts["options"]["options"][0]["choices"] == ["both", "detector"]
        assert parts["diagnostics"]["latency"] == [["image", 12.5]]
    assert struct.unpack("<3I", message[:12])[1:] == (320, 240)
    picture = cv2.imdecode(np.frombuffer(message[12:], np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert abs(int(picture.mean()) - 90) <= 2


def test_a_slow_page_misses_pictures_and_gets_the_newest_one(console: Console) -> None:
    server, page_state, _ = console

    def show(grey: int) -> None:
        page_state.show_frame(np.full((20, 30, 3), grey, np.uint8))

    assert not page_state.wants_frame()
    with live(server) as slow, live(server) as quick:
        until(page_state.wants_frame)
        show(0)
        number = receive(slow, "frame")[0]
        for grey in range(1, 50):
            show(5 * grey)
            send(quick, type="drawn", frame=receive(quick, "frame")[0])
        with pytest.raises(TimeoutError):
            slow.recv(timeout=0.2)
        send(slow, type="drawn", frame=number - 1)  # not the one that it got
        with pytest.raises(TimeoutError):
            slow.recv(timeout=0.2)
        send(slow, type="drawn", frame=number)
        last, *_, jpeg = receive(slow, "frame")
        picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        assert abs(int(picture.mean()) - 245) <= 2
        assert last > number + 40
    until(lambda: not page_state.wants_frame())


def test_a_page_that_reads_nothing_keeps_nobody_waiting(console: Console) -> None:
    server, page_state, _ = console
    with live(server) as page:
        receive(page, "hello")
        begin = time.monotonic()

        def think() -> None:
            page_state.show_status(Status("thinking", message="x" * 1000))

        threads = [threading.Thread(target=think) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2000):
            page_state.show_status(Status("thinking", message="y" * 1000))
            page_state.show_turn("robot", "hm", 0.0)
        assert time.monotonic() - begin < 3.0
        page_state.show_status(Status("idle"))
        receive(page, "status", state="idle")


def test_large_pictures_are_sent_small_with_their_own_size(console: Console) -> None:
    server, page_state, _ = console
    page_state.show_frame(np.zeros((3000, 4000, 3), np.uint8))
    with live(server) as page:
        number, width, height, jpeg = receive(page, "frame")
        assert (width, height) == (4000, 3000)
        picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        assert picture.shape[:2] == (1200, 1600)
        send(page, type="drawn", frame=number)
        page_state.show_frame(jpeg, (320, 240))
        assert receive(page, "frame")[1:] == (320, 240, jpeg)
    with pytest.raises(ValueError, match="size"):
        page_state.show_frame(jpeg)


def test_the_page_s_files_are_whole() -> None:
    from clue_ros.console import server as module

    folder = Path(module.__file__).parent / "static"
    for page in folder.glob("*.html"):
        text = page.read_text("utf-8")
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "http:" not in text
        assert "https:" not in text
    for script in folder.glob("*.js"):
        assert len(script.read_text("utf-8").splitlines()) <= 600
        assert "innerHTML" not in script.read_text("utf-8")


class Kept(logging.Handler):
    """A log handler of another library, which says whether it was closed."""

    closed = False

    def close(self) -> None:
        """Take note of it."""
        self.closed = True
        super().close()


def test_serving_closes_no_log_handler_of_the_process() -> None:
    handler = Kept()
    with scripted():
        pass
    assert not handler.closed
