"""Results of `clue eval dialogue` as tables, and its curves over the IoU as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clue_ros.lab.evaluation.sentence_tasks import TEXT_COLUMNS
from clue_ros.lab.metrics import ratio, rounded
from clue_ros.lab.published import INVIG_CHOICE, INVIG_SUCCESS, INVIG_TEXT
from clue_ros.lab.report import (
    COLORS,
    GREY,
    MARKERS,
    Cell,
    add_grid,
    new_figure,
    save_figure,
    table,
)

LEVELS = tuple(round(0.1 * step, 1) for step in range(1, 11))
HOWS = "box", "choice", "belief"
"""The decoded box, the best proposal, and the one that the multi-turn guesser believes in."""


def curve(ious: Sequence[float]) -> dict[str, float | None]:
    """The share of boxes at each IoU of LEVELS."""
    return {str(x): rounded(ratio(sum(iou >= x for iou in ious), len(ious))) for x in LEVELS}


def task_table(task: str, result: Mapping[str, Any], *, markdown: bool) -> str:
    """The result as a table; in Markdown with the paper's figures."""
    rows: list[list[Cell]]
    if task in INVIG_TEXT:
        names = (*TEXT_COLUMNS, "among", "n")
        rows = [["this model", *(result[name] for name in names)]]
        if markdown:
            rows += [[f"{k} (paper, InViG)", *v, None, None] for k, v in INVIG_TEXT[task].items()]
        return table([task, *names], rows, markdown=markdown)
    if task == "vg":
        rows = [
            [f"{name}, {how}", *part[how].values(), part["n"]]
            for name, part in result.items()
            for how in HOWS
            if how in part
        ]
        if markdown:
            before, after = [None] * LEVELS.index(0.5), [None] * (len(LEVELS) - LEVELS.index(0.5))
            rows += [
                [f"{name}, choice (paper, InViG)", *before, share, *after]
                for name, share in INVIG_CHOICE.items()
            ]
        return table(["vg, IoU of at least", *map(str, LEVELS), "n"], rows, markdown=markdown)
    plain = {k: v for k, v in result.items() if not isinstance(v, Mapping)}
    rows = [["self-play", *plain.values()]]
    if markdown:
        of_paper = {f"{k} (paper, InViG)": {"accuracy": v} for k, v in INVIG_SUCCESS.items()}
        rows += [[name, *map(figures.get, plain)] for name, figures in of_paper.items()]
    curves: list[list[Cell]] = [
        [how, *result[how].values(), result["n"]] for how in HOWS if how in result
    ]
    head = ["ivg, IoU of at least", *map(str, LEVELS), "n"]
    return "\n\n".join(
        [
            table(["ivg", *plain], rows, markdown=markdown),
            table(head, curves, markdown=markdown),
        ]
    )


def draw_curves(task: str, result: Mapping[str, Any], path: Path) -> None:
    """Draw the share of right boxes over the IoU, as InViG's Figure 9; Turn-m beside M-VG.

    Published figures are points, which only some have.
    """
    panels: dict[str, dict[str, Mapping[str, float | None]]] = {}
    if task == "vg":
        whole = {how: result["turn-0"][how] for how in HOWS if how in result["turn-0"]}
        panels = {"M-VG": whole, "M-VG without the last turns, by box": {}}
        for name, part in result.items():
            panels["M-VG without the last turns, by box"][name] = part["box"]
    else:
        panels = {"I-VG": {how: result[how] for how in HOWS if how in result}}
    figure = new_figure(5.2 * len(panels), 4.2)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, curves) in zip(grid, panels.items(), strict=True):
        for i, (name, curve) in enumerate(curves.items()):
            shares = [curve[str(level)] for level in LEVELS]
            axes.plot(LEVELS, shares, color=COLORS[i], marker=MARKERS[i], label=name)
        axes.set(xlabel="IoU of at least", title=title, ylim=(-0.02, 1.02), xticks=LEVELS)
        add_grid(axes)
    points = INVIG_CHOICE if task == "vg" else INVIG_SUCCESS
    for i, (name, share) in enumerate(points.items()):
        style = {"color": GREY, "linestyle": "", "marker": MARKERS[-1 - i]}
        grid[0].plot([0.5], [share], label=f"{name} (published)", **style)
    for axes in grid:
        axes.legend(fontsize="x-small")
    grid[0].set_ylabel("share of dialogues" if task == "vg" else "share of games")
    save_figure(figure, path)
