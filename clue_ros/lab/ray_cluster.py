"""A Ray cluster, as the options `--ray ADDRESS` name it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.requirements import missing


@dataclass(frozen=True)
class RaySettings:
    """address: of the cluster; "local" starts one here. workers: at once. gpus: of each."""

    address: str
    workers: int
    gpus: float


@contextmanager
def ray_at(address: str) -> Iterator[Any]:
    """The module ray, connected to a cluster. Raises ClueError."""
    try:
        ray: Any = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ClueError(f"{missing('ray', '--ray')} ({error})") from error
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except Exception as error:
        raise ClueError(f"Ray at {address}: {error}") from error
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise ClueError(f"Ray at {address}: {error}") from error
    finally:
        ray.shutdown()
