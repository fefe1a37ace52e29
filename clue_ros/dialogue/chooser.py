# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A rule-based chooser: candidates and a dialogue in, the candidates that still match out.

`follow` reads a whole dialogue each time, so that a reply depends on what is seen and said alone.
What words and geometry cannot tell (`clue_ros.dialogue.narrowing`) it asks a `Finder`, the
detector's side: the base model in policy "zero-shot" (`clue_ros.model.zero_shot`), or any detector
with labels (`LabelledObjects`). `question_for` words the robot's next question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from clue_ros.dialogue.candidates import (
    COLOR,
    KIND,
    SHADES,
    Asked,
    Candidate,
    of_color,
    option_of,
    properties_of,
    question_about,
    question_words,
    with_label_attributes,
)
from clue_ros.dialogue.inflection import with_article
from clue_ros.dialogue.narrowing import (
    ANSWER_GAP,
    REQUEST_GAP,
    Finder,
    called,
    is_among,
    narrow,
)
from clue_ros.dialogue.noun_phrases import (
    SHORTEST,
    Phrase,
    read_phrase,
    slip_of,
)
from clue_ros.dialogue.object_names import KNOWN_NAMES, same_noun
from clue_ros.dialogue.reading import Kind, is_other, read
from clue_ros.dialogue.types import SAME_BOX, AmbiguityEstimate, Dialogue, NotFound
from clue_ros.dialogue.words import asks_yes_or_no, missing_thing, offered_answers, plain


@dataclass(frozen=True)
class Standing:
    """What is left after a dialogue.

    candidates: those that match. phrase: of the request, with what the answers added. narrowed:
    whether the last answer left out any. confirmed: whether the person has settled it. refused:
    what the person said it is not. one_by_one: the person wants several. rules: whether words or
    geometry left out some of what was found. guessed: nobody has confirmed that these are meant;
    the request's noun was read as a label that it is a slip of ("vae": "vase"), or only a part of
    each thing has the request's colour.
    """

    phrase: Phrase
    candidates: tuple[Candidate, ...]
    found: tuple[Candidate, ...] = ()
    narrowed: bool = True
    confirmed: bool = False
    refused: tuple[Candidate, ...] = ()
    one_by_one: bool = False
    rules: bool = False
    guessed: bool = False


# Patterns of plain text: sentences that say how to choose.
_ANY_OF_THEM = (
    r"any|any of (?:them|those|these)|any one|either|either one|either of them|whatever|whichever|"
    r"you choose|you decide|it does not matter|it doesn't matter|does not matter|doesn't matter|"
    r"i do not care|i don't care|i do not know|i don't know|don't know|one of (?:them|those|these)"
)
_ALL_OF_THEM = r"both|both of them|both please|all|all of them|all please|the two|all of those"
_REQUEST = (
    r"^(?:no |sorry |wait |please )*(?:i mean|i meant|i want|i need|pick|grab|take|get|"
    r"give|hand me|pass|bring|fetch|find|show|point)\b|\binstead$"
)


def follow(dialogue: Dialogue, finder: Finder) -> Standing:
    """Read a dialogue from its request on, and return what it leaves."""
    turns = dialogue.turns
    standing = begin(read_phrase(turns[0].text), finder)
    question = ""
    for turn in turns[1:]:
        if turn.speaker == "robot":
            question = turn.text
        else:
            standing = hear(standing, question, turn.text, finder)
            question = ""
    return standing


def begin(phrase: Phrase, finder: Finder) -> Standing:
    """Find what a request names, and keep what its other words allow."""
    found = finder.find(phrase)
    meant = "" if found else finder.spelled(phrase.noun)
    if meant:
        return replace(begin(replace(phrase, noun=meant), finder), guessed=True)
    located = finder.locate(phrase) if phrase.has_geometry or phrase.excluded else ()
    if located:
        return Standing(phrase, located, found)
    kept, _ = narrow(found, phrase, finder, REQUEST_GAP)
    if found and not kept:
        kept = finder.choose(phrase, found)
    partly = bool(phrase.colors) and all(_is_partly(c, phrase.colors) for c in kept)
    return Standing(phrase, kept, found, rules=len(kept) < len(found), guessed=partly)


