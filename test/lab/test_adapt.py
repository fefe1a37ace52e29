"""`clue adapt`: words of labels, a run that goes on, and the folder that it writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from drawn_scenes import random_scenes
from test_eval_photos import REQUESTS, write_photos

from clue_ros.cli import main
from clue_ros.dialogue.types import Box
from clue_ros.engine import Clue
from clue_ros.lab.adapt import Journal
from clue_ros.lab.data.photographs import LabelledObject, load_photographs
from clue_ros.lab.data.shown import named_objects
from clue_ros.lab.evaluation.photos import PhotoReply
from clue_ros.lab.simulator import shards
from clue_ros.model.loading import demo_folder, find_model
from clue_ros.model.risk import load_calibration


def test_names_come_from_labels_or_else_from_requests(tmp_path: Path) -> None:
    (by_hand,) = load_photographs(write_photos(tmp_path / "a"))
    assert {(o.name, tuple(o.box.as_list())) for o in named_objects(by_hand)} == {
        ("left cup", (5, 5, 25, 45)), ("right cup", (50, 10, 75, 50)),
    }  # fmt: skip
    labels = [{"name": "mug", "box": [1, 2, 30, 40]}]
    (labelled,) = load_photographs(write_photos(tmp_path / "b", objects=labels))
    assert named_objects(labelled) == (LabelledObject("mug", Box(1, 2, 30, 40)),)


def test_a_run_that_was_ended_goes_on(tmp_path: Path, clue: Clue) -> None:
    photographs = load_photographs(write_photos(tmp_path / "photos"))
    reply = PhotoReply("cups.png", "the cup", "clear", "points", 0.1, score=0.9, hit=True)
    calls: list[int] = []

    def answer() -> list[PhotoReply]:
        calls.append(1)
        return [reply]

    first = Journal(tmp_path, clue, photographs)
    assert first.replies("before", 0, answer) == [reply]
    path = next(tmp_path.glob(".adapt*"))
    with path.open("a") as file:
        file.write('{"key": "half a li')
    again = Journal(tmp_path, clue, photographs)
    assert again.replies("before", 0, answer) == [reply]
    assert len(calls) == 1, "it was known"
    again.replies("after", 0, answer)
    others = load_photographs(write_photos(tmp_path / "photos", REQUESTS[:1]))
    Journal(tmp_path, clue, others).replies("before", 0, answer)
    assert len(calls) == 3, "of other labels nothing is known"
    again.end()
    assert not path.exists()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the open photographs, both with a hammer and one with a plate that is labelled so."""
    folder, own = tmp_path_factory.mktemp("photos"), demo_folder() / "photos"
    index = json.loads((own / "photos.json").read_text())
    names = "hammer_blue.jpg", "hammer_workshop.jpg"
    index["photos"] = [photo for photo in index["photos"] if photo["file"] in names]
    for photo in index["photos"]:
        photo["requests"] = [r for r in photo["requests"] if r["truth"] != "ambiguous"][:2]
        (folder / photo["file"]).write_bytes((own / photo["file"]).read_bytes())
    (folder / "photos.json").write_text(json.dumps(index))
    return folder


def test_the_adapted_model_knows_the_words_and_its_calibration(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mytable"
    assert main(["adapt", str(photographs), "--out", str(out), "--tabletop", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    report = (out / "report.md").read_text()
    assert "# 2 photographs" in report
    assert "needs 45 labelled requests, there are 4" in report
    assert "| ... or after one 'this one?' |" in printed
    assert sorted(path.name for path in out.iterdir() if path.name != "mistakes") == [
        "calibration.json", "detector", "ivg", "report.md", "words",
    ]  # fmt: skip
    for line in report.splitlines():
        if line.startswith("!["):
            assert (out / line.split("(")[-1].rstrip(")")).is_file()
    adapted = Clue.load(out, max_risk=0.6)
    assert "hammer" in adapted.memory.words
    assert adapted.not_promised == ""
    assert load_calibration(out / "calibration.json").n == 4
    assert adapted.policy == "both"
    assert main(["calibrate", str(photographs), "--model", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ".jpg has taught this model words: calibrate on other" in line


def test_adapters_that_a_run_has_trained_are_the_models(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run was ended when all was trained: the model's own weights stand for it here."""
    for split in ("train", "val"):
        path = shards.shard_path(tmp_path / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(1, 0, size=64))
    out, own = tmp_path / "mytable", find_model("household")
    out.mkdir()
    trained = Journal(out, Clue.load(memory=""), load_photographs(photographs)).folder
    for name in ("half0", "half1", "own", "all"):
        for part in ("detector", "ivg"):
            shutil.copytree(own / part, trained / name / part)
        (trained / name / "simulated.json").write_text('{"f1": 0.8}')
    words = ["--adapters", "always", "--tabletop", str(tmp_path / "scenes"), "--device", "cpu"]
    assert main(["adapt", str(photographs), "--out", str(out), *words]) == 0
    report = capsys.readouterr().out
    assert "Simulated scenes: f1 0.800; taught on: f1 0.800." in report
    assert "Adapters are kept." in report
    assert not trained.exists()
    adapted = Clue.load(out, max_risk=0.6)
    assert (adapted.policy, adapted.not_promised) == ("both", "")


def test_a_promise_is_measured_with_what_the_other_photographs_taught(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", str(photographs), "--teach"]
    assert main([*words, "--splits", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n"], found["out"], len(found["splits"])) == (4, None, 4)
    assert main([*words, "--out", str(tmp_path / "own.json")]) == 2
    assert "--teach only measures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--max-risk", "0"], "max_risk 0.0 is no share"),
        (["--model", "models"], "has no adapters"),
        (["--out", "models/household"], "is the model itself"),
        (
            ["--adapters", "always", "--tabletop", "none"],
            "--adapters always: no train scenes in none",
        ),
    ],
)
def test_what_cannot_be_adapted_is_one_line(
    photographs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["adapt", str(photographs), "--out", str(tmp_path / "out"), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_photographs_without_names_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent: list[Any] = [{"text": "the banana", "truth": "absent"}]
    folder = write_photos(tmp_path / "photos", absent)
    assert main(["adapt", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "no object has a name and a box" in capsys.readouterr().err
