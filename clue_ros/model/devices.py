# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices and number formats: choose one, describe it, and how much memory it has free."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clue_ros import memory
from clue_ros.errors import ModelError
from clue_ros.model.load_options import OPENVINO, TORCH, LoadOptions
from clue_ros.model.quantization import NONE

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")
MIXED = "mixed"
"""Products of 16 bits and sums of 32, on a CPU (`openvino_backbone`)."""
NAMES = (*DTYPES, MIXED)
GPUS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""Files that a driver of a GPU makes: NVIDIA's, a Jetson's, AMD's, and Windows' under WSL."""


def may_have_gpu(device: str) -> bool:
    """Whether "auto" could be a GPU here; torch, which knows, takes a second to import."""
    if device != "auto" or not any(Path(path).exists() for path in GPUS):
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


class OnDevice:
    """The device of a torch module `model`, and its memory."""

    model: Any

    @property
    def device(self) -> torch.device:
        """The model's device."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def memory_bytes(self) -> int:
        """Bytes of its weights."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())


def choose_device(name: str) -> torch.device:
    """A GPU if there is one for "auto", else the device of that name. Raises ModelError."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(f"device {name!r} cannot be used here: try 'auto' or 'cpu'") from error
    return device


def check_dtype(name: str) -> None:
    """Raises ModelError unless a dtype has this name."""
    if name not in ("auto", *NAMES):
        raise ModelError(f"dtype {name!r} is unknown: want 'auto' or one of {', '.join(NAMES)}")


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The weights' type by name; "auto": bfloat16 on a GPU that has it, else float32.

    Raises ModelError.
    """
    import torch

    check_dtype(name)
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if name == MIXED:
        return torch.float32
    found: torch.dtype = getattr(torch, name)
    return found


def choose_backend(options: LoadOptions) -> str:
    """Return the backend, "openvino" or "torch" (`LoadOptions.backend`). Raises ModelError."""
    elsewhere = options.device not in ("auto", "cpu") or options.quantization != NONE
    elsewhere = elsewhere or options.head is not None
    if options.backend == OPENVINO and elsewhere:
        raise ModelError(
            "backend 'openvino' runs on the CPU, quantises nothing and runs no head of one's own:"
            " choose backend 'torch', or device 'cpu' and quantization 'none'"
        )
    if options.backend != "auto":
        return options.backend
    return TORCH if elsewhere or may_have_gpu(options.device) else OPENVINO


def device_name(device: str) -> str:
    """Return its common name, such as "NVIDIA H100" or the CPU's architecture."""
    if device.startswith("cuda"):
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(device)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {threads} threads"


def free_memory(device: str) -> int | None:
    """Bytes free on a device: of a GPU its own, else the machine's; None where it cannot be told.

    What torch has cached on a GPU for this process counts as taken.
    """
    if not device.startswith("cuda"):
        return memory.available()
    import torch

    return int(torch.cuda.mem_get_info(device)[0]) if torch.cuda.is_available() else None
