# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue review FOLDER`: review recorded episodes in a browser, without a robot and without ROS.

Confirm the robot's box, correct it, or reject the episode. Training learns from reviewed episodes
(docs/episodes.md). Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import webbrowser
from pathlib import Path

from clue_ros.console.access import token_for
from clue_ros.console.demo_page import add_server_arguments
from clue_ros.console.review import review_router
from clue_ros.console.server import create_app, serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue review``."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder of episodes, named by `record`"
    )
    add_server_arguments(parser)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Run ``clue review`` until it is interrupted; the exit status."""
    token = token_for(args.host, args.token)
    app = create_app(None, None, token=token, routers=[review_router(args.folder)])
    with serve(app, args.host, args.port, certificate=args.certificate, key=args.key) as server:
        print(f"The page: {server.url}  (Ctrl-C ends it)", flush=True)
        if args.open and not webbrowser.open(server.url):
            print("clue: note: no browser could be opened: open the address", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0
