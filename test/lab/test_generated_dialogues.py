"""benchmarks/generated_dialogues.py, whole, with a random model and a few steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from drawn_scenes import random_scenes
from tiny_model import write_random_model

from benchmarks import generated_dialogues
from benchmarks.generated_dialogues import ARMS, BEST, QUESTIONS, main, order_of, results_text
from clue_ros.cli import main as clue
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards

pytestmark = pytest.mark.usefixtures("no_java")


def test_the_experiment_goes_on_after_a_failure_and_compares_three_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_random_model(tmp_path / "model", vocabulary(), threshold=1)
    for split, count, seed in (("train", 7, 0), ("test", 2, 1)):
        path = shards.shard_path(tmp_path / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=64))
    out = tmp_path / "out"
    words = ["--out", out, "--tabletop", tmp_path / "scenes", "--world", "rich", "--model", model]
    words += ["--seeds", 3, "--clean-scenes", 4, "--generated-scenes", 3, "--test-scenes", 2]
    words += ["--steps", 2, "--batch", 2, "--policy", "detector", "--min-iou", 0, "--device", "cpu"]
    argv, commands, broken = [str(word) for word in words], list[str](), True

    def counted(command: Sequence[str]) -> int:
        commands.append(" ".join(command[:2]))
        return 2 if broken and command[1] == "generate" else clue(command)

    monkeypatch.setattr(generated_dialogues, "clue", counted)
    assert main(argv) == 2
    assert "generated ended with status 2; run this command again" in capsys.readouterr().err
    assert commands == ["data invig", "train ivg", "data generate"]
    broken = False
    assert main(argv) == 0
    # nothing, generated, its half and what follows it; three tasks for each arm
    assert commands[3:].count("train ivg") == 4
    assert commands[3:].count("eval dialogue") == 3 + 9
    assert len(commands) == 3 + 1 + 4 + 12
    printed = capsys.readouterr().out

    results = json.loads((out / "results.json").read_text())
    assert results["clean"]["dialogues"] > 0
    assert results["generated"][0]["pictures"] == 3
    assert results["generated"][0]["dialogues"] > 0
    assert list(results["arms"]) == list(ARMS)
    for runs in results["arms"].values():
        assert len(runs) == 1
        assert all(0 <= runs[0][name] <= 100 for name in BEST)
    both = json.loads((out / "seed-3" / "generated-then-clean" / "ivg.json").read_text())
    assert both["training"]["init"].endswith("generated-half")
    assert both["training"]["steps"] == 1
    new = json.loads((out / "seed-3" / "nothing" / "ivg.json").read_text())
    assert new["training"]["steps"] == 0
    assert printed.strip() == (out / "results.md").read_text().strip() == results_text(results)
    assert "| generated, then clean |" in printed

    assert main(argv) == 0
    assert len(commands) == 20, "nothing is done twice"
    capsys.readouterr()
    assert main([*argv, "--min-iou", "0.5"]) == 2
    assert "was begun with min_iou 0.0, not 0.5" in capsys.readouterr().err

    assert main([*argv, "--rounds", "2"]) == 0
    assert commands[20:] == ["data generate", *["train ivg"] * 2, *["eval dialogue"] * 3]
    results = json.loads((out / "results.json").read_text())
    assert [made["pictures"] for made in results["generated"]] == [3, 3]
    assert list(results["arms"]) == [*ARMS, "generated, then clean, round 2"]
    asked = json.loads((out / "generated-2" / "report.json").read_text())["settings"]
    assert "generated-then-clean" in str(asked)
    second = json.loads((out / "seed-3" / "generated-then-clean-round-2" / "ivg.json").read_text())
    assert second["training"]["init"].endswith("generated-2-half")


def test_arms_are_ordered_by_their_means_over_the_seeds() -> None:
    figures = dict.fromkeys(BEST, 0.5) | {QUESTIONS: 1.0}
    arms = {
        arm: [figures | {"vg": low}, figures | {"vg": low + 0.2}]
        for arm, low in zip(ARMS, (0.5, 0.2, 0.7), strict=True)
    }
    assert order_of(arms, "vg") == "generated, then clean > clean > generated"
    assert order_of(arms, "ivg") == "clean = generated = generated, then clean"
    found = {
        "settings": {"model": "m", "world": "blocks", "steps": 2, "batch": 2, "test_scenes": 1},
        "seeds": [0, 1],
        "clean": {"dialogues": 8},
        "generated": [
            {"dialogues": 5, "rejected": {"box disagrees with the object": 3}},
            {"dialogues": 6, "rejected": {}},
        ],
        "untrained": figures,
        "arms": arms,
        "order": {"vg": order_of(arms, "vg")},
    }
    text = results_text(found)
    assert "0.300 ± 0.141" in text
    assert "Generated: 5 kept of 8, then 6 kept of 6." in text
