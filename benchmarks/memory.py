#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of a model's weights in each form, and what smaller weights change.

    scripts/run python benchmarks/memory.py [--model 3b|household|FOLDER] [--data IT2P] [--json]

Forms: float32, bfloat16, and bfloat16 with an int8 or NF4 decoder (the extra quantization).
"3b" is google/paligemma2-3b-mix-448's configuration: one of its decoder blocks is built with random
weights and really quantised, the other 25 are like it, and what is never quantised is counted from
its shapes; so it needs 2 GB, not 12. Any other model is loaded as `Clue.load` does, adapters and
detector with it. With --data, its answers on IT2P's validation photographs are then compared with
its own in float32: the same decision to ask, the map's relative error, the overlap of the boxes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from benchmarks.common import ModelOptions, parse
from benchmarks.full_size import full_config
from clue_ros.dialogue.types import Box, Dialogue, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.protocol import EvalSample
from clue_ros.lab.options import at_least, option
from clue_ros.lab.report import table
from clue_ros.model.quantization import (
    INT8,
    NONE,
    check_quantization,
    loading_options,
    quantization_state,
)


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(ModelOptions):
    """The options of this benchmark."""

    model: str = option("3b", "3b, an embedded model's name, a folder or a hub id")
    device: str = option("cpu", "cpu or cuda")
    data: Path | None = option(None, "IT2P folder: compare answers too", metavar="IT2P")
    images: int = option(12, "number of photographs", type=at_least(1))
    json: bool = option(False, "print one JSON object for each form")


FORMS = (("float32", NONE), ("bfloat16", NONE), ("bfloat16", "int8"), ("bfloat16", "nf4"))


def quantise(block: torch.nn.Module, quantization: str, dtype: torch.dtype) -> None:
    """Quantise a block's linear layers in place, with the settings that loading uses."""
    nn: Any = import_module("bitsandbytes").nn
    options = loading_options(quantization, "cpu", dtype)["quantization_config"]
    for layer in block.modules():
        if isinstance(layer, torch.nn.Linear):
            if quantization == INT8:
                weight = nn.Int8Params(layer.weight.data, requires_grad=False)
            else:
                weight = nn.Params4bit(
                    layer.weight.data,
                    requires_grad=False,
                    quant_type=options.bnb_4bit_quant_type,
                    compress_statistics=options.bnb_4bit_use_double_quant,
                )
            layer.weight = weight.to("cpu")  # quantises


def tensor_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's weights, buffers, scales and code books; shared ones count once."""
    tensors = [*module.parameters(), *module.buffers(), *quantization_state(module)]
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


def full_size(dtype: str, quantization: str) -> dict[str, int]:
    """Bytes of the full model's parts in one form."""
    config: Any = full_config()
    size = getattr(torch, dtype).itemsize
    with torch.device("meta"):
        model = PaliGemmaForConditionalGeneration(config)
    core: Any = model.model
    counts = {
        "vision tower": core.vision_tower,
        "projector": core.multi_modal_projector,
        "embeddings": core.language_model.embed_tokens,  # the head is the same matrix
    }
    parts = {
        name: size * sum(weight.numel() for weight in module.parameters())
        for name, module in counts.items()
    }
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        block = Gemma2DecoderLayer(config.text_config, 0)
    finally:
        torch.set_default_dtype(before)
    if quantization != NONE:
        quantise(block, quantization, getattr(torch, dtype))
    parts["decoder blocks"] = config.text_config.num_hidden_layers * tensor_bytes(block)
    return parts


@dataclass(frozen=True)
class Answer:
    """What one model says to one request."""

    asks: bool
    attention: npt.NDArray[np.float32]
    box: Box


def answers(clue: Clue, samples: list[EvalSample]) -> list[Answer]:
    """To every clear and ambiguous request; the box is the one it gives when it may not ask."""
    found = []
    for sample in samples:
        view = clue.look(sample.load())
        for text in (*(request.text for request in sample.clear), *sample.ambiguous):
            reply = clue.reply(view, Dialogue(text), force_grounding=True)
            assert isinstance(reply, Grounding)
            estimate = reply.ambiguity
            found.append(Answer(estimate.is_ambiguous, estimate.attention, reply.box))
    return found


def agreement(exact: list[Answer], small: list[Answer]) -> dict[str, float]:
    """How often the decision is the same, how far maps are (relative), how much boxes overlap."""
    pairs = list(zip(exact, small, strict=True))
    errors = [
        float(np.linalg.norm(b.attention - a.attention) / np.linalg.norm(a.attention))
        for a, b in pairs
    ]
    overlaps = [a.box.iou(b.box) for a, b in pairs]
    return {
        "requests": len(pairs),
        "same decision": float(np.mean([a.asks == b.asks for a, b in pairs])),
        "map error, median": float(np.median(errors)),
        "map error, largest": max(errors),
        "box IoU, mean": float(np.mean(overlaps)),
        "box IoU over 0.5": float(np.mean([overlap > 0.5 for overlap in overlaps])),
    }


def measure(options: MemoryOptions) -> list[dict[str, Any]]:
    """One row for each form."""
    samples: list[EvalSample] = []
    if options.data is not None:
        if options.model == "3b":
            raise ClueError("--data needs a model that knows something, not random weights")
        samples = it2p_samples(load_it2p(options.data), split="val")[: options.images]
        if not samples:
            raise ClueError(f"no validation photographs in {options.data}")
    rows: list[dict[str, Any]] = []
    exact: list[Answer] = []
    for dtype, quantization in FORMS:
        row: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
        check_quantization(quantization)
        if options.model == "3b":
            parts = full_size(dtype, quantization)
            row |= {**parts, "bytes": sum(parts.values())}
        else:
            clue = Clue.load(
                options.model, device=options.device, dtype=dtype, quantization=quantization
            )
            row["bytes"] = clue.memory_bytes()
            if samples:
                found = answers(clue, samples)
                exact = exact or found
                row |= agreement(exact, found)
        rows.append(row)
    return rows


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """A table; bytes in megabytes (of a million)."""

    def cell(value: Any) -> str:
        if isinstance(value, int) and value > 10_000:
            return f"{value / 1e6:,.1f} MB"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    names = list(rows[-1])
    return table(names, [[cell(row[name]) for name in names] for row in rows], markdown=True)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; the exit status."""
    options = parse(MemoryOptions, __doc__, argv)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        rows = measure(options)
    except ClueError as error:
        print(f"memory: {error}", file=sys.stderr)
        return 2
    print("\n".join(json.dumps(row) for row in rows) if options.json else as_markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
