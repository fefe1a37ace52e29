"""The grammar of each simulated world."""

from __future__ import annotations

from functools import lru_cache

from clue_ros.lab.language.dialogues import Grammar
from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.plain_grammar import PlainGrammar
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec


def grammar_of(world: str = DEFAULT_WORLD, *, via: bool = False) -> Grammar:
    """The grammar of a world. ValueError names the worlds there are.

    via: whether the rich grammar says which objects are counted (`DialogueState.via`).
    """
    return _grammar(world, via)


@lru_cache(maxsize=8)  # one object, however the arguments are given
def _grammar(world: str, via: bool) -> Grammar:
    spec = world_spec(world)
    if spec.language == "objects":
        return ObjectGrammar(spec, via=via)
    return RichGrammar(spec, via=via) if spec.language == "rich" else PlainGrammar()


def rich_grammar(world: str = "rich") -> RichGrammar:
    """The grammar of a world with the rich or the object grammar. ValueError for a plain one."""
    grammar = grammar_of(world)
    if not isinstance(grammar, RichGrammar):
        raise ValueError(f"the world {world!r} has the plain grammar, not the rich one")
    return grammar
