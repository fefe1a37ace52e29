# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Things that a request can mean, and the question that tells them apart in few words.

A `Candidate` comes from any detector: the base model's own boxes, an external one, or peaks of the
attention map. `question_about` names each by its colour, kind or size, where these are known, and
by its place among the others, which always is; a single one it shows ("do you mean this one?").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from types import MappingProxyType

from clue_ros.dialogue.noun_phrases import LAST_ONE, Phrase, read_phrase
from clue_ros.dialogue.object_names import KIND_NAMES, NameMatch, name_match
from clue_ros.dialogue.places import AXES, COUNTED_FROM, axes_of, row_of_places, spread_axis
from clue_ros.dialogue.types import Box
from clue_ros.dialogue.words import base_language, plain

COLOR, KIND, SIZE = "color", "kind", "size"
MAX_NAMED = 3  # options that a question lists at most
SHADES = "shades"  # attribute: all colours that were measured, with a space between
SAME_OBJECT = 0.7  # IoU from which two boxes are of one thing
INSIDE = 0.8  # share of the smaller of two boxes from which it lies within the other
LEAST_SPREAD = 0.5  # of the largest side, by which centres differ where places are spoken of
INSIDE_ANY = (
    0.6  # share of the smaller box from which two boxes are of one thing, whatever its name
)
NESTED = 0.6  # the same, where only one of the two is asked about
SIZE_RATIO = 1.5  # of the sides of two boxes, from which one is called big and the other small

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Candidate:
    """One thing that was found.

    box: in pixels. label: the detector's name for it. score: 0..1. source: of the box ("detect",
    "attention", a topic's name). attributes: what is known of it, "color", "kind" and "size", and
    the measured "shades".
    """

    box: Box
    label: str = ""
    score: float = 1.0
    source: str = ""
    attributes: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def known(self, **attributes: str) -> Candidate:
        """The candidate with more attributes; those that are known already stay."""
        return replace(self, attributes=MappingProxyType({**attributes, **self.attributes}))


def with_label_attributes(candidate: Candidate) -> Candidate:
    """The candidate with the colour and the kind that its label says.

    >>> dict(with_label_attributes(Candidate(Box(0, 0, 1, 1), "brown pen")).attributes)
    {'color': 'brown', 'kind': 'pen'}
    """
    if not plain(candidate.label):
        return candidate
    phrase = read_phrase(f"the {candidate.label}")  # "can opener": no verb
    if not phrase.noun and phrase.text in KIND_NAMES:
        return candidate.known(**{KIND: phrase.text})  # a fruit, the orange
    found = {COLOR: phrase.colors[0]} if phrase.colors else {}
    return candidate.known(**found, **({KIND: phrase.noun} if phrase.noun else {}))


def properties_of(phrase: Phrase) -> frozenset[str]:
    """The properties that a phrase gives.

    >>> sorted(properties_of(read_phrase("the red mug on the left")))
    ['color', 'kind', 'place across']
    """
    side = COUNTED_FROM.get(phrase.order[1] or "") if phrase.order else None
    axes = {axis for place in (phrase.place, side) if place for axis in axes_of(place)}
    given = {COLOR: phrase.colors, KIND: phrase.noun, SIZE: phrase.size}
    return frozenset({name for name, value in given.items() if value} | axes)


def of_color(candidates: Sequence[Candidate], colors: Sequence[str]) -> tuple[Candidate, ...]:
    """The candidates of one of some colours; where there is none, those with some of it in them.

    >>> gray = Candidate(Box(0, 0, 1, 1), attributes={COLOR: "black", SHADES: "black gray"})
    >>> of_color([gray], ["gray"]) == (gray,), of_color([gray], ["red"])
    (True, ())
    """
    named = tuple(c for c in candidates if c.attributes.get(COLOR) in colors)
    return named or tuple(
        c for c in candidates if not set(c.attributes.get(SHADES, "").split()).isdisjoint(colors)
    )


