"""The live page in a browser: dialogues by typing, clicking, keyboard, photograph and voice."""

import base64
import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from browser import NewPage, axe_violations, serving
from console_helpers import Console, ScriptedRobot, scripted, until
from PIL import Image

from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.console.robot import Diagnostics, Option, ShownObject, Status
from clue_ros.console.server import Server, create_app, serve
from clue_ros.dialogue.types import Box
from clue_ros.grounders import load_grounder
from clue_ros.model.loading import demo_folder

Demo = tuple[Server, LivePage, PictureRobot]


@pytest.fixture(scope="module")
def demo_robot() -> Iterator[tuple[LivePage, PictureRobot]]:
    """The embedded model on the demo's pictures, as `clue demo-page` has it."""
    page = LivePage()
    pictures = {path.name: path for path in sorted(demo_folder().glob("*.png"))}
    robot = PictureRobot(page, pictures, load_grounder, ["household"])
    robot.start()
    robot.wait_until_loaded()
    yield page, robot
    robot.close()


@pytest.fixture
def demo(demo_robot: tuple[LivePage, PictureRobot]) -> Iterator[Demo]:
    page, robot = demo_robot
    robot.set_option("picture", "mugs.png")
    with serving(create_app(page, robot, token=None)) as server:
        yield server, page, robot
    robot.stop()


@pytest.fixture
def console() -> Iterator[Console]:
    with scripted() as started:
        yield started


def type_in(page: Any, text: str) -> None:
    """Say a text, once the page is connected: what is sent before stays in the field."""
    page.locator("#connection", has_text="Connected").wait_for()
    page.fill("#say", text)
    page.press("#say", "Enter")


def last_turns(page: Any, count: int) -> list[str]:
    """What was said last, as the page shows it: "You: pick up the mug"."""
    turns = page.locator(".turn").all_inner_texts()
    return [": ".join(text.split("\n")) for text in turns[-count:]]


def wait_for_turn(page: Any, pattern: str) -> None:
    page.locator(".turn", has_text=re.compile(pattern)).last.wait_for()


# Whole dialogues with the embedded model.


def test_a_dialogue_by_typing(demo: Demo, new_page: NewPage) -> None:
    page = new_page(demo[0].url)
    type_in(page, "pick up the mug")
    page.locator(".candidate:enabled").first.wait_for()
    assert page.locator("#state").inner_text().startswith("Waiting for an answer")
    assert page.locator(".mark").count() == page.locator(".candidate").count() == 3
    assert page.locator("#attention").get_attribute("data-shown") == "true"
    assert page.locator("#attention").is_hidden(), "it would hide the objects"
    assert "ambiguity" in page.locator("#latency").inner_text()
    type_in(page, "the pink one")
    page.locator(".found").wait_for()
    assert last_turns(page, 4) == [
        "You: pick up the mug",
        "Robot: The pink one, the purple one or the black one?",
        "You: the pink one",
        "Robot: I see the pink mug.",
    ]
    box = [float(n) for n in re.findall(r"\d+", page.locator("#object").inner_text())[2:6]]
    assert Box(*box).iou(Box(126, 194, 233, 297)) > 0.5
    page.locator("#question").wait_for(state="hidden")
    page.locator("#attention").wait_for(state="visible")


def test_a_dialogue_by_clicking(demo: Demo, new_page: NewPage) -> None:
    page = new_page(demo[0].url)
    type_in(page, "pick up the mug")
    pink = page.locator(".candidate:enabled", has_text="the pink one")
    number = pink.locator(".chip").inner_text()
    page.locator(".mark", has_text=number).locator(".hit").click()
    page.locator(".found").wait_for()
    assert last_turns(page, 3) == [
        f"You chose {number}.", "You: the pink one", "Robot: I see the pink mug."
    ]  # fmt: skip


