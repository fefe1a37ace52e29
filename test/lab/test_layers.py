"""Figure 7: the cache of maps, the CNN on one block's maps, and the command from end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from it2p_files import write_it2p
from PIL import Image
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.figure7_layers import (
    BlockResult,
    Figure7,
    HeadSettings,
    MapCache,
    kept_or_trained,
    train_head,
)
from clue_ros.lab.evaluation.in_domain import InDomainOptions, LabelledImage, load_in_domain
from clue_ros.lab.evaluation.options import ModelOptions
from clue_ros.lab.metrics import Counts
from clue_ros.lab.report import spread, table
from clue_ros.lab.simulator import shards
from clue_ros.lab.training.detector import fit_threshold
from clue_ros.model.loading import fingerprint

CPU = torch.device("cpu")


def on_cpu(model: Path) -> ModelOptions:
    return ModelOptions(model=str(model), device="cpu")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes as shards of all three splits."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed, (split, count) in enumerate((("train", 7), ("val", 4), ("test", 4))):
        path = shards.shard_path(folder, split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=64, colors=("red", "blue")))
    return folder


@pytest.fixture(scope="module")
def pictures(scenes: Path) -> list[LabelledImage]:
    """Ten scenes: seven to train on."""
    return load_in_domain(InDomainOptions(tabletop=scenes, scenes=10))


@pytest.fixture(autouse=True)
def _no_photographs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clue_ros.lab.evaluation.in_domain.find_it2p", lambda: None)


def test_images_are_split_and_no_image_is_in_two_splits(scenes: Path, tmp_path: Path) -> None:
    root = write_it2p(tmp_path)
    found = load_in_domain(InDomainOptions(tabletop=scenes, it2p=root, scenes=10))
    names = [picture.name for picture in found]
    assert len(set(names)) == len(names)
    simulated = [p for p in found if p.source == "tabletop"]
    assert [sum(p.split == s for p in simulated) for s in shards.SPLITS] == [7, 2, 2]
    assert sum(p.source == "it2p" for p in found) == 2
    for picture in found:
        labels = [label for _, label in picture.sentences]
        assert max(labels.count(True), labels.count(False)) <= 2


def test_too_few_scenes_and_no_data_are_told(scenes: Path) -> None:
    with pytest.raises(ClueError, match="has 7 train scenes, 70 are wanted"):
        load_in_domain(InDomainOptions(tabletop=scenes, scenes=100))
    with pytest.raises(ClueError, match="nothing to learn from"):
        load_in_domain(InDomainOptions(tabletop=scenes, scenes=0))


def test_a_killed_cache_goes_on_and_gives_the_same_maps(
    random_model: Path,
    pictures: list[LabelledImage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clue_ros.lab.evaluation.figure7_layers.CHUNK", 4)

    def cache(folder: str) -> MapCache:
        return MapCache(tmp_path / folder, on_cpu(random_model), "detect", pictures)

    whole = cache("whole")
    assert sum(whole.fill()) == len(pictures)
    killed = cache("killed")
    next(killed.fill())
    assert len(list((tmp_path / "killed").glob("*.safetensors"))) == 1
    again = cache("killed")
    written = next((tmp_path / "killed").glob("*.safetensors")).stat().st_mtime_ns
    list(again.fill())
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == sorted(
        p.name for p in (tmp_path / "whole").iterdir()
    )
    assert (tmp_path / "killed" / "maps-0000.safetensors").stat().st_mtime_ns == written
    sentences = sum(len(p.sentences) for p in pictures)
    for block in range(whole.blocks):
        maps = whole.block(block)
        assert maps.shape == (sentences, 8, 8)
        torch.testing.assert_close(again.block(block), maps)
        torch.testing.assert_close(maps.flatten(1).amax(1), torch.ones(sentences))
    (tmp_path / "whole" / "maps-0001.safetensors").write_bytes(b"torn")
    with pytest.raises(ClueError, match=r"maps-0001.safetensors cannot be read"):
        whole.block(0)


def test_maps_of_something_else_are_refused(
    random_model: Path, pictures: list[LabelledImage], tmp_path: Path
) -> None:
    MapCache(tmp_path / "maps", on_cpu(random_model), "detect", pictures)
    MapCache(tmp_path / "maps", on_cpu(random_model), "detect", pictures)
    with pytest.raises(ClueError, match="made with another data"):
        MapCache(tmp_path / "maps", on_cpu(random_model), "detect", pictures[1:])
    with pytest.raises(ClueError, match="made with another instruction"):
        MapCache(tmp_path / "maps", on_cpu(random_model), "look", pictures)
    other = write_random_model(tmp_path / "other", seed=1)
    with pytest.raises(ClueError, match="made with another model"):
        MapCache(tmp_path / "maps", on_cpu(other), "detect", pictures)


def test_a_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\0" * 3_000_000)
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    weights.write_bytes(b"\0" * 2_999_999 + b"\1")
    assert fingerprint(tmp_path) != before


def hills(count: int, seed: int) -> tuple[torch.Tensor, list[bool]]:
    """Maps with one hill (clear) or two (ambiguous), and whether they are ambiguous."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:14, :14]
    maps, labels = [], []
    for i in range(count):
        places = [(4, 4), (10, 10)] if i % 2 else [(4, 4) if rng.uniform() < 0.5 else (10, 10)]
        total = sum(np.exp(-((y - r) ** 2 + (x - c) ** 2) / 4) for r, c in places)
        maps.append(total + rng.normal(0, 0.02, (14, 14)))
        labels.append(bool(i % 2))
    return torch.tensor(np.stack(maps), dtype=torch.float32), labels


