"""One training loop for every stage: resumable after a kill, a log, a progress bar, a seed.

A batch is a pure function of (seed, step), so a resumed run sees what an uninterrupted one would
have seen, and its loss curve is the same. A step's batch may come in parts: several that do not
fit memory at once (gradient accumulation), shared among several processes (`processes`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from tqdm import tqdm

from clue_ros import heap
from clue_ros.training.processes import (
    ALONE,
    Processes,
    autocast,
    pick_device,
    require_alone,
)
from clue_ros.training.run_folder import RunState, Settings, parameters_of

__all__ = [
    "BatchLoss", "Group", "Parts", "RunState", "Settings", "autocast", "make_optimizers",
    "mean_figures", "pick_device", "rate", "scratch_groups", "train",
]  # fmt: skip

T = TypeVar("T")
PartLosses = Callable[[], dict[str, Tensor]]

# Steps between giving the heap's holes back: batches differ in size, and glibc keeps what each one
# leaves between pieces that stay (a detector's training grew from 2.5 to 7 GB in 100 steps).
GIVE_BACK = 20


@dataclass(frozen=True)
class Parts:
    """A step's batch in parts, or one process's share of it, with means over the whole batch.

    counts: what the loss's terms and the figures are means over (tokens, maps, boxes), counted in
    this process's parts; every process has the same names.
    losses(totals): given the counts of the whole batch over all processes, for each part what
    computes its contribution to the scalars, "loss" among them; they add up to the batch's.
    pool: threads that compute the parts beside each other, without dropout (its random numbers
    would come in any order); None: one after another, so that one at a time is in memory.
    """

    counts: Mapping[str, float]
    losses: Callable[[Mapping[str, float]], Iterable[PartLosses]]
    pool: Executor | None = None


BatchLoss = Callable[[int], "dict[str, Tensor] | Parts"]


def rate(settings: Settings, step: int) -> float:
    """The factor on lr at `step` (counted from 0)."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step < warm:
        return (step + 1) / warm
    left = 1 - (step - warm) / max(1, settings.steps - warm)
    shape = left if settings.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)
    return 0.05 + 0.95 * shape


@dataclass(frozen=True)
class Group:
    """Parameters that are trained alike.

    lr_scale: on the settings' lr. decay: weight decay or none. muon: by Muon instead of AdamW
    (matrices only).
    """

    parameters: list[nn.Parameter]
    lr_scale: float = 1.0
    decay: bool = True
    muon: bool = False


