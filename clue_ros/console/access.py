# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Access to the page: by a token, from no other website, under no other name of this machine.

Without a token the page is for this machine alone: a request must name it as localhost, so that a
website whose name was turned to 127.0.0.1 (DNS rebinding) is refused. With a token, it is given
once in the address (`?token=...`) and then kept in a cookie that no script can read.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import secrets
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clue_ros.errors import ClueError

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PUBLIC = "/static/"  # the page's code and style, the same for everyone
FORBIDDEN = 1008  # WebSocket close code: policy violation
STALL_SECONDS = 10.0  # without a byte of a body
BODY_SECONDS = 120.0  # for a whole body
_CONTENT = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CONTENT,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def is_local(host: str) -> bool:
    """Whether a name or address means this machine alone, such as "localhost" or "127.0.0.1"."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_for(host: str, token: str | None) -> str | None:
    """The token for a page bound to `host`: the given one, or a new one where one is required.

    Raises ClueError for a token that an address cannot hold.
    """
    if token:
        if len(token) > 200 or not token.isascii() or not token.isprintable() or " " in token:
            raise ClueError("the token must be at most 200 printable ASCII characters, no spaces")
        return token
    return None if is_local(host) else secrets.token_urlsafe(24)


class Access:
    """Middleware that checks access, and adds headers that limit what the page can load.

    token: None for a page of this machine alone.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or WebSocket (ASGI)."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": FORBIDDEN})  # answers 403
            return
        given = self._right(_query_token(scope))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    out.setdefault(name, value)
                out.setdefault("Cache-Control", "no-store")
                if given:
                    out.append("Set-Cookie", self._cookie(scope))
            await send(message)

        await (refusal or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        name = _host_name(host)
        if name is None or (origin is not None and _origin_host(origin) is None):
            which = "Host" if name is None else "Origin"
            return PlainTextResponse(f"The header {which} cannot be read.\n", 400)
        if self._token is None and not is_local(name):
            return PlainTextResponse(
                "This page is for this machine alone: open it as http://localhost, or start it"
                " with a token.\n",
                403,
            )
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if changes and origin is not None and _origin_host(origin) != host.lower():
            return PlainTextResponse("Another website may not use this page.\n", 403)
        if self._token is None or scope["path"].startswith(PUBLIC):
            return None
        if self._right(_query_token(scope)) or self._right(self._cookie_token(scope, headers)):
            return None
        return HTMLResponse(_token_page(_query_token(scope) is not None), 401)

    def _right(self, token: str | None) -> bool:
        """Compare in constant time."""
        if self._token is None or token is None:
            return False
        return hmac.compare_digest(token.encode(), self._token.encode())

    def _cookie_token(self, scope: Scope, headers: Headers) -> str | None:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(scope))
        except CookieError:
            return None
        return None if found is None else found.value

    def _cookie(self, scope: Scope) -> str:
        secure = "; Secure" if scope["scheme"] in ("https", "wss") else ""
        cookie: SimpleCookie = SimpleCookie()
        cookie[_cookie_name(scope)] = self._token or ""
        pair = cookie.output(header="").strip()
        return f"{pair}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _host_name(host: str) -> str | None:
    """The name in a Host header, "" where there is none; None where it cannot be read."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError where it is no number
    except ValueError:
        return None
    whole = parts.netloc == host and "@" not in host and host.isprintable()
    return (parts.hostname or "") if whole else None


def _origin_host(origin: str) -> str | None:
    """Name and port in an Origin header, "" where it has none; None where it cannot be read."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _cookie_name(scope: Scope) -> str:
    """Return a name for each port, because a machine's pages share their cookies."""
    server = scope.get("server") or ("", 0)
    return f"clue_token_{server[1]}"


def _query_token(scope: Scope) -> str | None:
    try:
        found = parse_qs(scope["query_string"].decode(), keep_blank_values=True).get("token")
    except (UnicodeDecodeError, ValueError):
        return None
    return found[0] if found else None


def _token_page(wrong: bool) -> str:
    text = (
        resources.files("clue_ros.console")
        .joinpath("static")
        .joinpath("token.html")
        .read_text("utf-8")
    )
    why = "This token is not the right one." if wrong else "This page needs a token."
    return text.replace("{why}", html.escape(why))


class SlowBodyError(ClueError):
    """A body did not come in time."""

    code = "TIMEOUT"
    status = 408


async def read_body(request: Request, limit: int, too_large: ClueError) -> bytes:
    """Return the body of a request; raise `too_large` beyond `limit` bytes, read or announced.

    Raises SlowBodyError for one that stalls, or takes over BODY_SECONDS.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    content, chunks = bytearray(), request.stream()

    async def read() -> None:
        while (chunk := await asyncio.wait_for(anext(chunks, None), STALL_SECONDS)) is not None:
            content.extend(chunk)
            if len(content) > limit:
                raise too_large

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise SlowBodyError("the file came too slowly, and was not taken: try again") from None
    return bytes(content)
