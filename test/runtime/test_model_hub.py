"""Finding a model by name: each way that can fail gives one clear sentence.

The hub's real client talks to a small server here that answers as the hub does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hub_server import SHA, Hub, serve

from clue_ros.errors import ModelError
from clue_ros.model import loading

ASK = """
import sys
from clue_ros.errors import ModelError
from clue_ros.model.loading import find_model
try:
    print(find_model(sys.argv[1]))
except ModelError as error:
    print(error)
"""


def message_for(name: str, tmp_path: Path, **environment: str) -> str:
    """What a fresh process says, since the hub's client reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, name],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 1, done.stdout
    return lines[0]


FULL = "google/paligemma2-3b-mix-448"
CONFIG = json.dumps({"model_type": "paligemma"}).encode()
MODEL = {
    "config.json": CONFIG,
    "tokenizer.json": b"{}",
    "model.safetensors": b"w" * 100_000,
    "flax_model.msgpack": b"x" * 10,
}


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "RepoNotFound", "no model"),
        (401, "RepoNotFound", "no model"),
        (401, "", "token"),
        (403, "", "hub"),
        (503, "", "cannot be reached"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_line(
    tmp_path: Path, status: int, code: str, expected: str
) -> None:
    with serve(Hub(FULL, refuse=(status, code))) as hub:
        message = message_for(FULL, tmp_path, HF_ENDPOINT=hub.url)
    assert expected in message
    assert FULL in message
    assert not message.startswith("/")


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("where", ["refuse", "refuse_files"])
def test_a_gated_model_says_how_to_get_it(tmp_path: Path, where: str, status: int) -> None:
    # The hub shows what a gated model is made of to anybody; only its files are withheld.
    refusal: dict[str, Any] = {where: (status, "GatedRepo")}
    with serve(Hub(FULL, MODEL, **refusal)) as hub:
        message = message_for(FULL, tmp_path, HF_ENDPOINT=hub.url)
    assert message.startswith(f"{FULL} is gated")
    assert f"https://huggingface.co/{FULL}" in message
    assert "hf auth login" in message


def test_what_a_model_needs_is_downloaded_once(tmp_path: Path) -> None:
    with serve(Hub(FULL, MODEL)) as hub:
        folder = Path(message_for(FULL, tmp_path, HF_ENDPOINT=hub.url))
        assert {path.name for path in folder.iterdir()} == set(MODEL) - {"flax_model.msgpack"}
        assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
        before = [path for path in hub.requests if "/resolve/" in path]
        assert message_for(FULL, tmp_path, HF_ENDPOINT=hub.url) == str(folder)
        assert [path for path in hub.requests if "/resolve/" in path] == before
    # And is there without a network.
    assert message_for(FULL, tmp_path, HF_ENDPOINT="http://127.0.0.1:9") == str(folder)
    assert message_for(FULL, tmp_path, HF_HUB_OFFLINE="1") == str(folder)


def test_a_revision_is_a_branch_tag_or_commit(tmp_path: Path) -> None:
    with serve(Hub(FULL, MODEL, revisions=("main", "v1.0", SHA))) as hub:
        for revision in ("v1.0", SHA):
            found = message_for(f"{FULL}@{revision}", tmp_path, HF_ENDPOINT=hub.url)
            assert Path(found).name == SHA
        message = message_for(f"{FULL}@v2", tmp_path, HF_ENDPOINT=hub.url)
        assert f"{FULL} has no revision 'v2'" in message
        assert "/commits/main" in message
    offline = message_for(f"{FULL}@v3", tmp_path, HF_HUB_OFFLINE="1")
    assert "revision v3" in offline


def test_a_download_that_broke_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with serve(Hub(FULL, MODEL, break_off={"model.safetensors": 40_000})) as hub:
        message = message_for(FULL, tmp_path, HF_ENDPOINT=hub.url)
        assert message.startswith(f"the download of {FULL} broke off")
        assert "start again" in message
    message = message_for(FULL, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert message.startswith(f"only a part of {FULL} was downloaded")
    with serve(Hub(FULL, MODEL)) as hub:
        folder = Path(message_for(FULL, tmp_path, HF_ENDPOINT=hub.url))
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]


@pytest.mark.parametrize("kind", ["datasets", "spaces"])
def test_a_dataset_or_space_is_named_as_such(tmp_path: Path, kind: str) -> None:
    with serve(Hub("some/one", {"README.md": b""}, kind=kind)) as hub:
        message = message_for("some/one", tmp_path, HF_ENDPOINT=hub.url)
    assert message.startswith(f"some/one is a {kind[:-1]}")
    assert message.endswith("not a model")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"config.json": b'{"model_type": "bert"}'}, "type bert"),
        ({"README.md": b"hello"}, "neither"),
        ({"config.json": b"{"}, "config.json"),
    ],
)
def test_another_model_is_refused_before_its_weights_are_fetched(
    tmp_path: Path, files: dict[str, bytes], expected: str
) -> None:
    with serve(Hub("some/bert", {**files, "model.safetensors": b"w" * 1000})) as hub:
        message = message_for("some/bert", tmp_path, HF_ENDPOINT=hub.url)
        assert not any("safetensors" in path for path in hub.requests)
    assert expected in message


