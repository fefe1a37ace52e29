"""`clue reproduce --ray`: two workers at once, one of which is killed.

This file imports little: every worker imports it when it starts.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box

KILLED = "CLUE_TEST_KILLED"  # names a file that says that a worker was killed
DEADLY = 91  # grey of the pictures that end a worker, once


def mugs(image: Any, nouns: Any) -> list[Candidate]:
    """Candidates of a picture (`--candidates python:...`)."""
    killed = Path(os.environ[KILLED])
    if image[0, 0, 0] == DEADLY and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [Candidate(Box(x, 5, x + 20, 15), "mug", 0.9) for x in (10, 60)]


def test_tables_of_a_killed_worker_are_made_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    from refcoco_files import write_refcoco
    from tiny_language_model import write_random_language_model

    from clue_ros.cli import main

    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15 other tests hold them up
    monkeypatch.setenv(KILLED, str(tmp_path / "killed"))
    data, out = tmp_path / "data", tmp_path / "out"
    write_refcoco(data / "refcocog", data / "coco")
    write_refcoco(data / "refcoco", data / "coco", grey=DEADLY)
    (data / "hcrefloco").mkdir()  # with nothing in it: its table fails
    model = write_random_language_model(tmp_path / "model")
    words = ["reproduce", "wrapper", "--data", str(data), "--model", str(model), "--out", str(out)]
    words += ["--device", "cpu", "--candidates", "python:test_reproduce_ray:mugs"]
    words += ["--ray", "local", "--ray-workers", "2"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "no result of hcrefloco, and 0 steps wait for them" in said
    logs = {name: (out / "logs" / f"{name}.log").read_text() for name in ("train", "refcoco")}
    assert logs["train"].count("process ") == 1
    assert logs["refcoco"].count("process ") == 2, "its first worker was killed"
    for name in ("refcocog", "refcoco"):
        rows = json.loads((out / "results" / f"{name}.json").read_text())[name]
        assert rows[str(out / "wrapper")]["n clear"] == 1
    (data / "hcrefloco").rmdir()
    assert main(words) == 0
    assert capsys.readouterr().err.count("done before:") == 3
