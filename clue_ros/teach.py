# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue teach`: show the robot an object and name it.

    clue teach photo.jpg --box 120 80 260 190 --name stapler
    clue teach --list
    clue teach --also stapler "paper stapler"        another name for it
    clue teach --rename stapler "big stapler"
    clue teach --forget stapler
    clue teach --import FOLDER                       the words of another folder too

From then on `clue ground` and the robot find it by this name, also while they run. Three to five
photographs of an object from several sides find it more often than one. Words are kept for each
vision tower in the user's data folder, or in the folder of --memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.grounders import (
    add_load_arguments,
    load_grounder,
    load_options,
    memory_of,
    quieten_libraries,
)
from clue_ros.images import load_image

if TYPE_CHECKING:
    from clue_ros.model.word_memory import Word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue teach``."""
    add = parser.add_argument
    add("image", metavar="IMAGE", type=Path, nargs="?", help="a picture file that shows the object")
    add("--box", type=float, nargs=4, metavar=("X0", "Y0", "X1", "Y1"),
        help="around the object, in pixels of the picture")  # fmt: skip
    add("--name", help="name of the object")
    add("--who", default="", help="who shows it")
    add("--instead", action="store_true", help="the box was taught by a wrong name before")
    does = parser.add_mutually_exclusive_group()
    add = does.add_argument
    add("--list", action="store_true", help="print the taught words")
    add("--forget", metavar="NAME", help="remove a word and its examples")
    add("--rename", nargs=2, metavar=("OLD", "NEW"), help="call a word otherwise")
    add("--also", nargs=2, metavar=("NAME", "OTHER"), help="give a word another name besides")
    add("--import", dest="folder", metavar="FOLDER", help="take the words of another folder in")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_load_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue teach``; the exit status."""
    changes = args.list or args.forget or args.rename or args.also or args.folder
    shows = args.image is not None or args.box is not None or args.name is not None
    if bool(changes) == shows:
        raise ClueError(
            "give a picture with --box and --name, or one of --list, --forget, --rename, --also and"
            " --import (see `clue teach --help`)"
        )
    if shows and (args.image is None or args.box is None or args.name is None):
        raise ClueError("to teach an object give a picture, --box X0 Y0 X1 Y1 and --name NAME")
    words = [_teach(args)] if shows else _changed(args)
    for word in words:
        print(json.dumps(as_row(word)) if args.json else _as_text(word))
    return 0


def _teach(args: argparse.Namespace) -> Word:
    from clue_ros.model.word_memory import clean_name

    name, image = clean_name(args.name), load_image(args.image)
    quieten_libraries()
    clue = load_grounder(load_options(args))
    word: Word = clue.teach(
        clue.look(image), Box(*args.box), name, who=args.who, instead=args.instead
    )
    return word


def _changed(args: argparse.Namespace) -> Iterable[Word]:
    """Carry out the options that need no model; return the words concerned."""
    memory = memory_of(load_options(args))
    if args.forget:
        memory.forget(args.forget)
        return ()
    if args.rename:
        return (memory.rename(*args.rename),)
    if args.also:
        return (memory.call(*args.also),)
    if args.folder:
        return memory.merge(args.folder)
    return memory.words.values()


def as_row(word: Word) -> dict[str, Any]:
    """A word for JSON: name, other_names, and date, who and box (in fractions) of each example."""
    shown = [
        {"date": e.date, "who": e.who, "picture": e.picture, "box": e.box.as_list()}
        for e in word.examples
    ]
    return {"name": word.name, "other_names": list(word.other_names), "examples": shown}


def _as_text(word: Word) -> str:
    count, last = len(word.examples), word.examples[-1]
    names = f" (also {', '.join(word.other_names)})" if word.other_names else ""
    who = f" by {last.who}" if last.who else ""
    return f"{word.name}{names}: {count} example{'s' * (count != 1)}, last {last.date}{who}"
