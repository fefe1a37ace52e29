"""`clue reproduce`: a paper's tables on a tiny random model, resumed, and its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn_scenes import random_scenes
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.published import TABLE_1
from clue_ros.lab.simulator import shards
from clue_ros.model.detector_variants import VARIANTS

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
