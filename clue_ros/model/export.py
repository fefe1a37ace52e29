# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue export`: a model for OpenVINO, which is quicker on a CPU and gives the same replies.

    clue export household --out household_openvino
    clue ground IMAGE "pick up the block" --model household_openvino

The folder holds the model's own files and graphs of its vision tower, its detector and its dialogue
(`clue_ros.model.exported`). Needs the extra `export`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.detector import attention_block
from clue_ros.model.exported import (
    AUTO,
    FOLDER,
    FORMAT,
    PRECISIONS,
    STEP,
    TOWER_GRAPH,
    Export,
    digest,
    import_openvino,
    is_export,
    source_files,
)
from clue_ros.model.fast_decoder import FastDecoder
from clue_ros.model.graph_decoder import attend_with, read_with
from clue_ros.model.lean import LeanBackbone
from clue_ros.model.loading import find_base, find_model
from clue_ros.model.products import unfused

FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.md", "LICENSE*", "NOTICE*")
"""What is copied of a model's folder and of its adapters'."""
TOLERANCE = 1e-3
"""Largest difference of an export in float32 to its model, of features and of probabilities."""
REQUEST = "pick up the object on the left"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue export``."""
    parser.add_argument("model", help="an embedded model's name, a model folder, or a hub id")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; new or empty")
    parser.add_argument(
        "--precision",
        choices=(AUTO, *PRECISIONS),
        default=AUTO,
        help="number format of the products where no dtype is asked for; auto: bfloat16 on a CPU"
        " with AVX512-BF16 or AMX, else float32 (default: auto)",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``clue export``; the exit status."""
    graphs = export_model(args.model, args.out, args.precision)
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    print(f"{args.out}: graphs {', '.join(graphs)}; {size / 1e6:.1f} MB with the model's files")
    return 0


def export_model(model: str | Path, out: Path, precision: str = AUTO) -> list[str]:
    """Write an export of a model into `out` and return the names of its graphs.

    The export is loaded and compared with the model in float32 before the folder appears. Raises
    ModelError for a folder in use, a model that cannot be exported, or without OpenVINO.
    """
    import_openvino()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ModelError(f"{out} is there already: choose a new folder, or remove it")
    folder = find_model(model)
    base = find_base(folder)
    if is_export(base):
        raise ModelError(f"{base} is an export: export the model that it was made of")
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the final place, so that one rename makes it appear as a whole.
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as unfinished:
        copy = Path(unfinished) / "model"
        _copy_model(base, folder, copy)
        with torch.inference_mode(), unfused():
            plain = load_checkpoint(copy, device="cpu", dtype="float32")
            graphs = _write_graphs(plain, copy, precision)
            _compare(plain, load_checkpoint(copy, device="cpu", dtype="float32"))
        os.replace(copy, out)
    return graphs


def _copy_model(base: Path, folder: Path, copy: Path) -> None:
    """Copy the files of a model, wherever they lie, into one folder."""
    places = [(base, copy), (folder, copy)]
    places += [(folder / name, copy / name) for name in (DETECTOR, IVG)]
    for source, place in places:
        if not source.is_dir():
            continue
        place.mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.is_file() and any(fnmatch(path.name, pattern) for pattern in FILES):
                shutil.copyfile(path, place / path.name)


