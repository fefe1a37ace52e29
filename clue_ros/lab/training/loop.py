"""One training loop for every stage: resumable after a kill, a log, a progress bar, a seed.

A batch is a pure function of (seed, step), so a resumed run sees what an uninterrupted one would
have seen, and its loss curve is the same. A step's batch may come in parts: several that do not
fit memory at once (gradient accumulation), shared among several processes (`processes`).
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import load, save_file
from torch import Tensor, nn
from tqdm import tqdm

from clue_ros import memory
from clue_ros.errors import ClueError
from clue_ros.lab.training.parallel import ALONE, Processes, autocast, pick_device, require_alone
from clue_ros.model.loading import replacing

# -------------------------------------------------------------------------------------------------
# A stage's folder: the state to resume from, `log.jsonl`, and the same figures for TensorBoard.


@dataclass(frozen=True)
class Settings:
    """What a stage's run is decided by.

    steps, batch: optimizer steps and samples a step. lr, weight_decay: AdamW's. warmup: share of
    the steps of linear warm-up. schedule: "cosine" or "linear" decay to a twentieth of lr.
    seed: of data order, augmentation and dropout. save_every: steps between saved states.
    """

    steps: int
    batch: int
    lr: float
    weight_decay: float = 1e-4
    warmup: float = 0.05
    schedule: str = "cosine"
    seed: int = 0
    save_every: int = 200
    clip: float = 1.0


class Means:
    """Running means of figures since the last row of the log; a figure may be absent from a step.

    They are part of the state: a resumed run's next row is the mean of the same steps.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """One step's figures; what is no number (a share of nothing) does not count."""
        for name, value in figures.items():
            if math.isfinite(value):
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value, count + 1)

    def take(self) -> dict[str, float]:
        """The means, and begin anew."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def tensors(self) -> dict[str, Tensor]:
        """For the state."""
        return {
            f"mean.{name}": torch.tensor(pair, dtype=torch.float64)
            for name, pair in self._sums.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """From the state."""
        self._sums = {
            name[len("mean.") :]: (float(pair[0]), int(pair[1]))
            for name, pair in tensors.items()
            if name.startswith("mean.")
        }


class RunState:
    """A stage's folder: `state.safetensors` and `state.json` to resume from, and `log.jsonl`.

    notes: what decides the run beside the settings (data, loss weights), compared on resume.
    TensorBoard's event file lies beside the log where the package `tensorboard` is installed.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        notes: Mapping[str, Any] | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.notes: dict[str, Any] = json.loads(json.dumps(dict(notes or {})))
        self.means = Means()
        self._processes = processes
        self._board: Any = None
        self._first = 0
        if processes.is_main:
            folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, optimizers: list[torch.optim.Optimizer]) -> None:
        """Write parameters and moments; a kill in the middle leaves the previous state."""
        if not self._processes.is_main:
            return
        tensors: dict[str, Tensor] = self.means.tensors()
        for i, (optimizer, p) in enumerate(parameters_of(optimizers)):
            tensors[f"p{i}"] = p.detach().cpu().contiguous()
            for name, value in optimizer.state.get(p, {}).items():
                tensors[f"o{i}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
        tensors["step"] = torch.tensor(step)
        # The settings go first: a state never lies there without them.
        content = {**asdict(self.settings), "run": self.notes}
        self._write("state.json", json.dumps(content, indent=1))
        with replacing(self.folder / "state.safetensors") as partial:
            save_file(tensors, str(partial))

    def _write(self, name: str, text: str) -> None:
        with replacing(self.folder / name) as partial:
            partial.write_text(text)

    def restore(self, optimizers: list[torch.optim.Optimizer]) -> int:
        """The step to go on from; 0 when there is nothing to resume.

        ClueError when the folder holds a run with other settings or of another model. Log lines of
        steps that are about to be done again are dropped. The first process reads, all are given.
        """
        content = self._read() if self._processes.is_main else None
        content = self._processes.send(content)
        if not content:
            self._cut_log(0)
            return 0
        tensors = load(content)
        found_shapes = {k: v.shape for k, v in tensors.items() if k[0] == "p"}
        if found_shapes != {f"p{i}": p.shape for i, (_, p) in enumerate(parameters_of(optimizers))}:
            raise self._other("of another model")
        with torch.no_grad():
            for i, (optimizer, p) in enumerate(parameters_of(optimizers)):
                p.copy_(tensors[f"p{i}"])
                prefix = f"o{i}."
                found = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
                if found:
                    optimizer.state[p] = {
                        k: v if k == "step" else v.to(p.device) for k, v in found.items()
                    }
        self.means.load(tensors)
        self._first = int(tensors["step"])
        self._cut_log(self._first)
        return self._first

    def _read(self) -> bytes:
        """The state's bytes, none when there is nothing to resume; checks the settings."""
        path = self.folder / "state.safetensors"
        if not path.exists():
            return b""
        self.check()
        return path.read_bytes()

    def check(self) -> None:
        """Raises ClueError when the folder holds a run with other settings."""
        path = self.folder / "state.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        pairs = [(kept, asdict(self.settings)), (kept.get("run", {}), self.notes)]
        other = [
            f"{name} {before[name]}, now {value}"
            for before, now in pairs
            for name, value in now.items()
            # what an older run did not write down cannot be compared
            if name != "save_every" and name in before and before[name] != value
        ]
        if other:
            raise self._other(f"with other settings ({'; '.join(other)})")

    def _other(self, kind: str) -> ClueError:
        return ClueError(
            f"{self.folder} holds a run {kind}; give another --run folder or delete it"
        )

    def _cut_log(self, step: int) -> None:
        """Drop what a killed run logged after its last saved state, its torn last line too."""
        path = self.folder / "log.jsonl"
        if not self._processes.is_main or not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:
                break
        self._write(path.name, "".join(kept))

    def log(self, row: Mapping[str, float], kind: str = "train", **more: float) -> None:
        """Append one JSON line to log.jsonl; TensorBoard also draws `more`, under `kind`/.

        What is no number (the mean of nothing) is left out, JSON has no word for it.
        """
        if not self._processes.is_main:
            return
        row = {name: value for name, value in row.items() if math.isfinite(value)}
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        if self._board is None:
            self._board = _summary_writer(self.folder, self._first + 1)
        for name, value in {**row, **more}.items():
            if name not in ("step", "seconds"):
                self._board.add_scalar(f"{kind}/{name}", value, int(row["step"]))
        self._board.flush()

    def close(self) -> None:
        """End TensorBoard's file."""
        if self._board is not None:
            self._board.close()


class _NoBoard:
    """Stands in where TensorBoard is not installed."""

    def add_scalar(self, *_: Any) -> None:
        """Draw nothing."""

    def flush(self) -> None:
        """Nothing to write."""

    def close(self) -> None:
        """Nothing to end."""


def _summary_writer(folder: Path, next_step: int) -> Any:
    """TensorBoard's writer; steps from `next_step` on that an earlier process drew are hidden."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("no TensorBoard scalars: pip install tensorboard", file=sys.stderr)
        return _NoBoard()
    make: Any = SummaryWriter
    return make(str(folder), purge_step=next_step)


def parameters_of(
    optimizers: list[torch.optim.Optimizer],
) -> list[tuple[torch.optim.Optimizer, nn.Parameter]]:
    """Every parameter with the optimizer that moves it, in a fixed order."""
    return [(o, p) for o in optimizers for group in o.param_groups for p in group["params"]]


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
    with memory.setting_aside():
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
                memory.give_back()
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


# -------------------------------------------------------------------------------------------------
# Batches made ahead of the step that needs them, in threads (decoding pictures frees the GIL).


class Ahead(Generic[T]):
    """`make(step)` for one step after another, each begun while earlier ones are trained on.

    workers: threads; 0 makes each batch when it is asked for. last: no step from it on is made.
    `make` must depend on the step alone. What it raises is raised where the step is asked for.
    Leaving the context ends the threads, without waiting for batches that nobody asked for.
    """

    def __init__(self, make: Callable[[int], T], workers: int, last: int) -> None:
        self._make = make
        self._workers = workers
        self._last = last
        self._waiting: dict[int, Future[T]] = {}
        self._pool = ThreadPoolExecutor(workers, "batch") if workers else None

    def __call__(self, step: int) -> T:
        """The batch of `step`; the next ones are begun."""
        if self._pool is None:
            return self._make(step)
        for ahead in range(step, min(step + 1 + 2 * self._workers, self._last)):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._pool.submit(self._make, ahead)
        return self._waiting.pop(step).result()

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
