# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The operator's page on picture files: see a model look, ask and point in a browser.

Needs neither ROS nor a robot. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clue_ros.console.access import token_for
from clue_ros.console.command import add_server_arguments, served, wait_until_interrupted
from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.console.server import create_app
from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.errors import BadImageError, ClueError
from clue_ros.grounders import (
    add_load_arguments,
    add_policy_arguments,
    load_grounder,
    load_options,
    quieten_libraries,
)
from clue_ros.images import image_size
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue demo-page``."""
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="*",
        type=Path,
        help="picture files to choose from (default: those of the demo)",
    )
    add_server_arguments(parser)
    add_load_arguments(parser)
    add_policy_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue demo-page`` until it is interrupted; the exit status."""
    pictures = by_name(args.images or demo_pictures())
    options = load_options(args)
    quieten_libraries()

    def load(model: str) -> RobotGrounder[Any]:
        return load_grounder(replace(options, model=model))

    page = LivePage()
    robot = PictureRobot(page, pictures, load, [str(args.model), DEFAULT_MODEL])
    app = create_app(page, robot, token=token_for(args.host, args.token))
    with served(app, args), contextlib.closing(robot):
        robot.start()
        robot.wait_until_loaded()
        print(f"The model {args.model} is loaded.", flush=True)
        wait_until_interrupted()
    return 0


def demo_pictures() -> list[Path]:
    """The pictures of the demo: photographs of real objects, then simulator scenes."""
    return [path for kind in ("*.jpg", "*.png") for path in sorted(demo_folder().glob(kind))]


def by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """The pictures by their file names, with folders where two have the same name."""
    for path in paths:
        if path.is_dir():
            raise BadImageError(f"{path} is a folder: give picture files")
        if not path.is_file():
            raise BadImageError(f"{path} does not exist: give a picture file")
        image_size(path, str(path))
    if not paths:
        raise ClueError("there are no demo pictures here: give a picture file")
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 else str(path): path for path in paths}
