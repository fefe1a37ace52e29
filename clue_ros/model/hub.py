# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What the Hugging Face hub says about a repository, and what of it is in the cache already.

Nothing here downloads weights, and nothing blocks: each question has a time limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from clue_ros.model.loading import (
    gated_message,
    unreachable_message,
    weight_files,
    why_not_fetched,
)

T = TypeVar("T")

TIMEOUT = 5.0  # seconds that the hub gets for one answer
WANTED = ("*.json", "*.safetensors")  # what is fetched of a repository
ADAPTERS = ("detector", "ivg")


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
    """

    name: str
    revision: str | None
    reachable: bool = False
    commit: str | None = None
    gated: str = ""
    licence: str = ""
    access: bool | None = None
    parameters: int | None = None
    kind: str = ""  # model_type, where the hub tells
    files: tuple[RemoteFile, ...] = ()
    problem: str = ""  # why it cannot be fetched, or empty


def cached_snapshot(name: str, revision: str | None, wanted: Sequence[str] = WANTED) -> Path | None:
    """A repository's whole snapshot in the cache, or None. wanted: patterns of its files."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                name, revision=revision, allow_patterns=[*wanted], local_files_only=True
            )
        )
        if (folder / "config.json").is_file():
            weight_files(folder)
        elif not any((folder / a / "adapter_model.safetensors").is_file() for a in ADAPTERS):
            return None
    except Exception:  # noqa: BLE001 - whatever it is, it is not there whole
        return None
    return folder


def ask_hub(name: str, revision: str | None, wanted: Sequence[str] = WANTED) -> Repository:
    """What the hub says about a repository; `problem` says why it cannot be fetched.

    wanted: patterns of the files that loading fetches.
    """
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
    tags = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    out.licence = tags[0] if tags else ""
    out.kind = str((info.config or {}).get("model_type", ""))
    if info.safetensors is not None:
        out.parameters = int(info.safetensors.total)
    out.files = tuple(
        RemoteFile(
            f.rfilename,
            f.size,
            isinstance(
                try_to_load_from_cache(name, f.rfilename, revision=info.sha or revision), str
            ),
        )
        for f in info.siblings or ()
        if any(fnmatch(f.rfilename, pattern) for pattern in wanted)
    )
    if out.gated:
        _check_access(out)
    return out


def _check_access(repository: Repository) -> None:
    """Whether this account may fetch a gated repository's files."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import GatedRepoError

    name = repository.name
    if get_token() is None:
        repository.access, repository.problem = False, gated_message(name)
        return
    try:
        within(TIMEOUT, lambda: HfApi().auth_check(name))
        repository.access = True
    except GatedRepoError:
        repository.access, repository.problem = False, gated_message(name)
    except Exception as error:  # noqa: BLE001 - the client raises what its network library does
        repository.problem = why_not_fetched(name, repository.revision, error)


def within(seconds: float, call: Callable[[], T]) -> T:
    """A call of the hub's client that has no time limit of its own. Raises TimeoutError."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(f"the hub did not answer within {seconds:g} s")
    return done[0]
