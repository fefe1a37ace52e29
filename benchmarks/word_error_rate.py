# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Word error rate: substituted, missing and inserted words (edit distance) per word said."""

from __future__ import annotations

from collections.abc import Iterable

from clue_ros.dialogue.words import plain


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """The number of errors and of words said; case and punctuation are ignored."""
    reference, hypothesis = plain(said).split(), plain(heard).split()
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1], len(reference)


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """All errors per word said, over (said, heard) pairs; NaN if nothing was said."""
    counts = [word_errors(said, heard) for said, heard in pairs]
    words = sum(count for _, count in counts)
    return sum(errors for errors, _ in counts) / words if words else float("nan")
