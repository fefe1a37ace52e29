"""The words of the embedded model's tokenizer: what the templates, the dialogues and IT2P use."""

from __future__ import annotations

import re

from clue_ros.lab.language import blocks
from clue_ros.lab.language.blocks import AHEAD, ANY_NOUNS, BEHIND, NOUNS, VERBS
from clue_ros.lab.language.grammars import language_of
from clue_ros.lab.simulator.scene import COLORS
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD

# Words of IT2P's annotators and of people who are polite, beyond those in the templates above.
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


def vocabulary(world: str = DEFAULT_WORLD) -> list[str]:
    """Every word that the embedded tokenizer knows, in alphabetical order.

    world: what the base is trained on; other than the default one add their language's words.
    """
    parts: list[str] = [*VERBS, *ANY_NOUNS, *COLORS, MORE_WORDS, *blocks.TEMPLATES]
    for table in (NOUNS, AHEAD, BEHIND):
        parts += [word for words in table.values() for word in words]
    parts += ["leftmost rightmost the one"]
    parts += language_of(world).words()
    return sorted({w for text in parts for w in re.findall(r"[a-z]+", text)})
