"""Read the episodes that a robot recorded (`clue_ros.dialogue.episodes`) as InViG samples."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from clue_ros.dialogue.episodes import GROUNDED, episode_files
from clue_ros.lab.data.invig import Invig, InvigError, InvigSample, load_invig


def load_episodes(folder: str | Path) -> Invig:
    """The dialogues of a folder that ended in a box, as InViG samples.

    The box is the robot's own: it is unchecked, unless a person has edited `bbox` and `outcome`
    since. Dialogues that ended without a box are counted in `problems`.

    Raises:
        InvigError: no such folder, or no dialogue in it that ended in a box.
    """
    folder = Path(folder).expanduser()
    files = episode_files(folder) if folder.is_dir() else []
    if not files:
        raise InvigError(f"{folder}: no episodes there (a folder that `record` named)")
    ends = {path.stem: _outcome(path) for path in files}
    counted = Counter(ends.values())
    if not counted[GROUNDED]:
        raise InvigError(
            f"{folder}: none of {len(files)} dialogues ended in a box{_others(counted)}"
        )
    good = {name for name, outcome in ends.items() if outcome == GROUNDED}
    samples: list[InvigSample] = []
    problems: list[str] = []
    for path in files:
        if path.stem in good:
            try:
                read = load_invig(path)
            except InvigError as error:
                problems.append(f"{path.stem}: {error}")
            else:
                samples += read.samples
                problems += read.problems
    if not samples:
        raise InvigError(f"{folder}: no usable episode; the first: {problems[0]}")
    if len(good) < len(files):
        problems.append(f"{folder}: left out, as they ended without a box{_others(counted)}")
    return Invig(tuple(samples), tuple(problems))


def _outcome(path: Path) -> str:
    """How an episode ended; "unreadable" for a file that is no episode."""
    try:
        (row,) = json.loads(path.read_text(encoding="utf-8"))
        return " ".join(str(row["clue"]["outcome"]).split())[:40]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "unreadable"


def _others(counted: Counter[str]) -> str:
    """How the other episodes ended: ": 2 OPEN, 1 CANCELED"."""
    rest = ", ".join(f"{count} {name}" for name, count in counted.items() if name != GROUNDED)
    return f": {rest}" if rest else ""
