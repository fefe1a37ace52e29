"""The options of `clue train`: what must be given, and that a shipped model is not written to."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.options import add_options, add_recipe, option, read_options, required
from clue_ros.lab.training.base import BaseOptions
from clue_ros.lab.training.detector import DetectorOptions
from clue_ros.lab.training.fusion import PolicyOptions, train_policy
from clue_ros.lab.training.ivg import PAPER, IvgOptions, Teaching
from clue_ros.lab.training.options import TrainingOptions
from clue_ros.model.loading import DEFAULT_MODEL


@dataclass(frozen=True, kw_only=True)
class Some(TrainingOptions):
    """Options of every kind."""

    model: str = required("a model")
    times: int = option(3, "how often")
    data: tuple[str, ...] = option(("a",), "which", nargs="+", choices=("a", "b"))
    fast: bool | None = option(None, "whether it is fast")


def parsed(*words: str) -> Some:
    parser = argparse.ArgumentParser()
    add_options(parser, Some)
    return read_options(Some, parser.parse_args(["--model", "m", *words]))


def test_fields_are_options_of_their_types() -> None:
    assert parsed() == Some(model="m")
    given = parsed("--times", "5", "--data", "b", "a", "--no-fast", "--save-every", "7")
    assert given == Some(model="m", times=5, data=("b", "a"), fast=False, save_every=7)
    more = parsed("--mix", "blocks=3", "--mix", "rich-unseen=4", "--it2p", "here")
    assert (more.mix, more.it2p) == ((("blocks", 3), ("rich-unseen", 4)), Path("here"))


def test_what_is_given_holds_wherever_the_recipe_stands() -> None:
    def read(*words: str) -> tuple[int, bool | None, tuple[str, ...]]:
        parser = argparse.ArgumentParser()
        add_options(parser, Some)
        add_recipe(parser, quick={"times": 1, "fast": True, "data": ("b",)})
        found = read_options(Some, parser.parse_args(["--model", "m", *words]))
        return found.times, found.fast, found.data

    assert read() == read("--recipe", "paper") == (3, None, ("a",))
    assert read("--recipe", "quick") == (1, True, ("b",))
    given, kept = ("--times", "3"), (3, True, ("b",))  # the default, but given
    assert read(*given, "--recipe", "quick") == read("--recipe", "quick", *given) == kept


def test_help_names_the_default_once() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Some)
    text = " ".join(parser.format_help().split())
    assert "how often; default: 3" in text
    assert "a model" in text
    assert "default: None" not in text


def test_a_run_is_kept_beside_others_by_the_models_name() -> None:
    assert parsed().run_folder("models/mine") == Path("runs/mine")
    assert parsed().run_folder("owner/base@v1") == Path("runs/base@v1")
    assert parsed("--run", "here").run_folder("models/mine") == Path("here")


@pytest.mark.parametrize(
    ("command", "option"),
    [("base", "--out"), ("detector", "--model"), ("ivg", "--model"), ("policy", "--model")],
)
def test_no_command_writes_a_model_that_is_not_named(
    command: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them wrote into the shipped model."""
    assert main(["train", command, "--tabletop", str(tmp_path)]) == 2
    assert f"required: {option}" in capsys.readouterr().err


def test_the_name_of_the_shipped_model_is_no_folder_to_write_to(tmp_path: Path) -> None:
    name = DEFAULT_MODEL
    says = f"--model {name} is shipped with clue_ros and not written to: give .*FOLDER"
    for part in ("detector", "ivg"):
        with pytest.raises(ClueError, match=says):
            DetectorOptions(model=name).folder(part)
    with pytest.raises(ClueError, match=says):
        train_policy(PolicyOptions(model=name, tabletop=tmp_path))
    assert DetectorOptions(model=name, out=tmp_path).folder("detector") == tmp_path


def test_a_models_own_folder_gets_the_adapter(tmp_path: Path) -> None:
    assert DetectorOptions(model=str(tmp_path)).folder("detector") == tmp_path / "detector"
    with pytest.raises(ClueError, match="give --out FOLDER: owner/base is no local folder"):
        DetectorOptions(model="owner/base").folder("detector")


def test_the_recipe_is_the_papers_unless_an_option_says_otherwise() -> None:
    ivg = IvgOptions(model="m")
    assert ivg.teaching == PAPER == Teaching(0.0, 0.0, 0.0, per_example=True)
    assert (ivg.lr, ivg.weight_decay, ivg.pairs) == (1e-4, 1e-4, 0)
    assert (ivg.rank, ivg.alpha, ivg.dropout) == (16, 32, 0.05)
    assert (ivg.settings.schedule, ivg.settings.final_rate) == ("linear", 0.0)
    embedded = IvgOptions(
        model="m", average="token", look_weight=0.15, point_weight=0.15, location_sigma=1.5
    )
    assert embedded.teaching == Teaching()
    detector = DetectorOptions(model="m")
    assert (detector.lr, detector.head_lr) == (5e-6, 1e-4)
    assert (detector.settings.weight_decay, detector.settings.final_rate) == (1e-4, 0.0)
    assert (detector.variant, detector.loss) == (None, None)  # those of the paper
    assert (detector.look_weight, detector.head_batches) == (0.0, 0)
    base = BaseOptions(out=Path("out"), dense_weight=0.3, first_sigma=3.0)
    assert base.teaching == Teaching(dense=0.3, first_sigma=3.0)
    with pytest.raises(ClueError, match="--alone-share is a share from 0 to 1, not 2"):
        BaseOptions(out=Path("out"), alone_share=2)
