"""The training loop: a kill costs nothing but time, and a folder holds one run."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clue_ros import memory
from clue_ros.errors import ClueError
from clue_ros.files import FolderLock
from clue_ros.lab.training import loop
from clue_ros.lab.training.loop import (
    Group,
    PartLosses,
    Parts,
    StackedMuon,
    TrainingSettings,
    make_optimizers,
    mean_figures,
    prefetch,
    scratch_groups,
    train,
)

SETTINGS = TrainingSettings(steps=12, batch=4, lr=0.01, save_every=4, seed=3)


class Small(nn.Module):
    """A hidden matrix (Muon), an embedding and biases (AdamW), and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.hidden = nn.Linear(6, 5)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(5, 1)

    def forward(self, words: Tensor) -> Tensor:
        """(B,) words to (B,) numbers."""
        found: Tensor = self.out(self.dropout(self.hidden(self.embed(words)))).squeeze(-1)
        return found


def new_module() -> Small:
    torch.manual_seed(0)
    return Small()


def run(
    module: Small, folder: Path, settings: TrainingSettings = SETTINGS, *, killed_at: int = -1
) -> list[int]:
    """Train; returns the steps that were done. killed_at: nothing is saved on the way out."""
    done: list[int] = []

    def batch_loss(step: int) -> dict[str, Tensor]:
        if step == killed_at:
            raise KeyboardInterrupt
        done.append(step)
        words = torch.randint(0, 7, (4,), generator=torch.Generator().manual_seed(step))
        loss = (module(words) - words).square().mean()
        return {"loss": loss, "twice": 2 * loss}

    train(
        batch_loss,
        scratch_groups(module.named_parameters()),
        settings,
        folder,
        evaluate=lambda: {"weight": float(module.out.weight.detach().sum())},
        log_every=2,
    )
    return done


def log(folder: Path) -> list[dict[str, float]]:
    """The log's rows without the time, which no two runs share."""
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def assert_same(a: nn.Module, b: nn.Module) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert torch.equal(p, q), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Path]:
    """An uninterrupted run."""
    module, folder = new_module(), tmp_path_factory.mktemp("whole")
    assert run(module, folder) == list(range(12))
    return module, folder


def test_groups_use_both_optimizers() -> None:
    groups = scratch_groups(new_module().named_parameters())
    assert [(g.muon, g.decay, [tuple(p.shape) for p in g.parameters]) for g in groups] == [
        (True, True, [(5, 6), (1, 5)]),
        (False, True, [(7, 6)]),
        (False, False, [(5,), (1,)]),
    ]


@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (24, 24)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stacked_muon_takes_the_steps_of_pytorchs(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    starts = [torch.randn(shape), torch.randn(shape), torch.randn(8, 12)]
    ours, theirs = ([nn.Parameter(s.clone()) for s in starts] for _ in range(2))
    how: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1}
    mine = StackedMuon([{"params": ours, **how}], 0.05, dtype)
    other = torch.optim.Muon(theirs, **how, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        mine.step()
        other.step()  # type: ignore[no-untyped-call]
    assert mine.state_dict()["state"].keys() == other.state_dict()["state"].keys()
    for p, q, start in zip(ours, theirs, starts, strict=True):
        assert (p - q).norm() < 0.02 * (q - start).norm()  # bfloat16 has 8 bits
        assert torch.equal(mine.state[p]["momentum_buffer"], other.state[q]["momentum_buffer"])


def test_stacked_muon_leaves_alone_what_has_no_gradient() -> None:
    with_one, without = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(4, 6))
    before = without.detach().clone()
    muon = StackedMuon([{"params": [with_one, without], "lr": 0.1}], 0.1, torch.float32)
    with_one.grad = torch.randn(4, 6)
    muon.step()
    assert torch.equal(without, before)
    assert without not in muon.state


