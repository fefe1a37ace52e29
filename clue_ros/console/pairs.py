# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A dialogue between two people about one picture, as InViG's were made (Zhang and others, 2023).

The user has an object in mind and boxes it where the agent cannot see it. The user begins with a
request; the agent asks, the user answers, in strict turns; only the agent ends, with a box that the
user then checks. Either may skip the picture or start it over. The clock is given to each method,
so nothing here waits, reads or writes.

    target -> request -> question -> answer -> question -> ... -> check -> done
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clue_ros.dialogue.types import Box, clean_text
from clue_ros.errors import ClueError

Role = Literal["user", "agent"]
Phase = Literal["target", "request", "question", "answer", "check", "done"]
ROLES: tuple[Role, ...] = get_args(Role)

MAX_ROUNDS = 10  # questions about one picture; over 99 % of InViG's dialogues have at most 6
MIN_SIDE = 4  # pixels of a box
TURN_SECONDS = 300.0  # seconds for a turn
SKIP_REASONS = (
    "every object is easy to tell apart",
    "too few objects",
    "the picture is unclear",
    "the picture is disturbing or private",
    "we do not understand each other",
    "another reason",
)
WRONG_REASONS = (
    "another object",
    "my object, but the box does not fit it",
    "several objects in one box",
    "my own words were wrong",
)

_TASKS: dict[tuple[Role, Phase], str] = {
    ("user", "target"): "Choose an object and draw a box around it. Only you see this box.",
    ("user", "request"): "Ask for your object in one sentence, as you would ask a robot.",
    ("user", "question"): "The agent thinks of a question, or draws a box. Please wait.",
    ("user", "answer"): "Answer the agent's question about your object.",
    ("user", "check"): "The agent has drawn a box. Is it around your object?",
    ("user", "done"): "This picture is done.",
    ("agent", "target"): "The user chooses an object. Please wait.",
    ("agent", "request"): "The user writes a request. Please wait.",
    ("agent", "question"): (
        "Find out which object the user means: ask one question, or end with a box around it."
    ),
    ("agent", "answer"): "The user answers. Please wait.",
    ("agent", "check"): "The user checks your box. Please wait.",
    ("agent", "done"): "This picture is done.",
}


class PairError(ClueError):
    """A person may not do this now; the message says why, and is shown to them."""

    code = "REFUSED"


@dataclass(frozen=True)
class Verdict:
    """The user's verdict on the agent's box.

    reason: one of WRONG_REASONS, empty where the box is right. iou: of the target and that box.
    """

    right: bool
    reason: str
    iou: float


