"""Many queries on one picture in one sequence: three to four times the samples a second on a CPU.

The picture's tokens come once and see only themselves; each query sees the picture and itself,
counts its positions on from the picture's last one, and is bidirectional over its prefix and
causal over its suffix. That differs from PaliGemma's own mask in one thing (there the picture also
sees the prefix), so every stage ends on batches of one query a sequence, where `image_sees_prefix`
makes the mask PaliGemma's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clue_ros.data.tabletop.scene import Scene
from clue_ros.model.processor import encode_text, escape
from clue_ros.training.queries import Query


@dataclass
class Packed:
    """B sequences of N image tokens and T text tokens.

    ids, types, labels (B, T) int64; queries (B, T) bool; owner (B, T) int64, the query's number in
    its sequence, -1 for padding; positions (B, T) int64, counted from 0 at <bos>.
    map_rows (M, 2): (sequence, query) of each map target; maps (M, N), each summing to 1.
    point_rows (P, 2): (sequence, text position whose attention is taught); points (P, N).
    """

    ids: Tensor
    types: Tensor
    labels: Tensor
    queries: Tensor
    owner: Tensor
    positions: Tensor
    map_rows: Tensor
    maps: Tensor
    point_rows: Tensor
    points: Tensor

    def to(self, device: torch.device) -> Packed:
        """The same batch on another device."""
        return Packed(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def patch_shares(scene: Scene, grid: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Each object's patches as a distribution over the image tokens, (n, grid * grid)."""
    cover = scene.coverage(grid).reshape(len(scene.objects), grid * grid) + 1e-9
    return np.asarray(cover / cover.sum(axis=1, keepdims=True), dtype=np.float32)


def pack(batch: Sequence[tuple[Scene, Sequence[Query]]], tokenizer: Any, grid: int) -> Packed:
    """Tokenize and lay out the queries of each scene one after another."""
    names = ("ids", "types", "labels", "queries", "owner", "positions")
    fill = {"ids": tokenizer.pad_token_id, "labels": -100, "owner": -1}
    rows: list[dict[str, list[int]]] = []
    map_rows, maps, point_rows, points = [], [], [], []
    for b, (scene, queries) in enumerate(batch):
        shares = patch_shares(scene, grid)
        row: dict[str, list[int]] = {name: [] for name in names}
        for q, query in enumerate(queries):
            prefix = f"{query.instruction} {escape(query.context, tokenizer)}"
            text = encode_text(tokenizer, prefix, len(query.instruction), query.suffix)
            start, length = len(row["ids"]), len(text["input_ids"])
            before = length - sum(text["token_type_ids"])
            for name, key in (
                ("ids", "input_ids"),
                ("types", "token_type_ids"),
                ("labels", "labels"),
            ):
                row[name] += text[key]
            row["queries"] += [int(v) for v in text["query_mask"]]
            row["owner"] += [q] * length
            row["positions"] += list(range(length))
            looks = query.looks if query.looks else tuple(range(len(shares)))
            if looks:  # a picture without masks teaches no map
                map_rows.append((b, q))
                maps.append(shares[list(looks)].mean(axis=0))
            for at, i in query.pointers:
                # A token is predicted at the position before it.
                point_rows.append((b, start + before + at - 1))
                points.append(shares[i])
        rows.append(row)
    width = max(len(row["ids"]) for row in rows)
    tensors = {
        name: torch.tensor(
            [row[name] + [fill.get(name, 0)] * (width - len(row[name])) for row in rows]
        )
        for name in names
    }
    tensors["queries"] = tensors["queries"].bool()
    size = grid * grid
    return Packed(
        **tensors,
        map_rows=torch.tensor(map_rows, dtype=torch.long).view(-1, 2),
        maps=torch.from_numpy(np.stack(maps)) if maps else torch.zeros(0, size),
        point_rows=torch.tensor(point_rows, dtype=torch.long).view(-1, 2),
        points=torch.from_numpy(np.stack(points)) if points else torch.zeros(0, size),
    )


def packed_mask(batch: Packed, image_tokens: int, *, image_sees_prefix: bool) -> Tensor:
    """What may see what: bool (B, 1, S, S), S = image_tokens + T."""
    owner, is_suffix = batch.owner, batch.types.bool()
    rows, width = owner.shape
    real = owner >= 0
    same = (owner[:, :, None] == owner[:, None, :]) & real[:, :, None] & real[:, None, :]
    order = torch.arange(width, device=owner.device)
    earlier = order[None, :] <= order[:, None]
    text = same & (~is_suffix[:, None, :] | earlier[None])
    size = image_tokens + width
    mask = torch.zeros(rows, size, size, dtype=torch.bool, device=owner.device)
    mask[:, :, :image_tokens] = True
    mask[:, image_tokens:, image_tokens:] = text
    # Padding sees the image only, so that no row of the softmax is empty.
    if image_sees_prefix:
        mask[:, :image_tokens, image_tokens:] = (real & ~is_suffix)[:, None, :]
    return mask[:, None]


def packed_positions(batch: Packed, image_tokens: int) -> Tensor:
    """Position ids (B, S), counted from 1 as PaliGemma does."""
    rows = batch.owner.shape[0]
    image = torch.arange(1, image_tokens + 1, device=batch.owner.device).expand(rows, -1)
    return torch.cat([image, batch.positions + image_tokens + 1], dim=1)


def query_maps(attention: Tensor, batch: Packed) -> Tensor:
    """Equations 1 and 2 for every query of packed sequences.

    attention (B, H, T, N), of one block, from the text to the image -> (M, N), each row summing to
    1, in the order of `batch.map_rows`.
    """
    over_image = attention.float()
    share = (over_image / (over_image.sum(-1, keepdim=True) + 1e-8)).mean(1)  # (B, T, N)
    sequence, number = batch.map_rows.unbind(1)
    weight = (
        batch.queries[sequence] & (batch.owner[sequence] == number[:, None])
    ).float()  # (M, T)
    weight = weight / weight.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("mt,mtn->mn", weight, share[sequence])


def point_shares(attention: Tensor, batch: Packed) -> Tensor:
    """Where each taught suffix position looks, over the image: (P, N). attention: (B, H, T, N)."""
    sequence, at = batch.point_rows.unbind(1)
    over_image = attention[sequence, :, at].float().mean(1)
    return over_image / (over_image.sum(-1, keepdim=True) + 1e-8)


def cross_entropy_to(target: Tensor, predicted: Tensor) -> Tensor:
    """Mean cross-entropy between distributions (M, N); 0 when there are none."""
    return cross_entropy_sum(target, predicted) / max(len(target), 1)


def cross_entropy_sum(target: Tensor, predicted: Tensor) -> Tensor:
    """Summed cross-entropy between distributions (M, N), less the target's own entropy."""
    # Two samples from different pictures weigh the same however many patches they cover, because
    # the target's own entropy, which nothing can lower, is taken off.
    entropy = -(target * (target + 1e-9).log()).sum(-1)
    return (-(target * (predicted + 1e-6).log()).sum(-1) - entropy).sum()
