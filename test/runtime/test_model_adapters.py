"""Two adapters on one backbone: only the decoder, no copies, cheap to switch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clue_ros.errors import ModelError
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import IVG, Array
from clue_ros.model.checkpoint import load_checkpoint, open_backbone
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.prompts import encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model


@pytest.fixture
def backbone(random_model: Path) -> TorchModel:
    return load_model(random_model)


@pytest.fixture
def attend(backbone: TorchModel, random_model: Path) -> Callable[[], torch.Tensor]:
    """What block 2 attends to now."""
    processor = load_processor(random_model)
    prompts = encode_prompts(processor, "detect", ["the red block"]).to("cpu")
    features = backbone.look(torch.zeros(1, 3, 64, 64))

    def look() -> torch.Tensor:
        with torch.inference_mode():
            return backbone.attention_at(2, features, prompts)

    return look


def test_the_papers_settings_on_the_decoder_only(backbone: TorchModel) -> None:
    config = lora_config(range(backbone.blocks))
    assert (config.r, config.lora_alpha, config.lora_dropout) == (16, 32, 0.05)
    adapters = Adapters(backbone)
    adapters.add("ivg", config)
    names = [name for name, _ in backbone.model.named_parameters() if ".ivg." in name]
    # 7 projections of 4 blocks, an A and a B each.
    assert len(names) == 7 * 4 * 2 == len(adapters.parameters("ivg"))
    assert all("language_model.layers." in name for name in names)


def test_adapters_can_be_held_to_some_blocks(backbone: TorchModel) -> None:
    adapters = Adapters(backbone)
    adapters.add("detector", lora_config([2]))
    names = [name for name, _ in backbone.model.named_parameters() if ".detector." in name]
    assert len(names) == 14
    assert all(".layers.2." in name for name in names)


def test_a_new_adapter_changes_nothing(
    backbone: TorchModel, attend: Callable[[], torch.Tensor]
) -> None:
    before = attend()
    Adapters(backbone).add("detector", lora_config(range(3)))
    assert torch.equal(attend(), before)


def test_switching_reaches_either_adapter_and_the_base(
    backbone: TorchModel, attend: Callable[[], torch.Tensor], random_model: Path
) -> None:
    base = attend()
    adapters = Adapters(backbone)
    adapters.load("detector", random_model / "detector")
    detector = attend()
    adapters.load("ivg", random_model / "ivg")
    ivg = attend()
    assert adapters.names == ("detector", "ivg")
    assert not torch.allclose(base, detector)
    assert not torch.allclose(detector, ivg)
    for name, expected in (("detector", detector), (None, base), ("ivg", ivg), (None, base)):
        adapters.use(name)
        assert torch.equal(attend(), expected)


def test_no_weight_of_the_base_is_copied(backbone: TorchModel, random_model: Path) -> None:
    before = {p.data_ptr() for p in backbone.model.parameters()}
    adapters = Adapters(backbone)
    adapters.load("detector", random_model / "detector")
    adapters.load("ivg", random_model / "ivg")
    adapters.use("detector")
    after = [p for name, p in backbone.model.named_parameters() if ".lora_" not in name]
    assert {p.data_ptr() for p in after} == before


def test_only_the_adapter_in_training_gets_gradients(
    backbone: TorchModel, random_model: Path
) -> None:
    adapters = Adapters(backbone)
    adapters.load("detector", random_model / "detector")
    adapters.load("ivg", random_model / "ivg")
    assert not any(p.requires_grad for p in backbone.model.parameters())
    adapters.use("ivg", train=True)
    trained = {name for name, p in backbone.model.named_parameters() if p.requires_grad}
    assert trained
    assert all(".ivg." in name for name in trained)
    adapters.use("detector")
    assert not any(p.requires_grad for p in backbone.model.parameters())


def test_saving_and_loading_gives_the_same_attention(
    backbone: TorchModel, attend: Callable[[], torch.Tensor], random_model: Path, tmp_path: Path
) -> None:
    adapters = Adapters(backbone)
    adapters.add("detector", lora_config(range(3)))
    with torch.no_grad():
        for weight in adapters.parameters("detector"):
            weight.normal_(std=0.1)
    expected = attend()
    adapters.save("detector", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    adapters.load("again", tmp_path)
    assert torch.equal(attend(), expected)


def test_unknown_names_are_refused(backbone: TorchModel) -> None:
    with pytest.raises(KeyError, match="ivg"):
        Adapters(backbone).use("ivg")


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_two_adapters_cannot_have_one_name(random_model: Path, backend: str) -> None:
    options = LoadOptions(random_model, backend=backend, device="cpu")
    engine = open_backbone(random_model, options)
    engine.load_adapter("ivg", random_model / "ivg")
    with pytest.raises(ModelError, match=r"ivg.* already"):
        engine.load_adapter("ivg", random_model / "detector")
    assert engine.adapters == ("ivg",)


# Adapters that others trained, in both backbones.

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BACKENDS = pytest.mark.parametrize("backend", ["openvino", "torch"])


@pytest.fixture
def own(random_model: Path, tmp_path: Path) -> Path:
    """A model folder to change the adapter of."""
    return Path(shutil.copytree(random_model, tmp_path / "model"))


def load(folder: Path, backend: str) -> None:
    options = LoadOptions(folder, backend=backend, device="cpu")
    open_backbone(folder, options).load_adapter(IVG, folder / IVG)


def likely(folder: Path, backend: str) -> Array:
    """The logits of the first token of adapter B's reply."""
    made = load_checkpoint(folder, backend=backend, device="cpu", dtype="float32")
    features = made.look(np.full((64, 64, 3), 99, np.uint8))
    prompts = encode_prompts(made.processor, made.ivg.instruction, ["the red block"])
    return made.backbone.read(features, prompts, IVG)[1]


