# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The live page's routes: the page, its WebSocket, and photographs sent to the robot.

From the server: each part of `LivePage` as JSON with a `type`, and pictures (`Frame.message`). From
the page: the commands below as JSON, and its microphone as int16 samples, 16 kHz mono, little
endian. A picture is sent only after the page has acknowledged the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import anyio
import anyio.to_thread
import numpy as np
from fastapi import APIRouter, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from clue_ros.console.access import read_body
from clue_ros.console.live import LivePage, Viewer, answer, choose
from clue_ros.console.robot import Robot
from clue_ros.dialogue.types import Box, clean_text, one_line
from clue_ros.errors import BadImageError, ClueError
from clue_ros.images import decode_image

MICROPHONE_RATE = 16_000  # samples a second
MAX_PHOTOGRAPH = 64 * 1024 * 1024  # bytes of the file
MAX_DECODING = 200_000_000  # bytes that a photograph takes while it is decoded; larger: shrunk
MAX_UPLOADS = 4  # photographs that are read or decoded at once
MAX_NAME = 100  # characters of a photograph's name
MAX_COMMANDS = 8  # of one page that the robot works on at once
MAX_SOUND = 64  # messages of sound that wait for the robot; beyond that the oldest is dropped
_PAGE = Path(__file__).parent / "static" / "live.html"
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Say(BaseModel):
    """A person typed this."""

    type: Literal["say"]
    text: str


class Choose(BaseModel):
    """A person clicked a candidate, counted from 0, of the question of this number."""

    type: Literal["choose"]
    question: int
    candidate: int


class Stop(BaseModel):
    """End the dialogue."""

    type: Literal["stop"]


class SetOption(BaseModel):
    """Change a setting."""

    type: Literal["option"]
    name: str
    value: str


class UseCamera(BaseModel):
    """Look at the camera again."""

    type: Literal["camera"]


class Teach(BaseModel):
    """A person drew a box on the picture of this number: that is a `name`.

    box: x_min, y_min, x_max, y_max in pixels of the picture.
    """

    type: Literal["teach"]
    frame: int
    box: tuple[float, float, float, float]
    name: str


class Forget(BaseModel):
    """Forget the object of this name."""

    type: Literal["forget"]
    name: str


class ListTaught(BaseModel):
    """Show the taught objects."""

    type: Literal["taught"]


class Drawn(BaseModel):
    """The page has drawn the picture of this number."""

    type: Literal["drawn"]
    frame: int


_Command = Say | Choose | SetOption | UseCamera | Teach | Forget | ListTaught
_COMMAND: TypeAdapter[_Command | Stop | Drawn] = TypeAdapter(
    Annotated[_Command | Stop | Drawn, Field(discriminator="type")]
)


def live_router(page: LivePage, robot: Robot) -> APIRouter:
    """The routes /live, /ws/live and /api/photograph of a live page and its robot."""
    router = APIRouter()
    uploads, decoding = asyncio.Semaphore(MAX_UPLOADS), asyncio.Semaphore(1)

    @router.get("/live")
    def live_page() -> FileResponse:
        return FileResponse(_PAGE, media_type="text/html")

    @router.websocket("/ws/live")
    async def live_socket(socket: WebSocket) -> None:
        await _Link(socket, page, robot).run()

    @router.post("/api/photograph")
    async def photograph(request: Request, name: str = "photograph") -> JSONResponse:
        """Take a picture file as the body. A slow one delays no other."""
        name = one_line(name[: 10 * MAX_NAME])[:MAX_NAME] or "photograph"
        if uploads.locked():
            raise _BusyError("other photographs are being sent: try again in a moment")
        async with uploads:
            content = await _photograph(request)
            async with decoding:
                image = await in_thread(
                    lambda: decode_image(content, name, most_bytes=MAX_DECODING)
                )
                await in_thread(lambda: robot.use_photograph(image, name))
        page.show_photograph(name)
        return JSONResponse({"width": image.shape[1], "height": image.shape[0]})

    return router


async def in_thread(job: Callable[[], T]) -> T:
    """Do a job that may block in a thread of its own; a server that stops does not wait for it.

    asyncio's and Starlette's threads are few: jobs that wait for the robot would keep a stop from
    starting. So each caller limits how many it starts.
    """
    limiter = anyio.CapacityLimiter(1)
    return await anyio.to_thread.run_sync(job, abandon_on_cancel=True, limiter=limiter)


class _TooLargeError(BadImageError):
    """The body is larger than a photograph may be."""

    status = 413


class _BusyError(ClueError):
    """Too many photographs are on their way at once."""

    code = "BUSY"
    status = 503


