# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compares a model's needs with this machine, before weights are fetched or read.

`inspect_model` fills a `Report`: the parts of a model and where they lie (`hub`), their bytes in
memory (`sizing`), the files to download, the hub's answer. What cannot work is a sentence in
`Report.problems`. `clue check` prints the report; `load_checkpoint` refuses by it (`require`), so
that a load that must fail does so before the download of gigabytes. `clue_ros.wrapper.preflight`
fills the same report with the parts of model "wrapper".

Weights count as loading holds them, with the copies that adapters are merged into; activations are
a rough formula. The process itself (Python, torch, transformers) takes some 0.7 GB more.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.backbone import JOINT
from clue_ros.model.box_head import WEIGHTS_FILE as BOX_HEAD
from clue_ros.model.config import read_config
from clue_ros.model.fusion import SETTINGS_FILE
from clue_ros.model.hub import (
    ADAPTER_FILE,
    ADAPTER_WEIGHTS,
    ADAPTERS,
    DETECTOR,
    IVG,
    WANTED,
    Repository,
    Source,
    UnreachableError,
    ask_api,
    find_source,
)
from clue_ros.model.load_options import OPENVINO, TORCH, LoadOptions
from clue_ros.model.loading import (
    LOGIN,
    MASK_DECODER,
    check_config,
    check_weights,
    named_base,
    read_json,
)
from clue_ros.model.lora import PICKLED, check_adapter_config, no_file, read_folder
from clue_ros.model.quantization import INT8, NF4, NONE, check_quantization
from clue_ros.model.shapes import weight_shapes
from clue_ros.model.sizing import Weights, activation_bytes, adapter_bytes, gigabytes, itemsize

PACKAGES = ("safetensors", "tokenizers", "huggingface_hub")
OF_TORCH = ("torch", "transformers", "peft", "accelerate")
PROJECTIONS = 2 / 3  # share of the decoder's projections in PaliGemma 2 3B's parameters
WORDS = 64  # tokens of a prompt beside the image's


@dataclass
class Part:
    """A model, a source of candidates, or a language model.

    name: as it was given. kind: "base"; of a source as in its line; of a language model "rules",
    "hub id", "folder", "GGUF file", "adapter" or "server". place: its folder, file or repository.
    model_type: of its config.json. base: the language model that an adapter was trained on.
    weights, adapters, activations: bytes in memory, None where unknown. facts: the rest, in a few
    words each. sizes: what the weights' bytes follow from, where their format can be chosen.
    """

    name: str
    kind: str
    place: str = ""
    model_type: str = ""
    base: str = ""
    parameters: int | None = None
    weights: int | None = 0
    adapters: int = 0
    activations: int | None = 0
    facts: list[str] = field(default_factory=list)
    sizes: Weights | None = None


@dataclass
class Memory:
    """Bytes: what all parts take on their device, and what is free there. None where unknown."""

    weights: int | None = None
    adapters: int = 0
    activations: int | None = None
    free: int | None = None
    needed: int | None = None


@dataclass
class Report:
    """The report about a model. `problems` is empty if loading would work.

    thorough: asked for by a person, so also the adapters' files, versions, and the hub's answer
    about what is cached. parts: the model; or a wrapper's sources, and its language model at the
    end. base, adapters: of the model, where its weights and its adapters lie.
    """

    model: str
    thorough: bool = True
    quantization: str = NONE
    parts: list[Part] = field(default_factory=list)
    base: Source | None = None
    adapters: dict[str, Source] = field(default_factory=dict)
    mask_decoder: str = ""
    policies: tuple[str, ...] = ()
    backend: str = ""
    device: str = ""
    device_name: str = ""
    dtype: str = ""
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

    def require(self) -> None:
        """Raises ModelError with the first problem, if there is one."""
        if self.problems:
            raise ModelError(self.problems[0])

    @contextmanager
    def attempt(self, about: str = "") -> Iterator[None]:
        """Take an error that a person can mend as a problem. about: the part, said before it."""
        try:
            yield
        except ModelError as error:
            # The download itself knows more about a half download without a network.
            if self.thorough or not isinstance(error, UnreachableError):
                self.problem(f"{about}: {error}" if about else str(error))

    def find(
        self, name: str | Path, revision: str | None, wanted: Sequence[str] = WANTED
    ) -> Source:
        """Return a part's place (`find_source`) with the hub's facts. Raises ModelError."""
        source = find_source(name, revision, wanted, ask=self.thorough)
        repository = source.repository
        if repository is not None:
            self.repositories.append(repository)
            if source.folder is not None and repository.problem:
                unasked = f"the hub cannot be reached to ask about {repository.name}"
                told = repository.problem if repository.reachable else unasked
                self.notes.append(f"{told}; the copy in the cache will do")
        return source

    def choose_place(self, options: LoadOptions) -> None:
        """Set the backend, the device and the number format. Raises ModelError."""
        from clue_ros.model.devices import choose_backend, choose_device, choose_dtype, device_name

        self.device, self.backend = options.device, choose_backend(options)
        if self.backend == OPENVINO:
            from clue_ros.model.openvino_backbone import choose_precision

            self.device, self.device_name = "cpu", device_name("cpu")
            self.dtype = choose_precision(options.dtype)
            return
        place = choose_device(options.device)
        self.device, self.device_name = str(place), device_name(str(place))
        self.dtype = str(choose_dtype(options.dtype, place)).removeprefix("torch.")


