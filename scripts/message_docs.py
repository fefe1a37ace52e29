# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/messages.md from the comments of clue_msgs' interface files.

python -m scripts.message_docs        # in the repository
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INTERFACES = ROOT / "clue_msgs"
PAGE = ROOT / "docs" / "messages.md"
KINDS = {"msg": "Message", "srv": "Service", "action": "Action"}
SECTIONS = {"msg": ("",), "srv": ("Request", "Response"), "action": ("Goal", "Result", "Feedback")}
_HEAD = """\
# Messages, services, actions

- **For**: you read or write a message of `clue_msgs` and want to know what a field means.
- **Result**: the meaning of each field, with its unit and range in brackets.
- **Time**: a look-up.

`python -m scripts.message_docs` makes this page from the comments of the interface files. A shell
shows them too: `ros2 interface show clue_msgs/msg/GroundingResult`. [ros.md](ros.md) has the topic
of each message.
"""
_CONSTANT = re.compile(r"\w+ (?P<name>[A-Z_]+)=(?P<value>\d+)\s*(# (?P<about>.+))?")
_FIELD = re.compile(r"(?P<type>[\w/]+)(?P<array>\[\d*\])? (?P<name>\w+)( -?[\d.]+)?")  # a default


@dataclass
class Section:
    """One part of an interface: its constants and fields, with what is said about them."""

    about: str = ""
    constants: list[tuple[str, str, str]] = field(default_factory=list)  # name, value, meaning
    fields: list[tuple[str, str, str]] = field(default_factory=list)  # name, type, meaning


def read(text: str) -> Section:
    """Read one part of an interface file. Raises ValueError for a line that is none of its kinds.

    A comment belongs to the field below it; the one above an empty line is about the whole.
    """
    section, comment = Section(), ""
    for line in text.splitlines():
        if line.startswith("#"):
            comment = f"{comment} {line.lstrip('# ')}".strip()
            continue
        if constant := _CONSTANT.fullmatch(line):
            section.constants.append((constant["name"], constant["value"], constant["about"] or ""))
        elif member := _FIELD.fullmatch(line):
            kind = member["type"] + (member["array"] or "")
            section.fields.append((member["name"], kind, comment))
        elif line:
            raise ValueError(f"neither a field nor a constant nor a comment: {line!r}")
        elif comment and not section.about:
            section.about = comment
        comment = ""
    return section


def _table(head: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |"]
    return lines + [f"| `{name}` | {middle} | {about} |" for name, middle, about in rows] + [""]


def _linked(kind: str) -> str:
    """A type as it is shown: those of this page are links."""
    name, array = re.fullmatch(r"([\w/]+)(\[\d*\])?", kind).groups("")  # type: ignore[union-attr]
    return f"[`{name}`](#{name.lower()}){array}" if name[0].isupper() else f"`{kind}`"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def markdown() -> str:
    """Return the page."""
    lines = [_HEAD]
    told: dict[str, str] = {}  # tables of constants, and the interface that has them first
    for kind, word in KINDS.items():
        for path in sorted((INTERFACES / kind).iterdir()):
            parts = re.split(r"^---\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            sections = [read(part) for part in parts]
            lines += [f"## {path.stem}", "", _wrapped(f"{word}. {sections[0].about}"), ""]
            for title, section in zip(SECTIONS[kind], sections, strict=True):
                lines += [f"### {title} of {path.stem}", ""] if title else []
                if section.fields:
                    rows = [(name, _linked(type_), about) for name, type_, about in section.fields]
                    lines += _table(("Field", "Type", "Meaning"), rows)
                else:
                    lines += ["Empty.", ""]
                if section.constants:
                    table = "\n".join(_table(("Constant", "Value", "Meaning"), section.constants))
                    first = told.setdefault(table, path.stem)
                    same = f"The same constants as in [{first}](#{first.lower()}).\n"
                    lines.append(table if first == path.stem else same)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page."""
    PAGE.write_text(markdown(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
