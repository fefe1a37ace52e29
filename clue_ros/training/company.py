"""What an object is among those of its kind, taught to the picture's tokens before the words ask.

"The third pen from the left" and "the smaller mug" are found by comparing objects. A token of the
picture can know without the words how many of its object's kind there are, which of them its object
is from each side, and whether it is the biggest or the smallest; what is then left to the words is
to look for it. Linear heads read this from the picture's tokens where they enter the block that
the detector reads, at half depth (`PackedDecoder.block`); they are no part of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clue_ros.data.tabletop.scene import Scene, SceneObject
from clue_ros.data.talk.references import ORDER_AXES, ordered, sized
from clue_ros.training.decoder import PackedDecoder

NUMBERS = 4  # counted one by one; more are one class
SIZES = 3  # the biggest, the smallest, neither
UNKNOWN = -100  # people would differ, or there is nothing to compare: not taught


@dataclass(frozen=True)
class Company:
    """What there is to say of n objects, in the order of the scenes; UNKNOWN where nothing is.

    owner: (B, N) int64, each patch's object, over B scenes, as `vision.owners` counts them. count:
    (n,) 0..NUMBERS - 1, how many of its kind there are, from 1. rank: (n, 4) 0..NUMBERS, its number
    from the left, right, top and bottom, from the first. size: (n,) 0..SIZES - 1.
    """

    owner: Tensor
    count: Tensor
    rank: Tensor
    size: Tensor


def company_of(scenes: Sequence[Scene], owner: Tensor) -> Company:
    """The targets of scenes, by what requests mean (`clue_ros.data.talk.references`).

    owner: (B, N) int64, of `vision.owners`.
    """
    rows = [
        (len(pool), _ranks(i, pool, scene.objects), _size(i, pool, scene.objects))
        for scene in scenes
        for i, pool in enumerate(_pools(scene.objects))
    ]
    return Company(
        owner,
        torch.tensor([min(count, NUMBERS) - 1 for count, _, _ in rows], dtype=torch.long),
        torch.tensor([rank for _, rank, _ in rows], dtype=torch.long).view(-1, len(ORDER_AXES)),
        torch.tensor([size for _, _, size in rows], dtype=torch.long),
    )


def _pools(objects: Sequence[SceneObject]) -> list[list[int]]:
    """Of each object, all of its kind."""
    return [[i for i, p in enumerate(objects) if p.kind == o.kind] for o in objects]


def _ranks(i: int, pool: Sequence[int], objects: Sequence[SceneObject]) -> list[int]:
    found = []
    for side in ORDER_AXES:
        numbers = [n for n in range(1, len(pool) + 1) if ordered(pool, objects, n, side) == (i,)]
        found.append(min(numbers[0] - 1, NUMBERS) if numbers else UNKNOWN)
    return found


def _size(i: int, pool: Sequence[int], objects: Sequence[SceneObject]) -> int:
    big, small = (sized(pool, objects, size) for size in ("big", "small"))
    if big and i in big:
        return 0
    if small and i in small:
        return 1
    return UNKNOWN if big is None or small is None else 2


class CompanyHeads(nn.Module):
    """Reads the targets off hidden states (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.count = nn.Linear(width, NUMBERS)
        self.rank = nn.Linear(width, len(ORDER_AXES) * (NUMBERS + 1))
        self.size = nn.Linear(width, SIZES)


@contextmanager
def image_states(decoder: PackedDecoder) -> Iterator[list[Tensor]]:
    """Collects what the picture's tokens are, (R, N, width), whenever the decoder is run."""
    seen: list[Tensor] = []
    block = decoder.model.model.language_model.layers[decoder.block]
    hook = block.register_forward_pre_hook(
        lambda _module, args: seen.append(args[0][:, : decoder.tokens])
    )
    try:
        yield seen
    finally:
        hook.remove()


def company_loss(
    states: Tensor, rows: Sequence[int], heads: CompanyHeads, targets: Company
) -> dict[str, Tensor]:
    """Loss and figures of a batch; every patch of an object says what the object is.

    states: (R, N, width). rows: which scene each of the R is about.
    """
    owner = targets.owner[list(rows)].flatten().to(states.device)
    mine = owner >= 0
    row = owner[mine]
    hidden = states.float().flatten(0, 1)[mine]
    hidden = F.layer_norm(hidden, hidden.shape[-1:])
    counts, ranks, sizes = (
        known.to(states.device)[row] for known in (targets.count, targets.rank, targets.size)
    )
    # An object counts as much as another, however many patches are its own.
    share = 1 / row.bincount()[row]
    count, rank = heads.count(hidden), heads.rank(hidden).unflatten(-1, (-1, NUMBERS + 1))
    parts = [
        _mean_loss(count, counts, share),
        _mean_loss(rank.flatten(0, 1), ranks.flatten(), share.repeat_interleave(4)),
        _mean_loss(heads.size(hidden), sizes, share),
    ]
    with torch.no_grad():
        said = ranks != UNKNOWN
        right = (rank.argmax(-1) == ranks)[said].float()
    return {
        "loss": torch.stack(parts).sum(),
        "rank_right": right.mean() if len(right) else right.sum(),
    }


def _mean_loss(logits: Tensor, truth: Tensor, share: Tensor) -> Tensor:
    """Cross-entropy over what is known, weighted; 0 where nothing is."""
    wrong = F.cross_entropy(logits, truth, reduction="none", ignore_index=UNKNOWN)
    weight = share * (truth != UNKNOWN)
    return (wrong * weight).sum() / weight.sum().clamp(min=1e-6)
