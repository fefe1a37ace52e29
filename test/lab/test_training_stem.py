"""A convolutional stem: published weights in, the same features out, and never trained."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import SIZES, SMALL_STEM, write_random_model
from torch import nn
from torch.nn import functional

from clue_ros.errors import ClueError
from clue_ros.lab.training.base import adopt, new_model, stem_sizes
from clue_ros.lab.training.loop import scratch_groups
from clue_ros.lab.training.stem import STEMS, fill_stem
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.config import tiny_config
from clue_ros.model.conv_stem import ConvStem
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import TorchBackbone, load_model


def layer(state: dict[str, torch.Tensor], name: str, norm: str, shape: tuple[int, ...]) -> None:
    """Random weights of a convolution and its normalisation, under published names."""
    state[f"{name}.weight"] = torch.randn(shape) / (shape[1] * shape[2] ** 2) ** 0.5
    state[f"{norm}.weight"], state[f"{norm}.bias"] = (
        torch.rand(shape[0]) + 0.5,
        torch.randn(shape[0]),
    )
    state[f"{norm}.running_mean"] = torch.randn(shape[0]) * 0.2
    state[f"{norm}.running_var"] = torch.rand(shape[0]) + 0.5


def published() -> dict[str, torch.Tensor]:
    """Random weights for SMALL_STEM under the names of the published conversion."""
    state: dict[str, torch.Tensor] = {}
    layer(state, "_conv_stem", "_bn0", (4, 3, 3, 3))
    number, channels = 0, 4
    for blocks, kernel, _stride, expansion, out in SMALL_STEM["stages"]:
        for _ in range(blocks):
            wide, name = channels * expansion, f"_blocks.{number}."
            if expansion > 1:
                layer(state, f"{name}_expand_conv", f"{name}_bn0", (wide, channels, 1, 1))
            layer(state, f"{name}_depthwise_conv", f"{name}_bn1", (wide, 1, kernel, kernel))
            layer(state, f"{name}_project_conv", f"{name}_bn2", (out, wide, 1, 1))
            number, channels = number + 1, out
    return state


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """A package that holds random weights, as STEMS' `small`; returns them."""
    torch.manual_seed(1)
    state = published()
    folder = tmp_path / "fake_stem_weights" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    torch.save(state, folder / "small.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fake_stem_weights", raising=False)
    monkeypatch.setitem(STEMS, "small", ("fake_stem_weights", SMALL_STEM))
    return state


