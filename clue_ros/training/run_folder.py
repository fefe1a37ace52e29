"""A stage's folder: the state to resume from, `log.jsonl`, and the same figures for TensorBoard.

State is kept as safetensors plus JSON; nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save_file
from torch import Tensor, nn

from clue_ros.errors import ClueError
from clue_ros.model.files import replacing
from clue_ros.training.processes import ALONE, Processes


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
