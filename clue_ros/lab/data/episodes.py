"""Read the episodes that a robot recorded (`clue_ros.dialogue.episodes`) as InViG samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clue_ros.dialogue.episodes import (
    GROUNDED,
    EpisodeError,
    episode_files,
    read_row,
)
from clue_ros.dialogue.reviews import (
    CONFIRMED,
    REJECTED,
    UNREVIEWED,
    Review,
    read_review,
    reviewed_row,
    robot_box,
)
from clue_ros.lab.data.invig import Invig, InvigError, index_rows, usable
from clue_ros.lab.data.invig_sources import Row, RowInMemory


def load_episodes(folder: str | Path, *, unreviewed: bool = False) -> Invig:
    """The dialogues of a folder that a person reviewed as right, as InViG samples.

    Confirmed ones have the robot's box, corrected ones the person's. Rejected ones are left out,
    with their questions. The others are counted in `problems`.

    Args:
        folder: the folder that the robot's parameter `record` names.
        unreviewed: include unreviewed dialogues that ended in a box.

    Raises:
        InvigError: no such folder, or no usable dialogue in it.
    """
    index = index_rows(episode_rows(folder, unreviewed=unreviewed), str(folder))
    problems = list(index.problems)
    samples = tuple(usable(index.samples, problems.append))
    return Invig(samples, tuple(problems))


def episode_rows(folder: str | Path, *, unreviewed: bool = False) -> Iterator[Row | str]:
    """The rows of `load_episodes`, one episode in memory at a time; a string is a problem.

    Raises InvigError: no such folder, or no usable dialogue in it.
    """
    folder = Path(folder).expanduser()
    files = episode_files(folder) if folder.is_dir() else []
    if not files:
        raise InvigError(f"{folder}: no episodes there (a folder that `record` named)")
    kept = 0
    left_out: Counter[str] = Counter()
    for path in files:
        try:
            review = read_review(path)
        except EpisodeError as error:
            yield str(error)
            review = None
        try:
            values = _wanted(read_row(path), review, unreviewed)
        except EpisodeError as error:
            yield f"{path.stem}: {error}"
            left_out["unreadable"] += 1
            continue
        if isinstance(values, str):
            left_out[values] += 1
        else:
            kept += 1
            yield from RowInMemory(values, folder, path.name).rows()
    counted = ", ".join(f"{count} {name}" for name, count in left_out.items())
    if not kept:
        raise InvigError(
            f"{folder}: none of {len(files)} dialogues can be learned from: {counted}"
            f"{_remedy(folder, left_out)}"
        )
    if left_out:
        yield f"{folder}: left out: {counted}{_remedy(folder, left_out)}"


def _wanted(row: dict[str, Any], review: Review | None, unreviewed: bool) -> dict[str, Any] | str:
    """Return the row to learn from, or in a word the reason for none."""
    if review is not None and review.verdict == REJECTED:
        return REJECTED
    if review is None and robot_box(row) is None:
        outcome = " ".join(str(row["clue"].get("outcome")).split())[:40]
        return "GROUNDED without a usable box" if outcome == GROUNDED else f"ended with {outcome}"
    if review is None and not unreviewed:
        return UNREVIEWED
    kept = reviewed_row(row, review or Review(CONFIRMED))
    return "confirmed without a box" if kept is None else kept


def _remedy(folder: Path, left_out: Counter[str]) -> str:
    if not left_out[UNREVIEWED]:
        return ""
    return f" (review them with `clue review {folder}`, or take them with --unreviewed)"