class PairSession:
    """One picture between a user and an agent; each method raises PairError if it is forbidden.

    user, agent: ids of the two people. size: width and height of the picture in pixels. now: a
    clock in seconds, here and in every method that takes it.
    """

    def __init__(self, user: str, agent: str, size: tuple[int, int], now: float = 0.0) -> None:
        if user == agent:
            raise PairError("a dialogue needs two people")
        self.id = secrets.token_hex(8)
        self.people: dict[Role, str] = {"user": user, "agent": agent}
        self.size = size
        self.resets = 0
        self.verdict: Verdict | None = None
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.phase: Phase = "target"
        self.turns: list[str] = []
        self.target: Box | None = None
        self.answer: Box | None = None
        self._since = now

    # ---------------------------------------------------------------------------------------------
    # Roles and turns.

    def role(self, person: str) -> Role:
        """The role of a person. Raises PairError for a third one."""
        for role, seated in self.people.items():
            if seated == person:
                return role
        raise PairError("both seats of this dialogue are taken")

    @property
    def turn(self) -> Role | None:
        """The role that must act now; None when the picture is done."""
        if self.phase == "done":
            return None
        return "agent" if self.phase == "question" else "user"

    @property
    def rounds(self) -> int:
        """The number of questions that the agent has asked."""
        return len(self.turns) // 2

    def seconds_left(self, now: float) -> float:
        """Time left of this turn; negative when it is over."""
        return self._since + TURN_SECONDS - now

    # ---------------------------------------------------------------------------------------------
    # Actions of one role.

    def choose(self, person: str, box: Sequence[float], now: float) -> None:
        """The user boxes the object meant, or corrects that box before the request is said."""
        self._expect(person, "user", "target", "request")
        self.target = self._box(box)
        self._go("request", now)

    def say(self, person: str, text: str, now: float) -> None:
        """The user's request or answer, or the agent's question. Raises ClueError for bad text."""
        role = self.role(person)
        if role == "user" and self.phase == "target":
            raise PairError("draw a box around your object first")
        if role == "user":
            self._expect(person, "user", "request", "answer")
        else:
            self._expect(person, "agent", "question")
            if self.rounds >= MAX_ROUNDS:
                raise PairError(f"{MAX_ROUNDS} questions were asked: end with a box now")
        self.turns.append(clean_text(text))
        self._go("question" if role == "user" else "answer", now)

    def point(self, person: str, box: Sequence[float], now: float) -> None:
        """The agent ends the dialogue with a box."""
        self._expect(person, "agent", "question")
        self.answer = self._box(box)
        self._go("check", now)

    def judge(self, person: str, right: bool, reason: str) -> Verdict:
        """The user's verdict on the box, checked but not yet in force: see `end`."""
        self._expect(person, "user", "check")
        assert self.target is not None
        assert self.answer is not None
        if not right and reason not in WRONG_REASONS:
            raise PairError(f"say why the box is wrong: {'; '.join(WRONG_REASONS)}")
        return Verdict(right, "" if right else reason, self.target.iou(self.answer))

    def end(self, verdict: Verdict, now: float) -> None:
        """Show the verdict, once it is stored."""
        self.verdict = verdict
        self._go("done", now)

    # ---------------------------------------------------------------------------------------------
    # Actions of either.

    def skip(self, person: str, reason: str) -> Role:
        """Check that a person may skip this picture; return their role."""
        role = self._may_stop(person, "skip the picture")
        if reason not in SKIP_REASONS:
            raise PairError(f"say why you skip the picture: {'; '.join(SKIP_REASONS)}")
        return role

    def reset(self, person: str, now: float) -> Role:
        """Start the same picture over, with the same roles; return the role of this person."""
        role = self._may_stop(person, "start over")
        self.resets += 1
        self._begin(now)
        return role

    def _may_stop(self, person: str, what: str) -> Role:
        role = self.role(person)
        if self.phase == "check":
            raise PairError(f"you cannot {what} now: the user's verdict on the box is missing")
        if self.phase == "done":
            raise PairError(f"you cannot {what} now: the picture is done, go on to the next one")
        return role

    # ---------------------------------------------------------------------------------------------

    def view(self, person: str) -> dict[str, Any]:
        """Return a person's view. The agent never sees the target, and nobody the IoU too early.

        Boxes are [x_min, y_min, x_max, y_max] in pixels.
        """
        role = self.role(person)
        task = _TASKS[role, self.phase]
        if role == "agent" and self.phase == "question" and self.rounds >= MAX_ROUNDS:
            task = f"You have asked {MAX_ROUNDS} questions: end with a box around the object now."
        speakers = ("user", "agent")
        return {
            "session": self.id,
            "role": role,
            "phase": self.phase,
            "your_turn": self.turn == role,
            "task": task,
            "size": list(self.size),
            "turns": [
                {"speaker": speakers[i % 2], "text": text} for i, text in enumerate(self.turns)
            ],
            "questions_left": MAX_ROUNDS - self.rounds,
            "target": self.target.as_list() if self.target and role == "user" else None,
            "answer": self.answer.as_list() if self.answer else None,
            "verdict": None
            if self.verdict is None
            else {
                "right": self.verdict.right,
                "reason": self.verdict.reason,
                "iou": self.verdict.iou,
            },
        }

    def _expect(self, person: str, role: Role, *phases: Phase) -> None:
        """Raise PairError unless this is the person's role and one of these phases."""
        own = self.role(person)
        if own != role:
            raise PairError(f"only the {role} does that; you are the {own}")
        if self.phase in phases:
            return
        if self.phase == "done":
            raise PairError("this picture is done")
        if self.turn != role:
            raise PairError(f"it is the {self.turn}'s turn")
        raise PairError(f"not now: {_TASKS[role, self.phase]}")

    def _go(self, phase: Phase, now: float) -> None:
        self.phase, self._since = phase, now

    def _box(self, sides: Sequence[float]) -> Box:
        """A box inside the picture. Raises PairError."""
        numbers = [
            float(side)
            for side in (sides if isinstance(sides, (list, tuple)) else ())
            if isinstance(side, (int, float)) and not isinstance(side, bool) and abs(side) < 1e9
        ]
        if len(numbers) != 4 or len(sides) != 4:
            raise PairError("a box is four numbers: left, top, right and bottom, in pixels")
        width, height = self.size
        box = Box(*numbers).clipped(float(width), float(height))
        if box.width < min(MIN_SIDE, width) or box.height < min(MIN_SIDE, height):
            raise PairError(f"the box is too small: its sides need {MIN_SIDE} pixels or more")
        return box
