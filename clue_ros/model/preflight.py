# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What a model needs and what this machine has: known before weights are fetched or read.

`inspect_model` collects it: the parts of a model and where they lie, the files to download, memory
and disk, the hub's answer. What cannot work is a sentence in `Report.problems`. `clue check` prints
the report; `load_checkpoint` refuses by it (`require`), so that a load that must fail does so
before the download of gigabytes.

Memory is estimated: weights from the shapes in the safetensors' headers (or the hub's count of
parameters) by number format and quantization; activations by the rough formula of
`activation_bytes`. The process itself (Python, torch, transformers) takes some 0.7 GB more.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clue_ros.errors import ModelError
from clue_ros.model.fusion import SETTINGS_FILE
from clue_ros.model.hub import (
    ADAPTERS,
    TIMEOUT,
    WANTED,
    Repository,
    ask_hub,
    cached_snapshot,
    within,
)
from clue_ros.model.loading import (
    LOGIN,
    MASK_DECODER,
    Shapes,
    check_config,
    local_or_hub,
    named_base,
    read_json,
    read_shapes,
    weight_files,
    why_not_fetched,
)
from clue_ros.model.quantization import INT8, NF4, NONE, check_quantization

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

PARTS = {"detector": "adapter A", "ivg": "adapter B"}
PACKAGES = ("torch", "transformers", "peft", "safetensors", "huggingface_hub", "accelerate")
# The decoder's projections, which are quantised, and their share in PaliGemma 2 3B's parameters.
_PROJECTION = re.compile(r"language_model.*\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight$")
_SHARE = 2 / 3
# Bytes of a quantised weight: nf4 has 4 bits and, for each 64 of them, a scale of 8 bits.
QUANTISED = {INT8: 1.0, NF4: 0.5 + 1 / 64 + 4 / (64 * 256)}


@dataclass
class Source:
    """Where a part of a model lies: in a folder, in a hub repository, or in both (cached)."""

    name: str
    folder: Path | None = None
    repository: Repository | None = None

    def has(self, name: str) -> bool:
        """Whether it has a file."""
        if self.folder is not None:
            return (self.folder / name).is_file()
        return self.repository is not None and any(f.name == name for f in self.repository.files)

    def read(self, name: str) -> dict[str, Any] | None:
        """A small JSON file, fetched where it is not here; None where access is refused.

        Raises ModelError for a broken one.
        """
        if self.folder is not None:
            return read_json(self.folder / name)
        repository = self.repository
        assert repository is not None
        from huggingface_hub import hf_hub_download

        try:
            path = hf_hub_download(repository.name, name, revision=repository.revision)
        except Exception as error:  # noqa: BLE001 - the client raises what its network library does
            repository.access = False
            repository.problem = repository.problem or why_not_fetched(
                repository.name, repository.revision, error
            )
            return None
        return read_json(Path(path))


@dataclass
class Memory:
    """Bytes: what a model takes on its device, and what is free there. None where unknown."""

    weights: int | None = None
    adapters: int = 0
    activations: int | None = None
    free: int | None = None

    @property
    def needed(self) -> int | None:
        """Weights, adapters and activations."""
        if self.weights is None:
            return None
        return self.weights + self.adapters + (self.activations or 0)


@dataclass
class Report:
    """What `inspect_model` found. `problems` is empty where loading would work."""

    model: str
    base: Source | None = None
    adapters: dict[str, str] = field(default_factory=dict)  # adapter: folder or repository
    policies: tuple[str, ...] = ()
    device: str = ""
    device_name: str = ""
    dtype: str = ""
    quantization: str = NONE
    mask_decoder: str = ""
    parameters: int | None = None
    memory: Memory = field(default_factory=Memory)
    repositories: list[Repository] = field(default_factory=list)
    disk_folder: str = ""
    disk_free: int | None = None
    logged_in: str | None = None  # name of the hub account
    versions: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def download(self) -> int:
        """Bytes to be fetched."""
        return sum(f.size or 0 for r in self.repositories for f in r.files if not f.cached)

    def problem(self, text: str) -> None:
        """Note why loading would fail, once."""
        if text and text not in self.problems:
            self.problems.append(text)


def require(model: str | Path, **choices: Any) -> None:
    """Raise ModelError with the first reason why a model could not be loaded, if there is one.

    Takes what `inspect_model` takes. The hub is asked only about what is not in its cache.
    """
    report = inspect_model(model, thorough=False, **choices)
    if report.problems:
        raise ModelError(report.problems[0])


