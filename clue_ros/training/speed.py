"""What makes a stage faster on a device and changes nothing that it learns."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch

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
