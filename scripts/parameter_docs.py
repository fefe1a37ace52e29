# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes config/clue.yaml and docs/parameters.md's tables from the parameter tables of the nodes.

python -m scripts.parameter_docs        # in the repository
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path

from clue_ros.nodes.parameter_tables import NODES
from clue_ros.nodes.parameters import Change, Parameter

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config" / "clue.yaml"
PAGE = ROOT / "docs" / "parameters.md"
_HEAD = """\
# Every parameter of every node with its default, made by `python -m scripts.parameter_docs`
# from what the nodes declare. `/**/` matches any namespace.
"""


def markdown(node: str) -> str:
    """Return the parameter table of one node as Markdown."""
    lines = ["| Parameter | Default | May change | Meaning |", "| --- | --- | --- | --- |"]
    for p in NODES[node]:
        default = f"`{json.dumps(p.default)}`"
        limits = f" ({_limits(p)})" if p.range else ""
        choices = f" ({', '.join(p.choices)})" if p.choices else ""
        lines.append(
            f"| `{p.name}` | {default} | {p.change.value} | {p.description}{limits}{choices} |"
        )
    return "\n".join(lines)


def yaml() -> str:
    """Return the parameter file with every default."""
    lines = [_HEAD]
    for node, table in NODES.items():
        lines += [f"/**/{node}:", "  ros__parameters:"]
        for p in table:
            lines += [f"    # {line}" for line in textwrap.wrap(_described(p), 92)]
            lines.append(f"    {p.name}: {json.dumps(p.default)}")
        lines.append("")
    return "\n".join(lines)


def _described(p: Parameter) -> str:
    text = p.description
    if p.range:
        text += f" Range: {_limits(p)}."
    if p.choices:
        text += f" One of: {', '.join(p.choices)}."
    if p.change is not Change.ANY_TIME:
        text += f" Change: {p.change.value}."
    return text


def _limits(p: Parameter) -> str:
    low, high = p.range or (0, 0)
    special = f", or {p.special:g}" if p.special is not None else ""
    most = f", not over {p.at_most}" if p.at_most else ""
    return f"{low:g} to {high:g}" + (f" {p.unit}" if p.unit != "1" else "") + special + most


def documented(text: str) -> str:
    """Return the text of the page with a table under each heading that names a node."""
    for node in NODES:
        heading = f"## `{node}`\n\n"
        before, found, rest = text.partition(f"{heading}|")
        if found:
            end = re.search(r"\n\n|\n*\Z", rest)
            assert end is not None
            text = before + heading + markdown(node) + rest[end.start() :]
    return text


def main() -> int:
    """Write the files."""
    CONFIG.write_text(yaml(), encoding="utf-8")
    PAGE.write_text(documented(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
