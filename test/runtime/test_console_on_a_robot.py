"""The operator's page in a browser, on a real robot: each node in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()
pytest.importorskip("fastapi")

from browser import NewPage  # noqa: E402
from ros_fixtures import LONG  # noqa: E402
from ros_helpers import ROOT, Client, Process, ros_client, wait_until  # noqa: E402

from clue_ros.images import load_image  # noqa: E402
from clue_ros.model.loading import find_model  # noqa: E402
from clue_ros.nodes.supervisor import supervised  # noqa: E402

MUGS, BLOCKS = ROOT / "demo" / "mugs.png", ROOT / "demo" / "yellow_blocks.png"
PERCEPTION = {"model": "household", "autostart": True, "answer_timeout": LONG}
TIMEOUT = 1000 * ros_helpers.TIMEOUT  # milliseconds; reached only when a test fails


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("robot")


@pytest.fixture(scope="module")
def perception(folder: Path) -> Iterator[list[Process]]:
    """Give perception, under its supervisor; a test may put another process in its place."""
    processes = [Process("perception", folder / "perception.log", "--keep", parameters=PERCEPTION)]
    yield processes
    processes[-1].stop()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Give a node that publishes the demo's mugs 10 times a second."""
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image

    mugs = load_image(MUGS)
    with ros_client() as made:
        camera = made.node.create_publisher(Image, "image", qos_profile_sensor_data)
        stop = threading.Event()

        def show() -> None:
            while not stop.wait(0.1):
                camera.publish(made.image(mugs))

        thread = threading.Thread(target=show)
        thread.start()
        yield made
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def url(folder: Path, perception: list[Process], client: Client) -> Iterator[str]:
    """Give the address that the console's log names, once perception is active."""
    console = Process("console", folder / "console.log", parameters={"port": 0, "token": "open"})
    try:
        wait_until(lambda: "the operator's page:" in console.text(), "the page")
        found = re.search(r"the operator's page: (\S+)", console.text())
        assert found
        wait_until(lambda: "active, looking" in perception[-1].text(), "perception")
        yield found[1]
    finally:
        assert console.stop() == 0, console.text()
    assert "Traceback" not in console.text()


@pytest.fixture
def page(url: str, new_page: NewPage) -> Any:
    """Give an open page once the robot is ready."""
    page = new_page(url)
    has_state(page, "idle", "ended")
    page.wait_for_selector("#option-threshold", timeout=TIMEOUT)
    return page


def has_state(page: Any, *states: str) -> None:
    """Wait until the page shows one of the states."""
    names = ", ".join(f"#state[data-state={state}]" for state in states)
    page.wait_for_selector(names, timeout=TIMEOUT)


def no_question(page: Any) -> None:
    until(page, lambda: page.locator("#options .candidate").count() == 0, "no open question")


def say(page: Any, text: str) -> None:
    page.fill("#say", text)
    page.press("#say", "Enter")


def ask(page: Any, text: str) -> None:
    """Say it until there is a question; DDS can lose the first words to a node just found.

    A killed node's subscription stays matched for DDS' lease of 20 s, too: a person says it again.
    """
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    for patience in (TIMEOUT / 4, TIMEOUT):
        say(page, text)
        with suppress(PlaywrightTimeout):
            page.wait_for_selector("#options .candidate:enabled", timeout=patience)
            return
    pytest.fail(f"no question: the page has {turns(page)}")


def turns(page: Any) -> list[str]:
    """Return what the chat has, such as "You: pick up the mug"."""
    script = """turns => turns.map(turn => {
        const who = turn.querySelector(".who");
        return who ? who.textContent + ": " + turn.textContent.slice(who.textContent.length) : "";
    })"""
    found: list[str] = page.eval_on_selector_all("#chat .turn", script)
    return [turn for turn in found if turn]


def until(page: Any, condition: Callable[[], Any], what: str) -> Any:
    """Wait, letting the browser go on meanwhile, for the first true value of `condition`."""
    end = time.monotonic() + ros_helpers.TIMEOUT
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        page.wait_for_timeout(50)
    return pytest.fail(f"{what}: the page has {turns(page)}")


def test_a_whole_dialogue_is_held_on_the_page(page: Any) -> None:
    until(page, lambda: page.get_attribute("#picture", "width") == "480", "the camera's picture")
    ask(page, "pick up the mug")
    has_state(page, "waiting")
    until(page, lambda: page.locator("#marks rect").count() >= 2, "the candidates' boxes")
    until(page, lambda: "".join(turns(page)[-1:]).startswith("Robot: "), "the question")
    asked = len(turns(page))
    assert page.locator("#options .candidate .name").first.inner_text()
    say(page, "the pink one")
    has_state(page, "ended")
    page.wait_for_selector("#object dd", timeout=TIMEOUT)
    assert "mug" in page.inner_text("#object")
    assert "depth" in page.inner_text("#object")  # why it has no position
    until(page, lambda: len(turns(page)) >= asked + 2, "the robot's last words")
    assert turns(page)[0] == "You: pick up the mug"
    assert turns(page)[asked] == "You: the pink one"
    until(page, lambda: "decoding" in page.inner_text("#latency"), "latency by stage")
    assert page.inner_text("#level") == "ok"
    assert page.locator("#options .candidate").count() == 0