def hear(before: Standing, question: str, answer: str, finder: Finder) -> Standing:
    """Take one answer to a question."""
    options = offered_answers(question)
    said, kind = plain(answer), read(answer, options, before.phrase.text).kind
    proposal = asks_yes_or_no(options)
    proposed = _meant(question, before, finder) if proposal else ()

    def offered() -> tuple[tuple[Candidate, ...], ...]:  # costs a look at each candidate
        return () if proposal else tuple(_meant(o, before, finder) for o in options)

    after = replace(before, narrowed=False, one_by_one=False, guessed=False)
    if not before.candidates or missing_thing(question) is not None:
        return _renamed(after, said, finder)
    if re.fullmatch(_ANY_OF_THEM, said):
        first = next((group for group in offered() if group), before.candidates)
        best = max(first, key=lambda c: c.score) if first is before.candidates else first[0]
        return _left(after, (best,), confirmed=True)
    if re.fullmatch(_ALL_OF_THEM, said):
        return replace(after, one_by_one=True)
    if kind is Kind.YES and proposed:
        return _left(after, proposed, confirmed=len(proposed) == 1)
    if kind is Kind.YES and read_phrase(said).place is None:  # "right" is a place
        return after
    if is_other(said):
        return _without(after, proposed)
    if kind in (Kind.NO, Kind.NONE):
        return _without(after, proposed or tuple(c for group in offered() for c in group))
    if proposed and said.startswith("no "):
        after = _without(after, proposed)
    phrase = read_phrase(said)
    order = phrase.order
    if order is not None and order[1] is None and not proposal and len(options) > 1:
        at = option_of(order[0], len(options))
        chosen = () if at is None else _meant(options[at], before, finder)
        return _left(after, chosen)
    return _answered(after, phrase, finder, is_request=bool(re.search(_REQUEST, said)))


def _answered(
    after: Standing, phrase: Phrase, finder: Finder, *, is_request: bool = False
) -> Standing:
    """Narrow by the words of an answer, else by the detector's opinion; or begin anew."""
    merged = after.phrase.merged(phrase)
    if not phrase.says_anything:
        return after
    if phrase.noun and not _names(phrase.noun, after):
        meant = finder.spelled(phrase.noun)
        if not meant or not _names(meant, after):
            return _other_noun(after, phrase, finder, is_request=is_request)
        phrase = replace(phrase, noun=meant)
    pool = after.candidates
    if phrase.colors or (phrase.excluded is not None and phrase.excluded.colors):
        pool = finder.described(pool, COLOR, after.phrase.noun)
    kept, understood = narrow(pool, phrase, finder, ANSWER_GAP)
    if not kept:  # none is known to match: others that were found may, or the detector knows
        kept, understood = narrow(after.found, phrase, finder, ANSWER_GAP)
        kept = tuple(c for c in kept if not is_among(c, after.refused))
    if not kept or (not understood and len(kept) > 1):
        kept = finder.choose(merged, pool)
    return replace(_left(after, kept or pool), phrase=merged)


def _other_noun(after: Standing, phrase: Phrase, finder: Finder, *, is_request: bool) -> Standing:
    """An answer with a noun that is not the request's: another word for it, or another thing."""
    found = finder.find(phrase)
    same = tuple(c for c in after.candidates if any(c.box.iou(f.box) >= SAME_BOX for f in found))
    if same and len(same) < len(after.candidates):
        return (
            _answered(_left(after, same), replace(phrase, noun=""), finder)
            if (phrase.has_geometry or phrase.excluded)
            else _left(after, same)
        )
    if same:
        return _answered(after, replace(phrase, noun=""), finder)
    if not found and not is_request:
        return _left(after, finder.choose(after.phrase.merged(phrase), after.candidates))
    return begin(phrase, finder)


def _renamed(after: Standing, said: str, finder: Finder) -> Standing:
    """The person names something else, once nothing was found."""
    phrase = read_phrase(said)
    if not phrase.says_anything:
        return after
    if not phrase.noun:
        phrase = after.phrase.merged(phrase)
    return begin(phrase, finder)


def _names(noun: str, standing: Standing) -> bool:
    """Whether a noun is the request's, or that of a candidate's label."""
    known = [standing.phrase.noun, *(c.attributes.get(KIND, "") for c in standing.candidates)]
    return any(same_noun(noun, other) for other in known if other)


def _meant(text: str, standing: Standing, finder: Finder) -> tuple[Candidate, ...]:
    """The candidates that an option of a question names."""
    phrase = read_phrase(re.sub(r"^(?:do you mean|is it|you mean)\b", "", plain(text)))
    pool = standing.candidates
    if phrase.colors:
        pool = finder.described(pool, COLOR, standing.phrase.noun)
    if phrase.noun and not standing.phrase.noun:
        pool = finder.described(pool, KIND, "")
    kept, _ = narrow(pool, phrase, finder, ANSWER_GAP)
    return kept


