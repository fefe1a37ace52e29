# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of docs/console.md: the live page in headless Chromium, on the demo's pictures.

Run from the repository root: scripts/run python scripts/console_pictures.py [FOLDER]
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.console.server import create_app, serve
from clue_ros.grounders import load_grounder
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder

COLORS = 200  # of the PNG's palette: a page has few, and the files stay small


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    page = LivePage()
    pictures = {path.name: path for path in sorted(demo_folder().glob("*.png"))}
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
        browser.close()


def _ask(shown: Page, picture: str, request: str) -> None:
    shown.select_option("#option-picture", picture)
    shown.locator("#source", has_text=re.compile(picture)).wait_for()
    shown.fill("#say", request)
    shown.press("#say", "Enter")
    shown.locator(".candidate:enabled").first.wait_for()
    shown.locator(".mark").first.wait_for()


def _save(shown: Page, path: Path) -> None:
    with Image.open(io.BytesIO(shown.screenshot())) as picture:
        picture.convert("RGB").quantize(COLORS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
