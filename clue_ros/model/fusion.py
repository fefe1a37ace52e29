# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Policy "both": one probability of ambiguity from the detector and the decoder's first token.

Each gives a probability that a sentence is ambiguous: the detector, and the decoder by the share of
its first token that opens a question. `clue train policy` fits the weights of their log odds on
validation requests and writes fusion.json into the detector's folder. A fit holds for the pair of
adapters that it was made with, which fusion.json names by the SHA-256 of their weights. Without a
fit there is no policy "both": an adapter B that was trained on InViG alone nearly always opens with
a question, so that any fixed weights of the two would ask nearly always.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import hash_file, is_number, read_settings, write_json

SETTINGS_FILE = "fusion.json"
WEIGHTS = ("adapter_model.safetensors", "head.safetensors")
_NEAREST = 1e-6  # to 0 and 1: a surer probability is clipped to this


@dataclass(frozen=True)
class Fusion:
    """Fitted weights of the two log odds, and what is added to their sum.

    threshold: probability from which a sentence counts as ambiguous; None: the detector's own.
    sure: probability of either decision from which the views so far decide, 0.5 to 1; below it the
    next view decides too, by the mean of their log odds. 0.5: the first view decides alone.
    box, box_bias: weight of the log odds of the box's score, and what is added: a box that is
    trusted too little for its probability of ambiguity becomes a question, one that is trusted
    enough takes the place of a denial.
    detector_sha256, ivg_sha256: of the weights that the fit was made with; empty: not known.
    """

    detector: float = 0.5
    decoder: float = 0.5
    bias: float = 0.0
    threshold: float | None = None
    detector_sha256: str = ""
    ivg_sha256: str = ""
    sure: float = field(default=0.5, kw_only=True)
    box: float = field(default=0.0, kw_only=True)
    box_bias: float = field(default=0.0, kw_only=True)

    def agreed(self, opinions: Sequence[tuple[float, float]]) -> float:
        """The probabilities (detector's, decoder's; 0..1) of one or more views as one.

        >>> equal = Fusion()
        >>> round(equal.agreed([(0.9, 0.1)]), 6), round(equal.agreed([(0.5, 0.9)]), 2)
        (0.5, 0.75)
        >>> equal.agreed([(1.0, 0.5)]) < 1
        True
        >>> round(equal.agreed([(0.9, 0.9), (0.5, 0.5)]), 2)
        0.75
        """
        odds = (self.detector * log_odds(a) + self.decoder * log_odds(b) for a, b in opinions)
        return 1 / (1 + math.exp(-fmean(odds) - self.bias))

    def is_sure(self, probability: float) -> bool:
        """Whether a probability needs no further view."""
        return max(probability, 1 - probability) >= self.sure

    def after(self, probability: float, score: float) -> float:
        """A probability after a box with this score has been seen: a poor box makes it rise.

        >>> Fusion().after(0.25, 0.1)
        0.25
        >>> round(Fusion(box=0.5).after(0.25, 0.1), 2)
        0.5
        """
        odds = log_odds(probability) - self.box * log_odds(score) + self.box_bias
        return 1 / (1 + math.exp(-odds))

    def fits(self, detector: Path, ivg: Path) -> bool:
        """Whether it was fitted with the adapters in these folders."""
        return (self.detector_sha256, self.ivg_sha256) == (
            weights_digest(detector),
            weights_digest(ivg),
        )


def log_odds(probability: float) -> float:
    """Logarithm of p / (1 - p), finite for 0 and 1 too."""
    p = min(max(probability, _NEAREST), 1 - _NEAREST)
    return math.log(p / (1 - p))


def weights_digest(folder: Path) -> str:
    """SHA-256 of an adapter's weights and its head's, hexadecimal; empty where there are none."""
    paths = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    digest = hashlib.sha256()
    for path in paths:
        hash_file(digest, path)
    return digest.hexdigest() if paths else ""


def load_fusion(detector: Path) -> Fusion | None:
    """Read the fit in a detector's folder; None where there is none.

    Raises ModelError naming the file and what is wrong with it.
    """
    path = detector / SETTINGS_FILE
    if not path.is_file():
        return None
    fusion = read_settings(path, Fusion)
    for name in ("detector", "decoder", "bias", "box", "box_bias"):
        if not is_number(getattr(fusion, name), -100, 100):
            raise ModelError(f"{path}: {name} {getattr(fusion, name)!r}, want -100 to 100")
    if fusion.threshold is not None and not is_number(fusion.threshold, 0, 1):
        raise ModelError(f"{path}: threshold {fusion.threshold!r}, want 0 to 1")
    if not is_number(fusion.sure, 0.5, 1):
        raise ModelError(f"{path}: sure {fusion.sure!r}, want 0.5 to 1")
    return fusion


def save_fusion(fusion: Fusion, detector: Path, **notes: Any) -> None:
    """Write fusion.json into the detector's folder, `notes` (data, figures) beside the numbers."""
    write_json(detector / SETTINGS_FILE, {**notes, **asdict(fusion)})