@pytest.mark.parametrize(("has", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_muon_computes_in_what_the_device_has(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, has: bool
) -> None:
    monkeypatch.setattr(loop, "has_bfloat16", lambda device: has)
    groups = scratch_groups(new_module().named_parameters())
    _, muon = make_optimizers(groups, SETTINGS)
    assert isinstance(muon, StackedMuon)
    assert muon.dtype == dtype


def test_training_lowers_the_loss_and_logs_means(whole: tuple[Small, Path]) -> None:
    rows = log(whole[1])
    losses = [row for row in rows if "loss" in row]
    assert [row["step"] for row in losses] == [2, 4, 6, 8, 10, 12]
    assert losses[-1]["loss"] < losses[0]["loss"]
    assert all(row["twice"] == pytest.approx(2 * row["loss"]) for row in losses)
    assert [row["step"] for row in rows if "weight" in row] == [4, 8, 12]


def test_the_heap_is_trimmed_every_twenty_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "trim", lambda everything=False: given.append(len(done)))
    done: list[int] = []

    def batch_loss(step: int) -> dict[str, Tensor]:
        done.append(step)
        return {"loss": module(torch.tensor([step % 7])).square().mean()}

    module = new_module()
    groups = scratch_groups(module.named_parameters())
    train(batch_loss, groups, TrainingSettings(steps=50, batch=1, lr=0.01), tmp_path)
    assert given == [20, 40, 50]


@pytest.mark.parametrize("worth", [1.0, float("nan")])
def test_a_training_leaves_nothing_out_of_the_collectors_sight(
    tmp_path: Path, worth: float
) -> None:
    """However it ends: what is no number ends it."""
    gc.unfreeze()  # what the tests have set aside
    module = new_module()
    groups = scratch_groups(module.named_parameters())
    frozen: list[int] = []

    def batch_loss(step: int) -> dict[str, Tensor]:
        frozen.append(gc.get_freeze_count())
        return {"loss": module(torch.tensor([step])).square().mean() * worth}

    ends = contextlib.nullcontext() if worth == 1 else pytest.raises(FloatingPointError)
    with ends:
        train(batch_loss, groups, TrainingSettings(steps=2, batch=1, lr=0.01), tmp_path)
    assert min(frozen) > 0
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_killed_between_saves_is_the_same_as_uninterrupted(
    whole: tuple[Small, Path], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(new_module(), tmp_path, killed_at=7)
    assert [r["step"] for r in log(tmp_path)][-1] == 6, "the kill comes after a line that is redone"
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 8, "lo')  # and in the middle of another
    again = new_module()
    assert run(again, tmp_path) == list(range(4, 12))
    assert_same(again, whole[0])
    assert log(tmp_path) == log(whole[1])


def test_a_kill_between_two_rows_of_the_log_leaves_their_means_alone(tmp_path: Path) -> None:
    """States lie between the rows: what was summed up for the next row is part of them."""
    settings = TrainingSettings(steps=12, batch=4, lr=0.01, save_every=3, seed=3)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(new_module(), whole, settings)
    with pytest.raises(KeyboardInterrupt):
        run(new_module(), parts, settings, killed_at=8)
    assert run(new_module(), parts, settings) == list(range(6, 12))
    assert log(parts) == log(whole)


def test_tensorboard_draws_every_step_of_a_resumed_run_once(
    whole: tuple[Small, Path], tmp_path: Path
) -> None:
    accumulator: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    with pytest.raises(KeyboardInterrupt):
        run(new_module(), tmp_path, killed_at=7)
    assert log(tmp_path)[-1]["step"] == 6, "drawn, and drawn again after the resume from 4"
    # Event files are read in the order of their names: the second, the process, its count of files,
    # where 10 comes before 9. A resumed run is another process, a second later at the least.
    time.sleep(1.0)
    run(new_module(), tmp_path)
    for folder in (whole[1], tmp_path):
        drawn = accumulator(str(folder)).Reload()
        rows = log(folder)
        for tag, name in (("train/loss", "loss"), ("held_out/weight", "weight")):
            points = [(point.step, point.value) for point in drawn.Scalars(tag)]
            assert points == [(r["step"], pytest.approx(r[name])) for r in rows if name in r]
        rates = [point.value for point in drawn.Scalars("train/lr")]
        expected = [SETTINGS.lr * SETTINGS.rate(step - 1) for step in range(2, 13, 2)]
        assert rates == pytest.approx(expected)


def in_parts(module: Small, folder: Path, parts: int, pool: Executor | None = None) -> None:
    """Train on the same twelve words a step, in parts of different sizes."""

    def batch_loss(step: int) -> Parts:
        words = torch.randint(0, 7, (12,), generator=torch.Generator().manual_seed(step))
        sizes = [12 - 2 * (parts - 1), *[2] * (parts - 1)]

        def of_part(part: Tensor, total: float) -> dict[str, Tensor]:
            error = (module(part) - part).square().sum()
            right = (module(part).round() == part).float().sum()
            return {"loss": error / total, "n": right / total}

        def losses(totals: Mapping[str, float]) -> list[PartLosses]:
            pieces: Any = torch.split(words, sizes)
            return [partial(of_part, part, totals["n"]) for part in pieces]

        return Parts({"n": 12.0, "nothing": 0.0}, losses, pool)

    module.dropout.p = 0.0
    train(batch_loss, scratch_groups(module.named_parameters()), SETTINGS, folder, log_every=1)


@pytest.mark.parametrize("threads", [0, 3])
def test_a_batch_in_parts_is_the_batch(tmp_path: Path, threads: int) -> None:
    """One after another, and beside each other."""
    one, many = new_module(), new_module()
    in_parts(one, tmp_path / "one", 1)
    with ThreadPoolExecutor(threads or 1) as pool:
        in_parts(many, tmp_path / "many", 5, pool if threads else None)
    for a, b in zip(log(tmp_path / "one"), log(tmp_path / "many"), strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        assert set(a) == {"step", "loss", "n"}, "a figure over nothing is left out"
    for p, q in zip(one.parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-4)


def test_means_over_held_out_batches_leave_out_what_is_no_number() -> None:
    rows = [{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": float("nan")}, {"a": 4.0}]

    def figures(i: int) -> dict[str, Tensor]:
        return {name: torch.tensor(value) for name, value in rows[i].items()}

    assert mean_figures("val", range(3), figures) == {"val_a": 2.3333, "val_b": 2.0}


def test_a_finished_run_is_restored_and_not_gone_on_with(
    whole: tuple[Small, Path],
) -> None:
    before = log(whole[1])
    again = new_module()
    assert run(again, whole[1]) == []
    assert_same(again, whole[0])
    assert log(whole[1]) == before


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    run(new_module(), tmp_path)
    held = FolderLock(tmp_path)
    with pytest.raises(ClueError, match=r"another process trains in .* another --run folder"):
        run(new_module(), tmp_path)
    held.release()
    run(new_module(), tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        TrainingSettings(steps=12, batch=4, lr=0.02, save_every=4, seed=3),
        TrainingSettings(steps=12, batch=4, lr=0.01, save_every=4, seed=4),
        TrainingSettings(steps=14, batch=4, lr=0.01, save_every=4, seed=3),
    ],
)
def test_a_folder_with_other_settings_is_refused(
    whole: tuple[Small, Path], other: TrainingSettings
) -> None:
    before = log(whole[1])
    with pytest.raises(ClueError, match=r"other settings.*--run") as caught:
        run(new_module(), whole[1], other)
    assert str(whole[1]) in str(caught.value)
    assert log(whole[1]) == before


def test_a_folder_with_other_notes_is_refused(tmp_path: Path) -> None:
    def go(**notes: object) -> None:
        bias = new_module().out.bias
        groups = [Group([bias])]
        train(lambda step: {"loss": bias.sum() ** 2}, groups, SETTINGS, tmp_path, notes=notes)

    go(data=["a"], weight=0.5)
    go(data=("a",), weight=0.5)
    with pytest.raises(ClueError, match=r"other settings \(weight 0.5, now 0.25\)"):
        go(data=["a"], weight=0.25)
    with pytest.raises(ClueError, match=r"data \['a'\], now \['a', 'b'\]"):
        go(data=("a", "b"), weight=0.5)
    with pytest.raises(ClueError, match="new_option None, now 1"):
        go(data=["a"], weight=0.5, new_option=1)


def test_saving_more_often_is_no_other_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(new_module(), tmp_path, killed_at=5)
    often = TrainingSettings(steps=12, batch=4, lr=0.01, save_every=1, seed=3)
    assert run(new_module(), tmp_path, often) == list(range(4, 12))


def test_a_stage_of_one_process_refuses_a_launcher_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ClueError, match="without accelerate launch"):
        run(new_module(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_model_is_refused(whole: tuple[Small, Path]) -> None:
    module = new_module()
    module.hidden = nn.Linear(6, 5, bias=False)
    with pytest.raises(ClueError, match="another model"):
        run(module, whole[1])


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    module = new_module()
    with pytest.raises(FloatingPointError, match="step 0"):
        train(
            lambda step: {"loss": module.out.bias.sum() * float("nan")},
            [Group([module.out.bias])],
            SETTINGS,
            tmp_path,
        )


def test_rate_warms_up_and_decays_to_a_twentieth() -> None:
    for schedule in ("cosine", "linear"):
        settings = TrainingSettings(steps=100, batch=1, lr=1.0, schedule=schedule)
        rates = [settings.rate(step) for step in range(100)]
        assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
        assert all(a >= b for a, b in pairwise(rates[4:]))
        assert rates[-1] == pytest.approx(0.05, abs=0.015)


def test_batches_come_in_order_from_threads() -> None:
    with prefetch(lambda step: (step, os.getpid()), 2, 9, torch.device("cpu")) as batch:
        assert [batch(step) for step in range(4, 9)] == [(s, os.getpid()) for s in range(4, 9)]


def test_an_error_of_a_batch_is_raised_where_its_step_is_asked_for() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise ClueError("shard 7 is damaged")
        return step

    with prefetch(make, 2, 6, torch.device("cpu")) as batch:
        assert [batch(0), batch(1)] == [0, 1]
        with pytest.raises(ClueError, match=r"^shard 7 is damaged$"):
            batch(2)


FORKED = """
import json, os
import torch
from clue_ros.errors import ClueError
from clue_ros.files import FolderLock
from clue_ros.lab.training.loop import prefetch

def make(step):
    if step == 8:
        raise ClueError("shard 7 is damaged")
    return torch.full((2, 3), step), os.getpid()

said = ""
with prefetch(make, 2, 12, torch.device("cuda")) as batch:
    made = [batch(step) for step in range(4, 8)]
    try:
        batch(8)
    except ClueError as error:
        said = str(error)
sums = [int(tensor.sum()) for tensor, _ in made]
print(json.dumps([sums, any(pid == os.getpid() for _, pid in made), said]))
"""


def test_for_a_gpu_processes_make_the_batches() -> None:
    # In a process of its own: a fork of this one would inherit the nodes of other tests.
    out = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(out.stdout) == [[24, 30, 36, 42], False, "shard 7 is damaged"]