def test_a_number_on_the_picture_is_an_answer(demo: Demo, new_page: NewPage) -> None:
    demo[2].set_option("picture", "yellow_blocks.png")
    page = new_page(demo[0].url)
    type_in(page, "take the yellow block")
    lower = page.locator(".candidate:enabled", has_text="the lower one")
    number = lower.locator(".chip").inner_text()
    type_in(page, f"number {number}")
    page.locator(".found").wait_for()
    assert last_turns(page, 3)[:2] == [f"You chose {number}.", "You: the lower one"]


def test_a_dialogue_about_a_dropped_photograph_and_back(demo: Demo, new_page: NewPage) -> None:
    page = new_page(demo[0].url)
    page.locator("#picture[data-frame]").wait_for()
    content = io.BytesIO()
    Image.open(demo_folder() / "bananas_plate.png").save(content, "JPEG", quality=95)
    drop(page, "desk.jpg", content.getvalue())
    page.locator("#source", has_text="desk.jpg").wait_for()
    type_in(page, "take the banana")
    page.locator(".candidate:enabled", has_text="the green one").click()
    wait_for_turn(page, "I see the green banana")
    assert page.locator("#picture").evaluate("c => [c.width, c.height]") == [640, 480]
    drop(page, "no.png", b"no picture at all")
    page.get_by_role("alert").filter(has_text="not a picture").wait_for()
    page.get_by_role("button", name="Back to mugs.png").click()
    page.locator("#source", has_text="mugs.png").wait_for()
    until(lambda: page.locator("#picture").evaluate("c => c.width") == 480)


def drop(page: Any, name: str, content: bytes) -> None:
    """Drop a file on the page."""
    transfer = page.evaluate_handle(
        """([name, text]) => {
            const transfer = new DataTransfer();
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            transfer.items.add(new File([bytes], name));
            return transfer;
        }""",
        [name, base64.b64encode(content).decode()],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    page.locator("#drop").wait_for()
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})


def test_two_pages_see_the_same_dialogue_and_either_answers(demo: Demo, new_page: NewPage) -> None:
    one, two = new_page(demo[0].url), new_page(demo[0].url)
    two.locator("#picture[data-frame]").wait_for()
    type_in(one, "pick up the mug")
    two.locator(".candidate:enabled", has_text="the pink one").click()
    for page in (one, two):
        page.locator(".found").wait_for()
        assert last_turns(page, 2) == ["You: the pink one", "Robot: I see the pink mug."]


def test_a_dialogue_by_keyboard_alone(demo: Demo, new_page: NewPage) -> None:
    page = new_page(demo[0].url)
    page.locator("#picture[data-frame]").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # "Skip to the dialogue"
    page.keyboard.type("pick up the mug")
    page.keyboard.press("Enter")
    page.locator(".candidate:enabled").first.wait_for()
    for _ in range(15):  # back from the text to the candidate
        page.keyboard.press("Shift+Tab")
        if page.locator(".candidate:focus", has_text="the pink one").count():
            break
    assert page.locator(".mark.highlighted").count() == 1
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.locator(".found").wait_for()
    assert page.evaluate("document.activeElement.id") == "say"
    page.keyboard.type("take the mug")
    page.keyboard.press("Enter")
    page.locator(".candidate:enabled").first.wait_for()
    page.keyboard.press("Escape")
    wait_for_turn(page, "All right, I stop")
    page.locator("#state", has_text="Ready").wait_for()


def test_settings_change_the_robot(demo: Demo, new_page: NewPage) -> None:
    page = new_page(demo[0].url)
    page.select_option("#option-policy", "detector")
    page.locator("#health", has_text="detector").wait_for()
    page.fill("#option-threshold", "1")
    page.press("#option-threshold", "Tab")
    until(lambda: demo[2].threshold == 1.0)
    page.fill("#option-threshold", "")
    page.press("#option-threshold", "Tab")
    until(lambda: demo[2].threshold != 1.0)
    page.select_option("#option-policy", "both")
    page.locator("#health", has_text="both").wait_for()
    page.select_option("#option-picture", "five_blocks.png")
    until(lambda: page.locator("#picture").evaluate("c => c.width") == 640)


