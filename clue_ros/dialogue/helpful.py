# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Questions that help: they offer two things that match what was said, and ask for something new.

A model writes its question without a list of what it sees. `helpful` holds it against the
candidates that a `Finder` lists: their answers are bound to them, and a question that offers fewer
than two of them, or asks for what the person has said, is replaced by one that tells them apart.
Where one is left, or a second one is in doubt, it is shown to be confirmed: "do you mean this one?"
The paper has nothing of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from clue_ros.dialogue.candidates import (
    COLOR,
    KIND,
    NESTED,
    SIZE,
    Asked,
    Candidate,
    label_of,
    properties_of,
    proposal,
    question_about,
)
from clue_ros.dialogue.chooser import follow, known_of
from clue_ros.dialogue.narrowing import ANSWER_GAP, Finder, is_among, narrow
from clue_ros.dialogue.noun_phrases import ENGLISH, Phrase, read_phrase
from clue_ros.dialogue.nouns import head_noun
from clue_ros.dialogue.object_names import KNOWN_NAMES, name_match
from clue_ros.dialogue.places import ACROSS, axes_of
from clue_ros.dialogue.types import SAME_BOX, AmbiguityEstimate, Box, Dialogue, Question, Reply
from clue_ros.dialogue.words import asks_yes_or_no, current_turns, offered_answers, offers_twice

# The least product of the probability of ambiguity and the score of a second candidate from which
# it is offered. Chosen on validation scenes of "rich" and "table", and on photographs.
LIKELY = 0.6
_OPEN = {COLOR: r"\bcolou?r\b", SIZE: r"\b(?:size|big)\b", ACROSS: r"\bwhere\b"}


def helpful(
    reply: Reply,
    dialogue: Dialogue,
    finder: Finder,
    refused: Sequence[Box] = (),
    pointed: Callable[[], Candidate | None] = lambda: None,
    guesses: Callable[[], Sequence[Candidate]] = tuple,
) -> Question | None:
    """A model's question as it is written if it helps, else one that does.

    None without a candidate. dialogue: `Dialogue.for_model`. refused: boxes that the person
    said no to; a reply that points at one of them is replaced by a question. pointed: returns where
    the model would point, which is shown to be confirmed. guesses: returns what may be meant, the
    surest first, where the finder has nothing.
    """
    written = reply.text if isinstance(reply, Question) else ""
    standing = follow(dialogue, finder)
    found = _apart(standing.candidates, refused) or _apart(guesses(), refused)
    if not found:
        return None
    phrase = standing.phrase
    said = [turn.text for turn in current_turns(dialogue.turns) if turn.speaker == "user"]
    known = told(said)

    def likely(some: Sequence[Candidate]) -> list[Candidate]:
        # Who has said no to one thing means another: all of the others are asked about.
        rest = (c for c in some[1:] if refused or _is_likely(c, reply.ambiguity))
        return [some[0], *rest]

    # A look at a candidate costs as much as one at the image: it waits until words need it.
    several = likely(found)
    if phrase.colors and len(found) > 1:
        several = _of_the_color(several, phrase, finder)
        if found[0] not in several:
            found = _of_the_color(found, phrase, finder) or found
            several = likely(found)
    needed = {KIND} if known >= {COLOR, KIND} else {COLOR, KIND}
    if len(several) == 1:
        among = several
        if COLOR in needed:
            among = _of_the_color(found, phrase, finder) or found if phrase.colors else found
        best = pointed()
        if best and not is_one_of(best.box, [several[0].box, *refused]):
            among = [best, *(c for c in among if not is_one_of(c.box, [best.box]))]
        shown, *others = known_of(among, phrase, finder, needed)
        return as_question(proposal(shown, others, known=known), (), reply.ambiguity)
    kept = None
    if not asks_again(written, offered_answers(written), said):
        kept = bound(written, several, phrase, finder)
    if kept is None:
        several = [*known_of(several, phrase, finder, needed)]
        kept = question_about(several, one_by_one=standing.one_by_one, known=known)
    return as_question(kept, several, reply.ambiguity)


def _is_likely(candidate: Candidate, estimate: AmbiguityEstimate) -> bool:
    """Whether a second candidate may be meant: the base is sure, and the map has a peak in it."""
    peaks = [peak.point or peak.box.center for peak in estimate.peaks]
    attended = not peaks or any(candidate.box.contains(point) for point in peaks)
    return attended and candidate.score * estimate.probability >= LIKELY


def _of_the_color(
    candidates: Sequence[Candidate], phrase: Phrase, finder: Finder
) -> list[Candidate]:
    """Those that have the colour that was said, looked at one by one.

    A detector that is asked for "pink mug" calls all that it finds so.
    """
    bare = [replace(c, attributes={}) for c in candidates]
    looked = finder.described(bare, COLOR, phrase.noun)
    boxes = {c.box for c in looked if c.attributes.get(COLOR) in phrase.colors}
    return [c for c in candidates if c.box in boxes]


def is_one_of(box: Box, others: Sequence[Box]) -> bool:
    """Whether a box shows what one of the others shows."""
    return any(box.iou(other) >= SAME_BOX for other in others)


