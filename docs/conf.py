# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the site that `scripts/docs` and rosdoc2 build of these pages with Sphinx.

The pages are plain Markdown, so that they read the same in a repository's browser. The index of the
site is README.md; its sections are the parts of the site, and the pages in its tables their order.
"""

import argparse
import importlib
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

_package = ElementTree.parse(DOCS.parent / "package.xml").getroot()
project = "clue_ros"
author = copyright = "clue_ros contributors"
release = version = _package.findtext("version", "")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
root_doc = "index"
exclude_patterns = ["README.md"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = f"clue_ros {release}"
nitpicky = False

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
autodoc_mock_imports = ["rclpy", "clue_msgs", "std_srvs", "sensor_msgs", "py_trees", "cv_bridge"]
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}


def parts() -> str:
    """README.md with a hidden table of contents for each section that lists pages."""
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    head, *sections = re.split(r"(?m)^(?=## )", text)
    whole = [head]
    for section in sections:
        title = section.splitlines()[0].removeprefix("## ")
        pages = re.findall(r"(?m)^\| \[[^\]]*\]\(([\w-]+)\.md\)", section)
        listed = "\n".join(pages)
        whole.append(f"{section}\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n\n")
    return "".join(whole)


def commands() -> str:
    """The help of every command of `clue`; of those whose extra is missing, that it is."""
    from clue_ros.cli import COMMANDS, Command

    os.environ["COLUMNS"] = "100"
    whole = [(DOCS / "cli.md").read_text(encoding="utf-8")]
    for name, found in COMMANDS.items():
        below = {"": found} if isinstance(found, Command) else found
        for part, command in below.items():
            words = f"clue {name} {part}".strip()
            parser = argparse.ArgumentParser(prog=words, description=f"{command.help}.")
            try:
                importlib.import_module(command.module).add_arguments(parser)
                told = parser.format_help()
            except ModuleNotFoundError as error:
                told = f"{command.help}. Its options need the package {error.name} to be shown."
            whole.append(f"## {words}\n\n```text\n{told}\n```\n")
    return "\n".join(whole)


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Fill the index, and point links that leave this folder at files to download."""
    made = {"index": parts, "cli": commands}
    text = made[page]() if page in made else source[0]
    text = text.replace("](README.md", "](index.md")
    text = re.sub(r"\]\((\.\./[^)#\s]+\.md)(#[^)\s]*)?\)", r"](path:\1)", text)
    source[0] = re.sub(r"\[([^\]]*)\]\(\.\./[\w/]+\)", r"\1", text)  # folders


def shorten(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Keep the first paragraphs of a module's text: sketches of its use follow."""
    if what == "module":
        end = next((at for at, line in enumerate(lines) if line.startswith("    ")), len(lines))
        while end and lines[end - 1].strip():
            end -= 1
        del lines[end or len(lines) :]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", shorten)
