# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What model "wrapper" needs and what this machine has, before a detector or a model is fetched.

`inspect_wrapper` looks at each source of candidates and at the language model: files here and files
to download, types, Python packages, memory. `clue check --model wrapper` prints the report;
`Wrapper.load` refuses by it (`require_wrapper`), so that a wrong name or a missing package is said
before gigabytes of another part are downloaded.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clue_ros.errors import ModelError
from clue_ros.model.loading import (
    Shapes,
    first_line,
    is_hub_id,
    name_and_revision,
    read_json,
    read_shapes,
    weight_files,
)
from clue_ros.model.preflight import (
    QUANTISED,
    Report,
    Source,
    attempt,
    check_account,
    check_disk,
    check_versions,
    choose_place,
    find_source,
    gigabytes,
    inspect_model,
    installed,
    source_shapes,
)
from clue_ros.model.quantization import INT8, NF4, NONE, check_quantization
from clue_ros.requirements import install
from clue_ros.wrapper import WRAPPER
from clue_ros.wrapper.sources import CLUE, JsonSource, check_source, imported_function

if TYPE_CHECKING:
    from clue_ros.wrapper.language_model import WrapperSettings

RULES = "rules"
DETECTORS = ("grounding-dino", "owlv2")  # kinds of sources that are detectors of transformers
NEEDED = {"owlv2": ("scipy",)}  # Python packages beside transformers
OPTIONAL = ("bitsandbytes", "gguf", "scipy", "sentencepiece", "timm")
INSTALL = install("wrapper")
# What transformers fetches of a detector's or a language model's repository.
WANTED = ("*.json", "*.jinja", "model*.safetensors", "tokenizer.model", "vocab.txt", "merges.txt")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_BLOCK = re.compile(r"\.(layers|h|blocks)\.\d+\.")  # of a decoder: its matrices are quantised
_TOPIC = re.compile(r"[~/A-Za-z_{][\w~/{}]*(@clue_msgs)?")


@dataclass
class Part:
    """A source of candidates, or the language model.

    name: as it was given. kind: of a source as in its line; of a language model "rules", "hub id",
    "folder", "GGUF file" or "adapter". place: its folder, file or repository. model_type: of its
    config.json. base: the language model that an adapter was trained on. weights, adapters,
    activations: bytes in memory, weights None where unknown. facts: the rest, in a few words each.
    """

    name: str
    kind: str
    place: str = ""
    model_type: str = ""
    base: str = ""
    parameters: int | None = None
    weights: int | None = 0
    adapters: int = 0
    activations: int = 0
    facts: list[str] = field(default_factory=list)


@dataclass
class WrapperReport(Report):
    """What `inspect_wrapper` found. `problems` is empty where loading would work."""

    sources: list[Part] = field(default_factory=list)
    language_model: Part = field(default_factory=lambda: Part("", RULES))


def require_wrapper(candidates: Sequence[str], language_model: str | None, **choices: str) -> None:
    """Raise ModelError with the first reason why a wrapper could not be loaded, if there is one.

    Takes what `inspect_wrapper` takes. The hub is asked only about what is not in its cache.
    """
    report = inspect_wrapper(candidates, language_model, thorough=False, **choices)
    if report.problems:
        raise ModelError(report.problems[0])


def inspect_wrapper(
    candidates: Sequence[str],
    language_model: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str = NONE,
    thorough: bool = True,
) -> WrapperReport:
    """Collect what loading these sources and this language model needs.

    candidates: lines as in `clue_ros.wrapper.sources`. language_model: as for `LanguageModel.load`;
    None: rules. thorough: also JSON files, versions, and the hub's answer about what is cached; a
    `base:` or `clue:` source is left to its own check. Nothing is downloaded but a repository's
    config.json; the module of a `python:` source is imported. Never raises for what a person can
    mend: see `Report.problems`.
    """
    report = WrapperReport(WRAPPER, quantization=quantization, policies=(WRAPPER,))
    attempt(report, lambda: check_quantization(quantization))
    attempt(report, lambda: choose_place(report, device, dtype))
    for line in candidates:
        attempt(report, partial(_source, report, line, device, dtype, thorough))
    bytes_in: Callable[[str, str], int | None] = lambda dtype, quantization: 0  # noqa: E731
    if language_model:
        chooser = report.language_model = Part(str(language_model), "hub id", weights=None)
        sizes = _Sizes()
        step = partial(_language_model, report, chooser, sizes, thorough)
        attempt(report, step, f"language model {language_model}")
        bytes_in = sizes.bytes_in
    _add_up(report, bytes_in)
    check_disk(report)
    if thorough:
        for package in OPTIONAL:
            report.versions[package] = installed(package) or "not installed"
        check_versions(report)
        check_account(report)
    return report


