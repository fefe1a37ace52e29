# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A model that OpenVINO runs, for robots without a GPU: read what `clue export` wrote.

An export is a model folder with a folder "openvino" in it:

export.json             format, precision, versions, SHA-256 of the graphs and of their sources
tower.xml .bin          the vision tower, its stem and the projector
detector.xml .bin       adapter A's merged decoder up to the detector's block, and its attention
ivg.xml .bin            adapter B's merged decoder, for a prompt and for the tokens of a reply

`ExportedBackbone` takes the place of the vision tower and of `fast_decoder` below everything else:
prompts, embeddings, logits and decoding are those of every model. What has no graph (the base
without an adapter, another adapter, another block, training) takes the weights in the same folder.
OpenVINO is imported when an export is loaded; of a graph's files nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clue_ros.errors import ModelError
from clue_ros.model.adapters import CONFIG_FILE, DETECTOR, IVG, WEIGHTS_FILE
from clue_ros.model.graph_decoder import TOKEN, GraphDecoder
from clue_ros.model.lean import PROJECTOR, TOWER, LeanBackbone, open_lean
from clue_ros.model.loading import first_line, hash_file, read_settings, weight_files, write_json
from clue_ros.model.products import has_fast_bfloat16
from clue_ros.requirements import missing

FOLDER, SETTINGS_FILE, FORMAT = "openvino", "export.json", 1
TOWER_GRAPH = "tower"
AGAIN = "export the model again (`clue export`)"
PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
"""Names of this package and of OpenVINO."""
AUTO = "auto"
STEP = 16
"""Lengths of sequences are padded to a multiple of this, and the padding is masked: OpenVINO
prepares itself for each new length, which takes 6 to 9 ms with the embedded model."""


@dataclass(frozen=True)
class Export:
    """export.json.

    precision: "auto", "float32" or "bfloat16". block: which the detector reads, None without its
    graph. graphs, sources: hex SHA-256 by the path of a file, from the export's folder and from the
    model's. openvino: the version that wrote the graphs.
    """

    format: int = 0
    precision: str = AUTO
    block: int | None = None
    graphs: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    openvino: str = ""

    def write(self, folder: Path) -> None:
        """Write it into an export's own folder."""
        write_json(folder / SETTINGS_FILE, asdict(self))


def is_export(folder: Path) -> bool:
    """Whether a model folder has graphs of `clue export`."""
    return (folder / FOLDER).is_dir()


def source_files(base: Path, adapters: Collection[str]) -> list[Path]:
    """The files that the graphs of a model with these adapters are made of."""
    parts = [base / name / file for name in adapters for file in (CONFIG_FILE, WEIGHTS_FILE)]
    return [base / "config.json", *weight_files(base), *parts]


def digest(path: Path) -> str:
    """Hex SHA-256 of a file, which may be larger than the memory. Raises ModelError."""
    whole = hashlib.sha256()
    try:
        hash_file(whole, path)
    except FileNotFoundError as error:
        raise ModelError(f"the export lacks {path}: {AGAIN}") from error
    return whole.hexdigest()


def read_export(folder: Path, adapters: Collection[str] = (DETECTOR, IVG)) -> Export:
    """Check the export in a model folder, all files of it.

    adapters: those whose graphs are wanted; the others' files may have changed. Raises ModelError
    saying what is missing, damaged or changed and what to do.
    """
    inside = folder / FOLDER
    export = read_settings(inside / SETTINGS_FILE, Export)
    if export.format != FORMAT:
        raise ModelError(
            f"{inside} has format {export.format!r}, this clue_ros reads {FORMAT}: {AGAIN}"
        )
    kinds = ((export.graphs, dict), (export.sources, dict), (export.openvino, str))
    known = export.precision in (AUTO, *PRECISIONS) and isinstance(export.block, int | None)
    if not known or any(type(value) is not kind for value, kind in kinds):
        raise ModelError(f"{inside / SETTINGS_FILE} was not written by `clue export`: {AGAIN}")
    unused = tuple(f"{name}/" for name in (DETECTOR, IVG) if name not in adapters)
    for name, expected in export.sources.items():
        if not name.startswith(unused) and digest(folder / name) != expected:
            raise ModelError(
                f"{folder / name} has changed since {inside} was made of it: {AGAIN}, or remove"
                f" {inside}"
            )
    for name, expected in export.graphs.items():
        if digest(inside / name) != expected:
            raise ModelError(f"{inside / name} is damaged: {AGAIN}")
    return export


def choose_precision(export: Export, dtype: str) -> str:
    """The precision of the graphs: that of `Clue.load`'s dtype, else the export's own.

    "auto" of both: bfloat16 where the CPU multiplies in it. Raises ModelError.
    """
    asked = {AUTO: export.precision, "mixed": "bfloat16"}.get(dtype, dtype)
    if asked == AUTO:
        return "bfloat16" if has_fast_bfloat16() else "float32"
    if asked not in PRECISIONS:
        raise ModelError(f"dtype {dtype!r} of an export: want auto, {', '.join(PRECISIONS)}")
    return asked


