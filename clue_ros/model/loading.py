"""Where a model's files are: the embedded one, a folder, or the Hugging Face hub.

torch is imported only where weights are checked.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clue_ros.errors import ModelError

if TYPE_CHECKING:
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

# -------------------------------------------------------------------------------------------------
# Reading the small files of a model folder, with one clear sentence when something is wrong.


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
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` for people and programs: indented, keys in order, a newline at the end."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file to write to, which takes the place of `path` when it is whole.

    A reader, and who is killed meanwhile, finds the old file or the new one. Where writing fails
    the old one stays.
    """
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    partial.replace(path)


def require_files(folder: Path, *names: str) -> None:
    """Raises ModelError naming the first of these files that the folder lacks."""
    for name in names:
        if not (folder / name).is_file():
            raise ModelError(f"the model folder {folder} has no {name}")


# -------------------------------------------------------------------------------------------------
# Models from the Hugging Face hub: fetched once, then cached; every failure is one sentence.

LOGIN = "`hf auth login`"
# What the hub keeps besides models, and where its pages are.
_OTHER_TYPES = {"dataset": "datasets/", "space": "spaces/"}


def download(name: str, revision: str | None = None) -> Path:
    """The local snapshot of a hub model: its JSON files, then, if they fit, its safetensors.

    Files that are there already are not fetched again, and a download that broke off goes on where
    it stopped. Without a network a complete snapshot in the cache will do. Raises ModelError.
    """
    from huggingface_hub import snapshot_download

    with _in_one_sentence(name, revision):
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=["*.json"]))
    _check_kind(name, folder)  # before many gigabytes are fetched for nothing
    with _in_one_sentence(name, revision):
        patterns = ["*.json", "*.safetensors"]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))


def _check_kind(name: str, folder: Path) -> None:
    """A PaliGemma, or a folder of adapters. Raises ModelError."""
    if (folder / "config.json").is_file():
        kind = read_json(folder / "config.json").get("model_type")
        if kind != "paligemma":
            raise ModelError(f"{name} on the hub is a model of type {kind}, want a paligemma")
    elif not (folder / "detector" / "adapter_config.json").is_file():
        raise ModelError(
            f"{name} on the hub is neither a model (it has no config.json) nor adapters of CLUE"
            " (it has no detector/adapter_config.json)"
        )


@contextmanager
def _in_one_sentence(name: str, revision: str | None) -> Iterator[None]:
    """Turn what the hub's client raises into a ModelError that says what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name} is gated: accept its licence on https://huggingface.co/{name}, then run "
            f"{LOGIN} with an account that was granted access"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(
            f"{name} has no revision {revision!r}: leave it out for the newest, or choose one on "
            f"https://huggingface.co/{name}/commits/main"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(_not_found(name)) from error
    except errors.IncompleteSnapshotError as error:
        raise ModelError(
            f"only a part of {name} was downloaded, and the hub cannot be reached for the rest: "
            "check the network and start again, it goes on where it stopped"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        which = f"{name} (revision {revision})" if revision else name
        raise ModelError(
            f"there is no folder {name} here, and the hub cannot be reached to download {which}: "
            "check the network, or give a folder that holds the model"
        ) from error
    except OSError as error:
        raise ModelError(_broken_off(name, error)) from error
    except Exception as error:  # the hub's client raises what its network library raises
        raise ModelError(
            f"the download of {name} broke off ({first_line(error)}): start again, it goes on where"
            " it stopped"
        ) from error


def _not_found(name: str) -> str:
    """What a name that is no model is, if the hub tells."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    for kind, place in _OTHER_TYPES.items():
        try:
            HfApi().repo_info(name, repo_type=kind)
        except (HfHubHTTPError, OSError):
            continue
        return f"{name} is a {kind} (https://huggingface.co/{place}{name}), not a model"
    return (
        f"there is no folder {name} here and no model {name} on the hub (if it is private: {LOGIN})"
    )