# -------------------------------------------------------------------------------------------------
# Sources of candidates.


def _source(report: WrapperReport, line: str, device: str, dtype: str, thorough: bool) -> None:
    """One source. Raises ModelError for a line that names none."""
    kind, argument = check_source(line)
    part = Part(line, kind)
    report.sources.append(part)
    if kind in ("base", CLUE):
        if thorough:
            _base(report, part, argument, device, dtype)
        return
    steps: dict[str, Callable[[], None]] = {
        "json": lambda: _json(part, argument, thorough),
        "python": lambda: _python(part, argument),
        "topic": lambda: _topic(part, argument),
    }
    detector = partial(_detector, report, part, argument, thorough)
    attempt(report, steps.get(kind, detector), f"candidates {line}")


def _base(report: WrapperReport, part: Part, model: str, device: str, dtype: str) -> None:
    """A PaliGemma 2 that lists what it detects: `clue check`'s own report about it."""
    found = inspect_model(model, device=device, dtype=dtype)
    about = f"candidates {part.name}"
    for problem in found.problems:
        report.problem(f"{about}: {problem}")
    report.notes += [f"{about}: {note}" for note in found.notes if "policy" not in note]
    report.repositories += found.repositories
    part.model_type = "paligemma"
    if found.base is not None:
        part.place = str(found.base.folder or found.base.name)
        part.facts += [] if found.base.folder else ["not downloaded"]
    part.parameters = found.parameters
    memory = found.memory
    part.weights, part.adapters = memory.weights, memory.adapters
    part.activations = memory.activations or 0


def _json(part: Part, path: str, thorough: bool) -> None:
    """A file of boxes, which is read at each look. Raises ModelError."""
    part.place = str(Path(path).expanduser())
    if thorough:
        count = len(JsonSource(path).find(np.zeros((1, 1, 3), np.uint8), ()))
        part.facts.append(f"{count} {'box' if count == 1 else 'boxes'}")


def _python(part: Part, function: str) -> None:
    """A function of a module, which is imported. Raises ModelError."""
    part.place = str(getattr(imported_function(function), "__module__", "") or function)
    part.facts.append("callable")


def _topic(part: Part, argument: str) -> None:
    """A ROS topic. Raises ModelError."""
    if not _TOPIC.fullmatch(argument):
        raise ModelError(f"{argument!r} is no name of a ROS topic")
    part.facts.append("read by the perception node alone")
    if argument.endswith("@clue_msgs"):
        return
    found = find_spec("vision_msgs") is not None
    part.facts.append(f"vision_msgs {'installed' if found else 'not found'}")
    if not found and find_spec("rclpy") is not None:
        raise ModelError("the package vision_msgs is missing: ros-$ROS_DISTRO-vision-msgs")


def _detector(report: WrapperReport, part: Part, name: str, thorough: bool) -> None:
    """Grounding DINO or OWLv2. Raises ModelError."""
    for package in NEEDED.get(part.kind, ()):
        if installed(package) is None:
            report.problem(f"candidates {part.name}: {_missing(package)}")
    source, config = _repository(report, part, name, thorough)
    if config is None:
        return
    if part.model_type != part.kind:
        raise ModelError(f"{name} is a model of type {part.model_type}, want a {part.kind}")
    if _uses_timm(config) and installed("timm") is None:
        report.problem(f"candidates {part.name}: its backbone needs timm: pip install timm")
    shapes = _weights(source)
    part.parameters = _count(shapes, source)
    part.weights = 4 * part.parameters if part.parameters else _stored_bytes(source)
    for names, what in ((PROCESSORS, "image processor"), (TOKENIZERS, "tokenizer")):
        _require_one(source, names, what)


def _uses_timm(config: Mapping[str, Any]) -> bool:
    backbone = config.get("backbone_config")
    nested = isinstance(backbone, Mapping) and backbone.get("model_type") == "timm_backbone"
    return bool(config.get("use_timm_backbone")) or nested


def _missing(package: str) -> str:
    return f"the Python package {package} is missing: {INSTALL}"


# -------------------------------------------------------------------------------------------------
# The language model.


