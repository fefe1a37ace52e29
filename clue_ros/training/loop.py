"""One training loop for every stage: resumable after a kill, a log, a progress bar, a seed.

A batch is a pure function of (seed, step), so a resumed run sees what an uninterrupted one would
have seen, and its loss curve is the same. State is kept as safetensors plus JSON; nothing is
unpickled.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from clue_ros.errors import ClueError

BatchLoss = Callable[[int], dict[str, Tensor]]


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


def rate(settings: Settings, step: int) -> float:
    """The factor on lr at `step` (counted from 0)."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step < warm:
        return (step + 1) / warm
    left = 1 - (step - warm) / max(1, settings.steps - warm)
    shape = left if settings.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)
    return 0.05 + 0.95 * shape


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: the first CUDA device, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def autocast(device: torch.device) -> torch.autocast:
    """bf16 where the device computes in it (CUDA, a CPU with AVX512-BF16 or AMX), else float32."""
    fast = device.type == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bool(fast))


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


def _parameters(
    optimizers: list[torch.optim.Optimizer],
) -> list[tuple[torch.optim.Optimizer, nn.Parameter]]:
    return [(o, p) for o in optimizers for group in o.param_groups for p in group["params"]]


class RunState:
    """A stage's folder: `state.safetensors` and `state.json` to resume from, and `log.jsonl`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, optimizers: list[torch.optim.Optimizer]) -> None:
        """Write parameters and moments; a kill in the middle leaves the previous state."""
        tensors: dict[str, Tensor] = {}
        for i, (optimizer, p) in enumerate(_parameters(optimizers)):
            tensors[f"p{i}"] = p.detach().cpu().contiguous()
            for name, value in optimizer.state.get(p, {}).items():
                tensors[f"o{i}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
        tensors["step"] = torch.tensor(step)
        # The settings go first: a state never lies there without them.
        self._write("state.json", json.dumps(asdict(self.settings), indent=1))
        partial = self.folder / "state.partial"
        save_file(tensors, str(partial))
        partial.replace(self.folder / "state.safetensors")

    def _write(self, name: str, text: str) -> None:
        partial = self.folder / f"{name}.partial"
        partial.write_text(text)
        partial.replace(self.folder / name)

    def restore(self, optimizers: list[torch.optim.Optimizer]) -> int:
        """The step to go on from; 0 when there is nothing to resume.

        ClueError when the folder holds a run with other settings or of another model. Log lines of
        steps that are about to be done again are dropped.
        """
        path = self.folder / "state.safetensors"
        if not path.exists():
            self._cut_log(0)
            return 0
        kept = json.loads((self.folder / "state.json").read_text())
        wanted = asdict(self.settings)
        if any(kept.get(k) != wanted[k] for k in wanted if k != "save_every"):
            raise self._other(f"with other settings ({kept})")
        tensors = load_file(str(path))
        found_shapes = {k: v.shape for k, v in tensors.items() if k[0] == "p"}
        if found_shapes != {f"p{i}": p.shape for i, (_, p) in enumerate(_parameters(optimizers))}:
            raise self._other("of another model")
        with torch.no_grad():
            for i, (optimizer, p) in enumerate(_parameters(optimizers)):
                p.copy_(tensors[f"p{i}"])
                prefix = f"o{i}."
                found = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
                if found:
                    optimizer.state[p] = {
                        k: v if k == "step" else v.to(p.device) for k, v in found.items()
                    }
        step = int(tensors["step"])
        self._cut_log(step)
        return step

    def _other(self, kind: str) -> ClueError:
        return ClueError(
            f"{self.folder} holds a run {kind}; give another --run folder or delete it"
        )

    def _cut_log(self, step: int) -> None:
        """Drop what a killed run logged after its last saved state, its torn last line too."""
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
        self._write(path.name, "".join(kept))

    def log(self, row: dict[str, float]) -> None:
        """Append one JSON line to log.jsonl."""
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")


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


def train(
    batch_loss: BatchLoss,
    groups: Iterable[Group],
    settings: Settings,
    folder: Path,
    *,
    evaluate: Callable[[], dict[str, float]] | None = None,
    log_every: int = 20,
    stop_at: int | None = None,
) -> None:
    """Run a stage to its end, going on from the state in `folder` when there is one.

    batch_loss(step): scalars, of which "loss" is minimised; others are logged.
    evaluate: extra figures logged whenever the state is saved.
    stop_at: end early at this step, state saved (what a kill at that moment leaves).
    """
    optimizers = make_optimizers(groups, settings)
    parameters = [p for _, p in _parameters(optimizers)]
    rates = [(group, float(group["lr"])) for o in optimizers for group in o.param_groups]
    state = RunState(folder, settings)
    first = state.restore(optimizers)
    last = min(settings.steps, stop_at if stop_at is not None else settings.steps)
    began = time.monotonic()
    sums: dict[str, float] = {}
    summed = 0
    bar = tqdm(
        range(first, last), initial=first, total=settings.steps, desc=folder.name, mininterval=2
    )
    for step in bar:
        torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout repeats after a resume
        for group, base in rates:
            group["lr"] = base * rate(settings, step)
        scalars = batch_loss(step)
        if not torch.isfinite(scalars["loss"]):
            raise FloatingPointError(f"loss is not finite at step {step}; lower --lr")
        for p in parameters:
            p.grad = None
        torch.autograd.backward(scalars["loss"])
        nn.utils.clip_grad_norm_(parameters, settings.clip)
        for optimizer in optimizers:
            optimizer.step()
        for name, value in scalars.items():
            sums[name] = sums.get(name, 0.0) + float(value.detach())
        summed += 1
        done = step + 1
        if done % log_every == 0 or done == last:
            row = {name: value / summed for name, value in sums.items()}
            bar.set_postfix({k: f"{v:.3f}" for k, v in row.items()})
            state.log({"step": done, "seconds": round(time.monotonic() - began, 1), **row})
            sums, summed = {}, 0
        if done % settings.save_every == 0 or done == last:
            state.save(done, optimizers)
            if evaluate is not None:
                state.log({"step": done, **evaluate()})
