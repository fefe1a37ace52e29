# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A model's files: find them, fetch them from the Hugging Face hub, read and check them.

Every failure is a ModelError of one line that names the file and says what to do. torch and
transformers are imported only where weights are checked.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from clue_ros.errors import ModelError
from clue_ros.model.details import details_of
from clue_ros.model.shapes import SCALE
from clue_ros.model.tensors import Mapped, read_entries, read_tensors, unpacked

if TYPE_CHECKING:
    import torch

SettingsT = TypeVar("SettingsT")

# -------------------------------------------------------------------------------------------------
# Find: a model by its name, its folder or its hub id.

DEFAULT_MODEL = "household"  # the model that comes with the package, in models/
_HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w.][\w./-]*))?")


def add_model_argument(parser: argparse._ActionsContainer) -> None:
    """Declare `--model`, the same for every command."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"{DEFAULT_MODEL}, a model folder, or a hub id (owner/name@revision) "
        f"(default: {DEFAULT_MODEL})",
    )


def find_model(model: str | Path, revision: str | None = None) -> Path:
    """The folder of a model: `DEFAULT_MODEL`, a folder, or a hub id (downloaded, then cached).

    A hub id may name a branch, tag or commit, as owner/name@revision or with `revision`; the hub's
    default is its main branch. Raises ModelError.
    """
    found = local_or_hub(model, revision)
    return found if isinstance(found, Path) else download(*found)


def local_or_hub(model: str | Path, revision: str | None = None) -> Path | tuple[str, str | None]:
    """The folder of a model that is here, or a hub id's name and revision; nothing is asked.

    Raises ModelError for a name that is neither.
    """
    text = str(model)
    if text == DEFAULT_MODEL:
        here: Path | None = _embedded_model()
    else:
        folder = Path(text).expanduser()
        here = folder if text and folder.is_dir() else None
    if here is not None:
        if revision:
            raise ModelError(f"{text} is here, not on the hub: it has no revision {revision!r}")
        return here
    hub = _HUB_ID.fullmatch(text) if isinstance(model, str) else None
    if hub is None:
        raise ModelError(
            f"no model {text!r}: want {DEFAULT_MODEL!r}, a model folder, or a hub id such as"
            " owner/name"
        )
    if revision and hub["revision"] not in (None, revision):
        raise ModelError(f"two revisions for {hub['name']}: {hub['revision']} and {revision}")
    return hub["name"], revision or hub["revision"]


def is_hub_id(name: str | Path) -> bool:
    """Whether a name is of no file here and has the form owner/name or owner/name@revision."""
    return not Path(name).expanduser().exists() and _HUB_ID.fullmatch(str(name)) is not None


def name_and_revision(name: str | Path) -> tuple[str, str | None]:
    """A folder, or a hub id and the revision behind its @, as transformers takes them."""
    found = _HUB_ID.fullmatch(str(name)) if is_hub_id(name) else None
    return (found["name"], found["revision"]) if found else (str(Path(name).expanduser()), None)


def find_base(folder: Path) -> Path:
    """The folder with the backbone's weights: `folder`, or the base its adapters were trained on.

    A folder of adapters alone (a few MB beside a base of many GB) names its base as peft does, in
    adapter_config.json: base_model_name_or_path and, for a hub id, revision.
    """
    found = _adapter_configs(folder)
    if (folder / "config.json").is_file() or not found:
        return folder
    named = named_base(read_json(found[0]))
    return folder if named is None else find_model(*named)


def named_base(adapter: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The base, and its revision, that an adapter_config.json names; None where it names none."""
    base, revision = adapter.get("base_model_name_or_path"), adapter.get("revision")
    if not isinstance(base, str) or not base:
        return None
    return base, revision if isinstance(revision, str) and revision else None


def demo_folder() -> Path:
    """The pictures that come with clue_ros, beside its models. Raises ModelError."""
    return _embedded_model().parents[1] / "demo"


def _adapter_configs(folder: Path) -> list[Path]:
    """The adapters' configurations in a model folder; one adapter alone is enough."""
    paths = [folder / name / "adapter_config.json" for name in ("joint", "detector", "ivg")]
    return [path for path in paths if path.is_file()]


