# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What a click on a candidate says to the robot, and what "the blue one" means on the page.

A robot that asked a question is answered in words. A click therefore becomes the offered answer
that names the candidate, or else a phrase that says where it is ("the left one", "the second one
from the left"). `clue_ros.dialogue.narrowing` checks that the phrase leaves this candidate alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.console.robot import ShownObject
from clue_ros.dialogue.candidates import (
    COLOR,
    MAX_NAMED,
    Candidate,
    with_label_attributes,
)
from clue_ros.dialogue.narrowing import ANSWER_GAP, narrow
from clue_ros.dialogue.noun_phrases import ORDINALS, Phrase, read_phrase
from clue_ros.dialogue.places import CORNERS, SIDES, spread_axis
from clue_ros.model.colors import color_name

COLORS = (
    ("blue", "#3d9bff"),
    ("orange", "#e69f00"),
    ("green", "#00b383"),
    ("pink", "#e07bb4"),
    ("yellow", "#f0e442"),
    ("white", "#ffffff"),
    ("brown", "#c98a4b"),
    ("gray", "#a7adb4"),
)
"""Name and sRGB of each candidate's colour on the page; after Okabe and Ito's palette, whose
colours differ in lightness too, for eyes that do not tell red from green. A candidate beyond them
has its number alone."""
CLEAR_GAP = 0.06  # parts of the image's side that the left one must be left of all others
_ENDS = ("leftmost", "rightmost")  # in place of sides among more than three
_UNKNOWN = "unknown"  # a colour that has no name
_SAID = re.compile(
    r"^(?:(?:i mean|no|yes|it is|it's|please)[,\s]+)*"
    r"(?:(?:the\s+)?(?P<color>[a-z]+)(?:\s+(?:one|box|frame))?"
    r"|(?:the\s+)?(?:(?:number|candidate|box|no\.)\s*|#)?(?P<number>\d{1,2}))"
    r"(?:[,\s]+please)?[\s.!]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ShownQuestion:
    """A question as the page shows it.

    size: width and height in pixels of the image that the candidates' boxes are in. image_colors:
    the colour of each candidate's own object where it can be told, else None.
    """

    text: str
    candidates: tuple[ShownObject, ...]
    suggested_answers: tuple[str, ...]
    size: tuple[int, int]
    image_colors: tuple[str | None, ...] = ()

    def words_for(self, index: int) -> str:
        """What to say for a candidate, counted from 0. Raises IndexError."""
        candidate = self._known[index]
        answers = self._offered()
        if index in answers:
            return answers[index]
        for words in self._phrases(candidate):
            if self._named(words, CLEAR_GAP) == (index,):
                return words
        axis = spread_axis(c.box.center for c in self._known)
        side = "top" if axis else "left"
        ordered = sorted(range(len(self._known)), key=lambda n: self._known[n].box.center[axis])
        return f"the {_ordinal(ordered.index(index) + 1)} one from the {side}"

    def meant(self, text: str) -> int | None:
        """The candidate that a text names by the colour or the number that the page gave it.

        None where it says something else, and for a colour that the question, an offered answer, a
        candidate's label or a candidate's own object has: then it may mean the object.
        """
        said = _SAID.match(text.strip())
        if said is None or _same_words(text, self.suggested_answers):
            return None
        if said["number"]:
            number = int(said["number"])
            return number - 1 if 1 <= number <= len(self.candidates) else None
        color = said["color"].lower()
        labels = " ".join(candidate.label for candidate in self.candidates)
        spoken = " ".join((self.text, labels, *self.suggested_answers)).lower()
        if color in re.findall(r"[a-z]+", spoken) or color in self.image_colors:
            return None
        names = [name for name, _ in COLORS[: len(self.candidates)]]
        return names.index(color) if color in names else None

    @property
    def _known(self) -> tuple[Candidate, ...]:
        """The candidates with their colours, from their labels or from the image."""
        colors = self.image_colors or (None,) * len(self.candidates)
        return tuple(
            with_label_attributes(Candidate(shown.box, shown.label)).known(
                **{COLOR: color or _UNKNOWN}
            )
            for shown, color in zip(self.candidates, colors, strict=True)
        )

    def _offered(self) -> dict[int, str]:
        """The offered answer of each candidate that has one of its own."""
        answers = self.suggested_answers
        if len(self.candidates) == 1 and tuple(a.lower() for a in answers) == ("yes", "no"):
            return {0: answers[0]}
        found: dict[int, str] = {}
        for answer in answers:
            named = self._named(answer, ANSWER_GAP)
            if len(named) == 1:
                found.setdefault(named[0], answer)
        left = [a for a in answers if a not in found.values()]
        if (
            len(answers) == len(self.candidates)
            and len(left) == 1
            and len(found) == len(answers) - 1
        ):
            (last,) = set(range(len(self.candidates))) - set(found)
            found[last] = left[0]
        return found

    def _named(self, words: str, gap: float) -> tuple[int, ...]:
        """The candidates that a phrase leaves; none where it tells nothing."""
        known = self._known
        named, applied = narrow(known, read_phrase(words), _Boxes(self.size), gap)
        if not applied:
            return ()
        return tuple(n for n, candidate in enumerate(known) if any(candidate is c for c in named))

    def _phrases(self, candidate: Candidate) -> Iterator[str]:
        """Phrases to try, the shortest first; a colour before a place if the question asks so."""
        color = candidate.attributes[COLOR]
        by_color = [] if color == _UNKNOWN else [f"the {color} one"]
        sides = (*SIDES, "middle") if len(self.candidates) <= MAX_NAMED else _ENDS
        by_place = [f"the {place} one" for place in (*sides, *CORNERS)]
        asks_color = re.search(r"\bcolou?r\b", self.text, re.IGNORECASE) is not None
        yield from (*by_color, *by_place) if asks_color else (*by_place, *by_color)


def shown_question(
    text: str,
    candidates: Sequence[ShownObject],
    suggested_answers: Sequence[str],
    image: npt.NDArray[np.uint8] | None,
    size: tuple[int, int],
) -> ShownQuestion:
    """A question with the colours of its candidates in the image, RGB (H, W, 3), if there is one.

    size: width and height of the image that the boxes are in.
    """
    colors: tuple[str | None, ...] = (None,) * len(candidates)
    if image is not None and image.shape[1::-1] == size:
        colors = tuple(color_name(image, candidate.box) for candidate in candidates)
    return ShownQuestion(text, tuple(candidates), tuple(suggested_answers), size, colors)


def color_of(index: int) -> tuple[str, str]:
    """Name and sRGB of the colour of a candidate, counted from 0; no name beyond `COLORS`."""
    return COLORS[index] if index < len(COLORS) else ("", "#a7adb4")


def _ordinal(number: int) -> str:
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}th"


def _same_words(text: str, answers: Sequence[str]) -> bool:
    def bare(words: str) -> str:
        return re.sub(r"^the | one$|[.!?]", "", " ".join(words.lower().split()))

    return any(bare(text) == bare(answer) for answer in answers)


class _Boxes:
    """A finder (`clue_ros.dialogue.narrowing.Finder`) that knows the size of the image alone."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size

    def find(self, _phrase: Phrase) -> tuple[Candidate, ...]:
        return ()

    def locate(self, _phrase: Phrase) -> tuple[Candidate, ...]:
        return ()

    def choose(self, _phrase: Phrase, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        return tuple(candidates)

    def spelled(self, _noun: str) -> str:
        return ""

    def described(
        self, candidates: Sequence[Candidate], _attribute: str, _noun: str
    ) -> tuple[Candidate, ...]:
        return tuple(candidates)
