# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of peft's format as plain matrices: W + (alpha / r) B A (section III)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ModelError
from clue_ros.model.loading import check_shapes, first_line, read_json
from clue_ros.model.tensors import Mapped, read_tensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
Array = npt.NDArray[np.float32]
PLAIN: dict[str, Any] = {
    "peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, "use_dora": False,
    "lora_bias": False, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {},
    "layer_replication": None, "target_parameters": None, "trainable_token_indices": None,
}  # fmt: skip
"""What an adapter_config.json says of a LoRA that is two matrices and a scale, where it says it."""
_NAME = re.compile(
    r"(?:base_model\.model\.)?(?:model\.language_model|language_model\.model)"
    r"\.(layers\.\d+\.(?:self_attn|mlp)\.[a-z]+_proj)\.lora_([AB])\.weight"
)
TEXT = "language_model.model."


@dataclass(frozen=True)
class Lora:
    """An adapter. pairs: A (r, I) and B (O, r), the scale in it, by a projection's name.

    made_of: names the files, for caches. A projection's name is such as layers.0.mlp.up_proj.
    """

    pairs: Mapping[str, tuple[Array, Array]]
    rank: int
    made_of: str

    @classmethod
    def none(cls) -> Lora:
        """An adapter that changes nothing."""
        return cls({}, 0, "")

    @property
    def nbytes(self) -> int:
        """Bytes of its matrices."""
        return sum(matrix.nbytes for pair in self.pairs.values() for matrix in pair)

    def merged(self, stored: Mapping[str, Mapped], kind: str) -> dict[str, Mapped]:
        """The projections with the adapter added, by their names in the model's file.

        kind: "F32" or "BF16".
        """
        names = {f"{TEXT}{name}.weight": pair for name, pair in self.pairs.items()}
        return {
            name: Mapped.of(stored[name].float32() + b @ a, kind) for name, (a, b) in names.items()
        }

    def joined(
        self,
        stored: Mapping[str, Mapped],
        parts: Mapping[str, Sequence[str]],
        blocks: int,
        rank: int,
    ) -> dict[str, Array]:
        """The matrices of projections with one input as one product: A above A, B block diagonal.

        parts: the projections of each product of a block. Ranks below `rank` are filled with zeros.
        """
        made = {}
        for block in range(blocks):
            for part, names in parts.items():
                shapes = [stored[f"{TEXT}layers.{block}.{name}.weight"].shape for name in names]
                a = np.zeros((len(names) * rank, shapes[0][1]), np.float32)
                b = np.zeros((sum(rows for rows, _ in shapes), len(names) * rank), np.float32)
                row = 0
                for place, (name, (rows, _)) in enumerate(zip(names, shapes, strict=True)):
                    own_a, own_b = self.pairs.get(f"layers.{block}.{name}", (None, None))
                    if own_a is not None and own_b is not None:
                        a[place * rank : place * rank + len(own_a)] = own_a
                        b[row : row + rows, place * rank : place * rank + len(own_a)] = own_b
                    row += rows
                made[f"{block}.{part}.a"], made[f"{block}.{part}.b"] = a, b
        return made


def read_lora(folder: Path, stored: Mapping[str, Mapped]) -> Lora:
    """An adapter's folder. stored: the weights that it adapts. Raises ModelError."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}: train this adapter with `clue train`")
    config, path = read_json(folder / CONFIG_FILE), folder / WEIGHTS_FILE
    other = [key for key, value in PLAIN.items() if config.get(key, value) not in (value, None)]
    if other:
        value = config[other[0]]
        raise ModelError(
            f"{folder / CONFIG_FILE}: {other[0]} is {value!r}, which needs backend 'torch'"
        )
    try:
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
        tensors = read_tensors(path)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OSError) as error:
        raise ModelError(f"cannot read the adapter in {folder}: {first_line(error)}") from error
    sides: dict[str, dict[str, Array]] = {}
    wanted: dict[str, tuple[int, ...]] = {}
    for key, tensor in tensors.items():
        match = _NAME.fullmatch(key)
        weight = stored.get(f"{TEXT}{match[1]}.weight") if match else None
        if match is None or weight is None:
            raise ModelError(f"{path} has {key}, which this model does not")
        stem, (rows, columns) = key[: match.end(1)], weight.shape
        wanted |= {f"{stem}.lora_A.weight": (rank, columns), f"{stem}.lora_B.weight": (rows, rank)}
        sides.setdefault(match[1], {})[match[2]] = tensor.float32()
    check_shapes(path, {key: tensor.shape for key, tensor in tensors.items()}, wanted)
    pairs = {name: (both["A"], np.float32(scale) * both["B"]) for name, both in sides.items()}
    facts = path.stat()
    made_of = f"{path.resolve()}:{facts.st_size}:{facts.st_mtime_ns}:{scale}"
    return Lora(pairs, rank, made_of)
