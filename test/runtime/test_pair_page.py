"""The page "Two people" in real browsers: whole dialogues, refusals, seats, accessibility."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import NewPage, axe_violations, serving
from console_helpers import heed_ctrl_c
from fastapi import FastAPI
from PIL import Image

from clue_ros.console.pair_routes import MAX_MESSAGE, pair_router
from clue_ros.console.pairs import SKIP_REASONS, WRONG_REASONS
from clue_ros.console.server import Server, create_app
from clue_ros.lab.data.invig import load_invig

SIZE = (320, 200)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def server(tmp_path: Path, out: Path) -> Iterator[Server]:
    """A server of pairs about four pictures."""
    images = tmp_path / "photos"
    images.mkdir()
    for number in range(4):
        pixels = np.full((SIZE[1], SIZE[0], 3), 60 * number, np.uint8)
        Image.fromarray(pixels).save(images / f"{number}.png")
    with serving(create_app(None, None, token=None, routers=[pair_router(images, out)])) as running:
        yield running


def enter(page: Any, wish: str = "either", room: str = "") -> None:
    page.get_by_role("button", name="I agree").click()
    page.get_by_label("Your role").select_option(wish)
    page.get_by_label("Room").fill(room)
    page.get_by_role("button", name="Start").click()


def pair(server: Server, new_page: NewPage, **options: Any) -> tuple[Any, Any]:
    """The pages of a user and an agent, paired."""
    user, agent = (new_page(f"{server.url}pairs", **options) for _ in range(2))
    enter(user, "user")
    enter(agent, "agent")
    for page, role in ((user, "user"), (agent, "agent")):
        page.get_by_text(f"you are the {role}").wait_for()
        see(page)
    return user, agent


def see(page: Any) -> None:
    """Wait for the picture."""
    page.locator("#image[src]").evaluate("image => image.decode()")


def draw(page: Any, box: tuple[int, int, int, int]) -> None:
    """Drag a box on the picture with the mouse, in pixels of the image."""
    area = page.locator(".box-editor-area")
    area.scroll_into_view_if_needed()
    frame = area.bounding_box()
    scale = frame["width"] / SIZE[0]
    points = [(frame["x"] + box[i] * scale, frame["y"] + box[i + 1] * scale) for i in (0, 2)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1])
    page.mouse.up()


def choose(user: Any, box: tuple[int, int, int, int] = (40, 20, 120, 100)) -> None:
    draw(user, box)
    user.get_by_role("button", name="This is my object").click()


def say(page: Any, text: str) -> None:
    page.locator("#text").fill(text)
    page.locator("#send").click()


def read(page: Any, text: str) -> None:
    """Wait for words in the dialogue."""
    page.locator("#chat .words", has_text=text).wait_for()


def point(agent: Any, box: tuple[int, int, int, int]) -> None:
    draw(agent, box)
    agent.get_by_role("button", name="End with this box").click()


def sent(page: Any, action: Any) -> str:
    """Send a message past the page's buttons, on a socket of its own; the server's refusal."""
    refused: str = page.evaluate(
        """action => new Promise((done) => {
            const socket = new WebSocket(location.origin.replace("http", "ws") + "/pairs/socket");
            socket.onopen = () => socket.send(
                typeof action === "string" ? action : JSON.stringify(action));
            socket.onmessage = ({ data }) => {
                const message = JSON.parse(data);
                if (message.refused ?? message.closed) done(message.refused ?? message.closed);
            };
        })""",
        action,
    )
    return refused


def test_two_people_make_a_row_that_the_invig_reader_reads(
    server: Server, out: Path, new_page: NewPage
) -> None:
    user, agent = pair(server, new_page)
    choose(user)
    say(user, "give me the mug")
    read(agent, "give me the mug")
    assert agent.locator(".shown-box").count() == 0  # the agent never sees the target
    draw(agent, (40, 20, 120, 90))
    say(agent, "the red one?")
    read(user, "the red one?")
    say(user, "yes, <b>left</b>")
    read(agent, "yes, <b>left</b>")  # a person's markup is text
    assert agent.locator("#chat b").count() == 0
    agent.get_by_role("button", name="End with this box").click()  # drawn before the question
    user.get_by_role("button", name="Right").wait_for()
    assert "IoU" not in user.locator("#pair").inner_text()
    assert user.locator(".shown-box").count() == 2
    user.get_by_role("button", name="Right").click()
    for page in (user, agent):
        page.get_by_text("The user said: right.").wait_for()
        page.get_by_text("(IoU): 0.8").wait_for()
    data = load_invig(out)
    assert data.problems == ()
    (sample,) = data.samples
    assert sample.request == "give me the mug"
    assert sample.exchanges == (("the red one?", "yes, <b>left</b>"),)
    assert sample.box == pytest.approx((40 / 320, 0.1, 120 / 320, 0.5), abs=0.006)
    for page in (user, agent):
        page.get_by_role("button", name="Next picture").click()
    user.locator("#task", has_text="Choose an object").wait_for()
    assert user.locator("#chat li").count() == 0


def test_the_wrong_sides_message_is_refused_by_the_server(
    server: Server, new_page: NewPage
) -> None:
    user, agent = pair(server, new_page)
    assert agent.locator("#say").is_hidden()
    assert "only the user" in sent(agent, {"do": "choose", "box": [0, 0, 50, 50]})
    assert "the user's turn" in sent(agent, {"do": "say", "text": "me first"})
    assert "only the agent" in sent(user, {"do": "point", "box": [0, 0, 50, 50]})
    assert "draw a box around your object first" in sent(user, {"do": "say", "text": "me first"})
    for nonsense in ("{", "[]", "7", "[" * 10_000, '{"do": 7}'):
        assert "something unknown" in sent(user, nonsense)
    assert "too much at once" in sent(user, "x" * (MAX_MESSAGE + 1))
    assert "at most 1000" in sent_after_choosing(user, "x" * 1001)
    assert agent.locator("#chat li").count() == 0


def sent_after_choosing(user: Any, text: str) -> str:
    user.reload()
    user.get_by_text("you are the user").wait_for()
    see(user)
    choose(user)
    user.get_by_label("Your request").wait_for()
    return sent(user, {"do": "say", "text": text})


def test_a_wrong_box_is_kept_apart_with_the_reason(
    server: Server, out: Path, new_page: NewPage
) -> None:
    user, agent = pair(server, new_page)
    choose(user)
    say(user, "the mug")
    read(agent, "the mug")
    point(agent, (200, 100, 300, 180))
    user.get_by_role("button", name="Wrong").click()
    user.get_by_text("say why the box is wrong").wait_for()
    user.get_by_label("If it is wrong, why").select_option(WRONG_REASONS[0])
    user.get_by_role("button", name="Wrong").click()
    agent.get_by_text(f"The user said: wrong ({WRONG_REASONS[0]})").wait_for()
    assert not list((out / "rows").iterdir())
    (path,) = (out / "rejected" / "rows").iterdir()
    assert json.loads(path.read_text())[0]["clue"]["reason"] == WRONG_REASONS[0]


def test_skip_and_start_over(server: Server, out: Path, new_page: NewPage) -> None:
    user, agent = pair(server, new_page)
    choose(user)
    say(user, "the mug")
    read(agent, "the mug")
    agent.get_by_role("button", name="Start this picture over").click()
    user.get_by_text("The agent started this picture over.").first.wait_for()
    assert user.locator("#chat li").count() == 0
    before = user.locator("#image").get_attribute("src")
    user.get_by_role("button", name="Skip this picture").click()
    user.get_by_text("say why you skip the picture").wait_for()
    user.get_by_label("Why skip").select_option(SKIP_REASONS[1])
    user.get_by_role("button", name="Skip this picture").click()
    agent.get_by_text(f"The user skipped the last picture: {SKIP_REASONS[1]}").first.wait_for()
    assert user.locator("#image").get_attribute("src") != before
    assert SKIP_REASONS[1] in (out / "skipped.csv").read_text()


def test_who_returns_has_the_seat_again_and_a_third_has_none(
    server: Server, new_page: NewPage
) -> None:
    user, agent = (new_page(f"{server.url}pairs?room=lab") for _ in range(2))
    enter(user, "user", "lab")
    enter(agent, "agent", "lab")
    see(user)
    choose(user)
    say(user, "the mug")
    read(agent, "the mug")
    third = new_page(f"{server.url}pairs?room=lab")
    assert third.get_by_label("Room").input_value() == "lab"
    enter(third, "either", "lab")
    third.get_by_text("both seats of room lab are taken").wait_for()
    source = user.locator("#image").get_attribute("src")
    assert third.evaluate("path => fetch(path).then((r) => r.status)", source) == 400
    stranger = new_page(f"{server.url}pairs")
    assert stranger.evaluate("path => fetch(path).then((r) => r.status)", source) == 400
    assert sent(stranger, {"do": "say", "text": "hello"}) == "consent"

    agent.goto("about:blank")
    user.get_by_text("the other person is away").wait_for()
    agent.goto(f"{server.url}pairs")
    read(agent, "the mug")  # without asking for consent again
    user.get_by_text("the other person is away").wait_for(state="hidden")
    other = agent.context.new_page()  # a second tab takes the seat over
    other.goto(f"{server.url}pairs")
    read(other, "the mug")
    agent.get_by_text("open in another tab").wait_for()

    other.get_by_role("button", name="Leave").click()
    other.get_by_text("You have left").wait_for()
    user.get_by_text("The other person has left.").first.wait_for()


def test_who_does_not_agree_takes_no_part_and_has_no_cookie(
    server: Server, out: Path, new_page: NewPage
) -> None:
    page = new_page(f"{server.url}pairs")
    page.get_by_text("Not stored: your name").wait_for()
    page.get_by_role("button", name="I do not agree").click()
    page.get_by_text("nothing was stored").wait_for()
    assert page.context.cookies() == []
    assert sent(page, {"do": "join", "role": "either", "room": ""}) == "consent"
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"clue-1.txt"}


def test_two_pairs_at_once_on_narrow_pages_by_keyboard_and_numbers(
    server: Server, out: Path, new_page: NewPage
) -> None:
    pairs = [pair(server, new_page, width=400, height=800) for _ in range(2)]
    for number, (user, _) in enumerate(pairs):
        user.locator(".box-editor-area").focus()
        for key in ("Enter", "ArrowLeft", "Shift+ArrowRight"):
            user.keyboard.press(key)
        user.get_by_role("button", name="This is my object").click()
        user.get_by_label("Your request").wait_for()
        say(user, f"thing {number}")
    for number, (_, agent) in enumerate(pairs):
        read(agent, f"thing {number}")
        for name, value in (("Left", 100), ("Top", 60), ("Right", 200), ("Bottom", 130)):
            agent.get_by_label(name, exact=True).fill(str(value))
        agent.get_by_label("Bottom").press("Tab")
        agent.get_by_role("button", name="End with this box").click()
    for user, agent in pairs:
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert user.evaluate(overflow) <= 0
        assert agent.evaluate(overflow) <= 0
        user.get_by_role("button", name="Right").click()
        agent.get_by_text("The user said: right.").wait_for()
    assert {sample.request for sample in load_invig(out).samples} == {"thing 0", "thing 1"}
    people = [json.loads(path.read_text())[0]["clue"]["people"] for path in rows(out)]
    assert len({person for row in people for person in row.values()}) == 4


def rows(out: Path) -> list[Path]:
    return list((out / "rows").iterdir())


def test_after_a_restart_consent_is_asked_again_and_finished_pictures_stay_done(
    tmp_path: Path, out: Path, new_page: NewPage
) -> None:
    images = tmp_path / "photos"
    images.mkdir()
    for number in range(2):
        Image.new("RGB", SIZE, (0, 90 * number, 0)).save(images / f"{number}.png")

    def app() -> FastAPI:
        return create_app(None, None, token="secret", routers=[pair_router(images, out)])

    with serving(app()) as first:
        port = first.port
        user, agent = (new_page(first.url) for _ in range(2))
        enter(user, "user")
        enter(agent, "agent")
        see(user)
        user.get_by_label("Why skip").select_option(SKIP_REASONS[0])
        user.get_by_role("button", name="Skip this picture").click()
        agent.get_by_text("The user skipped").first.wait_for()
    user.get_by_text("connection lost").wait_for()
    with serving(app(), port=port):
        for page in (user, agent):
            page.get_by_role("button", name="I agree").wait_for()  # the page connected by itself
        before = user.locator("#id").inner_text()
        enter(user, "user")
        enter(agent, "agent")
        see(user)
        assert user.locator("#id").inner_text() == before
        choose(user)
        say(user, "the mug")
        read(agent, "the mug")
        point(agent, (40, 20, 120, 100))
        user.get_by_role("button", name="Right").click()
        agent.get_by_text("The user said: right.").wait_for()
    (row,) = json.loads(rows(out)[0].read_text())
    assert row["image_info"]["id"] not in (out / "skipped.csv").read_text()


def violations(page: Any) -> list[str]:
    """What axe finds in light and in dark."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += axe_violations(page)
    return found