def inspect_model(
    model: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str = "auto",
    quantization: str = NONE,
    revision: str | None = None,
    detector: str | Path | None = None,
    ivg: str | Path | None = None,
    mask_decoder: str | Path | None = None,
    thorough: bool = True,
) -> Report:
    """Collect what loading a model with these choices (those of `Clue.load`) needs.

    thorough: also the adapters' files, versions, and the hub's answer about what is cached. Nothing
    is loaded, and nothing downloaded but a repository's config.json and adapter_config.json. Never
    raises for what a person can mend: see `Report.problems`.
    """
    from clue_ros.model.detector_baselines import BASELINES

    report = Report(str(model), quantization=quantization)
    attempt(report, lambda: check_quantization(quantization))
    attempt(report, lambda: choose_place(report, device, dtype))
    is_model = attempt(report, lambda: _find(report, model, revision, ask=thorough))
    named = {"detector": detector, "ivg": ivg}
    for name, path in named.items():
        if path is not None and str(path) not in BASELINES:
            attempt(report, partial(_given, report, name, path, BASELINES))
    if mask_decoder is not None:
        report.mask_decoder = str(mask_decoder)
        if not Path(mask_decoder).expanduser().is_file():
            report.problem(f"there is no mask decoder {mask_decoder}")
    if thorough:
        attempt(report, lambda: _check_adapters(report, named, BASELINES))
        attempt(report, lambda: _check_export(report, named))
        check_versions(report)
    if is_model:
        attempt(report, lambda: _check_memory(report, dtype, auto=str(device) == "auto"))
    check_disk(report)
    if thorough:
        check_account(report)
    return report


def attempt(report: Report, step: Callable[[], None], about: str = "") -> bool:
    """Do a step; an error that a person can mend becomes a problem. Returns whether it was done.

    about: the part of the model that the step concerns, said before the problem.
    """
    try:
        step()
    except ModelError as error:
        report.problem(f"{about}: {error}" if about else str(error))
        return False
    return True


def choose_place(report: Report, device: str | torch.device, dtype: str) -> None:
    """The device and the number format."""
    from clue_ros.model.devices import choose_device, choose_dtype, device_name

    report.device = str(device)
    place = choose_device(device) if isinstance(device, str) else device
    report.device, report.device_name = str(place), device_name(place)
    report.dtype = str(choose_dtype(dtype, place)).removeprefix("torch.")


# -------------------------------------------------------------------------------------------------
# Where the parts are.


def _find(report: Report, model: str | Path, revision: str | None, *, ask: bool) -> None:
    """The model's folder or repository, and its base where it is a folder of adapters."""
    source = find_source(report, model, revision, ask=ask)
    report.adapters = {
        name: f"{source.folder / name}" if source.folder else f"{source.name}/{name}"
        for name in ADAPTERS
        if source.has(f"{name}/adapter_config.json")
        or (source.folder is not None and (source.folder / name).is_dir())
    }
    report.base = source
    if source.has(MASK_DECODER):
        report.mask_decoder = MASK_DECODER
    if source.has("config.json"):
        _check_kind(report, source)
        return
    configs = [f"{name}/adapter_config.json" for name in ADAPTERS]
    found = next((name for name in configs if source.has(name)), None)
    if found is None:
        if source.folder is not None:
            raise ModelError(f"{source.folder} has no config.json")
        if source.repository is not None and source.repository.files:
            raise ModelError(
                f"{source.name} on the hub is neither a model (it has no config.json) nor adapters"
                f" of CLUE (it has no {configs[0]} and no {configs[1]})"
            )
        return
    content = source.read(found)
    if content is None:
        report.problem(source.repository.problem if source.repository else "")
        return
    named = named_base(content)
    if named is None:
        raise ModelError(f"{source.name}: {found} does not say which base it was trained on")
    report.base = find_source(report, *named, ask=ask)
    _check_kind(report, report.base)


