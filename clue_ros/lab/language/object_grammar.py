"""The object grammar: people's words for real things, by any of their names.

It adds to the rich grammar synonyms and hypernyms ("the can" of a soup can), uses ("something to
cut with"), materials, parts, requests typed without articles or in capitals, polite forms,
corrections in the middle of a request, sizes of equally big objects, and ambiguous landmarks. A
request is clear only if one object of the scene matches it by any of its names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from clue_ros.dialogue.inflection import indefinite, plural
from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.dialogue.places import RELATION_DIRECTIONS
from clue_ros.lab.language import words
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.object_words import (
    ABSENT_NOUNS,
    CORRECTIONS,
    HELD_OUT_NOUNS,
    MATERIALS,
    POLITE_REQUESTS,
    USE_REQUESTS,
    USES,
)
from clue_ros.lab.language.phrases import Phrasing, misspelling_table
from clue_ros.lab.language.references import (
    HIGHEST,
    PLACES,
    Candidates,
    Landmark,
    Objects,
    Reference,
    has_color,
    is_called,
    referents,
    relation_holds,
)
from clue_ros.lab.language.rich_grammar import RequestForm, RichGrammar, random_form
from clue_ros.lab.language.words import REQUESTS, SIZES, Rng, pick
from clue_ros.lab.simulator.object_catalogue import COLORS, OBJECTS
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.spec import WorldSpec

OBJECT_SORTS: dict[str, float] = {
    "plain": 0.36, "place": 0.13, "relation": 0.13, "order": 0.06, "size": 0.1, "negation": 0.03,
    "plural": 0.05, "material": 0.05, "part": 0.04, "use": 0.05,
}  # fmt: skip
"""Weights of the sorts of people's requests."""
OBJECT_BALANCED_SORTS: dict[str, dict[str, float]] = {
    "clear": {
        "plain": 0.33, "place": 0.11, "relation": 0.14, "order": 0.12, "size": 0.11,
        "negation": 0.04, "material": 0.05, "part": 0.05, "use": 0.05,
    },
    "ambiguous": {
        "plain": 0.22, "place": 0.11, "relation": 0.19, "size": 0.28, "negation": 0.04,
        "plural": 0.06, "material": 0.05, "use": 0.05,
    },
}  # fmt: skip
"""Weights of the sorts tried for training."""
CANONICAL_RATE = 0.5
"""Share of nouns that are the kind's own; the others are another name or a hypernym."""
BARE_RATE, POLITE_RATE, CORRECTED_RATE = 0.12, 0.15, 0.05
"""Shares of requests typed without articles, in a polite form, and with a correction."""
CAPITAL_RATE, UPPER_RATE = 0.12, 0.03
"""Shares of requests that begin with a capital, and that are all capitals."""


@dataclass(frozen=True)
class ObjectPhrasing(Phrasing):
    """People's wording of references to real things; a reference's kind is its noun.

    wrong_nouns, wrong_colors: words said by mistake in a corrected request.
    """

    wrong_nouns: tuple[str, ...] = ()
    wrong_colors: tuple[str, ...] = ()

    def phrase(self, reference: Reference, rng: Rng) -> str:
        """The reference as a noun phrase with "the", or as "something to ..."."""
        if reference.use is not None:
            return pick(rng, USES[reference.use].phrases)
        return super().phrase(reference, rng)

    def request(self, reference: Reference, rng: Rng) -> str:
        """A whole request, as it was typed."""
        phrase = self.phrase(reference, rng)
        forms = REQUESTS
        if reference.use is not None:
            forms = USE_REQUESTS
        elif rng.uniform() < CORRECTED_RATE and phrase.startswith("the "):
            phrase = self._corrected(phrase, reference, rng)
        if reference.use is None and rng.uniform() < POLITE_RATE:
            forms = POLITE_REQUESTS
        if rng.uniform() < BARE_RATE:
            phrase = re.sub(r"\b(the|an?) (?=\w)", "", phrase)
        text = self.typed(pick(rng, forms).format(phrase), rng)
        draw = rng.uniform()
        if draw < UPPER_RATE:
            return text.upper()
        return text[0].upper() + text[1:] if draw < UPPER_RATE + CAPITAL_RATE else text

    def _corrected(self, phrase: str, reference: Reference, rng: Rng) -> str:
        """The phrase after another one that was said by mistake: "the red , no , the blue mug"."""
        color = reference.color is not None and (reference.kind is None or rng.uniform() < 0.5)
        options = self.wrong_colors if color else self.wrong_nouns
        said = (reference.color, reference.kind)
        wrong = pick(rng, [word for word in options if word not in said])
        return pick(rng, CORRECTIONS).format(w=f"the {wrong}", p=phrase)

    def missing(self, reference: Reference) -> str:
        """An object that is not there: "a wooden spoon", "any scissors", "anything to cut with"."""
        if reference.use is not None:
            first = USES[reference.use].phrases[0]
            return first.replace("something", "anything")
        material = words.adjective(reference.material or "")
        parts = [w for w in (reference.color, material) if w]
        if reference.kind is None:
            return " ".join(["anything", *parts])
        text = indefinite(" ".join([*parts, reference.kind]))
        return re.sub(r"^some ", "any ", text)


