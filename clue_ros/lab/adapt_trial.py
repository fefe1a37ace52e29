"""Test whether adapters trained on photographs of a table help there (`clue adapt --adapters`).

Each half of the photographs teaches a copy of both adapters (`clue_ros.lab.training.adapt`), which
replies about the other half. Adapters that all photographs taught are kept where these replies are
better than the model's own, and simulated scenes show that little was forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clue_ros.engine import Clue
from clue_ros.lab.data.photographs import Photograph
from clue_ros.lab.data.shown import Shown, know
from clue_ros.lab.evaluation.photos import PhotoReply, measure, reply_to_photographs
from clue_ros.lab.report import Cell, table
from clue_ros.lab.training.adapt import Recipe, train_adapters
from clue_ros.model.backbone import DETECTOR, IVG

HALVES = 2
FORGOTTEN = 0.01  # largest loss of a figure on simulated scenes

AUTO, ALWAYS, NEVER = "auto", "always", "never"
Ask = Callable[[str, int, Callable[[], list[PhotoReply]]], list[PhotoReply]]
"""Returns a part's replies about the n-th photograph; calls the function if they are unknown."""


@dataclass(frozen=True)
class Trial:
    """The result. kept: the folder of the adapters; None: the model's own stay.

    halves: the folders of those that a half did not teach, in the order of the halves.
    """

    kept: Path | None
    halves: tuple[Path, ...]
    text: str


def half_of(n: int) -> int:
    """Return the half of the n-th photograph."""
    return n % HALVES


def with_adapters(clue: Clue, folder: Path) -> Clue:
    """The model with the adapters in a folder, and no words taught."""
    parts = {DETECTOR: folder / DETECTOR, IVG: folder / IVG}
    return Clue.load(clue.model_name, device=clue.device, memory="", **parts)


def try_adapters(
    clue: Clue,
    source: Path,
    photographs: Sequence[Photograph],
    shown: Sequence[Shown],
    folder: Path,
    recipe: Recipe,
    ask: Ask,
    *,
    always: bool = False,
) -> Trial:
    """Train and measure; resume an interrupted run. source: the model's folder.

    folder: of the adapters and the runs. always: keep them regardless of the figures. Raises
    ClueError and FileNotFoundError for missing simulated scenes.
    """
    halves = tuple(folder / f"half{half}" for half in range(HALVES))
    teach = partial(train_adapters, source, recipe=recipe)
    before, after = list[PhotoReply](), list[PhotoReply]()
    for half, out in enumerate(halves):
        teach([p for n, p in enumerate(photographs) if half_of(n) != half], out)
        adapted = with_adapters(clue, out)
        for model in (clue, adapted):
            know(model.memory, [row for row in shown if half_of(row[0]) != half])
        for n, photograph in enumerate(photographs):
            if half_of(n) == half:
                before += ask("half", n, partial(reply_to_photographs, clue, [photograph]))
                after += ask("adapters", n, partial(reply_to_photographs, adapted, [photograph]))
    helps = worth(after) > worth(before) and wrong(after) <= wrong(before)
    lines = [_compared(before, after)]
    if not (helps or always):
        return Trial(None, halves, "\n\n".join([*lines, "Adapters are not kept: no gain."]))
    nothing = replace(recipe, steps={IVG: 0, DETECTOR: 0})
    own = train_adapters(source, photographs, folder / "own", nothing)
    taught_on = teach(photographs, folder / "all")
    lines.append(f"Simulated scenes: {_spelled(own)}; taught on: {_spelled(taught_on)}.")
    forgot = any(own[name] - found > FORGOTTEN for name, found in taught_on.items())
    if forgot and not always:
        lines.append("Adapters are not kept: they forget simulated scenes.")
        return Trial(None, halves, "\n\n".join(lines))
    return Trial(folder / "all", halves, "\n\n".join([*lines, "Adapters are kept."]))


def worth(replies: Sequence[PhotoReply]) -> int:
    """Replies that are right at once or after a yes, and right boxes where there must be one."""
    return sum(reply.right_after_yes + (reply.forced_hit is True) for reply in replies)


def wrong(replies: Sequence[PhotoReply]) -> int:
    """Dialogues that end in a wrong box without a confirmation."""
    return sum(reply.unconfirmed for reply in replies)


def _spelled(figures: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in figures.items())


def _compared(before: Sequence[PhotoReply], after: Sequence[PhotoReply]) -> str:
    figures = measure(before), measure(after)
    lines = (
        ("clear, right at once or after a yes", "clear", "right_after_yes"),
        ("clear, right when it must point", "forced_score", "so"),
        ("absent, recognised", "absent", "right"),
        ("firm and wrong", "all", "firmly_wrong"),
        ("wrong box without a confirmation", "all", "unconfirmed"),
    )
    rows: list[list[Cell]] = [
        [name, *(float(found[part][key]) for found in figures)] for name, part, key in lines
    ]
    heads = f"{len(after)} requests, the other half teaches", "adapters as they are", "taught on"
    return table(heads, rows, markdown=True)
