"""`clue export`: the decoder in 8 or 4 bits, run by OpenVINO."""

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
from clue_ros.model.shapes import SCALE
from clue_ros.model.tensors import Mapped, read_tensors, write_tensors

REQUEST = "pick up the red block"


@pytest.fixture(scope="module", params=["int8", "int4"])
def export(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, random_model: Path
) -> Path:
    out = tmp_path_factory.mktemp("export") / str(request.param)
    assert main(["export", str(random_model), "--out", str(out), "--weights", request.param]) == 0
    return out


def dequantised(export: Path) -> dict[str, Mapped]:
    """An export's weights as float32: each projection times its scales."""
    weights = read_weights(export)
    found = {}
    for name, tensor in weights.items():
        if name.endswith(SCALE):
            continue
        if name + SCALE not in weights:
            found[name] = tensor
            continue
        values, scale = tensor.values, weights[name + SCALE].values
        if tensor.kind == "U8":
            low = (values << 4).view(np.int8) >> 4
            both = np.stack([low, values.view(np.int8) >> 4], -1)
            values = both.reshape(*scale.shape[:2], -1)
        found[name] = Mapped("F32", (values * scale).reshape(tensor.shape).astype(np.float32))
    return found


def test_each_weight_of_a_projection_is_half_a_step_off_at_most(
    export: Path, random_model: Path
) -> None:
    """In 4 bits the value opposite to the farthest one may be a whole step off."""
    plain, small = read_weights(random_model), read_weights(export)
    whole = dequantised(export)
    names = [name for name in plain if name.startswith("language_model.") and "_proj." in name]
    assert names
    for name in names:
        scale = np.abs(small[name + SCALE].values)
        most = scale / 2 if export.name == "int8" else scale
        off = np.abs(whole[name].values - plain[name].float32()).reshape(len(scale), -1)
        assert (off.reshape(*most.shape[:-1], -1) <= most * 1.001).all()
    others = plain.keys() - set(names)
    assert all(np.array_equal(plain[n].values, small[n].values) for n in others)
    assert (export / WEIGHTS).stat().st_size < (random_model / WEIGHTS).stat().st_size


def test_an_export_judges_and_replies_as_its_own_weights_in_float32(
    export: Path, random_model: Path, tmp_path: Path, picture: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)  # the base is held once, as there
    folder = Path(shutil.copytree(random_model, tmp_path / "whole"))
    write_tensors(dequantised(export), folder / WEIGHTS)
    plain = load_checkpoint(folder, backend="openvino", dtype="float32")
    small = load_checkpoint(export, dtype="float32")
    features = plain.look(picture)
    assert np.array_equal(small.look(picture), features)
    (chance, attention), (wanted, theirs) = (c.judge(features, REQUEST) for c in (small, plain))
    assert chance == pytest.approx(wanted, abs=1e-4)
    assert np.abs(attention - theirs).max() < 1e-3
    share = small.second_opinion(features, REQUEST)[0]
    assert share == pytest.approx(plain.second_opinion(features, REQUEST)[0], abs=1e-4)
    assert small.backbone.adapters == (DETECTOR, IVG)
    assert small.memory_bytes() < plain.memory_bytes()


def test_an_export_judges_nearly_as_its_model(
    export: Path, random_model: Path, picture: np.ndarray
) -> None:
    plain = load_checkpoint(random_model, backend="openvino", dtype="float32")
    small = load_checkpoint(export, dtype="float32")
    features, close = plain.look(picture), 0.02 if export.name == "int8" else 0.2
    wanted = plain.judge(features, REQUEST)[0]
    assert small.judge(features, REQUEST)[0] == pytest.approx(wanted, abs=close)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clue_weights": "int3"}, "does not know .*int8 and int4.*clue export"),
        ({"clue_weights": None}, "does not know"),
        ({}, "config.json of another model .*clue export"),
    ],
    ids=["another version's", "no form", "the config.json of its model"],
)
def test_an_export_of_another_version_is_refused_with_the_reason(
    export: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = Path(shutil.copytree(export, tmp_path / "m"))
    content = json.loads((folder / "config.json").read_text())
    del content["clue_weights"]
    (folder / "config.json").write_text(json.dumps(content | change))
    with pytest.raises(ModelError, match=message):
        load_checkpoint(folder)


def test_an_export_without_its_scales_is_refused(export: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(export, tmp_path / "m"))
    weights = read_weights(export)
    (name, *_) = [name for name in weights if name.endswith(SCALE)]
    write_tensors({n: t for n, t in weights.items() if n != name}, folder / WEIGHTS)
    with pytest.raises(ModelError, match=f"lacks {name}"):
        load_checkpoint(folder)


def test_a_damaged_export_is_refused(export: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(export, tmp_path / "m"))
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors is cut short"):
        load_checkpoint(folder)
    path.unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        load_checkpoint(folder)


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
    assert json.loads((export / "config.json").read_text())["clue_weights"] == export.name


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
    with pytest.raises(ModelError, match=r"\.scale"):
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
