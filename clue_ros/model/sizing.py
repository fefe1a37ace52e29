# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of a model in memory, from the shapes of its weights and its config.json. Without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clue_ros.model.hub import ADAPTER_WEIGHTS, Source
from clue_ros.model.loading import Stored, read_header
from clue_ros.model.quantization import INT8, NF4

# A decoder's matrices, which are quantised; a vision tower's stay as they are.
_QUANTISED = re.compile(r"(?!vision_tower\.)(.*\.)?(layers|h|blocks)\.\d+\.")
# Bytes of a quantised weight: nf4 has 4 bits and, for each 64 of them, a scale of 8 bits.
_SMALL = {INT8: 1.0, NF4: 0.5 + 1 / 64 + 4 / (64 * 256)}
_EXPORTED = {"I8": 1.0, "U8": 0.5}  # bytes of an export's weight, by its kind in the file


@dataclass(frozen=True)
class Weights:
    """The sizes from which the bytes of a model's weights follow.

    header: the tensors that count, by their published names; None where they are unknown. count: of
    parameters, None where unknown. share: of the parameters that are quantised, where only their
    count is known.
    """

    header: Mapping[str, Stored] | None = None
    count: int | None = None
    share: float = 1.0

    @classmethod
    def of(cls, source: Source, *, tied: bool, share: float = 1.0) -> Weights:
        """Those of a model's files, or as many as the hub counts. Raises ModelError.

        tied: the head is the matrix of the embeddings, and counts once.
        """
        header = source.header()
        if header is None:
            remote = source.repository
            return cls(None, remote.parameters if remote is not None else None, share)
        if tied:
            header = {n: s for n, s in header.items() if not n.endswith("lm_head.weight")}
        return cls(header, sum(math.prod(stored.shape) for stored in header.values()), share)

    @property
    def exported(self) -> bool:
        """Whether they are those of `clue export`."""
        return any(stored.kind in _EXPORTED for stored in (self.header or {}).values())

    def bytes_in(self, dtype: str, quantization: str) -> int | None:
        """Bytes in a number format and with a quantization; None where unknown."""
        full = float(itemsize(dtype))
        small = _SMALL.get(quantization, full)
        if self.header is not None:
            total = 0.0
            for name, (shape, kind) in self.header.items():
                each = small if _QUANTISED.match(name) and len(shape) > 1 else full
                total += math.prod(shape) * _EXPORTED.get(kind, each)
            return round(total)
        if self.count is None:
            return None
        return round(self.count * (self.share * small + (1 - self.share) * full))


def itemsize(kind: str) -> int:
    """Bytes of a number in a format by its name here, or in a safetensors file's header."""
    return {"float32": 4, "F32": 4, "F64": 8}.get(kind, 2)


def adapter_bytes(adapter: Source) -> int:
    """Bytes of an adapter, and of a detector's head. Raises ModelError.

    In float32, as loading holds them; of one on the hub as it is there.
    """
    size, head = adapter.size(ADAPTER_WEIGHTS) or 0, adapter.size("head.safetensors") or 0
    if adapter.folder is None or not size:
        return head + size
    stored = read_header(adapter.folder / ADAPTER_WEIGHTS).values()
    return head + size + sum(math.prod(s.shape) * (4 - itemsize(s.kind)) for s in stored)


def activation_bytes(
    sizes: Mapping[str, Any], tokens: int, itemsize: int, *, caches: int = 1, eager: bool = False
) -> int | None:
    """Roughly the bytes that a decoder takes beside its weights; None where a size is missing.

    sizes: of the decoder, as in config.json. caches: copies of the cache. eager: the attention of
    one block is there whole. For T tokens, D, M, L the width, MLP width and blocks, K the width of
    keys and values, V the vocabulary: T (6 D + 3 M + 2 L K caches) numbers, and in float32 a row of
    V logits and the attention (heads x T x T). A formula, not a measurement.
    """
    try:
        width, blocks = int(sizes["hidden_size"]), int(sizes["num_hidden_layers"])
        heads, vocabulary = int(sizes["num_attention_heads"]), int(sizes["vocab_size"])
        keys = int(sizes.get("num_key_value_heads") or heads)
        keys *= int(sizes.get("head_dim") or width // heads)
        inner = int(sizes.get("intermediate_size") or 4 * width)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    numbers = tokens * (6 * width + 3 * inner + caches * 2 * blocks * keys)
    return numbers * itemsize + 4 * (vocabulary + eager * heads * tokens**2)


def gigabytes(size: int | None) -> str:
    """A size for people, in units of 10^9 or 10^6 bytes."""
    if size is None:
        return "unknown"
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
