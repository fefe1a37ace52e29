"""A model folder with one adapter alone loads, and says what it cannot do."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from clue_ros.dialogue import Dialogue
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.loading import find_base, read_json, write_json


@pytest.fixture
def model(random_model: Path, tmp_path: Path) -> Path:
    """A copy of the random model that a test may change."""
    return Path(shutil.copytree(random_model, tmp_path / "model"))


def test_a_detector_alone_judges_and_says_that_it_cannot_point(
    model: Path, picture: Any, recwarn: pytest.WarningsRecorder
) -> None:
    shutil.rmtree(model / IVG)
    clue = Clue.load(model)
    assert clue.policy == "detector"
    assert not [w for w in recwarn if "not fitted" in str(w.message)], "there is nothing to fit"
    view = clue.look(picture)
    assert 0 <= clue.ambiguity(view, "the red block").probability <= 1
    with pytest.raises(ModelError, match="no adapter B"):
        clue.reply(view, Dialogue("the red block"))
    with pytest.raises(
        ModelError, match=r"'decoder' needs adapter B .* policies zero-shot, detector"
    ):
        clue.policy = "decoder"
    clue.policy = "both"
    assert clue.policy == "detector", "what there is"


def test_adapter_b_alone_asks_and_points_by_its_own_first_token(model: Path, picture: Any) -> None:
    shutil.rmtree(model / DETECTOR)
    clue = Clue.load(model)
    assert clue.policy == "decoder"
    view = clue.look(picture)
    estimate = clue.ambiguity(view, "the red block")
    assert estimate.attention.shape == (clue.grid, clue.grid)
    assert clue.reply(view, Dialogue("the red block"), force_grounding=True).box.area >= 0  # type: ignore[union-attr]
    clue.policy = "both"
    assert clue.policy == "decoder", "what there is"


@pytest.mark.parametrize("kept", [DETECTOR, IVG])
def test_a_folder_of_one_adapter_beside_its_base_names_that_base(
    model: Path, tmp_path: Path, kept: str
) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(model / kept, alone / kept)
    config = alone / kept / "adapter_config.json"
    write_json(config, {**read_json(config), "base_model_name_or_path": str(model)})
    assert find_base(alone) == model
    assert Clue.load(alone).policy == ("detector" if kept == DETECTOR else "decoder")


def test_a_base_without_adapters_is_used_zero_shot(model: Path, picture: Any) -> None:
    shutil.rmtree(model / IVG)
    shutil.rmtree(model / DETECTOR)
    clue = Clue.load(model)
    assert clue.policy == "zero-shot"
    view = clue.look(picture)
    assert 0 <= clue.ambiguity(view, "the red block").probability <= 1
    with pytest.raises(ModelError, match=r"'detector' needs adapter A \(folder detector\)"):
        clue.policy = "detector"
    with pytest.raises(ModelError, match=r"'decoder' needs adapter B \(folder ivg\)"):
        clue.policy = "decoder"
    clue.policy = "both"
    assert clue.policy == "zero-shot"
