# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Dialogues with their context C(k) (section III-A), and replies.

Plain data, without torch and without ROS, so that nodes, the command line and the evaluation share
one vocabulary.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from clue_ros.errors import BadExpressionError, EmptyExpressionError

MAX_TEXT = 1000  # characters of one utterance, after cleaning
MAX_PIXELS = 64_000_000  # of one image
MAX_QUESTIONS = 3  # in one dialogue, unless the caller sets another limit

Speaker = Literal["user", "robot"]
# The prefix of each speaker inside C(k). The paper gives "assistant: " and "user: ".
_ROLE = {"robot": "assistant", "user": "user"}


Fractions = tuple[float, float, float, float]
"""(x_min, y_min, x_max, y_max) of a box in fractions of the image's width and height."""
SAME_BOX = 0.5  # IoU from which two boxes of one image are taken for the same thing's


@dataclass(frozen=True)
class Box:
    """A box: x right, y down, the maximum exclusive.

    In pixels of the original image, unless it is said to be in fractions of its width and height.
    """

    x_min: float
    y_min: float
    x_max: float
    y_max: float

    @property
    def width(self) -> float:
        """x_max - x_min."""
        return self.x_max - self.x_min

    @property
    def height(self) -> float:
        """y_max - y_min."""
        return self.y_max - self.y_min

    @property
    def center(self) -> tuple[float, float]:
        """(x, y) of the middle."""
        return (self.x_min + self.x_max) / 2, (self.y_min + self.y_max) / 2

    @property
    def area(self) -> float:
        """Width times height; 0 for a box turned inside out."""
        return max(0.0, self.width) * max(0.0, self.height)

    def shared(self, other: Box) -> float:
        """The area of the intersection with another box."""
        return Box(
            max(self.x_min, other.x_min),
            max(self.y_min, other.y_min),
            min(self.x_max, other.x_max),
            min(self.y_max, other.y_max),
        ).area

    def iou(self, other: Box) -> float:
        """Intersection over union with another box, 0..1."""
        shared = self.shared(other)
        union = self.area + other.area - shared
        return shared / union if union > 0 else 0.0

    def gap(self, other: Box) -> float:
        """Distance to another box; 0 where they touch."""
        x = max(0.0, self.x_min - other.x_max, other.x_min - self.x_max)
        y = max(0.0, self.y_min - other.y_max, other.y_min - self.y_max)
        return float((x * x + y * y) ** 0.5)

    def contains(self, point: tuple[float, float]) -> bool:
        """Whether a point (x, y) lies in the box."""
        x, y = point
        return self.x_min <= x < self.x_max and self.y_min <= y < self.y_max

    def in_fractions(self, width: float, height: float) -> Box:
        """The box in fractions of an image's width and height, from one in its pixels."""
        return Box(self.x_min / width, self.y_min / height, self.x_max / width, self.y_max / height)

    def in_pixels(self, width: float, height: float) -> Box:
        """The box in pixels of a (height, width) image, from one in fractions."""
        return Box(self.x_min * width, self.y_min * height, self.x_max * width, self.y_max * height)

    def clipped(self, width: float = 1.0, height: float = 1.0) -> Box:
        """The part of the box in a (height, width) image; by default of a box in fractions."""
        x_min, x_max = (min(max(x, 0.0), width) for x in (self.x_min, self.x_max))
        y_min, y_max = (min(max(y, 0.0), height) for y in (self.y_min, self.y_max))
        return Box(x_min, y_min, x_max, y_max)

    def moved(self, right: float, down: float) -> Box:
        """The box so much further right and down."""
        return Box(self.x_min + right, self.y_min + down, self.x_max + right, self.y_max + down)

    def grown(self, across: float, down: float) -> Box:
        """The box with as much more on the left and the right, and above and below."""
        return Box(self.x_min - across, self.y_min - down, self.x_max + across, self.y_max + down)

    def as_tuple(self) -> tuple[float, float, float, float]:
        """(x_min, y_min, x_max, y_max)."""
        return self.x_min, self.y_min, self.x_max, self.y_max

    def as_list(self) -> list[float]:
        """[x_min, y_min, x_max, y_max]."""
        return [*self.as_tuple()]