def test_two_pages_show_the_same_dialogue_and_either_may_answer(
    page: Any, url: str, new_page: NewPage
) -> None:
    other = new_page(url, 390, 800)
    ask(page, "pick up the mug")
    other.wait_for_selector("#options .candidate:enabled", timeout=TIMEOUT)
    other.click("#options .candidate >> nth=0")
    for shown in (page, other):
        no_question(shown)
    for shown in (page, other):
        shown.click("#stop")
        has_state(shown, "ended")
    until(page, lambda: turns(page)[-3:] == turns(other)[-3:], "the same chat")


def test_a_dropped_photograph_is_looked_at_until_the_camera_is_wanted_again(page: Any) -> None:
    page.set_input_files("#file", str(BLOCKS))
    until(page, lambda: page.inner_text("#source") == BLOCKS.name, "the photograph's name")
    say(page, "pick up the yellow block")
    page.wait_for_selector("#options .candidate:enabled", timeout=TIMEOUT)
    count = len(turns(page))
    say(page, "the lower one")
    until(page, lambda: len(turns(page)) >= count + 2, "the robot's last words")
    has_state(page, "ended")
    assert "block" in page.inner_text("#object")
    assert turns(page)[count] == "You: the lower one"
    page.click("#camera")
    until(page, lambda: page.locator("#camera").is_hidden(), "the camera again")


def test_settings_change_perceptions_parameters(page: Any, client: Client) -> None:
    page.select_option("#option-policy", "detector")
    until(page, lambda: page.input_value("#option-policy") == "detector", "the policy")
    page.fill("#option-threshold", "1.0")
    page.press("#option-threshold", "Tab")
    until(page, lambda: page.input_value("#option-threshold") == "1.0", "the threshold")
    until(page, lambda: not client.ground("pick up the mug").is_question, "the new threshold")
    folder = str(find_model("household"))
    page.fill("#option-model", folder)
    page.press("#option-model", "Tab")
    until(page, lambda: "is ready after" in page.inner_text("body"), "the notice")
    until(
        page, lambda: client.ground("pick up the mug", force=True).error_code == 0, "an image again"
    )
    until(page, lambda: folder in page.inner_text("#health"), "the model in the diagnostics")


def test_a_node_that_its_supervisor_starts_again_has_its_own_settings_shown(
    page: Any, perception: list[Process]
) -> None:
    """The last test has changed them; the new process has those of its start."""
    page.fill("#option-max_questions", "7")
    page.press("#option-max_questions", "Tab")
    until(page, lambda: page.input_value("#option-max_questions") == "7", "the change")
    os.kill(wait_until(lambda: supervised(perception[-1].popen.pid), "the node"), signal.SIGKILL)
    until(page, lambda: page.input_value("#option-max_questions") != "7", "the new process's")
    assert page.input_value("#option-model") == "household"
    has_state(page, "idle")


def test_a_killed_perception_is_lost_until_it_is_started_again(
    page: Any, perception: list[Process], folder: Path
) -> None:
    ask(page, "pick up the mug")
    has_state(page, "waiting")
    supervisor = perception[-1]
    node = wait_until(lambda: supervised(supervisor.popen.pid), "the node")
    supervisor.kill()
    wait_until(lambda: not Path(f"/proc/{node}").exists(), "its end")
    has_state(page, "lost")
    assert page.locator("#options .candidate").count() == 0
    assert page.inner_text("#level") == "stale"
    say(page, "pick up the mug")
    until(page, lambda: "sends nothing" in page.inner_text(".notices"), "the refusal")
    perception.append(Process("perception", folder / "perception_again.log", parameters=PERCEPTION))
    has_state(page, "idle")
    page.click(".notice button")
    ask(page, "pick up the mug")
    assert page.locator("#options .candidate:enabled").count() >= 2
    page.click("#stop")
    has_state(page, "ended")


def test_a_wrong_token_is_refused(url: str, new_page: NewPage) -> None:
    address = url.split("?")[0]
    page = new_page(f"{address}live?token=wrong")
    assert "not the right one" in page.inner_text("body")
    assert page.locator("#say").count() == 0


def test_a_port_that_is_taken_ends_the_program_with_one_line(url: str, tmp_path: Path) -> None:
    found = re.search(r":(\d+)/", url)
    assert found
    port = found[1]
    second = Process("console", tmp_path / "log", parameters={"port": port})
    assert second.popen.wait(ros_helpers.TIMEOUT) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in second.text()
    assert "Traceback" not in second.text()
    second.stop()