@dataclass
class _Sizes:
    """What the bytes of the language model's weights follow from."""

    shapes: Shapes | None = None
    count: int | None = None
    tied: bool = True

    def bytes_in(self, dtype: str, quantization: str) -> int | None:
        """Bytes of the weights in a number format; None where unknown."""
        itemsize = 4 if dtype == "float32" else 2
        if self.shapes is None:
            if self.count is None:
                return None
            small = QUANTISED[quantization] if quantization != NONE else itemsize
            return round(self.count * small)
        total = 0.0
        for name, shape in self.shapes.items():
            if self.tied and name.endswith("lm_head.weight"):
                continue
            quantised = quantization != NONE and len(shape) > 1 and _BLOCK.search(f".{name}")
            total += math.prod(shape) * (QUANTISED[quantization] if quantised else itemsize)
        return round(total)


def _language_model(report: WrapperReport, part: Part, sizes: _Sizes, thorough: bool) -> None:
    """A language model, or an adapter with its base. Raises ModelError."""
    from clue_ros.wrapper.language_model import ADAPTER_FILE

    name, folder = part.name, Path(part.name).expanduser()
    if (folder / ADAPTER_FILE).is_file():
        name = _adapter(part, folder)
    elif is_hub_id(name):
        name = _adapter_on_the_hub(report, part, thorough) or name
    if Path(name).suffix.lower() == ".gguf":
        name = _gguf(report, part, Path(name).expanduser(), sizes)
    if name:
        _causal(report, part, name, sizes, thorough)
    if report.dtype and report.quantization in (NONE, *QUANTISED):
        part.weights = sizes.bytes_in(report.dtype, report.quantization)


def _adapter(part: Part, folder: Path) -> str:
    """The folder of `clue train wrapper`: its settings and weights; returns its base's name."""
    from clue_ros.wrapper.language_model import ADAPTER_FILE, ADAPTER_WEIGHTS, load_settings

    part.kind, part.place = "adapter", str(folder)
    settings = load_settings(folder)
    weights = folder / ADAPTER_WEIGHTS
    if not weights.is_file():
        raise ModelError(f"{folder} has no {weights.name}: train it with `clue train wrapper`")
    part.adapters = 4 * sum(math.prod(shape) for shape in read_shapes(weights).values())
    _describe(part, settings, read_json(folder / ADAPTER_FILE), folder / ADAPTER_FILE)
    return part.base


def _adapter_on_the_hub(report: WrapperReport, part: Part, thorough: bool) -> str:
    """An adapter by hub id: its settings and weights; returns its base's name, or nothing."""
    from clue_ros.wrapper.language_model import (
        ADAPTER_FILE,
        ADAPTER_FILES,
        ADAPTER_WEIGHTS,
        SETTINGS_FILE,
        settings_from,
    )

    named, revision = name_and_revision(part.name)
    found = WrapperReport(WRAPPER)
    source = find_source(found, named, revision, ask=thorough, wanted=ADAPTER_FILES)
    if not source.has(ADAPTER_FILE):
        return ""  # a model, or the hub's answer about it will say what is wrong
    report.repositories += found.repositories
    report.notes += found.notes
    for problem in found.problems:
        report.problem(problem)
    part.kind, part.place = "adapter", source.name
    config = source.read(ADAPTER_FILE)
    content = source.read(SETTINGS_FILE) if source.has(SETTINGS_FILE) else {}
    if config is None or content is None or source.repository is None:
        raise ModelError(f"the hub does not give {source.name} to this account")
    if not source.has(ADAPTER_WEIGHTS):
        raise ModelError(f"{source.name} on the hub has no {ADAPTER_WEIGHTS}")
    sizes = {f.name: f.size or 0 for f in source.repository.files}
    part.adapters = sizes[ADAPTER_WEIGHTS]
    settings = settings_from(content, f"{source.name}/{SETTINGS_FILE}")
    _describe(part, settings, config, f"{source.name}/{ADAPTER_FILE}")
    return part.base


def _describe(
    part: Part, settings: WrapperSettings, config: Mapping[str, Any], path: object
) -> None:
    """What an adapter's settings and adapter_config.json say. Raises ModelError."""
    from clue_ros.wrapper.language_model import adapters_base

    rank, threshold = config.get("r"), settings.threshold
    part.facts += [f"LoRA of rank {rank}", f"asks from probability {threshold:.2f}"]
    if settings.candidates:
        part.facts.append(f"trained with {', '.join(settings.candidates)}")
    part.base = adapters_base(config, path)


