# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products of inference, as quick as PyTorch's oneDNN makes them on a CPU. No gradients.

A product and the GELU or the tanh that follows it are one operation of oneDNN, equal to the two up
to rounding. PyTorch has it for its own compiler, under a name that may change: where it is missing,
or another device holds the weights, the plain operations take its place (`is_fused`).

Weights of 16 bits under activations in float32 are mixed precision: the operands of a product are
rounded to 16 bits, its sums are in float32, and what comes between products stays in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch.nn import functional

FEW = 16
"""Fewer rows than these take the plain operations in float32: so few are bound by the weights."""


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16, and PyTorch makes use of it (about twice as fast).

    AVX512-BF16 or AMX. AVX512 alone, which oneDNN can do with, converts every operand first.
    """
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    native = any(bool(getattr(torch.cpu, name, bool)()) for name in checks)
    return native and is_fused(torch.bfloat16)


_unfused = ContextVar("_unfused", default=False)


@contextmanager
def unfused() -> Iterator[None]:
    """Plain operations alone, which an export can say: here and in each `Product` made here."""
    token = _unfused.set(True)
    try:
        yield
    finally:
        _unfused.reset(token)


@cache
def is_fused(dtype: torch.dtype) -> bool:
    """Whether oneDNN's operations are there for this type on a CPU, and right: tried once."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    left = torch.linspace(-3, 3, 4 * 8).view(4, 8).to(dtype)
    right = torch.linspace(2, -1, 6 * 8).view(6, 8).to(dtype)
    try:
        # Training asks first within its own autocast, which would round the plain product too.
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            plain = left.float() @ right.float().T
            found = {
                _onednn(left, _pack(right), None, "none"): plain,
                _onednn(left, right, None, "gelu", "tanh"): functional.gelu(plain),
                _onednn(left, right, None, "tanh"): plain.tanh(),
            }
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(f.float(), p, rtol=0.01, atol=0.01) for f, p in found.items())


class Product:
    """hidden (..., I) -> (..., O): times a weight (O, I), plus a bias (O,).

    pack: copy the weight into oneDNN's layout where that is quicker, which it is in 16 bits.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, pack: bool = False
    ) -> None:
        self.dtype = weight.dtype
        self._fused = _is_fused(weight)
        self._small = weight.dtype is torch.bfloat16
        pack = pack and self._fused and self._small
        self._weight, self._bias = _pack(weight) if pack else weight, bias

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product in the weight's type, returned in that of `hidden`."""
        rows = hidden.to(self.dtype)
        if self._fused and self._small:
            return _onednn(rows, self._weight, self._bias, "none").to(hidden.dtype)
        return functional.linear(rows, self._weight, self._bias).to(hidden.dtype)

    def gelu(self, hidden: torch.Tensor) -> torch.Tensor:
        """GELU (its tanh form) of the product, in the type of `hidden`."""
        rows = hidden.to(self.dtype)
        if self._fused and (self._small or hidden.shape[-2] >= FEW):
            return _onednn(rows, self._weight, self._bias, "gelu", "tanh").to(hidden.dtype)
        out = functional.linear(rows, self._weight, self._bias)
        return functional.gelu(out, approximate="tanh").to(hidden.dtype)


def tanh_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """tanh(left @ right^T) of (B, M, I) and (B, N, I) in float32: (B, M, N)."""
    if not _is_fused(left) or left.shape[1] < FEW:
        return torch.matmul(left, right.transpose(1, 2)).tanh_()
    pairs = zip(left, right.contiguous(), strict=True)
    return torch.stack([_onednn(one, other, None, "tanh") for one, other in pairs])


def softmax_(logits: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, in place."""
    return logits.softmax(-1) if _unfused.get() else torch.softmax(logits, -1, out=logits)


def _is_fused(tensor: torch.Tensor) -> bool:
    """Whether products of it take oneDNN's operations."""
    return tensor.is_cpu and not _unfused.get() and is_fused(tensor.dtype)


def _onednn(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    then: str,
    how: str = "",
) -> torch.Tensor:
    operations: Any = torch.ops.mkldnn
    out: torch.Tensor = operations._linear_pointwise(rows, weight, bias, then, [], how)
    return out


def _pack(weight: torch.Tensor) -> torch.Tensor:
    operations: Any = torch.ops.mkldnn
    packed: torch.Tensor = operations._reorder_linear_weight(weight)
    return packed
