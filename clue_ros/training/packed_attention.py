"""Attention for training: in the precision of its values, and only of what a query may see.

A packed sequence is a picture and a dozen queries: of its S x S scores more than half are between
queries, or from the picture to them, and masked. transformers' eager attention computes, caps and
normalises them all, in float32; `attend` goes through the rows in spans, each with the keys that
some row of it may see. `attend_to_all` does one query a sequence, as transformers lays it out. Both
stay in the precision of their values (float32, or bfloat16 where autocast makes it that). Nothing
else differs: the same scores, cap, mask and softmax (`test/test_training_packed.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from clue_ros.training.packed import Packed, packed_mask

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
