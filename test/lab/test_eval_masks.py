"""`clue eval masks`: masks of drawn scenes against the exact ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clue_ros.cli import main
from clue_ros.lab.evaluation.masks import MODEL, RIGHT, TRUE, MaskResults
from clue_ros.lab.metrics import mask_iou
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene, SceneObject

COLORS = {"red": (220, 30, 30), "blue": (40, 70, 220)}


def scenes(count: int) -> list[Scene]:
    """Three discs a scene, a red and a blue mug and an apple, with the rich world's names."""
    rng, out = np.random.default_rng(0), []
    ys, xs = np.mgrid[0:120, 0:160] + 0.5
    for _ in range(count):
        image = np.full((120, 160, 3), 90, np.uint8)
        masks, objects = np.zeros((120, 160), np.uint8), []
        for k, (kind, color) in enumerate((("mug", "red"), ("mug", "blue"), ("apple", "red"))):
            x, y, radius = 30 + 48 * k, int(rng.integers(35, 85)), int(rng.integers(14, 20))
            inside = (xs - x) ** 2 + (ys - y) ** 2 < radius**2
            image[inside], masks[inside] = COLORS[color], k + 1
            box = ((x - radius) / 160, (y - radius) / 120, (x + radius) / 160, (y + radius) / 120)
            objects.append(SceneObject(kind, color, box, 0.08))
        small = masks[(np.arange(56) * 120 // 56)[:, None], np.arange(56) * 160 // 56]
        out.append(Scene(image, tuple(objects), small, masks))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenes")
    shards.write_shard(shards.shard_path(path, "test", 0, 0, "rich"), scenes(4), "rich")
    return path


def words(folder: Path, model: Path) -> list[str]:
    more = ["--world", "rich", "--tabletop", str(folder), "--model", str(model), "--device", "cpu"]
    return ["eval", "masks", *more, "--scenes"]


def test_grabcut_in_the_true_box_beats_the_filled_box(
    folder: Path, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    command = words(folder, random_model)
    assert main([*command, "4", "--json", "--records", str(records)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report.pop("made_by")["model"] == str(random_model)
    given = report[TRUE]
    assert given["box"]["n"] == given["GrabCut"]["n"] == report[MODEL]["GrabCut"]["n"] > 0
    assert given["GrabCut"]["iou"] > 0.95
    assert given["box"]["iou"] == pytest.approx(np.pi / 4, abs=0.02)
    assert "segment tokens" not in given
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(rows) == sum(
        way["n"] for name, group in report.items() if name != RIGHT for way in group.values()
    )
    assert main([*command, "4", "--markdown"]) == 0
    assert "| true box | GrabCut |" in capsys.readouterr().out


def test_scenes_without_masks_and_too_few_scenes_are_refused(
    folder: Path, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(folder, random_model), "5"]) == 2
    assert "has 4 test scenes" in capsys.readouterr().err
    bare = [replace(scene, masks=None) for scene in scenes(1)]
    shards.write_shard(shards.shard_path(tmp_path, "test", 0, 0, "rich"), bare, "rich")
    assert main([*words(tmp_path, random_model), "1"]) == 2
    assert "no mask" in capsys.readouterr().err


def test_masks_in_right_boxes_are_counted_apart() -> None:
    result, truth = MaskResults(), np.eye(4, dtype=bool)
    half = truth & (np.arange(4) < 2)
    for box_iou in (0.4, 0.6):
        result.add(MODEL, "x", lambda: half, truth, {"box_iou": box_iou})
    result.add(TRUE, "x", lambda: truth, truth, {})
    summary = result.summary()
    assert {name: group["x"]["n"] for name, group in summary.items()} == {
        TRUE: 1,
        MODEL: 2,
        RIGHT: 1,
    }
    assert summary[MODEL]["x"]["iou"] == mask_iou(half, truth) == 0.5
    assert summary[TRUE]["x"]["iou"] == 1.0