@dataclass(frozen=True)
class Peak:
    """A place the words attend to.

    score: the map's value at its top, 0..1; where the peaks are a question's candidates (and with
    policy "zero-shot"), the share of the map in the box.
    point: the top, (x, y) in pixels; None where it is not known.
    """

    box: Box
    score: float
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class AmbiguityEstimate:
    """The detector's answer to: does this sentence name exactly one thing in this image.

    probability, threshold: 0..1, ambiguous at or above the threshold.
    attention: float32 (grid, grid), 0..1, rows from the top of the image.
    peaks: strongest first. seconds: time the estimate took.
    """

    probability: float
    threshold: float
    attention: npt.NDArray[np.float32]
    peaks: tuple[Peak, ...]
    seconds: float

    @property
    def is_ambiguous(self) -> bool:
        """Whether to ask before acting."""
        return self.probability >= self.threshold


@dataclass(frozen=True)
class Turn:
    """One utterance."""

    speaker: Speaker
    text: str


@dataclass(frozen=True)
class Question:
    """The robot asks.

    candidates: boxes in pixels of the things that it may be about. labels: what each is called,
    parallel to them, "" where nothing is known. answer_candidates: the indices of the candidates
    that each of the suggested answers means, parallel to those. Both are () where they are not
    known. confirm: one candidate is shown, and yes or no settles whether it is meant. written: what
    the model wrote, where the robot asks to confirm instead. max_risk and taught: as of a
    `Grounding`.

    Raises ValueError where these do not fit one another.
    """

    text: str
    candidates: tuple[Box, ...]
    suggested_answers: tuple[str, ...]
    ambiguity: AmbiguityEstimate
    answer_candidates: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)
    labels: tuple[str, ...] = field(default=(), kw_only=True)
    confirm: bool = field(default=False, kw_only=True)
    written: str = field(default="", kw_only=True)
    max_risk: float = field(default=math.nan, kw_only=True)
    taught: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Check what is bound to what."""
        count, answers = len(self.candidates), self.answer_candidates
        if self.labels and len(self.labels) != count:
            raise ValueError(f"{len(self.labels)} labels for {count} candidates")
        if answers and len(answers) != len(self.suggested_answers):
            raise ValueError(
                f"{len(answers)} groups of candidates for {len(self.suggested_answers)} answers"
            )
        if any(not 0 <= index < count for group in answers for index in group):
            raise ValueError(f"answers {answers} mean more than {count} candidates")
        if self.confirm and count != 1:
            raise ValueError(f"a question to be confirmed shows {count} candidates, want 1")


@dataclass(frozen=True)
class NotFound(Question):
    """The robot says that it sees no such thing, and could be told of another one.

    A question to whoever only tells questions from groundings. `missing`: what it does not see, or
    has no word for, "a banana". Candidates and answers, if any, are what it sees instead. unknown:
    the name that it has no word for, "stapler"; empty where it only does not see the thing.
    """

    missing: str = ""
    unknown: str = ""


@dataclass(frozen=True)
class Grounding:
    """The robot points.

    score: 0..1, geometric mean over the four sides of the decoder's probability that a side lies
    within 2 % of the image's width or height of where the box has it; where the
    first of several views (`Clue.num_views`) leaves a doubt, the mean of their scores, 0 for a view
    that found another thing.
    intermediate_boxes: boxes that the reply went through before the last one, in order: the first
    and the second mug of "the third mug from the left".
    confirmed: the person was shown this very box and said yes, or chose it. max_risk: the bound in
    force on wrong boxes without a confirmation, 0..1 (`clue_ros.model.risk`); NaN: none is. taught:
    the words of the request that a person taught (`clue_ros.model.word_memory`), by their names.
    """

    box: Box
    label: str
    score: float
    ambiguity: AmbiguityEstimate
    intermediate_boxes: tuple[Box, ...] = ()
    confirmed: bool = field(default=False, kw_only=True)
    max_risk: float = field(default=math.nan, kw_only=True)
    taught: tuple[str, ...] = field(default=(), kw_only=True)


Reply = Question | Grounding


def asked_about(found: Grounding, text: str) -> Question:
    """The question, in these words, whether this very box is meant: yes or no."""
    return Question(
        text,
        (found.box,),
        ("yes", "no"),
        found.ambiguity,
        answer_candidates=((0,), ()),
        labels=(found.label,),
        confirm=True,
        max_risk=found.max_risk,
        taught=found.taught,
    )


class Dialogue:
    """A request, then questions and answers. `turns` begins with the request.

    refused: the boxes in pixels that the robot showed ("do you mean this one?") and the person
    said no to.

    Raises EmptyExpressionError or BadExpressionError when a person's words cannot be used (see
    `clean_text`).
    """

    def __init__(self, request: str, turns: Iterable[Turn] = ()) -> None:
        self._turns = [Turn("user", clean_text(request))]
        self._refused: list[Box] = []
        self._read: dict[int, str] = {}  # what a model reads in place of a turn; "": nothing
        for turn in turns:
            if turn.speaker == "robot":
                self.add_question(turn.text)
            else:
                self.add_answer(turn.text)

    @property
    def request(self) -> str:
        """The first thing the person said, cleaned."""
        return self._turns[0].text

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Everything said so far, the request first."""
        return tuple(self._turns)

    @property
    def questions(self) -> int:
        """The number of questions that the robot has asked."""
        return sum(turn.speaker == "robot" for turn in self._turns)

    def add_question(self, text: str, written: str = "") -> None:
        """The robot asked `text`; written: what a model wrote itself, and reads in its place."""
        self._turns.append(Turn("robot", one_line(text)))
        if written:
            self._read[len(self._turns) - 1] = one_line(written)

    def add_answer(self, text: str) -> None:
        """The person said `text`."""
        self._turns.append(Turn("user", clean_text(text)))

    def refuse(self, box: Box, text: str, rest: str = "") -> None:
        """The person said `text`, a no, to the only box that the last question showed.

        rest: what the text says besides, "the left one" of "no, the left one".
        """
        self.add_answer(text)
        self._refused.append(box)
        last = len(self._turns) - 1
        if rest:
            self._read[last] = one_line(rest)
        else:
            self._read |= {last: "", last - 1: ""}

    @property
    def refused(self) -> tuple[Box, ...]:
        """See `Dialogue`."""
        return tuple(self._refused)

    def for_model(self) -> Dialogue:
        """The dialogue as a model reads it, which is told `refused` apart.

        Words cannot say which box was shown: a question about one that was answered by a bare no is
        left out with its answer, and any other has the words that the model wrote itself.
        """
        read = [
            Turn(turn.speaker, self._read.get(place, turn.text))
            for place, turn in enumerate(self._turns)
        ]
        kept = [turn for turn in read if turn.text]
        return Dialogue(kept[0].text, kept[1:])

    def newest(self) -> Dialogue:
        """The request and the newest exchange alone, with all that was refused."""
        first = max(1, len(self._turns) - 2)
        told = Dialogue(self.request)
        told._turns += self._turns[first:]
        told._refused += self._refused
        told._read = {max(0, n - first + 1): t for n, t in self._read.items() if not 0 < n < first}
        return told

    def context(self) -> str:
        """C(k) = U || "assistant: " R1 "user: " H1 ..., on one line (section III-A)."""
        later = (f" {_ROLE[turn.speaker]}: {turn.text}" for turn in self._turns[1:])
        return self.request + "".join(later)


def clean_text(text: str) -> str:
    """A person's words, safe to pass on: controls become spaces, white space is collapsed.

    Special tokens such as "<loc0000>" are data and stay; the processor takes them apart. Raises
    EmptyExpressionError for nothing, BadExpressionError over MAX_TEXT characters or without a
    letter or digit.
    """
    if not isinstance(text, str):
        raise BadExpressionError(f"the text must be a string, not {type(text).__name__}")
    cleaned = one_line(text)
    if not cleaned:
        raise EmptyExpressionError("the text is empty: say what to do, such as 'pick up the apple'")
    if len(cleaned) > MAX_TEXT:
        raise BadExpressionError(
            f"the text has {len(cleaned)} characters, at most {MAX_TEXT} are allowed: say it "
            "shorter"
        )
    if not any(character.isalnum() for character in cleaned):
        raise BadExpressionError("the text has no letter or digit in it: say it in words")
    return cleaned


def one_line(text: str) -> str:
    """The text on one line: controls, formats and broken surrogates become single spaces."""
    # Category C: control, format, surrogate, private use, unassigned.
    return " ".join("".join(" " if unicodedata.category(c)[0] == "C" else c for c in text).split())
