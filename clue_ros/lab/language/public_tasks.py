"""Sentences of PaliGemma's public tasks about a scene: "detect", "answer en", "caption en".

The forms are those of PaliGemma's mix checkpoints (ai.google.dev, "PaliGemma prompt and system
instructions") and of its pretraining (Beyer et al. 2024, appendix: presence "Is {thing} in the
image?", counting "How many {thing}?", listing "What objects are in the image?"). Answers are one
word, numbers are digits. Each box of "detect" has the label of the prompt. PaliGemma's answer for
absent things is not documented; here it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from clue_ros.dialogue.inflection import indefinite
from clue_ros.dialogue.inflection import plural as plural_of
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.references import Candidates, Objects, by_size, has_color, is_called
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.words import ANY_NOUNS, ANY_PLURALS, NUMBERS, Rng, pick
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import world_spec

LISTED = 8  # objects that a "detect" answer, a list or a caption names at most
MOST = 12  # highest number that is answered

# Weights of the forms of a "detect" prompt.
DETECTIONS: dict[str, float] = {
    "noun": 0.36, "phrase": 0.24, "several": 0.2, "absent": 0.16, "all": 0.04,
}  # fmt: skip
# Weights of the sorts of questions: about a whole picture, about a picture of one object.
QUESTIONS: dict[str, float] = {
    "color": 0.22, "kind": 0.12, "number": 0.22, "presence": 0.2, "check": 0.12, "size": 0.08,
    "listing": 0.04,
}  # fmt: skip
CROP_QUESTIONS: dict[str, float] = {"color": 0.35, "kind": 0.3, "check": 0.35}

COLOR_OF = (
    "what color is {} ?", "what color is {} ?", "what is the color of {} ?", "which color is {} ?",
    "what colour is {} ?",
)  # fmt: skip
COLOR_OF_MANY = ("what color are {} ?", "what is the color of {} ?")
KIND_OF = ("what is {} ?", "what is {} ?", "what kind of object is {} ?", "what is {} called ?")
KIND_OF_THIS = (
    "what is this ?", "what is this ?", "what is it ?", "what object is this ?",
    "what kind of object is this ?", "what is this object ?", "what is in the image ?",
    "what is shown in the image ?",
)  # fmt: skip
HOW_MANY = (
    "how many {} are there ?", "how many {} are there ?", "how many {} ?",
    "how many {} are in the image ?", "how many {} are on the table ?", "how many {} do you see ?",
    "how many {} can you see ?",
)  # fmt: skip
PRESENCE = (
    "is there {} ?", "is there {} ?", "is there {} in the image ?", "is {} in the image ?",
    "is there {} on the table ?", "do you see {} ?", "can you see {} ?",
)  # fmt: skip
PRESENCE_OF_MANY = ("are there any {} ?", "are there {} in the image ?", "do you see any {} ?")
LISTING = (
    "what objects are in the image ?", "what is on the table ?", "which objects do you see ?",
)  # fmt: skip
CHECK = ("is {} {} ?", "is {} {} ?", "is the color of {} {} ?")
CHECK_THIS = ("is this {} ?", "is this {} ?", "is it {} ?", "is the object {} ?")
SIZE_OF = ("what size is {} ?", "how big is {} ?")
THIS = ("this", "this object", "the object", "it", "this thing")
YES, NO = "yes", "no"
CAPTION_END = "and"
_TRIES = 20


@dataclass(frozen=True)
class TaskQuestion:
    """A question about a picture.

    sort: one of QUESTIONS. meant: the objects that it is about. named: the object that the answer's
    words describe; None if they describe several or none.
    """

    sort: str
    text: str
    answer: str
    meant: Candidates
    named: int | None = None


Entries = list[tuple[str, Candidates]]
"""Entries of a "detect" prompt, with the objects that each means; () for absent things."""


@dataclass(frozen=True)
class PublicTasks:
    """The sentences of a world.

    nouns: kind -> its nouns; answers use the first. Where objects have names of their own
    (`SceneObject.names`), each noun stands for itself. single: nouns that have no plural here
    (`ObjectGrammar.single`).
    """

    nouns: Mapping[str, tuple[str, ...]]
    colors: tuple[str, ...]
    grammar: RichGrammar
    single: frozenset[str] = frozenset()

    def _plural(self, noun: str) -> str:
        return noun if noun in self.single else plural_of(noun)

    def name(self, kind: str) -> str:
        """The noun of a kind in answers, lists and captions."""
        return self.nouns.get(kind, (kind,))[0]

    def _known(self, objects: Objects) -> Objects:
        """The objects with all their names."""
        grammar = self.grammar
        return grammar.known(objects) if isinstance(grammar, ObjectGrammar) else objects

    def noun_of(self, o: SceneObject, rng: Rng) -> str:
        """The kind of an object, or one of its other names."""
        return pick(rng, (o.kind, *o.names)) if o.names and rng.uniform() < 0.5 else o.kind

    # --- detect

    def detection(self, objects: Objects, rng: Rng, form: str | None = None) -> Entries | None:
        """The entries of a "detect" prompt; None if the scene does not give the form.

        form: one of DETECTIONS; None draws it.
        """
        form, objects = form or _draw(DETECTIONS, rng), self._known(objects)
        if form == "all":
            return [(pick(rng, ANY_PLURALS[:3]), tuple(range(len(objects))))]
        if form == "phrase":
            found = self.grammar.noun_phrase(objects, rng)
            if found is None:
                return None
            text = found[0].removeprefix("the ") if rng.uniform() < 0.7 else found[0]
            return [(text, found[1])]
        if form == "several":
            count = 2 + int(rng.uniform() < 0.3)
            drawn = [self._entry(objects, rng, rng.uniform() < 0.8) for _ in range(count)]
            entries = [entry for entry in drawn if entry is not None]
            taken = [i for _, found in entries for i in found]
            distinct = len({text for text, _ in entries}) == len(entries) > 1
            return entries if distinct and len(set(taken)) == len(taken) else None
        entry = self._entry(objects, rng, form == "noun")
        return [entry] if entry is not None else None

    def _entry(self, objects: Objects, rng: Rng, present: bool) -> tuple[str, Candidates] | None:
        """Draw a noun, perhaps with a colour, for a present or absent thing."""
        drawn = self._description(objects, rng, present)
        if drawn is None:
            return None
        kind, color, found = drawn
        many = (len(found) > 1 or not found) and rng.uniform() < 0.25
        return self._words(kind, color, rng, many=many), found

    def _description(
        self, objects: Objects, rng: Rng, present: bool, color_rate: float = 0.35
    ) -> tuple[str, str | None, Candidates] | None:
        """Draw a present or absent kind, perhaps with a colour, and its objects."""
        for _ in range(_TRIES):
            if present or rng.uniform() < 0.4:
                kind = self.noun_of(objects[int(rng.integers(len(objects)))], rng)
            else:
                kind = pick(rng, list(self.nouns))
            color = None
            if present and rng.uniform() < color_rate:
                color = pick(rng, sorted({o.color for o in objects if is_called(o, kind)}))
            elif not present and rng.uniform() < 0.5:
                color = pick(rng, self.colors)
            found = _called(objects, kind, color)
            if bool(found) == present:
                return kind, color, found
        return None

    def _words(self, kind: str, color: str | None, rng: Rng, *, many: bool = False) -> str:
        noun = pick(rng, self.nouns.get(kind, (kind,)))
        noun = self._plural(noun) if many else noun
        return noun if color is None else f"{color} {noun}"

    # --- answer en

    def question(self, objects: Objects, rng: Rng, sort: str | None = None) -> TaskQuestion | None:
        """A question about a whole picture; None if the scene does not give one of the sort."""
        asks: dict[str, Callable[[Objects, Rng], TaskQuestion | None]] = {
            "color": self._color, "kind": self._kind, "number": self._number,
            "presence": self._presence, "check": self._check, "size": self._size,
            "listing": self._listing,
        }  # fmt: skip
        return asks[sort or _draw(QUESTIONS, rng)](self._known(objects), rng)

    def question_about(
        self, target: int, objects: Objects, rng: Rng, sort: str | None = None
    ) -> TaskQuestion:
        """A question about a picture that was cropped around one object.

        sort: one of CROP_QUESTIONS; None draws it.
        """
        objects = self._known(objects)
        o, sort = objects[target], sort or _draw(CROP_QUESTIONS, rng)
        if sort == "kind":
            return TaskQuestion(sort, pick(rng, KIND_OF_THIS), self.name(o.kind), (target,), target)
        if sort == "color":
            noun = f"the {self._words(o.kind, None, rng)}"
            subject = noun if rng.uniform() < 0.3 else pick(rng, THIS)
            return TaskQuestion(
                sort, pick(rng, COLOR_OF).format(subject), o.color, (target,), target
            )
        # A yes-or-no question names the kind, the colour or both; one of them is wrong in half.
        true, form = rng.uniform() < 0.5, rng.uniform()
        kind, color = o.kind, o.color
        if not true:
            wrong = "kind" if form < 0.4 else "color" if form < 0.6 else pick(rng, _WRONG)
            kind = self._other_kind(o, objects, rng) if wrong != "color" else kind
            color = self._other_color(o, objects, rng) if wrong != "kind" else color
        noun = self._words(kind, None, rng)
        said = noun if form < 0.4 else color if form < 0.6 else f"{color} {noun}"
        bare = 0.4 <= form < 0.6 or rng.uniform() < 0.3  # "is this red mug ?" of a program
        said = said if bare else indefinite(said)
        text = pick(rng, CHECK_THIS).format(said)
        return TaskQuestion(sort, text, YES if true else NO, (target,), target)

    def _subject(self, objects: Objects, rng: Rng) -> tuple[str, int] | None:
        """A noun phrase without a colour that means one object, and that object."""
        if rng.uniform() < 0.5:
            kinds = [self.noun_of(o, rng) for o in objects]
            single = [i for i, kind in enumerate(kinds) if len(_called(objects, kind, None)) == 1]
            if single:
                i = single[int(rng.integers(len(single)))]
                return f"the {self._words(kinds[i], None, rng)}", i
        for _ in range(4):
            found = self.grammar.noun_phrase(objects, rng)
            if found and len(found[1]) == 1 and not {*found[0].split()} & {*self.colors}:
                return found[0], found[1][0]
        return None

    def _color(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        kind = self.noun_of(objects[int(rng.integers(len(objects)))], rng)
        found = _called(objects, kind, None)
        colors = {objects[i].color for i in found}
        if len(found) > 1 and len(colors) == 1:
            many = f"the {self._words(kind, None, rng, many=True)}"
            return TaskQuestion("color", pick(rng, COLOR_OF_MANY).format(many), colors.pop(), found)
        subject = self._subject(objects, rng)
        if subject is None:
            return None
        text, i = subject
        return TaskQuestion("color", pick(rng, COLOR_OF).format(text), objects[i].color, (i,), i)

    def _kind(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        colors = [o.color for o in objects]
        single = [i for i, c in enumerate(colors) if sum(has_color(o, c) for o in objects) == 1]
        if not single:
            return None
        i = single[int(rng.integers(len(single)))]
        subject = f"the {colors[i]} {pick(rng, ANY_NOUNS)}"
        name = self.name(objects[i].kind)
        return TaskQuestion("kind", pick(rng, KIND_OF).format(subject), name, (i,), i)

    def _number(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        drawn = self._description(objects, rng, rng.uniform() < 0.8, color_rate=0.25)
        if drawn is None or len(drawn[2]) > MOST:
            return None
        kind, color, found = drawn
        text = pick(rng, HOW_MANY).format(self._words(kind, color, rng, many=True))
        return TaskQuestion("number", text, str(len(found)), found)

    def _presence(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        drawn = self._description(objects, rng, rng.uniform() < 0.5, color_rate=0.5)
        if drawn is None:
            return None
        kind, color, found = drawn
        if rng.uniform() < 0.2:
            text = pick(rng, PRESENCE_OF_MANY).format(self._words(kind, color, rng, many=True))
        else:
            text = pick(rng, PRESENCE).format(indefinite(self._words(kind, color, rng)))
        named = found[0] if len(found) == 1 else None
        return TaskQuestion("presence", text, YES if found else NO, found, named)

    def _check(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        subject = self._subject(objects, rng)
        if subject is None:
            return None
        text, i = subject
        true = rng.uniform() < 0.5
        color = objects[i].color if true else self._other_color(objects[i], objects, rng)
        question = pick(rng, CHECK).format(text, color)
        return TaskQuestion("check", question, YES if true else NO, (i,), i)

    def _size(self, objects: Objects, rng: Rng) -> TaskQuestion | None:
        """Big or small among those of its kind, which its colour tells apart."""
        for i in rng.permutation(len(objects)):
            o = objects[int(i)]
            pool = _called(objects, o.kind, None)
            if len(_called(objects, o.kind, o.color)) > 1 or len(pool) < 2:
                continue
            big, small = (by_size(pool, objects, size) for size in ("big", "small"))
            if big is None or small is None or int(i) not in (*big, *small):
                continue
            size = "big" if int(i) in big else "small"
            subject = f"the {self._words(o.kind, o.color, rng)}"
            if rng.uniform() < 0.4:
                text, answer = pick(rng, SIZE_OF).format(subject), size
            else:
                asked = pick(rng, ("big", "small"))
                text, answer = f"is {subject} {asked} ?", YES if asked == size else NO
            return TaskQuestion("size", text, answer, pool, int(i))
        return None

    def _listing(self, objects: Objects, rng: Rng) -> TaskQuestion:
        order = from_left(range(len(objects)), objects)
        names = list(dict.fromkeys(self.name(objects[i].kind) for i in order))[:LISTED]
        return TaskQuestion("listing", pick(rng, LISTING), " , ".join(names), tuple(order))

    def _other_kind(self, o: SceneObject, objects: Objects, rng: Rng) -> str:
        near = sorted({p.kind for p in objects if not is_called(o, p.kind)})
        other = [kind for kind in self.nouns if not is_called(o, kind)]
        kinds = near if near and rng.uniform() < 0.4 else other
        return pick(rng, kinds)

    def _other_color(self, o: SceneObject, objects: Objects, rng: Rng) -> str:
        near = sorted({p.color for p in objects} - {o.color, *o.colors})
        other = [color for color in self.colors if not has_color(o, color)]
        colors = near if near and rng.uniform() < 0.5 else other
        return pick(rng, colors)

    # --- caption en

    def caption(self, objects: Objects) -> list[tuple[str, Candidates]]:
        """Parts of a caption, from left to right, with the objects that each names.

        Objects of one kind and colour are one part: "a red mug", "two blue bowls".
        """
        groups: dict[tuple[str, str], list[int]] = {}
        for i in from_left(range(len(objects)), objects):
            groups.setdefault((objects[i].color, objects[i].kind), []).append(i)
        parts = []
        for (color, kind), found in list(groups.items())[:LISTED]:
            noun = self.name(kind)
            many = f"{NUMBERS.get(len(found), 'many')} {color} {self._plural(noun)}"
            one = indefinite(f"{color} {noun}")
            parts.append((many if len(found) > 1 else one, tuple(found)))
        return parts

    def words(self) -> list[str]:
        """Texts that together hold every word of the tasks, for the tokenizer."""
        tables = (
            COLOR_OF, COLOR_OF_MANY, KIND_OF, KIND_OF_THIS, HOW_MANY, PRESENCE, PRESENCE_OF_MANY,
            LISTING, CHECK, CHECK_THIS, SIZE_OF, THIS, ANY_PLURALS,
        )  # fmt: skip
        texts = [text.replace("{}", " ") for table in tables for text in table]
        texts += ["detect answer caption en a an big small many", YES, NO, CAPTION_END]
        return [*texts, *NUMBERS.values(), *map(str, range(MOST + 1))]


_WRONG = ("kind", "color", "both")


@lru_cache(maxsize=8)
def public_tasks(world: str) -> PublicTasks:
    """The sentences of a world. ValueError names the worlds there are."""
    return tasks_of(world_spec(world), grammar_of(world))


def tasks_of(spec: WorldSpec, grammar: RichGrammar) -> PublicTasks:
    """The sentences of a world with a grammar. The object grammar has more nouns and colours."""
    if isinstance(grammar, ObjectGrammar):
        nouns = {noun: (noun,) for noun in grammar.all_nouns}
        return PublicTasks(nouns, grammar.colors, grammar, grammar.single)
    return PublicTasks(dict(spec.nouns), tuple(spec.colors), grammar)


def from_left(chosen: Sequence[int], objects: Objects) -> list[int]:
    """Objects in the order in which lists and captions name them."""
    return sorted(chosen, key=lambda i: objects[i].center[0])


def caption_text(parts: Sequence[str]) -> str:
    """The parts of a caption as a sentence.

    >>> caption_text(["a red mug", "two blue bowls", "a green apple"])
    'a red mug , two blue bowls and a green apple'
    """
    *first, last = parts
    return f"{' , '.join(first)} {CAPTION_END} {last}" if first else last


def _called(objects: Objects, kind: str, color: str | None) -> Candidates:
    return tuple(i for i, o in enumerate(objects) if is_called(o, kind) and has_color(o, color))


def _draw(shares: Mapping[str, float], rng: Rng) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))
