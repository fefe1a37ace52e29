"""The frozen base that an adapter is trained on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.worlds import world_spec
from clue_ros.lab.training.datasets import PHOTOS, SIMULATED
from clue_ros.lab.training.options import LearnerOptions
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model


def frozen_base(
    options: LearnerOptions, base: Path, device: torch.device, data: Collection[str]
) -> tuple[TorchModel, Any]:
    """Load a base with frozen weights, and its processor; set the seed.

    data: the data sets, as `--data` names them. Raises ClueError for a base that lacks words of
    the world, if the data use its language.
    """
    torch.manual_seed(options.seed)
    backbone = load_model(base, device=device, dtype=getattr(torch, options.base_dtype))
    processor = load_processor(base)
    if {SIMULATED, PHOTOS}.intersection(data):
        check_words(processor.tokenizer, options.world, str(base))
    backbone.model.requires_grad_(False)
    return backbone, processor


def checkpoint_activations(backbone: TorchModel) -> None:
    """Keep only each block's input; the backward pass runs the block again."""
    model = backbone.model
    enable = getattr(model, "activation_checkpointing_enable", None)  # from transformers 5.21 on
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def check_words(tokenizer: Any, world: str, model: str) -> None:
    """Raises ClueError naming words of a world that a word-level tokenizer lacks.

    Any other tokenizer splits the words that it lacks.
    """
    missing = [
        word
        for word in vocabulary(world)
        if tokenizer.unk_token_id in tokenizer(word, add_special_tokens=False)["input_ids"]
    ]
    if missing:
        nouns = {word for names in world_spec(world).nouns.values() for word in names}
        missing.sort(key=lambda word: word not in nouns)  # a noun says more than a misspelt word
        raise ClueError(
            f"{model} lacks {len(missing)} words of the world {world!r}"
            f" ({', '.join(missing[:4])} ...): train a base with `clue train base --world {world}`"
        )


def base_name(model: str, out: Path) -> str | None:
    """Return the base's name for adapter_config.json; None if `out` lies in the base's folder."""
    if not Path(model).is_dir():
        return model
    folder = Path(model).resolve()
    return None if folder in out.resolve().parents else str(folder)