def _embedded_model() -> Path:
    """Its folder in the checkout, or in the nearest share folder of an installed package."""
    here, name = Path(__file__), f"models/{DEFAULT_MODEL}"
    prefixes = filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep))
    installed = [*here.absolute().parents, *map(Path, prefixes), Path(sys.prefix)]
    for root in (here.resolve().parents[2], *(path / "share" / "clue_ros" for path in installed)):
        if (root / name).is_dir():
            return root / name
    raise ModelError(
        f"the embedded model {name} is not here: install clue_ros from a full checkout of its "
        "repository"
    )


# -------------------------------------------------------------------------------------------------
# Fetch: from the Hugging Face hub, once, then cached.

LOGIN = "`hf auth login`"


def download(name: str, revision: str | None = None) -> Path:
    """The local snapshot of a hub model: its JSON files, then, if they fit, its safetensors.

    Files that are there already are not fetched again, and a download that broke off goes on where
    it stopped. Without a network a complete snapshot in the cache will do. Raises ModelError.
    """
    from huggingface_hub import snapshot_download

    def fetch(*patterns: str) -> Path:
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=[*patterns]))
        except Exception as error:  # the hub's client raises what its network library raises
            raise ModelError(why_not_fetched(name, revision, error)) from error

    folder = fetch("*.json")
    # Before many gigabytes are fetched for nothing: is it a PaliGemma, or a folder of adapters?
    if (folder / "config.json").is_file():
        kind = read_json(folder / "config.json").get("model_type")
        if kind != "paligemma":
            raise ModelError(f"{name} on the hub is a model of type {kind}, want a paligemma")
    elif not _adapter_configs(folder):
        raise ModelError(
            f"{name} on the hub is neither a model (it has no config.json) nor adapters of CLUE"
            " (it has no detector/adapter_config.json and no ivg/adapter_config.json)"
        )
    return fetch("*.json", "*.safetensors")


def why_not_fetched(name: str, revision: str | None, error: Exception) -> str:
    """Return a failed download's problem and remedy in one sentence."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return gated_message(name)
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{name} has no revision {revision!r}: leave it out for the newest, or choose one on "
            f"https://huggingface.co/{name}/commits/main"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return _why_not_found(name)
    if isinstance(error, errors.IncompleteSnapshotError):
        return (
            f"only a part of {name} was downloaded, and the hub cannot be reached for the rest: "
            "check the network and start again, it goes on where it stopped"
        )
    if isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        return unreachable_message(name, revision)
    if not isinstance(error, OSError):
        return (
            f"the download of {name} broke off ({first_line(error)}): start again, it goes on where"
            " it stopped"
        )
    if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
        return f"the hub refuses this account or its token for {name}: log in again with {LOGIN}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room on the disk for {name}: free some, or set HF_HOME to a folder elsewhere"
    return f"cannot download {name} from the hub: {first_line(error)}"


def _why_not_found(name: str) -> str:
    """Whether a name that is no model is a dataset or a space, if the hub tells."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    for kind in ("dataset", "space"):
        with contextlib.suppress(HfHubHTTPError, OSError):
            HfApi().repo_info(name, repo_type=kind)
            return f"{name} is a {kind} (https://huggingface.co/{kind}s/{name}), not a model"
    return (
        f"there is no folder {name} here and no model {name} on the hub (if it is private: {LOGIN})"
    )


def unreachable_message(name: str, revision: str | None = None) -> str:
    """That a model is not here and the hub does not answer, and what to do."""
    which = f"{name} (revision {revision})" if revision else name
    return (
        f"there is no folder {name} here, and the hub cannot be reached to download {which}: "
        "check the network, or give a folder that holds the model"
    )


def gated_message(name: str) -> str:
    """Why a gated model cannot be fetched, and what to do."""
    return (
        f"{name} is gated: accept its licence on https://huggingface.co/{name}, then run "
        f"{LOGIN} with an account that was granted access"
    )


# -------------------------------------------------------------------------------------------------
# Read and write: the small files of a model folder.


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for messages of one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelError naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path.parent} has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


def read_settings(path: Path, kind: type[SettingsT]) -> SettingsT:
    """A dataclass from a JSON object; fields that it does not know are notes.

    Values are not checked. Raises ModelError naming the file.
    """
    content = read_json(path)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in content:
            values[field.name] = content[field.name]
        elif field.default is MISSING:
            raise ModelError(f"{path} does not say {field.name}")
    return kind(**values)


