"""A small server that answers as the Hugging Face hub does, for its real client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """One repository, and how the hub treats whoever asks for it."""

    name: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = "models"
    revisions: tuple[str, ...] = ("main", SHA)
    refuse: tuple[int, str] | None = None  # status and X-Error-Code of every answer
    refuse_files: tuple[int, str] | None = None  # of the files only, as for a gated repository
    gated: str | bool = False  # as the hub says it: "manual", "auto" or False
    tags: tuple[str, ...] = ()
    parameters: int | None = None  # of the weights, as the hub counts them
    sizes: Mapping[str, int] = field(default_factory=dict)  # that are not the files' own
    account: str = ""  # whose token this is; empty: a bad one
    break_off: Mapping[str, int] = field(default_factory=dict)  # bytes after which a file ends
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Answer on a free port of this machine until the block is left; `hub.url` says where."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.requests.append(self.path)
            _answer(hub, self)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(hub: Hub, request: BaseHTTPRequestHandler) -> None:
    path = request.path.partition("?")[0].replace("%2F", "/")
    if path == "/api/whoami-v2":
        return (
            _send_json(request, {"name": hub.account}) if hub.account else _send(request, 401, "")
        )
    if path == f"/api/{hub.kind}/{hub.name}/auth-check":
        refusal = hub.refuse or hub.refuse_files
        return _send(request, *refusal) if refusal else _send_json(request, {})
    api = re.fullmatch(rf"/api/(\w+)/{hub.name}(?:/(revision|tree)/([^/]+))?/?", path)
    lead = "" if hub.kind == "models" else f"{hub.kind}/"
    file = re.fullmatch(rf"/{lead}{hub.name}/resolve/([^/]+)/(.+)", path)
    if hub.refuse:
        _send(request, *hub.refuse)
    elif api and api[1] == hub.kind:
        if api[3] and api[3] not in hub.revisions:
            _send(request, 404, "RevisionNotFound")
        elif api[2] == "tree":
            _send_json(request, [_entry(name, data) for name, data in hub.files.items()])
        else:
            _send_json(request, _info(hub))
    elif file and file[2] in hub.files:
        if hub.refuse_files:
            _send(request, *hub.refuse_files)
        else:
            _send_file(hub, request, file[2])
    else:
        _send(request, 404, "EntryNotFound" if file else "RepoNotFound")


def _refuse(request: BaseHTTPRequestHandler) -> None:
    _send(request, 401, "")


def _info(hub: Hub) -> dict[str, object]:
    siblings = [
        {"rfilename": name, "size": hub.sizes.get(name, len(data))}
        for name, data in hub.files.items()
    ]
    info: dict[str, object] = {"id": hub.name, "sha": SHA, "siblings": siblings}
    info |= {"tags": list(hub.tags), "gated": hub.gated}
    if hub.parameters is not None:
        info["safetensors"] = {"parameters": {"BF16": hub.parameters}, "total": hub.parameters}
    return info


def _entry(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(data), "oid": sha1(data).hexdigest()}


def _send(request: BaseHTTPRequestHandler, status: int, code: str) -> None:
    request.send_response(status)
    request.send_header("X-Error-Code", code)
    request.send_header("X-Error-Message", code)
    request.send_header("Content-Length", "0")
    request.end_headers()


def _send_json(request: BaseHTTPRequestHandler, content: object) -> None:
    data = json.dumps(content).encode()
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(data)


def _send_file(hub: Hub, request: BaseHTTPRequestHandler, name: str) -> None:
    data = hub.files[name]
    start = int((re.match(r"bytes=(\d+)-", request.headers.get("Range", "")) or "00")[1])
    request.send_response(206 if start else 200)
    request.send_header("ETag", f'"{sha1(data).hexdigest()}"')
    request.send_header("X-Repo-Commit", SHA)
    request.send_header("Accept-Ranges", "bytes")
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    request.send_header("Content-Length", str(len(data) - start))
    request.end_headers()
    if request.command != "GET":
        return
    end = hub.break_off.get(name, len(data))
    request.wfile.write(data[start:end])
    if end < len(data):
        request.close_connection = True
