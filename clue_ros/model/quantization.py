# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Smaller weights, chosen when a model is loaded: "none", "int8" or "nf4" (bitsandbytes).

What is quantised is what holds most of the full model's bytes: the projections of the decoder's
blocks. The vision tower and the projector stay as they are, because every map is made of the
features that they give and they are 14 % of the weights; the token embeddings and the head (one
tied matrix) stay as well, because location tokens are told apart by small differences of its rows,
and bitsandbytes does not quantise embeddings. The adapters are never quantised.

Nothing here imports torch until it is asked to.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from clue_ros.errors import ModelError
from clue_ros.requirements import missing

if TYPE_CHECKING:
    import torch


NONE, INT8, NF4 = "none", "int8", "nf4"
QUANTIZATIONS = (NONE, INT8, NF4)
# Not quantised (besides embeddings and norms, which are no linear layers).
KEPT = (r"model\.vision_tower", r"model\.multi_modal_projector", "lm_head")


def check_quantization(name: str) -> None:
    """Raises ModelError unless `name` is known and what it needs is installed."""
    if name not in QUANTIZATIONS:
        raise ModelError(
            f"quantization {name!r} is unknown: want one of {', '.join(QUANTIZATIONS)}"
        )
    if name != NONE and find_spec("bitsandbytes") is None:
        raise ModelError(missing("bitsandbytes", f"quantization {name!r}"))


def loading_options(name: str, device: torch.device | str, dtype: torch.dtype) -> dict[str, Any]:
    """What `from_pretrained` takes to quantise while it loads; nothing for "none".

    Weights are quantised one by one on `device`, so the unquantised model is never there whole.
    `dtype` is what the layers compute in. Raises ModelError.
    """
    check_quantization(name)
    if name == NONE:
        return {}
    from transformers import BitsAndBytesConfig

    make: Any = BitsAndBytesConfig
    if name == INT8:
        config = make(load_in_8bit=True, llm_int8_skip_modules=list(KEPT))
    else:
        config = make(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            llm_int8_skip_modules=list(KEPT),
        )
    return {"quantization_config": config, "device_map": {"": device}}


def quantization_state(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The parameters of quantised weights beside their numbers: scales and code books."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        # bitsandbytes moves the scales of int8 from the weight to the module at the first use.
        held = [getattr(place, "SCB", None) for place in (weight, getattr(module, "state", None))]
        state = getattr(weight, "quant_state", None)
        while state is not None:
            held += [state.absmax, state.code, getattr(state, "offset", None)]
            state = getattr(state, "state2", None)
        yield from (tensor for tensor in held if tensor is not None)


# -------------------------------------------------------------------------------------------------
# A device that runs out of memory: try once more with its cache given back, or say so.

P = ParamSpec("P")
T = TypeVar("T")

ADVICE = "use quantization (int8, nf4), end other programs on it, or set device to 'cpu'"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on a GPU or a CPU, or Python had no memory left."""
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # The CPU's allocator, and cuBLAS where even its workspace does not fit, have no class for it.
    words = ("not enough memory", "can't allocate memory", "cublas_status_alloc_failed")
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in words)


def give_back() -> None:
    """Return cached memory to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def out_of_memory(device: object) -> ModelError:
    """The error that says so, with what to do."""
    return ModelError(f"{device} has run out of memory: {ADVICE}")


def with_room(tries: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For methods of an object with a `device`: out of memory is tried again, then a ModelError.

    Another process may have taken the memory for a moment, and torch's own cache may be in the way.
    tries: 1 for a method that changes what it is given: half done, it cannot be repeated.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            for _ in range(tries):
                try:
                    return method(*args, **kwargs)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                # Outside the except clause: while it is handled, the error keeps the tensors alive.
                give_back()
            raise out_of_memory(cast(Any, args[0]).device)

        return run

    return decorate
