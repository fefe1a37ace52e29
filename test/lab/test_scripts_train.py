"""The training scripts: every command of theirs is one that `clue` takes, and a failure ends them.

`clue` itself is a fake here, which writes down what it was called with: training takes hours. So is
the `python` that a script asks whether there is a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from clue_ros.cli import COMMANDS, Command

EMBEDDED_VARIANT = "half-full-detect-cnn"
ROOT = Path(__file__).resolve().parents[2]
FAKE_CLUE = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a", encoding="utf-8") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit(sys.argv[1:3] == ["train", os.environ.get("FAILS")])
"""


def run(
    folder: Path, script: str, *options: str, fails: str = "", gpu: bool = False
) -> tuple[int, list[list[str]]]:
    """A script's exit status and the calls of the fake `clue`, in order."""
    asked = f"#!/bin/sh\nexit {int(not gpu)}\n"
    for name, text in (("clue", FAKE_CLUE.format(python=sys.executable)), ("python", asked)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    calls.touch()
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    status = subprocess.run(
        [ROOT / "scripts" / script, *options],
        env={**os.environ, "PATH": path, "CALLS": str(calls), "FAILS": fails},
        capture_output=True,
        timeout=60,
        check=False,
    ).returncode
    return status, [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()]


def understood(words: list[str]) -> argparse.Namespace:
    """What the real command makes of a call and its recipe; a wrong option ends the test."""
    command = cast("dict[str, Command]", COMMANDS[words[0]])[words[1]]
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(command.module).add_arguments(parser)
    given = vars(parser.parse_args(words[2:]))
    recipe = given.pop("recipe_values", {})
    return argparse.Namespace(**{"split": "train", **recipe, **given})


def parts(calls: list[list[str]]) -> list[str]:
    return [" ".join(call[:2]) for call in calls]


def assert_embedded(detector: argparse.Namespace, ivg: argparse.Namespace) -> None:
    """The recipe of the embedded model, which the scripts name."""
    assert (detector.variant, detector.lr, detector.head_lr) == (EMBEDDED_VARIANT, 7e-4, 1.4e-3)
    assert (detector.look_weight, detector.final_rate) == (0.15, 0.05)
    assert (ivg.lr, ivg.final_rate, ivg.average) == (7e-4, 0.05, "token")
    assert (ivg.look_weight, ivg.point_weight, ivg.location_sigma) == (0.15, 0.15, 1.5)


def test_the_rich_model_s_script_puts_the_model_where_it_is_told_to(tmp_path: Path) -> None:
    out, data = str(tmp_path / "mine"), str(tmp_path / "scenes")
    status, calls = run(tmp_path, "train_rich", out, data)
    assert status == 0
    assert parts(calls[:4]) == ["data tabletop"] * 3 + ["train base"]
    assert set(parts(calls[4:6])) == {"train detector", "train ivg"}, "beside each other"
    assert parts(calls[6:]) == ["train policy"]
    args = [understood(call) for call in calls]
    assert [(a.world, a.split) for a in args[:3]] == [
        ("rich", "train"), ("rich", "val"), ("blocks", "train"),
    ]  # fmt: skip
    assert args[3].init == "household"
    assert {str(a.out) for a in args[:3]} == {data}
    assert {str(a.tabletop) for a in args[3:]} == {data}
    assert str(args[3].out) == out
    assert {str(a.model) for a in args[4:]} == {out}
    assert {str(a.run) for a in args[3:6]} == {"runs/mine"}
    detector, ivg = sorted(args[4:6], key=lambda a: hasattr(a, "average"))
    assert_embedded(detector, ivg)
    assert (detector.steps, detector.head_batches, ivg.steps) == (400, 140, 600)


@pytest.mark.parametrize("part", ["base", "detector", "ivg"])
def test_a_part_that_fails_ends_the_script(tmp_path: Path, part: str) -> None:
    status, calls = run(tmp_path, "train_rich", str(tmp_path / "mine"), fails=part)
    assert status == 1
    assert "train policy" not in parts(calls)


def test_the_table_model_s_script_trains_household_on_with_the_objects_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data = str(tmp_path / "mine"), str(tmp_path / "scenes")
    monkeypatch.setenv("SCENES", "600")
    monkeypatch.setenv("OBJECTS", "first second")
    status, calls = run(tmp_path, "train_table", out, "assets", data)
    assert status == 0
    assert parts(calls[:6]) == ["data tabletop"] * 6
    assert parts(calls[6:8]) == ["train base", "train average"]
    assert set(parts(calls[8:10])) == {"train detector", "train ivg"}, "beside each other"
    assert parts(calls[10:]) == ["train policy", "train views"]
    args = [understood(call) for call in calls]
    assert [(a.world, a.split, a.scenes) for a in args[:6]] == [
        ("table", "train", 600), ("table", "val", 200),
        ("rich", "train", 300), ("rich", "val", 200),
        ("blocks", "train", 1000), ("blocks", "val", 200),
    ]  # fmt: skip
    assert {str(a.assets) for a in args[:2]} == {"assets"}
    assert [str(path) for path in args[0].objects[:2]] == ["first", "second"]
    assert {str(a.tabletop) for a in (args[6], *args[8:])} == {data}
    assert args[7].bases == [(f"{out}-round", 1)], "there are no tokens to compare"
    assert (str(args[6].out), str(args[7].out)) == (f"{out}-round", out)
    assert {str(a.model) for a in args[8:]} == {out}
    assert_embedded(*sorted(args[8:10], key=lambda a: hasattr(a, "average")))


def test_bases_with_the_same_tokens_are_averaged(tmp_path: Path) -> None:
    out, made = str(tmp_path / "mine"), tmp_path / "mine-round"
    made.mkdir()
    shutil.copy(ROOT / "models" / "household" / "tokenizer.json", made)
    _, calls = run(tmp_path, "train_table", out, "assets", str(tmp_path / "scenes"))
    average = understood(calls[parts(calls).index("train average")])
    assert average.bases == [("household", 0.4), (str(made), 0.6)]


def test_on_a_gpu_the_stages_are_longer_and_the_round_is_taken_whole(tmp_path: Path) -> None:
    out, made = str(tmp_path / "mine"), tmp_path / "mine-round"
    made.mkdir()
    shutil.copy(ROOT / "models" / "household" / "tokenizer.json", made)
    data = str(tmp_path / "scenes")
    _, calls = run(tmp_path, "train_table", out, "assets", data, gpu=True)
    args = {name: understood(call) for name, call in zip(parts(calls), calls, strict=True)}
    base, detector, ivg = (args[f"train {part}"] for part in ("base", "detector", "ivg"))
    assert (base.vision_steps, base.vision_batch, base.compile) == (2000, 192, False)
    assert (base.decoder_steps, base.decoder_batch) == (4050, 96)
    assert args["train average"].bases == [(str(made), 1)]
    assert (detector.steps, detector.batch, ivg.steps, ivg.batch) == (500, 16, 400, 16)
    assert_embedded(detector, ivg)


def test_a_mean_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "config.json").write_text("{}", encoding="utf-8")
    status, calls = run(tmp_path, "train_table", str(out), "assets", str(tmp_path / "scenes"))
    assert status == 0
    assert "train average" not in parts(calls)


@pytest.mark.parametrize(("script", "given"), [("train_rich", []), ("train_table", ["mine"])])
def test_without_a_place_for_the_model_nothing_is_begun(
    tmp_path: Path, script: str, given: list[str]
) -> None:
    status, calls = run(tmp_path, script, *given)
    assert (status, calls) == (1, [])
