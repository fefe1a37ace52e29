"""`scripts/train_full` on a tiny model of the real one's shape: to the end, over a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_scenes import random_scenes
from it2p_files import write_it2p
from test_scripts_train import understood
from tiny_model import gemma_processor
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from benchmarks.full_size import full_config
from clue_ros.cli import COMMANDS, Command, main
from clue_ros.engine import Clue
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import split_of
from clue_ros.lab.simulator import shards
from clue_ros.lab.steps import Step
from clue_ros.lab.training import full
from clue_ros.lab.training.full import FullOptions, check_machine, steps_of, train_full
from clue_ros.lab.training.plan import (
    CARDS,
    FULL_SIZE,
    GB,
    ModelSizes,
    detector_workload,
    ivg_workload,
    parts_that_fit,
    step_bytes,
)
from clue_ros.model.config import tiny_config
from clue_ros.model.detector_variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
INVIG = ROOT / "test" / "data" / "invig_new"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, scenes, and photographs in IT2P's layout.

    The base has 6 blocks, 8 heads on 4 and PaliGemma's tokenizer with pieces and bytes.
    """
    root = tmp_path_factory.mktemp("lab")
    processor = gemma_processor()
    sizes = {"image_size": 56, "patch_size": 14, "width": 32, "mlp": 64, "heads": 8}
    sizes |= {"kv_heads": 4, "layers": 6, "vision_layers": 2, "vision_heads": 2}
    vocab = len(processor.tokenizer) + 7
    config: Any = tiny_config(vocab, image_token_id=processor.image_token_id, **sizes)
    torch.manual_seed(0)
    model: Any = PaliGemmaForConditionalGeneration(config)
    model.to(torch.bfloat16).save_pretrained(root / "base")
    processor.save_pretrained(root / "base")
    for seed, split in enumerate(("train", "val", "test")):
        # more than are asked for: nothing is left to render
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(2, seed, size=56))
    write_it2p(root / "it2p")
    data = root / "it2p" / "data"
    numbers = [f"{number:04}" for number in range(3, 30)]
    for split in ("val", "test"):  # one photograph each
        name = next(number for number in numbers if split_of(number) == split)
        for file in list(data.glob("*/0002.*")):
            shutil.copy(file, file.with_name(f"{name}{file.suffix}"))
    return root


