"""Say a sentence of a dialogue in other words, by a local language model, without a new meaning.

InViG had ChatGPT do this. Here a rephrased sentence is used only if it has the same names, colours,
places, sizes, numbers and polarity as the original; else the original stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from clue_ros.dialogue.noun_phrases import ENGLISH, KINDS
from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError

PROMPT = (
    "Write this sentence in other words. Keep every object, color, place and number, keep yes and"
    " no, and be as short as the sentence. Answer with the new sentence alone.\n{}"
)
_NO = frozenset(("no", "not", "none", "never", "nope", "neither", "nor", "without"))
_YES = frozenset(("yes", "yeah", "yep", "right", "exactly"))
_LONGER = 2  # times as many words at most, and
_MORE = 4  # so many more


def facts_of(text: str, names: Iterable[str] = ()) -> Counter[str]:
    """What a rephrasing must keep: names, colours, places, sizes, numbers, relations, yes and no.

    names: further words for objects, besides those of the command grammar.

    >>> sorted(facts_of("No, the top red mug, please."))
    ['mug', 'no', 'red', 'upper']
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"n['\u2019]t\b", " not", text.lower()))
    known = {word for name in (*KINDS, *names) for word in name.lower().split()}
    found: Counter[str] = Counter()
    for word in words:
        singular = word.removesuffix("s")
        if word in known or singular in known:
            found[word if word in known else singular] += 1
        for table in (ENGLISH.colors, ENGLISH.places, ENGLISH.sizes):
            if word in table:
                found[table[word]] += 1
        if word in ENGLISH.numbers:
            found[f"number {ENGLISH.numbers[word]}"] += 1
        elif word.isdigit():
            found[f"number {word}"] += 1
        if word in ENGLISH.relations:
            found[ENGLISH.relations[word]] += 1
        if word in _NO:
            found["no"] += 1
        if word in _YES:
            found["yes"] += 1
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


class Rephraser:
    """Rephrases sentences. say: a language model's answer to a prompt, one line.

    tried, changed, refused: numbers of sentences.
    """

    def __init__(self, say: Callable[[str], str]) -> None:
        self._say = say
        self.tried = self.changed = self.refused = 0

    def __call__(self, text: str, names: Iterable[str] = ()) -> str:
        """Other words for a sentence, or the sentence itself."""
        self.tried += 1
        said = self._say(PROMPT.format(text)).strip().strip('"').strip()
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
