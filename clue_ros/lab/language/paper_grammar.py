"""The sentences of CLUE's Dataset 1 (section IV-A): "get the X", clear or ambiguous.

X is a kind, a colour, or both. The dialogues end there: the detector reads the request alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.phrases import Phrasing
from clue_ros.lab.language.references import Objects
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.words import Rng
from clue_ros.lab.simulator.spec import WorldSpec


class PaperGrammar(RichGrammar):
    """The grammar of the paper's instructions about the objects of a scene."""

    sorts: Mapping[str, float] = MappingProxyType({"plain": 1.0})
    balanced_sorts: Mapping[str, Mapping[str, float]] = MappingProxyType(
        {"clear": sorts, "ambiguous": sorts}
    )

    def __init__(self, spec: WorldSpec, *, via: bool = False) -> None:
        super().__init__(spec, via=via)
        self.phrasing = Phrasing(spec.nouns, {}, 0.0, ("get {}",))

    def dialogue(
        self, objects: Objects, rng: Rng, want: str | None = None, *, balanced: bool = True
    ) -> list[DialogueState]:
        """The request alone, clear or ambiguous, wanted equally often; [] where there is none."""
        want = want or ("clear", "ambiguous")[int(rng.integers(2))]
        return super().dialogue(objects, rng, want, balanced=balanced)[:1]

    def dialogue_of_sort(self, objects: Objects, rng: Rng, sort: str) -> list[DialogueState]:
        """Nobody counts or compares here."""
        return []
