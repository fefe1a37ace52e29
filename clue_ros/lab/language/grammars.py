"""The grammar of each simulated world."""

from __future__ import annotations

from functools import lru_cache

from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.paper_grammar import PaperGrammar
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec


def grammar_of(world: str = DEFAULT_WORLD, *, via: bool = False) -> RichGrammar:
    """The grammar of a world. ValueError names the worlds there are.

    via: whether the grammar says which objects are counted (`DialogueState.via`).
    """
    return _grammar(world, via)


@lru_cache(maxsize=8)  # one object, however the arguments are given
def _grammar(world: str, via: bool) -> RichGrammar:
    spec = world_spec(world)
    made = {"rich": RichGrammar, "objects": ObjectGrammar, "paper": PaperGrammar}[spec.language]
    return made(spec, via=via)
