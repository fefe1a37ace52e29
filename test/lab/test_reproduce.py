"""`clue reproduce`: a paper's tables on a tiny random model, resumed, and its plan."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from drawn_scenes import random_scenes
from refcoco_files import write_refcoco
from tiny_language_model import write_random_language_model
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.published import TABLE_1
from clue_ros.lab.simulator import shards
from clue_ros.lab.steps import Step, run_steps
from clue_ros.model.detector_variants import VARIANTS

INVIG = Path(__file__).resolve().parents[1] / "data" / "invig_new"
DETECTORS = [name for name in TABLE_1 if name in VARIANTS]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scenes of Dataset 1 and of another world, and rows for Table II."""
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    folder = tmp_path / "data"
    counts = (("train", 14, "paper"), ("val", 3, "paper"), ("test", 3, "paper"))
    for seed, (split, count, world) in enumerate((*counts, ("test", 3, "rich-unseen"))):
        path = shards.shard_path(folder / "tabletop", split, 0, 0, world)
        shards.write_shard(path, random_scenes(count, seed, size=64), world)
    return folder


def test_tables_are_made_in_order_and_not_twice(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = write_random_model(tmp_path / "model", vocabulary()), tmp_path / "out"
    words = ["reproduce", "clue", "--data", str(data), "--model", str(model), "--out", str(out)]
    words += ["--detector-steps", "1", "--detector-batch", "1", "--seeds", "1", "--device", "cpu"]
    words += ["--base-dtype", "float32", "--scenes", "20"]
    assert main(words) == 0
    said = capsys.readouterr()
    table = json.loads((out / "results" / "table-1.json").read_text())
    assert [row["name"] for row in table["detectors"]] == DETECTORS
    assert table["made_by"]["command"].startswith("clue eval detectors --model")
    figure = json.loads((out / "results" / "figure-7.json").read_text())
    assert len(figure["blocks"]) == 4
    for name in ("figure-5.png", "figure-7.png", "figure-8.png"):
        assert (out / name).stat().st_size > 1000
    for item in ("Table II:", "Table III: adapter B, mix-r16", "Dataset 2:"):
        assert item in said.err
    assert "or --invig jxu124/invig" in said.err
    # Again: nothing is left to do. Without a result, its step and those behind it are done anew.
    assert main(words) == 0
    assert capsys.readouterr().err.count("done before:") == 3


def test_the_plan_says_steps_memory_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "clue", "--data", str(tmp_path), "--plan"]
    words += ["--model", "google/paligemma2-3b-mix-448", "--invig", "jxu124/invig"]
    assert main(words) == 0
    plan = capsys.readouterr().out
    assert "clue data tabletop --out" in plan
    assert "--preset paper" in plan
    assert "--model google/paligemma2-3b-pt-448 --rank 16 --alpha 8" in plan
    for card in ("24 GB", "40 GB", "80 GB"):
        assert card in plan
    assert plan.count("full-full-disambig-ar") >= 3
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("paper", ["invig", "wrapper"])
def test_a_paper_without_data_says_what_would_bring_it(
    paper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", paper, "--data", str(tmp_path), "--model", "owner/name"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "left out:" in said
    assert said.splitlines()[-1].startswith(f"clue: {tmp_path} has no data of {paper}")


def mugs(image: Any, nouns: Any) -> list[Candidate]:
    """Candidates of a picture (`--candidates python:...`)."""
    return [Candidate(Box(x, 5, x + 20, 15), "mug", 0.9) for x in (10, 60)]


def test_the_wrapper_is_trained_and_measured_where_there_are_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for name in ("refcocog", "refcoco+"):
        write_refcoco(data / name, data / "coco")
    model = write_random_language_model(tmp_path / "model")
    words = ["reproduce", "wrapper", "--data", str(data), "--model", str(model), "--out", str(out)]
    words += ["--device", "cpu", "--candidates", "python:test_reproduce:mugs"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "left out: table of talk2car" in said.err
    for name in ("refcocog", "refcoco+"):
        rows = json.loads((out / "results" / f"{name}.json").read_text())[name]
        assert rows[str(out / "wrapper")]["n clear"] == 1
        assert f"{name}.json: table of {name}" in said.out


def test_invigs_tasks_are_trained_and_measured(tmp_path: Path) -> None:
    model, out = write_random_model(tmp_path / "model", vocabulary()), tmp_path / "out"
    words = ["reproduce", "invig", "--data", str(tmp_path), "--invig", str(INVIG), "--limit", "1"]
    words += ["--model", str(model), "--out", str(out), "--device", "cpu"]
    words += ["--ivg-steps", "1", "--ivg-batch", "1", "--base-dtype", "float32"]
    assert main(words) == 0
    for name in ("statistics", "vqa", "vqg", "vg", "ivg"):
        assert json.loads((out / "results" / f"{name}.json").read_text()), name


def test_videos_are_filmed_once_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    filmed = ["data", "clips", "--out", str(data / "clips"), "--split", "test"]
    status = main([*filmed, "--clips", "1", "--per-clip", "1", "--width", "160"])
    if "OpenGL" in (said := capsys.readouterr()).err:
        pytest.skip(said.err)
    assert status == 0
    shutil.copytree(data / "clips", data / "ambi-rvos")
    model = write_random_model(tmp_path / "model", vocabulary())
    words = ["reproduce", "icseg", "--data", str(data), "--model", str(model), "--out", str(out)]
    words += ["--device", "cpu", "--limit", "1"]
    assert main(words) == 0
    assert "left out: videos of mevis" in capsys.readouterr().err
    for name in ("clips", "ambi-rvos"):
        found = json.loads((out / "results" / f"{name}.json").read_text())
        assert found["made_by"]["command"].startswith("clue eval rvos --data")


def test_a_step_that_makes_data_leaves_what_follows_it_finished(tmp_path: Path) -> None:
    ran: list[str] = []

    def step(name: str, after: tuple[str, ...], **more: Any) -> Step:
        return Step(name, name, work=lambda: ran.append(name), after=after, **more)

    make, other = step("make", (), every_time=True), step("other", ())
    use, last = step("use", ("make",)), step("last", ("use",))
    path = tmp_path / "steps.json"
    run_steps([make, use, last], path)
    run_steps([other, use, last], path)  # the data are there: nothing makes them
    assert ran == ["make", "use", "last", "other"]
