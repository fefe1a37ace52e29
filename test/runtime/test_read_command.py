"""`clue read`: one JSON object a line, whatever is said."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from clue_ros.cli import main

KEYS = {"text", "kind", "wants", "confirm", "confidence"}


def read_lines(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of `clue read ... --json`, and its rows."""
    status = main(["read", *words, "--json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_file_is_read_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "said.txt"
    path.write_text("hand me the mug\n\nstop!\nleave it where it is\n")
    status, rows = read_lines(capsys, str(path))
    assert status == 0
    assert all(set(row) == KEYS for row in rows)
    assert [row["kind"] for row in rows] == ["request", "stop", "refusal"]
    assert [row["wants"] for row in rows] == [True, False, False]
    assert [row["text"] for row in rows][1] == "stop!"


def test_the_open_question_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for question, kind, wants in (
        (["--question", "the red one or the blue one?"], "offered", True),
        (["--question", "which mug?", "--offer", "the red one", "--offer", "x"], "offered", True),
        (["--question", "which mug do you mean?"], "answer", True),
        ([], "request", True),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO("the red one\n"))
        status, rows = read_lines(capsys, *question)
        assert status == 0
        assert [(row["kind"], row["wants"]) for row in rows] == [(kind, wants)]


def test_the_part_that_the_model_reads_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "said.txt"
    path.write_text("don't take the mug, take the bowl\n")
    _, (row,) = read_lines(capsys, str(path))
    assert row["part"] == "take the bowl"


def test_bad_lines_are_said_and_the_others_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "said.txt"
    path.write_bytes(
        b"!?!\n" + b"a" * 10_000 + b"\n\x00\x07 the mug\n\xff\xfe\n" + "杯子\n".encode()
    )
    status, rows = read_lines(capsys, str(path))
    assert status == 2
    assert [row["kind"] for row in rows][:2] == ["bad", "bad"]
    assert "at most 1000" in rows[1]["error"]
    assert rows[2]["wants"]
    assert len(rows) == 5
    assert main(["read", str(tmp_path / "missing.txt")]) == 2
    assert "give a text file" in capsys.readouterr().err


def test_without_json_a_person_can_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "said.txt"
    path.write_text("hand me the mug\nstop\n")
    assert main(["read", str(path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "looks" in first
    assert "does not act" in second


def test_episodes_become_lines_to_correct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = [
        {"text": "the mug", "kind": "request", "confidence": 1.0, "about": "", "offered": []},
        {"text": "the left one", "kind": "chat", "confidence": 0.9, "about": "mug", "offered": []},
    ]
    row = {
        "ref_list": [{"bbox": None, "category": "", "dialog": [["", "the mug"]], "id": "x"}],
        "image_info": {"file_name": "x.png", "height": 4, "width": 4, "id": "x"},
        "clue": {"outcome": "OPEN", "message": "", "turns": [], "heard": heard, "replies": []},
    }
    (tmp_path / "episode-000001-0a.json").write_text(json.dumps([row]))
    status, rows = read_lines(capsys, "--episodes", str(tmp_path))
    assert status == 0
    assert [(r["text"], r["kind"], r["about"]) for r in rows] == [
        ("the mug", "request", ""),
        ("the left one", "answer", "mug"),
    ]
    assert main(["read", "--episodes", str(tmp_path / "none")]) == 2
