"""The mean of bases: weights, refusals."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.training.average import AverageOptions, average, weighted_base
from clue_ros.lab.training.base import base_weights, save_base
from clue_ros.model.config import tiny_config
from clue_ros.model.prompts import build_tokenizer
from clue_ros.model.torch_backbone import load_model

WORDS = vocabulary()


def write(folder: Path, seed: int, words: Any = WORDS, mlp: int = 48) -> str:
    """An untrained base in a folder."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(words)
    sizes = {"image_size": 32, "patch_size": 8, "width": 32, "mlp": mlp, "heads": 4, "kv_heads": 2,
             "layers": 2, "vision_layers": 2, "vision_heads": 4}  # fmt: skip
    config: Any = tiny_config(len(tokenizer), **sizes)
    config.text_config._attn_implementation = "eager"
    save_base(PaliGemmaForConditionalGeneration(config), tokenizer, folder)
    return str(folder)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("bases")
    return write(folder / "a", 0), write(folder / "b", 1)


def weights(folder: str | Path) -> dict[str, torch.Tensor]:
    return base_weights(load_model(folder).model)


def test_the_mean_of_two_bases(
    bases: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = bases
    out = tmp_path / "mean"
    argv = ["train", "average", "--bases", f"{first}=0.25", f"{second}=0.75", "--out", str(out)]
    assert main(argv) == 0
    assert str(out) in capsys.readouterr().out
    a, b, mean = weights(first), weights(second), weights(out)
    assert mean.keys() == a.keys()
    for name, weight in mean.items():
        assert torch.allclose(weight, 0.25 * a[name] + 0.75 * b[name], atol=1e-6), name
    assert any(not torch.equal(a[name], b[name]) for name in a)


def test_one_base_is_rounded(bases: tuple[str, str], tmp_path: Path) -> None:
    average(((bases[0], 1.0),), tmp_path / "rounded", torch.bfloat16)
    a, rounded = weights(bases[0]), weights(tmp_path / "rounded")
    for name, weight in rounded.items():
        assert torch.equal(weight, a[name].bfloat16().float()), name


def test_unlike_bases_have_no_mean(bases: tuple[str, str], tmp_path: Path) -> None:
    wider = write(tmp_path / "wider", 0, mlp=56)
    with pytest.raises(ClueError, match=r"mlp.*is \(32, 48\).*\(32, 56\)"):
        average(((bases[0], 0.5), (wider, 0.5)), tmp_path / "out", torch.float32)
    other = write(tmp_path / "other", 0, words=[*WORDS[:-1], "zebra"])
    with pytest.raises(ClueError, match="other tokens"):
        average(((bases[0], 0.5), (other, 0.5)), tmp_path / "out", torch.float32)
    assert not (tmp_path / "out").exists()


def test_weights_that_are_no_mean_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClueError, match=r"sum to 0\.9, want 1"):
        AverageOptions(bases=(("a", 0.5), ("b", 0.4)), out=tmp_path)
    with pytest.raises(ClueError, match="shipped"):
        AverageOptions(bases=(("a", 1.0),), out=Path("household"))
    for text in ("a", "a=", "=1", "a=0", "a=1.5", "a=nan"):
        with pytest.raises(argparse.ArgumentTypeError, match="MODEL=WEIGHT"):
            weighted_base(text)
    assert weighted_base("x=y=0.5") == ("x=y", 0.5)