def make_optimizers(groups: Iterable[Group], settings: Settings) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the groups that ask for it (hidden matrices of a model from scratch)."""
    adamw: list[dict[str, Any]] = []
    muon: list[dict[str, Any]] = []
    for group in groups:
        (muon if group.muon else adamw).append(
            {
                "params": group.parameters,
                "lr": settings.lr * group.lr_scale,
                "weight_decay": settings.weight_decay if group.decay else 0.0,
            }
        )
    optimizers: list[torch.optim.Optimizer] = []
    if adamw:
        optimizers.append(torch.optim.AdamW(adamw, lr=settings.lr, betas=(0.9, 0.98)))
    if muon:
        optimizers.append(torch.optim.Muon(muon, lr=settings.lr, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def scratch_groups(named: Iterable[tuple[str, nn.Parameter]]) -> list[Group]:
    """How a model from scratch is trained: Muon for hidden matrices, AdamW for the rest.

    Embeddings, heads and the patch convolution are no hidden matrices; gains and biases are not
    decayed.
    """
    muon: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, p in named:
        outer = any(word in name for word in ("embed", "table", "heads", "lm_head"))
        (plain if p.ndim < 2 else decayed if p.ndim > 2 or outer else muon).append(p)
    groups = [Group(muon, muon=True), Group(decayed), Group(plain, decay=False)]
    return [g for g in groups if g.parameters]


def mean_figures(
    prefix: str, batches: Iterable[T], figures: Callable[[T], Mapping[str, Tensor]]
) -> dict[str, float]:
    """Means over held-out batches, named prefix_figure; a batch without a figure does not count."""
    rows = [figures(batch) for batch in batches]
    names = {name: None for row in rows for name in row}
    means = {
        name: float(torch.stack([row[name].float() for row in rows if name in row]).nanmean())
        for name in names
    }
    return {f"{prefix}_{name}": round(value, 4) for name, value in means.items()}


def train(
    batch_loss: BatchLoss,
    groups: Iterable[Group],
    settings: Settings,
    folder: Path,
    *,
    evaluate: Callable[[], dict[str, float]] | None = None,
    log_every: int = 20,
    stop_at: int | None = None,
    notes: Mapping[str, Any] | None = None,
    processes: Processes = ALONE,
) -> None:
    """Run a stage to its end, going on from the state in `folder` when there is one.

    batch_loss(step): scalars, of which "loss" is minimised and others are logged; or `Parts`,
    which several processes can share. ClueError where a launcher started several for one.
    evaluate: extra figures logged whenever the state is saved; every process calls it.
    stop_at: end early at this step, state saved (what a kill at that moment leaves).
    notes: what decides the run beside the settings; a folder with others is refused.
    """
    if processes.count == 1:
        require_alone()
    optimizers = make_optimizers(groups, settings)
    parameters = [p for _, p in parameters_of(optimizers)]
    rates = [(group, float(group["lr"])) for o in optimizers for group in o.param_groups]
    state = RunState(folder, settings, notes, processes)
    first = state.restore(optimizers)
    processes.share_weights(parameters)
    last = min(settings.steps, stop_at if stop_at is not None else settings.steps)
    began = time.monotonic()
    bar = tqdm(
        range(first, last),
        initial=first,
        total=settings.steps,
        desc=folder.name,
        mininterval=2,
        disable=not processes.is_main,
    )
    with heap.setting_aside():
        for step in bar:
            # dropout repeats after a resume, and differs between processes
            torch.manual_seed(settings.seed * 1_000_003 + step + (processes.rank << 40))
            factor = rate(settings, step)
            for group, base in rates:
                group["lr"] = base * factor
            state.means.add(_backward(batch_loss(step), parameters, processes, step))
            nn.utils.clip_grad_norm_(parameters, settings.clip)
            for optimizer in optimizers:
                optimizer.step()
            done = step + 1
            if done % GIVE_BACK == 0:
                heap.give_back()
            if done % log_every == 0 or done == last:
                row = state.means.take()
                bar.set_postfix({k: f"{v:.3f}" for k, v in row.items()}, refresh=False)
                seconds = round(time.monotonic() - began, 1)
                state.log({"step": done, "seconds": seconds, **row}, lr=settings.lr * factor)
            if done % settings.save_every == 0 or done == last:
                # The figures go first: a run that is killed here repeats them with its steps.
                if evaluate is not None:
                    state.log({"step": done, **evaluate()}, "held_out")
                state.save(done, optimizers)
    state.close()


def _backward(
    batch: dict[str, Tensor] | Parts,
    parameters: Sequence[nn.Parameter],
    processes: Processes,
    step: int,
) -> dict[str, float]:
    """Leave the gradient of the batch's loss in the parameters; returns the scalars."""
    for p in parameters:
        p.grad = None
    if isinstance(batch, Parts):
        return _backward_parts(batch, parameters, processes, step)
    _check(float(batch["loss"].detach()), step)
    torch.autograd.backward(batch["loss"])
    return {name: float(value.detach()) for name, value in batch.items()}


def _backward_parts(
    batch: Parts, parameters: Sequence[nn.Parameter], processes: Processes, step: int
) -> dict[str, float]:
    totals = processes.add_up(batch.counts)
    sums = dict.fromkeys(["loss", *batch.counts], 0.0)
    compute = batch.losses(totals)
    if batch.pool is None:
        for losses in compute:
            part = losses()
            torch.autograd.backward(part["loss"])
            for name, value in part.items():
                sums[name] += float(value.detach())
    else:
        for figures, gradients in batch.pool.map(partial(_gradients, parameters), compute):
            for name, number in figures.items():
                sums[name] += number
            for p, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    p.grad = gradient if p.grad is None else p.grad.add_(gradient)
    if processes.count > 1:
        sums = processes.add_up(sums)
        processes.add_gradients(parameters)
    _check(sums["loss"], step)
    return {name: value for name, value in sums.items() if totals.get(name, 1) > 0}


def _gradients(
    parameters: Sequence[nn.Parameter], losses: PartLosses
) -> tuple[dict[str, float], tuple[Tensor | None, ...]]:
    """A part's scalars and gradients, left in no parameter: other threads have the same ones."""
    part = losses()
    gradients = torch.autograd.grad(part["loss"], parameters, allow_unused=True)
    return {name: float(value.detach()) for name, value in part.items()}, gradients


def _check(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss is not finite at step {step}; lower --lr")
