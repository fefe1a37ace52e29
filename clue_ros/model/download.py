"""Models from the Hugging Face hub: fetched once, then cached; every failure is one sentence.

Nothing here imports torch.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clue_ros.errors import ModelError
from clue_ros.model.files import first_line, read_json

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
