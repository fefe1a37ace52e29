"""Where a base's training starts from: another base of the same sizes (`clue train base --init`).

A base for a new world does not begin with nothing: the tower of another one tells colours and
places, its decoder knows how a sentence finds an object. Only words that the other lacked are new.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.model.backbone import load_backbone
from clue_ros.model.hub import find_base, find_model
from clue_ros.model.processor import load_processor
from clue_ros.training.vision import LOC_BINS

_WORDS = "embed_tokens.weight"  # and the output layer, which is tied to it


@torch.no_grad()
def adopt(model: Any, tokenizer: Any, source: str) -> int:
    """Copy the weights of the model `source` (a name or folder) into `model`, tokens by their text.

    Returns how many of the tokenizer's tokens the source knows; the rows of others stay as they
    are. Raises ClueError where a weight's size is another, ModelError where there is no model.
    """
    folder = find_base(find_model(source))
    other = load_backbone(folder).model
    theirs = load_processor(folder).tokenizer
    kept = dict(other.named_parameters())
    for name, p in model.named_parameters():
        if name.endswith(_WORDS):
            continue
        if name not in kept or kept[name].shape != p.shape:
            found = tuple(kept[name].shape) if name in kept else "nothing"
            raise ClueError(f"--init {source}: {name} is {found} there, here {tuple(p.shape)}")
        p.copy_(kept[name])
    rows, known = other.get_input_embeddings().weight, theirs.get_vocab()
    mine = model.get_input_embeddings().weight
    if rows.shape[1] != mine.shape[1]:
        raise ClueError(f"--init {source}: width {rows.shape[1]} there, here {mine.shape[1]}")
    shared = [(i, known[token]) for token, i in tokenizer.get_vocab().items() if token in known]
    to, of = torch.tensor(shared).T
    mine[to] = rows[of]
    return len(shared)


def location_table(model: Any, tokenizer: Any) -> Tensor:
    """The embeddings of the location tokens, (1024, width)."""
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    table: Tensor = model.get_input_embeddings().weight[first : first + LOC_BINS]
    return table.detach().clone()


def described(path: Path | str | None) -> dict[str, str]:
    """What a run's notes say of its start."""
    return {} if path is None else {"init": str(path)}
