"""Headless Chromium for the tests of the web pages, and a server in a thread for them to open."""

from __future__ import annotations

import contextlib
import importlib.resources
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clue_ros.console.server import Server

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in _NAMES if (found := shutil.which(name))), None)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
)
AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")

NewPage = Callable[..., Any]


def why_no_browser() -> str:
    """Why browser tests cannot run here; empty if they can."""
    if CHROMIUM is None:
        return "chromium is not installed (apt-get install chromium)"
    for name in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed (scripts/install dev)"
    return ""


@contextlib.contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A headless browser of Playwright (`Browser`), with further arguments of its command line."""
    reason = why_no_browser()
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*ARGUMENTS, *arguments]
        )
        try:
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a module; skipped where chromium is missing."""
    with chromium() as started:
        yield started


@pytest.fixture
def new_page(browser: Any) -> Iterator[NewPage]:
    """What opens pages: call it with a URL, a width, a height, and options of a browser context.

    Each page has cookies of its own. After the test none may have met a JavaScript error, or what
    the content security policy forbids.
    """
    with contextlib.ExitStack() as stack:
        errors: list[str] = []

        def open_page(url: str, width: int = 1280, height: int = 800, **options: Any) -> Any:
            options.setdefault("reduced_motion", "reduce")
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            stack.callback(context.close)
            context.set_default_timeout(60_000)  # reached only when a test fails
            page = context.new_page()
            watch_errors(page, errors)
            page.goto(url)
            return page

        yield open_page
        assert errors == []


def watch_errors(page: Any, errors: list[str]) -> None:
    """Add to `errors` each JavaScript error and each breach of the page's security policy."""
    page.on("pageerror", lambda error: errors.append(str(error)))

    def console(message: Any) -> None:
        if "Content Security Policy" in message.text:
            errors.append(message.text)

    page.on("console", console)


@contextlib.contextmanager
def serving(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Run an app on a free port in a thread; `.url` is its address, with the token."""
    from clue_ros.console.server import serve

    with serve(app, host, port) as server:
        yield server


def axe_violations(page: Any) -> list[str]:
    """What axe finds against WCAG 2.1 A and AA on the page as it is: one line for each element."""
    script = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js")
    page.evaluate(script.read_text("utf-8"))
    options = {"runOnly": {"type": "tag", "values": list(AXE_TAGS)}}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {node['html']} ({node['failureSummary']})"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]