# The page itself, with a scripted robot.


def fill(page_state: LivePage, robot: ScriptedRobot) -> None:
    """Show something in every part of the page."""
    page_state.show_attention(np.eye(16, dtype=np.float32))
    page_state.show_grounding(
        ShownObject(Box(10, 10, 90, 60), "red mug", 0.87, (0.12, -0.05, 0.61), "camera_optical")
    )
    page_state.show_options(
        [
            Option("policy", "both", "Who decides.", ("both", "detector")),
            Option("threshold", "0.5", "Ask from here on.", (), 0.0, 1.0),
            Option("model", "household", "The model."),
        ]
    )
    rows = (("model", "household"), ("camera", "29.8 Hz"))
    latency = (("image", 31.0), ("ambiguity", 94.0), ("decoding", 140.0))
    page_state.show_diagnostics(Diagnostics("warn", "the camera is slow", rows, latency))
    robot.ask()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(
    console: Console, new_page: NewPage, scheme: str
) -> None:
    server, page_state, robot = console
    page = new_page(server.url, color_scheme=scheme)
    assert axe_violations(page) == []
    fill(page_state, robot)
    page.locator(".candidate:enabled").first.wait_for()
    page_state.show_notice("the camera was unplugged")
    page.locator(".notice").wait_for()
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollHeight") <= 800  # one screen
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    stage, options = (page.locator(part).bounding_box() for part in ("#stage", "#question"))
    assert abs(stage["y"] + stage["height"] - options["y"]) < 2, "right under the picture"
    assert axe_violations(page) == []
    log = page.get_by_role("log", name="What was said")
    assert log.inner_text().startswith("Robot")
    assert "x 0.12 y -0.05 z 0.61 m" in page.locator("#object").inner_text()
    page.locator(".candidate").nth(1).click()
    until(lambda: robot.chosen == [1])
    assert robot.said == []


CUT = """[...document.querySelectorAll("main *")].filter((e) => {
    const { overflowX, overflowY, clipPath } = getComputedStyle(e);
    return e.clientWidth > 0 && clipPath === "none" && e.tagName !== "INPUT"
        && (overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1
            || overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1);
}).map((e) => e.id || e.className)"""


def test_nothing_is_cut_off_on_a_laptop(console: Console, new_page: NewPage) -> None:
    server, page_state, robot = console
    page = new_page(server.url)
    page.set_viewport_size({"width": 1280, "height": 800})
    fill(page_state, robot)
    page_state.show_camera_name("/camera/camera/color/image_raw")
    names = ("model", "candidates", "language_model", "policy", "threshold", "num_views")
    more = ("max_questions", "force_grounding", "answer_timeout", "ask_again_after", "language")
    page_state.show_options([Option(name, "household", "") for name in (*names, *more)])
    five = tuple(ShownObject(Box(60 * n, 50, 60 * n + 50, 90), f"mug {n}") for n in range(5))
    answers = tuple(f"the {number} one" for number in ("first", "second", "third", "last"))
    page_state.show_question(
        ShownQuestion("Which of these five mugs?", five, answers, ((0,), (1,), (2, 3), (4,)))
    )
    page.locator(".option", has_text="the third one").wait_for()
    assert page.evaluate(CUT) == []
    chips = page.locator(".option", has_text="the third one").locator(".chip")
    assert chips.all_inner_texts() == ["3", "4"]
    page.locator(".option", has_text="the third one").hover()
    assert page.locator(".mark.highlighted").count() == 2
    assert page.locator(".mark").nth(4).text_content() == "5 mug 4"
    page.locator(".option", has_text="the third one").click()
    until(lambda: robot.said == ["the third one"])
    assert robot.chosen == []


