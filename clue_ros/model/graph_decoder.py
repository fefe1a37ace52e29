# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A decoder that runs as graphs: functions of tensors whose sizes take few values.

OpenVINO has such graphs (`exported`). A graph cannot write into a cache that grows: new keys and
values are results (`read_with`). Where each new length costs time, prompts are padded and the
padding is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.nn import functional

from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.fast_decoder import FastDecoder, KeyValues, round_up
from clue_ros.model.lean import Switch

TOKEN = "token"
"""The graph of adapter B for a single token; those of both adapters have their names."""
LOW = -1e9
"""Added to a logit that is to be ignored. The lowest float32 would be infinite in 16 bits."""


class Graph(Protocol):
    """Tensors in, tensors out, which the next call may overwrite."""

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        """Run it."""


class _Appended:
    """A cache that is not written to: `extend` returns the given keys and values and the new."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._keys, self._values = keys, values
        self.new: list[tuple[torch.Tensor, torch.Tensor]] = []

    def extend(
        self, block: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `KeyValues`."""
        self.new.append((keys, values))
        return torch.cat([self._keys[block], keys], 2), torch.cat([self._values[block], values], 2)


def attend_with(
    decoder: FastDecoder,
    block: int,
    hidden: torch.Tensor,
    mask: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rows: torch.Tensor,
) -> tuple[torch.Tensor]:
    """What a detector's graph computes: the attention weights (B, H, R, T) at `block`.

    hidden (B, T, D), mask (B, 1, 1, T) or None, cos and sin (1, 1, T, size), rows (R,): the queries
    that are wanted.
    """
    return (decoder.weights_at(block, rows, hidden, mask, (cos, sin)),)


def read_with(
    decoder: FastDecoder,
    hidden: torch.Tensor,
    mask: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a graph of a dialogue computes: all of `decoder`, which is not changed.

    hidden (B, T, D), mask (B, 1, T or 1, past + T), cos and sin (1, 1, T, size), rows (R,): the
    tokens whose hidden states are wanted; keys and values (blocks, B, heads, past, size). Returns
    the hidden states (B, R, D) and the new keys and values, (blocks, B, heads, T, size) each.
    """
    cache = _Appended(keys, values)
    found = decoder.through(hidden, mask, (cos, sin), cache, rows)
    new_keys, new_values = zip(*cache.new, strict=True)
    return found, torch.stack(new_keys), torch.stack(new_values)


class GraphDecoder(FastDecoder):
    """A decoder whose adapters' graphs run in the place of its weights.

    graphs: by their names (`DETECTOR`, `IVG`, `TOKEN`); any may be missing. block: which the
    detector's graph reads. step, capacity: lengths of prompts and caches are padded to multiples of
    these. With a step of 1 no prompt is padded, and graphs of prompts get None as their mask: a
    batch with padding of its own takes the weights.
    """

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        block: int | None,
        switch: Switch,
        *arguments: Any,
        step: int,
        capacity: int,
    ) -> None:
        super().__init__(*arguments)
        self._graphs, self._block_read, self._switch = graphs, block, switch
        self._step, self._capacity = step, capacity

    def cache(self, hidden: torch.Tensor, room: int) -> KeyValues:
        """See `FastDecoder`; what is not in use is zero, because a graph reads it."""
        length = hidden.shape[1]
        made = super().cache(hidden, round_up(length + room, self._capacity) - length)
        return KeyValues(made.keys.zero_(), made.values.zero_(), multiple=self._capacity)

    def run(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
        cache: KeyValues | None = None,
        *,
        last: bool = False,
    ) -> torch.Tensor:
        """See `FastDecoder`."""
        name = TOKEN if hidden.shape[1] == 1 else IVG
        graph = self._graph(IVG, name, mask)
        if graph is None or cache is None:
            return super().run(hidden, mask, positions, cache, last=last)
        start, length = cache.length, hidden.shape[1]
        total = 1 if length == 1 else round_up(length, self._step)
        past = cache.keys.shape[3] if start else 0
        found, keys, values = graph(
            _padded(hidden, total),
            self._hides(mask, start, past, length, total, hidden),
            *(_padded(part, total) for part in self.turn(positions, hidden.dtype, start)),
            _rows(length - 1, length, hidden) if last else _rows(0, total, hidden),
            cache.keys[:, :, :, :past],
            cache.values[:, :, :, :past],
        )
        cache.length = start + length
        cache.keys[:, :, :, start : cache.length] = keys[:, :, :, :length]
        cache.values[:, :, :, start : cache.length] = values[:, :, :, :length]
        return found[:, :length].clone()

    def attention(
        self,
        block: int,
        rows: slice,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """See `FastDecoder`."""
        graph = self._graph(DETECTOR, DETECTOR, mask)
        # Without suffixes every row of a mask hides the same, the padding.
        same = mask is None or bool((mask == mask[:, :, :1]).all())
        if graph is None or block != self._block_read or not same:
            return super().attention(block, rows, hidden, mask, positions)
        length, count = hidden.shape[1], rows.stop - rows.start
        total, asked = round_up(length, self._step), round_up(count, self._step)
        (weights,) = graph(
            _padded(hidden, total),
            self._hides(mask if mask is None else mask[:, :, :1], 0, 0, length, total, hidden),
            *(_padded(part, total) for part in self.turn(positions, hidden.dtype)),
            _rows(0, asked, hidden).clamp(max=count - 1) + rows.start,
        )
        return weights[:, :, :count, :length].clone()

    def _graph(self, adapter: str, name: str, mask: torch.Tensor | None) -> Graph | None:
        """The graph of this name, if its adapter is on and it can do with the mask."""
        takes = name == TOKEN or mask is None or self._step > 1
        return self._graphs.get(name) if takes and self._switch.name == adapter else None

    def _hides(
        self,
        mask: torch.Tensor | None,
        start: int,
        past: int,
        length: int,
        total: int,
        like: torch.Tensor,
    ) -> torch.Tensor | None:
        """A mask (B, 1, T or 1, start + length) for `past` cached tokens and `total` new ones.

        The first `start` cached and the first `length` new ones are in use. mask None: hides
        nothing. like: of the mask's type and device.
        """
        if mask is None and not start and self._step == 1:
            return None
        mask = like.new_zeros(1, 1, 1, start + length) if mask is None else mask.clamp(min=LOW)
        rows = mask.shape[2]
        wide = mask.new_full((len(mask), 1, 1 if rows == 1 else total, past + total), LOW)
        wide[:, :, :rows, :start] = mask[..., :start]
        wide[:, :, :rows, past : past + length] = mask[..., start:]
        return wide


def _padded(tensor: torch.Tensor, total: int) -> torch.Tensor:
    """(..., T, D) with zeros up to `total` tokens."""
    return functional.pad(tensor, (0, 0, 0, total - tensor.shape[-2]))


def _rows(first: int, end: int, like: torch.Tensor) -> torch.Tensor:
    """The numbers of tokens from `first` on, on the device of `like`."""
    return torch.arange(first, end, device=like.device)
