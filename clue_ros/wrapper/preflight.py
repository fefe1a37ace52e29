# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compares the needs of model "wrapper" with this machine, before anything is downloaded.

`inspect_wrapper` adds each source of candidates and the language model to a `Report` of
`clue_ros.model.preflight`: files here and files to download, types, Python packages, memory. `clue
check --model wrapper` prints it. `Wrapper.load` refuses by it (`require_wrapper`), so a wrong name
or a missing package is named before gigabytes of another part are downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.errors import ModelError
from clue_ros.model.hub import ADAPTER_FILE, ADAPTER_WEIGHTS, Source
from clue_ros.model.load_options import TORCH, LoadOptions
from clue_ros.model.loading import (
    check_sizes,
    first_line,
    imported_function,
    name_and_revision,
)
from clue_ros.model.lora import PICKLED, check_adapter_config, no_file
from clue_ros.model.preflight import (
    Part,
    Report,
    compare_memory,
    disk_free,
    finish,
    inspect_model,
    installed,
)
from clue_ros.model.quantization import NONE, check_quantization
from clue_ros.model.sizing import Weights, activation_bytes, adapter_bytes, gigabytes, itemsize
from clue_ros.requirements import install
from clue_ros.wrapper import WRAPPER, is_address
from clue_ros.wrapper.detector_kinds import DETECTORS, OWLV2, wrong_model
from clue_ros.wrapper.sources import CLUE, JsonSource, check_source

RULES = "rules"
OPTIONAL = ("bitsandbytes", "gguf", "scipy", "sentencepiece", "timm")
INSTALL = install("wrapper")
# The files that transformers and peft fetch from a repository.
WANTED = ("*.json", "*.jinja", "model*.safetensors", "tokenizer.model", "vocab.txt", "merges.txt",
          ADAPTER_WEIGHTS, PICKLED)  # fmt: skip
ADAPTER_FILES = ("wrapper.json", ADAPTER_FILE, ADAPTER_WEIGHTS, PICKLED)
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TOPIC = re.compile(r"[~/A-Za-z_{][\w~/{}]*(?:@(clue_msgs|vision_msgs|yolo_msgs))?")


def require_wrapper(options: LoadOptions) -> None:
    """Raise ModelError with the first reason why a wrapper could not be loaded, if there is one.

    The hub is asked only about what is not in its cache.
    """
    inspect_wrapper(options, thorough=False).require()


def inspect_wrapper(options: LoadOptions, *, thorough: bool = True) -> Report:
    """Collect what loading these sources and this language model needs.

    options: of candidates that are no lines nothing is inspected. thorough: also JSON files,
    versions, and the hub's answer about what is cached; a `base:` or `clue:` source is left to its
    own check. Nothing is downloaded but a repository's config.json; the module of a `python:`
    source is imported. Never raises for what a person can mend: see `Report.problems`.
    """
    report = Report(WRAPPER, thorough, options.quantization, policies=(WRAPPER,))
    with report.attempt():
        check_quantization(options.quantization)
    named = str(options.language_model or "")
    kinds = {line.partition(":")[0] for line in options.candidates if isinstance(line, str)}
    if kinds & {*DETECTORS} or (named and not is_address(named)):  # rules need no torch
        options = replace(options, backend=TORCH)
    with report.attempt():
        report.choose_place(options)
    for line in (c for c in options.candidates if isinstance(c, str)):
        with report.attempt():
            kind, argument = check_source(line)
            part = Part(line, kind)
            report.parts.append(part)
            with report.attempt(f"candidates {line}"):
                if kind not in ("base", CLUE):
                    _SOURCES[kind](report, part, argument)
                elif thorough:
                    _base(
                        report,
                        part,
                        inspect_model(
                            LoadOptions(argument, device=options.device, dtype=options.dtype)
                        ),
                    )
    report.parts.append(Part("", RULES))
    if named:
        report.parts[-1] = part = Part(named, "hub id", weights=None)
        with report.attempt(f"language model {named}"):
            _language_model(report, part, named)
    report.problem(compare_memory(report))
    finish(report, OPTIONAL)
    return report


# -------------------------------------------------------------------------------------------------
# Sources of candidates.


def _base(report: Report, part: Part, found: Report) -> None:
    """A PaliGemma 2 that lists what it detects: `clue check`'s own report about it."""
    about = f"candidates {part.name}"
    for problem in found.problems:
        report.problem(f"{about}: {problem}")
    report.notes += [f"{about}: {note}" for note in found.notes if "policy" not in note]
    report.repositories += found.repositories
    own = found.parts[0]
    part.place, part.model_type, part.facts = own.place, own.model_type, own.facts
    part.parameters, part.activations = own.parameters, own.activations
    part.weights, part.adapters = own.weights, own.adapters


