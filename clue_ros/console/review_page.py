# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue review FOLDER`: review recorded episodes in a browser, without a robot and without ROS.

Confirm the robot's box, correct it, or reject the episode. Training learns from reviewed episodes
(docs/episodes.md). Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clue_ros.console.access import token_for
from clue_ros.console.command import add_server_arguments, served, wait_until_interrupted
from clue_ros.console.review import review_router
from clue_ros.console.server import create_app


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue review``."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder of episodes, named by `record`"
    )
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue review`` until it is interrupted; the exit status."""
    token = token_for(args.host, args.token)
    app = create_app(None, None, token=token, routers=[review_router(args.folder)])
    with served(app, args):
        wait_until_interrupted()
    return 0
