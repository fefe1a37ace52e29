# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands that serve a page: their options, and serving until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clue_ros.console.server import DEFAULT_PORT, serve


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a web server."""
    parser.add_argument(
        "--host",
        default="localhost",
        help="address to listen on (default: localhost, this machine alone); 0.0.0.0: every"
        " network of this machine, with a token",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"0: a free one (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--token",
        help="secret that a browser must show; made and printed for any other host than localhost",
    )
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE.pem", help="serve https with this certificate"
    )
    parser.add_argument("--key", type=Path, metavar="FILE.pem", help="the certificate's key")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


@contextlib.contextmanager
def served(app: Any, args: argparse.Namespace) -> Iterator[None]:
    """Serve an application as the options say: print its address, open it with --open.

    Ctrl-C inside ends the command. Raises ClueError as `serve` does.
    """
    with serve(app, args.host, args.port, certificate=args.certificate, key=args.key) as server:
        print(f"The page: {server.url}  (Ctrl-C ends it)", flush=True)
        if args.open and not webbrowser.open(server.url):
            print("clue: note: no browser could be opened: open the address", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            yield


def wait_until_interrupted() -> None:
    """Sleep until Ctrl-C raises KeyboardInterrupt."""
    threading.Event().wait()