def merge(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """One candidate for each thing, the surer of two boxes, in the order in which they came."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: -c.score):
        if not any(is_same(candidate, other) for other in kept):
            kept.append(candidate)
    return tuple(c for c in candidates if any(c is k for k in kept))


def unite(
    candidates: Sequence[Candidate], others: Sequence[Candidate], iou: float
) -> tuple[Candidate, ...]:
    """Candidates of two answers about one image: a box of both, from this IoU on, once."""
    kept = list(candidates)
    for other in others:
        same = [n for n, c in enumerate(kept) if c.box.iou(other.box) >= iou or is_same(c, other)]
        if not same:
            kept.append(other)
            continue
        nearest = max(same, key=lambda n: kept[n].box.iou(other.box))
        if other.score > kept[nearest].score:
            kept[nearest] = other
    return tuple(kept)


def is_same(a: Candidate, b: Candidate) -> bool:
    """Whether two boxes are of one thing: nearly equal, or of one label and one within the other.

    A second box of the same name inside the first is mostly a part of the thing.
    """
    if a.box.iou(b.box) >= SAME_OBJECT:
        return True
    smaller = min(a.box.area, b.box.area)
    return a.label == b.label and smaller > 0 and a.box.shared(b.box) >= INSIDE * smaller


@dataclass(frozen=True)
class Asked:
    """A question about candidates: its text, the options it offers, and what each can mean.

    confirm: it shows one candidate, and the options are yes and no.
    """

    text: str
    options: tuple[str, ...] = ()
    groups: tuple[tuple[Candidate, ...], ...] = ()
    confirm: bool = False


@dataclass(frozen=True)
class QuestionWords:
    """The robot's words of one language."""

    the_one: str  # "the {} one"
    the_kind: str  # "the {}"
    this_one: str  # the only one
    between: str  # before the last option
    propose: str  # a question about a single candidate
    first: str  # a question which of several comes first
    missing: str  # what is said of a thing that is not there
    another: str  # the thing that is missing when all were refused


ENGLISH = QuestionWords(
    the_one="the {} one",
    the_kind="the {}",
    this_one="this one",
    between="or",
    propose="do you mean {}?",
    first="which one first, {}?",
    missing="I don't see {}.",
    another="another {}",
)  # fmt: skip
_WORDS = {"en": ENGLISH}


def question_words(language: str) -> QuestionWords:
    """The robot's words; English for a language without a table."""
    return _WORDS.get(base_language(language), ENGLISH)


def question_about(
    candidates: Sequence[Candidate],
    language: str = "en",
    *,
    one_by_one: bool = False,
    known: Collection[str] = (),
) -> Asked:
    """The question that tells candidates (one or more) apart, or shows the surest one.

    The options stand in the order of the candidates from left to right, or from the top where they
    lie one above the other. one_by_one: ask which comes first. known: what the person has said,
    and is not asked for: `COLOR`, `SIZE`, `places.ACROSS`, `places.DOWN`.
    """
    words = question_words(language)
    groups = best_partition(candidates, words, known) if len(candidates) > 1 else None
    if groups is None:
        return proposal(max(candidates, key=lambda c: c.score), candidates, language, known=known)
    options = tuple(groups)
    listed = f"{', '.join(options[:-1])} {words.between} {options[-1]}"
    text = words.first.format(listed) if one_by_one else f"{listed}?"
    return Asked(text, options, tuple(groups.values()))


def proposal(
    shown: Candidate,
    among: Sequence[Candidate],
    language: str = "en",
    *,
    known: Collection[str] = (),
) -> Asked:
    """The question whether one candidate is meant: by its name where that says something new.

    among: what else may be meant; a name that fits another of them, too, says nothing.
    """
    words = question_words(language)
    name = name_of(shown, words, known)
    others = [name_of(c, words, known) for c in among if c.box != shown.box]
    text = words.propose.format(words.this_one if name in others else name)
    return Asked(text, ("yes", "no"), ((shown,), ()), confirm=True)


Groups = dict[str, tuple[Candidate, ...]]
"""An option's words -> the candidates that it names."""


def best_partition(
    candidates: Sequence[Candidate], words: QuestionWords, known: Collection[str] = ()
) -> Groups | None:
    """At most `MAX_NAMED` options that leave the fewest candidates each, in the fewest words.

    Some candidates may be in none, where there are many. None where no property tells two apart.
    """
    found = [groups for groups in _partitions(candidates, words, known) if len(groups) > 1]
    if not found:
        return None

    def cost(groups: Groups) -> tuple[int, int]:
        unnamed = len(candidates) - sum(map(len, groups.values()))
        most = max(*map(len, groups.values()), unnamed)
        return most, sum(len(option.split()) for option in groups)

    return min(found, key=cost)


def _partitions(
    candidates: Sequence[Candidate], words: QuestionWords, known: Collection[str]
) -> list[Groups]:
    ordered = in_reading_order(candidates)
    sizes = sizes_of(ordered)
    kinds = [c.attributes.get(KIND) for c in ordered]
    found = []
    if COLOR not in known:
        colors = [_adjective(c.attributes.get(COLOR), words) for c in ordered]
        found.append(_grouped(colors, ordered))
    different = {kind for kind in kinds if kind is not None}
    # "the jar or the jars?", "the can or the soup can?" tell nothing apart.
    if not any(name_match(a, b) is NameMatch.SAME for a, b in permutations(different, 2)):
        named = [None if kind is None else words.the_kind.format(kind) for kind in kinds]
        found.append(_grouped(named, ordered))
    found.append(_by_place(ordered, words, known))
    if SIZE not in known:  # boxes tell sizes badly
        found.append(_grouped([_adjective(size, words) for size in sizes], ordered))
    return found


def _by_place(ordered: Sequence[Candidate], words: QuestionWords, known: Collection[str]) -> Groups:
    """The first, the last and what is in the middle, along an axis that was not spoken of."""
    axis = spread_axis(c.box.center for c in ordered)
    if AXES[axis] in known:
        axis = 1 - axis
        sides = [(c.box.width, c.box.height)[axis] for c in ordered]
        ordered = sorted(ordered, key=lambda c: c.box.center[axis])
        spread = ordered[-1].box.center[axis] - ordered[0].box.center[axis]
        if AXES[axis] in known or len(ordered) > 2 or spread < LEAST_SPREAD * max(sides):
            return {}
    count = len(ordered)
    if count > MAX_NAMED:  # the middle one, or two
        middle = ordered[(count - 1) // 2 : count // 2 + 1]
        first, between, last = row_of_places([c.box.center for c in ordered[:3]], axis)
        named = {first: (ordered[0],), between: tuple(middle), last: (ordered[-1],)}
        return {words.the_one.format(place): group for place, group in named.items()}
    places = row_of_places([c.box.center for c in ordered], axis)
    return _grouped([_adjective(place, words) for place in places], ordered)


def _adjective(word: str | None, words: QuestionWords) -> str | None:
    return None if word is None else words.the_one.format(word)


def _grouped(options: Sequence[str | None], candidates: Sequence[Candidate]) -> Groups:
    """At most `MAX_NAMED` options with their candidates; none where one has no option."""
    groups: Groups = {}
    for option, candidate in zip(options, candidates, strict=True):
        if option is None:
            return {}
        groups[option] = (*groups.get(option, ()), candidate)
    return dict(list(groups.items())[:MAX_NAMED])


def name_of(candidate: Candidate, words: QuestionWords, known: Collection[str] = ()) -> str:
    """Name a single candidate by its known properties: "the red mug", "the red one".

    "this one" where that says nothing but what the person has said.
    """
    color, kind = candidate.attributes.get(COLOR), candidate.attributes.get(KIND)
    if (color is None or COLOR in known) and (kind is None or KIND in known):
        return words.this_one
    if kind is not None:
        return words.the_kind.format(" ".join(filter(None, (color, kind))))
    return words.the_one.format(color)


def label_of(candidate: Candidate) -> str:
    """The name of a candidate: "red mug", or its detector's label, or nothing."""
    said = (candidate.attributes.get(COLOR), candidate.attributes.get(KIND))
    return " ".join(filter(None, said)) if all(said) else candidate.label or (said[1] or "")


def in_reading_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """From left to right, or from the top where they are spread more from top to bottom."""
    axis = spread_axis(c.box.center for c in candidates)
    return sorted(candidates, key=lambda c: c.box.center[axis])


def sizes_of(candidates: Sequence[Candidate]) -> list[str | None]:
    """Call each "big" or "small" where the boxes fall into two sizes; None for each otherwise.

    Of things of one kind only: a big pen is smaller than a small box.
    """
    nothing: list[str | None] = [None] * len(candidates)
    kinds = {c.attributes.get(KIND, "") for c in candidates}
    sides = [c.box.area**0.5 for c in candidates]
    if len(kinds) > 1 or len(sides) < 2 or min(sides) <= 0:
        return nothing
    ordered = sorted(sides)
    gaps = [b / a for a, b in pairwise(ordered)]
    at = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[at] < SIZE_RATIO:
        return nothing
    return ["small" if side <= ordered[at] else "big" for side in sides]


def option_of(order: int, count: int) -> int | None:
    """The index of the "second" or "last" of so many options; None if there are too few."""
    if order == LAST_ONE:
        return count - 1 if count else None
    return order - 1 if 0 < order <= count else None
