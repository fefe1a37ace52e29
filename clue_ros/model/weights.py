"""Check that the weights in a folder are the ones its config.json asks for.

Reads headers only, so it takes milliseconds.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.errors import ModelError
from clue_ros.model.files import first_line, read_json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

# Files and modules call the same weight by different names, and so do versions of transformers.
_PUBLISHED = (
    (re.compile(r"^model\.language_model\."), "language_model.model."),
    (re.compile(r"^lm_head\."), "language_model.lm_head."),
    (re.compile(r"^model\.(?=vision_tower\.|multi_modal_projector\.)"), ""),
    (re.compile(r"^vision_tower\.vision_model\."), "vision_tower."),
)

# From a half download. In the hub's cache a broken file is kept until it is forced.
_AGAIN = "download the model again (`hf download NAME --force-download`)"
_POINTER = b"version https://git-lfs"

Shapes = dict[str, tuple[int, ...]]


def check_weights(folder: Path, config: PaliGemmaConfig) -> None:
    """Raises ModelError naming the file that is missing or broken, or the weight that is wrong."""
    found: Shapes = {}
    for path in weight_files(folder):
        found.update({published_name(name): shape for name, shape in read_shapes(path).items()})
    expected, tied = _expected_shapes(folder, config)
    for name, shape in expected.items():
        if name not in found:
            if name in tied:
                continue
            raise ModelError(f"{folder}: the safetensors lack {name}")
        if found[name] != shape:
            raise ModelError(
                f"{folder}: {name} has shape {found[name]}, config.json asks for {shape}"
            )


def published_name(name: str) -> str:
    """The name a weight has in published PaliGemma checkpoints, from the one in the module."""
    for pattern, published in _PUBLISHED:
        name = pattern.sub(published, name)
    return name


def weight_files(folder: Path) -> list[Path]:
    """The base's safetensors, one file or several. Raises ModelError naming what is missing."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelError(f"{folder / INDEX} lists no weights")
        paths = [folder / str(name) for name in sorted(set(names.values()))]
        for path in paths:
            if not path.is_file():
                raise ModelError(f"{folder} has no {path.name}, which {INDEX} lists: {_AGAIN}")
        return paths
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth"})
    if pickled:
        raise ModelError(
            f"{folder} has no {WEIGHTS}, only {pickled[0]}, a pickle, which is never loaded:"
            " convert it to safetensors"
        )
    raise ModelError(f"the model folder {folder} has no {WEIGHTS}")


def fingerprint(folder: Path) -> str:
    """Hex SHA-256 of a model folder's configuration, tokenizer and weights."""
    whole = hashlib.sha256()
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        whole.update(f"{path.name}:{path.stat().st_size};".encode())
        with open(path, "rb") as file:
            while block := file.read(1 << 20):  # piece by piece: weights can be gigabytes
                whole.update(block)
    return whole.hexdigest()


def read_shapes(path: Path) -> Shapes:
    """The name and shape of every tensor in a safetensors file. Raises ModelError."""
    try:
        opener: Any = safe_open
        with opener(path, framework="pt") as file:
            names = file.keys()
            return {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        if _is_pointer(path):
            raise ModelError(
                f"{path} is git's pointer to the weights, not the weights: run `git lfs pull` there"
            ) from error
        raise ModelError(
            f"{path} is cut short or broken ({first_line(error)}): {_AGAIN}"
        ) from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error


def _is_pointer(path: Path) -> bool:
    """What a clone without git-lfs leaves in a file's place."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _expected_shapes(folder: Path, config: PaliGemmaConfig) -> tuple[Shapes, set[str]]:
    """What the config asks for, and which of it may be left out because it is tied to another."""
    try:
        with torch.device("meta"):
            model = PaliGemmaForConditionalGeneration(config)
    except Exception as error:  # whatever a wrong size leads to
        raise ModelError(f"cannot use {folder / 'config.json'}: {first_line(error)}") from error
    tied = set(model._tied_weights_keys or {}) if config.tie_word_embeddings else set()
    shapes = {published_name(key): tuple(value.shape) for key, value in model.state_dict().items()}
    return shapes, {published_name(key) for key in tied}