def _gguf(report: WrapperReport, part: Part, path: Path, sizes: _Sizes) -> str:
    """A GGUF file; returns the folder of its converted copy, empty where there is none yet."""
    from clue_ros.wrapper.language_model import cache_folder, converted_folder

    if part.kind != "adapter":
        part.kind, part.place = "GGUF file", str(path)
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    folder = converted_folder(path)
    if (folder / "config.json").is_file():
        part.facts.append(f"converted copy in {folder}")
        return str(folder)
    part.facts.append("no converted copy yet")
    if installed("gguf") is None:
        raise ModelError(_missing("gguf"))
    if installed("sentencepiece") is None:
        report.notes.append(f"some tokenizers of GGUF files need sentencepiece: {INSTALL}")
    part.model_type, sizes.count, config = _read_gguf(path)
    part.activations = _activations(config, 4 if report.dtype == "float32" else 2)
    part.parameters = sizes.count
    room, place = 2 * sizes.count, cache_folder()
    while not place.exists():
        place = place.parent
    part.facts.append(f"conversion writes {gigabytes(room)}")
    free = shutil.disk_usage(place).free
    if room > free:
        raise ModelError(
            f"its conversion writes {gigabytes(room)}, and the disk of {cache_folder()} has"
            f" {gigabytes(free)} free: free some, or set XDG_CACHE_HOME to a folder elsewhere"
        )
    return ""


# A config.json's names of what a GGUF file's header calls ARCHITECTURE.name.
_GGUF_NAMES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}


def _read_gguf(path: Path) -> tuple[str, int, dict[str, Any]]:
    """Architecture, number of parameters and sizes in a GGUF file's header. Raises ModelError."""
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    try:
        reader = GGUFReader(path)
        kind = str(reader.fields["general.architecture"].contents())
        count = sum(int(tensor.n_elements) for tensor in reader.tensors)
        found = {name: reader.fields.get(f"{kind}.{key}") for name, key in _GGUF_NAMES.items()}
        config = {name: value.contents() for name, value in found.items() if value is not None}
        config["vocab_size"] = len(reader.fields["tokenizer.ggml.tokens"].data)
    except Exception as error:  # whatever the reader makes of a broken file
        raise ModelError(f"cannot read {path} as a GGUF file: {first_line(error)}") from error
    if kind not in GGUF_SUPPORTED_ARCHITECTURES:
        raise ModelError(f"{path.name} is a {kind}, which transformers does not read from GGUF")
    return kind, count, config


def _causal(report: WrapperReport, part: Part, name: str, sizes: _Sizes, thorough: bool) -> None:
    """A causal language model of transformers by hub id or folder. Raises ModelError."""
    from transformers import __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    source, config = _repository(report, part, name, thorough)
    if config is None:
        return
    if part.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(
            f"{name} is a model of type {part.model_type}, no causal language model that"
            f" transformers {__version__} knows (code of a repository is not run)"
        )
    sizes.shapes = _weights(source)
    sizes.tied = bool(config.get("tie_word_embeddings", False))
    part.parameters = sizes.count = _count(sizes.shapes, source)
    part.activations = _activations(config, 4 if report.dtype == "float32" else 2)
    _require_one(source, TOKENIZERS, "tokenizer")
    slow = source.has("tokenizer.model") and not source.has("tokenizer.json")
    if slow and installed("sentencepiece") is None:
        report.problem(f"language model {part.name}: {_missing('sentencepiece')}")


