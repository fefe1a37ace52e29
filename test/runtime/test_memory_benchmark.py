"""benchmarks/memory.py: the full model's parts add up, and a model agrees with itself."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from it2p_files import write_it2p

from benchmarks.memory import main
from clue_ros.lab.data.it2p import split_of

needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="needs bitsandbytes: scripts/test"
)


def rows(
    capsys: pytest.CaptureFixture[str], *arguments: object
) -> dict[tuple[str, str], dict[str, Any]]:
    assert main([*map(str, arguments), "--json"]) == 0
    parsed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(row["dtype"], row["quantization"]): row for row in parsed}


@needs_bitsandbytes
def test_the_full_models_forms(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--model", "3b")
    exact, half = found["float32", "none"], found["bfloat16", "none"]
    assert exact["bytes"] == pytest.approx(4 * 3.03e9, rel=2e-3)
    assert exact["bytes"] == 2 * half["bytes"]
    for name, bits in (("int8", 8), ("nf4", 4)):
        small = found["bfloat16", name]
        for part in ("vision tower", "projector", "embeddings"):
            assert small[part] == half[part]
        assert 0.95 < half["decoder blocks"] * bits / 16 / small["decoder blocks"] < 1


@needs_bitsandbytes
def test_a_model_is_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(f"{n:04}" for n in range(3, 99) if split_of(f"{n:04}") == "val")
    for path in [*write_it2p(tmp_path).rglob("0001.*")]:
        path.rename(path.with_stem(name))
    found = rows(capsys, "--model", "household", "--data", tmp_path, "--images", 1)
    exact = found["float32", "none"]
    assert exact["requests"] > 0
    assert (exact["same decision"], exact["map error, largest"]) == (1.0, 0.0)
    assert 0 < found["bfloat16", "none"]["map error, largest"] < 1
    assert found["bfloat16", "nf4"]["bytes"] < found["bfloat16", "int8"]["bytes"]


def test_random_weights_answer_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "3b", "--data", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