def require(options: LoadOptions) -> None:
    """Raise ModelError with the first reason why a model could not be loaded, if there is one.

    The hub is asked only about what is not in its cache.
    """
    inspect_model(options, thorough=False).require()


def inspect_model(options: LoadOptions, *, thorough: bool = True) -> Report:
    """Collect what loading a model needs; of the options what decides is not looked at.

    Nothing is loaded, and nothing downloaded but a repository's config.json and
    adapter_config.json. Never raises for what a person can mend: see `Report.problems`.
    """
    from clue_ros.model.detector_baselines import BASELINES

    part = Part(str(options.model), "base", model_type="paligemma", weights=None, activations=None)
    config = None
    report = Report(str(options.model), thorough, options.quantization, [part])
    with report.attempt():
        check_quantization(options.quantization)
    with report.attempt():
        report.choose_place(options)
    with report.attempt():
        config = _find(report, part, options)
        _check_backend(report, config, options)
    what = {DETECTOR: f"adapter A (or name one of {', '.join(BASELINES)})", IVG: "adapter B"}
    given = ((DETECTOR, options.detector), (IVG, options.ivg))
    for name, path in given:
        if path is not None and str(path) not in BASELINES:
            folder = Path(path).expanduser()
            if folder.is_dir():
                report.adapters[name] = Source(str(folder), folder)
            else:
                report.problem(f"there is no folder {folder} with {what[name]}")
    if options.mask_decoder is not None:
        report.mask_decoder = str(options.mask_decoder)
        if not Path(options.mask_decoder).expanduser().is_file():
            report.problem(f"there is no mask decoder {options.mask_decoder}")
    if thorough:
        _check_adapters(report, str(options.detector) in BASELINES)
    if config is not None or any(each.problem for each in report.repositories):
        with report.attempt():
            _weigh(report, part, config)
    too_much = compare_memory(report)
    if too_much and options.device == "auto" and report.device.startswith("cuda"):
        report.notes.append(f"{too_much}: the model would run on the CPU, slowly")
        with report.attempt():
            report.choose_place(replace(options, device="cpu"))
            _weigh(report, part, config)
        too_much = compare_memory(report)
    report.problem(too_much)
    finish(report)
    return report


# -------------------------------------------------------------------------------------------------
# Base and adapters.


def _find(report: Report, part: Part, options: LoadOptions) -> Any:
    """Find the base and the adapters; returns the configuration as loading has it.

    A folder of adapters names its base. Raises ModelError.
    """
    source = report.find(options.model, options.revision)
    report.adapters = {
        name: source.part(name)
        for name in ADAPTERS
        if source.has(f"{name}/{ADAPTER_FILE}") or Path(source.place, name).is_dir()
    }
    if source.has(f"{JOINT}/{ADAPTER_FILE}"):  # one for both, and before them
        report.adapters = dict.fromkeys(ADAPTERS, source.part(JOINT))
    if source.has(MASK_DECODER):
        report.mask_decoder = MASK_DECODER
    configs = [f"{name}/{ADAPTER_FILE}" for name in (*ADAPTERS, JOINT)]
    found = next((name for name in configs if source.has(name)), None)
    if found is not None and not source.has("config.json"):
        named = named_base(source.read(found))
        if named is None:
            raise ModelError(f"{source.name}: {found} does not say which base it was trained on")
        source = report.find(*named)
    elif not source.has("config.json") and source.folder is None and source.files:
        raise ModelError(
            f"{source.name} on the hub is neither a model (it has no config.json) nor adapters"
            f" of CLUE (it has no {configs[0]} and no {configs[1]})"
        )
    report.base, part.place = source, source.place
    part.facts += ["not downloaded"] if source.folder is None else []
    path = source.fetch("config.json")
    content = read_json(path)
    check_config(path if source.folder is not None else source.name, content)
    if report.backend == TORCH:
        from clue_ros.model.export import check_no_export

        check_no_export(path.parent, content)
    return read_config(path.parent)


