"""Many queries on one picture in one sequence: three to four times the samples a second on a CPU.

The picture's tokens come once and see only themselves; each query sees the picture and itself,
counts its positions on from the picture's last one, and is bidirectional over its prefix and
causal over its suffix. That differs from PaliGemma's own mask in one thing (there the picture also
sees the prefix), so every stage ends on batches of one query a sequence, where `image_sees_prefix`
makes the mask PaliGemma's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.samples import Query
from clue_ros.model.prompts import encode_text, escape


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


# -------------------------------------------------------------------------------------------------
# Attention for training: in the precision of its values, and only of what a query may see.

NAME = "clue_packed"
NAME_OF_ALL = "clue_all"
ROWS = 64  # text rows of a span: fewer see fewer masked keys, more make larger products


@dataclass(frozen=True)
class Span:
    """Rows `first` to `last` of a sequence, and all that they may see.

    The keys are the image's and those of the text from `key_first` to `key_last`, counted over the
    whole sequence. mask: added to the scores, (B, 1, rows, keys); None where all is seen.
    """

    first: int
    last: int
    key_first: int
    key_last: int
    mask: Tensor | None


@dataclass(frozen=True)
class Layout:
    """The spans of a batch. read: blocks whose attention from the text to the image is returned."""

    image_tokens: int
    spans: tuple[Span, ...]
    read: frozenset[int]


def layout_of(
    batch: Packed, image_tokens: int, *, image_sees_prefix: bool, read: frozenset[int]
) -> Layout:
    """How to go through a batch. One span of everything where the picture sees the prefix."""
    allowed = packed_mask(batch, image_tokens, image_sees_prefix=image_sees_prefix)
    added = torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, -1e9)
    n, size = image_tokens, allowed.shape[-1]
    if image_sees_prefix:
        return Layout(n, (Span(0, size, n, size, added),), read)
    spans = [Span(0, n, n, n, None)]
    text = allowed[:, 0, n:, n:].any(0)
    for first in range(0, size - n, ROWS):
        last = min(first + ROWS, size - n)
        seen = text[first:last].any(0).nonzero().flatten()
        low, high = (int(seen[0]) + n, int(seen[-1]) + 1 + n) if len(seen) else (n, n)
        rows = added[:, :, first + n : last + n]
        mask = torch.cat([rows[..., :n], rows[..., low:high]], dim=-1)
        spans.append(Span(first + n, last + n, low, high, mask))
    return Layout(n, tuple(spans), read)


@contextmanager
def attention_of(decoder: Any, name: str) -> Iterator[None]:
    """A decoder (transformers' class) attends by one of this module's functions, by its name.

    One with gradient checkpointing goes on with it after the context: its blocks are run again in
    the backward pass.
    """
    config = decoder.config
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        if not any(layer.gradient_checkpointing for layer in decoder.layers):
            config._attn_implementation = before


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    layout: Layout | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **_ignored: Any,
) -> tuple[Tensor, Tensor | None]:
    """Transformers' attention function: outputs (B, S, H, d), and what is read.

    query (B, H, S, d), key and value (B, K, S, d). Second: (B, H, T, N), the T text rows' attention
    to the N image tokens, in the blocks of `layout.read`; else None. attention_mask is not used,
    the layout has it; without a layout it is `attend_to_all`.
    """
    if layout is None:
        return attend_to_all(
            module,
            query,
            key,
            value,
            attention_mask,
            scaling=scaling,
            dropout=dropout,
            softcap=softcap,
        )
    n = layout.image_tokens
    query, key = _scaled(query, scaling, softcap, value), key.to(value.dtype)
    outputs, seen = [], []
    for span in layout.spans:
        keys, values = key[:, :, :n], value[:, :, :n]
        if span.key_last > span.key_first:
            text = slice(span.key_first, span.key_last)
            keys = torch.cat([keys, key[:, :, text]], dim=2)
            values = torch.cat([values, value[:, :, text]], dim=2)
        rows = query[:, :, span.first : span.last]
        mixed, weights = _mixed(
            rows, keys, values, span.mask, softcap, dropout if module.training else 0.0
        )
        outputs.append(mixed)
        if module.layer_idx in layout.read and span.last > n:
            seen.append(weights[:, :, max(0, n - span.first) :, :n])
    out = torch.cat(outputs, dim=2).transpose(1, 2)
    return out, torch.cat(seen, dim=2) if seen else None


def attend_to_all(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    **_ignored: Any,
) -> tuple[Tensor, Tensor]:
    """Transformers' attention function: outputs (B, S, H, d), and all weights (B, H, S, S).

    query (B, H, S, d), key and value (B, K, S, d). attention_mask: added to the scores, (B, 1, S,
    S).
    """
    query, key = _scaled(query, scaling, softcap, value), key.to(value.dtype)
    rate = dropout if module.training else 0.0
    out, weights = _mixed(query, key, value, attention_mask, softcap, rate)
    return out.transpose(1, 2), weights


def _scaled(query: Tensor, scaling: float, softcap: float | None, value: Tensor) -> Tensor:
    return (query * (scaling if softcap is None else scaling / softcap)).to(value.dtype)


def _mixed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    softcap: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Outputs (B, H, R, d) and weights (B, H, R, S) of R rows; several heads share a key's."""
    batch, heads, rows, width = query.shape
    shared = key.shape[1]
    asked = query.reshape(batch, shared, -1, width)
    scores = torch.matmul(asked, key.transpose(2, 3)).view(batch, heads, rows, -1)
    if softcap is not None:
        scores = torch.tanh(scores) * softcap
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = scores.softmax(-1)
    if dropout:
        weights = nn.functional.dropout(weights, dropout)
    mixed = torch.matmul(weights.view(batch, shared, -1, weights.shape[-1]), value)
    return mixed.view(batch, heads, rows, width), weights


AttentionInterface.register(NAME, attend)
AttentionInterface.register(NAME_OF_ALL, attend_to_all)
for _name in (NAME, NAME_OF_ALL):
    AttentionMaskInterface.register(_name, eager_mask)
