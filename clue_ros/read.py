# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue read`: show how the robot reads utterances, line by line, without a model.

    clue read utterances.txt --json
    echo "the left one" | clue read --question "which mug do you mean?"
    clue read --question "the red one or the blue one?" --offer "the red one" --offer "the blue one"
    clue read --episodes FOLDER --json > heard.jsonl     words that a robot recorded (`record`)

One JSON object a line: {"text", "kind", "wants", "confirm", "confidence"}, and "part" where the
model reads a part of the text only. wants: the model is run, now or after a yes; confirm: after a
yes. A line that cannot be read has the kind "bad" and "error", and the command goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clue_ros.dialogue.episodes import episode_files, read_row
from clue_ros.dialogue.nouns import nouns
from clue_ros.dialogue.reading import read, wants
from clue_ros.dialogue.types import clean_text
from clue_ros.dialogue.words import offered_answers
from clue_ros.errors import ClueError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("file", nargs="?", type=Path, help="one utterance a line; default: standard input")
    add("--episodes", type=Path, metavar="FOLDER", help="read what the episodes of a folder heard")
    add("--question", default="", help="the open question, as the robot asked it")
    add("--offer", action="append", default=[], metavar="ANSWER",
        help="an answer that the question offers; default: those in its words")  # fmt: skip
    add("--about", default="", help="what the open request names; default: the question's noun")
    add("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Read the lines; 0 when all could be read, else 2."""
    offered = tuple(args.offer) or offered_answers(args.question)
    about = args.about or _about(args.question)
    bad = False
    rows = (_row(line, offered, about) for line in _lines(args.file))
    for row in rows if args.episodes is None else _heard(args.episodes):
        bad = bad or "error" in row
        print(json.dumps(row) if args.json else _as_text(row), flush=args.file is None)
    return 2 if bad else 0


def _lines(path: Path | None) -> Iterator[str]:
    """The lines with anything in them. Raises ClueError if the file cannot be read."""
    if path is None:
        yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        return
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ClueError(f"{path}: {error.strerror or error}: give a text file") from None
    yield from (line for line in text.splitlines() if line.strip())


def _heard(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the words in a folder's episodes, as today. Raises ClueError for no folder."""
    if not folder.is_dir():
        raise ClueError(f"--episodes {folder}: there is no such folder")
    for path in episode_files(folder):
        for heard in read_row(path, replies=False)["clue"].get("heard") or ():
            try:
                about, offered = str(heard["about"]), tuple(map(str, heard["offered"]))
                row = _row(str(heard["text"]), offered, about)
            except (KeyError, TypeError) as error:
                raise ClueError(f"{path}: what it heard cannot be read: {error!r}") from None
            yield {**row, "about": about, "offered": list(offered)}


def _about(question: str) -> str:
    """Return a question's noun: "which mug do you mean?" -> "mug"; "thing" if it names none."""
    return next(iter(nouns(question)), "thing") if question else ""


def _row(line: str, offered: tuple[str, ...], about: str) -> dict[str, Any]:
    try:
        text = clean_text(line)
    except ClueError as error:
        return {"text": line, "kind": "bad", "wants": False, "confirm": False, "confidence": 1.0,
                "error": str(error)}  # fmt: skip
    said = read(text, offered, about)
    wanted = wants(said, offered)
    row = {
        "text": line,
        "kind": said.kind.value,
        "wants": wanted,
        "confirm": wanted and said.confirm,
        "confidence": round(said.confidence, 4),
    }
    return row if said.text == text else {**row, "part": said.text}


def _as_text(row: dict[str, Any]) -> str:
    does = "asks first" if row["confirm"] else "looks" if row["wants"] else "does not act"
    return f"{row['kind']:8} {row['confidence']:.2f}  {row.get('error') or does:12}  {row['text']}"
