"""The review page in a browser: what a person does there, and what is on disk afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import NewPage, axe_violations, serving
from recorded_episodes import FOUND, record_episodes

from clue_ros.console.review import review_router
from clue_ros.console.server import create_app
from clue_ros.dialogue.reviews import Review, read_review

HTML = '<img src="x" onerror="document.title=\'owned\'"> <b>bold</b>'


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Three episodes: with a question, without an answer, and the newest with markup in it."""
    return record_episodes(
        tmp_path / "episodes",
        {},
        {"texts": ("the mug", "which mug?"), "ended": False},
        {"texts": (f"pick {HTML}", f"which {HTML}?", "it"), "label": HTML},
    )


@pytest.fixture
def url(paths: list[Path]) -> Iterator[str]:
    app = create_app(None, None, token=None, routers=[review_router(paths[0].parent)])
    with serving(app) as server:
        yield f"{server.url}review"


def opened(new_page: NewPage, url: str, path: Path, **more: Any) -> Any:
    """The page with an episode open, and no way on after a verdict."""
    page = new_page(f"{url}#{path.stem}", **more)
    page.wait_for_selector("#content:not([hidden])")
    page.locator("#advance").uncheck()
    return page


def saved(page: Any, path: Path) -> Review | None:
    """The review on disk, once the page says that it is there."""
    page.locator("#done", has_text="Episode").wait_for()
    return read_review(path)


def corner(page: Any, x: float, y: float) -> tuple[float, float]:
    """Where a pixel of the picture is on the screen."""
    shown = page.locator("#frame").bounding_box()
    return shown["x"] + x / 80 * shown["width"], shown["y"] + y / 60 * shown["height"]


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*corner(page, *start))
    page.mouse.down()
    page.mouse.move(*corner(page, *((a + b) / 2 for a, b in zip(start, end, strict=True))))
    page.mouse.move(*corner(page, *end))
    page.mouse.up()


def sides(page: Any) -> list[str]:
    return [side(page, name).input_value() for name in ("Left", "Top", "Right", "Bottom")]


def side(page: Any, name: str) -> Any:
    return page.get_by_label(name, exact=True)