def is_number(value: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether a value is a number (no bool, no NaN) from `low` to `high`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and low <= value <= high  # type: ignore[operator]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` for people and programs: indented, keys in order, a newline at the end."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file to write to, which replaces `path` once it is whole.

    A reader, and a process that is killed meanwhile, finds the old file or the new one. Where
    writing fails the old one stays.
    """
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    usual_mode(partial)
    partial.replace(path)


def usual_mode(*paths: Path) -> None:
    """Give written files the mode that the umask gives new ones.

    safetensors writes 0600, which other users of a robot cannot read.
    """
    for path in paths:
        new = path.with_name(f".{path.name}.new")
        new.touch()
        path.chmod(new.stat().st_mode)
        new.unlink()


def imported_function(text: str) -> Callable[..., Any]:
    """The function or class that MODULE:NAME names; imports the module. Raises ModelError.

    Importing runs its code: only what the user has named comes here, never a model's files.
    """
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"there is no module {error.name!r} for {text!r}: put its folder on PYTHONPATH"
        ) from error
    except (AttributeError, ValueError) as error:
        raise ModelError(f"there is no function {name!r} in the module {module!r}: {error}") from (
            error
        )
    except Exception as error:  # whatever that code raises
        kind = type(error).__name__
        raise ModelError(f"cannot import {module!r}: {kind}: {first_line(error)}") from error
    if not callable(found):
        raise ModelError(f"{text} is no function")
    return found  # type: ignore[no-any-return]


def check_config(place: object, content: Mapping[str, Any]) -> None:
    """Raises ModelError naming `place` unless a config.json's content is a PaliGemma 2's.

    Its sizes are those that a model can have (`check_sizes`).
    """
    # transformers would fill what is missing with the sizes of a model of billions of weights.
    for part, name, want in (
        (content, "model", "paligemma"),
        (content.get("text_config"), "text_config", "gemma2"),
        (content.get("vision_config"), "vision_config", "siglip_vision_model"),
    ):
        kind = part.get("model_type") if isinstance(part, Mapping) else None
        if kind != want:
            raise ModelError(f"{place}: the {name} is of type {kind}, want {want}")
    check_sizes(place, content, least=1)
    try:
        details_of(content["vision_config"].get("conv_stem"))
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from error


_LIMITS = (
    (
        re.compile(
            r"^(?!\w*_per_)(num|n)_\w*(layers?|blocks?|repeats)|^\w*(coder|vision|text)_layers$"
        ),
        10**3,
    ),
    (re.compile(r"^(layers|\w*depths?|\w*_repeats)$"), 10**3),
    (re.compile(r"^stages$"), 10**4),  # of a stem
    (re.compile(r"^(num|n)_\w*(experts|stages|heads|queries|groups|levels|scales)"), 10**5),
    (re.compile(r"(vocab|chunk)\w*_size|^n_ctx$|positions$|position_embeddings$"), 10**8),
    (re.compile(r"(size|dim|width|channels|d_model|n_embd|n_inner)$"), 10**6),
)
"""How many there may be, by the first pattern that a name in a config.json has: more than any model
has. Of a list, the sum."""
_NEEDED = frozenset((
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "image_size", "patch_size", "num_channels",
    "stages",
))  # fmt: skip
"""The sizes that a PaliGemma 2 cannot have 0 of."""


def check_sizes(place: object, content: Mapping[str, Any], least: int = 0) -> None:
    """Refuse sizes that no model has, before layers of them are built.

    content: of a config.json, with that of its parts (text_config, ...). least: of those that a
    PaliGemma 2 needs. Raises ModelError naming `place`.
    """
    for name, value in content.items():
        if isinstance(value, Mapping):
            check_sizes(place, value, least)
        most = next((most for pattern, most in _LIMITS if pattern.search(name)), None)
        numbers = [] if most is None else [*_numbers(value)]
        low = least if name in _NEEDED else 0
        few = name in _NEEDED and numbers and min(numbers) < low  # elsewhere -1 stands for another
        if numbers and (few or not sum(numbers) <= (most or 0)):
            raise ModelError(f"{place}: {name} is {value!r:.40}, want {low} to {most}")


def _numbers(value: Any) -> Iterator[float]:
    """The numbers of a value, in lists or alone."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def require_files(folder: Path, *names: str) -> None:
    """Raises ModelError naming the first of these files that the folder lacks."""
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"the model folder {folder} has no {name}")


