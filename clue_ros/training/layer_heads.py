"""One CNN on one block's maps, everything else frozen: a point of Figure 7.

AdamW and binary cross-entropy as everywhere (section III-B.1). The epoch with the lowest loss on
validation images is kept, and the threshold is chosen on them too; test images are only scored.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clue_ros.model.files import read_json, replacing, write_json
from clue_ros.model.heads import CnnHead, detector_loss
from clue_ros.training.calibrate import fit_threshold


@dataclass(frozen=True)
class HeadSettings:
    """How a head is trained.

    weight_decay is the paper's. Its lr (1e-4) is for a CNN that learns beside an adapter; alone on
    frozen maps, ten times that reached a lower validation loss in fewer epochs.
    """

    epochs: int = 15
    batch: int = 64
    lr: float = 1e-3
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class HeadResult:
    """What came out of one training.

    epoch: the one kept, counted from 1. val_loss: its mean loss in nats. threshold: chosen on
    validation data. test: probabilities of the test samples, in their order.
    """

    epoch: int
    val_loss: float
    threshold: float
    test: list[float]


def train_head(
    maps: Tensor,
    is_ambiguous: Sequence[bool],
    rows: Mapping[str, Sequence[int]],
    settings: HeadSettings,
    seed: int,
    device: torch.device,
) -> HeadResult:
    """Train on maps (n, g, g) in 0..1 and their n labels.

    rows: the numbers of the "train", "val" and "test" samples.
    """
    maps, labels = maps.to(device), torch.tensor(is_ambiguous, device=device).float()
    learn, val, test = (torch.tensor(rows[split]) for split in ("train", "val", "test"))
    val, test = val.to(device), test.to(device)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = CnnHead().to(device)
        optimizer = torch.optim.AdamW(
            head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        best, best_loss, best_epoch = head.state_dict(), float("inf"), 0
        for epoch in range(settings.epochs):
            _one_epoch(head, optimizer, maps, labels, learn, settings.batch, (seed, epoch))
            loss = float(detector_loss(_logits(head, maps[val]), labels[val]))
            if loss < best_loss:
                best, best_loss, best_epoch = copy.deepcopy(head.state_dict()), loss, epoch + 1
    head.load_state_dict(best)
    threshold = fit_threshold(_logits(head, maps[val]).sigmoid(), labels[val])
    chances = _logits(head, maps[test]).sigmoid()
    return HeadResult(best_epoch, best_loss, threshold, [round(float(p), 6) for p in chances])


def _one_epoch(
    head: CnnHead,
    optimizer: torch.optim.Optimizer,
    maps: Tensor,
    labels: Tensor,
    rows: Tensor,
    batch: int,
    seed: tuple[int, int],
) -> None:
    rng = np.random.default_rng((17, *seed))
    head.train()
    order = rows[torch.from_numpy(rng.permutation(len(rows)))]
    for chosen in torch.split(order, batch):
        at = chosen.to(maps.device)
        # A mirrored map is as ambiguous as the map itself.
        axes = [axis for axis in (1, 2) if rng.uniform() < 0.5]
        loss = detector_loss(head(maps[at].flip(axes)), labels[at])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def kept_or_trained(
    path: Path,
    maps: Tensor,
    is_ambiguous: Sequence[bool],
    rows: Mapping[str, Sequence[int]],
    settings: HeadSettings,
    seed: int,
    device: torch.device,
) -> HeadResult:
    """`train_head`'s result, from `path` if it was written there with the same settings."""
    asked = {**asdict(settings), "seed": seed}
    if path.is_file():
        kept = read_json(path)
        if kept.get("settings") == asked:
            return HeadResult(**kept["result"])
    result = train_head(maps, is_ambiguous, rows, settings, seed, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        write_json(partial, {"settings": asked, "result": asdict(result)})
    return result


@torch.no_grad()
def _logits(head: CnnHead, maps: Tensor) -> Tensor:
    head.eval()
    return torch.cat([head(part) for part in torch.split(maps, 512)])
