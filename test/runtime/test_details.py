"""A stem's second reading of a picture: exact shares, both backbones, old models unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import DETAILED_STEM, SMALL_STEM, write_random_model

from clue_ros.cli import main
from clue_ros.errors import ModelError
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.conv_stem import ConvStem
from clue_ros.model.details import averaging, detailed_picture, detailed_size, details_of
from clue_ros.model.openvino_backbone import OpenVinoBackbone
from clue_ros.model.prompts import prepare_images
from clue_ros.model.torch_backbone import TorchBackbone

ASPECTS = [(480, 640), (640, 480), (1080, 1920), (100, 100)]  # height and width
CLOSE = 1e-4
PROJECTION = "vision_tower.embeddings.patch_embedding.weight"
Pixels = npt.NDArray[np.uint8]


def image(seed: int, height: int, width: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def by_both(folder: Path) -> tuple[Checkpoint, Checkpoint]:
    return load_checkpoint(folder, backend="openvino", dtype="float32"), load_checkpoint(
        folder, backend="torch", device="cpu"
    )


@pytest.fixture(scope="module")
def detailed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose stem reads details."""
    folder = tmp_path_factory.mktemp("details") / "model"
    return write_random_model(folder, seed=4, conv_stem=DETAILED_STEM)


@pytest.mark.parametrize(
    ("count", "cells"), [(15, 18), (20, 18), (80, 36), (11, 36), (1, 4), (7, 7)]
)
def test_averages_are_exact_in_shares_of_the_side(count: int, cells: int) -> None:
    matrix = averaging(count, cells)
    assert matrix.shape == (cells, count)
    assert matrix.sum(1) == pytest.approx(np.ones(cells), abs=1e-6)
    assert matrix.sum(0) == pytest.approx(np.full(count, cells / count), abs=1e-5)
    middles = (np.arange(count) + 0.5) / count  # a ramp keeps its middle
    assert (matrix @ middles).mean() == pytest.approx(0.5, abs=1e-6)
    fine = np.repeat(np.random.default_rng(0).random(count), cells)  # each part, cut in cells
    expected = fine.reshape(cells, count).mean(1)
    assert matrix @ fine[::cells] == pytest.approx(expected, abs=1e-5)


def test_a_picture_keeps_its_aspect_in_multiples_of_32() -> None:
    assert detailed_size(640, 480, 640) == (640, 480)
    assert detailed_size(480, 640, 640) == (480, 640)
    assert detailed_size(1920, 1080, 640) == (640, 352)
    assert detailed_size(100, 100, 640) == (640, 640)
    assert detailed_size(5000, 3, 640) == (640, 32)
    picture = detailed_picture(np.full((30, 40, 3), 255, np.uint8), 128)
    assert picture.shape == (3, 96, 128)
    assert picture.dtype == np.float32
    assert picture.min() == picture.max() == 1.0


@pytest.mark.parametrize("aspect", ASPECTS)
def test_both_backbones_read_the_same_details(
    detailed: Path, aspect: tuple[int, int], fresh_seed: int
) -> None:
    ours, theirs = by_both(detailed)
    pictures = image(fresh_seed, *aspect), image(fresh_seed + 1, *aspect)
    features, expected = ours.look(*pictures), theirs.look(*pictures)
    assert not np.allclose(features[0], features[1], atol=1e-3)
    assert np.abs(features - expected).max() < CLOSE * max(1.0, float(np.abs(expected).max()))
    # One picture alone gives what it gives among others, of other aspects too.
    alone, mixed = ours.look(pictures[1]), ours.look(image(0, 50, 90), pictures[1])
    assert np.allclose(alone[0], features[1], atol=CLOSE)
    assert np.allclose(mixed[1], features[1], atol=CLOSE)


def test_details_show_what_squeezing_hides(detailed: Path) -> None:
    """A pattern that 64 pixels average away is seen by the second reading."""
    (checkpoint, _) = by_both(detailed)
    fine = np.zeros((128, 128, 3), np.uint8)
    fine[::2, ::2], fine[1::2, 1::2] = 255, 255
    grey = np.full_like(fine, 127)
    squares = prepare_images(checkpoint.processor, [fine, grey])
    assert np.abs(squares[0] - squares[1])[:, 4:-4, 4:-4].max() < 0.02
    assert isinstance(checkpoint.backbone, OpenVinoBackbone)
    seen = checkpoint.backbone.details([detailed_picture(each, 128) for each in (fine, grey)])
    assert np.abs(seen[0] - seen[1]).max() > 0.1


