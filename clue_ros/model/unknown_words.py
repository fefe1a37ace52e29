# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Words that a model's tokenizer does not have.

A tokenizer of whole words, as the embedded models have, reads a word that no training text had as
its unknown token: "pick up the stapler" and "pick up the drill" become the same tokens, and
whatever the model points at is a guess. The robot says so instead. Where only a modifier or a
landmark is unknown ("the turquoise mug"), the model reads the request without it. A tokenizer of
pieces of words, as the full-size PaliGemma 2 has, has no unknown words, and nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clue_ros.dialogue.candidates import Candidate, in_reading_order, unite
from clue_ros.dialogue.inflection import is_plural, with_article
from clue_ros.dialogue.noun_phrases import ENGLISH, Phrase, read_phrase
from clue_ros.dialogue.nouns import THINGS, Tag, tagged
from clue_ros.dialogue.types import SAME_BOX, Dialogue, Turn
from clue_ros.dialogue.words import (
    DETERMINERS,
    UNKNOWN,
    current_turns,
    noun_phrase,
)
from clue_ros.model.tasks import Detection

# Score of a box that was found without some of the person's words, at most: below 0.5, from which a
# box is firm (`clue eval photos`), since a word that was not understood may have meant another one.
UNSURE = 0.49
SURE = 0.5  # score from which a thing in sight is named
MOST_NAMED = 4  # things in one sentence

_NO_CONTENT = ENGLISH.openings | ENGLISH.endings | ENGLISH.fillers | ENGLISH.generic | DETERMINERS
_NO_CONTENT |= {"without", "between", "that", "everything"}
_PLACES = ("on", "in", "at", "inside")  # before a landmark, beside the relations of the table
_RELATIONS = sorted((*ENGLISH.relations, *_PLACES), key=len, reverse=True)
_RELATION = re.compile(rf"\b(?:{'|'.join(map(re.escape, _RELATIONS))})\b", re.I)
_DEFINITE = ("the", "this", "that", "my", "your")
_DOUBT = re.compile(r"^I don't know what [^.]* (?:is|are|means)\. ")
_DANGLING = re.compile(
    r"(?:[\s,;.!?]+(?:the|a|an|my|your|with|without|of|and|but|not|by|for|that|which|is)\b)*"
    r"[\s,;.!?]*$",
    re.I,
)


class Base(Protocol):
    """The tasks of a base model on one image: `clue_ros.model.base_tasks.BaseTasks`."""

    def list_objects(self) -> list[str]:
        """The names of the things that it lists in the image."""

    def detect(self, names: Sequence[str]) -> list[Detection]:
        """The boxes of each name."""


@dataclass(frozen=True)
class Unknown:
    """The words of a dialogue that the model lacks.

    words: the unknown ones that carry meaning. thing: what the dialogue is about, "a stapler",
    where nothing known says it. doubt: "I don't know what a stapler is.", empty where the robot has
    said so already. known: the dialogue as the model is to read it, without these words.
    """

    words: tuple[str, ...]
    thing: str
    doubt: str
    known: Dialogue


def unknown_words(tokenizer: Any, dialogue: Dialogue) -> Unknown:
    """Find the words that the model lacks: nouns, their modifiers, landmarks, uses.

    What came before the robot's "I don't know what a stapler is. I see ..." counts no more.

    >>> found = unknown_words(tokenizer, Dialogue("pick up the striped mug"))
    >>> found.words, found.thing, found.doubt, found.known.request
    (('striped',), '', "I don't know what striped means.", 'pick up the mug')
    """
    turns = _since_doubt(dialogue.turns)
    words: dict[str, None] = {}
    clauses: dict[str, None] = {}
    thing, read = "", list[Turn]()
    for turn in turns:
        if turn.speaker == "robot":
            read.append(Turn("robot", _DOUBT.sub("", turn.text) or turn.text))
            continue
        text = noun_phrase(turn.text)
        phrase = read_phrase(text)
        unknown = [word for word in _content(phrase) if _is_unknown(tokenizer, word)]
        if unknown:
            telling = {t.word.lower() for t in tagged(turn.text) if t.tag is not Tag.OTHER}
            unknown = [w for w in unknown if w in telling or w in _naming(phrase)]
        words |= dict.fromkeys(unknown)
        clauses |= dict.fromkeys(_clauses(phrase, unknown))
        is_known = not unknown or read_phrase(_without(text, phrase, unknown)).says_anything
        if turn is current_turns(turns)[0] and (not is_known or {*unknown} & {*_naming(phrase)}):
            thing = with_article(_noun(phrase)) if _head(phrase) in unknown else text
            is_known = False
        said = _without(turn.text, phrase, unknown) if unknown and is_known else turn.text
        read.append(Turn("user", said))
    earlier = " ".join(turn.text for turn in turns if turn.speaker == "robot")
    new = [clause for clause in clauses if thing or clause not in earlier]
    doubt = f"I don't know {' or '.join(new)}." if new else ""
    if [*dialogue.turns] == read:
        return Unknown(tuple(words), thing, doubt, dialogue)
    return Unknown(tuple(words), thing, doubt, Dialogue(read[0].text, read[1:]))


