"""Where a model's files are: the embedded one, a folder, or the Hugging Face hub.

Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from clue_ros.errors import ModelError
from clue_ros.model.download import download
from clue_ros.model.files import read_json

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
    adapter = folder / "detector" / "adapter_config.json"
    if (folder / "config.json").is_file() or not adapter.is_file():
        return folder
    content = read_json(adapter)
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