def find_source(
    report: Report,
    model: str | Path,
    revision: str | None,
    *,
    ask: bool,
    wanted: Sequence[str] = WANTED,
) -> Source:
    """A folder, or a hub repository with what the hub says about it.

    ask: of what is in the cache too. wanted: patterns of the files that loading fetches. Raises
    ModelError for a name that is neither.
    """
    found = local_or_hub(model, revision)
    if isinstance(found, Path):
        return Source(str(model), found)
    name, revision = found
    source = Source(name, cached_snapshot(name, revision, wanted))
    if source.folder is None or ask:
        source.repository = ask_hub(name, revision, wanted)
        report.repositories.append(source.repository)
        if source.folder is None:
            # Of a half download without a network the download itself knows more.
            if ask or source.repository.reachable:
                report.problem(source.repository.problem)
        elif source.repository.problem:
            unasked = f"the hub cannot be reached to ask about {name}"
            told = source.repository.problem if source.repository.reachable else unasked
            report.notes.append(f"{told}; the copy in the cache will do")
    return source


def _check_kind(report: Report, base: Source) -> None:
    """Raises ModelError where the base is no PaliGemma 2."""
    repository = base.repository
    if base.folder is None and repository is not None:
        if repository.problem or not repository.files:
            return  # said already
        if repository.kind not in ("", "paligemma"):
            kind = repository.kind
            raise ModelError(f"{base.name} on the hub is a model of type {kind}, want a paligemma")
    content = base.read("config.json")
    if content is None:
        report.problem(repository.problem if repository else "")
        return
    check_config(base.folder / "config.json" if base.folder else base.name, content)
    remote = repository.files if base.folder is None and repository is not None else None
    if remote is not None and not any(fnmatch(f.name, "model*.safetensors") for f in remote):
        raise ModelError(f"{base.name} on the hub has no safetensors: nothing else is loaded")


# -------------------------------------------------------------------------------------------------
# Adapters and policy.


def _given(report: Report, name: str, path: str | Path, baselines: Iterable[str]) -> None:
    """An adapter's folder that the caller named."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        or_else = f" (or name one of {', '.join(baselines)})" if name == "detector" else ""
        raise ModelError(f"there is no folder {folder} with {PARTS[name]}{or_else}")
    report.adapters[name] = str(folder)


def _check_adapters(
    report: Report,
    named: Mapping[str, str | Path | None],
    baselines: Collection[str],
) -> None:
    """The adapters' files, and the policies that they allow (`Checkpoint.policies`)."""
    has_detector = "detector" in report.adapters or str(named["detector"]) in baselines
    allowed: tuple[str, ...] = ()
    if "ivg" in report.adapters:
        allowed = ("detector", "decoder")
        place = report.adapters.get("detector", "")
        if has_detector and place and _there(report, place, SETTINGS_FILE):
            allowed = ("detector", "decoder", "both")
        elif has_detector:
            allowed = ("decoder", "detector")
            report.notes.append("policy both has no fit (`clue train policy`): detector decides")
    elif has_detector:
        allowed = ("detector",)
        report.notes.append("no adapter B: the model judges, and can neither ask nor point")
    if report.base is not None:
        report.policies = ("zero-shot", *allowed)
    for name, place in report.adapters.items():
        settings = {"detector": "detector.json", "ivg": "ivg.json"}[name]
        for file in (settings, "adapter_config.json", "adapter_model.safetensors"):
            if not _there(report, place, file):
                report.problem(f"{place} has no {file}: train this adapter with `clue train`")


def _there(report: Report, place: str, file: str) -> bool:
    if Path(place).is_dir():
        return (Path(place) / file).is_file()
    listed = {f"{r.name}/{f.name}" for r in report.repositories for f in r.files}
    return f"{place}/{file}" in listed


def _check_export(report: Report, named: Mapping[str, str | Path | None]) -> None:
    """OpenVINO and the graphs, where they would run. Raises ModelError."""
    from clue_ros.model.exported import import_openvino, is_export, read_export

    folder = report.base.folder if report.base is not None else None
    plain = report.device != "cpu" or report.quantization != NONE
    if folder is None or plain or not is_export(folder):
        return
    import_openvino()
    read_export(folder, [name for name, path in named.items() if path is None])
    report.notes.append("OpenVINO runs it (`clue export`)")


# -------------------------------------------------------------------------------------------------
# Memory and disk.


def weights_bytes(shapes: Shapes, itemsize: int, quantization: str = NONE) -> int:
    """Bytes of a PaliGemma's weights on a device, from their published names and shapes.

    itemsize: bytes of a number of the dtype. The tied head counts once.
    """
    total = 0.0
    for name, shape in shapes.items():
        if name.endswith("lm_head.weight"):
            continue
        count = math.prod(shape)
        small = quantization != NONE and _PROJECTION.search(name) is not None
        total += count * (QUANTISED[quantization] if small else itemsize)
    return round(total)


