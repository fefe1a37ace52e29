"""`clue export`: the decoder in 8 bits, run by OpenVINO."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clue_ros.cli import main
from clue_ros.errors import ModelError
from clue_ros.model import openvino_backbone
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.loading import WEIGHTS, read_weights
from clue_ros.model.tensors import SCALE, Mapped, read_tensors, write_tensors

REQUEST = "pick up the red block"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory, random_model: Path) -> Path:
    out = tmp_path_factory.mktemp("export") / "small"
    assert main(["export", str(random_model), "--out", str(out)]) == 0
    return out


def test_projections_have_8_bits_and_each_weight_is_half_a_step_off_at_most(
    export: Path, random_model: Path
) -> None:
    plain, small = read_weights(random_model), read_weights(export)
    names = [name for name in plain if name.startswith("language_model.") and "_proj." in name]
    assert names
    for name in names:
        rows, scale = small[name], small[f"{name}.scale"].values
        assert rows.kind == "I8"
        off = np.abs(rows.values * scale - plain[name].float32())
        assert (off <= scale / 2 * 1.001).all()
    others = plain.keys() - set(names)
    assert all(np.array_equal(plain[n].values, small[n].values) for n in others)
    assert (export / WEIGHTS).stat().st_size < (random_model / WEIGHTS).stat().st_size


def test_an_export_judges_and_replies_nearly_as_its_model(
    export: Path, random_model: Path, picture: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)  # the base is held once, as there
    plain = load_checkpoint(random_model, backend="openvino", dtype="float32")
    small = load_checkpoint(export, dtype="float32")
    features = plain.look(picture)
    assert np.array_equal(small.look(picture), features)
    assert small.judge(features, REQUEST)[0] == pytest.approx(
        plain.judge(features, REQUEST)[0], abs=0.02
    )
    share = small.second_opinion(features, REQUEST)[0]
    assert share == pytest.approx(plain.second_opinion(features, REQUEST)[0], abs=0.02)
    assert small.backbone.adapters == (DETECTOR, IVG)
    assert small.memory_bytes() < plain.memory_bytes()


@pytest.mark.parametrize("settings", [{"backend": "torch"}, {"quantization": "int8"}])
def test_torch_does_not_take_an_export(export: Path, settings: dict[str, str]) -> None:
    if "quantization" in settings:
        pytest.importorskip("bitsandbytes")
    with pytest.raises(ModelError, match="OpenVINO alone runs"):
        load_checkpoint(export, device="cpu", **settings)


def test_what_cannot_be_written_is_refused(
    export: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(random_model), "--out", str(export)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["export", str(export), "--out", str(export.parent / "again")]) == 2
    assert "is an export already" in capsys.readouterr().err


def test_an_export_says_what_it_is(export: Path) -> None:
    assert json.loads((export / "config.json").read_text())["clue_weights"] == "int8"


Tensors = dict[str, Mapped]


def without(tensors: Tensors, name: str) -> None:
    del tensors[name]


def of_one_row(tensors: Tensors, name: str) -> None:
    tensors[name] = Mapped("F32", tensors[name].values[:1])


def flat(tensors: Tensors, name: str) -> None:
    tensors[name] = Mapped("F32", tensors[name].values[:, 0])


def of_16_bits(tensors: Tensors, name: str) -> None:
    tensors[name] = Mapped("BF16", np.ones(tensors[name].shape, np.uint16))


@pytest.mark.parametrize("change", [without, of_one_row, flat, of_16_bits])
def test_scales_that_were_changed_are_named(
    export: Path, tmp_path: Path, change: Callable[[Tensors, str], None]
) -> None:
    folder = changed(export, tmp_path / "changed", change)
    with pytest.raises(ModelError, match=r"q_proj\.weight.* scale|lacks .*weight\.scale"):
        load_checkpoint(folder, device="cpu")


def test_scales_that_are_no_numbers_end_a_request_with_the_reason(
    export: Path, tmp_path: Path
) -> None:
    def no_numbers(tensors: Tensors, name: str) -> None:
        tensors[name].values[:] = np.nan

    loaded = load_checkpoint(changed(export, tmp_path / "changed", no_numbers), device="cpu")
    features = loaded.look(np.full((64, 64, 3), 99, np.uint8))
    with pytest.raises(ModelError, match="not a number"):
        loaded.judge(features, "the block")


def changed(export: Path, folder: Path, change: Callable[[Tensors, str], None]) -> Path:
    """A copy of an export with the first scale of its weights changed."""
    path = Path(shutil.copytree(export, folder)) / "model.safetensors"
    stored = read_tensors(path)
    tensors = {name: Mapped(each.kind, np.array(each.values)) for name, each in stored.items()}
    change(tensors, next(name for name in tensors if name.endswith(SCALE)))
    write_tensors(tensors, path)
    return folder