def configure(folder: Path, **change: Any) -> None:
    path = folder / IVG / CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def rename(folder: Path, name: Callable[[str], str]) -> None:
    path = folder / IVG / WEIGHTS
    save_file({name(key): tensor for key, tensor in load_file(path).items()}, path)


@BACKENDS
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modules_to_save": ["multi_modal_projector"]}, "modules_to_save .* one look"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices .* one look"),
        ({"bias": "all"}, "bias is 'all'.* one look"),
        ({"alora_invocation_tokens": [7, 8]}, "alora_invocation_tokens .* its own tokens"),
        ({"layer_replication": [[0, 2]]}, "layer_replication .* other blocks"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'.* plain LoRA"),
        ({"peft_type": "LOHA"}, "does not describe a LoRA"),
        ({"alpha_pattern": {".*q_proj": 4}}, "alpha_pattern has '.*q_proj'"),
        ({"r": 0}, "a rank below 1"),
        ({"r": 10**12}, "its rank is to be 1000000000000"),
    ],
)
def test_what_cannot_be_right_here_is_refused_with_the_reason(
    own: Path, backend: str, change: dict[str, Any], message: str
) -> None:
    configure(own, **change)
    with pytest.raises(ModelError, match=message):
        load(own, backend)


@BACKENDS
def test_an_adapter_that_reaches_the_vision_tower_is_refused(own: Path, backend: str) -> None:
    """As peft makes one whose target_modules are the names that both towers have."""
    from peft import LoraConfig, get_peft_model

    base = load_model(own).model
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(own / IVG)
    with pytest.raises(ModelError, match=r"vision_tower.* one look"):
        load(own, backend)


@BACKENDS
@pytest.mark.parametrize("start", ["base_model.model.", ""])
def test_older_names_of_the_decoder_are_read_as_the_newer_ones(
    own: Path, backend: str, start: str
) -> None:
    newer = likely(own, backend)
    old = f"{start}language_model.model."
    rename(own, lambda key: key.replace("base_model.model.model.language_model.", old))
    assert np.array_equal(likely(own, backend), newer)


@BACKENDS
def test_an_adapter_for_another_depth_is_refused(own: Path, backend: str) -> None:
    rename(own, lambda key: key.replace(".layers.3.", ".layers.7."))
    with pytest.raises(ModelError, match=r"layers\.7\..* which this model does not"):
        load(own, backend)


@BACKENDS
def test_what_is_adapted_is_what_the_file_has_whatever_the_pattern_says(
    own: Path, backend: str
) -> None:
    expected = likely(own, backend)
    configure(own, target_modules=".*_proj", layers_pattern="h")
    assert np.array_equal(likely(own, backend), expected)


def test_ranks_and_scales_of_single_modules_are_the_same_in_both(own: Path) -> None:
    before = likely(own, "torch")
    path = own / IVG / WEIGHTS
    weights = load_file(path)
    for key in weights:
        if ".layers.1.mlp.up_proj.lora_A" in key:
            weights[key] = weights[key][:4].clone()
        elif ".layers.1.mlp.up_proj.lora_B" in key:
            weights[key] = weights[key][:, :4].clone()
    save_file(weights, path)
    for backend in ("openvino", "torch"):
        with pytest.raises(ModelError, match="has shape"):
            load(own, backend)
    one = "language_model.model.layers.1.mlp.up_proj"
    configure(own, rank_pattern={one: 4}, alpha_pattern={"q_proj": 8, one: 64})
    ours, theirs = (likely(own, backend) for backend in ("openvino", "torch"))
    assert np.allclose(ours, theirs, atol=1e-4)
    assert not np.allclose(theirs, before, atol=1e-3)


def test_a_pickled_adapter_says_the_command_that_converts_it(own: Path) -> None:
    expected = likely(own, "openvino")
    path = own / IVG / WEIGHTS
    torch.save(load_file(path), path.with_name("adapter_model.bin"))
    path.unlink()
    for backend in ("openvino", "torch"):
        with pytest.raises(ModelError, match="a pickle, which is never loaded") as told:
            load(own, backend)
    code = str(told.value).partition('python -c "')[2].removesuffix('"')
    subprocess.run([sys.executable, "-c", code], cwd=path.parent, check=True)
    assert np.array_equal(likely(own, "openvino"), expected)