def import_openvino() -> Any:
    """The package. Raises ModelError."""
    try:
        import openvino
    except ImportError as error:
        reason = missing("openvino", "an export")
        raise ModelError(f"{reason} ({first_line(error)})") from error
    return openvino


class OpenVinoGraph:
    """Tensors in, tensors out, which the next call overwrites; OpenVINO has compiled it."""

    def __init__(self, compiled: Any) -> None:
        self._request = compiled.create_infer_request()

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Run it on float32 and int64 tensors of the CPU."""
        arrays = {place: tensor.numpy() for place, tensor in enumerate(inputs)}
        found = self._request.infer(arrays, share_inputs=True, share_outputs=True)
        return [torch.from_numpy(array) for array in found.values()]


def compile_graphs(
    folder: Path, export: Export, precision: str, names: Collection[str]
) -> dict[str, OpenVinoGraph]:
    """The graphs by their names, those of `names` that the export has; and `TOKEN`.

    Raises ModelError. They run on as many threads as torch does now.
    """
    openvino = import_openvino()
    settings = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "ENABLE_CPU_PINNING": False,  # a robot's other programs need the cores too
    }
    graphs, core = {}, openvino.Core()
    for name in names:
        if f"{name}.xml" not in export.graphs:
            continue
        path = folder / FOLDER / f"{name}.xml"
        try:
            model = core.read_model(path)
            graphs[name] = OpenVinoGraph(core.compile_model(model, "CPU", settings))
            if name == IVG:
                _shorten(model)
                graphs[TOKEN] = OpenVinoGraph(core.compile_model(model, "CPU", settings))
        except RuntimeError as error:
            raise ModelError(
                f"OpenVINO {openvino.__version__} cannot use {path}, which {export.openvino} wrote"
                f" ({first_line(error)}): {AGAIN}"
            ) from error
    return graphs


def _shorten(model: Any) -> None:
    """Make the dialogue's graph one of a single token, which takes two thirds of the time then."""
    shapes = {port: port.get_partial_shape() for port in model.inputs}
    hidden, _mask, cos, sin, rows, *_cache = shapes
    for port, axis in ((hidden, 1), (cos, 2), (sin, 2), (rows, 0)):
        shapes[port][axis] = 1
    model.reshape(shapes)


class ExportedBackbone(LeanBackbone):
    """A backbone that looks and reads through graphs, as long as it is lean."""

    def __init__(
        self,
        graphs: Mapping[str, OpenVinoGraph],
        export: Export,
        precision: str,
        folder: Path,
        config: Any,
        weights: dict[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
        products: torch.dtype | None = None,
    ) -> None:
        super().__init__(folder, config, weights, device, dtype, products)
        for name in [n for n in weights if n.startswith((TOWER, PROJECTOR))]:
            del weights[name]
        look, own = graphs[TOWER_GRAPH], (self.decoder, self.text, products)
        self.run_through(
            lambda pixels: look(pixels)[0].clone(),
            GraphDecoder(graphs, export.block, self.switch, *own, step=STEP, capacity=STEP),
        )
        self._precision = precision
        inside = folder / FOLDER
        self._graph_bytes = sum((inside / n).stat().st_size for n in export.graphs)

    @property
    def is_mixed(self) -> bool:
        """Whether the graphs compute in 16 bits."""
        return self.is_lean and self._precision == "bfloat16"

    def memory_bytes(self) -> int:
        """Bytes of weights, and of the graphs, which hold copies of them."""
        return super().memory_bytes() + (self._graph_bytes if self.is_lean else 0)


def open_export(folder: Path, dtype: str, adapters: Collection[str]) -> LeanBackbone:
    """The model of an export's folder, on the CPU.

    dtype: as `Clue.load` takes it. adapters: the names of those that are the folder's own. Raises
    ModelError.
    """
    import_openvino()  # the likeliest reason first
    export = read_export(folder, adapters)
    precision = choose_precision(export, dtype)
    graphs = compile_graphs(folder, export, precision, (TOWER_GRAPH, *adapters))
    if TOWER_GRAPH not in graphs:
        raise ModelError(f"{folder / FOLDER} has no graph of the vision tower: {AGAIN}")
    backbone = open_lean(
        folder,
        torch.device("cpu"),
        torch.float32,
        mixed=precision == "bfloat16",
        make=partial(ExportedBackbone, graphs, export, precision),
    )
    if backbone is None:
        raise ModelError(f"{folder} is no model that `clue export` writes: {AGAIN}")
    return backbone