def _apart(candidates: Sequence[Candidate], refused: Sequence[Box]) -> list[Candidate]:
    """The candidates, the surest first, without what was refused or lies within a surer one."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -c.score):
        box = candidate.box
        nested = (box.shared(c.box) >= NESTED * min(box.area, c.box.area) for c in kept)
        if not is_one_of(box, refused) and not any(nested):
            kept.append(candidate)
    return kept


def bound(
    written: str, candidates: Sequence[Candidate], phrase: Phrase, finder: Finder
) -> Asked | None:
    """A written question with the candidates that each of its options means.

    None where it does not offer two different ones, or offers the same twice. phrase: the request,
    with what the answers added.
    """
    options = offered_answers(written)
    if len(options) < 2 or asks_yes_or_no(options) or offers_twice(written):
        return None
    named = [read_phrase(option) for option in options]
    parts = [part for each in named for part in (each, each.excluded) if part is not None]
    needed = frozenset[str]().union(*map(properties_of, parts))
    seen = known_of(candidates, phrase, finder, needed)
    # An option that tells nothing means none.
    narrowed = [narrow(seen, option, finder, ANSWER_GAP) for option in named]
    groups = tuple(kept if applied else () for kept, applied in narrowed)
    different = {tuple(id(c) for c in group) for group in groups if group}
    return Asked(written, options, groups) if len(different) > 1 else None


def as_question(asked: Asked, others: Sequence[Candidate], estimate: AmbiguityEstimate) -> Question:
    """A question with its answers bound to its candidates, in the order of the answers.

    others: candidates that no answer need name; a confirmation shows none of them.
    """
    shown: list[Candidate] = []
    named = [c for group in asked.groups for c in group]
    for candidate in named if asked.confirm else (*named, *others):
        if not is_among(candidate, shown):
            shown.append(candidate)
    at = {c.box: index for index, c in reversed([*enumerate(shown)])}
    return Question(
        sentence(asked.text),
        tuple(c.box for c in shown),
        asked.options,
        estimate,
        answer_candidates=tuple(tuple(at[c.box] for c in group) for group in asked.groups),
        labels=tuple(label_of(c) for c in shown),
        confirm=asked.confirm,
    )


def sentence(text: str) -> str:
    """A text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


# -------------------------------------------------------------------------------------------------
# What was said, and what is asked.


def told(said: Sequence[str]) -> frozenset[str]:
    """The properties that a person has given (`candidates.properties_of`) in several utterances.

    >>> sorted(told(["pick up the red mug", "the left one"]))
    ['color', 'kind', 'place across']
    """
    found = frozenset[str]()
    for text in said:
        given = properties_of(read_phrase(text)) - {KIND}
        found |= given | ({KIND} if _noun(text) else frozenset())
    return found


def asks_again(question: str, options: Sequence[str], said: Sequence[str]) -> bool:
    """Whether a question asks for what was said, or offers what cannot be meant after it.

    options: the answers that it offers; none of an open question. said: what the person said about
    this object. A question whose options differ in something new, too, does not ask again.

    >>> asks_again("where is it?", (), ["the mug on the left"])
    True
    >>> asks_again("the upper one or the lower one?", ("the upper one", "the lower one"),
    ...            ["the mug on the left"])
    False
    """
    known = told(said)
    if not options:
        return any(name in known for name, asked in _OPEN.items() if re.search(asked, question))
    if asks_yes_or_no(options):
        return False
    offered = [read_phrase(option) for option in options]
    refused = {
        color
        for phrase in map(read_phrase, said)
        if phrase.excluded
        for color in phrase.excluded.colors
    }
    if any(refused.intersection(phrase.colors) for phrase in offered):
        return True
    asked = _differing(offered)
    return bool(asked) and asked <= (known - {KIND} if _are_kinds(offered, said) else known)


def _differing(offered: Sequence[Phrase]) -> frozenset[str]:
    """The properties in which options differ."""
    counts = {
        COLOR: len({phrase.colors for phrase in offered}),
        KIND: len({phrase.noun for phrase in offered}),
        SIZE: len({phrase.size for phrase in offered}),
    }
    found = {name for name, count in counts.items() if count > 1}
    places = {phrase.place for phrase in offered}
    sides = places - {None, "middle"} if len(places) > 1 else set()
    return frozenset(found.union(*(axes_of(place) for place in sides if place)))


def _are_kinds(offered: Sequence[Phrase], said: Sequence[str]) -> bool:
    """Whether all options are kinds of what was named: apple and pear, of a fruit."""
    nouns = [noun for noun in map(_noun, said) if noun]
    kinds = [phrase.noun for phrase in offered]
    return all(
        kind and kind != noun and name_match(noun, kind) is not None
        for noun in nouns
        for kind in kinds
    )


def _noun(text: str) -> str:
    """The noun of an utterance; empty for "the thing", and for "the thing below the spoon".

    >>> _noun("the thing below the spoon"), _noun("the mug below the spoon")
    ('', 'mug')
    """
    noun, phrase = head_noun(text), read_phrase(text)
    landmark = phrase.relation[1] if phrase.relation else ""
    if not phrase.noun and noun and landmark.endswith(noun):
        return ""
    if not noun and phrase.noun in KNOWN_NAMES:
        return phrase.noun
    return "" if noun in ENGLISH.generic else noun
