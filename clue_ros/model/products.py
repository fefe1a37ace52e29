# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of inference, as quick as PyTorch's oneDNN makes them. No gradients.

On a CPU, a product and the GELU or the tanh that follows it are one operation of oneDNN, equal to
the two up to rounding; so are a convolution and its ReLU6. PyTorch has them for its own compiler,
under names that may change: where they are missing, or another device holds the weights, the plain
operations take their place (`is_fused`). In float32 on a CPU without AVX512 GELU and tanh take
longer than the product and functions that PyTorch computes faster than its tanh there:
gelu(x) = x sigmoid(2u), and with e = expm1(2u) tanh(u) = e / (e + 2).

Weights of 16 bits under activations in float32 are mixed precision: the operands of a product are
rounded to 16 bits, its sums are in float32; norms, residuals, softcap and softmax stay in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch.nn import functional

_GELU = 2 * (2 / math.pi) ** 0.5  # of the GELU's tanh form: 2u = _GELU * (x + _CUBE * x ** 3)
_CUBE = 0.044715
_LARGE = 30.0  # tanh(15) is 1
CACHED = 2**21
"""Attention weights that are computed at once: in 16 bits 4 MB."""
FEW = 16
"""Fewer rows than these take the plain operations in float32: so few are bound by the weights."""


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16, and PyTorch makes use of it (about twice as fast).

    AVX512-BF16 or AMX. AVX512 alone, which oneDNN can do with, converts every operand first.
    """
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    native = any(bool(getattr(torch.cpu, name, bool)()) for name in checks)
    return native and is_fused(torch.bfloat16)


@cache
def has_wide_vectors() -> bool:
    """Whether this CPU has AVX512, with which oneDNN's float32 products and tanh are one."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


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
                _tried_convolution(left, right): plain.clamp(0, 6),
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
        self._fused, self._split = _is_fused(weight), _is_split(weight)
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
        rows, many = hidden.to(self.dtype), hidden.shape[-2] >= FEW
        if self._fused and (self._small or many):
            return _onednn(rows, self._weight, self._bias, "gelu", "tanh").to(hidden.dtype)
        out = functional.linear(rows, self._weight, self._bias)
        if self._split and many:
            return out.square().mul_(_GELU * _CUBE).add_(_GELU).mul_(out).sigmoid_().mul_(out)
        return functional.gelu(out, approximate="tanh").to(hidden.dtype)


class Convolution:
    """picture (B, I, H, W) -> (B, O, H', W'): a convolution with its weight in oneDNN's layout.

    like, padding: a picture and its padding, for whose sizes the layout is best. Only where
    `is_fused_with` says so.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: int,
        groups: int,
        like: torch.Tensor,
        padding: Sequence[int],
    ) -> None:
        self._how = [stride, stride], [1, 1], groups
        operations: Any = torch.ops.mkldnn
        self._weight: torch.Tensor = operations._reorder_convolution_weight(
            weight, list(padding), *self._how, list(like.shape)
        )
        self._bias = bias

    def __call__(
        self, picture: torch.Tensor, padding: Sequence[int], *, relu6: bool
    ) -> torch.Tensor:
        """The convolution of a picture in the weight's type. relu6: with it after."""
        then, bounds = ("hardtanh", [0.0, 6.0]) if relu6 else ("none", [])
        operations: Any = torch.ops.mkldnn
        out: torch.Tensor = operations._convolution_pointwise(
            picture, self._weight, self._bias, list(padding), *self._how, then, bounds, ""
        )
        return out


def attention_with(weight: torch.Tensor) -> Callable[..., torch.Tensor]:
    """The attention for queries, keys and values (B, H, T, size) that products with it made."""
    halved = weight.dtype is torch.bfloat16 and is_fused_with(weight)
    return attend_in_cache if halved else functional.scaled_dot_product_attention


def attend_in_cache(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """softmax(queries keys^T / sqrt(size)) values, of (B, H, T, size) each.

    Of as many heads at a time as stay in a CPU's cache. In 16 bits the logits are rounded to them
    too, which PyTorch's fused attention does not do (docs/performance.md).
    """
    count, heads, length, size = queries.shape
    left, right, read = (part.flatten(0, 1) for part in (queries * size**-0.5, keys, values))
    out, step = torch.empty_like(left), max(1, CACHED // length**2)
    for first in range(0, len(left), step):
        some = slice(first, first + step)
        weights = torch.bmm(left[some], right[some].mT).softmax(-1)
        torch.bmm(weights, read[some], out=out[some])
    return out.view(count, heads, length, size)


def capped_product(left: torch.Tensor, right: torch.Tensor, cap: float) -> torch.Tensor:
    """A softcap, cap * tanh(left @ right^T), of (B, M, I) and (B, N, I) in float32: (B, M, N)."""
    many = left.shape[1] >= FEW
    if many and _is_fused(left):
        pairs = zip(left, right.contiguous(), strict=True)
        return torch.stack([_onednn(one, other, None, "tanh") for one, other in pairs]).mul_(cap)
    if many and _is_split(left):
        grown = torch.matmul(left * 2, right.transpose(1, 2)).clamp_(max=_LARGE).expm1_()
        return grown.div_(grown + 2).mul_(cap)
    return torch.matmul(left, right.transpose(1, 2)).tanh_().mul_(cap)


def softmax_(logits: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, in place."""
    return logits.softmax(-1) if _unfused.get() else torch.softmax(logits, -1, out=logits)


def is_fused_with(tensor: torch.Tensor) -> bool:
    """Whether convolutions with this weight can be a `Convolution`."""
    return tensor.is_cpu and not _unfused.get() and is_fused(tensor.dtype)


def _is_fused(tensor: torch.Tensor) -> bool:
    """Whether products of it take oneDNN's operations."""
    return not _is_split(tensor) and is_fused_with(tensor)


def _is_split(tensor: torch.Tensor) -> bool:
    """Whether GELU and tanh are computed after its products, by other functions."""
    here = tensor.is_cpu and not _unfused.get() and tensor.dtype is torch.float32
    return here and not has_wide_vectors()


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


def _tried_convolution(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """ReLU6 of the product (N, O) of rows (N, I) with a weight (O, I), as a convolution."""
    picture = rows[:, :, None, None]
    made = Convolution(weight[:, :, None, None], None, 1, 1, picture, [0, 0])
    return made(picture, [0, 0], relu6=True).flatten(1)


def _pack(weight: torch.Tensor) -> torch.Tensor:
    operations: Any = torch.ops.mkldnn
    packed: torch.Tensor = operations._reorder_linear_weight(weight)
    return packed
