"""A device that runs out of memory: try once more with its caches given back, or say so."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch

from clue_ros.errors import ModelError

P = ParamSpec("P")
T = TypeVar("T")

ADVICE = "use quantization (int8, nf4), end other programs on it, or set device to 'cpu'"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on a GPU or a CPU, or Python had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # The CPU's allocator, and cuBLAS where even its workspace does not fit, have no class for it.
    words = ("not enough memory", "can't allocate memory", "cublas_status_alloc_failed")
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in words)


def give_back() -> None:
    """Return cached memory to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def out_of_memory(device: object) -> ModelError:
    """The error that says so, with what to do."""
    return ModelError(f"{device} has run out of memory, even with its caches emptied: {ADVICE}")


def with_room(method: Callable[P, T]) -> Callable[P, T]:
    """For methods of an object with a `backbone`: out of memory means once more, then ModelError.

    Another process may have taken the memory for a moment, and torch's own cache may be in the way.
    """

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the except clause: while it is handled, the error keeps the tensors alive.
        give_back()
        try:
            return method(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        give_back()
        raise out_of_memory(cast(Any, args[0]).backbone.device)

    return run