def _left(after: Standing, kept: tuple[Candidate, ...], *, confirmed: bool = False) -> Standing:
    if not kept:
        return after
    return replace(
        after,
        candidates=kept,
        narrowed=confirmed or len(kept) < len(after.candidates),
        confirmed=confirmed,
        rules=True,
    )


def _without(after: Standing, refused: tuple[Candidate, ...]) -> Standing:
    """The standing without what the person refused; where nothing would be left, nothing is."""
    if not refused:
        return after
    kept = tuple(c for c in after.candidates if not is_among(c, refused))
    narrowed = len(kept) < len(after.candidates)
    return replace(
        after, candidates=kept, refused=(*after.refused, *refused), narrowed=narrowed, rules=True
    )


def question_for(standing: Standing, finder: Finder, language: str = "en") -> Asked:
    """Ask for a property that tells the candidates apart, or whether the surest is meant."""
    candidates = known_of(standing.candidates, standing.phrase, finder)
    said = frozenset[str]() if standing.guessed else properties_of(standing.phrase)
    return question_about(candidates, language, one_by_one=standing.one_by_one, known=said)


def known_of(
    candidates: Sequence[Candidate],
    phrase: Phrase,
    finder: Finder,
    needed: Collection[str] = (COLOR, KIND),
) -> tuple[Candidate, ...]:
    """The candidates with a colour and a kind where these can be told.

    needed: of them, what is worth a look at each candidate.
    """
    described = tuple(candidates)
    if COLOR in needed:
        described = finder.described(described, COLOR, phrase.noun)
    if phrase.noun:
        return tuple(c.known(**{KIND: phrase.noun}) for c in described)
    return finder.described(described, KIND, "") if KIND in needed else described


def not_found(name: str, estimate: AmbiguityEstimate, *, another: bool) -> NotFound:
    """What is said of a thing that is not there. another: there were some, and none was meant."""
    words = question_words("en")
    missing = words.another.format(name) if another else with_article(name)
    return NotFound(words.missing.format(missing), (), (), estimate, missing)


class LabelledObjects:
    """A `Finder` over what any detector has listed with labels: "red mug", "mug"."""

    def __init__(self, objects: Sequence[Candidate], size: tuple[int, int]) -> None:
        self.objects = tuple(with_label_attributes(c) for c in objects)
        self.size = size

    def find(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """The objects of the phrase's colours where theirs are known, by the best-fitting name.

        "the orange" is a fruit where there is one, and else any orange thing.
        """
        if not phrase.noun and not phrase.is_generic:
            named = tuple(c for c in self.objects if c.attributes.get(KIND) in phrase.colors)
            if named:
                return named
        colored = tuple(c for c in self.objects if _may_have_color(c, phrase.colors))
        found = called(colored, phrase.noun) if phrase.noun else colored
        if found or not phrase.colors:
            return found
        named = called(self.objects, phrase.noun) if phrase.noun else self.objects
        return of_color(named, phrase.colors)

    def locate(self, phrase: Phrase) -> tuple[Candidate, ...]:
        """Nothing: labels know no places."""
        return ()

    def choose(self, phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those that the words beside the noun allow: "the blue brick", where labels say "block".

        All of them where these tell nothing: the labels say no more.
        """
        kept, _ = narrow(candidates, replace(phrase, noun=""), self, ANSWER_GAP)
        return kept or tuple(candidates)

    def spelled(self, noun: str) -> str:
        """The only label that the noun is a slip of, unless it names a thing itself.

        A short label is a slip away from other words.
        """
        if noun in KNOWN_NAMES or called(self.objects, noun):
            return ""
        kinds = {c.attributes.get(KIND, "") for c in self.objects}
        return slip_of(noun, [kind for kind in kinds if len(kind) >= SHORTEST])

    def described(
        self, candidates: Sequence[Candidate], attribute: str, noun: str
    ) -> tuple[Candidate, ...]:
        """As they are."""
        return tuple(candidates)


def _is_partly(candidate: Candidate, colors: Sequence[str]) -> bool:
    return SHADES in candidate.attributes and candidate.attributes.get(COLOR) not in colors


def _may_have_color(candidate: Candidate, colors: Sequence[str]) -> bool:
    unknown = COLOR not in candidate.attributes and SHADES not in candidate.attributes
    return not colors or unknown or candidate.attributes.get(COLOR) in colors
