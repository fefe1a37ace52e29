"""Where a model's files are: the embedded one, a folder, or the Hugging Face hub.

Nothing here imports torch.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from clue_ros.errors import ModelError
from clue_ros.model.files import first_line, read_json

EMBEDDED = "tabletop"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def find_model(model: str | Path) -> Path:
    """The folder of a model: "tabletop", a folder, or a hub id (downloaded once, then cached).

    Raises ModelError.
    """
    text = str(model)
    if text == EMBEDDED:
        return _embedded()
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        return folder
    if isinstance(model, str) and _HUB_ID.fullmatch(text):
        return _download(text)
    raise ModelError(
        f"no model {text!r}: want {EMBEDDED!r}, a model folder, or a hub id such as owner/name"
    )


def find_base(folder: Path) -> Path:
    """The folder with the backbone's weights: `folder`, or the base its adapters were trained on.

    A folder of adapters alone (a few MB beside a base of many GB) names its base as peft does, in
    adapter_config.json.
    """
    adapter = folder / "detector" / "adapter_config.json"
    if (folder / "config.json").is_file() or not adapter.is_file():
        return folder
    base = read_json(adapter).get("base_model_name_or_path")
    return find_model(base) if isinstance(base, str) and base else folder


def _embedded() -> Path:
    for folder in _shares():
        if (folder / "models" / EMBEDDED).is_dir():
            return folder / "models" / EMBEDDED
    raise ModelError(
        f"the embedded model models/{EMBEDDED} is not here: install clue_ros from a full "
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


def _download(name: str) -> Path:
    """Fetch the safetensors and JSON files of a hub model. Every failure becomes one sentence."""
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name} is gated: accept its licence on https://huggingface.co/{name}, then run "
            "`huggingface-cli login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"there is no folder {name} here and no model {name} on the hub (if it is private: "
            "`huggingface-cli login`)"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ModelError(
            f"there is no folder {name} here, and the hub cannot be reached to download it: "
            "check the network,"
            " or give a folder that holds the model"
        ) from error
    except Exception as error:  # the hub's client raises what its network library raises
        raise ModelError(f"cannot download {name} from the hub: {first_line(error)}") from error
