"""benchmarks/training_speed.py: the plain loop learns from the same loss as ours."""

import json
from pathlib import Path

import pytest
import torch
from drawn_scenes import random_scenes
from tiny_model import SIZES, write_random_model

from benchmarks.training_speed import OURS, PLAIN, STAGES, Bench, TrainingSpeedOptions, main
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.shards import shard_path, write_shard
from clue_ros.lab.training.ivg import Teaching

PLAINLY = Teaching(look=0, point=0, sigma=0)  # the cross-entropy of transformers


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> TrainingSpeedOptions:
    """A model with random weights, and twelve drawn scenes."""
    root = tmp_path_factory.mktemp("speed")
    for split, count, seed in (("train", 8, 0), ("val", 4, 1)):
        path = shard_path(root / "scenes", split, 0, 0)
        write_shard(path, random_scenes(count, seed, size=SIZES["image_size"]))
    model = write_random_model(root / "model", vocabulary())
    return TrainingSpeedOptions(
        model=str(model), tabletop=root / "scenes", world="rich", device="cpu", pictures=2
    )


# Packed sequences differ on purpose: the picture does not see the words.
@pytest.mark.parametrize("name", [name for name in STAGES if name != "decoder-packed"])
def test_the_plain_loop_has_our_loss(
    name: str, options: TrainingSpeedOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda _self, x: x)
    stage = Bench(options).stage(name, PLAINLY)
    samples = stage.draw(0)
    losses = {who: stage.contenders[who](0, samples) for who in (OURS, PLAIN)}
    assert losses[OURS] == pytest.approx(losses[PLAIN], rel=1e-5)
    # and another batch has another loss
    assert stage.contenders[PLAIN](1, stage.draw(1)) != pytest.approx(losses[PLAIN], rel=1e-3)


def test_every_stage_is_timed(
    options: TrainingSpeedOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", options.model, "--tabletop", str(options.tabletop), "--world", "rich"]
    words += ["--device", "cpu", "--pictures", "2", "--warmup", "1", "--steps", "1"]
    words += ["--out", str(tmp_path / "x.json")]
    assert main(words) == 0
    assert "| decoder-packed |" in capsys.readouterr().out
    stages = json.loads((tmp_path / "x.json").read_text())["stages"]
    assert set(stages) == set(STAGES)
    for row in stages.values():
        assert row["pictures"] == 2
        middle, low, high = row["ours_to"][PLAIN]
        assert 0 < low <= middle <= high
    assert 2 <= stages["ivg"]["queries"] <= 6  # up to three a picture


def test_missing_scenes_are_named(
    options: TrainingSpeedOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", options.model, "--tabletop", str(tmp_path)]) == 2
    assert "clue data tabletop" in capsys.readouterr().err