def test_adapters_on_the_hub_bring_their_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    adapter = {"base_model_name_or_path": str(base), "revision": None}
    files = {
        "detector/adapter_config.json": json.dumps(adapter).encode(),
        "detector/adapter_model.safetensors": b"w",
        "ivg/ivg.json": b"{}",
    }
    with serve(Hub("me/adapters", files)) as hub:
        folder = Path(message_for("me/adapters", tmp_path, HF_ENDPOINT=hub.url))
    assert (folder / "detector" / "adapter_model.safetensors").is_file()
    assert loading.find_base(folder) == base


def test_a_base_on_the_hub_is_taken_at_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(name: str, revision: str | None = None) -> Path:
        asked.append((name, revision))
        return tmp_path

    monkeypatch.setattr(loading, "download", fetch)
    (tmp_path / "detector").mkdir()
    path = tmp_path / "detector" / "adapter_config.json"
    for revision in ("v1", None):
        path.write_text(json.dumps({"base_model_name_or_path": FULL, "revision": revision}))
        assert loading.find_base(tmp_path) == tmp_path
    assert asked == [(FULL, "v1"), (FULL, None)]
    loading.find_model(f"{FULL}@refs/pr/3")
    loading.find_model(FULL, "v2")
    assert asked[2:] == [(FULL, "refs/pr/3"), (FULL, "v2")]
    with pytest.raises(ModelError, match="two revisions"):
        loading.find_model(f"{FULL}@v1", "v2")
    with pytest.raises(ModelError, match="no revision"):
        loading.find_model(tmp_path, "v1")


def test_no_network_is_said_in_one_line(tmp_path: Path) -> None:
    # Nothing listens on the discard port.
    message = message_for("google/some-model", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "cannot be reached" in message
    assert "google/some-model" in message


def test_offline_mode_is_said_in_one_line(tmp_path: Path) -> None:
    message = message_for("google/some-model", tmp_path, HF_HUB_OFFLINE="1")
    assert "cannot be reached" in message


@pytest.mark.parametrize(
    "name",
    ["nonsense", "", "/no/such/folder", "./nor/this", "a/b/c", "a b/c", "a/b@", "a/b@-x", "a@v1"],
)
def test_names_that_are_nothing(name: str) -> None:
    with pytest.raises(ModelError, match="no model"):
        loading.find_model(name)


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert loading.find_model(tmp_path) == tmp_path
    assert loading.find_model(str(tmp_path)) == tmp_path


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="no model"):
        loading.find_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize("by", ["AMENT_PREFIX_PATH", "site-packages", "sys.prefix"])
def test_an_installed_package_finds_its_models_in_its_share_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    model = tmp_path / "share" / "clue_ros" / "models" / "household"
    model.mkdir(parents=True)
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    monkeypatch.setattr(sys, "prefix", "/no/such")
    module = Path("clue_ros", "model", "loading.py")
    monkeypatch.setattr(loading, "__file__", str("/no/such" / module))
    with pytest.raises(ModelError, match="embedded"):
        loading.find_model("household")
    if by == "AMENT_PREFIX_PATH":
        monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere{os.pathsep}{tmp_path}")
    elif by == "site-packages":
        installed = tmp_path / "lib" / "python3" / "site-packages" / module
        monkeypatch.setattr(loading, "__file__", str(installed))
    else:
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert loading.find_model("household") == model
