"""Where a base's training starts from: another base of the same widths (`clue train base --init`).

A base for a new world does not begin with nothing: the tower of another one tells colours and
places, its decoder knows how a sentence finds an object. Only words that the other lacked are new,
and blocks that it lacked, which begin as identity: the deeper model first computes what it did. For
a larger picture the position embeddings are interpolated, as is usual for vision transformers.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.model.backbone import load_backbone
from clue_ros.model.config import half_depth_block
from clue_ros.model.hub import find_base, find_model
from clue_ros.model.processor import load_processor
from clue_ros.model.weights import fingerprint
from clue_ros.training.vision import LOC_BINS

_POSITIONS = "position_embedding.weight"
_WORDS = "embed_tokens.weight"  # and the output layer, which is tied to it
_BLOCK = re.compile(r"(?P<of>.*\.layers\.)(?P<i>\d+)(?P<part>\..*)")
# What each residual branch of a new block ends in, and with what it adds nothing. Gemma's norms
# multiply by one plus their weight.
_ENDS = {
    "post_attention_layernorm.weight": -1.0,
    "post_feedforward_layernorm.weight": -1.0,
    "self_attn.out_proj.weight": 0.0,
    "self_attn.out_proj.bias": 0.0,
    "mlp.fc2.weight": 0.0,
    "mlp.fc2.bias": 0.0,
}


def blocks_from(there: int, here: int) -> dict[int, int]:
    """Which of `there` blocks each of `here` begins as; a new one is missing.

    New ones end each half, so that the block that the detector reads stays at half depth.
    """
    read, reads = half_depth_block(there), half_depth_block(here)
    return {i: i for i in range(read)} | {reads + i: read + i for i in range(there - read)}


@torch.no_grad()
def adopt(model: Any, tokenizer: Any, source: str) -> int:
    """Copy the weights of the model `source` (a name or folder) into `model`, tokens by their text.

    `model` may have more blocks, which begin as identity, and another number of patches. Returns
    how many of the tokenizer's tokens the source knows; the rows of others stay as they are. Raises
    ClueError where a weight's size is another or the source has more blocks, ModelError where there
    is no model.
    """
    folder = find_base(find_model(source))
    other = load_backbone(folder).model
    theirs = load_processor(folder).tokenizer
    kept = dict(other.named_parameters())
    blocks = _blocks(other.config, model.config, source)
    for name, p in model.named_parameters():
        if name.endswith(_WORDS):
            continue
        of = _name_there(name, blocks)
        if of is None:
            _add_nothing(name, p)
            continue
        weight = kept.get(of)
        if weight is not None and name.endswith(_POSITIONS):
            weight = at_other_places(weight, len(p))
        if weight is None or weight.shape != p.shape:
            found = "nothing" if weight is None else tuple(weight.shape)
            raise ClueError(f"--init {source}: {name} is {found} there, here {tuple(p.shape)}")
        p.copy_(weight)
    rows, known = other.get_input_embeddings().weight, theirs.get_vocab()
    mine = model.get_input_embeddings().weight
    if rows.shape[1] != mine.shape[1]:
        raise ClueError(f"--init {source}: width {rows.shape[1]} there, here {mine.shape[1]}")
    shared = [(i, known[token]) for token, i in tokenizer.get_vocab().items() if token in known]
    to, fro = torch.tensor(shared).T
    mine[to] = rows[fro]
    return len(shared)


def at_other_places(positions: Tensor, count: int) -> Tensor:
    """Position embeddings (N, width) of a square grid of patches at those of another, `count`."""
    there, here = math.isqrt(len(positions)), math.isqrt(count)
    if there == here:
        return positions
    grid = positions.T.reshape(1, -1, there, there)
    resized = F.interpolate(grid, (here, here), mode="bicubic", align_corners=False)
    return resized.flatten(2)[0].T


def _blocks(other: Any, config: Any, source: str) -> dict[bool, dict[int, int]]:
    """`blocks_from` of the decoder (False) and of the vision tower (True)."""
    blocks = {}
    for tower, part in ((False, "text_config"), (True, "vision_config")):
        there, here = (getattr(c, part).num_hidden_layers for c in (other, config))
        if there > here:
            name = "vision tower" if tower else "decoder"
            raise ClueError(f"--init {source}: {there} blocks in its {name}, more than {here} here")
        blocks[tower] = blocks_from(there, here)
    return blocks


def _name_there(name: str, blocks: dict[bool, dict[int, int]]) -> str | None:
    """The parameter of the source that `name` begins as; None: of a new block."""
    found = _BLOCK.fullmatch(name)
    if found is None:
        return name
    of = blocks["vision_tower" in name].get(int(found["i"]))
    return None if of is None else f"{found['of']}{of}{found['part']}"


def _add_nothing(name: str, p: Tensor) -> None:
    """Fill what ends a new block's residual branches, so that they add nothing at first."""
    for end, value in _ENDS.items():
        if name.endswith(end):
            p.fill_(value)


def location_table(model: Any, tokenizer: Any) -> Tensor:
    """The embeddings of the location tokens, (1024, width)."""
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    table: Tensor = model.get_input_embeddings().weight[first : first + LOC_BINS]
    return table.detach().clone()


def described(source: str | None) -> dict[str, str | None]:
    """What a run's notes say of its start: its name, and what it is made of."""
    made_of = None if source is None else fingerprint(find_base(find_model(source)))
    return {"init": source, "init_fingerprint": made_of}
