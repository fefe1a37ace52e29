"""Options of a command, as its command line gives them."""

from __future__ import annotations

import argparse
from typing import TypeVar

from clue_ros.lab.options import add_options, read_options

T = TypeVar("T")


def parsed(options: type[T], *words: object) -> T:
    """The dataclass of options that these words describe."""
    parser = argparse.ArgumentParser()
    add_options(parser, options)
    return read_options(options, parser.parse_args([str(word) for word in words]))