def test_a_confirmation_offers_yes_no_and_another(console: Console, new_page: NewPage) -> None:
    server, page_state, robot = console
    page = new_page(server.url)
    robot.ask()
    mug = (ShownObject(Box(20, 100, 100, 200), "red mug"),)
    page_state.show_question(
        ShownQuestion("Do you mean the red mug?", mug, ("yes", "no"), ((0,), ()), confirm=True)
    )
    page.locator(".option", has_text="Another").click()
    assert page.evaluate("document.activeElement.id") == "say"
    assert page.get_attribute("#say", "placeholder") == "Say which one you mean"
    page.get_by_role("button", name="No", exact=True).click()
    until(lambda: robot.said == ["no"])
    page.locator(".option", has_text="Yes").click()
    until(lambda: robot.chosen == [0])
    assert page.locator(".option").all_inner_texts()[1:] == ["No", "Another…"]


def test_a_box_drawn_on_the_live_picture_teaches_a_name(
    console: Console, new_page: NewPage
) -> None:
    server, page_state, robot = console
    picture = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    page_state.show_frame(picture)
    page = new_page(server.url)
    page.locator("#picture[data-frame]").wait_for()
    assert page.locator("#teach").is_hidden(), "a robot that cannot be taught"
    robot.list_taught()
    page.locator("#teach").click()
    page.locator("#teaching button", has_text="Teach").click()
    page.get_by_role("alert").filter(has_text="Draw a box").wait_for()
    for shade in range(3):  # the camera goes on, the picture stands still
        page_state.show_frame(np.full((240, 320, 3), shade, np.uint8))
    area = page.locator("#teach-area").bounding_box()
    assert area is not None
    scale = area["width"] / 320
    page.mouse.move(area["x"] + 40 * scale, area["y"] + 60 * scale)
    page.mouse.down()
    page.mouse.move(area["x"] + 140 * scale, area["y"] + 160 * scale, steps=3)
    page.mouse.up()
    assert axe_violations(page) == []
    page.fill("#teach-name", "stapler")
    page.press("#teach-name", "Enter")
    until(lambda: robot.lessons)
    ((image, box, name),) = robot.lessons
    assert np.array_equal(image, picture)
    assert name == "stapler"
    assert box.iou(Box(40, 60, 140, 160)) > 0.95
    page.get_by_role("button", name="Forget stapler").click()
    until(lambda: not robot.lessons)
    page.locator("#taught li").wait_for(state="detached")
    page.locator("#teach-end").click()
    corner = "c => c.getContext('2d').getImageData(9, 9, 1, 1).data[0]"
    until(lambda: page.locator("#picture").evaluate(corner) <= 3)
    assert robot.said == []


def test_an_empty_page_offers_examples(console: Console, new_page: NewPage) -> None:
    server, _, robot = console
    page = new_page(server.url)
    page.locator("#examples button", has_text="pick up the mug").click()
    assert page.input_value("#say") == "pick up the mug"
    assert robot.said == [], "nothing is sent by itself"
    page.press("#say", "Enter")
    page.locator("#examples").wait_for(state="hidden")
    until(lambda: robot.said == ["pick up the mug"])


def test_a_person_s_text_is_shown_as_text(console: Console, new_page: NewPage) -> None:
    server, page_state, robot = console
    evil = "<img src=x onerror=\"document.title='evil'\"><b>bold</b> </script>"
    page = new_page(server.url)
    robot.ask(evil, offers=(evil,))
    page_state.show_grounding(ShownObject(Box(0, 0, 50, 50), evil))
    page_state.show_options([Option(evil, evil, evil, (evil,))])
    page_state.show_diagnostics(Diagnostics(evil, evil, ((evil, evil),), ((evil, 1.0),)))
    page_state.show_photograph(evil)
    wait_for_turn(page, "<b>bold</b>")  # the page listens
    page_state.show_notice(evil)
    notice = page.locator(".notice", has_text="<b>bold</b>")
    notice.wait_for()  # it is there for some seconds only
    assert page.locator(".notice b").count() == 0
    type_in(page, evil)
    until(lambda: robot.said == [evil])
    page.locator(".turn", has_text="You").last.wait_for()
    assert page.locator(".turn").last.inner_text() == f"You\n{evil}"
    assert page.locator("main b, main img").count() == 0
    assert page.title() == "Live · clue_ros"


