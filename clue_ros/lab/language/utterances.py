# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Utterances of people with their class, drawn from templates, for `clue train intent`.

`templates/LANGUAGE/CLASS.txt` has one form of a sentence a line, with slots to fill at random;
`slots.txt` has their fillings:

    {np} a noun phrase   {n} a noun   {ns} a plural   {one} "the red one"   {pron} "it"
    {color}   {place} "on the shelf"   {person} "my sister"   {time} "yesterday"
    {verb} {verbing} {verbed} an action on an object, in three forms

The words of nouns and of their modifiers are marked, so that the same draws teach which words name
things (`clue_ros.dialogue.nouns`). A noun is any name of `clue_ros.dialogue.object_names`, a
person, or, in a share of draws, a word that does not exist, so that no list of nouns is learned. A
sentence gets additions of speech (courtesy, hesitation, an address), and loses what a recognizer or
a keyboard loses (punctuation, case, letters, accents).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from clue_ros.dialogue.inflection import article, plural
from clue_ros.dialogue.intent import NOTHING_ASKED, Asked
from clue_ros.dialogue.object_names import KNOWN_NAMES
from clue_ros.lab.language import words
from clue_ros.lab.language.phrases import misspellings_of
from clue_ros.lab.language.words import Rng, pick

NOUN, MODIFIER = "\x02", "\x03"
"""Mark a word of a noun, and one of its modifiers; `unmarked` takes them off."""
RARE = 0.55  # share of templates from LANGUAGE/more
NEGATED = 0.12  # share of refusals that negate a request
NEW_WORD = 0.25  # share of nouns that no list has
MISSPELT = 0.06  # share of utterances with a misspelt word
UNPUNCTUATED = 0.5  # share of utterances as a recognizer writes them
COURTEOUS = 0.25  # share of utterances with additions of speech

_MARKS = re.compile(f"[{NOUN}{MODIFIER}]")
_SLOT = re.compile(r"\{(\w+)\}")
_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnprstvwz"
_YES_NO = ("yes", "no")

Slots = Mapping[str, Callable[[Rng], str]]


@dataclass(frozen=True)
class Utterance:
    """An utterance, its class (of `clue_ros.dialogue.intent.CLASSES`), and the open question.

    marked: the text with NOUN or MODIFIER before the words of things.
    """

    text: str
    kind: str
    asked: Asked = NOTHING_ASKED
    marked: str = ""


