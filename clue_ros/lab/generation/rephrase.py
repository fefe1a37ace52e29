"""Say a sentence of a dialogue in other words, by a local language model, without a new meaning.

InViG had ChatGPT do this, as people of several personalities, vocations and proficiencies: the
person of a dialogue may be one of `Personas`. Here a rephrased sentence is used only if it has the
same names, colours, places, sizes, numbers, yes and no as the original, in the same order, and no
other word with a meaning of its own; else the original stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.inflection import singulars
from clue_ros.dialogue.noun_phrases import ENGLISH
from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError
from clue_ros.lab.simulator.worlds import world_spec

PROMPT = (
    "Write this sentence in other words. Keep every object, color, place and number, keep yes and"
    " no, and be as short as the sentence. Answer with the new sentence alone.\n{}"
)
PERSONA = "Talk as this person does: {personality}, {vocation}, {proficiency}. "
DEFAULT_PERSONAS = Path(__file__).with_name("personas.json")
_KINDS = [kind for world in ("rich", "blocks") for kind in world_spec(world).kinds]
_NO_WORDS = (
    "no not none never nope neither nor without nothing nobody nowhere incorrect wrong false"
)
_YES_WORDS = "yes yeah yep yup exactly correct indeed absolutely definitely certainly true"
_NO, _YES = frozenset(_NO_WORDS.split()), frozenset(_YES_WORDS.split())
_SAME = {
    "what": "which", "colour": "color", "colored": "color", "coloured": "color",
    "top": "upper", "bottom": "lower", "center": "middle", "centre": "middle",
    "leftmost": "left", "rightmost": "right", "beside": "next",
}  # fmt: skip
_SPEAKING = "with of in on at over out for no where where's part color colour colored coloured"
_SILENT = "do does did s m d ll re ve wo was were be been being we he she they kindly"
_FREE = ENGLISH.openings | ENGLISH.endings | ENGLISH.fillers | ENGLISH.generic
_FREE = (_FREE - set(_SPEAKING.split())) | set(_SILENT.split())
"""Words that say nothing about the object; another word is in the other wording too."""
_BEFORE_PLACE = re.compile(
    r"\b(?:on|at|to|in)(?: the)? (?=(?:far |very |upper |lower |top |bottom )?"
    r"(?:left|right|leftmost|rightmost|middle|center|centre|top|bottom|upper|lower)\b)"
)
_LONGER = 2  # times as many words at most, and
_MORE = 4  # so many more


def facts_of(text: str, names: Iterable[str] = ()) -> list[str]:
    """The facts that a rephrasing must keep, in order: each word with a meaning, and yes and no.

    These are names, colours, places, sizes, numbers, relations, and every other word but verbs of
    taking, articles, pronouns and politeness. Words of one meaning are one fact.

    names: further words for objects, besides the kinds of the generated worlds.

    >>> facts_of("No, the top red mug, please.")
    ['no', 'upper', 'red', 'mug']
    """
    plain = re.sub(r"n['\u2019]t\b|(?<=can)not\b", " not", text.lower())
    known = {word for name in (*_KINDS, *names) for word in name.lower().split()}
    found: list[str] = []
    for word in re.findall(r"\w+", _BEFORE_PLACE.sub("", plain)):
        name = next((form for form in (word, *sorted(singulars(word))) if form in known), None)
        if name is not None:
            found.append(name)
        elif word in _NO:
            found.append("no")
        elif word in _YES:
            found.append("yes")
        elif word in ENGLISH.numbers:
            found.append(f"number {ENGLISH.numbers[word]}")
        elif word not in _FREE:
            same = ENGLISH.colors.get(word) or ENGLISH.sizes.get(word) or _SAME.get(word)
            found.append(same or word)
    return found


def is_same(original: str, other: str, names: Iterable[str] = ()) -> bool:
    """Whether a rephrasing keeps the facts, its length and whether it asks.

    >>> is_same("is it the red mug?", "do you mean the red mug?")
    True
    >>> is_same("the red mug", "the blue mug"), is_same("yes", "no"), is_same("a mug?", "a mug")
    (False, False, False)
    """
    before, after = len(original.split()), len(other.split())
    if not 0 < after <= max(_LONGER * before, before + _MORE):
        return False
    if ("?" in original) != ("?" in other):
        return False
    names = tuple(names)
    return facts_of(original, names) == facts_of(other, names)


@dataclass(frozen=True)
class Personas:
    """The traits of a dialogue's person: words that go together in any combination."""

    personality: tuple[str, ...]
    vocation: tuple[str, ...]
    proficiency: tuple[str, ...]

    def draw(self, rng: np.random.Generator) -> str:
        """One of them, as the sentence that begins a prompt."""
        drawn = {f.name: getattr(self, f.name) for f in fields(self)}
        words = {name: of[int(rng.integers(len(of)))] for name, of in drawn.items()}
        return PERSONA.format(**words)


def read_personas(path: str | Path) -> Personas:
    """The personas of a JSON file: an object with a list of words for each attribute of `Personas`.

    Raises ClueError.
    """
    names = [f.name for f in fields(Personas)]
    lists: list[Any] = []
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ClueError(f"cannot read the personas in {path}: {error}") from error
    if isinstance(content, dict):
        lists = [content.get(name) for name in names]
    if not lists or not all(
        isinstance(of, list) and of and all(isinstance(word, str) for word in of) for of in lists
    ):
        raise ClueError(f"{path} must have a list of words for each of {', '.join(names)}")
    return Personas(*(tuple(map(clean_text, of)) for of in lists))


class Rephraser:
    """Rephrases sentences. say: a language model's answer to a prompt, one line.

    tried, changed, refused, taken_back: numbers of sentences.
    """

    def __init__(self, say: Callable[[str], str]) -> None:
        self._say = say
        self.tried = self.changed = self.refused = self.taken_back = 0

    def __call__(self, text: str, names: Iterable[str] = (), persona: str = "") -> str:
        """Other words for a sentence, or the sentence itself. persona: of `Personas.draw`."""
        self.tried += 1
        said = self._say(persona + PROMPT.format(text)).strip().strip('"').strip()
        try:
            said = clean_text(said)
        except ClueError:
            said = ""
        if said == text:
            return text
        if not is_same(text, said, names):
            self.refused += 1
            return text
        self.changed += 1
        return said

    def take_back(self, count: int) -> None:
        """Take back `count` changed sentences, which are not used."""
        self.changed -= count
        self.taken_back += count