def _json(report: Report, part: Part, path: str) -> None:
    """A file of boxes, which is read at each look. Raises ModelError."""
    part.place = str(Path(path).expanduser())
    if report.thorough:
        count = len(JsonSource(path).find(np.zeros((1, 1, 3), np.uint8), ()))
        part.facts.append(f"{count} {'box' if count == 1 else 'boxes'}")


def _python(_: Report, part: Part, function: str) -> None:
    """A function of a module, which is imported. Raises ModelError."""
    part.place = str(getattr(imported_function(function), "__module__", "") or function)
    part.facts.append("callable")


def _topic(_: Report, part: Part, topic: str) -> None:
    """A ROS topic. Raises ModelError."""
    match = _TOPIC.fullmatch(topic)
    if match is None:
        raise ModelError(f"{topic!r} is no name of a ROS topic")
    part.facts.append("read by the perception node alone")
    if match[1] == "clue_msgs":
        return
    packages = (match[1],) if match[1] else ("vision_msgs", "yolo_msgs")
    found = [package for package in packages if find_spec(package) is not None]
    part.facts += [f"{p} {'installed' if p in found else 'not found'}" for p in packages]
    if not found and find_spec("rclpy") is not None:
        advice = (
            "build it with yolo_ros" if match[1] == "yolo_msgs" else "ros-$ROS_DISTRO-vision-msgs"
        )
        raise ModelError(f"the package {packages[0]} is missing: {advice}")


def _detector(report: Report, part: Part, name: str) -> None:
    """Grounding DINO, OWLv2 or Florence-2. Raises ModelError."""
    if part.kind == OWLV2:
        _need(report, f"candidates {part.name}", "scipy")
    source = _find(report, part, name)
    config = _config(part, source)
    if problem := wrong_model(name, part.kind, config):
        raise ModelError(problem)
    backbone = config.get("backbone_config")
    nested = isinstance(backbone, Mapping) and backbone.get("model_type") == "timm_backbone"
    if (config.get("use_timm_backbone") or nested) and installed("timm") is None:
        report.problem(f"candidates {part.name}: its backbone needs timm: pip install timm")
    weights = Weights.of(source, tied=False)
    part.parameters, part.weights = weights.count, weights.bytes_in("float32", NONE)
    if part.weights is None and source.repository is not None:
        stored = (f.size or 0 for f in source.repository.files if f.name.endswith(".safetensors"))
        part.weights = sum(stored) or None
    _need_file(source, PROCESSORS, "image processor")
    _need_file(source, TOKENIZERS, "tokenizer")


_SOURCES = {
    "json": _json,
    "python": _python,
    "topic": _topic,
    **dict.fromkeys(DETECTORS, _detector),
}


# -------------------------------------------------------------------------------------------------
# The language model.


def _server(report: Report, part: Part, line: str) -> None:
    """A server's address, and where a person asks, whether it answers. Raises ModelError."""
    from clue_ros.wrapper.served_model import chosen_model, read_address, served_models

    part.kind, part.weights = "server", 0
    address = read_address(line)
    if report.thorough:
        part.facts.append(f"serves {chosen_model(address, served_models(address))}")


def _language_model(report: Report, part: Part, name: str) -> None:
    """A server, a language model, or an adapter with its base. Raises ModelError."""
    if is_address(name):
        _server(report, part, name)
        return
    if Path(name).suffix.lower() == ".gguf":
        folder = _gguf(report, part, Path(name).expanduser())
        if folder is not None:
            _causal(report, part, Source(str(folder), folder))
        return
    source = _find(report, part, name)
    if source.has(ADAPTER_FILE) and part.kind != "adapter":
        _adapter(part, source)
        _language_model(report, part, part.base)
    else:
        _causal(report, part, source)


def _adapter(part: Part, source: Source) -> None:
    """An adapter of `clue train wrapper`: its weights, settings and base. Raises ModelError."""
    from clue_ros.wrapper.language_model import SETTINGS_FILE, adapters_base, settings_from

    part.kind = "adapter"
    config = source.read(ADAPTER_FILE)
    check_adapter_config(f"{source.place}/{ADAPTER_FILE}", config, alone=True)
    content = source.read(SETTINGS_FILE) if source.has(SETTINGS_FILE) else {}
    settings = settings_from(content, f"{source.place}/{SETTINGS_FILE}")
    if source.has(ADAPTER_WEIGHTS):
        part.adapters = adapter_bytes(source)
    elif source.has(PICKLED):
        part.adapters = source.size(PICKLED) or 0
        part.facts.append(f"{PICKLED}, of which tensors alone are unpickled")
    else:
        raise ModelError(no_file(source.place, ADAPTER_WEIGHTS, pickled=False))
    part.facts += [
        f"LoRA of rank {config.get('r')}", f"asks from probability {settings.threshold:.2f}"
    ]  # fmt: skip
    if settings.candidates:
        part.facts.append(f"trained with {', '.join(settings.candidates)}")
    part.base = adapters_base(config, f"{source.place}/{ADAPTER_FILE}")


