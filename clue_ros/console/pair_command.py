# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect dialogues between two people about pictures, in InViG's layout, with their consent.

Two people open the page in two browsers and are paired. The user has an object in mind, the agent
asks and ends with a box. Rows that the user calls right are in DIR/rows, others in DIR/rejected.
Run it again with the same DIR to go on. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from clue_ros.console.access import token_for
from clue_ros.console.command import add_server_arguments, served, wait_until_interrupted
from clue_ros.console.pair_routes import pair_router
from clue_ros.console.pair_rows import read_consent
from clue_ros.console.server import create_app


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue pair``."""
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        type=Path,
        help="picture files, and folders that are searched at any depth",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="folder to write the rows to"
    )
    parser.add_argument(
        "--consent",
        type=Path,
        metavar="FILE.txt",
        help="text that each person agrees to first (default: a text of this package)",
    )
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue pair`` until it is interrupted; the exit status."""
    logging.basicConfig(format="clue: %(message)s")
    logging.getLogger("clue_ros.console").setLevel(logging.INFO)
    consent = None if args.consent is None else read_consent(args.consent)
    router = pair_router(args.images, args.out, consent=consent)
    app = create_app(None, None, token=token_for(args.host, args.token), routers=[router])
    with served(app, args):
        wait_until_interrupted()
    return 0