def test_the_newest_episode_is_open_and_its_words_are_text(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = new_page(url)
    page.wait_for_selector("#content:not([hidden])")
    rows = page.locator("#episodes button")
    assert rows.count() == 3
    assert HTML in page.locator("#title").inner_text()
    assert HTML in rows.first.inner_text()
    assert HTML in page.locator("#turns").inner_text()
    assert page.locator("#label").input_value() == HTML
    assert page.locator("#turns img, #turns b, #title img, #episodes img").count() == 0
    assert page.title() == "Review · clue_ros"
    assert page.locator("#counts").inner_text().split("\n")[-1] == "3 open"
    assert sides(page) == [str(round(side)) for side in FOUND.as_list()]


def test_keys_confirm_reject_undo_and_move_on(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = new_page(url)
    page.wait_for_selector("#content:not([hidden])")
    page.keyboard.press("c")
    page.locator("#title", has_text="Episode 2").wait_for()
    review = read_review(paths[2])
    assert review is not None
    assert (review.verdict, review.box) == ("confirmed", None)
    assert page.locator("#confirm").is_disabled(), "it ended without a box"
    page.keyboard.press("c")
    page.get_by_text("There is no box").wait_for()
    page.keyboard.press("r")
    page.locator("#title", has_text="Episode 1").wait_for()
    review = read_review(paths[1])
    assert review is not None
    assert review.verdict == "rejected"
    page.keyboard.press("k")
    page.locator("#title", has_text="Episode 2").wait_for()
    page.locator("#state", has_text="rejected").wait_for()
    page.keyboard.press("u")
    page.locator("#state", has_text="open").wait_for()
    assert read_review(paths[1]) is None
    page.keyboard.press("j")
    page.locator("#title", has_text="Episode 1").wait_for()
    page.locator("#label").press_sequentially("crj")
    assert "000001" in page.url, "letters typed in a field are no keys"
    assert read_review(paths[0]) is None


def test_dragging_a_corner_corrects_the_box_and_a_reload_shows_it(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    drag(page, (40, 30), (60, 45))
    assert sides(page) == ["8", "6", "60", "45"]
    assert page.locator(".mark.robot").count() == 1, "the robot's own box stays in sight"
    assert page.locator("#confirm").inner_text() == "Save correction"
    page.locator("#label").fill("red cube")
    page.locator("#confirm").click()
    review = saved(page, paths[0])
    assert review is not None
    assert (review.verdict, review.label) == ("corrected", "red cube")
    assert review.box == pytest.approx((0.1, 0.1, 0.75, 0.75))
    page.reload()
    page.locator("#state", has_text="corrected").wait_for()
    assert sides(page) == ["8", "6", "60", "45"]
    assert page.locator("#label").input_value() == "red cube"
    assert "corrected" in page.locator(f"[data-name={paths[0].stem}]").inner_text()
    page.locator("#reset").click()
    page.locator("#label").fill("the red block")
    assert page.locator("#confirm").inner_text() == "Confirm"
    page.locator("#confirm").click()
    page.locator("#state", has_text="confirmed").wait_for()
    assert json.loads(paths[0].read_text())[0]["ref_list"][0]["category"] == "the red block"


def test_edges_the_inside_and_the_picture_can_be_dragged(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    drag(page, (8, 18), (2, 18))
    assert sides(page) == ["2", "6", "40", "30"]
    drag(page, (20, 18), (30, 28))
    assert sides(page) == ["12", "16", "50", "40"]
    drag(page, (30, 30), (200, 30))
    assert sides(page) == ["42", "16", "80", "40"], "it stays in the picture"
    drag(page, (30, 50), (5, 5))
    assert sides(page) == ["5", "5", "30", "50"], "a new one, drawn from its lower right corner"
    page.locator("#draw").click()
    drag(page, (10, 10), (20, 20))
    assert sides(page) == ["10", "10", "20", "20"], "within the old one"
    drag(page, (20, 20), (2, 2))
    assert sides(page) == ["2", "2", "10", "10"], "a corner beyond the opposite one"


def test_the_keyboard_corrects_the_box(new_page: NewPage, url: str, paths: list[Path]) -> None:
    page = opened(new_page, url, paths[0])
    page.locator(".box-editor-area").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert sides(page) == ["9", "7", "41", "31"]
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    assert sides(page) == ["9", "7", "42", "30"]
    assert "9, 7 to 42, 30" in page.locator(".box-editor-area").get_attribute("aria-label")
    side(page, "Right").fill("44")
    side(page, "Right").press("Enter")
    assert sides(page) == ["9", "7", "44", "30"]
    side(page, "Right").fill("999")
    side(page, "Right").press("Tab")
    assert sides(page) == ["9", "7", "80", "30"], "it stays in the picture"
    page.locator("#confirm").focus()
    page.keyboard.press("c")
    review = saved(page, paths[0])
    assert review is not None
    assert review.box == pytest.approx((9 / 80, 7 / 60, 1.0, 0.5))


def test_a_held_arrow_is_faster_and_a_removed_box_comes_back(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    page.locator(".box-editor-area").focus()
    page.keyboard.down("ArrowRight")
    page.keyboard.down("ArrowRight")  # the key repeats
    page.keyboard.up("ArrowRight")
    assert sides(page) == ["13", "6", "45", "30"]
    page.keyboard.press("Delete")
    assert sides(page) == ["", "", "", ""]
    assert page.locator("#confirm").is_disabled()
    page.locator("#reset").click()
    assert sides(page) == ["8", "6", "40", "30"]
    assert page.locator("#confirm").inner_text() == "Confirm"


def test_arrows_step_through_the_replay_where_no_box_is_shown(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    page.locator("#turns button").nth(1).click()
    page.mouse.click(*corner(page, 70, 50))
    page.keyboard.press("ArrowLeft")
    assert page.locator("#step").inner_text().startswith("Step 1 of 4")
    assert sides(page) == ["8", "6", "40", "30"]
    page.mouse.move(*corner(page, 50, 40))
    page.mouse.down()
    page.mouse.move(*corner(page, 60, 50))
    assert page.locator("#step").inner_text().startswith("Step 4 of 4"), "a drag goes to the box"
    assert page.locator(".box-editor-box").is_visible()
    assert page.locator(".mark.robot").count() == 1, "the robot's box is in sight during the drag"
    page.mouse.up()
    assert sides(page) == ["50", "40", "60", "50"]


def test_a_box_can_be_given_to_an_episode_that_has_none(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[1])
    assert "ANSWER_TIMEOUT" in page.locator("#note").inner_text()
    page.locator("#draw").focus()
    page.keyboard.press("Enter")
    assert sides(page) == ["32", "24", "48", "36"]
    page.keyboard.press("ArrowLeft")
    assert sides(page) == ["31", "24", "47", "36"], "the new box has the focus"
    page.keyboard.press("c")
    review = saved(page, paths[1])
    assert review is not None
    assert review.verdict == "corrected"


def test_the_replay_steps_through_turns_with_attention_and_candidates(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    assert page.locator("#step").inner_text() == "Step 4 of 4: the box"
    assert page.locator("#attention").is_hidden()
    turns = page.locator("#turns button")
    turns.nth(0).click()
    assert page.locator("#step").inner_text() == "Step 1 of 4: ambiguity 0.90, asks from 0.50"
    assert page.locator("#attention").is_visible()
    assert page.locator(".box-editor-box").is_hidden()
    page.locator("#forward").click()
    assert page.locator(".mark").all_inner_texts() == ["1", "2"]
    page.locator("#show-attention").uncheck()
    assert page.locator("#attention").is_hidden()
    turns.nth(2).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    assert page.locator("#step").inner_text().startswith("Step 3 of 4: ambiguity 0.20")
    turns.nth(2).click()
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    page.locator("#step", has_text="Step 4").wait_for()
    assert page.locator("#play").get_attribute("aria-pressed") == "false"


def test_filters_show_episodes_by_verdict_and_end(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0])
    page.locator("#outcome option[value=ANSWER_TIMEOUT]").wait_for(state="attached")
    page.locator("#outcome").select_option("ANSWER_TIMEOUT")
    page.locator("#episodes li:only-child").wait_for()
    page.locator("#outcome").select_option("")
    page.locator("#verdict").select_option("rejected")
    page.get_by_text("No episode is like that").wait_for()


def test_the_export_is_downloaded(new_page: NewPage, url: str, paths: list[Path]) -> None:
    page = opened(new_page, url, paths[0])
    with page.expect_download() as download:
        page.locator("#export").click()
    assert download.value.suggested_filename == "episodes-invig.zip"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_accessible_and_fits(
    new_page: NewPage, url: str, paths: list[Path], width: int, scheme: str
) -> None:
    page = opened(new_page, url, paths[0], width=width, color_scheme=scheme)
    page.locator("#reject").click()
    saved(page, paths[0])
    assert axe_violations(page) == []
    page.locator("#turns button").nth(1).click()
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("#frame", "#confirm", "#next", "#sides input >> nth=3", "#turns"):
        box = page.locator(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_a_finger_drags_the_box_and_scrolls_elsewhere(
    new_page: NewPage, url: str, paths: list[Path]
) -> None:
    page = opened(new_page, url, paths[0], width=400, has_touch=True)
    page.locator("#frame").scroll_into_view_if_needed()
    session = page.context.new_cdp_session(page)

    def swipe(start: tuple[float, float], end: tuple[float, float]) -> None:
        for kind, point in (("touchStart", start), ("touchMove", end), ("touchEnd", None)):
            points = [] if point is None else [dict(zip("xy", corner(page, *point), strict=True))]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    swipe((40, 30), (50, 40))
    assert sides(page) == ["8", "6", "50", "40"]
    swipe((60, 50), (70, 55))
    assert sides(page) == ["8", "6", "50", "40"], "outside of the box a finger scrolls"
    page.locator("#draw").click()
    page.locator("#frame").scroll_into_view_if_needed()
    swipe((60, 45), (70, 55))
    assert sides(page) == ["60", "45", "70", "55"]
