# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A convolutional stem for the vision tower: features that photographs taught, beside its patches.

SigLIP reads a picture through one convolution per patch. A small tower that only ever saw rendered
pictures has nothing that photographs taught, and what it learns of textures holds for renders. The
stem adds a learned projection of a frozen EfficientNet-Lite (Tan and Le, 2019, without
squeeze-and-excitation and with ReLU6) to that convolution's output. The projection begins at zero,
so that a trained tower that gets a stem begins with what it knows. Which features a stem has is in
`vision_config.conv_stem` of config.json. Published PaliGemma checkpoints have none. A stem with
`details` reads the picture a second time, at its own aspect and with more pixels
(`clue_ros.model.details`); the same projection takes these features too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clue_ros.model.details import averaging, detailed_size, details_of, has_patches

EFFICIENTNET_LITE0: dict[str, Any] = {
    "first": 32,
    "stages": [
        # blocks, kernel, stride, expansion, channels
        [1, 3, 1, 1, 16],
        [2, 3, 2, 6, 24],
        [2, 5, 2, 6, 40],
        [3, 3, 2, 6, 80],
        [3, 5, 1, 6, 112],
        [4, 5, 2, 6, 192],
        [1, 3, 1, 6, 320],
    ],
    "read": [1, 2, 4, 6],
}
"""Sizes: channels of the first convolution, the stages, and the stages whose output is read."""


class FrozenConv(nn.Module):
    """A convolution with TensorFlow's "same" padding whose weights are buffers: none is trained."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(
        self, channels: int, out: int, kernel: int = 1, stride: int = 1, *, depthwise: bool = False
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.groups = channels if depthwise else 1
        self.register_buffer("weight", torch.zeros(out, channels // self.groups, kernel, kernel))
        self.register_buffer("bias", torch.zeros(out))

    def forward(self, picture: torch.Tensor, *, relu6: bool = False) -> torch.Tensor:
        """(B, C, H, W) to (B, out, ceil(H / stride), ceil(W / stride)). relu6: with it after."""
        sides = [_same(side, self.kernel, self.stride) for side in picture.shape[2:]]
        padding, skipped = zip(*sides, strict=True)
        weights = self.weight, self.bias
        found = functional.conv2d(picture, *weights, self.stride, padding, groups=self.groups)
        if relu6:
            # In place, which frozen weights allow: new pages for 8 MB take longer than the
            # convolution.
            found = functional.relu6(found, inplace=True)
        return found[:, :, skipped[0] :, skipped[1] :]


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding on both ends of a side, and how much of the result's begin to leave out.

    "same" pads the end by one more: begin a stride earlier, and leave out what that adds, which is
    quicker than a padded copy.
    """
    reach = (math.ceil(size / stride) - 1) * stride + kernel
    before, more = divmod(max(0, reach - size), 2)
    return before + more * stride, more


class Block(nn.Module):
    """An inverted bottleneck: widen, convolve each channel, narrow."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand = FrozenConv(channels, wide) if expansion > 1 else None
        self.depthwise = FrozenConv(wide, wide, kernel, stride, depthwise=True)
        self.project = FrozenConv(wide, out)
        self.is_residual = stride == 1 and channels == out

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """(B, channels, H, W) to (B, out, H / stride, W / stride)."""
        wide = picture if self.expand is None else self.expand(picture, relu6=True)
        narrow: torch.Tensor = self.project(self.depthwise(wide, relu6=True))
        return narrow.add_(picture) if self.is_residual else narrow


class ConvStem(nn.Conv2d):
    """Frozen features of a picture, projected to the tower's width, and SigLIP's patches: the sum.

    It stands where SigLIP has its patch convolution, and is itself the projection; `patches` is
    SigLIP's, or None where `patches` is false in the sizes: then the tower sees nothing but what
    the frozen network makes of the picture. sizes: see EFFICIENTNET_LITE0, and
    `clue_ros.model.details`. grid: tokens a side, of details only. Raises ValueError for sizes that
    do not fit together.
    """

    def __init__(
        self, sizes: Mapping[str, Any], width: int, patch_size: int, grid: int = 0
    ) -> None:
        channels, reduced, read = int(sizes["first"]), 2, set(map(int, sizes["read"]))
        stages: list[nn.Sequential] = []
        folds: list[int | None] = []  # None: the stage is not read
        total = 0
        for number, (blocks, kernel, stride, expansion, out) in enumerate(sizes["stages"]):
            reduced *= stride
            parts = []
            for block in range(blocks):
                parts.append(Block(channels, out, kernel, 1 if block else stride, expansion))
                channels = out
            stages.append(nn.Sequential(*parts))
            fold = max(1, patch_size // reduced)
            if number in read and (patch_size % reduced and reduced % patch_size):
                raise ValueError(f"patches of {patch_size} pixels do not fit features of {reduced}")
            folds.append(fold if number in read else None)
            total += channels * fold**2 if number in read else 0
        details = details_of(sizes)
        own = total
        total += 0 if details is None else details.channels(sizes)
        super().__init__(total, width, 1)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        raw = has_patches(sizes)
        self.patches = nn.Conv2d(3, width, patch_size, patch_size) if raw else None
        self.first = FrozenConv(3, int(sizes["first"]), 3, 2)
        self.stages = nn.ModuleList(stages)
        self._folds = folds
        self._patch, self._grid = patch_size, grid
        self._own, self._details = own, details
        self._held: torch.Tensor | None = None

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) in -1..1 to (B, width, H / patch, W / patch).

        Raises ValueError for a stem with details outside of `holding`.
        """
        picture = picture.contiguous(memory_format=torch.channels_last)  # a third faster on CPUs
        held = self._held
        missing = self.in_channels - (0 if held is None else held.shape[1])
        if missing not in (0, self._own):
            raise ValueError("this vision tower reads details too: hold those of the pictures")
        parts = [self.levels(picture)] if missing else []
        if held is not None:
            parts.append(held.to(picture))
        projected: torch.Tensor = super().forward(torch.cat(parts, dim=1))
        return projected if self.patches is None else projected + self.patches(picture)

    @contextmanager
    def holding(self, features: torch.Tensor | None) -> Iterator[None]:
        """Pictures are looked at with these features: (B, C, g, g) of `details`, or all of them.

        All of them (`levels`, then `details`) spare the network's run on the pictures.
        """
        before, self._held = self._held, features
        try:
            yield
        finally:
            self._held = before

    def levels(self, picture: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) in -1..1 to frozen features (B, C, H / patch, W / patch)."""
        grid = picture.shape[2] // self._patch, picture.shape[3] // self._patch
        levels = []
        for features, fold in zip(self._outputs(picture), self._folds, strict=True):
            if fold is None:
                continue
            level = functional.pixel_unshuffle(features, fold) if fold > 1 else features
            level = _unit(level)
            if level.shape[2:] != grid:
                level = functional.interpolate(level, grid, mode="bilinear", align_corners=False)
            levels.append(level)
        return torch.cat(levels, dim=1)

    def details(self, pictures: Sequence[torch.Tensor]) -> torch.Tensor:
        """Pictures (3, h, w) in -1..1, each of its own aspect, to features (B, C, g, g)."""
        return torch.cat([self._detail(picture[None]) for picture in pictures])

    def stage_features(self, picture: torch.Tensor, stages: Sequence[int]) -> list[torch.Tensor]:
        """(B, 3, h, w) in -1..1 to (B, C, h', w') for each of some stages, cells of unit size."""
        picture = picture.contiguous(memory_format=torch.channels_last)
        outputs = list(self._outputs(picture))
        return [_unit(outputs[stage]) for stage in stages]

    def _detail(self, picture: torch.Tensor) -> torch.Tensor:
        assert self._details is not None
        picture = picture.contiguous(memory_format=torch.channels_last)
        stages, levels = list(self._outputs(picture)), []
        for stage, fold in self._details.read:
            features, cells = stages[stage], fold * self._grid
            rows, columns = (
                torch.from_numpy(averaging(count, cells)).to(features)
                for count in features.shape[2:]
            )
            level = rows @ features @ columns.T
            levels.append(_unit(functional.pixel_unshuffle(level, fold)))
        return torch.cat(levels, dim=1)

    def _outputs(self, picture: torch.Tensor) -> Iterator[torch.Tensor]:
        """Each stage's output."""
        features = self.first(picture, relu6=True)
        for stage in self.stages:
            features = stage(features)
            yield features


