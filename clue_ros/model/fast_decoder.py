# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The decoder for inference: transformers' and peft's weights in fewer operations.

`Backbone` runs it wherever no gradient is wanted. It gives what transformers' own modules give, up
to rounding (a test compares them on random inputs), and differs in the work that it does:

- No mask where a prompt has no padding and no suffix: PaliGemma's prefix attends to all of itself.
- Scale, softcap and softmax in place, the softcap's tanh and the MLP's GELU as part of the products
  before them where the CPU's library has that (`products`).
- A cache of its final size, written in place.
- Of the block that the detector reads, no more than the attention of the words' rows.
- Of a small decoder (`MERGED_BYTES`), each adapter's weights merged into a copy of the base's, q, k
  and v in one matrix; in mixed precision a copy in 16 bits. Of a larger one in mixed precision,
  the products of the base's weights and the adapter's beside them. Else peft's own layers, as of a
  quantised decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from clue_ros.model.products import CACHED, Product, capped_product, is_fused_with, softmax_

GELU = "gelu_pytorch_tanh"
MERGED_BYTES = 384 * 2**20
"""Largest copy of a decoder's projections with an adapter merged into them, in the type of the
products. A larger decoder spends its time in the matrix products: merging brings it little and
costs a second decoder."""

Linear = Callable[[torch.Tensor], torch.Tensor]
Rows = slice | torch.Tensor | None
"""Tokens of a sequence: a slice, or their numbers (R,) int64."""


