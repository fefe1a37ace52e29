"""The training loop of every stage: resumable after a kill, with a log and a progress bar.

A batch is a function of (seed, step) alone, so that a resumed run sees the batches of an
uninterrupted one and has the same loss curve. A step's batch may come in parts that do not fit
memory at once (gradient accumulation) and be shared among several processes (`parallel`).
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import cv2
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from clue_ros import memory
from clue_ros.errors import ClueError
from clue_ros.files import FolderLock
from clue_ros.lab.training.parallel import Processes, has_bfloat16, launched
from clue_ros.model.loading import replacing
from clue_ros.requirements import install

T = TypeVar("T")
STATE_FILE = "state.safetensors"
# Steps between two trims of the heap: batches differ in size, and glibc keeps the pages between
# pieces that stay (a detector's training grew from 2.5 to 7 GB in 100 steps).
TRIM_EVERY = 20
EMBEDDED_FINAL_RATE = 0.05  # of the embedded models' stages


@dataclass(frozen=True)
class TrainingSettings:
    """The numbers that decide a stage's run.

    steps, batch: optimizer steps, and pictures (or maps) a step. lr, weight_decay: of the
    optimizers. warmup: share of the steps with linear warm-up. schedule: "cosine" or "linear"
    decay. final_rate: share of lr that is left after the last step. seed: of data order,
    augmentation and dropout. save_every: steps between two saved states. clip: largest norm of the
    gradient.
    """

    steps: int
    batch: int
    lr: float
    weight_decay: float = 1e-4
    warmup: float = 0.05
    schedule: str = "cosine"
    final_rate: float = EMBEDDED_FINAL_RATE
    seed: int = 0
    save_every: int = 200
    clip: float = 1.0

    def rate(self, step: int) -> float:
        """The factor on lr at `step` (counted from 0)."""
        warm = max(1, round(self.warmup * self.steps))
        if step < warm:
            return (step + 1) / warm
        left = 1 - (step - warm) / max(1, self.steps - warm)
        shape = left if self.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)
        return self.final_rate + (1 - self.final_rate) * shape


@dataclass(frozen=True)
class Group:
    """Parameters that are trained alike.

    lr_scale: factor on the settings' lr. decay: whether weights decay. muon: by Muon (matrices
    only) instead of AdamW.
    """

    parameters: list[nn.Parameter]
    lr_scale: float = 1.0
    decay: bool = True
    muon: bool = False


def scratch_groups(named: Iterable[tuple[str, nn.Parameter]]) -> list[Group]:
    """The groups of a model from scratch: Muon for hidden matrices, AdamW for the rest.

    Embeddings, heads and the patch convolution are no hidden matrices; gains and biases do not
    decay.
    """
    muon: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, p in named:
        outer = any(word in name for word in ("embed", "table", "heads", "lm_head"))
        (plain if p.ndim < 2 else decayed if p.ndim > 2 or outer else muon).append(p)
    groups = [Group(muon, muon=True), Group(decayed), Group(plain, decay=False)]
    return [g for g in groups if g.parameters]


class StackedMuon(torch.optim.Muon):
    """PyTorch's Muon with one product for all matrices of a shape, in a chosen dtype.

    PyTorch's takes one matrix after another, over a thousand launches a step on a GPU, and
    multiplies in bfloat16 on every device. A CPU without bfloat16 emulates it 80 times as slowly as
    float32. Settings and state are those of `torch.optim.Muon` with
    adjust_lr_fn="match_rms_adamw", so that a run can go on with either.
    """

    def __init__(self, params: Iterable[dict[str, Any]], lr: float, dtype: torch.dtype) -> None:
        super().__init__(params, lr=lr, adjust_lr_fn="match_rms_adamw")
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that the parameters have. closure: must be None."""
        if closure is not None:
            raise ValueError("StackedMuon takes no closure")
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for shape, parameters in shapes.items():
                gradients = [p.grad for p in parameters if p.grad is not None]
                momenta = [self._momentum(p) for p in parameters]
                torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
                ahead: Sequence[Tensor] = momenta
                if group["nesterov"]:
                    ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
                updates = _orthogonal(torch.stack([*ahead]).to(self.dtype), group)
                rate = group["lr"] * 0.2 * math.sqrt(max(shape))
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(
                    parameters, list(updates.to(parameters[0].dtype).unbind()), alpha=-rate
                )

    def _momentum(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        found: Tensor = state["momentum_buffer"]
        return found


def _orthogonal(matrices: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Muon's Newton-Schulz iteration: (n, rows, columns), then with singular values of about 1."""
    a, b, c = group["ns_coefficients"]
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def make_optimizers(
    groups: Iterable[Group], settings: TrainingSettings
) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the groups that ask for it."""
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
        fast = all(has_bfloat16(p.device) for group in muon for p in group["params"])
        dtype = torch.bfloat16 if fast else torch.float32
        optimizers.append(StackedMuon(muon, settings.lr, dtype))
    return optimizers


def parameters_of(
    optimizers: Iterable[torch.optim.Optimizer],
) -> list[tuple[torch.optim.Optimizer, nn.Parameter]]:
    """Every parameter with its optimizer, in the order of the state file (p0, p1, ...)."""
    return [(o, p) for o in optimizers for group in o.param_groups for p in group["params"]]


PartLosses = Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class Parts:
    """One process's share of a step's batch, in parts; losses are means over the whole batch.

    counts: the numbers (of tokens, maps, boxes) that the means are over, in this process's parts;
    every process has the same names. losses(totals): from the counts of the whole batch, for each
    part a function that computes its contribution to the scalars, "loss" among them. pool: threads
    that compute the parts at the same time, without dropout (its random numbers would come in any
    order); None: one after another, so that only one part's activations are in memory.
    """

    counts: Mapping[str, float]
    losses: Callable[[Mapping[str, float]], Iterable[PartLosses]]
    pool: Executor | None = None


BatchLoss = Callable[[int], "dict[str, Tensor] | Parts"]


class Optimization:
    """The optimizers of a stage, and the steps that `train` takes with them."""

    def __init__(
        self,
        groups: Iterable[Group],
        settings: TrainingSettings,
        processes: Processes | None = None,
    ) -> None:
        self.settings = settings
        self.processes = processes or Processes()
        self.optimizers = make_optimizers(groups, settings)
        self.parameters = [p for _, p in parameters_of(self.optimizers)]
        groups_of_all = [group for o in self.optimizers for group in o.param_groups]
        self._base_rates = [(group, float(group["lr"])) for group in groups_of_all]

    def step(self, number: int, batch_loss: BatchLoss) -> dict[str, float]:
        """Take step `number` (counted from 0); the scalars of `batch_loss`."""
        settings = self.settings
        # dropout repeats after a resume, and differs between processes
        torch.manual_seed(settings.seed * 1_000_003 + number + (self.processes.rank << 40))
        factor = settings.rate(number)
        for group, base in self._base_rates:
            group["lr"] = base * factor
        scalars = _backward(batch_loss(number), self.parameters, self.processes, number)
        nn.utils.clip_grad_norm_(self.parameters, settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return scalars


def train(
    batch_loss: BatchLoss,
    groups: Iterable[Group],
    settings: TrainingSettings,
    folder: Path,
    *,
    evaluate: Callable[[], dict[str, float]] | None = None,
    log_every: int = 20,
    notes: Mapping[str, Any] | None = None,
    processes: Processes | None = None,
) -> None:
    """Run a stage to its end, from the state in `folder` if there is one.

    batch_loss(step): scalars, of which "loss" is minimised and the others are logged, or `Parts`,
    which several processes can share. evaluate: held-out figures, logged with every saved state;
    every process calls it. notes: what decides the run beside the settings. Raises ClueError if the
    folder holds another run, another process trains there, or a launcher started several processes
    and `processes` is not given.
    """
    if processes is None:
        if launched():
            raise ClueError("this stage runs in one process: start it without accelerate launch")
        processes = Processes()
    optimization = Optimization(groups, settings, processes)
    run = RunFolder(folder, settings, notes, processes)
    with run:
        first = run.restore(optimization.optimizers)
        processes.share_weights(optimization.parameters)
        began = time.monotonic()
        bar = tqdm(
            range(first, settings.steps),
            initial=first,
            total=settings.steps,
            desc=folder.name,
            mininterval=2,
            disable=not processes.is_main,
        )
        with memory.frozen_garbage():
            for step in bar:
                run.means.add(optimization.step(step, batch_loss))
                done = step + 1
                if done % TRIM_EVERY == 0:
                    memory.trim()
                if done % log_every == 0 or done == settings.steps:
                    row = run.means.take()
                    bar.set_postfix({k: f"{v:.3f}" for k, v in row.items()}, refresh=False)
                    seconds = round(time.monotonic() - began, 1)
                    rate = settings.lr * settings.rate(step)
                    run.log({"step": done, "seconds": seconds, **row}, lr=rate)
                if done % settings.save_every == 0 or done == settings.steps:
                    # The figures go first: a run that is killed here repeats them with its steps.
                    if evaluate is not None:
                        run.log({"step": done, **evaluate()}, "held_out")
                    run.save(done, optimization.optimizers)


def _backward(
    batch: dict[str, Tensor] | Parts,
    parameters: Sequence[nn.Parameter],
    processes: Processes,
    step: int,
) -> dict[str, float]:
    """Leave the gradient of the batch's loss in the parameters; returns the scalars."""
    for p in parameters:
        p.grad = None
    if not isinstance(batch, Parts):
        scalars = batch
        batch = Parts({}, lambda _: [lambda: scalars])
    totals = processes.sum(batch.counts)
    sums = dict.fromkeys(["loss", *batch.counts], 0.0)
    compute = batch.losses(totals)
    if batch.pool is None:
        for losses in compute:
            part = losses()
            torch.autograd.backward(part["loss"])
            for name, value in part.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
    else:
        for figures, gradients in batch.pool.map(partial(_gradients, parameters), compute):
            for name, number in figures.items():
                sums[name] += number
            for p, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    p.grad = gradient if p.grad is None else p.grad.add_(gradient)
    sums = processes.sum(sums)
    processes.sum_gradients(parameters)
    if not math.isfinite(sums["loss"]):
        raise FloatingPointError(f"loss is not finite at step {step}; lower --lr")
    return {name: value for name, value in sums.items() if totals.get(name, 1) > 0}


def _gradients(
    parameters: Sequence[nn.Parameter], losses: PartLosses
) -> tuple[dict[str, float], tuple[Tensor | None, ...]]:
    """Return a part's scalars and gradients; other threads share the parameters."""
    part = losses()
    gradients = torch.autograd.grad(part["loss"], parameters, allow_unused=True)
    return {name: float(value.detach()) for name, value in part.items()}, gradients


class Means:
    """Running means of figures since the last row of the log; a step may lack a figure.

    sums: sum and count of each figure. They are part of the state: a resumed run's next row is the
    mean over the same steps.
    """

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def add(self, figures: Mapping[str, float]) -> None:
        """Add one step's figures; NaN (a share of nothing) does not count."""
        for name, value in figures.items():
            if math.isfinite(value):
                total, count = self.sums.get(name, (0.0, 0))
                self.sums[name] = [total + value, count + 1]

    def take(self) -> dict[str, float]:
        """The means; begins anew."""
        means = {name: total / count for name, (total, count) in self.sums.items()}
        self.sums = {}
        return means


class RunFolder:
    """A stage's folder: the state to resume from, `log.jsonl` and TensorBoard's event file.

    In a `with` no other process can train there.

    The state is one safetensors file: weights, the optimizers' moments, and in its metadata the
    step, the settings, the notes and the running means.
    """

    def __init__(
        self,
        folder: Path,
        settings: TrainingSettings,
        notes: Mapping[str, Any] | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.folder = folder
        self.means = Means()
        run = {**asdict(settings), **(notes or {})}
        self._run: dict[str, Any] = json.loads(json.dumps(run))  # as it is read back
        self._processes = processes or Processes()
        self._board: Any = None
        self._held: FolderLock | None = None
        self._first = 0
        if self._processes.is_main:
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> None:
        """Hold the folder. Raises ClueError where another process does."""
        if not self._processes.is_main:
            return
        try:
            self._held = FolderLock(self.folder)
        except BlockingIOError as error:
            raise ClueError(
                f"another process trains in {self.folder}: wait for it, or give another --run"
                " folder"
            ) from error

    def __exit__(self, *_: object) -> None:
        """End TensorBoard's file, and let others in."""
        if self._board:
            self._board.close()
        if self._held is not None:
            self._held.release()

    def save(self, step: int, optimizers: list[torch.optim.Optimizer]) -> None:
        """Write the state; a kill meanwhile leaves the previous one."""
        if not self._processes.is_main:
            return
        tensors: dict[str, Tensor] = {}
        for i, (optimizer, p) in enumerate(parameters_of(optimizers)):
            tensors[f"p{i}"] = p.detach().cpu().contiguous()
            for name, value in optimizer.state.get(p, {}).items():
                tensors[f"o{i}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
        about = {"step": step, "run": self._run, "means": self.means.sums}
        with replacing(self.folder / STATE_FILE) as partial_file:
            save_file(tensors, str(partial_file), metadata={"clue": json.dumps(about)})

    def restore(self, optimizers: list[torch.optim.Optimizer]) -> int:
        """The step to go on from; 0 if there is no state. Drops the log of steps to be redone.

        The first process reads the state and sends it to the others. Raises ClueError if the state
        is of other settings or of another model.
        """
        found = None
        if self._processes.is_main and (about := self.check()) is not None:
            found = about, load_file(self.folder / STATE_FILE)
        found = self._processes.send(found)
        if found is not None:
            about, tensors = found
            self._load(tensors, optimizers)
            self.means.sums = about["means"]
            self._first = int(about["step"])
        if self._processes.is_main:
            self._cut_log(self._first)
        return self._first

    @torch.no_grad()
    def _load(self, tensors: dict[str, Tensor], optimizers: list[torch.optim.Optimizer]) -> None:
        pairs = parameters_of(optimizers)
        shapes = {name: tensor.shape for name, tensor in tensors.items() if name[0] == "p"}
        if shapes != {f"p{i}": p.shape for i, (_, p) in enumerate(pairs)}:
            raise self._other("of another model")
        for i, (optimizer, p) in enumerate(pairs):
            p.copy_(tensors[f"p{i}"])
            prefix = f"o{i}."
            found = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
            if found:
                optimizer.state[p] = {
                    k: v if k == "step" else v.to(p.device) for k, v in found.items()
                }

    def check(self) -> dict[str, Any] | None:
        """The state's metadata, None if there is no state. Raises ClueError for other settings."""
        path = self.folder / STATE_FILE
        if not path.exists():
            return None
        with safe_open(str(path), framework="pt") as file:
            about: dict[str, Any] = json.loads(file.metadata()["clue"])
        before, now = about["run"], self._run
        other = [
            f"{name} {before.get(name)}, now {now.get(name)}"
            for name in {**before, **now}
            if name != "save_every" and before.get(name) != now.get(name)
        ]
        if other:
            raise self._other(f"with other settings ({'; '.join(other)})")
        return about

    def _other(self, kind: str) -> ClueError:
        return ClueError(
            f"{self.folder} holds a run {kind}; give another --run folder or delete it"
        )

    def _cut_log(self, step: int) -> None:
        """Drop the rows after `step`, and a last line that a kill cut short."""
        path = self.folder / "log.jsonl"
        if not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:
                break
        with replacing(path) as partial_file:
            partial_file.write_text("".join(kept))

    def log(self, row: Mapping[str, float], kind: str = "train", **more: float) -> None:
        """Append one JSON line; TensorBoard draws it and `more` as `kind`/name.

        NaN (the mean of nothing) is left out: JSON has no word for it.
        """
        if not self._processes.is_main:
            return
        row = {name: value for name, value in row.items() if math.isfinite(value)}
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        if self._board is None:
            self._board = _summary_writer(self.folder, self._first + 1)
        for name, value in {**row, **more}.items():
            if self._board and name not in ("step", "seconds"):
                self._board.add_scalar(f"{kind}/{name}", value, int(row["step"]))
        if self._board:
            self._board.flush()


def _summary_writer(folder: Path, next_step: int) -> Any:
    """TensorBoard's writer, or False; hides an earlier process's steps from `next_step` on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        tqdm.write(f"no TensorBoard scalars: {install('lab')}", file=sys.stderr)
        return False
    make: Any = SummaryWriter
    return make(str(folder), purge_step=next_step)


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


@contextmanager
def prefetch(
    make: Callable[[int], T], workers: int, last: int, device: torch.device
) -> Iterator[Callable[[int], T]]:
    """Give `make` with batches prepared ahead of the step that needs them.

    workers: number of threads, or of processes for a GPU, which outpaces threads under the GIL; 0
    makes each batch on demand. last: no step from it on is made. `make` must depend on the step
    alone, leave the GPU alone, and be asked for one step after another; its exceptions are raised
    at that step.
    """
    if workers <= 0:
        yield make
    elif device.type == "cuda":
        with _made_by_processes(make, workers, last) as batch:
            yield batch
    else:
        with _made_by_threads(make, workers, last) as batch:
            yield batch


@contextmanager
def _made_by_threads(
    make: Callable[[int], T], workers: int, last: int
) -> Iterator[Callable[[int], T]]:
    pool, waiting = ThreadPoolExecutor(workers, "batch"), dict[int, Future[T]]()

    def batch(step: int) -> T:
        for ahead in range(step, min(step + 1 + 2 * workers, last)):
            if ahead not in waiting:
                waiting[ahead] = pool.submit(make, ahead)
        return waiting.pop(step).result()

    try:
        yield batch
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Steps(Dataset[tuple[T | None, Exception | None]]):
    """The batch of each step, or its exception with type and message."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make

    def __getitem__(self, step: int) -> tuple[T | None, Exception | None]:
        try:
            return self._make(step), None
        except Exception as error:  # noqa: BLE001 - raised again where the step is asked for
            return None, error


@contextmanager
def _made_by_processes(
    make: Callable[[int], T], workers: int, last: int
) -> Iterator[Callable[[int], T]]:
    batches: Iterator[tuple[T | None, Exception | None]] | None = None
    # A fork has none of the threads that OpenCV and the tokenizers would wait for in it.
    cv2.setNumThreads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def batch(step: int) -> T:
        nonlocal batches
        if batches is None:
            batches = iter(
                DataLoader(
                    _Steps(make),
                    batch_size=None,
                    sampler=range(step, last),
                    num_workers=workers,
                    collate_fn=_as_it_is,
                    prefetch_factor=4,
                    multiprocessing_context="fork",  # the pictures in memory are shared
                )
            )
        made, error = next(batches)
        if error is not None:
            raise error
        return cast(T, made)

    try:
        yield batch
    finally:
        batches = None  # ends the processes
        cv2.setNumThreads(-1)


def _as_it_is(batch: T) -> T:
    return batch
