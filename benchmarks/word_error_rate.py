"""Word error rate: the smallest number of wrong, missing and additional words, over words said."""

from __future__ import annotations

from collections.abc import Iterable

from clue_ros.dialogue.words import plain


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """(errors, words said); case and punctuation do not count."""
    reference, hypothesis = plain(said).split(), plain(heard).split()
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1], len(reference)


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Over (said, heard) pairs: all errors over all words said; NaN where nothing was said."""
    counts = [word_errors(said, heard) for said, heard in pairs]
    words = sum(count for _, count in counts)
    return sum(errors for errors, _ in counts) / words if words else float("nan")