def words(lab: Path, out: Path) -> list[str]:
    given: dict[str, object] = {
        "model": lab / "base",
        "out": out / "model",
        "run": out / "runs",
        "invig": INVIG,
        "it2p": lab / "it2p",
        "tabletop": lab / "scenes",
        "world": "blocks",
        "scenes": 2,
        "test-scenes": 2,
        "detector-steps": 2,
        "detector-batch": 2,
        "ivg-steps": 4,
        "ivg-batch": 2,
        "save-every": 1,
        "limit": 1,
        "device": "cpu",
    }
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def begin(lab: Path, out: Path) -> subprocess.Popen[str]:
    """The script in a process group of its own; `clue` is this interpreter's."""
    clue = out / "bin" / "clue"
    clue.parent.mkdir(parents=True, exist_ok=True)
    clue.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m clue_ros.cli "$@"\n')
    clue.chmod(0o755)
    path = os.pathsep.join([str(clue.parent), os.environ["PATH"]])
    return subprocess.Popen(
        [str(ROOT / "scripts" / "train_full"), *words(lab, out)],
        env={**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_it_goes_from_the_base_to_the_launch_line_over_a_kill(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = begin(lab, tmp_path)
    state = tmp_path / "runs" / "ivg" / "state.safetensors"
    until = time.monotonic() + 300
    while not state.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGKILL)
    first = process.communicate()[0]
    assert "== train adapter B" in first
    assert not (tmp_path / "model" / "ivg" / "ivg.json").exists(), "killed in the middle"
    assert main(["train", "full", *words(lab, tmp_path)]) == 0
    said, told = capsys.readouterr()
    assert "done before: train adapter A" in told
    assert "done before: train adapter B" not in told
    assert "ivg:   0%" not in told, "the training goes on from its saved state"
    rows = [json.loads(line) for line in (state.parent / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 4
    launch = f"ros2 launch clue_ros clue.launch.py model:={tmp_path / 'model'} device:=cpu"
    assert said.splitlines()[-1].startswith(launch)
    model = tmp_path / "model"
    assert Clue.load(model).policy == "both", "fitted"
    results = sorted(path.name for path in (model / "evaluation").iterdir())
    assert results == ["it2p-detector.json", "it2p.json", "ivg.json", "tabletop.json"]
    assert json.loads((model / "evaluation" / "ivg.json").read_text())["guesser"]["n"] == 2
    card = (model / "README.md").read_text()
    assert f"base_model: {lab / 'base'}" in card
    for figure in ("| Half-Last Detect (CNN) | 0.850 |", "| TiO | 0.712 |", "clue eval ivg"):
        assert figure in card
    assert launch in card


def test_the_plan_prints_every_step_and_runs_none(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    assert main(["train", "full", "--plan", "--out", str(tmp_path / "full")]) == 0
    said = capsys.readouterr().out
    assert "google/paligemma2-3b-mix-448" in said
    assert "3.03 billion weights" in said
    for command in ("data tabletop", "train detector", "train ivg", "train policy", "eval ivg"):
        assert f"clue {command} " in said
    assert "--lr 5e-6 --head-lr 1e-4" in said
    assert [said.count(card.name) for card in CARDS] == [2, 2, 2]
    assert "not measured" in said
    assert not (tmp_path / "full").exists()


def test_every_command_of_the_plan_is_one_that_clue_takes(lab: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    options = FullOptions(it2p=lab / "it2p", rows=rows, out=tmp_path)
    commands = [c for step in steps_of(options, parts=lambda _work: 3) for c in step.words]
    read = [understood(list(command)) for command in commands if command[0] != "check"]
    assert len(read) == 3 + 3 + 5
    assert [args.accumulate for args in read[3:5]] == [3, 3]
    assert read[3].rows == [rows]


def test_a_finished_step_is_skipped_on_another_card_and_not_with_other_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)

    def finished(parts: int, **more: Any) -> list[str]:
        options = FullOptions(out=tmp_path, run=tmp_path, **more)
        ran: list[str] = []
        monkeypatch.setattr(Step, "run", lambda step: ran.append(step.name))
        monkeypatch.setattr(full, "steps_of", lambda o, **_: steps_of(o, lambda _work: parts))
        train_full(options)
        return ran

    names = [step.name for step in steps_of(FullOptions(out=tmp_path), lambda _work: 1)]
    assert finished(1) == names
    assert finished(4) == ["check"], "a smaller card divides a step otherwise"
    again = finished(4, ivg_steps=7)
    assert again == ["check", *names[names.index("ivg") :]], "what comes after it too"


def test_clue_check_is_the_first_step_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "check", Command("clue_ros.ground", "a stand-in"))
    first = steps_of(FullOptions(out=tmp_path), parts=lambda _work: 1)[0]
    assert first.lines == ["clue check --model google/paligemma2-3b-mix-448"]
    assert first.every_time, "a machine changes between two runs"


# --- the arithmetic


def test_the_sizes_are_those_of_the_configuration() -> None:
    assert ModelSizes.of(full_config()) == FULL_SIZE


def test_parameters_are_those_of_the_model(lab: Path) -> None:
    model: Any = PaliGemmaForConditionalGeneration.from_pretrained(lab / "base")
    counted = sum(p.numel() for p in model.parameters() if p.ndim > 1)
    assert ModelSizes.of(model.config).parameters == counted


def test_a_smaller_card_gets_more_and_smaller_parts() -> None:
    ivg = ivg_workload(FULL_SIZE, pictures=32, steps=1)
    parts = [parts_that_fit(FULL_SIZE, ivg, card.memory) for card in CARDS]
    assert parts == sorted(parts, reverse=True)
    assert parts[0] > parts[-1]
    for card, count in zip(CARDS, parts, strict=True):
        assert step_bytes(FULL_SIZE, ivg, -(-32 // count)) <= card.memory
    with pytest.raises(ClueError, match=r"needs 12\.5 GB for a single picture, the card has 8 GB"):
        parts_that_fit(FULL_SIZE, ivg, 8 * GB)
    works = {n: detector_workload(FULL_SIZE, v, pictures=12, steps=1) for n, v in VARIANTS.items()}
    last, full = works["half-last-detect-cnn"], works["half-full-detect-cnn"]
    assert step_bytes(FULL_SIZE, full, 12) > step_bytes(FULL_SIZE, last, 12)
    blocks = {name: (work.run, work.adapted) for name, work in works.items()}
    assert blocks["half-full-disambig-ar"] == (15, 15)
    assert blocks["full-last-disambig-ar"] == (26, 1)
    assert blocks["full-full-disambig-ar"] == (26, 26)


def test_what_would_end_a_later_step_ends_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClueError, match=r"3\.0 billion weights: training needs a CUDA GPU"):
        check_machine(FullOptions(device="cpu", out=tmp_path))
