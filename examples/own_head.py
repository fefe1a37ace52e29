# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A head, a loss and data of one's own for `clue train detector` (docs/bring-your-own.md)."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor, nn

from clue_ros.model.heads import MapHead, Reading


class Mlp(MapHead):
    """A perceptron over the attention map, averaged to 8x8 cells."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(64, 64), nn.ReLU()
        self.decide = nn.Sequential(*layers, nn.Linear(64, 1))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, g, g) in 0..1 -> logits (B,), above 0 if ambiguous."""
        logits: Tensor = self.decide(maps)
        return logits.squeeze(1)


def focal(reading: Reading, ambiguous: Tensor) -> Tensor:
    """Focal loss: sentences that are judged well count less. ambiguous: (B,) 0. or 1."""
    wrong: Tensor = nn.BCEWithLogitsLoss(reduction="none")(reading.logits, ambiguous)
    return ((1 - (-wrong).exp()) ** 2 * wrong).mean()


def rows() -> Iterator[dict[str, object]]:
    """Rows of $PHOTOS/labels.csv: picture, sentence, and yes where it is ambiguous."""
    folder = Path(os.environ["PHOTOS"])
    for picture, sentence, label in csv.reader((folder / "labels.csv").open(encoding="utf-8")):
        yield {"image": folder / picture, "sentence": sentence, "ambiguous": label}
