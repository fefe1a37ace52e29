"""Finding a model by name: each way that can fail gives one clear sentence.

The hub's real client talks to a small server here that answers as the hub does.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from clue_ros.errors import ModelError
from clue_ros.model import hub

ASK = """
import sys
from clue_ros.errors import ModelError
from clue_ros.model.hub import find_model
try:
    find_model(sys.argv[1])
except ModelError as error:
    print(error)
"""


@contextmanager
def hub_that_answers(status: int, code: str) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def message_for(name: str, tmp_path: Path, **environment: str) -> str:
    """What a fresh process says, since the hub's client reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, name],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 1, done.stdout
    return lines[0]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "GatedRepo", "gated"),
        (401, "GatedRepo", "gated"),
        (404, "RepoNotFound", "no model"),
        (401, "RepoNotFound", "no model"),
        (404, "RevisionNotFound", "cannot download"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_line(
    tmp_path: Path, status: int, code: str, expected: str
) -> None:
    with hub_that_answers(status, code) as endpoint:
        message = message_for("google/paligemma2-3b-mix-448", tmp_path, HF_ENDPOINT=endpoint)
    assert expected in message
    assert "google/paligemma2-3b-mix-448" in message
    if expected == "gated":
        assert "login" in message


def test_no_network_is_said_in_one_line(tmp_path: Path) -> None:
    # Nothing listens on the discard port.
    message = message_for("google/some-model", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "cannot be reached" in message
    assert "google/some-model" in message


def test_offline_mode_is_said_in_one_line(tmp_path: Path) -> None:
    message = message_for("google/some-model", tmp_path, HF_HUB_OFFLINE="1")
    assert "cannot be reached" in message


@pytest.mark.parametrize(
    "name", ["nonsense", "", "/no/such/folder", "./nor/this", "a/b/c", "a b/c"]
)
def test_names_that_are_nothing(name: str) -> None:
    with pytest.raises(ModelError, match="no model"):
        hub.find_model(name)


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert hub.find_model(tmp_path) == tmp_path
    assert hub.find_model(str(tmp_path)) == tmp_path


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="no model"):
        hub.find_model(tmp_path / "model.safetensors")


def test_the_embedded_model_is_found_beside_the_package_or_in_a_share_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share" / "clue_ros"
    (share / "models" / "tabletop").mkdir(parents=True)
    monkeypatch.setattr(hub, "_shares", lambda: iter([tmp_path / "elsewhere", share]))
    assert hub.find_model("tabletop") == share / "models" / "tabletop"
    monkeypatch.setattr(hub, "_shares", lambda: iter([tmp_path / "elsewhere"]))
    with pytest.raises(ModelError, match="embedded"):
        hub.find_model("tabletop")


def test_an_installed_package_finds_its_share_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere{os.pathsep}{tmp_path}")
    assert tmp_path / "share" / "clue_ros" in list(hub._shares())
    module = tmp_path / "lib" / "python3" / "site-packages" / "clue_ros" / "model" / "hub.py"
    monkeypatch.setattr(hub, "__file__", str(module))
    monkeypatch.delenv("AMENT_PREFIX_PATH")
    assert tmp_path / "share" / "clue_ros" in list(hub._shares())