def _activations(config: Mapping[str, Any], itemsize: int) -> int:
    """Roughly the bytes beside the weights for the longest prompt; 0 where the config is unusual.

    For T tokens, D, M, L the width, MLP width and blocks, K the width of keys and values, V the
    vocabulary: T (6 D + 3 M) numbers of the dtype, three copies of the cache of 2 T L K, and a row
    of V logits in float32. A formula, not a measurement.
    """
    from clue_ros.wrapper.language_model import MAX_PROMPT

    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    try:
        width, blocks = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        keys = int(config.get("num_key_value_heads") or heads)
        keys *= int(config.get("head_dim") or width // heads)
        inner = int(config.get("intermediate_size") or 4 * width)
        vocabulary = int(config["vocab_size"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0
    numbers = MAX_PROMPT * (6 * width + 3 * inner + 3 * 2 * blocks * keys)
    return numbers * itemsize + 4 * vocabulary


# -------------------------------------------------------------------------------------------------
# Repositories and folders of transformers.


def _repository(
    report: WrapperReport, part: Part, name: str, thorough: bool
) -> tuple[Source, dict[str, Any] | None]:
    """Where a model of transformers lies, and its config.json; None where access is refused."""
    named, revision = name_and_revision(name)
    try:
        source = find_source(report, named, revision, ask=thorough, wanted=WANTED)
    except ModelError as error:
        raise ModelError(f"no folder and no hub id {name!r}") from error
    repository = source.repository
    if repository is not None:
        # Of a copy in the cache nothing is fetched; folders of a repository never are.
        repository.files = tuple(
            f for f in repository.files if "/" not in f.name and (f.cached or not source.folder)
        )
    if source.folder is None:
        part.place = part.place or source.name
        part.facts.append("not downloaded")
        if repository is None or repository.problem or not repository.files:
            return source, None  # said already
    else:
        part.place = part.place or str(source.folder)
        if part.kind == "hub id" and repository is None and Path(named).is_dir():
            part.kind = "folder"
    if not source.has("config.json"):
        raise ModelError(f"{source.folder or source.name} has no config.json")
    config = source.read("config.json")
    if config is None:
        report.problem(repository.problem if repository else "")
    else:
        part.model_type = str(config.get("model_type", "unknown"))
    return source, config


def _weights(source: Source) -> Shapes | None:
    """Names and shapes of the weights; None where they cannot be asked for. Raises ModelError."""
    repository = source.repository
    remote = repository.files if source.folder is None and repository is not None else None
    if remote is not None and not any(f.name.endswith(".safetensors") for f in remote):
        raise ModelError(f"{source.name} on the hub has no safetensors: nothing else is loaded")
    return source_shapes(source)


def _count(shapes: Shapes | None, source: Source) -> int | None:
    if shapes is not None:
        return sum(math.prod(shape) for shape in shapes.values())
    return source.repository.parameters if source.repository is not None else None


def _stored_bytes(source: Source) -> int | None:
    """Bytes of the weights' files, where their number is unknown: detectors are in float32."""
    if source.folder is not None:
        return sum(path.stat().st_size for path in weight_files(source.folder))
    files = source.repository.files if source.repository is not None else ()
    return sum(f.size or 0 for f in files if f.name.endswith(".safetensors")) or None


def _require_one(source: Source, names: Sequence[str], what: str) -> None:
    """Raises ModelError where a model has none of these files."""
    if not any(source.has(name) for name in names):
        place = source.folder or f"{source.name} on the hub"
        raise ModelError(f"{place} has no {what} ({' or '.join(names)})")


# -------------------------------------------------------------------------------------------------
# Memory of all parts together.


def _add_up(report: WrapperReport, bytes_in: Callable[[str, str], int | None]) -> None:
    """Fill `report.memory`, and note a problem where the weights do not fit.

    bytes_in: the language model's weights in a number format with a quantization.
    """
    if not report.device_name:
        return
    import torch

    from clue_ros.model.devices import free_memory

    parts = [*report.sources, report.language_model]
    memory = report.memory
    weights = sum(part.weights or 0 for part in parts)
    memory.adapters = sum(part.adapters for part in parts)
    memory.free = free_memory(torch.device(report.device))
    known = weights + memory.adapters
    # The detectors and the language model run one after another.
    memory.activations = max(part.activations for part in parts)
    counts = [part.parameters for part in parts if part.parameters is not None]
    report.parameters = sum(counts) if counts else None
    unknown = [part.name for part in parts if part.weights is None]
    memory.weights = None if unknown else weights
    if unknown:
        report.notes.append(f"memory needed is unknown: that of {', '.join(unknown)} is")
    if memory.free is None or known <= memory.free:
        return
    others = known - (report.language_model.weights or 0)
    fitting = []
    for quantization in (NONE, INT8, NF4):
        size = bytes_in("bfloat16", quantization) if report.language_model.weights else None
        if size is not None and others + size <= memory.free:
            form = "--dtype bfloat16"
            form += f" --quantization {quantization}" if quantization != NONE else ""
            fitting.append(f"{form} ({gigabytes(others + size)})")
    where = "on the GPU" if report.device.startswith("cuda") else "in RAM"
    advice = f"use {' or '.join(fitting)}" if fitting else "end other programs on it"
    report.problem(
        f"detectors and language model take {gigabytes(known)}, and there are"
        f" {gigabytes(memory.free)} free {where}: {advice}"
    )


def lines(report: WrapperReport) -> list[tuple[str, str]]:
    """The parts for a terminal, each with the name of its line."""
    out = [("candidates", _described(part)) for part in report.sources]
    chooser = report.language_model
    if chooser.kind == RULES:
        return [*out, ("chooser", "rules, no language model")]
    return [*out, ("chooser", _described(chooser))]


def _described(part: Part) -> str:
    facts = [part.kind] if part.kind not in part.name else []
    facts += [part.model_type] if part.model_type and part.model_type != part.kind else []
    facts += [f"on {part.base}"] if part.base else []
    facts += [f"{part.parameters / 1e6:.1f} M parameters"] if part.parameters else []
    facts += [gigabytes(part.weights + part.adapters)] if part.weights else []
    facts += [f"in {part.place}"] if part.place and part.place not in part.name else []
    return f"{part.name}: {', '.join(facts + part.facts)}".removesuffix(": ")
