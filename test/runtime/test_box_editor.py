"""The box editor of the pages, in a real browser: mouse, finger, keyboard, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import NewPage, axe_violations, serving
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from clue_ros.console.server import create_app

PAGE = """<!doctype html><html lang="en"><head><title>Editor</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/common.css">
<link rel="stylesheet" href="/static/box_editor.css">
<script type="module" src="/editor.js"></script>
</head><body><main><h1>Editor</h1><div id="narrow"><div id="holder"><img alt="A picture"
 src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='640' height='480'/%3E">
</div></div></main></body></html>"""
SCRIPT = """import { BoxEditor } from "/static/box_editor.js";
window.changes = [];
document.getElementById("narrow").style.width = "320px";
window.editor = new BoxEditor(document.getElementById("holder"), { width: 640, height: 480 },
  (box) => changes.push(box), { label: "Your object" });"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    router = APIRouter()

    @router.get("/editor")
    def page() -> Response:
        return HTMLResponse(PAGE)

    @router.get("/editor.js")
    def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    with serving(create_app(None, None, token=None, routers=[router])) as server:
        yield f"{server.url}editor"


@pytest.fixture
def page(address: str, new_page: NewPage) -> Any:
    opened = new_page(address, width=400, has_touch=True)
    opened.locator(".box-editor-area").wait_for()
    return opened


def box(page: Any) -> list[int] | None:
    found: list[int] | None = page.evaluate("editor.box")
    return found


def changes(page: Any) -> list[Any]:
    found: list[Any] = page.evaluate("changes")
    return found


def corner(page: Any) -> tuple[float, float]:
    frame = page.locator(".box-editor-area").bounding_box()
    return frame["x"], frame["y"]


def drag(page: Any, start: tuple[int, int], end: tuple[int, int]) -> None:
    """By mouse, in pixels of the screen from the picture's corner; one is two of the image."""
    x, y = corner(page)
    page.mouse.move(x + start[0], y + start[1])
    page.mouse.down()
    page.mouse.move(x + (start[0] + end[0]) / 2, y + (start[1] + end[1]) / 2)
    page.mouse.move(x + end[0], y + end[1])
    page.mouse.up()


def test_the_mouse_draws_moves_and_resizes(page: Any) -> None:
    drag(page, (60, 90), (10, 20))  # from any corner to the opposite one
    assert box(page) == [20, 40, 120, 180]
    drag(page, (30, 50), (40, 60))
    assert box(page) == [40, 60, 140, 200]
    drag(page, (70, 100), (100, 200))  # at the lower right corner
    assert box(page) == [40, 60, 200, 400]
    drag(page, (20, 30), (0, 0))  # at the upper left one
    assert box(page) == [0, 0, 200, 400]
    drag(page, (50, 100), (500, 700))  # stops at the edges
    assert box(page) == [440, 80, 640, 480]
    assert len(changes(page)) == 5  # one for each drag
    drag(page, (10, 10), (11, 10))  # a click changes nothing
    assert len(changes(page)) == 5


def test_each_edge_is_dragged_anywhere_along_it(page: Any) -> None:
    page.evaluate("editor.box = [100, 100, 300, 300]")  # on the screen from 50 to 150
    drag(page, (50, 70), (30, 200))
    drag(page, (100, 50), (10, 20))
    drag(page, (150, 120), (160, 40))
    drag(page, (60, 150), (60, 170))
    assert box(page) == [60, 40, 320, 340]
    assert len(changes(page)) == 4
    drag(page, (33, 60), (13, 60))  # held beside the edge, it does not jump
    assert box(page) == [20, 40, 320, 340]
    drag(page, (10, 60), (180, 60))  # over the opposite one
    assert box(page) == [320, 40, 360, 340]


def test_a_finger_draws(page: Any) -> None:
    x, y = corner(page)
    touch = page.context.new_cdp_session(page)
    points = [(10, 20), (40, 50), (60, 90)]
    for kind, (dx, dy) in zip(("touchStart", "touchMove", "touchMove"), points, strict=True):
        point = {"x": x + dx, "y": y + dy}
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert box(page) == [20, 40, 120, 180]


def test_a_screen_reader_hears_what_the_box_is_for_and_where_it_is(page: Any) -> None:
    area = page.locator(".box-editor-area")
    assert area.get_attribute("aria-label").startswith("Your object: none.")
    drag(page, (60, 90), (10, 20))
    wanted = "Your object: from 20, 40 to 120, 180 of 640 by 480 pixels."
    assert area.get_attribute("aria-label").startswith(wanted)
    assert page.evaluate("document.activeElement.className").startswith("box-editor-area")


def test_a_hidden_box_takes_no_key_until_it_is_shown(page: Any) -> None:
    page.evaluate("editor.box = [10, 10, 30, 30]; editor.focus(); editor.hidden = true")
    assert page.locator(".box-editor-box").is_hidden()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Delete")
    assert box(page) == [10, 10, 30, 30]
    page.evaluate("editor.hidden = false; editor.focus()")
    page.keyboard.press("Control+ArrowRight")
    assert box(page) == [11, 10, 31, 30]


def test_the_keyboard_makes_moves_resizes_and_removes(page: Any) -> None:
    page.locator(".box-editor-area").focus()
    steps = {
        "Enter": [256, 192, 384, 288],
        "ArrowRight": [263, 192, 391, 288],
        "ArrowUp": [263, 187, 391, 283],
        "Shift+ArrowLeft": [263, 187, 384, 283],
        "Shift+ArrowDown": [263, 187, 384, 288],
        "Control+ArrowLeft": [262, 187, 383, 288],
        "Control+Shift+ArrowUp": [262, 187, 383, 287],
        "Delete": None,
    }
    for key, wanted in steps.items():
        page.keyboard.press(key)
        assert box(page) == wanted, key
    assert changes(page) == list(steps.values())


def test_numbers_are_typed_and_kept_inside(page: Any) -> None:
    for name, value in (("Left", 50), ("Top", 9999), ("Right", 20), ("Bottom", 470)):
        assert changes(page) == []  # nothing before all four are there
        page.get_by_label(name, exact=True).fill(str(value))
        page.get_by_label(name, exact=True).press("Tab")
    assert box(page) == [20, 470, 50, 480]
    assert page.get_by_label("Left", exact=True).input_value() == "20"
    page.get_by_label("Right", exact=True).fill("21")  # at least four pixels wide
    page.get_by_label("Right", exact=True).press("Tab")
    assert box(page) == [20, 470, 24, 480]


def test_the_program_sets_disables_and_removes_it(page: Any) -> None:
    page.evaluate("editor.box = [10, 10, 30, 30]")
    assert box(page) == [10, 10, 30, 30]
    page.evaluate("editor.disabled = true")
    drag(page, (60, 90), (10, 20))
    page.locator(".box-editor-area").focus()
    page.keyboard.press("Delete")
    assert box(page) == [10, 10, 30, 30]
    assert page.get_by_label("Left", exact=True).is_disabled()
    assert axe_violations(page) == []
    page.evaluate("editor.disabled = false")
    assert axe_violations(page) == []
    page.evaluate("editor.box = null")
    assert page.locator(".box-editor-box").is_hidden()
    assert changes(page) == []
    page.evaluate("editor.remove()")
    assert page.locator(".box-editor-area, fieldset").count() == 0
