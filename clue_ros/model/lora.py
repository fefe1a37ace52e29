# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of peft's format as plain matrices: W + (alpha / r) B A (section III).

Both backbones read an adapter's folder by `read_folder`. The tensors' names in its file say what it
adapts. The patterns in its configuration (target_modules, ...) are a stranger's regular
expressions, and are not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ModelError
from clue_ros.model.loading import check_shapes, first_line, read_json, reading
from clue_ros.model.tensors import TYPES, Mapped, read_entries, read_tensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
MOST_TENSORS = 100_000  # of an adapter's file
Array = npt.NDArray[np.float32]
_ALL_BASES = (
    "one look at an image serves every adapter, so an adapter may change only the projections of"
    " the decoder's blocks: train it with target_modules in language_model alone"
)
_NO_LORA = "its products are not those of a plain LoRA"
_BASE_TOO = (
    "it belongs to a base that it changed: let peft save it as a plain LoRA (save_pretrained with"
    " path_initial_model_for_weight_conversion)"
)
_REFUSED = {
    "modules_to_save": _ALL_BASES,
    "trainable_token_indices": _ALL_BASES,
    "layer_replication": "the decoder would have other blocks",
    "alora_invocation_tokens": "it works only after its own tokens, which are in no prompt here",
    "target_parameters": _NO_LORA, "arrow_config": _NO_LORA, "kasa_config": _NO_LORA,
    "monteclora_config": _NO_LORA, "use_bdlora": _NO_LORA, "use_qalora": _NO_LORA,
    "velora_config": _NO_LORA,
}  # fmt: skip
"""What an adapter_config.json may not ask for, and why not."""
_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")
"""Ways to start an adapter that leave the base as it is (init_lora_weights)."""
_WITH_TORCH = ("use_dora", "lora_bias")
_NAME = re.compile(
    r"(?:base_model\.model\.)?(?:model\.)?language_model\.(?:model\.)?"
    r"(layers\.\d{1,4}\.(?:self_attn|mlp)\.[a-z]+_proj)"
    r"\.(lora_[AB]\.weight|lora_B\.bias|lora_magnitude_vector)(?:\.weight)?"
)
_FROZEN = re.compile(r"vision_tower|multi_modal_projector|embed_tokens|lm_head|lora_embedding_")
_PLAIN_NAME = re.compile(r"[\w.]{1,200}")
TEXT = "language_model.model."


@dataclass(frozen=True)
class AdapterFolder:
    """An adapter's folder, as far as it can be checked without its base.

    config: its adapter_config.json. parts: of each tensor in its file, by its name there, the
    projection (such as layers.0.mlp.up_proj) and the part of it ("lora_A.weight", "lora_B.weight",
    "lora_B.bias" or "lora_magnitude_vector"). rank, alpha: of each projection.
    """

    path: Path
    config: Mapping[str, Any]
    parts: Mapping[str, tuple[str, str]]
    rank: Mapping[str, int]
    alpha: Mapping[str, float]


def read_folder(folder: Path) -> AdapterFolder:
    """Read an adapter's folder but for its numbers. Raises ModelError for what cannot be right.

    Names of tensors are taken in the forms that PaliGemma's modules had in any version of
    transformers, as peft takes them.
    """
    config, path = read_adapter_config(folder), folder / WEIGHTS_FILE
    check_adapter_config(folder / CONFIG_FILE, config)
    parts: dict[str, tuple[str, str]] = {}
    entries = adapter_tensors(path)
    for key in entries:
        match = _NAME.fullmatch(key)
        if match is None and _FROZEN.search(key):
            raise ModelError(f"{path} has {key}: {_ALL_BASES}")
        if match is None:
            raise ModelError(f"{path} has {key}, which this model does not")
        parts[key] = match[1], match[2]
    if len(set(parts.values())) < len(parts):
        raise ModelError(f"{path} has a tensor twice, by an older name and a newer one")
    names = sorted({name for name, _ in parts.values()})
    if not names:
        raise ModelError(f"{path} has no tensor: train this adapter with `clue train`")
    try:
        ranks = per_module(config, "r", "rank_pattern", names)
        rank = {name: int(value) for name, value in ranks.items()}
        if min(rank.values()) < 1:
            raise ValueError("a rank below 1")
        alpha = per_module(config, "lora_alpha", "alpha_pattern", names)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"cannot read the adapter in {folder}: {first_line(error)}") from error
    firsts = {key: name for key, (name, part) in parts.items() if part == "lora_A.weight"}
    check_ranks(path, entries, {key: rank[name] for key, name in firsts.items()})
    return AdapterFolder(path, config, parts, rank, alpha)


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """The content of an adapter's adapter_config.json, if its weights are there too. ModelError."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ModelError(no_file(folder, name, pickled=(folder / PICKLED).is_file()))
    return read_json(folder / CONFIG_FILE)


def no_file(place: object, name: str, *, pickled: bool) -> str:
    """That an adapter has no file of this name, and what to do. pickled: it has PICKLED."""
    if name == WEIGHTS_FILE and pickled:
        return (
            f"{place} has no {WEIGHTS_FILE}, only {PICKLED}, a pickle, which is never loaded."
            ' Convert it there: python -c "import torch; from safetensors.torch import save_file;'
            f" save_file(torch.load('{PICKLED}', weights_only=True), '{WEIGHTS_FILE}')\""
        )
    other = f", or convert a {PICKLED}, which is never fetched" if name == WEIGHTS_FILE else ""
    return f"{place} has no {name}: train this adapter with `clue train`{other}"


def check_adapter_config(place: object, config: Mapping[str, Any], *, alone: bool = False) -> None:
    """Raise ModelError naming `place` for a configuration that cannot be right here.

    alone: no other adapter shares the base, so this one may replace whole modules of it.
    """
    if config.get("peft_type", "LORA") != "LORA":
        raise ModelError(f"{place} does not describe a LoRA adapter")
    for key, reason in _REFUSED.items():
        if config.get(key) and not (alone and key == "modules_to_save"):
            raise ModelError(f"{place}: {key} is {config[key]!r:.80}: {reason}")
    if config.get("bias", "none") not in ("none", None):
        raise ModelError(f"{place}: bias is {config['bias']!r:.40}: {_ALL_BASES}")
    start = config.get("init_lora_weights")
    if not isinstance(start, bool | str | None) or start not in _STARTS:
        raise ModelError(f"{place}: init_lora_weights is {start!r:.40}: {_BASE_TOO}")


def adapter_tensors(path: Path) -> dict[str, Any]:
    """The entries of an adapter's safetensors file by their names. Raises ModelError."""
    with reading(path):
        entries, _ = read_entries(path)
    if len(entries) > MOST_TENSORS:
        raise ModelError(f"{path} has {len(entries)} tensors, want {MOST_TENSORS} at most")
    for name, entry in entries.items():
        if entry["dtype"] not in TYPES:
            raise ModelError(f"{path}: {name} is of type {entry['dtype']}, want F32, BF16 or F16")
    return entries


