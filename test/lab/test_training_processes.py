"""Two real processes that share every step (accelerate launch, gloo), one of which is killed."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn_scenes import random_scenes
from safetensors.torch import load_file
from tiny_model import SIZES, write_random_model

from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.training import detector, ivg
from clue_ros.lab.training.parallel import start_processes

ROOT = Path(__file__).resolve().parents[2]
CPU_2 = ROOT / "config" / "accelerate" / "cpu_2.yaml"
STEPS = 26
PATIENCE = 240.0  # seconds for a process to get going on a busy machine


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options of a small training; every step is logged, every eighth saved."""
    root = tmp_path_factory.mktemp("processes")
    for split, count, seed in (("train", 6, 0), ("val", 3, 1)):
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=SIZES["image_size"]))
    write_random_model(root / "model", vocabulary(), vision_layers=1)
    options = {"tabletop": root / "scenes", "model": root / "model", "device": "cpu"}
    options |= {"steps": STEPS, "batch": 2, "lr": 3e-3, "log-every": 1, "save-every": 8}
    # without dropout, which differs between processes (test_training_loop resumes with it)
    options |= {"data": "tabletop", "precision": "float32", "dropout": 0}
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def whole(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted training."""
    folder = tmp_path_factory.mktemp("whole")
    train_here(words, folder)
    return folder


def train_here(words: list[str], folder: Path) -> list[dict[str, float]]:
    """Train (or go on) in this process; the log's rows without their times."""
    parser = argparse.ArgumentParser()
    ivg.add_arguments(parser)
    places = ["--run", str(folder / "run"), "--out", str(folder / "out")]
    assert ivg.run(parser.parse_args([*words, *places])) == 0
    return log(folder)


def log(folder: Path) -> list[dict[str, float]]:
    path = folder / "run" / "ivg" / "log.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:  # being written
            break
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def start(words: list[str], folder: Path, part: str = "ivg") -> "subprocess.Popen[str]":
    """Two processes under accelerate's launcher."""
    command = ["-m", "accelerate.commands.launch", "--config_file", str(CPU_2)]
    command += ["-m", "clue_ros.cli", "train", part, *words]
    command += ["--run", str(folder / "run"), "--out", str(folder / "out")]
    with open(folder / "err", "w") as err:
        return subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=err, stderr=err, text=True
        )


def wait_for(what: Callable[[], bool], process: "subprocess.Popen[str]", folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert process.poll() is None, (folder / "err").read_text()[-3000:]
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


def ranks(launcher: int) -> dict[int, int]:
    """The process id of each rank."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found = {}
    for child in map(int, children):
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        rank = [v for v in variables if v.startswith(b"RANK=")]
        if rank:
            found[int(rank[0][5:])] = child
    return found


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def test_the_launcher_decides_the_precision_unless_an_option_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert start_processes("cpu").precision == "auto"
    for mixed, precision in (("no", "float32"), ("bf16", "bfloat16")):
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", mixed)
        assert start_processes("cpu").precision == precision
        assert start_processes("cpu", "float32").precision == "float32"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ClueError, match=r"fp16.*bf16"):
        start_processes("cpu")


def test_the_shipped_configurations_are_accelerates() -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    shipped = {path.stem: load_config_from_file(str(path)) for path in CPU_2.parent.glob("*.yaml")}
    counts = {name: (c.num_machines, c.num_processes, c.use_cpu) for name, c in shipped.items()}
    assert counts == {
        "cpu_2": (1, 2, True),
        "gpu_1": (1, 1, False),
        "gpus": (1, 2, False),
        "nodes": (2, 16, False),
    }


def test_two_processes_have_one_loss_and_end_together(
    words: list[str], whole: Path, tmp_path: Path
) -> None:
    """Rank 1 is killed in the middle; the run then goes on in one process."""
    launcher = start(words, tmp_path)
    try:
        wait_for(lambda: len(log(tmp_path)) >= 10, launcher, tmp_path)
        pids = ranks(launcher.pid)
        assert sorted(pids) == [0, 1]
        os.kill(pids[1], signal.SIGKILL)
        assert launcher.wait(PATIENCE) != 0
    finally:
        launcher.terminate()  # passed on to the ranks, which a SIGKILL would leave behind
        launcher.wait(PATIENCE)
    assert not any(is_running(pid) for pid in pids.values()), "rank 0 ended with it"
    said = (tmp_path / "err").read_text()
    assert "rank      : 1" in said
    assert "Signal 9 (SIGKILL)" in said

    alone, shared = log(whole), log(tmp_path)
    assert 10 <= len(shared) < len(alone)
    assert len(list((tmp_path / "run" / "ivg").glob("events.*"))) == 1, "one process writes"
    worst = max(
        abs(a[name] - b[name]) / abs(a[name])
        for a, b in zip(alone, shared, strict=False)
        for name in a
        if name.endswith("loss")
    )
    assert worst < 1e-5, "the same global batch has the same loss"
    resumed = train_here(words, tmp_path)
    assert [row.keys() for row in resumed] == [row.keys() for row in alone]
    # Sums in another order differ in the last bit, and every step makes more of it: soon after the
    # change all terms are the same, later what is minimised.
    for i, (a, b) in enumerate(zip(alone, resumed, strict=True)):
        soon = i < len(shared) + 10
        for name in a:
            if name.endswith("loss") or (soon and not name.endswith("right")):
                assert b[name] == pytest.approx(a[name], rel=2e-3 if soon else 2e-2)


def test_a_detector_is_the_same_by_one_process_and_by_two(words: list[str], tmp_path: Path) -> None:
    options = dict(zip(words[::2], words[1::2], strict=True))
    shared = ["--tabletop", "--model", "--device", "--data", "--batch", "--dropout", "--precision"]
    mine = [word for name in shared for word in (name, options[name])]
    # an AR variant: the CNN has a dropout of its own, which differs between processes
    mine += ["--variant", "half-full-disambig-ar", "--steps", "2", "--lr", "1e-3"]
    alone, both = tmp_path / "alone", tmp_path / "both"
    parser = argparse.ArgumentParser()
    detector.add_arguments(parser)
    places = ["--run", str(alone / "run"), "--out", str(alone / "out")]
    assert detector.run(parser.parse_args([*mine, *places])) == 0
    both.mkdir()
    process = start(mine, both, "detector")
    assert process.wait(2 * PATIENCE) == 0, (both / "err").read_text()[-3000:]
    one, two = (load_file(f / "out" / "adapter_model.safetensors") for f in (alone, both))
    for name, weight in one.items():  # AdamW's first steps follow the signs of tiny gradients
        assert (two[name] - weight).norm() < 0.02 * weight.norm() + 1e-6, name
    notes = [json.loads((f / "out" / "detector.json").read_text()) for f in (alone, both)]
    assert notes[0]["validation"]["n"] == notes[1]["validation"]["n"]
    assert notes[0]["threshold"] == pytest.approx(notes[1]["threshold"], abs=0.05)
    with pytest.raises(ClueError, match="cannot be shared by 1 processes with --accumulate 3"):
        detector.run(parser.parse_args([*mine, *places, "--accumulate", "3"]))