class ObjectGrammar(RichGrammar):
    """The grammar of worlds with scanned objects.

    It knows all kinds of `object_catalogue` and those of the world. An object that a scene gives no
    other names has those of its kind. nouns: kind -> the robot's noun, the kind itself. all_nouns:
    every noun that people use, the names of single objects (brands) among them. colors: the world's
    and those of scanned objects. single: nouns of generated kinds whose plural and misspellings the
    tokenizer lacks.
    """

    sorts = OBJECT_SORTS
    balanced_sorts = OBJECT_BALANCED_SORTS
    form_tries = 20

    def __init__(self, spec: WorldSpec, *, via: bool = False) -> None:
        spelt = {k: names for k, names in spec.nouns.items() if k not in ABSENT_NOUNS}
        super().__init__(replace(spec, nouns=spelt), via=via)
        own = {
            k: tuple(dict.fromkeys(n for n in names if n != k)) for k, names in spec.nouns.items()
        }
        self.names: dict[str, tuple[str, ...]] = own | KIND_NAMES
        self.nouns = {kind: kind for kind in self.names}
        self.colors = tuple(dict.fromkeys([*spec.colors, *COLORS]))
        self._colors = list(self.colors)
        brands = [name for entry in OBJECTS.values() for name in entry.names]
        several = [name for names in self.names.values() for name in names]
        self.all_nouns = tuple(dict.fromkeys([*self.names, *several, *brands]))
        known = {k: names for k, names in self.names.items() if k not in ABSENT_NOUNS}
        counted = {*known, *brands, *(name for names in known.values() for name in names)}
        self.single = frozenset(self.all_nouns) - counted
        self.phrasing = ObjectPhrasing(
            {},
            _misspellings(known, self._colors, tuple(n for n in self.all_nouns if n in counted))
            | dict(self.phrasing.misspellings),
            wrong_nouns=tuple(self.names),
            wrong_colors=tuple(self._colors),
        )

    def known(self, objects: Objects) -> list[SceneObject]:
        """The objects with their kinds' names where the scene gives none."""
        return [
            o if o.names or o.kind not in self.names else replace(o, names=self.names[o.kind])
            for o in objects
        ]

    def reference(
        self,
        objects: Objects,
        rng: Rng,
        want: str,
        tries: int = 240,
        *,
        balanced: bool = False,
        sorts: Mapping[str, float] | None = None,
    ) -> tuple[Reference, Candidates] | None:
        """See `RichGrammar.reference`."""
        return super().reference(
            self.known(objects), rng, want, tries, balanced=balanced, sorts=sorts
        )

    def dialogue(
        self, objects: Objects, rng: Rng, want: str | None = None, *, balanced: bool = True
    ) -> list[DialogueState]:
        """See `RichGrammar.dialogue`."""
        return super().dialogue(self.known(objects), rng, want, balanced=balanced)

    def dialogue_of_sort(self, objects: Objects, rng: Rng, sort: str) -> list[DialogueState]:
        """See `RichGrammar.dialogue_of_sort`."""
        return super().dialogue_of_sort(self.known(objects), rng, sort)

    def noun_phrase(self, objects: Objects, rng: Rng) -> tuple[str, Candidates] | None:
        """See `RichGrammar.noun_phrase`; no "something to cut with"."""
        objects = self.known(objects)
        want = "clear" if rng.uniform() < 0.5 else "ambiguous"
        shares = {k: v for k, v in self.balanced_sorts[want].items() if k != "use"}
        total = sum(shares.values())
        sorts = {k: v / total for k, v in shares.items()}
        found = super().reference(objects, rng, want, 60, sorts=sorts)
        if found is None:
            return None
        return self.phrasing.typed(self.phrasing.phrase(found[0], rng), rng), found[1]

    # --- draws

    def referents(self, reference: Reference, objects: Objects) -> Candidates | None:
        """Return the objects that a reference can mean, vague references included."""
        return referents(reference, objects, vague=True)

    def noun_of(self, o: SceneObject, rng: Rng) -> str:
        """A noun that people call an object by."""
        if not o.names or rng.uniform() < CANONICAL_RATE:
            return o.kind
        return pick(rng, o.names)

    def random_reference(self, objects: Objects, rng: Rng, form: RequestForm | None) -> Reference:
        """Draw a reference to an object of the scene; it may mean several, or be unclear."""
        form = form or random_form(rng, self.sorts)
        o = objects[int(rng.integers(len(objects)))]
        noun = self.noun_of(o, rng) if form.kind else None
        color = self._color_of(o, rng) if form.color else None
        sort = form.sort
        if sort == "plain":
            return Reference(noun, color)
        if sort == "place":
            return Reference(noun, color, place=pick(rng, PLACES))
        if sort == "relation":
            return self._relation(o, noun, color, objects, rng)
        if sort == "order":
            side = str(rng.choice(["left", "right", "top", "bottom"], p=[0.4, 0.4, 0.1, 0.1]))
            return Reference(noun, color, order=(int(rng.integers(1, HIGHEST + 1)), side))
        if sort == "size":
            noun = self._shared_noun(o, objects, rng) if form.kind else None
            return Reference(noun, color, size=pick(rng, list(SIZES)))
        if sort == "negation":
            colors = sorted({p.color for p in objects} - {o.color, *o.colors})
            return Reference(noun, not_color=pick(rng, colors) if colors else None)
        if sort == "material":
            return Reference(noun, color, material=o.material or None)
        if sort == "part":
            return Reference(noun, part=pick(rng, o.parts) if o.parts else None)
        if sort == "use":
            uses = [name for name, use in USES.items() if o.kind in use.kinds]
            return Reference(use=pick(rng, uses)) if uses else Reference()
        noun = self.noun_of(o, rng)
        if noun in self.single:
            return Reference()
        same = sum(is_called(p, noun) and has_color(p, color) for p in objects)
        return Reference(noun, color, plural=same if rng.uniform() < 0.4 else 0)

    def _shared_noun(self, o: SceneObject, objects: Objects, rng: Rng) -> str | None:
        """A noun that another object has too; else any object, as sizes are said of several."""
        others = [p for p in objects if p is not o]
        shared = [n for n in (o.kind, *o.names) if any(is_called(p, n) for p in others)]
        return pick(rng, shared) if shared else None

    def _color_of(self, o: SceneObject, rng: Rng) -> str:
        return pick(rng, o.colors) if len(o.colors) > 1 and rng.uniform() < 0.2 else o.color

    def _relation(
        self, o: SceneObject, noun: str | None, color: str | None, objects: Objects, rng: Rng
    ) -> Reference:
        """A relation of the object to another one, in which it is for the most part."""
        other = objects[int(rng.integers(len(objects)))]
        mark_color = other.color if rng.uniform() < 0.3 else None
        landmark = Landmark(self.noun_of(other, rng), mark_color)
        if is_called(o, landmark.kind) and mark_color in (None, o.color):
            return Reference()  # nobody says "the mug by the mug"
        holding = [r for r in (*RELATION_DIRECTIONS, "next") if relation_holds(o, other, r)]
        relation = pick(rng, holding) if holding else pick(rng, [*RELATION_DIRECTIONS, "next"])
        return Reference(noun, color, relation=(relation, landmark))

    def _absent_reference(self, objects: Objects, rng: Rng) -> Reference:
        """Draw a thing, a colour or material of one, or a use, that the scene may lack."""
        form = rng.uniform()
        o = objects[int(rng.integers(len(objects)))]
        if form < 0.32:
            color = pick(rng, self._colors) if rng.uniform() < 0.25 else None
            return Reference(pick(rng, self.all_nouns), color)
        if form < 0.55:
            return Reference(pick(rng, ABSENT_NOUNS))
        if form < 0.78:
            return Reference(self.noun_of(o, rng), pick(rng, self._colors))
        if form < 0.86:
            return Reference(None, pick(rng, self._colors))
        if form < 0.93:
            return Reference(self.noun_of(o, rng), material=pick(rng, list(MATERIALS)))
        return Reference(use=pick(rng, list(USES)))

    def held_out_request(self, rng: Rng) -> tuple[str, str]:
        """A request for a thing that training never names, and the robot's sentence about it."""
        reference = Reference(pick(rng, HELD_OUT_NOUNS))
        text = self.phrasing.request(reference, rng)
        return text, words.NOTHING.format(self.phrasing.missing(reference))

    def words(self) -> list[str]:
        """See `RichGrammar.words`; with every misspelling."""
        several = [plural(noun) for noun in self.all_nouns if noun not in self.single]
        texts = [*super().words(), *self.all_nouns, *several]
        texts += [*ABSENT_NOUNS, *USE_REQUESTS, *POLITE_REQUESTS, *CORRECTIONS]
        texts += [phrase for use in USES.values() for phrase in use.phrases]
        texts += [word for material, forms in MATERIALS.items() for word in (material, *forms)]
        texts += [part for entry in OBJECTS.values() for part in entry.parts]
        texts += [*self._colors, "some any anything with pair pairs boxes"]
        return [re.sub(r"\{\w*\}", " ", text) for text in texts]


def _misspellings(
    names: Mapping[str, tuple[str, ...]], colors: list[str], nouns: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Two misspellings of each word of the kinds and colours, and of sizes and places.

    None is a word of another noun.
    """
    texts = [*names, *colors, *words.ORDINALS, *words.ANY_NOUNS]
    for table in (SIZES, words.RELATIONS, words.PLACES):
        texts += [form.replace("{}", "") for forms in table.values() for form in forms]
    content = {w for text in texts for w in re.findall(r"[a-z]+", text)}
    content -= {"from", "near", "close", "front", "back", "before"}
    every = [*nouns, *map(plural, nouns), *ABSENT_NOUNS, *HELD_OUT_NOUNS]
    taken = {w for text in every for w in re.findall(r"[a-z]+", text)}
    table = misspelling_table(content)
    found = {w: tuple(s for s in made if s not in taken)[:2] for w, made in table.items()}
    return {w: made for w, made in found.items() if made}
