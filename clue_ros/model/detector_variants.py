# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The detectors of the paper's Table I (section IV-A), by name.

`clue train detector --variant NAME` trains one, `clue eval detectors` compares them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clue_ros.model.config import half_depth_block

YES, NO = "yes", "no"  # the answers of the AR detectors: ambiguous, clear


@dataclass(frozen=True)
class Variant:
    """One way to detect ambiguity.

    depth: "half" runs the decoder to its middle block (14 of 26), "full" to the last. finetune:
    "last" puts LoRA into the last block that is run, "full" into every block that is run.
    instruction: the conditioning word. head: "cnn" reads the attention map of the last block that
    is run, "ar" takes the decoder's answer, yes or no.
    """

    depth: Literal["half", "full"]
    finetune: Literal["last", "full"]
    instruction: Literal["detect", "disambiguate"]
    head: Literal["cnn", "ar"]

    @property
    def name(self) -> str:
        """The name in commands, such as "half-last-disambig-ar"."""
        return f"{self.depth}-{self.finetune}-{self.instruction[:8]}-{self.head}"

    @property
    def title(self) -> str:
        """The name in Table I, such as "Half-Last Disambig. (AR)"."""
        word = {"detect": "Detect", "disambiguate": "Disambig."}[self.instruction]
        return f"{self.depth.title()}-{self.finetune.title()} {word} ({self.head.upper()})"

    def block(self, blocks: int) -> int:
        """The last block that is run, of a decoder with `blocks` blocks, counted from 0."""
        return half_depth_block(blocks) if self.depth == "half" else blocks - 1

    def adapted(self, blocks: int) -> range:
        """The blocks that get LoRA."""
        last = self.block(blocks)
        return range(last if self.finetune == "last" else 0, last + 1)


_TABLE = (
    Variant("half", "last", "detect", "cnn"),
    Variant("half", "last", "detect", "ar"),
    Variant("half", "last", "disambiguate", "ar"),
    Variant("half", "full", "disambiguate", "ar"),
    Variant("full", "last", "disambiguate", "ar"),
    Variant("full", "full", "disambiguate", "ar"),
    Variant("half", "full", "detect", "cnn"),  # of the shipped models; not in the table
)
VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _TABLE}
PAPER = "half-last-detect-cnn"  # the detector of the paper's Figure 2
