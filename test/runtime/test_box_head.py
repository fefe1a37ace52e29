"""The box head: the same from both backbones and from torch's layers, and its files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file
from tiny_model import BOX_STEM, SMALL_STEM, write_random_head, write_random_model

from clue_ros.cli import main
from clue_ros.errors import ModelError
from clue_ros.model.box_head import (
    WEIGHTS_FILE,
    BoxMap,
    boxes_at,
    candidates,
    head_stages,
    overlaps,
)
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.view import Encoded, View

ASPECTS = [(480, 640), (640, 480), (90, 1200), (1000, 30), (1, 1)]  # height and width
CLOSE = 1e-4


def image(seed: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a box head."""
    folder = tmp_path_factory.mktemp("headed") / "model"
    return write_random_head(write_random_model(folder, seed=4, conv_stem=BOX_STEM))


def box_map(checkpoint: Checkpoint, picture: npt.NDArray[np.uint8]) -> BoxMap:
    found = View(picture, Encoded(picture, None), checkpoint).box_map
    assert found is not None
    return found


@pytest.mark.parametrize("aspect", ASPECTS)
def test_both_backbones_and_torchs_layers_find_the_same_boxes(
    headed: Path, aspect: tuple[int, int], fresh_seed: int
) -> None:
    import torch

    from clue_ros.lab.training.box_head import BoxHeadModule
    from clue_ros.model.details import detailed_picture

    picture = image(fresh_seed, *aspect)
    ours = load_checkpoint(headed, backend="openvino", dtype="float32")
    theirs = load_checkpoint(headed, backend="torch", device="cpu")
    found, expected = box_map(ours, picture), box_map(theirs, picture)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < CLOSE
    rows, columns = found.scores.shape
    assert max(rows, columns) == 40
    assert found.boxes.min() >= 0
    assert found.boxes.max() <= 1
    assert found.scores.std() > 0.01
    assert theirs.box_head is not None
    module = BoxHeadModule.of(headed / WEIGHTS_FILE)
    levels = theirs.backbone.stages(detailed_picture(picture, 640), theirs.box_head.stages)
    with torch.inference_mode():
        out = module([torch.from_numpy(level)[None] for level in levels])[0]
    assert out.shape == (6, rows, columns)
    assert np.abs(torch.sigmoid(out[4]).numpy() - expected.scores).max() < CLOSE


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_the_box_head_and_taught_words_read_the_network_once(
    tmp_path: Path, backend: str, fresh_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = {**BOX_STEM, "read": head_stages(BOX_STEM)}  # as household's
    folder = write_random_head(write_random_model(tmp_path / "model", seed=4, conv_stem=stem))
    picture = image(fresh_seed, 120, 160)
    checkpoint = load_checkpoint(folder, backend=backend, dtype="float32", device="cpu")
    read, runs = checkpoint.backbone.stages, list[tuple[int, ...]]()

    def counted(*asked: Any) -> list[npt.NDArray[np.float32]]:
        runs.append(tuple(asked[1]))
        return read(*asked)

    monkeypatch.setattr(checkpoint.backbone, "stages", counted)

    def seen() -> View:
        return View(picture, Encoded(picture, None), checkpoint)

    both = seen()
    patches, found = both.patches, both.box_map
    assert found is not None
    assert len(runs) == 1
    assert np.array_equal(seen().patches.values, patches.values)
    alone = seen().box_map
    assert alone is not None
    assert np.array_equal(alone.boxes, found.boxes)
    assert len(runs) == 3, "another look reads anew"


def test_a_point_has_the_box_of_its_cell() -> None:
    boxes = np.random.default_rng(0).random((3, 4, 4)).astype(np.float32)
    scores = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    found = BoxMap(boxes, scores, scores)
    at, score = boxes_at(found, [(0.3, 0.4), (1.0, 1.0), (-3.0, 9.0)])
    assert np.array_equal(at, [boxes[1, 1], boxes[2, 3], boxes[2, 0]])
    assert np.array_equal(score, [scores[1, 1], scores[2, 3], scores[2, 0]])
    assert boxes_at(found, [])[0].shape == (0, 4)


def test_candidates_are_apart_and_lie_on_objects() -> None:
    boxes = np.zeros((2, 3, 4), np.float32)
    boxes[0] = [0.1, 0.1, 0.5, 0.5]  # one object, seen from three cells
    boxes[1] = [[0.6, 0.6, 0.9, 0.9], [0.0, 0.0, 0.2, 0.2], [0.5, 0.1, 0.9, 0.4]]
    scores = np.array([[0.3, 0.9, 0.2], [0.5, 0.8, 0.7]], np.float32)
    objects = np.array([[1, 1, 1], [1, 0.01, 1]], np.float32)  # the second of the last row: none
    found, best = candidates(BoxMap(boxes, scores, objects))
    assert np.allclose(found, [boxes[0, 1], boxes[1, 2], boxes[1, 0]])
    assert np.allclose(best, [0.9, 0.7, 0.5])
    assert len(candidates(BoxMap(boxes, scores, objects), most=2)[0]) == 2
    assert overlaps(found, found[0]) == pytest.approx([1, 0, 0])


def test_a_model_without_a_head_has_no_map(tmp_path: Path) -> None:
    folder = write_random_model(tmp_path / "model", seed=4, conv_stem=BOX_STEM)
    picture = image(0, 30, 40)
    view = View(picture, Encoded(picture, None), load_checkpoint(folder, device="cpu"))
    assert view.box_map is None


def test_an_export_keeps_the_head(headed: Path, tmp_path: Path) -> None:
    assert main(["export", str(headed), "--out", str(tmp_path / "small")]) == 0
    picture = image(1, 90, 120)
    found = box_map(load_checkpoint(tmp_path / "small", dtype="float32"), picture)
    expected = box_map(load_checkpoint(headed, backend="openvino", dtype="float32"), picture)
    assert np.array_equal(found.boxes, expected.boxes)


def test_weights_that_do_not_fit_are_refused_in_one_line(headed: Path, tmp_path: Path) -> None:
    def refused(change: str) -> str:
        with pytest.raises(ModelError) as raised:
            load_checkpoint(folder, device="cpu")
        (line,) = str(raised.value).splitlines()
        assert WEIGHTS_FILE in line, change
        return line

    folder = Path(shutil.copytree(headed, tmp_path / "model"))
    path = folder / WEIGHTS_FILE
    weights = load_file(path)
    save_file({**weights, "inp.weight": weights["inp.weight"][:, 1:]}, path)
    assert "inp.weight has shape" in refused("channels")
    save_file({n: w for n, w in weights.items() if n != "out.bias"}, path)
    assert "lacks out.bias" in refused("missing")
    save_file({**weights, "out.bias": np.full(6, np.nan, np.float32)}, path)
    assert "no number" in refused("nan")
    path.write_bytes(b"nothing")
    assert "cut short or broken" in refused("broken")
    other = write_random_head(write_random_model(tmp_path / "plain", seed=4))
    with pytest.raises(ModelError, match="no stem"):
        load_checkpoint(other, device="cpu")
    short = write_random_head(write_random_model(tmp_path / "short", seed=4, conv_stem=SMALL_STEM))
    with pytest.raises(ModelError, match="strides"):
        load_checkpoint(short, device="cpu")