def per_module(
    config: Mapping[str, Any], key: str, patterns: str, names: Iterable[str]
) -> dict[str, float]:
    """A number of each module: its own where `patterns` of the configuration has it, else `key`'s.

    names: of the modules. peft takes the entries of rank_pattern and alpha_pattern for regular
    expressions; here an entry is the end of a name, at a dot, as peft itself writes them. Raises
    KeyError, TypeError or ValueError.
    """
    own: dict[str, float] = {}
    for entry, value in dict(config.get(patterns) or {}).items():
        if not _PLAIN_NAME.fullmatch(entry):
            raise ValueError(f"{patterns} has {entry!r:.60}: want modules' names, not patterns")
        match = _NAME.fullmatch(f"{entry}.lora_A.weight")
        own.setdefault(match[1] if match else entry, float(value))
    places, default = {entry: place for place, entry in enumerate(own)}, float(config[key])
    found = {}
    for name in names:
        pieces = name.split(".")
        ends = {".".join(pieces[start:]) for start in range(len(pieces))} & own.keys()
        found[name] = own[min(ends, key=places.__getitem__)] if ends else default
    return found


def check_ranks(path: Path, entries: Mapping[str, Any], ranks: Mapping[str, int]) -> None:
    """Raise ModelError for a configured rank that is not the file's, before peft makes room for it.

    entries: of `adapter_tensors`. ranks: of matrices A (r, I), by their names in the file.
    """
    for key, rank in ranks.items():
        shape = tuple(entries[key]["shape"])
        if shape[:1] != (rank,):
            raise ModelError(f"{path}: {key} has shape {shape}, and its rank is to be {rank}")


def plain_names(place: object, key: str, value: Any) -> list[str]:
    """A list of names in a configuration. Raises ModelError for anything that is a pattern."""
    names = value or []
    if not isinstance(names, list) or not all(
        isinstance(name, str) and _PLAIN_NAME.fullmatch(name) for name in names
    ):
        raise ModelError(f"{place}: {key} is {value!r:.60}, want a list of modules' names")
    return names


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
    adapter = read_folder(folder)
    path, config = adapter.path, adapter.config
    for key in _WITH_TORCH:
        if config.get(key):
            raise ModelError(
                f"{folder / CONFIG_FILE}: {key} is {config[key]!r}, which needs backend 'torch'"
            )
    with reading(path):
        tensors = read_tensors(path)
    sides: dict[str, dict[str, Array]] = {}
    wanted: dict[str, tuple[int, ...]] = {}
    for key, (name, part) in adapter.parts.items():
        weight = stored.get(f"{TEXT}{name}.weight")
        if weight is None or part not in ("lora_A.weight", "lora_B.weight"):
            raise ModelError(f"{path} has {key}, which this model does not")
        stem, (rows, columns) = key.removesuffix(part), weight.shape
        wanted[f"{stem}lora_A.weight"] = (adapter.rank[name], columns)
        wanted[f"{stem}lora_B.weight"] = (rows, adapter.rank[name])
        sides.setdefault(name, {})[part] = tensors[key].float32()
    check_shapes(path, {key: tensor.shape for key, tensor in tensors.items()}, wanted)
    rooted = bool(config.get("use_rslora"))
    scale = {
        name: alpha / (adapter.rank[name] ** (0.5 if rooted else 1))
        for name, alpha in adapter.alpha.items()
    }
    pairs = {
        name: (both["lora_A.weight"], np.float32(scale[name]) * both["lora_B.weight"])
        for name, both in sides.items()
    }
    facts = path.stat()
    scales = sorted(scale.items())
    made_of = f"{path.resolve()}:{facts.st_size}:{facts.st_mtime_ns}:{scales}"
    return Lora(pairs, max(adapter.rank.values()), made_of)
