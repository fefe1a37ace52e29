"""A machine that `clue check` looks at: its hub, cache, memory and disk as a test wants them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants, hf_api

from clue_ros import memory
from clue_ros.cli import main

GB = 10**9
NOBODY = "http://127.0.0.1:9"  # nothing listens on the discard port


class Machine:
    """This machine with a hub, a cache of its own, and as much memory and disk as a test wants."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._set, self._capsys = monkeypatch.setattr, capsys
        monkeypatch.delenv("HF_TOKEN", raising=False)
        self._set(constants, "HF_HUB_CACHE", str(cache))
        self._set(constants, "HF_TOKEN_PATH", str(cache / "token"))
        self.online(NOBODY)
        self.memory(64 * GB)

    def online(self, url: str) -> None:
        """Ask this hub."""
        self._set(constants, "ENDPOINT", url)
        self._set(constants, "HF_HUB_OFFLINE", False)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        self._set(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        self._set(hf_api.api, "endpoint", url)

    def offline(self) -> None:
        """Ask no hub, as HF_HUB_OFFLINE=1 does."""
        self._set(constants, "HF_HUB_OFFLINE", True)

    def memory(self, size: int) -> None:
        """Have so much memory."""
        self._set(memory, "available", lambda: size)

    def disk(self, size: int) -> None:
        """Have so much room on the disk."""
        self._set(shutil, "disk_usage", lambda _: SimpleNamespace(free=size))

    def check(self, *words: object, status: int = 2) -> dict[str, Any]:
        """What `clue check --json` says."""
        self._capsys.readouterr()
        assert main(["check", "--device", "cpu", "--json", *map(str, words)]) == status
        report: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        assert report["works"] == (status == 0) == (not report["problems"])
        return report
