# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The web server of the operator's page: its routes, and a server that runs in a thread.

app = create_app(page, robot, token=token_for(host, None))
with serve(app, host, port) as server:
    print(server.url)
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from clue_ros.console.access import Access, is_local
from clue_ros.console.live import LivePage
from clue_ros.console.live_routes import live_router
from clue_ros.console.robot import Robot
from clue_ros.errors import ClueError

STATIC = Path(__file__).parent / "static"
PAGES = (
    ("/live", "Live"),
    ("/review", "Review"),
    ("/label", "Label"),
    ("/pairs", "Two people"),
)
"""Path and title of each possible page; the navigation bar lists those of the server."""
DEFAULT_PORT = 8484
MAX_MESSAGE = 256 * 1024  # bytes of one message from a page: half a second of sound is 16 KiB
_START_SECONDS = 10.0
_log = logging.getLogger(__name__)


def create_app(
    page: LivePage | None,
    robot: Robot | None,
    *,
    token: str | None,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The web application.

    page, robot: of the live page; None for a server of other pages alone. token: a secret that a
    browser must show (`clue_ros.console.access`); None for this machine alone. routers: further
    pages; one that serves a path of `PAGES` is in the navigation bar.
    """
    # FastAPI's own pages of documentation load scripts from other websites.
    app = FastAPI(title="clue_ros", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.token = token
    if page is not None and robot is not None:
        app.include_router(live_router(page, robot))
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    pages = [{"path": path, "title": title} for path, title in PAGES if _serves(app, path)]

    @app.get("/", include_in_schema=False)
    def first_page(request: Request) -> Response:
        if not pages:
            return JSONResponse({"error": "this server has no page"}, 404)
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{pages[0]['path']}{query}", 307)

    @app.get("/api/pages")
    def pages_of_this_server() -> list[dict[str, str]]:
        return pages

    @app.exception_handler(ClueError)
    def refuse(_request: Request, error: Exception) -> JSONResponse:
        code = getattr(error, "code", "CLUE_ERROR")
        return JSONResponse({"error": str(error), "code": code}, getattr(error, "status", 400))

    app.add_middleware(Access, token=token)
    return app


def static_page(name: str) -> FileResponse:
    """A page of the folder static/, such as "live.html"."""
    return FileResponse(STATIC / name, media_type="text/html")


def _serves(app: FastAPI, path: str) -> bool:
    scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    return any(route.matches(scope)[0].value == 2 for route in app.routes)


class Server:
    """A server in a thread of its own; use it in a `with`, or call `stop`.

    Raises ClueError (on construction): the address cannot be used, or is reachable by other
    machines while the app asks for no token.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        """Start to serve; port 0 takes a free one. certificate, key: PEM files, for https."""
        self._token: str | None = app.state.token
        if self._token is None and not is_local(host):
            raise ClueError(
                f"{host} can be reached from other machines: give a token, or use localhost"
            )
        if certificate is not None:
            _check_certificate(certificate, key)
        self._socket = _listen(host, port)
        self._port = int(self._socket.getsockname()[1])
        self._host = host
        self._scheme = "http" if certificate is None else "https"
        config = uvicorn.Config(
            app,
            log_config=None,  # uvicorn's would close the handlers of the whole process
            log_level="warning",
            access_log=False,
            ws_max_size=MAX_MESSAGE,
            ws_max_queue=16,
            timeout_graceful_shutdown=1,
            server_header=False,
            lifespan="off",
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="console-server",
            daemon=True,
        )
        self._thread.start()
        _wait_until(self._server, self._thread)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The address of the first page, with the token if there is one."""
        host = self._host
        if host in ("", "0.0.0.0", "::"):
            host = socket.gethostname()
        if ":" in host:
            host = f"[{host}]"
        query = f"?token={quote(self._token, safe='')}" if self._token else ""
        return f"{self._scheme}://{host}:{self.port}/{query}"

    def stop(self) -> None:
        """Close all connections and end the thread. More than once does nothing."""
        self._server.should_exit = True
        self._thread.join(timeout=5.0)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(timeout=5.0)
        self._socket.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    app: FastAPI,
    host: str = "localhost",
    port: int = DEFAULT_PORT,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Server:
    """Serve the app in a thread, and return once it accepts connections. Raises ClueError."""
    return Server(app, host, port, certificate=certificate, key=key)


def _check_certificate(certificate: Path, key: Path | None) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ClueError(
            f"https needs a certificate and its key as PEM files: {certificate}, {key}: {error}"
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ClueError(f"the port must be between 0 and 65535, not {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ClueError(f"there is no address {host!r}: {error}") from error
    # IPv4 first: "localhost" is 127.0.0.1 for every browser, ::1 not on every machine.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ClueError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port, or"
            " 0 for a free one"
        ) from error
    return listener


def _wait_until(server: uvicorn.Server, thread: threading.Thread) -> None:
    pause = threading.Event()
    for _ in range(int(_START_SECONDS / 0.01)):
        if server.started:
            return
        if not thread.is_alive():
            raise ClueError("the web server did not start: see the message above")
        pause.wait(0.01)
    raise ClueError(f"the web server did not start within {_START_SECONDS:g} s")