def test_a_text_that_is_too_long_is_refused_and_can_be_corrected(
    console: Console, new_page: NewPage
) -> None:
    server, _, robot = console
    page = new_page(server.url)
    type_in(page, "mug " * 2500)
    alert = page.get_by_role("alert")
    alert.filter(has_text="the text has 9999 characters, at most 1000 are allowed").wait_for()
    assert len(page.input_value("#say")) == 10_000
    type_in(page, "the mug")
    wait_for_turn(page, "the mug")
    assert robot.said == ["the mug"]


def test_a_token_opens_the_page_and_leaves_the_address(new_page: NewPage) -> None:
    with scripted("a-secret") as (server, _, _):
        base = server.url.split("?")[0]
        page = new_page(f"{base}?token=wrong")
        assert "not the right one" in page.locator("main").inner_text()
        assert axe_violations(page) == []
        page.fill("#token", "a-secret")
        page.press("#token", "Enter")
        page.locator("#connection", has_text="Connected").wait_for()
        assert page.url == f"{base}live"
        assert page.evaluate("document.cookie") == ""
        page.reload()
        page.locator("#connection", has_text="Connected").wait_for()
        other = new_page(base)  # a browser of its own
        assert "needs a token" in other.locator("main").inner_text()


def test_the_page_connects_again_and_shows_the_state_of_the_new_server(
    new_page: NewPage,
) -> None:
    page_state = LivePage()
    robot = ScriptedRobot(page_state)
    app = create_app(page_state, robot, token=None)
    with serve(app, "127.0.0.1", 0) as server:
        page = new_page(server.url)
        robot.ask()
        page.locator(".candidate:enabled").first.wait_for()
        page.fill("#say", "half a sen")
    page.locator("#connection", has_text="Connection lost").wait_for()
    page.press("#say", "Enter")
    page.get_by_role("alert").filter(has_text="no connection").wait_for()
    assert page.input_value("#say") == "half a sen"
    page_state.show_turn("robot", "said meanwhile", time.time())
    with serve(app, "127.0.0.1", server.port):
        page.locator("#connection", has_text=re.compile("^Connected$")).wait_for()
        wait_for_turn(page, "said meanwhile")
        assert last_turns(page, 9) == ["Robot: left or right?", "Robot: said meanwhile"]
        page.locator(".candidate").first.click()
        until(lambda: robot.chosen == [0])
    other = LivePage()  # another process, which knows nothing of the first
    with serve(create_app(other, ScriptedRobot(other), token=None), "127.0.0.1", server.port):
        page.locator("#connection", has_text=re.compile("^Connected$")).wait_for()
        wait_for_turn(page, "Nothing was said yet")
        page.locator("#question").wait_for(state="hidden")
        assert page.locator(".turn").count() == 1


SERVER = """
import sys, time
from console_helpers import ScriptedRobot
from clue_ros.console.live import LivePage
from clue_ros.console.server import create_app, serve
page = LivePage()
robot = ScriptedRobot(page)
robot.ask(sys.argv[2])
with serve(create_app(page, robot, token=None), "127.0.0.1", int(sys.argv[1])) as server:
    print(server.url, flush=True)
    time.sleep(60)
"""