ROWS = {"train": range(160), "val": range(160, 200), "test": range(200, 240)}


def test_a_cnn_counts_hills_and_noise_teaches_it_nothing() -> None:
    maps, labels = hills(240, 0)
    settings = HeadSettings(epochs=12, batch=32, lr=2e-3)
    good = train_head(maps, labels, ROWS, settings, 0, CPU)
    said = [chance >= good.threshold for chance in good.test]
    assert np.mean([a == b for a, b in zip(said, labels[200:], strict=True)]) > 0.9
    assert good.val_loss < 0.3
    noise = train_head(torch.rand_like(maps), labels, ROWS, settings, 0, CPU)
    assert noise.val_loss > 0.6


def test_the_same_seed_gives_the_same_cnn_and_test_labels_are_never_looked_at(
    tmp_path: Path,
) -> None:
    maps, labels = hills(240, 1)
    settings = HeadSettings(epochs=2)
    first = train_head(maps, labels, ROWS, settings, 3, CPU)
    swapped = [*labels[:200], *(not label for label in labels[200:])]
    assert train_head(maps, swapped, ROWS, settings, 3, CPU) == first
    assert train_head(maps, labels, ROWS, settings, 4, CPU) != first
    path = tmp_path / "heads" / "one.json"
    assert kept_or_trained(path, maps, labels, ROWS, settings, 3, CPU) == first
    # Found again: other maps would have given another result.
    assert kept_or_trained(path, 1 - maps, labels, ROWS, settings, 3, CPU) == first
    other = kept_or_trained(path, 1 - maps, labels, ROWS, HeadSettings(epochs=1), 3, CPU)
    assert other != first


def test_the_threshold_lies_between_the_classes() -> None:
    chances = torch.tensor([0.1, 0.15, 0.2, 0.7, 0.75, 0.8])
    assert 0.2 < fit_threshold(chances, torch.tensor([0.0, 0, 0, 1, 1, 1])) <= 0.7


def made_up(blocks: int = 4) -> Figure7:
    points = [
        BlockResult(b, seed, 3, 0.5, {
            "all": Counts(4 + b, 4 - b, 6, 2), "tabletop": Counts(2 + b, 2, 3, 1),
            "it2p": Counts(2, 2 - b // 2, 3, 1 + seed),
        })
        for b in range(blocks)
        for seed in (0, 1)
    ]  # fmt: skip
    return Figure7(tuple(points), 2, {"train": 70, "val": 15, "test": 16})


def test_the_table_and_the_figure(tmp_path: Path) -> None:
    layers = made_up()
    rows = layers.text(markdown=True).splitlines()
    assert rows[0].startswith("| block | F1 | accuracy |")
    assert len(rows) == 2 + 4 + 2  # and what the paper has
    assert rows[4].startswith("| 2 (half depth) |")
    assert layers.values(1, "f1") == [pytest.approx(10 / 15)] * 2
    assert layers.always == pytest.approx(2 * 6 / (16 + 6))  # 4 + 2 of the 16 are ambiguous
    assert layers.summary()["blocks"][1]["it2p_f1"] == [round(4 / 7, 4), 0.5]
    layers.plot(tmp_path / "figure7.png", "made up")
    with Image.open(tmp_path / "figure7.png") as drawn:
        assert drawn.size[0] > 600


def test_numbers_in_tables() -> None:
    assert spread([0.5, 0.7], markdown=True) == "0.600 ± 0.141"
    assert spread([0.5]) == "0.500"
    text = table(["name", "n", "f1"], [["a", 5, 0.25], ["long", 12, math.nan]])
    assert text.splitlines() == ["name   n     f1", "a      5  0.250", "long  12      -"]
    marked = table(["name", "n"], [["a", 5], ["b", None]], markdown=True)
    assert marked.splitlines()[1:] == ["| --- | ---: |", "| a | 5 |", "| b | - |"]


def test_the_command_from_end_to_end_and_again_from_what_it_kept(
    scenes: Path, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "layers", "--tabletop", str(scenes), "--scenes", "10", "--device", "cpu"]
    words += ["--model", str(random_model), "--run", str(tmp_path / "run"), "--epochs", "2"]
    words += ["--seeds", "2", "--plot", str(tmp_path / "figure7.png"), "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["block"] for row in report["blocks"]] == [0, 1, 2, 3]
    assert report["seeds"] == [0, 1]
    assert all(len(row["f1"]) == 2 and min(row["f1"]) >= 0 for row in report["blocks"])
    assert (tmp_path / "figure7.png").is_file()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*.*")}
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*.*")} == before
    assert main([*words, "--blocks", "9"]) == 2
    assert "--blocks must be 0 to 3" in capsys.readouterr().err
