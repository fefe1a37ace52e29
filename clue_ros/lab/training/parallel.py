"""Devices, mixed precision, and the processes that `accelerate launch` starts.

Every process holds the whole model and works on its own share of a step's batch. Gradients and
figures are summed over all processes, so a step is the same however many there are. Only the first
process (`is_main`) writes files and draws a progress bar.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from clue_ros.errors import ClueError

PRECISIONS = ("auto", "float32", "bfloat16")
TIMEOUT = timedelta(minutes=30)  # for a process that waits while the others load data
_LAUNCHER_PRECISIONS = {"no": "float32", "bf16": "bfloat16"}


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; "auto": the first CUDA device, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device has bfloat16 products: CUDA, and CPUs with AVX512 or AMX."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def autocast(device: torch.device, precision: str = "auto") -> torch.autocast:
    """Mixed precision; "auto" is bfloat16 where the device has it, else none."""
    enabled = has_bfloat16(device) if precision == "auto" else precision == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


@dataclass
class Processes:
    """This process among those that train together; alone by default. See `start_processes`."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = "auto"
    rank: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """True in the process that writes files."""
        return self.rank == 0

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes; every process has the same names in the same order."""
        if self.count == 1:
            return dict(numbers)
        from accelerate.utils import reduce

        mine = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        return dict(zip(numbers, reduce(mine, "sum").tolist(), strict=True))

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes, in one message.

        A parameter without a gradient in every process still has none: AdamW leaves it alone.
        """
        if self.count == 1:
            return
        from accelerate.utils import reduce

        has = torch.tensor([float(p.grad is not None) for p in parameters], device=self.device)
        flat = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        total = reduce(torch.cat([has, *(g.float() for g in flat)]), "sum")
        found, total = total[: len(parameters)].tolist(), total[len(parameters) :]
        pieces = torch.split(total, [p.numel() for p in parameters])
        for p, anybody, piece in zip(parameters, found, pieces, strict=True):
            p.grad = piece.view_as(p).to(p.dtype) if anybody else None

    def send(self, content: Any) -> Any:
        """The first process's object, in every process."""
        if self.count == 1:
            return content
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([content])[0]

    def gather(self, rows: list[Any]) -> list[Any]:
        """The rows of all processes, in every process, those of the first one first."""
        if self.count == 1:
            return rows
        from accelerate.utils import gather_object

        found: list[Any] = gather_object(rows)
        return found

    @torch.no_grad()
    def share_weights(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every process the first one's weights."""
        if self.count == 1:
            return
        from accelerate.utils import broadcast

        for p in parameters:
            p.copy_(broadcast(p.detach().clone()))

    def close(self) -> None:
        """Leave the process group; every process calls it when all is well.

        A process that fails just ends: the launcher then ends the others.
        """
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()
            PartialState().destroy_process_group()


def launched() -> bool:
    """Return whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def start_processes(device: str = "auto", precision: str = "auto") -> Processes:
    """This process among those that `accelerate launch` (or torchrun) started.

    precision: one of PRECISIONS; "auto" takes the launcher's mixed_precision if it gives one.
    Raises ClueError for a mixed precision that is not supported.
    """
    wanted = os.environ.get("ACCELERATE_MIXED_PRECISION")
    if precision == "auto" and wanted is not None:
        if wanted not in _LAUNCHER_PRECISIONS:
            raise ClueError(f"mixed_precision {wanted!r} is not supported: want 'no' or 'bf16'")
        precision = _LAUNCHER_PRECISIONS[wanted]
    place = pick_device(device)
    if not launched():
        return Processes(place, precision)
    from accelerate import PartialState

    # accelerate groups the processes; autocast stays ours, so that one process computes the same
    state = PartialState(cpu=place.type == "cpu", timeout=TIMEOUT)
    return Processes(state.device, precision, state.process_index, state.num_processes)
