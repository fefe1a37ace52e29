"""Command lines in pages and in results/*.json: whether the commands understand them."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from typing import NoReturn, cast

from clue_ros.cli import COMMANDS, Command


class Refusing(argparse.ArgumentParser):
    """A parser that raises ValueError where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        """Raise the reason."""
        raise ValueError(message)


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser | None, list[str]]:
    """Return the parser of the command that the words begin with, and the rest of the words.

    None: the words name a group of commands ("clue eval").
    """
    found: Command | dict[str, Command] = cast("dict[str, Command]", COMMANDS)
    while isinstance(found, dict):
        if not words or words[0].startswith("-") or words[0] == "...":
            return None, []
        if words[0] not in found:
            raise ValueError(f"no command {words[0]!r}")
        found, words = found[words[0]], words[1:]
    parser = Refusing()
    importlib.import_module(found.module).add_arguments(parser)
    return parser, words


def understand(line: str) -> None:
    """Raise ValueError unless `clue` understands the line, which begins after that word.

    Brackets, alternatives ("--json | --markdown"), N for a number and "..." may stand in it.
    """
    words = shlex.split(re.sub(r"[\[\]]", " ", line).replace("(s)", ""), comments=True)
    if "|" in line.split("#")[0]:
        words = words[:1] if "|" in words[0] else [word.split("|")[0] for word in words]
    words = ["1" if word == "N" else word for word in words]
    parser, rest = parser_of([word for word in words if word != "..."])
    # A bare "clue train ivg" in a sentence names the command, and "..." leaves words out.
    if parser is not None and rest and "..." not in words:
        parser.parse_args(rest)