def in_sight(base: Base) -> tuple[Candidate, ...]:
    """Return the things that the base names and finds again by that name, from left to right.

    One of each name, and one name for each box; the surest `MOST_NAMED` where there are more.
    """
    names = base.list_objects()
    found = {
        name: max(detection.candidates, key=lambda c: c.score)
        for name, detection in zip(names, base.detect(names), strict=True)
        if detection.candidates
    }
    sure = [Candidate(c.box, name, c.score) for name, c in found.items() if c.score >= SURE]
    apart = unite((), sorted(sure, key=lambda c: -c.score), SAME_BOX)[:MOST_NAMED]
    return tuple(in_reading_order(apart)) if apart else ()


def ask_instead(doubt: str, seen: Sequence[Candidate]) -> tuple[str, tuple[str, ...]]:
    """Return the robot's reply to an unknown word, and the answers that it offers.

    >>> ask_instead("I don't know what a stapler is.", [a_mug, a_pen])
    ("I don't know what a stapler is. I see a mug and a pen. Which one is it?",
     ('the mug', 'the pen'))
    """
    if not seen:
        return f"{doubt} Say its colour, or where it is.", ()
    names = [with_article(c.label) for c in seen]
    if len(seen) == 1:
        return f"{doubt} I see {names[0]}. Is it that?", ("yes", "no")
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{doubt} I see {listed}. Which one is it?", tuple(f"the {c.label}" for c in seen)


def _since_doubt(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns from the answer to the last "I don't know what a stapler is. I see ..." on."""
    said = [i for i, turn in enumerate(turns[:-1]) if turn.speaker == "robot"]
    begin = max((i + 1 for i in said if UNKNOWN.match(turns[i].text)), default=0)
    return turns[begin:]


def _content(phrase: Phrase) -> list[str]:
    """The words of a phrase that carry meaning, in their order, once each."""
    colors = [word for word in phrase.text.split() if word in ENGLISH.colors]
    detail = _own(phrase.detail, _DEFINITE)
    parts = [*colors, *_noun(phrase).split(), *detail.split(), *_landmark(phrase).split()]
    found = [word for word in parts if word not in _NO_CONTENT]
    if phrase.excluded is not None:
        found += _content(phrase.excluded)
    return list(dict.fromkeys(found))


def _noun(phrase: Phrase) -> str:
    """Return the thing's noun: "kindly fetch me the mug on the stove" -> "mug"."""
    return _own(_placed(phrase.noun)[0], _NO_CONTENT)


def _landmark(phrase: Phrase) -> str:
    """Return the thing's landmark (beside, behind or on it); empty if the phrase has none."""
    said = _placed(phrase.relation[1])[0] if phrase.relation else _placed(phrase.noun)[1]
    return _own(said, DETERMINERS)


def _placed(noun: str) -> tuple[str, str]:
    """A noun and what it stands on: "mug on the stove" -> "mug", "stove"."""
    found = re.search(rf"\s(?:{'|'.join(_PLACES)})\s+(?:the|a|an|my|your)\s+", noun)
    if found is None:
        return noun, ""
    return noun[: found.start()], noun[found.end() :]


def _own(noun: str, before: Container[str]) -> str:
    """A noun without what ends in one of the words `before`: "kindly pass me mug" -> "mug"."""
    words = noun.split()
    begin = max((i + 1 for i, word in enumerate(words[:-1]) if word in before), default=0)
    return " ".join(words[begin:])


def _head(phrase: Phrase) -> str:
    """The last word of the noun; nothing where "thing" or the like is the head."""
    before = _RELATION.split(phrase.text)[0]
    is_bare = phrase.is_generic or not phrase.noun or not THINGS.isdisjoint(before.split())
    return "" if is_bare else _noun(phrase).split()[-1]


def _naming(phrase: Phrase) -> list[str]:
    """The words without which nothing is named: the head, or what is said of a "thing"."""
    return [_head(phrase)] if _head(phrase) else _noun(phrase).split()


def _clauses(phrase: Phrase, unknown: Sequence[str]) -> list[str]:
    """Return the unknown part in words: "what a stapler is", "what striped means"."""
    nouns = [_noun(phrase)] if _head(phrase) else []
    nouns += [_landmark(phrase)]
    heads = {noun.split()[-1]: noun for noun in nouns if noun and noun.split()[-1] in unknown}
    named = {word for noun in heads.values() for word in noun.split()}
    return [
        _what_is(heads[word]) if word in heads else f"what {word} means"
        for word in unknown
        if word in heads or word not in named
    ]


def _what_is(noun: str) -> str:
    return f"what {with_article(noun)} {'are' if is_plural(noun) else 'is'}"


def _without(text: str, phrase: Phrase, unknown: Sequence[str]) -> str:
    """A person's words without the unknown ones.

    With a landmark the whole relation goes: "the mug behind the laptop" -> "the mug".
    """
    landmark = _landmark(phrase).split()
    if not {*unknown}.isdisjoint(landmark):
        words = r"\W+".join(map(re.escape, landmark))
        text = re.sub(rf"{_RELATION.pattern}\W+(?:\w+\W+)?{words}\b", " ", text, flags=re.I)
    for word in unknown:
        text = re.sub(rf"\b{re.escape(word)}\b", " ", text, flags=re.I)
    return _DANGLING.sub("", " ".join(text.split()))


def _is_unknown(tokenizer: Any, word: str) -> bool:
    tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id in tokens
