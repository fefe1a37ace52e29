# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Compiles OpenVINO graphs for this CPU, and keeps what it made of them in files.

The next start then takes a fraction of the time.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.loading import first_line
from clue_ros.model.quiet_openvino import import_openvino

CACHE = "CLUE_CACHE"
KEPT_BYTES = 2**20  # outputs of a graph up to which its request is kept for a later call
SUM_BYTES = 4
UNUSED = 30 * 24 * 3600.0  # seconds after which a graph in the cache is removed
_SOURCES = (
    "openvino_compiler.py",
    "openvino_backbone.py",
    "openvino_graphs.py",
    "details.py",
    "lora.py",
    "tensors.py",
)
"""The code that a cached graph is of."""

Array = npt.NDArray[np.float32]


def cache_folder() -> Path:
    """Where compiled graphs are kept: $CLUE_CACHE, else clue_ros in the user's cache folder."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clue_ros"


def _machine() -> str:
    """What a compiled graph is made for and by: the CPU, OpenVINO, and this code."""
    cpu = []
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        cpu = re.findall(r"^(?:model name|flags|Features|CPU part)\s*:.*$", first, re.MULTILINE)
    code = [Path(__file__).with_name(name).read_bytes() for name in _SOURCES]
    facts = (cpu, import_openvino().get_version(), [hashlib.sha256(c).hexdigest() for c in code])
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def digest(arrays: Mapping[str, Array]) -> str:
    """A hash of some small arrays."""
    whole = hashlib.sha256()
    for name in sorted(arrays):
        whole.update(name.encode() + arrays[name].tobytes())
    return whole.hexdigest()


class Graph:
    """A compiled graph: arrays in, arrays out by their names.

    stored: the file that it was read from, mapped into memory.
    """

    def __init__(self, compiled: Any, stored: mmap.mmap | None = None) -> None:
        self._compiled, self._stored = compiled, stored
        self._request: Any = None
        self._tensor = import_openvino().Tensor
        self.inputs = [port.any_name for port in compiled.inputs]
        self._outputs = [port.any_name for port in compiled.outputs]
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()

    def __call__(self, inputs: Mapping[str, Array], *, hold: bool = False) -> dict[str, Array]:
        """Run it. hold: a call of the same shapes follows soon, so keep memory for it.

        With `hold` the next call overwrites what this one returns.
        """
        taken = [np.ascontiguousarray(inputs[name]) for name in self.inputs]
        request = self._request or self._compiled.create_infer_request()
        # A dictionary of arrays would pass through a dispatcher as slow as a small graph.
        for place, array in enumerate(taken):
            request.set_input_tensor(place, self._tensor(array, shared_memory=True))
        request.infer()
        named = {n: request.get_output_tensor(i).data for i, n in enumerate(self._outputs)}
        size = sum(array.nbytes for array in named.values())
        self._request = request if hold or size < KEPT_BYTES else None  # it holds what it gave
        if not hold:  # the graphs run one after another, and need not all have activations
            named = {name: array.copy() for name, array in named.items()}
            del request
            self._compiled.release_memory()
        shapes = tuple(array.shape for array in taken)
        if self._stored is not None and shapes not in self._shapes:
            # OpenVINO has arranged the weights for these shapes; what it read is still in the file.
            self._stored.madvise(mmap.MADV_DONTNEED)
        self._shapes.add(shapes)
        return named


_ONE_AT_A_TIME = threading.Lock()
"""OpenVINO 2026.4 sets the process's locale to "C" while it reads a graph, and back. Two threads
that do so at once leave it at "C", and then Python opens text files as ASCII."""


class Compiler:
    """Compiles graphs, and keeps them in a cache.

    OpenVINO's own cache (CACHE_DIR) wants each graph made and its weights read before it looks:
    that takes most of a small model's start, and memory that is not given back.
    """

    def __init__(self, precision: str) -> None:
        self._openvino = import_openvino()
        self._core = self._openvino.Core()
        self._settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,  # a robot's other programs need the cores too
        }
        # In `mixed` the inputs of products with 8 and 4 bits have 8 bits too, with a scale of their
        # own for so many values. OpenVINO's own choice, 32, takes 1.4 times the time of 128.
        self._settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0 if precision == "f32" else 128
        threads = os.environ.get("OMP_NUM_THREADS", "")
        if threads.isdecimal() and int(threads):
            self._settings["INFERENCE_NUM_THREADS"] = int(threads)
        self._made_for = f"{_machine()} {sorted(self._settings.items())}"
        folder = cache_folder() / "openvino"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(folder, os.W_OK)
        except OSError:
            writable = False
        self._cache = folder if writable else None
        if not writable:
            _warn(
                f"the cache {folder} cannot be written to, so each start compiles the model anew:"
                f" set {CACHE} to another folder"
            )

    def __call__(self, build: Callable[[], Any], made_of: str) -> Graph:
        """A graph of the cache, or a new one of `build`. Raises ModelError.

        made_of: names the graph and all that is in it.
        """
        name = hashlib.sha256(f"{self._made_for} {made_of}".encode()).hexdigest()
        with _ONE_AT_A_TIME:
            if self._cache is None:
                return Graph(self._compiled(build()))
            path = self._cache / f"{name}.graph"
            found = self._read(path)
            if found is None:
                compiled = self._compiled(build())
                self._write(compiled, path)
                # What was compiled keeps its weights beside those that it arranges.
                found = self._read(path) or Graph(compiled)
            return found

    def _compiled(self, model: Any) -> Any:
        try:
            return self._core.compile_model(model, "CPU", self._settings)
        except RuntimeError as error:
            raise ModelError(
                f"OpenVINO cannot compile {model.friendly_name} for this CPU"
                f" ({first_line(error)}): choose backend 'torch'"
            ) from error

    def _read(self, path: Path) -> Graph | None:
        """The graph in a file; None where there is none, or it is damaged, which is said."""
        try:
            with path.open("rb") as file:
                stored = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            size = len(stored) - SUM_BYTES
            content = np.frombuffer(stored, np.uint8, max(size, 0))
            if stored[max(size, 0) :] != _checksum(content):
                raise ValueError("its checksum is wrong")
            with suppress(OSError):  # somebody else's
                os.utime(path)
            tensor = self._openvino.Tensor(content, shared_memory=True)
            return Graph(self._core.import_model(tensor, "CPU", self._settings), stored)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RuntimeError) as error:
            _warn(f"the cached graph {path} cannot be used ({first_line(error)}): it is made again")
            return None

    def _write(self, compiled: Any, path: Path) -> None:
        """Write a graph and its checksum. Removes what was not used for long."""
        partial = path.with_suffix(f".{os.getpid()}")
        try:
            with partial.open("wb") as file:
                content = compiled.export_model().getbuffer()
                file.write(content)
                file.write(_checksum(content))
            partial.replace(path)
            for old in path.parent.glob("*.graph"):
                if time.time() - old.stat().st_mtime > UNUSED:
                    old.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:
            _warn(
                f"the cache {path.parent} does not take a graph ({first_line(error)}), so the next"
                f" start compiles it anew: make room, or set {CACHE} to another folder"
            )
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _checksum(content: Any) -> bytes:
    """SUM_BYTES bytes that change with any byte of a graph, at 7 GB/s."""
    return zlib.crc32(content).to_bytes(SUM_BYTES, "little")


def _warn(text: str) -> None:
    warnings.warn(text, ClueWarning, stacklevel=3)
