# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files as memory-mapped arrays, bfloat16 included, which numpy does not know."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = {"F32": np.float32, "BF16": np.uint16, "F16": np.float16, "I8": np.int8, "U8": np.uint8}
MOST_HEADER = 100_000_000  # bytes, as in the format's own reader


@dataclass(frozen=True)
class Mapped:
    """A tensor in a file. kind: of TYPES.

    The bits of "BF16" stand in `values` as uint16. "U8" are signed values of 4 bits, two in a byte,
    the first one low.
    """

    kind: str
    values: npt.NDArray[Any]

    @classmethod
    def of(cls, values: npt.NDArray[np.float32], kind: str) -> Mapped:
        """Finite values as "F32", or as "BF16", rounded to the nearest, to even in the middle."""
        if kind == "F32":
            return cls(kind, values)
        bits = values.view(np.uint32)
        return cls(kind, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return unpacked(self.values.shape, self.kind)

    def float32(self, rows: npt.NDArray[np.int64] | slice = slice(None)) -> npt.NDArray[np.float32]:
        """Its rows as float32, copied unless they are so in the file."""
        found = self.values[rows]
        if self.kind == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(found, np.float32)


def unpacked(shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """The shape of the values that a tensor of this shape holds."""
    return (*shape[:-1], 2 * shape[-1]) if kind == "U8" and shape else shape


def read_entries(path: Path) -> tuple[dict[str, Any], int]:
    """The entries of a safetensors file by their names, and where the data begins.

    Raises OSError, and ValueError saying what is wrong with the file.
    """
    entries, begin = _header(path)
    entries.pop("__metadata__", None)
    size = path.stat().st_size
    for name, entry in entries.items():
        _check_entry(name, entry, size - begin)
    return entries, begin


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return a file's header, and the offset of the data."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MOST_HEADER, size - 8):
            raise ValueError("its header is cut short")
        entries = json.loads(file.read(length))
    if not isinstance(entries, dict):
        raise ValueError("its header is no list of tensors")
    return entries, 8 + length


def _check_entry(name: str, entry: Any, size: int) -> None:
    try:
        (begin, end), shape, kind = entry["data_offsets"], entry["shape"], entry["dtype"]
        numbers = [begin, end, *shape]
        whole = all(isinstance(n, int) and n >= 0 for n in numbers) and begin <= end <= size
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is described wrongly") from error
    if not whole:
        raise ValueError(f"{name} lies outside the file")
    if kind in TYPES and end - begin != math.prod(shape) * np.dtype(TYPES[kind]).itemsize:
        raise ValueError(f"{name} has another size than its shape")


def read_tensors(path: Path) -> Mapping[str, Mapped]:
    """The tensors of a file, mapped into memory, of the types in `TYPES`; writing changes no file.

    Raises OSError and ValueError.
    """
    entries, begin = read_entries(path)
    data = np.memmap(path, np.uint8, "c", begin) if path.stat().st_size > begin else np.empty(0)
    found = {}
    for name, entry in entries.items():
        if entry["dtype"] in TYPES:
            part = data[slice(*entry["data_offsets"])].view(TYPES[entry["dtype"]])
            found[name] = Mapped(entry["dtype"], np.asarray(part).reshape(entry["shape"]))
    return found


def read_metadata(path: Path) -> dict[str, str]:
    """The texts in a safetensors file's header. Raises OSError and ValueError."""
    found = _header(path)[0].get("__metadata__", {})
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("its header has no texts")
    return found


def give_back(tensors: Iterable[Mapped]) -> None:
    """Take files out of this process's memory; what is used again is read again."""
    files = {}
    for tensor in tensors:
        array: Any = tensor.values
        while isinstance(array, np.ndarray):
            array = array.base
        if isinstance(array, mmap.mmap):
            files[id(array)] = array
    for file in files.values():
        file.madvise(mmap.MADV_DONTNEED)


def write_tensors(tensors: Mapping[str, Mapped], path: Path) -> None:
    """Write a safetensors file, one tensor after the other."""
    with path.open("wb") as file:
        file.writelines(tensor_bytes(tensors, {"format": "pt"}))


def tensor_bytes(
    tensors: Mapping[str, Mapped], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """The content of a safetensors file, piece by piece. metadata: texts for its header."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.values.nbytes
        shape = list(tensor.values.shape)
        entries[name] = {"dtype": tensor.kind, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    yield len(head).to_bytes(8, "little") + head
    for tensor in tensors.values():
        yield np.ascontiguousarray(tensor.values).data