@cache
def templates(name: str) -> tuple[str, ...]:
    """The lines of templates/NAME.txt without comments; NAME such as "en/request"."""
    text = (files("clue_ros.lab.language") / "templates" / f"{name}.txt").read_text("utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip() and line[0] != "#")


@cache
def has_more(name: str) -> bool:
    """Return whether LANGUAGE/more/CLASS.txt has rarer forms beside the common ones."""
    return (files("clue_ros.lab.language") / "templates" / f"{name}.txt").is_file()


@cache
def pool(name: str) -> tuple[str, ...]:
    """The words of a name in slots.txt; NAME such as "en/color"."""
    language, _, key = name.partition("/")
    rows = (row.partition(":") for row in templates(f"{language}/slots"))
    return tuple(w.strip() for k, _, said in rows if k == key for w in said.split(",") if w.strip())


def unmarked(text: str) -> str:
    """A text without marks."""
    return _MARKS.sub("", text)


def mark(text: str, sign: str) -> str:
    """A text with a mark before each word that has none."""
    return " ".join(word if word[0] in (NOUN, MODIFIER) else sign + word for word in text.split())


def new_word(rng: Rng) -> str:
    """A word that does not exist: one to three syllables."""
    return "".join(
        pick(rng, _CONSONANTS) + pick(rng, _VOWELS) + pick(rng, ("", *_CONSONANTS[::3]))
        for _ in range(int(rng.integers(1, 4)))
    )


class Language(ABC):
    """The names of things in a language. `name` is the folder of its templates."""

    name = ""

    def some(self, rng: Rng, key: str) -> str:
        """One of the words of a name in slots.txt."""
        return pick(rng, pool(f"{self.name}/{key}"))

    @abstractmethod
    def noun(self, rng: Rng) -> str:
        """A marked noun: of a list, or a word that does not exist."""

    @abstractmethod
    def nouns(self, rng: Rng) -> str:
        """A marked noun in plural."""

    @abstractmethod
    def noun_phrase(self, rng: Rng, head: str = "") -> str:
        """A marked noun phrase with any modifiers, as people describe things in pictures."""

    @abstractmethod
    def one(self, rng: Rng) -> str:
        """Such as "the red one", marked."""

    @abstractmethod
    def options(self, rng: Rng) -> tuple[str, ...]:
        """Two or three answers that a question offers."""

    @abstractmethod
    def definite(self, noun: str) -> str:
        """A noun with its definite article."""

    pronouns: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    names: tuple[str, ...] = ("{np}", "{np}", "{np}", "{one}")

    def template(self, rng: Rng, kind: str) -> str:
        """A template of a class; half of them are common forms, where there are rarer ones."""
        rare = f"{self.name}/more/{kind}"
        known = has_more(rare) and rng.uniform() < RARE
        return pick(rng, templates(rare if known else f"{self.name}/{kind}"))

    def slot(self, rng: Rng, name: str) -> str:
        """A draw for a slot."""
        if name in ("verb", "verbing", "verbed"):
            return self.some(rng, "verb").split("/")[("verb", "verbing", "verbed").index(name)]
        if name in ("color", "place", "which", "adjective", "relation", "ing"):
            return mark(self.some(rng, name).split("/")[0], MODIFIER)
        makers: Slots = {"np": self.noun_phrase, "n": self.noun, "ns": self.nouns, "one": self.one}
        if name in makers:
            return makers[name](rng)
        return pick(rng, self.pronouns) if name == "pron" else self.some(rng, name)

    def fill(self, template: str, rng: Rng, given: Mapping[str, str] | None = None) -> str:
        """A template with its slots filled. given: what some slots get, instead of a draw."""
        known = given or {}
        return _SLOT.sub(lambda slot: known.get(slot[1]) or self.slot(rng, slot[1]), template)


class English(Language):
    """English."""

    name = "en"
    pronouns = ("it", "it", "that", "this", "them", "those")
    requests = tuple(form.replace("{}", "{np}") for form in words.REQUESTS)
    names = (
        "{np}", "{np}", "{np}", "{np}", "{one}", "{color} {n}", "{which} {n}", "{adjective} {n}",
        "{n} {place}", "{color} {n} {place}", "{np} {ing} {relation} {np}", "a {n} {ing} {np}",
    )  # fmt: skip
    _IS = ("is", "is not", "looks")
    _OFFERS = (
        ("left", "right", "middle", "upper", "lower"), ("big", "small"), ("front", "back"),
    )  # fmt: skip

    def noun(self, rng: Rng) -> str:
        """See `Language`."""
        known = (*_KNOWN, *pool("en/people"))
        return mark(new_word(rng) if rng.uniform() < NEW_WORD else pick(rng, known), NOUN)

    def nouns(self, rng: Rng) -> str:
        """See `Language`."""
        return mark(plural(unmarked(self.noun(rng))), NOUN)

    def definite(self, noun: str) -> str:
        """See `Language`."""
        return f"the {noun}"

    def noun_phrase(self, rng: Rng, head: str = "") -> str:
        """See `Language`."""
        head = mark(head, NOUN) if head else self.noun(rng)
        form = rng.uniform()
        if form < 0.04:
            head = f"{mark(self.some(rng, 'person'), MODIFIER)}'s {head}"
        elif form < 0.12:
            head = f"{head} {mark('of', MODIFIER)} {mark(self.some(rng, 'stuff'), NOUN)}"
        shares = (("which", 0.2), ("adjective", 0.2), ("color", 0.25))
        before = [mark(self.some(rng, n), MODIFIER) for n, share in shares if rng.uniform() < share]
        rest = " ".join((*before, head))
        determiner = rng.uniform()
        if determiner < 0.6:
            rest = f"the {rest}"
        elif determiner < 0.72:
            rest = f"{article(unmarked(rest))} {rest}"
        elif determiner < 0.85:
            rest = f"{self.some(rng, 'determiner')} {rest}"
        return self._placed(rest, rng)

    def _placed(self, phrase: str, rng: Rng) -> str:
        after = rng.uniform()
        if after < 0.2:
            return f"{phrase} {mark(self.some(rng, 'place'), MODIFIER)}"
        if after < 0.3:
            return f"{phrase} {mark(self.some(rng, 'relation'), MODIFIER)} the {self.noun(rng)}"
        if after < 0.38:
            part = mark(self.some(rng, "part"), NOUN)
            return f"{phrase} {mark(self.some(rng, 'having'), MODIFIER)} a {part}"
        if after < 0.42:
            said = self.some(rng, pick(rng, ("color", "adjective")))
            return f"{phrase} {mark(f'that {pick(rng, self._IS)} {said}', MODIFIER)}"
        return phrase

    def one(self, rng: Rng) -> str:
        """See `Language`."""
        if rng.uniform() < 0.7:
            told_by = self.some(rng, pick(rng, ("color", "adjective", "which")))
            return f"the {mark(told_by, MODIFIER)} one"
        return f"the one {mark(self.some(rng, 'place'), MODIFIER)}"

    def options(self, rng: Rng) -> tuple[str, ...]:
        """See `Language`."""
        offers = (pool("en/color"), *self._OFFERS)
        chosen = offers[int(rng.integers(len(offers)))]
        places = rng.permutation(len(chosen))[: int(rng.integers(2, 4))]
        return tuple(f"the {chosen[int(i)]} one" for i in places)


class French(Language):
    """French. Nouns of slots.txt have their article for their gender."""

    name = "fr"
    pronouns = ("le", "la", "les", "ça")
    requests = ("{verbing} {np}", "{verbing} {np}", "je veux {np}", "donne-moi {np}", "{np}")

    def _pair(self, rng: Rng) -> tuple[str, bool]:
        """A noun without its article, and whether it is feminine."""
        if rng.uniform() < NEW_WORD:
            return new_word(rng), bool(rng.uniform() < 0.5)
        found = self.some(rng, "noun" if rng.uniform() < 0.85 else "people")
        if found.startswith("l'"):
            return found[2:], found[2:] in pool("fr/feminine")
        article_said, _, noun = found.partition(" ")
        return noun, article_said in ("la", "une")

    def noun(self, rng: Rng) -> str:
        """See `Language`."""
        return mark(self._pair(rng)[0], NOUN)

    def nouns(self, rng: Rng) -> str:
        """See `Language`."""
        noun = self._pair(rng)[0]
        return mark(noun if noun[-1] in "sx" else f"{noun}s", NOUN)

    def definite(self, noun: str) -> str:
        """See `Language`."""
        return contracted(f"le {noun}")

    def noun_phrase(self, rng: Rng, head: str = "") -> str:
        """See `Language`."""
        noun, feminine = (head, False) if head else self._pair(rng)
        form = int(feminine)
        determiner = rng.uniform()
        if determiner < 0.7:
            begin = ("le", "la")[form]
        elif determiner < 0.85:
            begin = ("un", "une")[form]
        else:
            begin = _form(self.some(rng, "determiner"), form)
        parts = [begin]
        if rng.uniform() < 0.15:
            parts.append(mark(_form(self.some(rng, "before"), form), MODIFIER))
        parts.append(mark(noun, NOUN))
        for key, share in (("color", 0.3), ("adjective", 0.12)):
            if rng.uniform() < share:
                parts.append(mark(_form(self.some(rng, key), form), MODIFIER))
        after = rng.uniform()
        if after < 0.3:
            parts.append(mark(self.some(rng, pick(rng, ("which", "place"))), MODIFIER))
        elif after < 0.4:
            near = mark(self.some(rng, "relation"), MODIFIER)
            parts.append(f"{near} {('le', 'la')[int(rng.integers(2))]} {self.noun(rng)}")
        elif after < 0.46:
            parts.append(f"{mark('avec', MODIFIER)} {mark(self.some(rng, 'part'), NOUN)}")
        return contracted(" ".join(parts))

    def one(self, rng: Rng) -> str:
        """See `Language`."""
        form = int(rng.integers(2))
        if rng.uniform() < 0.5:
            which = mark(self.some(rng, "which"), MODIFIER)
            return contracted(f"{('celui', 'celle')[form]} {which}")
        color = mark(_form(self.some(rng, "color"), form), MODIFIER)
        return f"{('le', 'la')[form]} {color}"

    def options(self, rng: Rng) -> tuple[str, ...]:
        """See `Language`."""
        return tuple(unmarked(self.one(rng)) for _ in range(int(rng.integers(2, 4))))


_KNOWN = tuple(sorted(KNOWN_NAMES))
LANGUAGES: tuple[Language, ...] = (English(), French())
_CONTRACTED = (
    (r"\bde le\b", "du"), (r"\bde les\b", "des"), (r"\bà le\b", "au"), (r"\bà les\b", "aux"),
)  # fmt: skip
_ELIDED = re.compile(rf"\b(l)[ea] ([{NOUN}{MODIFIER}]?)(?=[aeiouéèêàhœ])")


def _form(word: str, form: int) -> str:
    """The masculine (0) or feminine (1) form of "petit/petite"."""
    forms = word.split("/")
    return forms[min(form, len(forms) - 1)]


def contracted(text: str) -> str:
    """French as it is written: "de le" is "du", "le œuf" is "l'œuf"."""
    for before, after in _CONTRACTED:
        text = re.sub(before, after, text)
    return _ELIDED.sub(r"\2\1'", text)


def spoken(text: str, rng: Rng, language: Language) -> str:
    """The sentence as it was said, typed or recognized: courtesy added, letters and pauses lost."""
    if rng.uniform() < COURTEOUS:
        if rng.uniform() < 0.6:
            text = f"{language.some(rng, 'opening')}{pick(rng, (', ', ' '))}{text}"
        else:
            text = f"{text.rstrip('.!?')}{pick(rng, (', ', ' '))}{language.some(rng, 'ending')}"
    if rng.uniform() < MISSPELT:
        parts = text.split()
        at = int(rng.integers(len(parts)))
        sign, word = parts[at][: parts[at][0] in (NOUN, MODIFIER)], unmarked(parts[at])
        parts[at] = sign + pick(rng, misspellings_of(word.lower()) or (word,))
        text = " ".join(parts)
    if rng.uniform() < UNPUNCTUATED:
        return re.sub(rf"[^\w\s'{NOUN}{MODIFIER}-]+", " ", text.lower()).strip()
    ends = text[-1:] in ".!?"
    return text if ends or rng.uniform() < 0.5 else text + pick(rng, (".", ".", "!", "..."))


# -------------------------------------------------------------------------------------------------
# An open question, and the replies to it.


def question(rng: Rng, language: Language) -> Asked:
    """An open question about some object: which of two or three, yes or no, or where."""
    about = unmarked(language.noun(rng))
    if rng.uniform() < 0.3:
        about = f"{language.some(rng, 'color').split('/')[0]} {about}"
    form = rng.uniform()
    if form < 0.25:
        return Asked(about, _YES_NO)
    if form < 0.4:
        return Asked(about)
    if form < 0.52:
        nouns = (unmarked(language.noun(rng)) for _ in range(int(rng.integers(2, 4))))
        return Asked(about, tuple(language.definite(noun) for noun in nouns))
    return Asked(about, language.options(rng))


def draw(kind: str, rng: Rng, language: Language = LANGUAGES[0]) -> Utterance:
    """An utterance of a class, to an open question in half of the draws.

    kind: of CLASSES, or "mixed": it refuses one thing and asks for another, or is one of the two
    parts of such a sentence.
    """
    is_open = kind == "answer" or rng.uniform() < 0.5
    asked = question(rng, language) if is_open else NOTHING_ASKED
    if kind == "request":
        text, label = _request(rng, asked, language)
    elif kind == "mixed":
        text, label = _mixed(rng, asked, language)
    elif kind == "answer":
        text, label = _answer(rng, asked, language), kind
    else:
        given = _of_question(rng, asked, language) if rng.uniform() < 0.5 else None
        label = "yes" if kind == "unnamed" and asked.offered == _YES_NO else kind
        form = language.template(rng, kind)
        if kind == "refusal" and rng.uniform() < NEGATED:
            form = _negated(rng, language) or form
        text = language.fill(form, rng, given)
    marked = spoken(text, rng, language)
    return Utterance(unmarked(marked), label, asked, marked)


def _of_question(rng: Rng, asked: Asked, language: Language) -> dict[str, str]:
    """Return fillings of slots about the question's object."""
    if not asked.is_open:
        return {}
    options = [offer for offer in asked.offered if offer not in _YES_NO]
    offered = pick(rng, options) if options else language.definite(asked.about)
    head = mark(asked.about, NOUN)
    phrase = language.noun_phrase(rng, asked.about)
    return {"np": phrase, "n": head, "one": mark(offered, MODIFIER)}


def _negated(rng: Rng, language: Language) -> str:
    """A request that begins with its verb, negated; "" where none is drawn."""
    negations = pool(f"{language.name}/negation")
    form = language.template(rng, pick(rng, ("request", "unnamed")))
    first = form.split()[0]
    is_order = first in pool(f"{language.name}/order") and "," not in form
    return f"{pick(rng, negations)} {form}" if negations and is_order else ""


def _request(rng: Rng, asked: Asked, language: Language) -> tuple[str, str]:
    """A request, or a description of the wanted object; to an open question, an answer."""
    name = "request" if rng.uniform() < 0.55 else "description"
    if name == "request" and rng.uniform() < 0.3:
        form = pick(rng, language.requests)
    elif name == "description" and rng.uniform() < 0.5:
        form = pick(rng, language.names)
    else:
        form = language.template(rng, name)
    if not asked.is_open:
        return language.fill(form, rng), "request"
    given = _of_question(rng, asked, language)
    if name == "description":  # after a question, a description is an answer
        return language.fill(form, rng, given if rng.uniform() < 0.6 else None), "answer"
    if rng.uniform() < 0.4:
        return language.fill(form, rng, given), "answer"
    return language.fill(form, rng), "request"


def _mixed(rng: Rng, asked: Asked, language: Language) -> tuple[str, str]:
    """A sentence of mixed.txt, the part that it wants, or the part that it refuses."""
    whole, _, part = pick(rng, templates(f"{language.name}/mixed")).partition("\t")
    given = {name: language.slot(rng, name) for name in _SLOT.findall(whole)}
    text, wanted = (language.fill(form, rng, given) for form in (whole, part))
    refused = text.replace(wanted, " ").strip(" ,.;!")
    form = rng.uniform()
    if form < 0.25 and len(refused.split()) > 2:
        return refused, "refusal"
    return (text if form < 0.75 else wanted), "answer" if asked.is_open else "request"


def _answer(rng: Rng, asked: Asked, language: Language) -> str:
    """Draw an answer to the question."""
    if rng.uniform() < 0.2 and asked.offered != _YES_NO:
        return pick(rng, asked.offered or (language.definite(asked.about),))
    given = _of_question(rng, asked, language) if rng.uniform() < 0.6 else None
    form = language.template(rng, "answer")
    while asked.offered == _YES_NO and "{" not in form:  # "right" is a yes to these
        form = language.template(rng, "answer")
    return language.fill(form, rng, given)