def _check_backend(report: Report, config: Any, options: LoadOptions) -> None:
    """Choose torch as loading does (`open_backbone`). Raises ModelError where it may not."""
    from clue_ros.model.openvino_backbone import is_left_to_torch, unsupported

    if report.backend != OPENVINO:
        return
    asked, reason = options.backend == OPENVINO, unsupported(config)
    if reason and asked:
        raise ModelError(f"OpenVINO cannot run {report.parts[0].place}: {reason}")
    if reason:
        report.notes.append(f"OpenVINO cannot run it ({reason}): torch does")
    if reason or (not asked and is_left_to_torch(config, options.dtype)):
        report.choose_place(replace(options, backend=TORCH))


def _check_adapters(report: Report, is_baseline: bool) -> None:
    """The policies that the adapters allow (`Checkpoint.policies`), and their files.

    is_baseline: a detector without a folder takes the place of the model's own.
    """
    detector = None if is_baseline else report.adapters.get(DETECTOR)
    judges, speaks = is_baseline or detector is not None, IVG in report.adapters
    policies = ["zero-shot", "detector"] if judges or speaks else ["zero-shot"]
    if speaks and detector and detector.has(SETTINGS_FILE):
        policies += ["decoder", "both"]
    elif speaks and judges:
        policies = ["zero-shot", "decoder", "detector"]
        report.notes.append("policy both has no fit (`clue train policy`): detector decides")
    elif speaks:
        policies += ["decoder"]
    elif judges:
        report.notes.append("no adapter B: the model judges, and can neither ask nor point")
    report.policies = tuple(policies) if report.base is not None else ()
    for name, adapter in report.adapters.items():
        missing = [f for f in (f"{name}.json", ADAPTER_FILE, ADAPTER_WEIGHTS) if not adapter.has(f)]
        for file in missing:
            report.problem(no_file(adapter.place, file, pickled=adapter.has(PICKLED)))
        if ADAPTER_FILE not in missing:
            with report.attempt():
                config = adapter.read(ADAPTER_FILE)
                check_adapter_config(f"{adapter.place}/{ADAPTER_FILE}", config)
                if adapter.folder is not None and ADAPTER_WEIGHTS not in missing:
                    read_folder(adapter.folder)


# -------------------------------------------------------------------------------------------------
# Memory.


