# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The two LoRA adapters on one backbone (section III): A, "detector", and B, "ivg".

Each lives in a folder of peft's format (adapter_config.json, adapter_model.safetensors). Only the
decoder is adapted: the vision tower and the projector stay frozen, so that one look at an image
serves both adapters.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import load_file, save_file

from clue_ros.errors import ModelError
from clue_ros.model.loading import check_shapes, first_line, replacing, shapes
from clue_ros.model.lora import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder, read_folder

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel


DROPOUT = 0.05  # the paper's


def lora_config(
    blocks: Iterable[int], *, rank: int = 16, alpha: int = 32, dropout: float = DROPOUT
) -> LoraConfig:
    """The paper's LoRA on q, k, v, o, gate, up, down of the given decoder blocks, and nothing else.

    Half depth: range(block + 1); "last block" fine-tuning: [block]; the dialogue: range(number of
    blocks).
    """
    from peft import LoraConfig

    numbers = "|".join(str(block) for block in sorted(set(blocks)))
    # A pattern, because SigLIP's projections have the same names as Gemma's.
    decoder = rf".*language_model\.layers\.({numbers})"
    parts = r"(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"
    return LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=rf"{decoder}\.{parts}"
    )


class Adapted(Protocol):
    """The model that carries adapters (`clue_ros.model.torch_backbone.TorchModel`)."""

    @property
    def model(self) -> Any:
        """The class of transformers."""


class Adapters:
    """The adapters on one backbone. Switching copies and merges no weights."""

    def __init__(self, model: Adapted) -> None:
        self._backbone = model
        self._peft: PeftModel | None = None
        self._in_use: tuple[str | None, bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters that were added or loaded."""
        return tuple(self._peft.peft_config) if self._peft else ()

    def add(self, name: str, config: LoraConfig) -> None:
        """A new adapter (which changes nothing until it is trained); it becomes the active one."""
        from peft import PeftModel

        model = self._backbone.model
        with warnings.catch_warnings():
            # peft asks transformers about gradient checkpointing by a name that is going away.
            warnings.simplefilter("ignore", FutureWarning)
            if self._peft is None:
                self._peft = PeftModel(model, config, adapter_name=name)
            else:
                self._peft.add_adapter(name, config)
        self._in_use = None
        model.train(model.training)  # new layers start in training mode, with dropout
        self.use(name)

    def use(self, name: str | None, *, train: bool = False) -> None:
        """Make one adapter the active one; None is the base model without any.

        With `train`, its weights get gradients.
        """
        if self._peft is None:
            if name is not None:
                raise KeyError(f"no adapter {name}")
            return
        if (name, train) == self._in_use:
            return  # switching walks through every module
        self._in_use = name, train
        tuner: Any = self._peft.base_model
        if name is None:
            tuner.disable_adapter_layers()
            return
        tuner.enable_adapter_layers()
        self._peft.set_adapter(name, inference_mode=not train)

    def parameters(self, name: str) -> list[torch.nn.Parameter]:
        """The weights of one adapter."""
        model = self._backbone.model
        return [weight for key, weight in model.named_parameters() if f".{name}." in key]

    def save(self, name: str, folder: str | Path) -> None:
        """Write one adapter in peft's format (without touching the model card beside it)."""
        if self._peft is None:
            raise KeyError(f"no adapter {name}")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = self._state(name)
        tensors = {key: value.detach().cpu().contiguous() for key, value in state.items()}
        with replacing(folder / WEIGHTS_FILE) as partial:
            save_file(tensors, partial, metadata={"format": "pt"})
        self._peft.peft_config[name].save_pretrained(str(folder))

    def _state(self, name: str) -> dict[str, torch.Tensor]:
        """One adapter's weights by their names in its file."""
        from peft import get_peft_model_state_dict

        # No embedding is adapted; left to itself, peft asks the hub about the base's.
        state: dict[str, torch.Tensor] = get_peft_model_state_dict(
            self._peft, adapter_name=name, save_embedding_layers=False
        )
        return state

    def load(self, name: str, folder: str | Path) -> None:
        """Read one adapter, which gets no gradients, and make it active. Raises ModelError."""
        from peft import set_peft_model_state_dict

        folder = Path(folder)
        adapter = read_folder(folder)
        modules = {part: f"{_DECODER}{part}" for part in adapter.rank}
        known = dict(self._backbone.model.named_modules())
        for key, (part, _) in adapter.parts.items():
            if modules[part] not in known:
                raise ModelError(f"{adapter.path} has {key}, which this model does not")
        try:
            self.add(name, _config_of(adapter, modules))
        except (ValueError, TypeError) as error:
            raise ModelError(f"{folder / CONFIG_FILE}: {first_line(error)}") from error
        written = load_file(adapter.path)
        state = {
            f"base_model.model.{modules[module]}.{part}": written[key]
            for key, (module, part) in adapter.parts.items()
        }
        wanted = self._state(name)
        check_shapes(adapter.path, shapes(state), shapes(wanted))
        for key in sorted(state.keys() - wanted.keys()):
            raise ModelError(f"{adapter.path} has {key}, which this model does not")
        set_peft_model_state_dict(self._peft, state, adapter_name=name)
        self.use(name)


_DECODER = "model.language_model."


def _config_of(adapter: AdapterFolder, modules: Mapping[str, str]) -> LoraConfig:
    """Return peft's configuration of an adapter: modules by name, not by a file's patterns."""
    ranks = {modules[part]: rank for part, rank in adapter.rank.items()}
    alphas = {modules[part]: alpha for part, alpha in adapter.alpha.items()}
    return plain_config(adapter.config, ranks, alphas)


def plain_config(
    config: Mapping[str, Any],
    ranks: Mapping[str, int],
    alphas: Mapping[str, float],
    modules_to_save: list[str] | None = None,
) -> LoraConfig:
    """A LoraConfig with the values of an adapter_config.json that a plain LoRA needs.

    ranks, alphas: of each adapted module, by its whole name. Raises TypeError or ValueError.
    """
    from peft import LoraConfig

    scales: dict[str, Any] = {m: int(a) if a.is_integer() else a for m, a in alphas.items()}
    rank, alpha = max(ranks.values()), max(scales.values())
    named = {
        key: value
        for key in ("base_model_name_or_path", "revision", "task_type")
        if isinstance(value := config.get(key), str)
    }
    return LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=float(config.get("lora_dropout") or 0.0),
        target_modules=sorted(ranks),
        rank_pattern={re.escape(m): r for m, r in ranks.items() if r != rank},
        alpha_pattern={re.escape(m): a for m, a in scales.items() if a != alpha},
        use_rslora=bool(config.get("use_rslora")),
        use_dora=bool(config.get("use_dora")),
        lora_bias=bool(config.get("lora_bias")),
        modules_to_save=modules_to_save,
        inference_mode=True,
        **named,
    )