@contextmanager
def killed(port: int, question: str) -> Iterator[str]:
    """The address of a server in a process of its own, which is killed at the end."""
    command = [sys.executable, "-c", SERVER, str(port), question]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def test_the_page_survives_that_its_server_is_killed(new_page: NewPage) -> None:
    with killed(0, "this or that?") as url:
        page = new_page(url)
        wait_for_turn(page, "this or that")
    page.locator("#connection", has_text="Connection lost").wait_for()
    port = int(url.rsplit(":", 1)[1].strip("/"))
    with killed(port, "left or right?"):
        page.locator("#connection", has_text=re.compile("^Connected$")).wait_for()
        wait_for_turn(page, "left or right")
        assert last_turns(page, 9) == ["Robot: left or right?"]
        page.locator(".candidate").nth(1).click()
        wait_for_turn(page, "You chose 2")


def test_a_page_that_draws_slowly_drops_pictures(console: Console, new_page: NewPage) -> None:
    server, page_state, _ = console
    page = new_page("about:blank")
    page.add_init_script(
        """const draw = window.createImageBitmap;
        window.drawn = 0;
        window.createImageBitmap = async (blob) => {
            await new Promise((done) => setTimeout(done, 150));
            window.drawn += 1;
            return draw(blob);
        };"""
    )
    page.goto(server.url)
    page.locator("#connection", has_text="Connected").wait_for()
    end = threading.Event()
    shown = 0

    def camera() -> None:
        nonlocal shown
        while not end.wait(0.005):
            shown += 1
            page_state.show_frame(np.full((240, 320, 3), shown % 250, np.uint8))

    thread = threading.Thread(target=camera)
    thread.start()
    try:
        until(lambda: page.evaluate("window.drawn") >= 5)
    finally:
        end.set()
        thread.join()
    page_state.show_frame(np.full((240, 320, 3), 255, np.uint8))
    corner = "c => c.getContext('2d').getImageData(9, 9, 1, 1).data[0]"
    until(lambda: page.locator("#picture").evaluate(corner) > 252)
    drawn = page.evaluate("window.drawn")
    assert 5 <= drawn <= 12
    assert shown > 5 * drawn


def test_what_is_being_typed_stays_when_the_robots_settings_arrive(
    console: Console, new_page: NewPage
) -> None:
    server, page_state, robot = console
    page = new_page(server.url)

    def show(threshold: str, policy: str) -> None:
        page_state.show_options([
            Option("threshold", threshold, "", minimum=0, maximum=1),
            Option("policy", policy, "", ("both", "detector")),
        ])  # fmt: skip

    show("0.5", "both")
    page.fill("#option-threshold", "0.7")
    show("0.6", "detector")
    until(lambda: page.input_value("#option-policy") == "detector")
    assert page.input_value("#option-threshold") == "0.7"
    assert page.evaluate("document.activeElement.id") == "option-threshold"
    page.press("#option-threshold", "Tab")
    until(lambda: robot.options == [("threshold", "0.7")])
    show("0.4", "both")
    until(lambda: page.input_value("#option-threshold") == "0.4")
    page.fill("#option-threshold", "0.7")
    page.fill("#option-threshold", "0.4")
    show("0.3", "both")
    page.press("#option-threshold", "Tab")  # what was typed is what was there: no change
    until(lambda: page.input_value("#option-threshold") == "0.3")
    assert robot.options == [("threshold", "0.7")]


def test_what_is_not_possible_is_said(console: Console, new_page: NewPage) -> None:
    server, page_state, _ = console
    page = new_page(server.url)
    page.locator("#state", has_text="No robot").wait_for()
    assert "no robot has reported" in page.locator("#outcome").inner_text()
    page_state.show_options([Option("policy", "both", "", ("both", "broken"))])
    page.select_option("#option-policy", "broken")
    page.get_by_role("alert").filter(has_text="policy cannot be broken").wait_for()
    page_state.show_frame(b"no JPEG", (320, 240))
    page.locator("#empty", has_text="broken").wait_for()
    page_state.show_frame(np.zeros((240, 320, 3), np.uint8))
    page.locator("#empty").wait_for(state="hidden")
    page_state.show_status(Status("inactive", error="MODEL_ERROR", message="no such model"))
    page.locator("#state", has_text="Not active").wait_for()
