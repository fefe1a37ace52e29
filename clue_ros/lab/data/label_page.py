"""`clue label PHOTOS`: give each object on photographs a box and a name, in a browser.

Writes PHOTOS/photos.json after every change, with the requests that follow from the labels
(`clue_ros.lab.data.labels`); started again it goes on where it was. `clue calibrate` and
`clue eval photos` read it. Ctrl-C ends it.

With `--preset paper` the folder becomes a set of the form of CLUE's Dataset 2, 100 photographs with
an ambiguous and a clear sentence each: PHOTOS/rows.jsonl has them, for `clue eval detectors`.

    GET  /label                          the page
    GET  /api/label/photographs          [{"name", "width", "height", "objects", "note"}], problems
    GET  /api/label/photographs/NAME     its picture, upright, as JPEG
    PUT  /api/label/photographs/NAME     {"objects": [{"name", "box"}]}, boxes in pixels

An error is {"error": message, "code": code}.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from PIL import Image

from clue_ros.console.access import read_body, token_for
from clue_ros.console.command import add_server_arguments, served, wait_until_interrupted
from clue_ros.console.server import create_app, static_page
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.labels import ROWS, LabelFolder
from clue_ros.lab.data.photographs import PhotographsError

PAPER_PHOTOGRAPHS = 100  # of its Dataset 2
MAX_BODY = 200_000  # bytes of a photograph's labels
_SHOWN = 1600  # longest side of a picture on the page, in pixels


def label_router(labels: LabelFolder) -> APIRouter:
    """The routes of the page for a folder's photographs."""
    router = APIRouter()

    @router.get("/label")
    def page() -> FileResponse:
        return static_page("label.html")

    @router.get("/api/label/photographs")
    def listed() -> JSONResponse:
        return JSONResponse(
            {
                "photographs": [_described(labels, name) for name in labels.names],
                "problems": labels.problems,
            }
        )

    @router.get("/api/label/photographs/{name}")
    def picture(name: str) -> Response:
        labels.size(name)  # a name of the folder
        return Response(_jpeg(labels.folder / name), media_type="image/jpeg")

    @router.put("/api/label/photographs/{name}")
    async def put_labels(name: str, request: Request) -> JSONResponse:
        too_large = ClueError(f"the labels of a photograph have at most {MAX_BODY} bytes")
        body = await read_body(request, MAX_BODY, too_large)
        count = await asyncio.to_thread(labels.label, name, _objects(body))
        return JSONResponse({**_described(labels, name), "requests": count})

    return router


def _described(labels: LabelFolder, name: str) -> dict[str, Any]:
    width, height = labels.size(name)
    objects = [{"name": o.name, "box": o.box.as_list()} for o in labels.objects(name)]
    note = labels.note(name)
    return {"name": name, "width": width, "height": height, "objects": objects, "note": note}


def _objects(body: bytes) -> Any:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PhotographsError(f"the body is not JSON: {error}") from None
    if not isinstance(values, dict) or "objects" not in values:
        raise PhotographsError('the body is no JSON object with "objects"')
    return values["objects"]


def _jpeg(path: Path) -> bytes:
    """A picture as a browser shows it: upright, whatever its format."""
    image = Image.fromarray(load_image(path))
    image.thumbnail((_SHOWN, _SHOWN))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue label``."""
    parser.add_argument("folder", type=Path, metavar="PHOTOS", help="folder of photographs")
    parser.add_argument(
        "--preset",
        choices=("paper",),
        help=f"write rows.jsonl too, as CLUE's Dataset 2: an ambiguous and a clear sentence about"
        f" each of {PAPER_PHOTOGRAPHS} photographs",
    )
    add_server_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue label`` until it is interrupted; the exit status."""
    labels = LabelFolder(args.folder, pairs=args.preset is not None)
    for reason in labels.problems.values():
        print(f"note: left out, {reason}", file=sys.stderr)
    if labels.pairs:
        count = f"{labels.paired} of {PAPER_PHOTOGRAPHS} photographs have both sentences"
        print(f"{labels.folder / ROWS}: {count}", file=sys.stderr)
    token = token_for(args.host, args.token)
    with served(create_app(None, None, token=token, routers=[label_router(labels)]), args):
        wait_until_interrupted()
    return 0