class Cache(Protocol):
    """What a block needs of a cache: `KeyValues`, or what records it for an export."""

    def extend(
        self, block: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a block's new keys and values (B, heads, T, size); returns all of its own."""


@dataclass
class KeyValues:
    """Keys and values of B prompts: (blocks, B, heads, capacity, head size), `length` in use.

    multiple: the capacity is a multiple of this. padded: some prompt is shorter than the others.
    """

    keys: torch.Tensor
    values: torch.Tensor
    length: int = 0
    multiple: int = 1
    padded: bool = False

    def room(self, more: int) -> None:
        """Make the capacity at least `length + more`."""
        wanted = self.length + more
        if wanted <= self.keys.shape[3]:
            return
        wanted = round_up(wanted, self.multiple)
        for name in ("keys", "values"):
            old: torch.Tensor = getattr(self, name)
            new = old.new_zeros((*old.shape[:3], wanted, old.shape[4]))
            new[:, :, :, : self.length] = old[:, :, :, : self.length]
            setattr(self, name, new)

    def extend(
        self, block: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a block's new keys and values; returns all of its own.

        `length` stays as it is, for the next block.
        """
        start, end = self.length, self.length + keys.shape[2]
        self.keys[block, :, :, start:end] = keys
        self.values[block, :, :, start:end] = values
        return self.keys[block, :, :, :end], self.values[block, :, :, :end]


def round_up(length: int, step: int) -> int:
    """The next multiple of `step`.

    >>> round_up(32, 16), round_up(33, 16)
    (32, 48)
    """
    return -(-length // step) * step


def is_merged(
    weights: int, held: torch.dtype, products: torch.dtype | None, *, whatever_size: bool = False
) -> bool:
    """Whether replies read copies of a decoder's projections that an adapter is merged into.

    weights: their number. held: their type. products: as `FastDecoder` takes it. Merging is exact
    enough in float32, and where 16 bits are enough for the products.
    """
    size = weights * (products or held).itemsize
    exact = products is not None or held is torch.float32
    return exact and (whatever_size or size <= MERGED_BYTES)


@dataclass(frozen=True)
class _Block:
    """One block's projections, and its four norms (one plus their weights)."""

    qkv: Linear
    query: Linear
    key: Linear
    output: Linear
    mlp: Linear
    norms: tuple[torch.Tensor, ...]


class FastDecoder:
    """Runs a Gemma 2 decoder with the adapter that is active in it. No gradients.

    products: in mixed precision the type of the operands of products with the projections' weights
    and with attention weights; None: as the layers have them.
    merge: merge an adapter into a larger decoder than `MERGED_BYTES` too.
    """

    def __init__(
        self,
        decoder: Any,
        config: Any,
        products: torch.dtype | None = None,
        *,
        merge: bool = False,
    ) -> None:
        self._decoder, self._config, self._products = decoder, config, products
        self._merge = merge
        self._heads: int = config.num_attention_heads
        self._groups: int = config.num_key_value_heads
        self._size: int = config.head_dim
        self._scale: float = config.query_pre_attn_scalar**-0.5
        self._cap: float | None = config.attn_logit_softcapping
        self._made: dict[str | None, _Made] = {}
        self._rotary: tuple[torch.Tensor, torch.Tensor] | None = None

    def fits(self, length: int) -> bool:
        """Whether a sequence of this length needs no sliding window."""
        window = getattr(self._config, "sliding_window", None)
        return window is None or length <= int(window)

    def cache(self, hidden: torch.Tensor, room: int) -> KeyValues:
        """An empty cache for `hidden` (B, T, D) and `room` more tokens."""
        rows, length, _ = hidden.shape
        shape = (self._config.num_hidden_layers, rows, self._groups, length + room, self._size)
        return KeyValues(hidden.new_empty(shape), hidden.new_empty(shape))

    def run(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
        cache: KeyValues | None = None,
        *,
        last: bool = False,
    ) -> torch.Tensor:
        """All blocks and the final norm.

        hidden (B, T, D); mask (B, 1, T, past + T), added to the attention logits, None where all is
        attended to; positions (B or 1, T). last: of the top block's output only the last token is
        wanted: (B, 1, D).
        """
        turn = self.turn(positions, hidden.dtype, cache.length if cache is not None else 0)
        hidden = self.through(hidden, mask, turn, cache, slice(-1, None) if last else None)
        if cache is not None:
            cache.length += positions.shape[1]
        return hidden

    def through(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        turn: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None = None,
        rows: Rows = None,
    ) -> torch.Tensor:
        """All blocks and the final norm, with the positions' cosines and sines (`turn`).

        rows: the tokens whose hidden states are wanted, None for all. With them `mask` has one row
        for all tokens, or is None. Returns (B, rows, D).
        """
        blocks = self._blocks()
        for index, block in enumerate(blocks):
            wanted = rows if index == len(blocks) - 1 else None
            hidden = self._block(block, index, hidden, mask, turn, cache, rows=wanted)
        norm = self._decoder.norm
        return _norm(hidden, 1.0 + norm.weight.float(), self._config.rms_norm_eps)

    def attention(
        self,
        block: int,
        rows: slice,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """The attention weights at `block` of the queries in `rows`: (B, H, rows, T)."""
        turn = self.turn(positions, hidden.dtype)
        return self.weights_at(block, rows, hidden, mask, turn)

    def weights_at(
        self,
        block: int,
        rows: slice | torch.Tensor,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        turn: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """`attention` with the positions' cosines and sines."""
        blocks = self._blocks(block + 1)
        for index in range(block):
            hidden = self._block(blocks[index], index, hidden, mask, turn, None)
        part = blocks[block]
        normed = _norm(hidden, part.norms[0], self._config.rms_norm_eps)
        keys = _rotate(self._split(part.key(normed), self._groups), *turn)
        asked = tuple(each[..., rows, :] for each in turn)
        queries = _rotate(self._split(part.query(normed[:, rows]), self._heads), *asked)
        if mask is not None and mask.shape[2] > 1:
            mask = mask[:, :, rows]
        return self._weights(queries, keys, mask)

    def _block(
        self,
        block: _Block,
        index: int,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        turn: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None,
        *,
        rows: Rows = None,
    ) -> torch.Tensor:
        """One block. rows: of these tokens alone."""
        eps, heads, groups = self._config.rms_norm_eps, self._heads, self._groups
        normed = _norm(hidden, block.norms[0], eps)
        mixed = self._split(block.qkv(normed), heads + 2 * groups)
        turned = _rotate(mixed[:, : heads + groups], *turn)
        queries, keys, values = turned[:, :heads], turned[:, heads:], mixed[:, heads + groups :]
        if cache is not None:
            keys, values = cache.extend(index, keys, values)
        if rows is not None:
            queries, hidden = queries[:, :, rows], hidden[:, rows]
        out = self._attend(queries, keys, values, mask).transpose(1, 2)
        out = block.output(out.reshape(*out.shape[:2], -1))
        hidden = hidden + _norm(out, block.norms[1], eps)
        out = block.mlp(_norm(hidden, block.norms[2], eps))
        return hidden + _norm(out, block.norms[3], eps)

    def _attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """What the queries (B, H, T, size) read of the values (B, groups, S, size)."""
        groups, weights = keys.shape[1], queries.shape[1] * queries.shape[2] * keys.shape[2]
        if groups > 1 and weights > CACHED and is_fused_with(queries):
            # One after the other: all of a large decoder would not stay in a CPU's cache.
            q, k, v = (part.chunk(groups, 1) for part in (queries, keys, values))
            return torch.cat([self._attend(q[g], k[g], v[g], mask) for g in range(groups)], 1)
        shares = self._weights(queries, keys, mask)
        count, heads, length, total = shares.shape
        grouped = shares.view(count, groups, -1, total)
        if self._products is not None and length > 1:
            grouped, values = grouped.to(self._products), values.to(self._products)
        return torch.matmul(grouped, values).to(queries.dtype).view(count, heads, length, -1)

    def _weights(
        self, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Softmax of the capped logits, (B, H, T, S) in the queries' dtype."""
        rows, heads, length, _ = queries.shape
        grouped = queries.reshape(rows, keys.shape[1], -1, self._size)
        if self._cap is not None and queries.dtype is torch.float32:
            left = (grouped * (self._scale / self._cap)).flatten(0, 1)
            logits = capped_product(left, keys.flatten(0, 1), self._cap)
        else:
            logits = torch.matmul(grouped, keys.transpose(2, 3)).mul_(self._scale)
            if self._cap is not None:
                # In 16 bits every rounding counts: one after the other, as transformers has them.
                logits = logits.div_(self._cap).tanh_().mul_(self._cap)
        logits = logits.view(rows, heads, length, -1)
        if mask is not None:
            logits = logits + mask
        if logits.dtype is torch.float32:
            return softmax_(logits)
        return logits.softmax(-1, dtype=torch.float32).to(queries.dtype)

    def _split(self, mixed: torch.Tensor, heads: int) -> torch.Tensor:
        """(B, T, heads * size) -> (B, heads, T, size)."""
        return mixed.view(*mixed.shape[:2], heads, self._size).transpose(1, 2)

    def turn(
        self, positions: torch.Tensor, dtype: torch.dtype, past: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotary cosines and sines (B or 1, 1, T, size) of the positions after `past` tokens.

        No position is beyond past + T.
        """
        last = past + positions.shape[1]  # to ask the largest would be to wait for a GPU
        if self._rotary is None or self._rotary[0].shape[0] <= last:
            every = torch.arange(2 * last + 1, device=positions.device).unsqueeze(0)
            like = torch.empty(0, device=positions.device)
            cos, sin = self._decoder.rotary_emb(like, every)
            self._rotary = cos[0], sin[0]
        cos, sin = (table[positions].unsqueeze(1).to(dtype) for table in self._rotary)
        return cos, sin

    def _blocks(self, count: int | None = None) -> list[_Block]:
        """At least the first `count` blocks, all by default, with the active adapter.

        They are made when they are needed first, and anew where a weight has changed: above the
        block that a detector reads, its adapter takes no memory.
        """
        layers = self._decoder.layers[: self._config.num_hidden_layers]
        name = _active(layers)
        made = self._made.get(name)
        if made is None or made.state != _state(made.weights):
            weights = [w for layer in layers for w in _weights_of(layer, name)]
            merge = all(map(_is_plain, layers)) and is_merged(
                sum(map(_count, layers)),
                _base(layers[0].self_attn.q_proj).weight.dtype,
                self._products,
                whatever_size=self._merge,
            )
            made = self._made[name] = _Made(weights, _state(weights), merge, [])
        for layer in layers[len(made.blocks) : count]:
            made.blocks.append(
                self._merged(layer, name) if made.merge else self._apart(layer, name)
            )
        return made.blocks

    def _apart(self, layer: Any, name: str | None) -> _Block:
        """A block that is not merged: in mixed precision its products, else the layer's modules."""
        parts = _projections(layer)
        if self._products is not None:
            parts = tuple(_Beside(part, name) for part in parts)
        q, k, v, o, gate, up, down = parts
        dtype = self._products

        def mlp(hidden: torch.Tensor) -> torch.Tensor:
            rows = hidden.to(dtype or hidden.dtype)
            out: torch.Tensor = down(layer.mlp.act_fn(gate(rows)).mul_(up(rows)))
            return out.to(hidden.dtype)

        return _Block(_side_by_side((q, k, v), dtype), q, k, o, mlp, _scales(layer))

    def _merged(self, layer: Any, name: str | None) -> _Block:
        """A block of copies, the adapter added to the base's weights."""
        q, k, v, o, gate, up, down = (_sum(part, name) for part in _projections(layer))
        inward = self._copy(torch.cat([q, k, v]))
        return _Block(
            Product(inward, pack=True),
            Product(inward[: len(q)]),
            Product(inward[len(q) : len(q) + len(k)]),
            Product(self._copy(o), pack=True),
            _mlp(
                [Product(self._copy(part), pack=True) for part in (gate, up, down)],
                None if self._config.hidden_activation == GELU else layer.mlp.act_fn,
            ),
            _scales(layer),
        )

    def _copy(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self._products is None else weight.to(self._products)


@dataclass(frozen=True)
class _Made:
    """Blocks from the first on, the weights that they are made of, and those weights' state then.

    merge: whether an adapter is merged into them.
    """

    weights: list[torch.Tensor]
    state: tuple[int, ...]
    merge: bool
    blocks: list[_Block]


def _state(weights: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Where weights are, and how often they were written to."""
    return tuple(
        part
        for weight in weights
        for part in (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
    )


def _active(layers: Sequence[Any]) -> str | None:
    """The name of the adapter that is switched on, None for the base alone."""
    for layer in layers:
        part = layer.self_attn.q_proj
        if hasattr(part, "active_adapters") and not part.disable_adapters:
            return ",".join(part.active_adapters)
    return None


def _projections(layer: Any) -> tuple[Any, ...]:
    """q, k, v, o, gate, up, down."""
    attention, mlp = layer.self_attn, layer.mlp
    return (
        attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj,
        mlp.gate_proj, mlp.up_proj, mlp.down_proj,
    )  # fmt: skip


def _norms(layer: Any) -> tuple[Any, ...]:
    return (
        layer.input_layernorm,
        layer.post_attention_layernorm,
        layer.pre_feedforward_layernorm,
        layer.post_feedforward_layernorm,
    )


def _base(part: Any) -> Any:
    """A projection without its adapters."""
    return getattr(part, "base_layer", part)


def _lora(part: Any, name: str | None) -> tuple[torch.Tensor, torch.Tensor, float] | None:
    """The adapter's two matrices and its scale; None where this projection has no such adapter."""
    if name is None or name not in getattr(part, "lora_A", {}):
        return None
    return part.lora_A[name].weight, part.lora_B[name].weight, float(part.scaling[name])


def _weights_of(layer: Any, name: str | None) -> list[torch.Tensor]:
    """Every weight that a block is made of."""
    found = [norm.weight for norm in _norms(layer)]
    for part in _projections(layer):
        found.append(_base(part).weight)
        found += (_lora(part, name) or ())[:2]
    return found


def _is_plain(layer: Any) -> bool:
    """Whether a layer can be merged: projections without bias, plain LoRA on them."""
    return all(
        type(_base(part)) is nn.Linear
        and _base(part).bias is None
        and not getattr(part, "merged", False)
        and not any(getattr(part, "use_dora", {}).values())
        for part in _projections(layer)
    )


def _count(layer: Any) -> int:
    """Number of weights in a layer's projections."""
    return sum(_base(part).weight.numel() for part in _projections(layer))


def _scales(layer: Any) -> tuple[torch.Tensor, ...]:
    return tuple(1.0 + norm.weight.detach().float() for norm in _norms(layer))


def _sum(part: Any, name: str | None) -> torch.Tensor:
    weight: torch.Tensor = _base(part).weight.detach().float()
    lora = _lora(part, name)
    if lora is None:
        return weight
    inward, outward, scale = lora
    return weight + scale * (outward.detach().float() @ inward.detach().float())


def _mlp(parts: Sequence[Product], activation: Linear | None) -> Linear:
    """A merged block's MLP of gate, up and down; activation: None for GELU."""
    gate, up, down = parts

    def mlp(hidden: torch.Tensor) -> torch.Tensor:
        rows = hidden.to(gate.dtype)
        wide = gate.gelu(rows) if activation is None else activation(gate(rows))
        return down(wide.mul_(up(rows))).to(hidden.dtype)

    return mlp


class _Beside:
    """A projection in mixed precision: the base's product, plus LoRA's two in the same type."""

    def __init__(self, part: Any, name: str | None) -> None:
        weight, lora = _base(part).weight, _lora(part, name)
        self._base = Product(weight)
        self._inward = self._outward = None
        if lora is not None:
            self._inward = Product(lora[0].detach().to(weight.dtype))
            self._outward = (lora[2] * lora[1].detach()).to(weight.dtype).t()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = hidden.to(self._base.dtype)
        out = self._base(rows)
        if self._inward is not None and self._outward is not None:
            flat = out.view(-1, out.shape[-1])
            torch.addmm(flat, self._inward(rows).flatten(0, -2), self._outward, out=flat)
        return out.to(hidden.dtype)


def _side_by_side(parts: Sequence[Linear], dtype: torch.dtype | None) -> Linear:
    """The outputs of projections in one tensor. dtype: in which they are computed, None: as is."""

    def side_by_side(hidden: torch.Tensor) -> torch.Tensor:
        rows = hidden.to(dtype or hidden.dtype)
        return torch.cat([part(rows) for part in parts], -1).to(hidden.dtype)

    return side_by_side


def _norm(hidden: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """Gemma's RMSNorm: in float32, then back."""
    wide = hidden.float()
    mean = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt_(mean.add_(eps))).mul_(scale).to(hidden.dtype)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of (B, H, T, size)."""
    first, second = heads.chunk(2, -1)
    return (heads * cos).add_(torch.cat([-second, first], -1).mul_(sin))