def activation_bytes(config: Mapping[str, Any], itemsize: int, words: int = 64) -> int | None:
    """Roughly the bytes that one image and one request take beside the weights; None if unknown.

    With T tokens (the image's, and 64 words), D, M, L the decoder's width, MLP width and blocks, K
    the width of its keys and values: T (6 D + 3 M + 2 L K) numbers of the dtype, the attention of
    one block (heads x T x T) and one row of logits in float32. A formula, not a measurement.
    """
    text, vision = config.get("text_config", {}), config.get("vision_config", {})
    # What the published configuration leaves out is Gemma 2's default in transformers.
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    defaults |= {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26}
    try:
        get = {name: int(text.get(name, value)) for name, value in defaults.items()}
        patches = (int(vision["image_size"]) // int(vision["patch_size"])) ** 2
        vocabulary = int(text.get("vocab_size") or config.get("vocab_size") or 257_216)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    tokens = patches + words
    cache = 2 * get["num_hidden_layers"] * get["num_key_value_heads"] * get["head_dim"]
    numbers = tokens * (6 * get["hidden_size"] + 3 * get["intermediate_size"] + cache)
    return numbers * itemsize + 4 * (get["num_attention_heads"] * tokens**2 + vocabulary)


def source_shapes(base: Source) -> Shapes | None:
    """The shapes of the base's weights from their headers; None where they cannot be asked for.

    Raises ModelError for missing or broken files.
    """
    found: dict[str, tuple[int, ...]] = {}
    if base.folder is not None:
        for path in weight_files(base.folder):
            found.update(read_shapes(path))
        return found
    repository = base.repository
    if repository is None or repository.problem or repository.access is False:
        return None
    from huggingface_hub import get_safetensors_metadata

    try:
        told = get_safetensors_metadata(
            repository.name, revision=repository.revision, timeout=TIMEOUT
        )
    except Exception:  # noqa: BLE001 - a count of parameters will do
        return None
    for file in told.files_metadata.values():
        found.update({name: tuple(tensor.shape) for name, tensor in file.tensors.items()})
    return found


def _check_memory(report: Report, dtype: str, *, auto: bool) -> None:
    """Fill `report.memory`, and note a problem where the weights do not fit."""
    base = report.base
    if base is None or not report.dtype:
        return
    repository = base.repository
    shapes = source_shapes(base)
    count = repository.parameters if repository is not None else None
    if shapes is not None:
        count = sum(
            math.prod(shape) for n, shape in shapes.items() if not n.endswith("lm_head.weight")
        )
    report.parameters = count
    memory = report.memory

    def bytes_in(dtype: str, quantization: str) -> int | None:
        itemsize = _itemsize(dtype)
        if shapes is not None:
            return weights_bytes(shapes, itemsize, quantization)
        if count is None:
            return None
        small = _SHARE if quantization != NONE else 0.0
        return round(count * ((1 - small) * itemsize + small * QUANTISED.get(quantization, 0)))

    memory.weights = bytes_in(report.dtype, report.quantization)
    memory.adapters = _adapter_bytes(report)
    refused = repository is not None and base.folder is None and bool(repository.problem)
    config = None if refused or not base.has("config.json") else base.read("config.json")
    if config is not None:
        plain = shapes if report.quantization == NONE else None
        if plain is not None and _check_mixed(report, dtype, config, plain):
            memory.weights = bytes_in("bfloat16", NONE)
        memory.activations = activation_bytes(config, _itemsize(report.dtype))
    too_much = _compare(report, bytes_in)
    if too_much and auto and report.device.startswith("cuda"):
        report.notes.append(f"{too_much}: the model would run on the CPU, slowly")
        choose_place(report, "cpu", dtype)
        _check_memory(report, dtype, auto=False)
    else:
        report.problem(too_much)


def _itemsize(dtype: str) -> int:
    """Bytes of a number of the weights; a small decoder's in mixed precision count as float32."""
    return 4 if dtype in ("float32", "mixed") else 2


def _check_mixed(report: Report, dtype: str, config: Mapping[str, Any], shapes: Shapes) -> bool:
    """Say so where loading takes mixed precision; whether most weights then have 16 bits."""
    import torch

    from clue_ros.model.config import lean_config
    from clue_ros.model.devices import MIXED, wants_mixed
    from clue_ros.model.lean import can_mix, is_mergeable

    if not wants_mixed(dtype, torch.device(report.device)):
        return False
    whole: Any = lean_config(config)
    if whole is None:
        from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

        try:
            whole = PaliGemmaConfig.from_dict(dict(config))
        except Exception:  # noqa: BLE001 - whatever a wrong value leads to; loading names it
            return False
    if not can_mix(whole, shapes):
        return False
    report.dtype = MIXED
    return not is_mergeable(shapes)


def _compare(report: Report, bytes_in: Callable[[str, str], int | None]) -> str:
    """Why the weights do not fit into the free memory, with the forms that would; or nothing."""
    import torch

    from clue_ros.model.devices import free_memory

    memory, device = report.memory, torch.device(report.device)
    memory.free = free_memory(device)
    if memory.needed is None or memory.weights is None or memory.free is None:
        return ""
    where = "on the GPU" if device.type == "cuda" else "in RAM"
    free = f"{gigabytes(memory.free)} free {where}"
    if memory.weights + memory.adapters <= memory.free:
        if memory.needed > memory.free:
            needed = gigabytes(memory.needed)
            report.notes.append(f"{needed} with activations, {free}: it may run out of memory")
        return ""
    fitting = []
    for dtype, quantization in (("bfloat16", NONE), ("bfloat16", INT8), ("bfloat16", NF4)):
        size = bytes_in(dtype, quantization)
        if size is not None and size + memory.adapters <= memory.free:
            form = f"--dtype {dtype}" if report.dtype != dtype else ""
            form += f" --quantization {quantization}" if quantization != NONE else ""
            fitting.append(f"{form.strip()} ({gigabytes(size)})")
    form = report.dtype if report.quantization == NONE else f"{report.dtype}, {report.quantization}"
    advice = f"use {' or '.join(fitting)}" if fitting else "end other programs on it"
    taken = gigabytes(memory.weights + memory.adapters)
    return f"the weights take {taken} as {form}, and there are {free}: {advice}"


def _adapter_bytes(report: Report) -> int:
    """Bytes of the adapters' files."""
    sizes = {f"{r.name}/{f.name}": f.size or 0 for r in report.repositories for f in r.files}
    total = 0
    for place in report.adapters.values():
        path = Path(place) / "adapter_model.safetensors"
        total += path.stat().st_size if path.is_file() else sizes.get(path.as_posix(), 0)
    return total


def check_disk(report: Report) -> None:
    """The room for the download in the hub's cache."""
    if not report.download:
        return
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).expanduser()
    while not folder.exists():
        folder = folder.parent
    report.disk_folder, report.disk_free = str(folder), shutil.disk_usage(folder).free
    if report.download > report.disk_free:
        report.problem(
            f"the download takes {gigabytes(report.download)} and the disk of {folder} has"
            f" {gigabytes(report.disk_free)} free: free some, or set HF_HOME to a folder elsewhere"
        )