def _weigh(report: Report, part: Part, config: Any) -> None:
    """Fill the model's bytes as loading holds it. Raises ModelError for missing or broken weights.

    config: None where the hub does not give it.
    """
    if report.base is None or not report.dtype:
        return
    tied = config is None or bool(config.tie_word_embeddings)
    weights = part.sizes = Weights.of(report.base, tied=tied, share=PROJECTIONS)
    part.parameters = weights.count
    part.weights = weights.bytes_in(report.dtype, report.quantization)
    part.adapters = sum(map(adapter_bytes, report.adapters.values()))
    part.adapters += report.base.size(BOX_HEAD) or 0
    if config is None:
        return
    if report.base.folder is not None:
        check_weights(report.base.folder, weight_shapes(config))
    text, vision = config.text_config, config.vision_config
    tokens = (vision.image_size // vision.patch_size) ** 2 + WORDS
    part.activations = activation_bytes(vars(text), tokens, itemsize(report.dtype), eager=True)
    header = weights.header
    merges = report.backend == OPENVINO and not weights.exported
    if merges and part.weights is not None and header is not None:
        from clue_ros.model.openvino_backbone import merged_bytes

        shapes = {name: stored.shape for name, stored in header.items()}
        part.weights += merged_bytes(shapes, report.dtype) * len(report.adapters)


def compare_memory(report: Report) -> str:
    """Add up the parts' bytes; why they do not fit, with the forms that would, or nothing."""
    if not report.dtype:
        return ""
    from clue_ros.model.devices import free_memory

    memory, parts = report.memory, report.parts
    memory.adapters = sum(part.adapters for part in parts)
    memory.free = free_memory(report.device)
    taken = sum(part.weights or 0 for part in parts) + memory.adapters
    activations = [part.activations for part in parts if part.activations is not None]
    memory.activations = max(activations, default=None)  # the parts run one after another
    unknown = [part.name for part in parts if part.weights is None]
    if not unknown:
        memory.weights = taken - memory.adapters
        memory.needed = taken + (memory.activations or 0)
    elif len(parts) > 1:
        report.notes.append(f"memory needed is unknown: that of {', '.join(unknown)} is")
    if memory.free is None:
        return ""
    where = "on the GPU" if report.device.startswith("cuda") else "in RAM"
    free = f"{gigabytes(memory.free)} free {where}"
    if taken <= memory.free:
        if memory.needed is not None and memory.needed > memory.free:
            needed = gigabytes(memory.needed)
            report.notes.append(f"{needed} with activations, {free}: it may run out of memory")
        return ""
    form = report.dtype if report.quantization == NONE else f"{report.dtype}, {report.quantization}"
    what = f"the weights take {gigabytes(taken)} as {form}"
    if len(parts) > 1:
        what = f"detectors and language model take {gigabytes(taken)}"
    fitting = _fitting(parts[-1], taken, memory.free, report.dtype)
    advice = f"use {' or '.join(fitting)}" if fitting else "end other programs on it"
    return f"{what}, and there are {free}: {advice}"


def _fitting(part: Part, taken: int, free: int, dtype: str) -> list[str]:
    """The smaller forms of a part with which all parts fit, as options, each with all bytes."""
    out = []
    for quantization in (NONE, INT8, NF4):
        size = part.sizes.bytes_in("bfloat16", quantization) if part.sizes is not None else None
        total = taken - (part.weights or 0) + (size or 0)
        if size is not None and total <= free:
            options = [] if dtype == "bfloat16" else ["--dtype bfloat16"]
            options += [] if quantization == NONE else [f"--quantization {quantization}"]
            out.append(f"{' '.join(options)} ({gigabytes(total)})")
    return out


# -------------------------------------------------------------------------------------------------
# Disk, versions and account.


def finish(report: Report, optional: Sequence[str] = ()) -> None:
    """Add the facts that all parts share. optional: packages whose versions to add, if there."""
    if report.download:
        from huggingface_hub import constants

        report.disk_folder, report.disk_free = disk_free(Path(constants.HF_HUB_CACHE))
        if report.download > report.disk_free:
            report.problem(
                f"the download takes {gigabytes(report.download)} and the disk of"
                f" {report.disk_folder} has {gigabytes(report.disk_free)} free: free some, or set"
                " HF_HOME to a folder elsewhere"
            )
    if report.thorough:
        _check_versions(report, optional)
        _check_account(report)


def disk_free(folder: Path) -> tuple[str, int]:
    """The first folder on the way to this one that exists, and the bytes free on its disk."""
    folder = folder.expanduser()
    while not folder.exists():
        folder = folder.parent
    return str(folder), shutil.disk_usage(folder).free


def _check_versions(report: Report, optional: Sequence[str]) -> None:
    """The packages' versions, and what torch can compute on."""
    more = ["bitsandbytes"] if report.quantization != NONE else []  # `check_quantization` says so
    needed = ("openvino", *PACKAGES) if report.backend == OPENVINO else (*PACKAGES, *OF_TORCH)
    for name in dict.fromkeys((*optional, *needed, *more)):
        report.versions[name] = installed(name) or "not installed"
        if name in needed and installed(name) is None:
            report.problem(f"the Python package {name} is missing: pip install {name}")
    if report.backend == OPENVINO or installed("torch") is None:
        return
    import torch

    report.versions["CUDA"] = torch.version.cuda or "not in this torch"
    if torch.version.cuda is None and Path("/dev/nvidiactl").exists():
        report.notes.append(
            "there is an NVIDIA driver, and this torch has no CUDA (CLUE_TORCH_INDEX)"
        )


def installed(package: str) -> str | None:
    """The version of a Python package; None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_account(report: Report) -> None:
    """The account on the hub, if the hub answers and there is a token."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import HfHubHTTPError

    token = get_token()
    if token is None or not any(each.reachable for each in report.repositories):
        return
    try:
        report.logged_in = str(ask_api("whoami-v2", token).json().get("name", ""))
    except HfHubHTTPError:
        report.notes.append(f"the hub refuses the token on this machine: log in again with {LOGIN}")
    except Exception:  # noqa: BLE001 - the account's name is no condition
        report.notes.append("the hub did not say whose token this is")