def _write_graphs(checkpoint: Checkpoint, folder: Path, precision: str) -> list[str]:
    """Write the graphs of a model into its folder; returns their names. Raises ModelError."""
    backbone, adapters = checkpoint.backbone, checkpoint.adapters
    if not isinstance(backbone, LeanBackbone) or not backbone.is_lean:
        raise ModelError(
            "this model cannot be exported: its layers or its adapters are not those of PaliGemma 2"
            " with plain LoRA (`clue_ros.model.lean`)"
        )
    inside = folder / FOLDER
    inside.mkdir()
    side = backbone.config.vision_config.image_size
    example = torch.zeros(2, 3, side, side)
    _write(inside, TOWER_GRAPH, backbone.tower, [example], ["?,3,?,?"])
    names, block = [TOWER_GRAPH], attention_block(checkpoint.detector_or_none)
    decoder = FastDecoder(backbone.decoder, backbone.text, merge=True)
    text, tokens = backbone.text, backbone.grid**2 + STEP
    hidden = torch.zeros(2, tokens, text.hidden_size)
    turn = decoder.turn(torch.arange(1, tokens + 1).unsqueeze(0), torch.float32)
    rows = torch.arange(tokens - 2, tokens)
    shapes = [f"?,?,{text.hidden_size}", "?,1,?,?", *[f"?,1,?,{text.head_dim}"] * 2, "?"]
    if DETECTOR in adapters.names and block is not None:
        adapters.use(DETECTOR)
        mask, attend = torch.zeros(2, 1, 1, tokens), partial(attend_with, decoder, block)
        _write(inside, DETECTOR, attend, [hidden, mask, *turn, rows], shapes)
        names.append(DETECTOR)
    if IVG in adapters.names:
        adapters.use(IVG)
        past = 2 * STEP
        kept = torch.zeros(text.num_hidden_layers, 2, text.num_key_value_heads, past, text.head_dim)
        _write(
            inside,
            IVG,
            partial(read_with, decoder),
            [hidden, torch.zeros(2, 1, 1, past + tokens), *turn, rows, kept, kept.clone()],
            [*shapes, *[f"{kept.shape[0]},?,{kept.shape[2]},?,{kept.shape[4]}"] * 2],
        )
        names.append(IVG)
    own = [name for name in (DETECTOR, IVG) if name in names]
    Export(
        FORMAT,
        precision,
        block,
        {path.name: digest(path) for path in sorted(inside.iterdir())},
        {path.relative_to(folder).as_posix(): digest(path) for path in source_files(folder, own)},
        import_openvino().__version__,
    ).write(inside)
    return names


class _Module(torch.nn.Module):
    """A function as the module that a conversion wants."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The function's results."""
        return self._function(*inputs)


def _write(
    folder: Path,
    name: str,
    function: Callable[..., Any],
    examples: list[torch.Tensor],
    shapes: list[str],
) -> None:
    """Convert a function of tensors to a graph and write it.

    shapes: of its inputs as OpenVINO writes them, with "?" for a size that varies.
    """
    openvino = import_openvino()
    # Not openvino.convert_model: it reports its use to OpenVINO's makers.
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    function(*examples)  # what is made once, such as merged weights, is no part of the graph
    trace: Any = torch.jit.trace
    with warnings.catch_warnings():
        # Of branches in Python, none of which depends on an input, and of TorchScript's age.
        warnings.simplefilter("ignore")
        traced = trace(_Module(function), tuple(examples), check_trace=False)
    decoder = TorchScriptPythonDecoder(traced, example_input=tuple(examples), skip_freeze=True)
    frontend = FrontEndManager().load_by_framework("pytorch")
    graph = frontend.convert(frontend.load(decoder))
    graph.reshape({i: openvino.PartialShape(f"[{shape}]") for i, shape in enumerate(shapes)})
    openvino.save_model(graph, folder / f"{name}.xml", compress_to_fp16=False)


def _compare(plain: Checkpoint, exported: Checkpoint) -> None:
    """Raises ModelError where an export in float32 and its model do not see or say the same."""
    side = plain.backbone.config.vision_config.image_size
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    found = []
    for checkpoint in (plain, exported):
        features = checkpoint.look(image)
        numbers = [features.flatten()]
        if checkpoint.detector_or_none is not None:
            chance, attention = checkpoint.judge(features, REQUEST)
            numbers += [torch.tensor([chance]), torch.from_numpy(attention).flatten()]
        if IVG in checkpoint.adapters.names:
            _, prefill = checkpoint.second_opinion(features, REQUEST)
            numbers.append(prefill.logits.softmax(-1).flatten())
            said = checkpoint.speak(features, REQUEST, "free", prefill)
            numbers.append(torch.tensor(said.probabilities))
        found.append(torch.cat(numbers))
    ours, theirs = found
    if ours.shape != theirs.shape or not torch.allclose(ours, theirs, TOLERANCE, TOLERANCE):
        raise ModelError(
            "the export does not give the model's replies, so it was not written: this version of"
            " OpenVINO does not understand the model"
        )