def _broken_off(name: str, error: OSError) -> str:
    """An answer of the hub that has no class of its own, or a disk that does not take the files."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"the hub refuses this account or its token for {name}: log in again with {LOGIN}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room on the disk for {name}: free some, or set HF_HOME to a folder elsewhere"
    return f"cannot download {name} from the hub: {first_line(error)}"


EMBEDDED = ("household", "tabletop")  # the models that come with the package, in models/
DEFAULT_MODEL = "household"  # of EMBEDDED, where none is named
_HUB_ID = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w.][\w./-]*))?")


def add_model_argument(parser: argparse._ActionsContainer) -> None:
    """Declare `--model`, the same for every command."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"{' or '.join(EMBEDDED)}, a folder or a hub id (owner/name@revision); default: "
        f"{DEFAULT_MODEL}",
    )


def find_model(model: str | Path, revision: str | None = None) -> Path:
    """The folder of a model: a name of `EMBEDDED`, a folder, or a hub id (downloaded, then cached).

    A hub id may name a branch, tag or commit, as owner/name@revision or with `revision`; the hub's
    default is its main branch. Raises ModelError.
    """
    text = str(model)
    hub = _HUB_ID.fullmatch(text) if isinstance(model, str) else None
    folder = Path(text).expanduser()
    given = folder if text and folder.is_dir() else None
    here = _embedded(text) if text in EMBEDDED else given
    if here is None and hub is None:
        names = " or ".join(repr(name) for name in EMBEDDED)
        raise ModelError(
            f"no model {text!r}: want {names}, a model folder, or a hub id such as owner/name"
        )
    if here is not None:
        if revision:
            raise ModelError(f"{text} is here, not on the hub: it has no revision {revision!r}")
        return here
    assert hub is not None
    if revision and hub["revision"] not in (None, revision):
        raise ModelError(f"two revisions for {hub['name']}: {hub['revision']} and {revision}")
    return download(hub["name"], revision or hub["revision"])


def find_base(folder: Path) -> Path:
    """The folder with the backbone's weights: `folder`, or the base its adapters were trained on.

    A folder of adapters alone (a few MB beside a base of many GB) names its base as peft does, in
    adapter_config.json: base_model_name_or_path and, for a hub id, revision.
    """
    configs = [folder / name / "adapter_config.json" for name in ("detector", "ivg")]
    found = [path for path in configs if path.is_file()]  # one adapter alone is enough
    if (folder / "config.json").is_file() or not found:
        return folder
    content = read_json(found[0])
    base, revision = content.get("base_model_name_or_path"), content.get("revision")
    if not isinstance(base, str) or not base:
        return folder
    return find_model(base, revision if isinstance(revision, str) and revision else None)


def demo_folder() -> Path:
    """The pictures that come with clue_ros, beside its models. Raises ModelError."""
    return _embedded(EMBEDDED[0]).parents[1] / "demo"


def _embedded(name: str) -> Path:
    for folder in _shares():
        if (folder / "models" / name).is_dir():
            return folder / "models" / name
    raise ModelError(
        f"the embedded model models/{name} is not here: install clue_ros from a full "
        "checkout of its repository"
    )


def _shares() -> Iterator[Path]:
    """A checkout's root, then the share folders of an installed package, nearest first."""
    here = Path(__file__).resolve()
    yield here.parents[2]
    for parent in Path(__file__).absolute().parents:
        yield parent / "share" / "clue_ros"
    for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep):
        if prefix:
            yield Path(prefix) / "share" / "clue_ros"
    yield Path(sys.prefix) / "share" / "clue_ros"


# -------------------------------------------------------------------------------------------------
# Check that the weights in a folder are the ones its config.json asks for.

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
    from safetensors import SafetensorError, safe_open

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
    import torch
    from transformers.models.paligemma.modeling_paligemma import (
        PaliGemmaForConditionalGeneration,
    )

    try:
        with torch.device("meta"):
            model = PaliGemmaForConditionalGeneration(config)
    except Exception as error:  # whatever a wrong size leads to
        raise ModelError(f"cannot use {folder / 'config.json'}: {first_line(error)}") from error
    tied = set(model._tied_weights_keys or {}) if config.tie_word_embeddings else set()
    shapes = {published_name(key): tuple(value.shape) for key, value in model.state_dict().items()}
    return shapes, {published_name(key) for key in tied}