def reference(state: dict[str, torch.Tensor], picture: torch.Tensor) -> list[torch.Tensor]:
    """Each stage's output, with normalisation and TensorFlow's padding as separate steps."""

    def step(x: torch.Tensor, name: str, norm: str, stride: int = 1) -> torch.Tensor:
        weight = state[f"{name}.weight"]
        kernel = weight.shape[-1]
        missing = max(0, -(-x.shape[-1] // stride) * stride - stride + kernel - x.shape[-1])
        x = functional.pad(x, [missing // 2, missing - missing // 2] * 2)
        x = functional.conv2d(x, weight, stride=stride, groups=x.shape[1] // weight.shape[1])
        mean, var = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        return functional.batch_norm(
            x, mean, var, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=1e-3
        )

    x, number, stages = functional.relu6(step(picture, "_conv_stem", "_bn0", 2)), 0, []
    for blocks, _kernel, stride, expansion, out in SMALL_STEM["stages"]:
        for block in range(blocks):
            name, before = f"_blocks.{number}.", x
            if expansion > 1:
                x = functional.relu6(step(x, f"{name}_expand_conv", f"{name}_bn0"))
            here = 1 if block else stride
            x = functional.relu6(step(x, f"{name}_depthwise_conv", f"{name}_bn1", here))
            x = step(x, f"{name}_project_conv", f"{name}_bn2")
            x = x + before if here == 1 and before.shape[1] == out else x
            number += 1
        stages.append(x)
    return stages


@pytest.mark.parametrize("side", [64, 72, 200])
def test_published_weights_give_the_published_features(
    fake_package: dict[str, torch.Tensor], side: int
) -> None:
    stem = ConvStem(SMALL_STEM, 12, 8)
    fill_stem(stem, "small")
    picture = torch.rand(2, 3, side, side) * 2 - 1
    expected = reference(fake_package, picture)
    features = functional.relu6(stem.first(picture))
    for stage, wanted in zip(stem.stages, expected, strict=True):
        features = stage(features)
        torch.testing.assert_close(features, wanted, atol=1e-4, rtol=1e-4)
    assert stem(picture).shape == (2, 12, side // 8, side // 8)


def test_a_missing_package_and_foreign_weights_are_named(
    fake_package: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEMS, "absent", ("no_such_weights", SMALL_STEM))
    with pytest.raises(ClueError, match="needs the Python package no_such_weights"):
        fill_stem(ConvStem(SMALL_STEM, 12, 8), "absent")
    other = {**SMALL_STEM, "first": 6}
    with pytest.raises(ClueError, match="other weights"):
        fill_stem(ConvStem(other, 12, 8), "small")


def test_patches_that_features_cannot_fill_are_refused() -> None:
    with pytest.raises(ValueError, match="patches of 10"):
        ConvStem(SMALL_STEM, 12, 10)


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-5), ("mixed", 0.05)])
def test_openvino_gives_a_stems_features(
    tmp_path: Path, dtype: str, close: float, fresh_seed: int
) -> None:
    folder = write_random_model(tmp_path / "stemmed", seed=4, conv_stem=SMALL_STEM)
    theirs = load_checkpoint(folder, backend="torch", device="cpu").backbone
    assert isinstance(theirs, TorchBackbone)
    stem = theirs.model.model.model.vision_tower.embeddings.patch_embedding
    assert isinstance(stem, ConvStem)
    pixels = np.random.default_rng(fresh_seed).random((2, 3, 64, 64), np.float32) * 2 - 1
    expected = theirs.look(pixels)
    found = load_checkpoint(folder, backend="openvino", dtype=dtype).backbone.look(pixels)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    assert np.abs(found - expected).max() < close * np.abs(expected).max()


def test_a_base_gets_a_stem_and_keeps_the_rest(tmp_path: Path) -> None:
    plain = write_random_model(tmp_path / "plain", seed=4)
    tokenizer = load_processor(plain).tokenizer
    config = tiny_config(len(tokenizer), **SIZES, conv_stem=SMALL_STEM)
    model = paligemma_class(config)(config)
    stem = model.model.vision_tower.embeddings.patch_embedding
    for buffer in stem.buffers():
        buffer.normal_(std=0.3)
    assert adopt(model, tokenizer, str(plain)) == len(tokenizer)
    source = load_model(plain).model
    pixels = torch.rand(2, 3, 64, 64) * 2 - 1
    with torch.no_grad():  # what it knew, to the bit: the features have no weight yet
        seen = model.eval().model.vision_tower(pixels).last_hidden_state
        known = source.model.vision_tower(pixels).last_hidden_state
        torch.testing.assert_close(seen, known, rtol=0, atol=0)
        stem.weight.normal_(std=0.1)
        assert not torch.allclose(model.model.vision_tower(pixels).last_hidden_state, known)
    theirs = dict(source.named_parameters())
    for name, p in model.named_parameters():
        assert "patch_embedding" in name or torch.equal(p, theirs[name]), name


def test_a_base_without_the_option_gets_the_stem_of_the_first_one(tmp_path: Path) -> None:
    assert stem_sizes(str(write_random_model(tmp_path / "plain", seed=4))) is None
    folder = write_random_model(tmp_path / "stemmed", seed=4, conv_stem=SMALL_STEM)
    sizes = stem_sizes(str(folder))
    assert sizes == SMALL_STEM
    model, _ = new_model(0, conv_stem=sizes)
    assert isinstance(model.model.vision_tower.embeddings.patch_embedding, ConvStem)


def test_a_base_hands_its_stem_on(tmp_path: Path) -> None:
    folder = write_random_model(tmp_path / "stemmed", seed=4, conv_stem=SMALL_STEM)
    tokenizer = load_processor(folder).tokenizer
    config = tiny_config(len(tokenizer), **SIZES, conv_stem=SMALL_STEM)
    model = paligemma_class(config)(config)
    adopt(model, tokenizer, str(folder))
    source = load_model(folder).model.state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, source[name]), name


def test_the_features_of_a_stem_never_learn() -> None:
    stem = ConvStem(SMALL_STEM, 12, 8)
    for buffer in stem.buffers():
        buffer.normal_(std=0.3)
    before = {name: b.clone() for name, b in stem.named_buffers()}
    named = {f"embeddings.patch_embedding.{n}": p for n, p in stem.named_parameters()}
    assert {n.rpartition(".")[2] for n in named} == {"weight", "bias"}
    groups = scratch_groups(named.items())
    parameters: list[nn.Parameter] = [p for group in groups for p in group.parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    weight = stem.weight.detach().clone()
    stem(torch.rand(1, 3, 64, 64)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(stem.weight, weight)
    assert all(torch.equal(b, before[name]) for name, b in stem.named_buffers())
