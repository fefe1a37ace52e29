"""How each world is spoken of: what training, evaluation and export need of a language.

`plain` is the first one (`language`, `dialogues`), which the shipped model was trained on; `rich`
is that of `talk`. A world's specification names its language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from clue_ros.lab.language import blocks, words
from clue_ros.lab.language.blocks import AHEAD, BEHIND, WHERE, State, meant, phrase
from clue_ros.lab.language.dialogues import Episodes
from clue_ros.lab.language.phrases import RATE, Speech, table_of
from clue_ros.lab.language.questions import WHICH_COLOR
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec

Objects = Sequence[SceneObject]


class Language(Protocol):
    """What is said about a table. All of it is drawn from `rng` alone.

    via: whether it says what is gone through on the way to a thing (`State.via`).
    """

    via: bool

    def states(
        self,
        objects: Objects,
        rng: np.random.Generator,
        want: str | None = None,
        *,
        even: bool = True,
    ) -> list[State]:
        """A random dialogue, revealed; want: "clear", "ambiguous", "absent" or any.

        even: clear and ambiguous ones in like forms where the language can; False: as people ask.
        """

    def states_of(
        self, text: str, candidates: tuple[int, ...], objects: Objects, rng: np.random.Generator
    ) -> list[State]:
        """A dialogue that begins with a sentence that means these candidates."""

    def of_sort(self, objects: Objects, rng: np.random.Generator, sort: str) -> list[State]:
        """A dialogue that begins with a request by "order" or "size"; [] where it has none."""

    def naming(
        self, objects: Objects, rng: np.random.Generator
    ) -> tuple[str, tuple[int, ...]] | None:
        """A noun phrase and the objects that it can mean; None where people differ."""

    def words(self) -> list[str]:
        """Everything that may be said, as texts or words, for the tokenizer."""


class Plain:
    """The language of blocks and novel."""

    via = False

    def of_sort(self, objects: Objects, rng: np.random.Generator, sort: str) -> list[State]:
        """See `Language`; it has none."""
        return []

    def states(
        self,
        objects: Objects,
        rng: np.random.Generator,
        want: str | None = None,
        *,
        even: bool = True,
    ) -> list[State]:
        """See `Language`; its forms are even."""
        return blocks.random_states(objects, rng, want)

    def states_of(
        self, text: str, candidates: tuple[int, ...], objects: Objects, rng: np.random.Generator
    ) -> list[State]:
        """See `Language`."""
        return blocks.states_of(text, candidates, objects, rng)

    def naming(
        self, objects: Objects, rng: np.random.Generator
    ) -> tuple[str, tuple[int, ...]] | None:
        """See `Language`."""
        reference = blocks.random_reference(objects, rng, absent=False)
        found = meant(reference, objects)
        return (phrase(reference, rng), found) if found else None

    def words(self) -> list[str]:
        """None beside those of `vocabulary`."""
        return []


class Rich:
    """The language of the rich worlds, for a specification's kinds and colours.

    via: see `Episodes`.
    """

    def __init__(self, spec: WorldSpec, *, via: bool = False) -> None:
        self.via = via
        self._spec = spec
        self._typing = table_of(self._content())
        self.speech = Speech(spec.nouns, self._typing, RATE)
        self.episodes = Episodes(self.speech, spec.kinds, tuple(spec.colors), via=via)

    def states(
        self,
        objects: Objects,
        rng: np.random.Generator,
        want: str | None = None,
        *,
        even: bool = True,
    ) -> list[State]:
        """See `Language`."""
        return self.episodes.states(objects, rng, want, even=even)

    def states_of(
        self, text: str, candidates: tuple[int, ...], objects: Objects, rng: np.random.Generator
    ) -> list[State]:
        """See `Language`."""
        return self.episodes.states_of(text, candidates, objects, rng)

    def of_sort(self, objects: Objects, rng: np.random.Generator, sort: str) -> list[State]:
        """See `Language`."""
        return self.episodes.of_sort(objects, rng, sort)

    def naming(
        self, objects: Objects, rng: np.random.Generator
    ) -> tuple[str, tuple[int, ...]] | None:
        """See `Language`."""
        want = "clear" if rng.uniform() < 0.5 else "ambiguous"
        found = self.episodes.reference(objects, rng, want, tries=30, even=True)
        if found is None:
            return None
        reference, candidates = found
        return self.speech.typed(self.speech.phrase(reference, rng), rng), candidates

    def _content(self) -> set[str]:
        """The words in which a slip matters: what things are, look like and where they lie."""
        texts = [*self._spec.colors]
        for nouns in self._spec.nouns.values():
            texts += [*nouns, *(words.plural(n) for n in nouns)]
        for table in (words.SIZES, words.RELATIONS, words.PLACES, words.ORDER_SIDES):
            texts += [form.replace("{}", "") for forms in table.values() for form in forms]
        texts += words.ORDINALS
        found = {w for text in texts for w in re.findall(r"[a-z]+", text)}
        return found - {"from", "near", "close", "front", "back", "before"}

    def words(self) -> list[str]:
        """See `Language`; every misspelling that can occur is a word as well."""
        tables = (words.SIZES, words.RELATIONS, words.PLACES, words.ORDER_SIDES, AHEAD, BEHIND)
        texts = [form for table in tables for forms in table.values() for form in forms]
        texts += [*words.ANY_NOUNS, *words.ANY_PLURALS, *words.REQUESTS, *words.ORDINALS]
        texts += [*words.NUMBERS.values(), *words.YES, *words.NO, *words.OTHER, *words.UNSURE]
        texts += [*words.INSTEAD, *words.RENAMED, words.NOTHING, WHICH_COLOR, WHERE, words.OTHERS]
        for forms in (words.BY_COLOR, words.BY_NOT, words.BY_SIZE, words.BY_KIND, words.BY_PLACE,
                      words.BY_ORDER, words.BY_PHRASE):  # fmt: skip
            texts += forms
        texts += self._content()
        texts += [slip for slips in self._typing.values() for slip in slips]
        texts += self._spec.kinds
        return [re.sub(r"\{\w*\}", " ", text) for text in texts]


def language_of(world: str = DEFAULT_WORLD, *, via: bool = False) -> Language:
    """The language of a world by its name. ValueError says which worlds there are.

    via: whether the rich one says what is gone through on the way to a thing (`State.via`).
    """
    return _language(world, via)


@lru_cache(maxsize=8)
def _language(world: str, via: bool) -> Language:
    spec = world_spec(world)
    return Rich(spec, via=via) if spec.language == "rich" else Plain()


def rich_language(world: str = "rich") -> Rich:
    """The rich language of a world. ValueError when it has another one."""
    language = language_of(world)
    if not isinstance(language, Rich):
        raise ValueError(f"the world {world!r} is not spoken of in the rich language")
    return language
