# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The options of an open question on the page: its candidates by number, and its other answers.

A candidate that is clicked, or named by its number, is chosen by its index, whatever the words. An
answer that means several candidates, or none, is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clue_ros.console.robot import ShownObject

THIS_ONE = "this one"  # name of a candidate without a label and without an answer of its own
_NUMBER = re.compile(
    r"^(?:(?:i mean|no|yes|it is|it's|please)[,\s]+)*"
    r"(?:the\s+)?(?:(?:number|candidate|box|no\.)\s*|#)?(?P<number>\d{1,2})"
    r"(?:[,\s]+please)?[\s.!]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ShownQuestion:
    """A question as the page shows it.

    meant: the candidates, counted from 0, that each suggested answer means, parallel to them; ()
    where that is not known. confirm: yes or no settles whether the only candidate is meant.
    """

    text: str
    candidates: tuple[ShownObject, ...]
    suggested_answers: tuple[str, ...] = ()
    meant: tuple[tuple[int, ...], ...] = ()
    confirm: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each candidate: the answer that means it alone, or its label."""
        answers: dict[int, str] = {}
        for answer, group in zip(self.suggested_answers, self.meant, strict=False):
            if len(group) == 1:
                answers.setdefault(group[0], answer)
        return tuple(
            answers.get(number) or found.label or THIS_ONE
            for number, found in enumerate(self.candidates)
        )

    @property
    def others(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The suggested answers that mean several candidates, or none, with these candidates."""
        meant = self.meant or ((),) * len(self.suggested_answers)
        bound = zip(self.suggested_answers, meant, strict=True)
        return tuple((answer, group) for answer, group in bound if len(group) != 1)

    def numbered(self, text: str) -> int | None:
        """The candidate whose number on the page a text says ("number 2"), counted from 0."""
        said = _NUMBER.match(text.strip())
        number = int(said["number"]) if said else 0
        return number - 1 if 1 <= number <= len(self.candidates) else None
