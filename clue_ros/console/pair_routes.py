# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The routes of the page "Two people": consent, a WebSocket for each person, the pair's picture.

A person is known by a random secret in a cookie, which is set when they agree to the consent text.
A seat is taken by the WebSocket that comes with it. Their id in the rows is its SHA-256: a person
who returns with the cookie has the same id and the same seat. After each change every person gets a
view of their own; a page sends {"do": NAME, ...}.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, WebSocket
from fastapi.requests import HTTPConnection, Request
from fastapi.responses import JSONResponse, Response

from clue_ros.console.pair_lobby import FullError, Lobby
from clue_ros.console.pair_rows import Consent, PictureQueue, RowStore, default_consent
from clue_ros.console.pairs import PairError
from clue_ros.console.server import static_page
from clue_ros.errors import ClueError

MAX_MESSAGE = 16_000  # characters of one message of a page
NO_CONSENT = {"closed": "consent", "text": "agree to the consent text first"}
LEFT = {"closed": "left", "text": "You have left. You can close this page."}
ELSEWHERE = {"closed": "elsewhere", "text": "This page is open in another tab or window now."}
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_TICK_SECONDS = 1.0
_MAX_REFUSED = 8  # messages that wait for a slow page
_LOG = logging.getLogger(__name__)


def pair_router(
    images: Path | Sequence[Path], out: Path, *, consent: Consent | None = None
) -> APIRouter:
    """The page "Two people": dialogues about `images` (files, folders), rows written to `out`.

    consent: the text that each person agrees to first; None takes that of this package. Raises
    ClueError: no picture, or nothing can be written in `out`.
    """
    sources = [images] if isinstance(images, Path) else list(images)
    rows = RowStore(out, consent or default_consent())
    queue = PictureQueue(sources, rows.used())
    _LOG.info("pictures: %d, of which not used yet: %d", len(queue), queue.unused)
    hub = _Hub(Lobby(queue, rows))
    router = APIRouter()

    @router.get("/pairs", include_in_schema=False)
    def page() -> Response:
        return static_page("pair.html")

    @router.get("/pairs/consent")
    async def consent_text(request: Request) -> dict[str, Any]:
        person = _person(request)
        agreed = person is not None and await hub.knows(person)
        return {"version": rows.consent.version, "text": rows.consent.text, "agreed": agreed}

    @router.post("/pairs/consent")
    async def agree(request: Request, version: str) -> Response:
        secret = _secret(request) or secrets.token_urlsafe(32)
        person = _id(secret)
        await hub.do(lambda lobby, now: lobby.consent(person, version, now))
        response = JSONResponse({"you": person})
        response.set_cookie(
            _cookie_name(request),
            secret,
            path="/pairs",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @router.get("/pairs/picture/{session}")
    async def picture(request: Request, session: str) -> Response:
        person = _person(request)
        if person is None:
            raise PairError("agree to the consent text first")
        shown = await hub.do(lambda lobby, _now: lobby.picture(person, session))
        return Response(shown, media_type="image/jpeg", headers={"Cache-Control": "no-store"})

    @router.websocket("/pairs/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        person = _person(socket)
        if person is None or not await hub.knows(person):
            await socket.send_json(NO_CONSENT)
            await socket.close()
            return
        await hub.serve(person, socket)

    return router


def _cookie_name(connection: HTTPConnection) -> str:
    """Return a name for each port, because a machine's pages share their cookies."""
    server = connection.scope.get("server") or ("", 0)
    return f"clue_pair_{server[1]}"


def _secret(connection: HTTPConnection) -> str | None:
    found = connection.cookies.get(_cookie_name(connection), "")
    return found if _SECRET.fullmatch(found) else None


def _person(connection: HTTPConnection) -> str | None:
    secret = _secret(connection)
    return None if secret is None else _id(secret)


def _id(secret: str) -> str:
    return hashlib.sha256(f"clue pair {secret}".encode()).hexdigest()[:12]


class _Connection:
    """One open page. view: as it was sent last. refused: messages to send, oldest first."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.changed = asyncio.Event()
        self.view: dict[str, Any] = {}
        self.seconds_left: float | None = None
        self.refused: list[str] = []
        self.sent: dict[str, Any] | None = None
        self.last: dict[str, str] | None = None  # then the connection is closed

    async def send(self) -> None:
        """Send what changed, until the connection is to be closed.

        A slow page gets the newest view, not each one, and holds up nobody.
        """
        while True:
            await self.changed.wait()
            self.changed.clear()
            refused, self.refused = self.refused, []
            for text in refused:
                await self.socket.send_json({"refused": text})
            if self.view and self.view != self.sent:
                self.sent = self.view
                await self.socket.send_json({"view": self.view, "seconds_left": self.seconds_left})
            if self.last is not None:
                await self.socket.send_json(self.last)
                await self.socket.close()
                return


class _Hub:
    """The lobby and the open pages. One action at a time; files are written in a thread."""

    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby
        self._lock = asyncio.Lock()
        self._open: dict[str, _Connection] = {}
        self._ticker: asyncio.Task[None] | None = None

    async def knows(self, person: str) -> bool:
        async with self._lock:
            return self._lobby.knows(person)

    async def do(self, action: Callable[[Lobby, float], Any]) -> Any:
        """Run an action on the lobby, then send everyone their view."""
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        async with self._lock:
            try:
                return await asyncio.to_thread(action, self._lobby, time.monotonic())
            finally:
                self._publish()

    async def serve(self, person: str, socket: WebSocket) -> None:
        """Talk to one page until it is closed."""
        connection = _Connection(socket)
        before, self._open[person] = self._open.get(person), connection
        if before is not None:
            before.last = ELSEWHERE
            before.changed.set()
        sender = asyncio.create_task(connection.send())
        try:
            await self.do(lambda lobby, now: lobby.connect(person, now))
            await self._receive(person, connection)
        except PairError as error:  # no seat, or the person was forgotten in this moment
            full = {"closed": "full", "text": str(error)}
            connection.last = full if isinstance(error, FullError) else NO_CONSENT
            connection.changed.set()
            await asyncio.wait([sender], timeout=5.0)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            if self._open.get(person) is connection:
                del self._open[person]
                await self.do(lambda lobby, now: lobby.disconnect(person, now))

    async def _receive(self, person: str, connection: _Connection) -> None:
        while True:
            message = await connection.socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                action = _parse(message.get("text"))
                if action.get("do") == "judge":  # the others need not wait for this
                    await asyncio.to_thread(self._lobby.prepare, person)
                await self.do(partial(_act, person, action))
                continue
            except ClueError as error:
                reason = str(error)
            except OSError as error:
                _LOG.error("a row cannot be written: %s", error)
                reason = f"this cannot be stored ({error.strerror}): tell whoever invited you"
            connection.refused = [*connection.refused[-_MAX_REFUSED:], reason]
            connection.changed.set()

    async def _tick(self) -> None:
        while self._lobby.people:
            await asyncio.sleep(_TICK_SECONDS)
            await self.do(lambda lobby, now: lobby.tick(now))

    def _publish(self) -> None:
        now = time.monotonic()
        for person, connection in self._open.items():
            if not self._lobby.has_seat(person):
                if not self._lobby.knows(person):  # else they are just coming
                    connection.last = LEFT
                    connection.changed.set()
                continue
            view = self._lobby.view(person)
            if view != connection.view:
                connection.view = view
                connection.seconds_left = self._lobby.seconds_left(person, now)
                connection.changed.set()


def _act(person: str, action: dict[str, Any], lobby: Lobby, now: float) -> None:
    lobby.act(person, action, now)


def _parse(text: str | None) -> dict[str, Any]:
    """A page's message. Raises PairError."""
    if text is None or len(text) > MAX_MESSAGE:
        raise PairError("the page sent too much at once: write less")
    try:
        action = json.loads(text)
    except (ValueError, RecursionError):
        action = None
    if not isinstance(action, dict):
        raise PairError("the page sent something unknown: load it again")
    return action
