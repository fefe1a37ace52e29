# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""From attention weights to one map of the image: equations 1 and 2 (section III-B.1).

The image tokens are the first N keys (PaliGemma's layout), N = grid * grid, row by row from the
top.
"""

from __future__ import annotations

import torch

EPS = 1e-8  # of equation 1
FLAT = 1e-12  # added to a map's range: real ranges shrink with the grid, to about 1e-5


def image_attention(attention: torch.Tensor, query_mask: torch.Tensor, grid: int) -> torch.Tensor:
    """Equations 1 and 2: where the words look, as a distribution over the image. Differentiable.

    attention (B, H, Q, K) from one block; query_mask (B, Q) bool, the words Qx. Returns (B, grid,
    grid) float32, each sample summing to 1 (to 0 where no query is set).
    """
    over_image = attention[..., : grid * grid].float()
    share = over_image / (over_image.sum(-1, keepdim=True) + EPS)  # eq. 1, per head and query
    weight = query_mask.to(share.dtype)[:, None, :, None]
    total = (share * weight).sum((1, 2))
    count = weight.sum((1, 2)).clamp(min=1) * attention.shape[1]
    return (total / count).view(-1, grid, grid)  # eq. 2


def min_max(maps: torch.Tensor) -> torch.Tensor:
    """Each map of (B, g, g) stretched to 0..1; a flat map becomes 0. Differentiable."""
    flat = maps.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return ((flat - low) / (high - low + FLAT)).view_as(maps)


def attention_map(attention: torch.Tensor, query_mask: torch.Tensor, grid: int) -> torch.Tensor:
    """Return the map that the CNN reads: equations 1 and 2, then min-max per sample.

    (B, H, Q, K), (B, Q) -> (B, grid, grid) in 0..1.
    """
    return min_max(image_attention(attention, query_mask, grid))
