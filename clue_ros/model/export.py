# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a model with the decoder's weights in 8 or 4 bits, for a CPU with little memory.

OpenVINO runs any model folder; an export of a large one takes about half of its memory. Each row of
a projection is stored as int8 with a scale of its own, or each 128 values of a row as int4. The
vision tower, the embeddings (which are the head) and the adapters stay as they are: maps are made
of the tower's features, and location tokens are told apart by small differences of the embeddings'
rows.

    clue export google/paligemma2-3b-mix-448 --out models/mix-int8
    clue ground table.jpg "pick up the mug" --model models/mix-int8
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from clue_ros.errors import ClueError, ModelError
from clue_ros.model.backbone import DETECTOR, IVG, JOINT
from clue_ros.model.box_head import WEIGHTS_FILE as BOX_HEAD
from clue_ros.model.config import EXPORTED, read_config
from clue_ros.model.loading import (
    WEIGHTS,
    check_shapes,
    find_base,
    find_model,
    read_json,
    read_weights,
    replacing,
    write_json,
)
from clue_ros.model.shapes import GROUP, SCALE, SCALES, is_exported, weight_shapes
from clue_ros.model.tensors import Mapped, write_tensors

INT8 = "int8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue export``."""
    parser.add_argument("model", metavar="MODEL", help="an embedded model, a folder or a hub id")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the folder to write"
    )
    parser.add_argument(
        "--weights", choices=[*SCALES], default=INT8, help="of the decoder (default: int8)"
    )


def run(args: argparse.Namespace) -> int:
    """Run ``clue export``; the exit status."""
    written = export_model(args.model, args.out, args.weights)
    print(json.dumps({"out": str(args.out), "megabytes": round(written / 1e6, 1)}))
    return 0


def export_model(model: str, out: Path, weights: str = INT8) -> int:
    """Write an export; returns its bytes of weights. Raises ClueError, ModelError."""
    small = _in_8_bits if weights == INT8 else _in_4_bits
    folder = find_model(model)
    base = find_base(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ClueError(f"{out} is there and not empty: name another folder")
    content = read_json(base / "config.json")
    if EXPORTED in content:
        raise ModelError(f"{base} is an export already")
    stored = read_weights(base)
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    wanted = weight_shapes(read_config(base))
    check_shapes(base, shapes, wanted)
    out.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Mapped] = {}
    for name in tqdm(wanted, desc="weights"):
        tensors |= small(name, stored[name]) if is_exported(name) else {name: stored[name]}
    with replacing(out / WEIGHTS) as partial:
        write_tensors(tensors, partial)
    for path in base.iterdir():
        kept = path.suffix in (".json", ".model") or path.name == BOX_HEAD
        if kept and path.name != "config.json":
            shutil.copy(path, out / path.name)
    for name in (DETECTOR, IVG, JOINT):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, out / name)
    write_json(out / "config.json", {**content, EXPORTED: weights})
    return sum(tensor.values.nbytes for tensor in tensors.values())


def _in_8_bits(name: str, stored: Mapped) -> dict[str, Mapped]:
    """A matrix (O, I) as int8 and the scale (O, 1) of each row."""
    values = stored.float32()
    scale = np.maximum(np.abs(values).max(1, keepdims=True), 1e-12) / 127
    rounded = np.rint(values / scale).astype(np.int8)
    return {name: Mapped("I8", rounded), name + SCALE: Mapped("F32", scale.astype(np.float32))}


def _in_4_bits(name: str, stored: Mapped) -> dict[str, Mapped]:
    """A matrix (O, I) as int4, two values a byte, and the scale (O, G, 1) of each group.

    The value of a group that is farthest from zero is -8.
    """
    values = stored.float32()
    groups = values.reshape(len(values), -1, math.gcd(values.shape[1], GROUP))
    farthest = np.abs(groups).argmax(2, keepdims=True)
    scale = np.take_along_axis(groups, farthest, 2) / np.float32(-8)
    scale[scale == 0] = 1
    rounded = np.clip(np.rint(groups / scale), -8, 7).astype(np.int8).reshape(len(values), -1)
    packed = (rounded[:, ::2] & 15 | rounded[:, 1::2] << 4).view(np.uint8)
    return {name: Mapped("U8", packed), name + SCALE: Mapped("F32", scale)}


def check_no_export(folder: Path, content: dict[str, Any]) -> None:
    """Raises ModelError for an export, which torch cannot read."""
    if EXPORTED in content:
        raise ModelError(
            f"{folder} is an export ({content[EXPORTED]}), which OpenVINO alone runs: set device to"
            " 'cpu' and no quantization, or name the model that it was made of"
        )