def _unit(level: torch.Tensor) -> torch.Tensor:
    """Features of unit size, as they are laid over each other: stages differ by a factor of ten."""
    level = functional.layer_norm(level.permute(0, 2, 3, 1), level.shape[1:2])
    return level.permute(0, 3, 1, 2)


@contextmanager
def holding(tower: Any, features: torch.Tensor | None) -> Iterator[None]:
    """`ConvStem.holding` for a vision tower, which needs no stem if there are no features."""
    if features is None:
        yield
        return
    with tower.embeddings.patch_embedding.holding(features):
        yield


def has_stem(vision_config: Any) -> bool:
    """Whether a vision_config asks for a stem."""
    return getattr(vision_config, "conv_stem", None) is not None


def stem_cost(vision_config: Any) -> tuple[int, int]:
    """Weights of a stem without SigLIP's patches and any bias, and its operations for a picture.

    Two operations for a multiplication and an addition. Details are those of a picture 4 wide and 3
    high. (0, 0) where there is no stem.
    """
    if not has_stem(vision_config):
        return 0, 0
    sizes, side = vision_config.conv_stem, vision_config.image_size
    patch, details = vision_config.patch_size, details_of(vision_config.conv_stem)
    weights, products = _network_cost(sizes, side, side)
    reduced, features = 2, 0
    for number, (_, _, stride, _, out) in enumerate(sizes["stages"]):
        reduced *= stride
        features += out * max(1, patch // reduced) ** 2 if number in sizes["read"] else 0
    if details is not None:
        features += details.channels(sizes)
        products += _network_cost(sizes, *detailed_size(4, 3, details.side))[1]
    projection = features * vision_config.hidden_size
    return weights + projection, 2 * (products + projection * (side // patch) ** 2)


def _network_cost(sizes: Mapping[str, Any], width: int, height: int) -> tuple[int, int]:
    """Weights of a stem's network, and its multiplications for a picture."""
    channels, across, down = int(sizes["first"]), -(-width // 2), -(-height // 2)
    weights = 3 * 9 * channels
    products = weights * across * down
    for blocks, kernel, stride, expansion, out in sizes["stages"]:
        for block in range(blocks):
            wide = channels * expansion
            expand = channels * wide if expansion > 1 else 0
            rest = wide * kernel**2 + wide * out  # each channel's convolution, and to narrow
            products += expand * across * down
            if not block:
                across, down = -(-across // stride), -(-down // stride)
            products += rest * across * down
            weights, channels = weights + expand + rest, out
    return weights, products


def patch_embedding(vision_config: Any) -> nn.Conv2d:
    """A stem with empty features, or SigLIP's convolution, as a vision_config asks for it."""
    width, patch = vision_config.hidden_size, vision_config.patch_size
    if has_stem(vision_config):
        return ConvStem(vision_config.conv_stem, width, patch, vision_config.image_size // patch)
    return nn.Conv2d(vision_config.num_channels, width, patch, patch)
