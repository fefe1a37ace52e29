# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A model that `torch.compile` turns into few kernels, on a GPU as CUDA graphs.

    Clue.load("my-model", device="cuda", compile=True).warm_up()
    clue bench --model my-model --device cuda --compile

A decoder of 26 blocks is some thousand small steps, and a GPU waits for Python between them. Here
the vision tower, the detector, the prompt of a dialogue and a further token are four functions of
tensors (`graph_decoder`), each compiled when it runs first, which `Clue.warm_up` makes happen. A
prompt's attention with Gemma 2's softcap is flex_attention. The tower and a further token, whose
sizes stay the same, are recorded as CUDA graphs. On a CPU the same code needs a C++ compiler, and
brings nothing (docs/performance.md).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, IVG, Adapters
from clue_ros.model.backbone import Backbone
from clue_ros.model.fast_decoder import FastDecoder
from clue_ros.model.graph_decoder import TOKEN, Graph, GraphDecoder, attend_with, read_with
from clue_ros.model.lean import LeanBackbone, Tower
from clue_ros.model.products import unfused

CAPACITY = 128
"""Caches' sizes are a multiple of this, so that nearly all dialogues share the graph of a token."""
VARYING: dict[str, Any] = {
    "fullgraph": True,
    "isolate_recompiles": True,  # a model that is loaded again begins to count anew
    "recompile_limit": 64,  # beyond it a reply would fail
}
FIXED: dict[str, Any] = {**VARYING, "mode": "reduce-overhead"}
"""Of functions whose sizes stay the same: on a GPU CUDA graphs, on a CPU as `VARYING`."""


class CompilableDecoder(FastDecoder):
    """A decoder in operations that torch can compile, for the adapter that is active now.

    blocks: how many of them are wanted.
    """

    def __init__(
        self, decoder: Any, config: Any, products: torch.dtype | None, blocks: int
    ) -> None:
        super().__init__(decoder, config, products)
        with unfused():  # the compiler chooses operations of the CPU's library for itself
            self._fixed = super()._blocks(blocks)[:blocks]

    def _blocks(self, count: int | None = None) -> Any:
        """The blocks that were there from the start."""
        return self._fixed[:count]

    def _attend(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """See `FastDecoder`. A prompt has no mask here (`GraphDecoder`)."""
        if queries.shape[2] == 1:
            return super()._attend(queries, keys, values, mask)
        from torch.nn.attention.flex_attention import flex_attention

        assert mask is None
        cap = self._cap

        def capped(score: torch.Tensor, *_place: torch.Tensor) -> torch.Tensor:
            return score if cap is None else torch.tanh(score / cap) * cap

        # In views of another tensor the kernel of a CPU (torch 2.13) reads the wrong numbers.
        queries, keys, values = (part.contiguous() for part in (queries, keys, values))
        out: torch.Tensor = flex_attention(
            queries, keys, values, score_mod=capped, scale=self._scale, enable_gqa=True
        )
        return out

    def _weights(
        self, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """See `FastDecoder`."""
        rows, heads, length, _ = queries.shape
        grouped = queries.reshape(rows, self._groups, -1, self._size)
        logits = torch.matmul(grouped, keys.transpose(2, 3)).float() * self._scale
        if self._cap is not None:
            logits = torch.tanh(logits / self._cap) * self._cap
        logits = logits.view(rows, heads, length, -1)
        if mask is not None:
            logits = logits + mask
        return logits.softmax(-1).to(queries.dtype)


def compile_model(backbone: Backbone, adapters: Adapters, block: int | None) -> None:
    """Let `torch.compile` make a model's functions when they run first.

    block: which the detector reads; None where no detector reads attention. Raises ModelError for a
    model that transformers or OpenVINO runs, and where there is no compiler.
    """
    if not (isinstance(backbone, LeanBackbone) and isinstance(backbone.tower, Tower)):
        raise ModelError(
            "compile: only a model that is neither quantised nor exported can be compiled, with the"
            " layers of PaliGemma 2 and plain LoRA: turn `compile` off"
        )
    _require_compiler(backbone.device)
    graphs: dict[str, Graph] = {}
    parts = backbone.decoder, backbone.text, backbone.products
    active = backbone.switch.name
    if block is not None and DETECTOR in adapters.names:
        adapters.use(DETECTOR)
        graphs[DETECTOR] = torch.compile(
            partial(attend_with, CompilableDecoder(*parts, block + 1), block), **VARYING
        )
    if IVG in adapters.names:
        adapters.use(IVG)
        decoder = CompilableDecoder(*parts, backbone.blocks)
        graphs[IVG] = torch.compile(partial(read_with, decoder), **VARYING)
        graphs[TOKEN] = torch.compile(partial(read_with, decoder), **FIXED)
    adapters.use(active)
    with unfused():
        tower = backbone.make_tower()
    encode = torch.compile(tower.encode, **FIXED)
    # A copy: the next run of a CUDA graph writes over its results.
    tower.encode = lambda seen: encode(seen).clone()  # type: ignore[method-assign]
    backbone.run_through(
        tower, GraphDecoder(graphs, block, backbone.switch, *parts, step=1, capacity=CAPACITY)
    )


def _require_compiler(device: torch.device) -> None:
    """Raises ModelError where torch.compile lacks what it needs."""
    from torch._inductor import cpp_builder, exc
    from torch.utils._triton import has_triton

    if device.type != "cpu":
        if not has_triton():
            raise ModelError("compile: there is no Triton for this GPU: turn `compile` off")
        return
    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise ModelError(
            "compile: torch.compile needs a C++ compiler on a CPU: apt install g++, or turn"
            " `compile` off"
        ) from error