def test_every_state_of_the_page_passes_axe(server: Server, new_page: NewPage) -> None:
    page = new_page(f"{server.url}pairs")
    page.get_by_role("button", name="I agree").wait_for()
    assert violations(page) == []
    page.get_by_role("button", name="I agree").click()
    page.get_by_role("button", name="Start").wait_for()
    assert violations(page) == []
    page.get_by_label("Your role").select_option("user")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Nobody else waits here").wait_for()
    assert violations(page) == []
    agent = new_page(f"{server.url}pairs")
    enter(agent, "agent")
    see(page)
    assert violations(page) == []
    choose(page)
    say(page, "the mug")
    read(agent, "the mug")
    assert violations(agent) == []
    point(agent, (40, 20, 120, 90))
    page.get_by_role("button", name="Right").wait_for()
    assert violations(page) == []
    page.get_by_role("button", name="Right").click()
    page.get_by_text("The user said: right.").wait_for()
    assert violations(page) == []


def test_turns_are_announced_to_screen_readers(server: Server, new_page: NewPage) -> None:
    user, agent = pair(server, new_page)
    choose(user)
    say(user, "the mug")
    live = agent.locator("#live[role=status]")
    live.get_by_text("your turn. Find out which object").wait_for()
    assert agent.title().startswith("Your turn")
    assert agent.evaluate("document.activeElement.id") == "text"
    assert agent.get_by_role("log").get_by_text("the mug").count() == 1


# -------------------------------------------------------------------------------------------------
# The command.


def command(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clue_ros.cli", "pair", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
        cwd=Path(__file__).resolve().parents[2],
    )


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    Image.new("RGB", SIZE).save(tmp_path / "a.png")
    (tmp_path / "consent.txt").write_text("Our own words.")
    words = (tmp_path, "--out", tmp_path / "out", "--consent", tmp_path / "consent.txt")
    process = command(*words, "--port", "0", "--host", "0.0.0.0")
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/\?token=(\S+)", process.stdout.readline())
        assert found is not None  # other machines can reach it, so it made a token
        base = f"http://127.0.0.1:{found[1]}/pairs/consent"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(base, timeout=10)
        with urllib.request.urlopen(f"{base}?token={found[2]}", timeout=10) as answer:
            assert json.load(answer)["text"] == "Our own words."
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert errors == "clue: pictures: 1, of which not used yet: 1\n"
    finally:
        process.kill()
        process.wait()


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    process = command(tmp_path / "none", "--out", tmp_path / "out")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors == f"clue: {tmp_path / 'none'}: no such picture or folder\n"
