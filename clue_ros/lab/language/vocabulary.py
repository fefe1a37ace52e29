"""The words of the embedded model's tokenizer: those of a world's grammar and of IT2P."""

from __future__ import annotations

import re

from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.public_tasks import public_tasks
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD

# Words of IT2P's annotators and of polite people, beyond those of the grammar.
MORE_WORDS = (
    "between and blocks center other others among near two next to just another below beneath "
    "above color colour which is in among lowest highest farthest closest front back near far "
    "small big large little tall short black brown pink gray grey cyan dark light bright box "
    "bottle cup mug bowl plate apple banana fork spoon upperleft upperright lowerleft lowerright "
    "first second third last yes no not this that these those it them robot hey hi hello ok okay "
    "thanks thank you a an some any all both of for with by from there here detect clarify "
    "disambiguate assistant user do does can could would will see what who where how many cubes "
    "balls cylinders cans objects things items red green blue yellow purple orange white corner "
    "side edge table"
)


def vocabulary(world: str = DEFAULT_WORLD, *, public: bool = False) -> list[str]:
    """Every word that the embedded tokenizer knows, in alphabetical order.

    world: the world of the base's training; its grammar describes every picture.
    public: with the words and numbers of PaliGemma's public tasks.
    """
    parts = [MORE_WORDS, *grammar_of(world).words()]
    if public:
        parts += public_tasks(world).words()
    return sorted({w for text in parts for w in re.findall(r"[a-z]+|[0-9]+", text)})
