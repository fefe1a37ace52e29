# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices and number formats: choose one, describe it, and how much memory it has free."""

from __future__ import annotations

import platform
from typing import Any

import torch

from clue_ros import memory
from clue_ros.errors import ModelError
from clue_ros.model.products import has_fast_bfloat16

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MIXED = "mixed"
"""Mixed precision: weights of float32, and on a CPU matrix products in bfloat16."""
NAMES = (*DTYPES, MIXED)


class OnDevice:
    """Where a torch module `model` is, and how much memory it takes."""

    model: Any

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def memory_bytes(self) -> int:
        """Bytes of its weights."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())


def choose_device(name: str) -> torch.device:
    """A GPU if there is one for "auto", else the device of that name. Raises ModelError."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(f"device {name!r} cannot be used here: try 'auto' or 'cpu'") from error
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The weights' type by name; "auto": bfloat16 on a GPU that has it, else float32.

    Raises ModelError.
    """
    if name == MIXED:
        return torch.float32
    if name == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if name not in DTYPES:
        raise ModelError(f"dtype {name!r} is unknown: want 'auto' or one of {', '.join(NAMES)}")
    return DTYPES[name]


def wants_mixed(name: str, device: torch.device) -> bool:
    """Whether matrix products take bfloat16 where the weights' type is float32.

    On a CPU, where it is asked for, or for "auto" where the CPU multiplies faster in bfloat16.
    """
    if device.type != "cpu":
        return False
    return name == MIXED or (name == "auto" and has_fast_bfloat16())


def device_name(device: torch.device) -> str:
    """What a person calls it, such as "NVIDIA H100" or the CPU's architecture."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def free_memory(device: torch.device) -> int | None:
    """Bytes free on a device: of a GPU its own, else the machine's; None where it cannot be told.

    What torch has cached on a GPU for this process counts as taken.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) if torch.cuda.is_available() else None
    return memory.available()