# -------------------------------------------------------------------------------------------------
# Account and versions.


def check_account(report: Report) -> None:
    """The account on the hub, if the hub answers and there is a token."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    if not any(repository.reachable for repository in report.repositories):
        return
    if get_token() is None:
        return
    try:
        report.logged_in = str(within(TIMEOUT, lambda: HfApi().whoami()).get("name", ""))
    except HfHubHTTPError:
        report.notes.append(f"the hub refuses the token on this machine: log in again with {LOGIN}")
    except Exception:  # noqa: BLE001 - the account's name is no condition
        report.notes.append("the hub did not say whose token this is")


def check_versions(report: Report) -> None:
    """The packages' versions, and what torch can compute on."""
    import torch

    packages = [*PACKAGES, "bitsandbytes"] if report.quantization != NONE else PACKAGES
    for name in packages:
        report.versions[name] = installed(name) or "not installed"
        if installed(name) is None and name != "bitsandbytes":  # `check_quantization` says so
            report.problem(f"the Python package {name} is missing: pip install {name}")
    report.versions["CUDA"] = torch.version.cuda or "not in this torch"
    if torch.version.cuda is None and Path("/dev/nvidiactl").exists():
        report.notes.append(
            "there is an NVIDIA driver, and this torch has no CUDA (CLUE_TORCH_INDEX)"
        )


def installed(package: str) -> str | None:
    """The version of a Python package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def gigabytes(size: int | None) -> str:
    """A size for people, in units of 10^9 or 10^6 bytes."""
    if size is None:
        return "unknown"
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
