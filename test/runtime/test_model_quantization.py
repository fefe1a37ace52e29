"""Quantised decoders: what is quantised and what is not, adapters on top, one copy of everything.

Most of this needs bitsandbytes, which scripts/test puts where only tests find it.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model import openvino_backbone, quantization
from clue_ros.model.adapters import Adapters
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.prompts import encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model
from clue_ros.nodes.parameter_tables import PERCEPTION
from clue_ros.nodes.parameters import find

needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="needs bitsandbytes: scripts/test"
)
SMALL = ("int8", "nf4")


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in rows of whole blocks of 64, which is what bitsandbytes packs."""
    return write_random_model(tmp_path_factory.mktemp("wide"), width=128, mlp=256)


def kinds(backbone: TorchModel) -> dict[str, str]:
    """The class of every linear layer, adapters looked through."""
    found = {}
    for name, module in backbone.model.named_modules():
        if "lora_" not in name and hasattr(module, "in_features") and hasattr(module, "weight"):
            base = getattr(module, "base_layer", module)
            found[name.removesuffix(".base_layer")] = type(base).__name__
    return found


def attention(backbone: TorchModel, folder: Path) -> torch.Tensor:
    prompts = encode_prompts(load_processor(folder), "detect", ["the red block"]).to("cpu")
    pixels = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        return backbone.attention_at(2, backbone.look(pixels), prompts).float()


@needs_bitsandbytes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "layer"), [("int8", "Linear8bitLt"), ("nf4", "Linear4bit")])
def test_only_the_decoders_projections_are_quantised(
    wide_model: Path, dtype: torch.dtype, name: str, layer: str
) -> None:
    plain = load_model(wide_model, dtype=dtype)
    backbone = load_model(wide_model, dtype=dtype, quantization=name)
    found = kinds(backbone)
    decoder = {key for key in found if ".language_model.layers." in key}
    assert len(decoder) == 7 * backbone.blocks
    assert {found[key] for key in decoder} == {layer}
    assert {found[key] for key in set(found) - decoder} == {"Linear"}
    assert backbone.dtype == dtype
    assert backbone.model.lm_head.weight is backbone.model.get_input_embeddings().weight
    for key, weight in plain.model.named_parameters():
        if key.rpartition(".")[0] not in decoder:
            assert torch.equal(weight, backbone.model.get_parameter(key)), key


@needs_bitsandbytes
@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("nf4", 4)])
def test_memory_is_counted_with_its_scales(wide_model: Path, name: str, bits: int) -> None:
    plain, backbone = (load_model(wide_model, quantization=which) for which in ("none", name))
    weights = sum(
        layer.weight.numel()
        for key, layer in plain.model.named_modules()
        if ".language_model.layers." in key and isinstance(layer, torch.nn.Linear)
    )
    # The numbers themselves, less what the scales and code books take; the first use may pack them
    # in another way.
    most = weights * (4 - bits / 8)
    for _ in range(2):
        saved = plain.memory_bytes() - backbone.memory_bytes()
        assert 0.9 * most < saved < most
        attention(backbone, wide_model)


@needs_bitsandbytes
@pytest.mark.parametrize(("name", "most"), [("int8", 0.05), ("nf4", 0.3)])
def test_a_quantised_decoder_attends_nearly_as_before(
    wide_model: Path, name: str, most: float
) -> None:
    plain = load_model(wide_model)
    small = load_model(wide_model, quantization=name)
    expected, found = attention(plain, wide_model), attention(small, wide_model)
    error = float((found - expected).norm() / expected.norm())
    assert 0 < error < most


@needs_bitsandbytes
@pytest.mark.parametrize("name", SMALL)
def test_adapters_switch_and_learn_on_a_quantised_base(wide_model: Path, name: str) -> None:
    backbone = load_model(wide_model, quantization=name)
    base = attention(backbone, wide_model)
    adapters = Adapters(backbone)
    adapters.load(DETECTOR, wide_model / DETECTOR)
    adapters.load(IVG, wide_model / IVG)
    adapters.use(DETECTOR)
    detector = attention(backbone, wide_model)
    adapters.use(IVG)
    assert not torch.allclose(attention(backbone, wide_model), detector)
    adapters.use(None)
    # On a CPU the first use repacks 4-bit weights, with scales in bfloat16.
    again, other = (attention(backbone, wide_model) - base).norm(), (detector - base).norm()
    assert float(again) < 0.05 * float(other)
    adapters.use(DETECTOR, train=True)
    prompts = encode_prompts(load_processor(wide_model), "detect", ["the red block"]).to("cpu")
    features = backbone.look(torch.zeros(1, 3, 64, 64)).detach()
    total: Any = backbone.attention_at(2, features, prompts)[..., :5].sum()
    total.backward()
    learning = {key for key, p in backbone.model.named_parameters() if p.grad is not None}
    assert learning
    assert all(f".{DETECTOR}." in key for key in learning)


@needs_bitsandbytes
@pytest.mark.parametrize("name", SMALL)
def test_the_whole_system_runs_on_it(
    wide_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    from PIL import Image

    Image.new("RGB", (80, 60), "red").save(tmp_path / "red.png")
    arguments = ["ground", str(tmp_path / "red.png"), "the red block", "--json"]
    status = main([*arguments, "--model", str(wide_model), "--quantization", name])
    out, err = capsys.readouterr()
    assert status in (0, 3), err
    assert json.loads(out)["type"] in ("question", "grounding")
    assert err == ""


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_one_backbone_two_adapters_and_never_two_copies(
    random_model: Path,
    picture: npt.NDArray[np.uint8],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    """OpenVINO holds a small decoder once an adapter, which is quicker; not so a large one."""
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)
    clue = Clue.load(random_model, backend=backend, device="cpu", policy="detector")
    assert set(clue.checkpoint.backbone.adapters) == {DETECTOR, IVG}
    files = [random_model / "model.safetensors"]
    files += [random_model / name / "adapter_model.safetensors" for name in (DETECTOR, IVG)]
    files += [random_model / DETECTOR / "head.safetensors"]
    on_disk = sum(t.numel() * t.element_size() for file in files for t in load_file(file).values())
    # Buffers (rotary frequencies) are in no file.
    assert on_disk <= clue.memory_bytes() < on_disk + 2000
    view = clue.look(picture)
    for forced in (False, True):
        clue.reply(view, Dialogue("pick up the red block"), force_grounding=forced)
    assert clue.memory_bytes() < on_disk + 2000


def test_an_unknown_quantization_is_refused(random_model: Path) -> None:
    with pytest.raises(ModelError, match="none, int8, nf4"):
        Clue.load(random_model, quantization="int3")


def test_a_missing_package_is_named_with_its_pin(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    load: Callable[..., Clue] = Clue.load
    with pytest.raises(ModelError, match="nf4' needs bitsandbytes, of the extra quantization"):
        load(random_model, quantization="nf4")
    load(random_model)


def test_the_ros_parameter_has_the_same_choices() -> None:
    parameter = find(PERCEPTION, "quantization")
    assert parameter is not None
    assert parameter.choices == quantization.QUANTIZATIONS
    assert parameter.default == quantization.NONE
