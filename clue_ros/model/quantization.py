"""Smaller weights, chosen when a model is loaded: "none", "int8" or "nf4" (bitsandbytes).

What is quantised is what holds most of the full model's bytes: the projections of the decoder's
blocks. The vision tower and the projector stay as they are, because every map is made of the
features that they give and they are 14 % of the weights; the token embeddings and the head (one
tied matrix) stay as well, because location tokens are told apart by small differences of its rows,
and bitsandbytes does not quantise embeddings. The adapters are never quantised.

Nothing here imports torch until it is asked to.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from clue_ros.errors import ModelError

if TYPE_CHECKING:
    import torch

NONE, INT8, NF4 = "none", "int8", "nf4"
QUANTIZATIONS = (NONE, INT8, NF4)
PIN = "bitsandbytes==0.50.2"  # as in requirements-quantization.txt
# Not quantised (besides embeddings and norms, which are no linear layers).
KEPT = (r"model\.vision_tower", r"model\.multi_modal_projector", "lm_head")


def check_quantization(name: str) -> None:
    """Raises ModelError unless `name` is known and what it needs is installed."""
    if name not in QUANTIZATIONS:
        raise ModelError(
            f"quantization {name!r} is unknown: want one of {', '.join(QUANTIZATIONS)}"
        )
    if name != NONE and find_spec("bitsandbytes") is None:
        raise ModelError(
            f"quantization {name!r} needs a package that is not installed: pip install {PIN}"
        )


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
    """What quantised weights keep beside their numbers: scales and code books."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        # bitsandbytes moves the scales of int8 from the weight to the module at the first use.
        held = [getattr(place, "SCB", None) for place in (weight, getattr(module, "state", None))]
        state = getattr(weight, "quant_state", None)
        while state is not None:
            held += [state.absmax, state.code, getattr(state, "offset", None)]
            state = getattr(state, "state2", None)
        yield from (tensor for tensor in held if tensor is not None)