async def _photograph(request: Request) -> bytes:
    limit = f"the file is larger than {MAX_PHOTOGRAPH // 1024 // 1024} MB: scale it down"
    content = await read_body(request, MAX_PHOTOGRAPH, _TooLargeError(limit))
    if not content:
        raise BadImageError("the file is empty (0 bytes): choose a picture")
    return content


class _Link:
    """One open page: its WebSocket, and its requests to the robot."""

    def __init__(self, socket: WebSocket, page: LivePage, robot: Robot) -> None:
        self._socket, self._page, self._robot = socket, page, robot
        self._news = asyncio.Event()
        self._sound: asyncio.Queue[bytes] = asyncio.Queue(MAX_SOUND)
        self._commands: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        """Serve the page until it is closed."""
        await self._socket.accept()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(self._news.set)

        viewer = self._page.join(wake)
        self._news.set()
        tasks = [
            asyncio.create_task(self._send_news(viewer)),
            asyncio.create_task(self._pass_sound()),
            asyncio.create_task(self._receive(viewer)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._page.leave(viewer)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, _CLOSED):
                _log.error("a connection to the live page failed", exc_info=error)

    async def _send_news(self, viewer: Viewer) -> None:
        await self._send(json.dumps({"type": "hello", "page": self._page.id}))
        while True:
            await self._news.wait()
            self._news.clear()
            for message in await in_thread(viewer.take):
                await self._send(message)

    async def _send(self, message: str | bytes) -> None:
        async with self._sending:
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_text(message)

    async def _receive(self, viewer: Viewer) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("bytes") is not None:
                self._queue_sound(message["bytes"])
                continue
            try:
                command = _COMMAND.validate_json(message.get("text") or "")
            except ValidationError:
                await self._refuse("the page sent what this server does not know: reload it")
                continue
            if isinstance(command, Drawn):
                viewer.acknowledge(command.frame)
            elif isinstance(command, Stop):
                if self._stopping is None or self._stopping.done():
                    self._stopping = self._start(self._robot.stop)  # whatever else is under way
            elif len(self._commands) >= MAX_COMMANDS:
                await self._refuse("the robot is still busy with what you asked before")
            else:
                self._start(functools.partial(self._obey, command, viewer))

    def _obey(self, command: _Command, viewer: Viewer) -> None:
        """Ask the robot, in a thread. Raises ClueError."""
        if isinstance(command, Say):
            answer(self._page, self._robot, clean_text(command.text))
        elif isinstance(command, Choose):
            if not self._page.has_candidate(command.question, command.candidate):
                raise ClueError("this question is no longer open")
            choose(self._page, self._robot, command.candidate)
        elif isinstance(command, SetOption):
            self._robot.set_option(command.name, command.value)
        elif isinstance(command, Teach):
            frame = viewer.frame(command.frame)
            if frame is None:
                raise ClueError("the picture is no longer there: draw the box again")
            self._robot.teach(frame.pixels(), Box(*command.box), clean_text(command.name))
        elif isinstance(command, Forget):
            self._robot.forget(command.name)
        elif isinstance(command, ListTaught):
            self._robot.list_taught()
        else:
            self._robot.use_photograph(None)
            self._page.show_photograph(None)

    def _start(self, job: Callable[[], object]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._reported(job))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        return task

    async def _reported(self, job: Callable[[], object]) -> None:
        """Do the job in a thread, and tell this page why it could not be done."""
        try:
            await in_thread(job)
        except ClueError as error:
            await self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - a page's command must not end the server
            _log.exception("a command of the live page failed")
            await self._refuse(f"this did not work: {type(error).__name__}: {error}")

    async def _refuse(self, text: str) -> None:
        with contextlib.suppress(*_CLOSED):
            await self._send(json.dumps({"type": "refused", "text": text}))

    def _queue_sound(self, data: bytes) -> None:
        if self._sound.full():
            self._sound.get_nowait()
        self._sound.put_nowait(data)

    async def _pass_sound(self) -> None:
        """Hand the sound to the robot, in order."""
        refused = ""
        while True:
            data = await self._sound.get()
            samples = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16)
            try:
                await in_thread(functools.partial(self._robot.hear, samples, MICROPHONE_RATE))
                refused = ""
            except ClueError as error:
                if str(error) != refused:  # once, not for every tenth of a second
                    refused = str(error)
                    await self._refuse(refused)


_CLOSED: tuple[type[BaseException], ...] = (
    WebSocketDisconnect,
    RuntimeError,  # of Starlette: the connection was closed before
    asyncio.CancelledError,
)
