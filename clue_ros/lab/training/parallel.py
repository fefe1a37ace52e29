"""The processes that train together: one, or as many as `accelerate launch` started.

Every process holds the whole model and works on its own share of a step's batch; gradients and
figures are added up over all of them, so that a step is the same however many there are. Only the
first process (`is_main`) writes files and draws a progress bar.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

from clue_ros.errors import ClueError

PRECISIONS = ("auto", "float32", "bfloat16")
# A process that waits longer than this for the others gives up (they may be loading data).
TIMEOUT = timedelta(minutes=30)
_LAUNCHER = {"no": "float32", "bf16": "bfloat16"}


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: the first CUDA device, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bf16: CUDA, or a CPU with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def autocast(device: torch.device, precision: str = "auto") -> torch.autocast:
    """Mixed precision: "auto" is bf16 where the device computes in it, else float32."""
    fast = has_bf16(device) if precision == "auto" else precision == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast)


class Processes:
    """One process on its own; `start_processes` makes this or `Launched`."""

    rank = 0
    count = 1

    def __init__(self, device: torch.device | None = None, precision: str = "auto") -> None:
        self.device = device if device is not None else torch.device("cpu")
        self.precision = precision

    @property
    def is_main(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes of numbers that have the same names in the same order in all."""
        return dict(numbers)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes."""

    def send(self, content: bytes | None) -> bytes:
        """What the first process gives, in all of them."""
        assert content is not None
        return content

    def share_weights(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give all processes the first one's weights."""

    def close(self) -> None:
        """Leave the others; every process calls it when all is well.

        One that fails just ends: the launcher then ends the others, which may be waiting for it.
        """


class Launched(Processes):
    """One of several processes, over accelerate's process group (NCCL on GPUs, gloo on CPUs)."""

    def __init__(self, device: torch.device, precision: str) -> None:
        from accelerate import Accelerator
        from accelerate.utils import InitProcessGroupKwargs

        self._accelerator: Any = Accelerator(
            cpu=device.type == "cpu",
            mixed_precision="no",  # autocast is ours, so that one process computes the same
            kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)],
        )
        super().__init__(self._accelerator.device, precision)
        self.rank: int = self._accelerator.process_index
        self.count: int = self._accelerator.num_processes

    def _sum(self, values: Tensor) -> Tensor:
        found: Tensor = self._accelerator.reduce(values, "sum")
        return found

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes of numbers that have the same names in the same order in all."""
        mine = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        return dict(zip(numbers, self._sum(mine).tolist(), strict=True))

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes, in one message.

        A parameter that has none in any process still has none afterwards: AdamW leaves it alone.
        """
        has = torch.tensor([float(p.grad is not None) for p in parameters], device=self.device)
        flat = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        total = self._sum(torch.cat([has, *(g.float() for g in flat)]))
        found, total = total[: len(parameters)].tolist(), total[len(parameters) :]
        pieces: Any = torch.split(total, [p.numel() for p in parameters])
        for p, somebody, piece in zip(parameters, found, pieces, strict=True):
            p.grad = piece.view_as(p).to(p.dtype) if somebody else None

    def send(self, content: bytes | None) -> bytes:
        """What the first process gives, in all of them."""
        from accelerate.utils import broadcast

        size = torch.tensor([len(content or b"")], device=self.device)
        size = broadcast(size)
        if self.is_main and content:
            buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        else:
            buffer = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        return broadcast(buffer).cpu().numpy().tobytes() if int(size) else b""

    def share_weights(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give all processes the first one's weights."""
        from accelerate.utils import broadcast

        with torch.no_grad():
            for p in parameters:
                p.copy_(broadcast(p.detach().clone()))

    def close(self) -> None:
        """Leave the process group once all are done."""
        self._accelerator.wait_for_everyone()
        self._accelerator.end_training()


ALONE = Processes()


def require_alone() -> None:
    """ClueError where a launcher started several processes for a stage that runs in one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ClueError("this stage runs in one process: start it without accelerate launch")


def start_processes(device: str = "auto", precision: str = "auto") -> Processes:
    """This process's place among those that `accelerate launch` (or torchrun) started.

    precision: one of PRECISIONS; "auto" is the launcher's mixed_precision where there is one, else
    bf16 where the device computes in it. ClueError for a mixed precision that is not supported.
    """
    wanted = os.environ.get("ACCELERATE_MIXED_PRECISION")
    if precision == "auto" and wanted is not None:
        if wanted not in _LAUNCHER:
            raise ClueError(f"mixed_precision {wanted!r} is not supported: want 'no' or 'bf16'")
        precision = _LAUNCHER[wanted]
    place = pick_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return Launched(place, precision)
    return Processes(place, precision)


# -------------------------------------------------------------------------------------------------
# What makes a stage faster on a device and changes nothing that it learns.

GPU_WORKERS = 8  # a GPU takes pictures faster than one thread draws them


@dataclass(frozen=True)
class Speed:
    """workers: threads that draw batches ahead of the step that needs them.

    compiled: whether the vision tower goes through torch.compile. On a CPU it gains nothing (25
    against 26 pictures a second, two threads of an AMD EPYC) and costs half a minute.
    replicas: threads that share a step's pictures in stage 2 (`replicas`).
    """

    workers: int = 1
    compiled: bool = False
    replicas: int = 1


PLAIN_SPEED = Speed()


def add_speed_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--workers",
        type=int,
        default=None,
        help=f"threads that draw batches ahead; default 1, on a GPU {GPU_WORKERS}",
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="torch.compile the vision tower; default: on a GPU",
    )

    parser.add_argument(
        "--replicas",
        type=int,
        default=None,
        help="threads that share the pictures of a step of stage 2; default: as many as cores are "
        "used, on a GPU 1",
    )


def speed_of(args: argparse.Namespace, device: torch.device) -> Speed:
    """What the options say, or what suits the device."""
    gpu = device.type == "cuda"
    workers = args.workers if args.workers is not None else GPU_WORKERS if gpu else 1
    replicas = args.replicas if args.replicas is not None else 1 if gpu else torch.get_num_threads()
    compiled = gpu if args.compile is None else bool(args.compile)
    return Speed(max(0, workers), compiled, max(1, replicas))
