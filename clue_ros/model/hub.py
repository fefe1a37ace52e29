# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Finds the parts of a model: in a folder, in the hub's cache, or on the Hugging Face hub.

Nothing here downloads weights, and nothing blocks: each question has a time limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import (
    Stored,
    gated_message,
    local_or_hub,
    read_header,
    read_json,
    unreachable_message,
    weight_files,
    why_not_fetched,
)

TIMEOUT = 5.0  # seconds that the hub gets for one answer
WANTED = ("*.json", "*.safetensors")  # what is fetched of a repository
ADAPTERS = DETECTOR, IVG = "detector", "ivg"
ADAPTER_FILE, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a hub repository that loading needs. size: bytes, None where the hub gave none."""

    name: str
    size: int | None
    cached: bool


@dataclass
class Repository:
    """A hub repository: what the hub says about it.

    reachable: whether the hub answered. gated, licence: as the hub has them, "" where unknown.
    access: whether this account may fetch files, None where unknown. parameters: of the weights.
    kind: model_type, where the hub tells. problem: why it cannot be fetched, or empty.
    """

    name: str
    revision: str | None
    reachable: bool = False
    commit: str | None = None
    gated: str = ""
    licence: str = ""
    access: bool | None = None
    parameters: int | None = None
    kind: str = ""
    files: tuple[RemoteFile, ...] = ()
    problem: str = ""


class UnreachableError(ModelError):
    """The hub does not answer."""


@dataclass(frozen=True)
class Source:
    """A part of a model: in a folder, else (folder None) in a hub repository.

    repository: of a cached folder too, if the hub was asked. inside: the path in it, with a / at
    its end.
    """

    name: str
    folder: Path | None
    repository: Repository | None = None
    inside: str = ""

    @property
    def place(self) -> str:
        """The folder, else the repository's name."""
        return str(self.folder or self.name)

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """The repository's."""
        return self.repository.files if self.repository is not None else ()

    def part(self, name: str) -> Source:
        """A folder in it."""
        folder = self.folder / name if self.folder else None
        return Source(f"{self.name}/{name}", folder, self.repository, f"{self.inside}{name}/")

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where there is none."""
        if self.folder is not None:
            path = self.folder / name
            return path.stat().st_size if path.is_file() else None
        return next((f.size or 0 for f in self.files if f.name == self.inside + name), None)

    def has(self, name: str) -> bool:
        """Whether it has a file."""
        return self.size(name) is not None

    def read(self, name: str) -> dict[str, Any]:
        """A small JSON file's content (`fetch`). Raises ModelError for a broken one too."""
        return read_json(self.fetch(name))

    def fetch(self, name: str) -> Path:
        """The path of a small file, fetched where it is not here.

        Raises ModelError where the hub has none or does not give it.
        """
        if self.folder is not None:
            return self.folder / name
        remote = self.repository
        assert remote is not None
        if remote.problem:
            kind = ModelError if remote.reachable else UnreachableError
            raise kind(remote.problem)
        if not self.has(name):
            raise ModelError(f"{self.name} has no {name}")
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(remote.name, self.inside + name, revision=remote.revision))
        except Exception as error:  # the client raises what its network library does
            remote.access = False
            remote.problem = why_not_fetched(remote.name, remote.revision, error)
            raise ModelError(remote.problem) from error

    def header(self) -> dict[str, Stored] | None:
        """The weights by their published names; None where the hub does not tell.

        Raises ModelError for missing or broken files.
        """
        if self.folder is not None:
            paths = weight_files(self.folder)
            return {name: stored for path in paths for name, stored in read_header(path).items()}
        remote = self.repository
        if remote is None or remote.problem:
            return None
        if not any(fnmatch(file.name, "model*.safetensors") for file in self.files):
            raise ModelError(f"{self.name} on the hub has no safetensors: nothing else is loaded")
        from huggingface_hub import get_safetensors_metadata

        try:
            told = get_safetensors_metadata(remote.name, revision=remote.revision, timeout=TIMEOUT)
        except Exception:  # noqa: BLE001 - a count of parameters will do
            return None
        files = told.files_metadata.values()
        return {n: Stored(tuple(t.shape), t.dtype) for f in files for n, t in f.tensors.items()}


def find_source(
    model: str | Path, revision: str | None, wanted: Sequence[str] = WANTED, *, ask: bool
) -> Source:
    """A folder, or a hub repository and what the hub says about it.

    wanted: patterns of the files that loading fetches. ask: about what is in the cache too. Raises
    ModelError for a name that is neither.
    """
    found = local_or_hub(model, revision)
    if isinstance(found, Path):
        return Source(str(model), found)
    folder = _cached_snapshot(*found, wanted)
    asked = _ask_hub(*found, wanted) if ask or folder is None else None
    return Source(found[0], folder, asked)


def _cached_snapshot(name: str, revision: str | None, wanted: Sequence[str]) -> Path | None:
    """A repository's whole snapshot in the cache, or None."""
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            name, revision=revision, allow_patterns=[*wanted], local_files_only=True
        )
        folder = Path(found)
        if (folder / "config.json").is_file():
            weight_files(folder)
    except Exception:  # noqa: BLE001 - whatever it is, it is not there whole
        return None
    needed = ("config.json", *(f"{part}{ADAPTER_WEIGHTS}" for part in ("", "detector/", "ivg/")))
    return folder if any((folder / file).is_file() for file in needed) else None


def _ask_hub(name: str, revision: str | None, wanted: Sequence[str]) -> Repository:
    """The hub's facts about a repository."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    out = Repository(name, revision)
    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT)
    except Exception as error:  # noqa: BLE001 - the client raises what its network library does
        out.reachable = isinstance(error, HfHubHTTPError)
        told = why_not_fetched(name, revision, error) if out.reachable else ""
        out.problem = told or unreachable_message(name, revision)
        return out
    out.reachable, out.commit, out.gated = True, info.sha, str(info.gated or "")
    licences = [tag for tag in info.tags or () if tag.startswith("license:")]
    out.licence = licences[0].removeprefix("license:") if licences else ""
    out.kind = str((info.config or {}).get("model_type", ""))
    out.parameters = int(info.safetensors.total) if info.safetensors is not None else None

    def is_cached(file: str) -> bool:
        path = try_to_load_from_cache(name, file, revision=info.sha or revision)
        return isinstance(path, str)

    out.files = tuple(
        RemoteFile(file.rfilename, file.size, is_cached(file.rfilename))
        for file in info.siblings or ()
        if any(fnmatch(file.rfilename, pattern) for pattern in wanted)
    )
    if out.gated:
        _check_access(out)
    return out


def _check_access(repository: Repository) -> None:
    """Whether this account may fetch a gated repository's files."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import GatedRepoError

    name, token = repository.name, get_token()
    repository.access, repository.problem = False, gated_message(name)
    if token is None:
        return
    try:
        ask_api(f"models/{name}/auth-check", token)
        repository.access, repository.problem = True, ""
    except GatedRepoError:
        return
    except Exception as error:  # noqa: BLE001 - the client raises what its network library does
        repository.access = None
        repository.problem = why_not_fetched(name, repository.revision, error)


def ask_api(path: str, token: str) -> Any:
    """The hub's response where its client would wait without an end. Raises as the client does."""
    from huggingface_hub import constants, get_session, hf_raise_for_status

    url, headers = f"{constants.ENDPOINT}/api/{path}", {"authorization": f"Bearer {token}"}
    response = get_session().get(url, headers=headers, timeout=TIMEOUT)
    hf_raise_for_status(response)
    return response
