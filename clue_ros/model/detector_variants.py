"""Every detector of the paper's Table I (section IV-A), by name: what is read, where, and how.

A variant says how deep the decoder is run (half, to block 14 of 26, or full), which of the blocks
that are run get LoRA, the conditioning word, and whether a CNN reads the attention map or the
decoder itself answers yes or no. `clue train detector --variant NAME` makes one, `clue eval
detectors` compares them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clue_ros.errors import ModelError
from clue_ros.model.config import half_depth_block

YES, NO = "yes", "no"  # the answers of the AR detectors: ambiguous, clear


@dataclass(frozen=True)
class Variant:
    """One way to detect ambiguity.

    title: the paper's name for it. finetune: "last" puts LoRA into the last block that is run,
    "full" into every block that is run. instruction: the conditioning word. head: "cnn" reads the
    attention map of the last block that is run, "ar" takes the decoder's word for it.
    """

    name: str
    title: str
    depth: Literal["half", "full"]
    finetune: Literal["last", "full"]
    instruction: str
    head: Literal["cnn", "ar"]

    def block(self, blocks: int) -> int:
        """The last block that is run, of a decoder with `blocks` blocks, counted from 0."""
        return half_depth_block(blocks) if self.depth == "half" else blocks - 1

    def adapted(self, blocks: int) -> range:
        """The blocks that get LoRA."""
        last = self.block(blocks)
        return range(last if self.finetune == "last" else 0, last + 1)


_ALL = (
    Variant("half-last-detect-cnn", "Half-Last Detect (CNN)", "half", "last", "detect", "cnn"),
    Variant("half-last-detect-ar", "Half-Last Detect (AR)", "half", "last", "detect", "ar"),
    Variant(
        "half-last-disambig-ar", "Half-Last Disambig. (AR)", "half", "last", "disambiguate", "ar"
    ),
    Variant(
        "half-full-disambig-ar", "Half-Full Disambig. (AR)", "half", "full", "disambiguate", "ar"
    ),
    Variant(
        "full-last-disambig-ar", "Full-Last Disambig. (AR)", "full", "last", "disambiguate", "ar"
    ),
    Variant(
        "full-full-disambig-ar", "Full-Full Disambig. (AR)", "full", "full", "disambiguate", "ar"
    ),
    # Not in the table: what models/tabletop ships.
    Variant("half-full-detect-cnn", "Half-Full Detect (CNN)", "half", "full", "detect", "cnn"),
)
VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _ALL}
DEFAULT = "half-full-detect-cnn"


def find_variant(name: str) -> Variant:
    """The variant of that name. Raises ModelError naming those there are."""
    if name not in VARIANTS:
        raise ModelError(f"no detector variant {name!r}: choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
