"""`clue train boxes` and `clue train score`: targets, a loss that falls, commands, a fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from PIL import Image
from tiny_model import BOX_STEM, write_random_head, write_random_model

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.box_head import (
    COVERED,
    INSIDE,
    NOWHERE,
    BoxHeadModule,
    box_loss,
    targets_of,
)
from clue_ros.lab.training.box_score import Pointed, fit_score, left_out
from clue_ros.model.ranking import Evidence


def scene() -> Scene:
    """A wide object, of which the mask has a half, and one thinner than a cell."""
    instances = np.zeros((20, 20), np.uint8)
    instances[4:8, 2:8] = 1
    objects = (
        SceneObject("block", "red", (0.1, 0.2, 0.7, 0.4)),
        SceneObject("pen", "blue", (0.81, 0.5, 0.82, 0.9)),
    )
    return Scene(np.zeros((100, 100, 3), np.uint8), objects, instances)


def test_cells_learn_from_the_object_that_covers_them() -> None:
    found = targets_of(scene(), 10, 10)
    kind, owner = found.kind.numpy(), found.owner.numpy()
    assert (kind[2:4, 1:4] == COVERED).all()
    assert (kind[2:4, 4:7] == INSIDE).all()
    assert (owner[2:4, 1:7] == 0).all()
    assert owner[7, 8] == 1
    assert kind[7, 8] == COVERED
    assert (kind == NOWHERE).sum() == 100 - 12 - 1
    assert (owner[kind == NOWHERE] == -1).all()
    assert found.boxes[0].tolist() == pytest.approx([1, 2, 7, 4])


def test_the_loss_falls_to_right_boxes() -> None:
    torch.manual_seed(0)
    module = BoxHeadModule(6 * 4 + 8 + 10, 16)
    levels = [torch.randn(1, c, s, s) for c, s in ((6, 20), (8, 10), (10, 5))]
    target = targets_of(scene(), 10, 10)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    first, overlap = box_loss(module(levels)[0], target)
    for _ in range(150):
        optimizer.zero_grad()
        loss, overlap = box_loss(module(levels)[0], target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss.item() < 0.5 * first.item()
    assert overlap > 0.7
    empty = Scene(scene().image, (), np.zeros((20, 20), np.uint8))
    loss, overlap = box_loss(module(levels)[0], targets_of(empty, 10, 10))
    assert np.isfinite(loss.item())
    assert overlap == 0


def test_the_command_writes_a_head_that_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    scenes = tmp_path / "scenes"
    for split, count, seed in (("train", 4, 0), ("val", 2, 1)):
        path = shards.shard_path(scenes, split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=96))
    model = write_random_model(tmp_path / "model", seed=4, conv_stem=BOX_STEM)
    options = ["--model", str(model), "--tabletop", str(scenes), "--steps", "1"]
    assert main(["train", "boxes", *options]) == 0
    said = json.loads(capsys.readouterr().out)
    assert Path(said["out"]) == model / "box_head.safetensors"
    assert main(["train", "boxes", *options, "--init", said["out"]]) == 0
    plain = write_random_model(tmp_path / "plain", seed=4)
    assert main(["train", "boxes", "--model", str(plain), "--tabletop", str(scenes)]) != 0
    assert "no stem" in capsys.readouterr().err


def test_a_score_is_fitted_to_what_is_right() -> None:
    rng = np.random.default_rng(0)
    values = -rng.random((400, 3)) * 3
    chance = 1 / (1 + np.exp(-(2.0 + 3.0 * values[:, 0])))
    pointed = [
        Pointed(i % 20, Evidence(*map(float, row)), bool(rng.random() < p), i % 3 == 0)
        for i, (row, p) in enumerate(zip(values, chance, strict=True))
    ]
    score = fit_score(pointed)
    assert score.rating == pytest.approx(3, abs=0.8)
    assert abs(score.quality) < 0.5
    notes = left_out(pointed)
    assert notes["boxes"] == sum(not p.asked for p in pointed)
    assert notes["ece"] < 0.12
    assert notes["auroc"] > 0.8
    with pytest.raises(ClueError, match="more photographs"):
        fit_score([p for p in pointed if p.right])


def test_the_score_command_needs_a_head_and_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_random_head(write_random_model(tmp_path / "model", seed=4, conv_stem=BOX_STEM))
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (80, 60), (90, 90, 90)).save(photos / "a.png")
    requests = [{"text": "the red block", "truth": "clear", "boxes": [[1, 1, 20, 20]]}]
    content = {"format": "clue_photos", "version": 1}
    listed = {**content, "photos": [{"file": "a.png", "title": "grey", "requests": requests}]}
    (photos / "photos.json").write_text(json.dumps(listed))
    assert main(["train", "score", "--model", str(folder), "--data", str(photos)]) != 0
    assert "more photographs" in capsys.readouterr().err  # one request cannot be fitted
    assert main(["train", "score", "--model", "household"]) != 0
    assert "name its folder" in capsys.readouterr().err
    headless = Path(shutil.copytree(folder, tmp_path / "headless"))
    (headless / "box_head.safetensors").unlink()
    assert main(["train", "score", "--model", str(headless), "--data", str(photos)]) != 0
    assert "no box head" in capsys.readouterr().err
