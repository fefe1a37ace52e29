"""benchmarks/memory.py: the full model's parts add up, and a model agrees with itself."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from it2p_files import write_it2p

from clue_ros.lab.data.it2p import split_of

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="needs bitsandbytes: scripts/test"
)


def memory(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # bitsandbytes is there
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, env=environment
    )


def rows(*arguments: object) -> dict[tuple[str, str], dict[str, Any]]:
    done = memory(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    return {(row["dtype"], row["quantization"]): row for row in parsed}


@needs_bitsandbytes
def test_the_full_models_forms() -> None:
    found = rows("--model", "3b")
    exact, half = found["float32", "none"], found["bfloat16", "none"]
    assert exact["bytes"] == pytest.approx(4 * 3.03e9, rel=2e-3)
    assert exact["bytes"] == 2 * half["bytes"]
    for name, bits in (("int8", 8), ("nf4", 4)):
        small = found["bfloat16", name]
        for part in ("vision tower", "projector", "embeddings"):
            assert small[part] == half[part]
        assert 0.95 < half["decoder blocks"] * bits / 16 / small["decoder blocks"] < 1


@needs_bitsandbytes
def test_a_model_is_compared_with_itself(random_model: Path, tmp_path: Path) -> None:
    name = next(f"{n:04}" for n in range(3, 99) if split_of(f"{n:04}") == "val")
    for path in [*write_it2p(tmp_path).rglob("0001.*")]:
        path.rename(path.with_stem(name))
    found = rows("--model", "household", "--data", tmp_path, "--images", 1)
    exact = found["float32", "none"]
    assert exact["requests"] > 0
    assert (exact["same decision"], exact["map error, largest"]) == (1.0, 0.0)
    assert 0 < found["bfloat16", "none"]["map error, largest"] < 1
    assert found["bfloat16", "nf4"]["bytes"] < found["bfloat16", "int8"]["bytes"]


def test_random_weights_answer_nothing(tmp_path: Path) -> None:
    done = memory("--model", "3b", "--data", tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
