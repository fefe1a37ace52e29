"""The soak benchmark, in its short form: every dialogue ends as it must, and memory is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ros_helpers

from benchmarks.soak import growth

ros_helpers.need_ros()

SOAK = ros_helpers.ROOT / "benchmarks" / "soak.py"


def test_growth_is_told_of_the_second_half() -> None:
    flat = growth([100, 300, 500, 500, 500, 500])
    assert flat["growth_percent"] == 0
    rising = growth([0] * 101 + list(range(1000, 1101)))
    assert rising["growth_percent"] == pytest.approx(100 * 100 / 1050, abs=0.01)


def test_a_short_soak_ends_every_dialogue_as_it_must(random_model: Path) -> None:
    counts = ["--dialogues", "11", "--cycles", "2", "--fuzz", "100"]
    done = subprocess.run(
        [sys.executable, str(SOAK), *counts, "--model", str(random_model), "--report", "0"],
        capture_output=True,
        text=True,
        cwd=ros_helpers.ROOT,
        env=ros_helpers.isolate(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["dialogues"]["ends"] == {"answer: NONE": 10, "cancel: CANCELED": 1}
    assert told["dialogues"]["last_mb"] > 50
    assert told["cycles"]["n"] == 2
    answers = told["fuzz"]["answers"]
    assert sum(answers.values()) == 101
    assert answers["good: NONE"] == 1
    usual = (
        "NONE", "BAD_IMAGE", "EMPTY_EXPRESSION", "BAD_EXPRESSION", "CANCELED", "NO_IMAGE",
        "NOT_FOUND",
    )  # fmt: skip
    assert set(answers) <= {*usual, "good: NONE"}