def _causal(report: Report, part: Part, source: Source) -> None:
    """A causal language model of transformers. Raises ModelError."""
    from transformers import __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config = _config(part, source)
    if part.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(
            f"{source.name} is a model of type {part.model_type}, no causal language model that"
            f" transformers {__version__} knows (code of a repository is not run)"
        )
    text = config.get("text_config")
    sizes = Weights.of(source, tied=bool(config.get("tie_word_embeddings")))
    _weigh(report, part, sizes, text if isinstance(text, Mapping) else config)
    _need_file(source, TOKENIZERS, "tokenizer")
    if source.has("tokenizer.model") and not source.has("tokenizer.json"):
        _need(report, f"language model {part.name}", "sentencepiece")


def _weigh(report: Report, part: Part, weights: Weights, config: Mapping[str, Any]) -> None:
    """The language model's bytes, activations for the longest prompt."""
    from clue_ros.wrapper.language_model import MAX_PROMPT

    part.sizes, part.parameters = weights, weights.count
    part.activations = activation_bytes(config, MAX_PROMPT, itemsize(report.dtype), caches=3)
    if report.dtype:
        part.weights = weights.bytes_in(report.dtype, report.quantization)


# A config.json's names of what a GGUF file's header calls ARCHITECTURE.name.
_GGUF_NAMES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}


def _gguf(report: Report, part: Part, path: Path) -> Path | None:
    """A GGUF file; returns the folder of its converted copy, if there is one. Raises ModelError."""
    from clue_ros.wrapper.language_model import cache_folder, converted_folder

    if part.kind != "adapter":
        part.kind, part.place = "GGUF file", str(path)
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    folder = converted_folder(path)
    if (folder / "config.json").is_file():
        part.facts.append(f"converted copy in {folder}")
        return folder
    part.facts.append("no converted copy yet")
    if installed("gguf") is None:
        raise ModelError(_missing("gguf"))
    if installed("sentencepiece") is None:
        report.notes.append(f"some tokenizers of GGUF files need sentencepiece: {INSTALL}")
    part.model_type, count, config = _read_gguf(path)
    _weigh(report, part, Weights(None, count), config)
    room, (_, free) = 2 * count, disk_free(cache_folder())
    part.facts.append(f"conversion writes {gigabytes(room)}")
    if room > free:
        raise ModelError(
            f"its conversion writes {gigabytes(room)}, and the disk of {cache_folder()} has"
            f" {gigabytes(free)} free: free some, or set XDG_CACHE_HOME to a folder elsewhere"
        )
    return None


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
    check_sizes(path, config)
    if kind not in GGUF_SUPPORTED_ARCHITECTURES:
        raise ModelError(f"{path.name} is a {kind}, which transformers does not read from GGUF")
    return kind, count, config


# -------------------------------------------------------------------------------------------------
# Repositories and folders of transformers.


def _find(report: Report, part: Part, name: str) -> Source:
    """Return the place of a model of transformers or an adapter. Raises ModelError."""
    named, revision = name_and_revision(name)
    try:
        source = report.find(named, revision, WANTED)
    except ModelError as error:
        raise ModelError(f"no folder and no hub id {name!r}") from error
    part.place = part.place or source.place
    if source.folder is None and "not downloaded" not in part.facts:
        part.facts.append("not downloaded")
    if part.kind == "hub id" and Path(named).is_dir():
        part.kind = "folder"
    repository, is_adapter = source.repository, source.has(ADAPTER_FILE)
    twice = {PICKLED} if source.has(ADAPTER_WEIGHTS) or not is_adapter else set()
    if repository is not None:
        # A copy in the cache needs no download; folders of a repository are never fetched.
        repository.files = tuple(
            file
            for file in repository.files
            if "/" not in file.name
            and file.name not in twice
            and (file.cached or source.folder is None)
            and (file.name in ADAPTER_FILES or not is_adapter)
        )
    return source


def _config(part: Part, source: Source) -> dict[str, Any]:
    """A model's config.json. Raises ModelError."""
    config = source.read("config.json")
    check_sizes(source.place, config)
    part.model_type = str(config.get("model_type", "unknown"))
    return config


def _need_file(source: Source, names: Sequence[str], what: str) -> None:
    """Raises ModelError where a model has none of these files."""
    if not any(source.has(name) for name in names):
        raise ModelError(f"{source.place} has no {what} ({' or '.join(names)})")


def _need(report: Report, about: str, package: str) -> None:
    if installed(package) is None:
        report.problem(f"{about}: {_missing(package)}")


def _missing(package: str) -> str:
    return f"the Python package {package} is missing: {INSTALL}"