def test_stored_features_take_the_place_of_the_network(detailed: Path, fresh_seed: int) -> None:
    ours, theirs = by_both(detailed)
    assert isinstance(theirs.backbone, TorchBackbone)
    assert isinstance(ours.backbone, OpenVinoBackbone)
    picture = image(fresh_seed, 90, 120)
    pixels = prepare_images(ours.processor, [picture])
    fine = [detailed_picture(picture, 128)]
    stored = ours.backbone.stem_features(pixels, fine)
    assert stored.shape == (1, 6 * 4 + 8 + 10 + 8 * 4 + 10, 8, 8)
    assert np.allclose(theirs.backbone.stem_features(pixels, fine), stored, atol=CLOSE)
    with torch.inference_mode():
        model = theirs.backbone.model
        features = model.look(torch.from_numpy(pixels), torch.from_numpy(stored))
    assert np.allclose(features.numpy(), theirs.look(picture), atol=CLOSE)
    with pytest.raises(ValueError, match="reads details too"):
        theirs.backbone.look(pixels)


def test_details_with_no_weight_change_nothing(tmp_path: Path, fresh_seed: int) -> None:
    """To the bit, so that a trained tower begins with what it knows."""
    before = write_random_model(tmp_path / "before", seed=4, conv_stem=SMALL_STEM)
    after = Path(shutil.copytree(before, tmp_path / "after"))
    config = json.loads((after / "config.json").read_text())
    config["vision_config"]["conv_stem"] = DETAILED_STEM
    (after / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="patch_embedding"):
        load_checkpoint(after, device="cpu")
    weights = load_file(after / "model.safetensors")
    (name,) = [name for name in weights if name.endswith(PROJECTION)]
    weight = weights[name]
    more = details_of(DETAILED_STEM)
    assert more is not None
    zeros = torch.zeros(len(weight), more.channels(DETAILED_STEM), 1, 1)
    weights[name] = torch.cat([weight, zeros], dim=1)
    save_file(weights, after / "model.safetensors", metadata={"format": "pt"})
    picture = image(fresh_seed, 90, 120)
    for old, new in zip(by_both(before), by_both(after), strict=True):
        assert np.abs(old.look(picture) - new.look(picture)).max() < 1e-5


def test_an_export_reads_details(detailed: Path, tmp_path: Path, fresh_seed: int) -> None:
    assert main(["export", str(detailed), "--out", str(tmp_path / "small")]) == 0
    picture = image(fresh_seed, 90, 120)
    features = load_checkpoint(tmp_path / "small", dtype="float32").look(picture)
    expected = load_checkpoint(detailed, backend="openvino", dtype="float32").look(picture)
    assert np.array_equal(features, expected)


@pytest.mark.parametrize(
    "value",
    [
        {"side": 630, "read": [[2, 2]]},
        {"side": 10**6, "read": [[2, 2]]},
        {"side": 128, "read": [[9, 2]]},
        {"side": 128, "read": [[2, 0]]},
        {"side": 128, "read": []},
        {"side": 128},
        {"side": "wide", "read": [[2, 2]]},
        3,
    ],
)
def test_details_that_no_model_has_are_refused(
    detailed: Path, tmp_path: Path, value: object
) -> None:
    folder = Path(shutil.copytree(detailed, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["conv_stem"]["details"] = value
    (folder / "config.json").write_text(json.dumps(config))
    for backend in ("openvino", "torch"):
        with pytest.raises(ModelError, match=r"config\.json: conv_stem\.details is"):
            load_checkpoint(folder, backend=backend, device="cpu")


def test_features_can_be_held_for_a_while_only() -> None:
    stem = ConvStem(DETAILED_STEM, 12, 8, 8)
    picture = torch.rand(1, 3, 64, 64) * 2 - 1
    with torch.no_grad(), stem.holding(stem.details([picture[0]])):
        assert stem(picture).shape == (1, 12, 8, 8)
    with pytest.raises(ValueError, match="reads details too"):
        stem(picture)


def test_a_stem_without_patches_sees_its_features_alone(tmp_path: Path, fresh_seed: int) -> None:
    """The same as one whose patches have no weight, by both backbones."""
    with_zeros = write_random_model(tmp_path / "zeros", seed=4, conv_stem=DETAILED_STEM)
    without = Path(shutil.copytree(with_zeros, tmp_path / "without"))
    weights = load_file(with_zeros / "model.safetensors")
    names = [name for name in weights if ".patch_embedding.patches." in name]
    assert len(names) == 2
    for name in names:
        weights[name] = torch.zeros_like(weights[name])
    save_file(weights, with_zeros / "model.safetensors", metadata={"format": "pt"})
    save_file(
        {name: weight for name, weight in weights.items() if name not in names},
        without / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((without / "config.json").read_text())
    config["vision_config"]["conv_stem"]["patches"] = False
    (without / "config.json").write_text(json.dumps(config))
    picture = image(fresh_seed, 90, 120)
    for old, new in zip(by_both(with_zeros), by_both(without), strict=True):
        assert np.abs(old.look(picture) - new.look(picture)).max() < 1e-5
