"""How the detector's and the decoder's own judgement are put together (policy "both").

Each gives a probability that a sentence is ambiguous: the detector, and the decoder by the share of
its first token that opens a question. `clue train policy` fits the weights of their log odds on
validation requests and writes joint.json into the detector's folder. It holds for the pair that it
was fitted with; where there is none, or adapter B is another one, their mean decides, at the
detector's own threshold.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import read_json, write_json

SETTINGS_FILE = "joint.json"
ADAPTER_FILE = "adapter_model.safetensors"
_NEAREST = 1e-6  # to 0 and 1: what is surer than this is taken for this


@dataclass(frozen=True)
class Joint:
    """Weights of the two log odds, and what is added to their sum.

    threshold: probability from which a sentence counts as ambiguous; None: the detector's own. ivg:
    SHA-256 of the weights of the adapter B that it was fitted with.
    """

    detector: float = 0.5
    decoder: float = 0.5
    bias: float = 0.0
    threshold: float | None = None
    ivg: str = ""

    def probability(self, detector: float, decoder: float) -> float:
        """Both probabilities (0..1) as one.

        >>> mean = Joint()
        >>> round(mean.probability(0.9, 0.1), 6), round(mean.probability(0.5, 0.9), 2)
        (0.5, 0.75)
        >>> mean.probability(1.0, 0.5) < 1
        True
        """
        odds = self.detector * log_odds(detector) + self.decoder * log_odds(decoder) + self.bias
        return 1 / (1 + math.exp(-odds))


MEAN = Joint()


def log_odds(probability: float) -> float:
    """Logarithm of p / (1 - p), finite for 0 and 1 too."""
    p = min(max(probability, _NEAREST), 1 - _NEAREST)
    return math.log(p / (1 - p))


def weights_digest(ivg: Path) -> str:
    """SHA-256 of adapter B's weights, hexadecimal; empty where the folder has none."""
    path = ivg / ADAPTER_FILE
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def load_joint(detector: Path, ivg: Path) -> Joint:
    """What was fitted for this detector's folder and this adapter B's, else the mean.

    Raises ModelError naming the file and what is wrong with it.
    """
    path = detector / SETTINGS_FILE
    if not path.is_file():
        return MEAN
    content = read_json(path)
    known = Joint.__dataclass_fields__
    joint = Joint(**{key: content[key] for key in known if key in content})
    for name in ("detector", "decoder", "bias"):
        value = getattr(joint, name)
        if not _is_number(value) or not abs(value) <= 100:
            raise ModelError(f"{path}: {name} {value!r}, want a number of at most 100")
    if joint.threshold is not None and not (
        _is_number(joint.threshold) and 0 <= joint.threshold <= 1
    ):
        raise ModelError(f"{path}: threshold {joint.threshold!r}, want 0 to 1")
    return joint if joint.ivg == weights_digest(ivg) else MEAN


def save_joint(joint: Joint, detector: Path, **notes: Any) -> None:
    """Write joint.json into the detector's folder, `notes` (data, figures) beside the numbers."""
    write_json(detector / SETTINGS_FILE, {**notes, **asdict(joint)})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
