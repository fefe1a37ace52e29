"""Two adapters on one backbone: only the decoder, no copies, cheap to switch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clue_ros.errors import ModelError
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.checkpoint import open_backbone
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


def test_an_adapter_for_another_depth_is_refused(
    backbone: TorchModel, random_model: Path, tmp_path: Path
) -> None:
    adapters = Adapters(backbone)
    adapters.load("ivg", random_model / "ivg")
    adapters.save("ivg", tmp_path)
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = config["target_modules"].replace("(0|1|2|3)", "(7)")
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        Adapters(load_model(random_model)).load("ivg", tmp_path)


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
