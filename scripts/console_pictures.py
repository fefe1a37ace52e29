# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of docs/console.md: the pages in headless Chromium, on the demo's pictures.

Run from the repository root: scripts/run python scripts/console_pictures.py [FOLDER]
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from clue_ros.console.demo_page import by_name, demo_pictures
from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.console.review import review_router
from clue_ros.console.server import create_app, serve
from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.episodes import GROUNDED, Episode, episode_row
from clue_ros.dialogue.types import Grounding, Question
from clue_ros.files import replace_file
from clue_ros.grounders import load_grounder
from clue_ros.images import load_image
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder

DIALOGUES = (
    ("mugs.png", "pick up the mug", "the left one"),
    ("mugs.png", "pick up the left mug", "the left one"),
    ("mugs.png", "pick up the mug", "the right one"),
    ("mugs.png", "take the mug", "the left one"),
)
"""Recorded for the review page: a picture of the demo, a request, the answer to any question."""
COLORS = 256  # of the PNG's palette: a page has few, and the files stay small


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    page = LivePage()
    pictures = by_name(demo_pictures())
    robot = PictureRobot(page, pictures, load_grounder, [DEFAULT_MODEL])
    app = create_app(page, robot, token=None)
    with serve(app, "localhost", 0) as server, contextlib.closing(robot), sync_playwright() as play:
        robot.start()
        robot.wait_until_loaded()
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        shown = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        shown.set_default_timeout(60_000)
        shown.goto(server.url)
        _ask(shown, "mugs.png", "pick up the mug")
        _save(shown, folder / "console_question.png")
        shown.emulate_media(color_scheme="dark")
        shown.locator(".candidate", has_text="the pink one").click()
        shown.locator(".found").wait_for()
        shown.set_viewport_size({"width": 400, "height": 860})
        shown.evaluate("scrollTo(0, 0)")
        _save(shown, folder / "console_phone.png")
        with tempfile.TemporaryDirectory() as episodes:
            _record(Path(episodes))
            _review(browser, Path(episodes), folder / "console_review.png")
        browser.close()


def _ask(shown: Page, picture: str, request: str) -> None:
    shown.select_option("#option-picture", picture)
    shown.locator("#source", has_text=re.compile(picture)).wait_for()
    shown.fill("#say", request)
    shown.press("#say", "Enter")
    shown.locator(".candidate:enabled").first.wait_for()
    shown.locator(".mark").first.wait_for()


def _record(folder: Path) -> None:
    """Dialogues of the default model, written as the robot's recorder writes them."""
    clue = load_grounder(DEFAULT_MODEL)
    for number, (name, request, answer) in enumerate(DIALOGUES, start=1):
        image = load_image(demo_folder() / name)
        conversation = Conversation(request)
        replies: list[Question | Grounding] = []
        end = converse(clue, clue.look(image), conversation, partial(_say, answer), replies.append)
        assert end is not None
        turns = tuple(conversation.spoken)
        episode = Episode(
            f"{number:08d}",
            image,
            turns,
            tuple(replies),
            end.code if end.grounding is None else GROUNDED,
            end.message,
            end.grounding,
            stamp=turns[0][1],
        )
        path = folder / f"episode-{number:06d}-{number:08d}.json"
        row = episode_row(episode, path.with_suffix(".png").name)
        replace_file(path, json.dumps([row]).encode())
        Image.fromarray(image).save(path.with_suffix(".png"))


def _say(answer: str, _question: Question) -> str:
    return answer


def _review(browser: Browser, episodes: Path, path: Path) -> None:
    app = create_app(None, None, token=None, routers=[review_router(episodes)])
    with serve(app, "localhost", 0) as server:
        shown = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        shown.goto(server.url)
        shown.locator("#confirm:enabled").wait_for()
        shown.keyboard.press("c")
        shown.locator("#title", has_text=f"Episode {len(DIALOGUES) - 1}:").wait_for()
        shown.locator(".box-editor-area").focus()
        for _ in range(6):
            shown.keyboard.press("Shift+ArrowRight")
        _save(shown, path)


def _save(shown: Page, path: Path) -> None:
    with Image.open(io.BytesIO(shown.screenshot())) as picture:
        colored = picture.convert("RGB")
        palette = colored.quantize(COLORS, Image.Quantize.MAXCOVERAGE)
        colored.quantize(palette=palette).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