def fingerprint(folder: Path) -> str:
    """Hex SHA-256 of a model folder's configuration, tokenizer and weights.

    Without the mask decoder's, and without a calibration, which is of the whole.
    """
    whole = hashlib.sha256()
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        if path.name in (MASK_DECODER, CALIBRATION):
            continue
        whole.update(f"{path.name}:{path.stat().st_size};".encode())
        hash_file(whole, path)
    return whole.hexdigest()


def hash_file(whole: hashlib._Hash, path: Path) -> None:
    """Let a hash take in a file, piece by piece: weights can be gigabytes. Raises OSError."""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            whole.update(block)


# -------------------------------------------------------------------------------------------------
# Check: are the weights in a folder the ones that its config.json asks for?

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MASK_DECODER = "mask_decoder.safetensors"  # beside them, if the model has one
CALIBRATION = "calibration.json"  # as well (`clue calibrate`)

# Files and modules call the same weight by different names, and so do versions of transformers.
_PUBLISHED = (
    (re.compile(r"^model\.language_model\."), "language_model.model."),
    (re.compile(r"^lm_head\."), "language_model.lm_head."),
    (re.compile(r"^model\.(?=vision_tower\.|multi_modal_projector\.)"), ""),
    (re.compile(r"^vision_tower\.vision_model\."), "vision_tower."),
)

# From a half download. In the hub's cache a broken file is kept until it is forced.
_AGAIN = "download the model again (`hf download NAME --force-download`)"
_POINTER = b"version https://git-lfs"  # what a clone without git-lfs leaves in a file's place

Shapes = Mapping[str, tuple[int, ...]]


class Stored(NamedTuple):
    """A tensor in a safetensors file. kind: as its header says it, such as "BF16"."""

    shape: tuple[int, ...]
    kind: str


def shapes(state: Mapping[str, torch.Tensor]) -> Shapes:
    """The shape of each tensor of a state dictionary."""
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def check_shapes(place: Path, found: Shapes, wanted: Shapes) -> None:
    """Raises ModelError naming `place` and the first weight that is missing or does not fit."""
    for name, shape in wanted.items():
        if name not in found:
            raise ModelError(f"{place} lacks {name}, which this model needs")
        if found[name] != shape:
            raise ModelError(f"{place}: {name} has shape {found[name]}, this model needs {shape}")


def check_weights(folder: Path, wanted: Shapes) -> None:
    """Raises ModelError naming the file that is missing or broken, or the weight that is wrong.

    wanted: of `clue_ros.model.shapes.weight_shapes`.
    """
    found: dict[str, Stored] = {}
    for path in weight_files(folder):
        found.update(read_header(path))
    check_shapes(folder, {name: stored.shape for name, stored in found.items()}, wanted)
    check_scales(folder, found)


def check_scales(place: Path, stored: Mapping[str, Stored | Mapped]) -> None:
    """Raises ModelError for a scale of an export's weights that is not float32."""
    for name, each in stored.items():
        if name.endswith(SCALE) and each.kind != "F32":
            raise ModelError(f"{place}: the scale {name} is of type {each.kind}, want F32")


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


def read_header(path: Path) -> dict[str, Stored]:
    """Every tensor in a safetensors file by its published name. Raises ModelError."""
    with reading(path):
        entries, _ = read_entries(path)
        return {
            published_name(name): Stored(
                unpacked(tuple(entry["shape"]), entry["dtype"]), entry["dtype"]
            )
            for name, entry in entries.items()
        }


def read_weights(folder: Path) -> dict[str, Mapped]:
    """A model's weights by their published names, mapped into memory. Raises ModelError."""
    found: dict[str, Mapped] = {}
    for path in weight_files(folder):
        with reading(path):
            found |= {published_name(name): t for name, t in read_tensors(path).items()}
    return found


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what is wrong with a safetensors file into a ModelError."""
    try:
        yield
    except ValueError as error:
        with path.open("rb") as content:
            if content.read(len(_POINTER)) == _POINTER:
                raise ModelError(
                    f"{path} is git's pointer to the weights, not the weights: run `git lfs pull`"
                    " there"
                ) from error
        raise ModelError(
            f"{path} is cut short or broken ({first_line(error)}): {_AGAIN}"
        ) from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
