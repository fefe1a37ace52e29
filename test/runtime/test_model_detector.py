"""The CNN head, its files, and the detector as a whole."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from test_model_attention import hills

from clue_ros.errors import ModelError
from clue_ros.model.attention import min_max
from clue_ros.model.detector import DetectorSettings, load_detector, load_settings
from clue_ros.model.heads import (
    HEADS,
    AnswerHead,
    CnnHead,
    detector_loss,
    load_head,
    probability,
    save_head,
)
from clue_ros.model.prompts import encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchBackbone, load_model


@pytest.mark.parametrize("grid", [2, 8, 14, 32])
def test_the_head_takes_any_grid(grid: int) -> None:
    assert CnnHead()(torch.rand(3, grid, grid)).shape == (3,)


def test_the_head_learns_to_tell_one_peak_from_several() -> None:
    random = np.random.default_rng(0)

    def sample(count: int) -> npt.NDArray[np.float32]:
        cells = random.permutation(16)[:count]
        places = [(2 + 3 * (c // 4), 2 + 3 * (c % 4), random.uniform(0.6, 1)) for c in cells]
        return hills(*places, width=1.0)

    def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = random.integers(0, 2, size)
        maps = np.stack([sample(1 + label * int(random.integers(1, 4))) for label in labels])
        return torch.from_numpy(maps), torch.from_numpy(labels).float()

    torch.manual_seed(0)
    head = CnnHead()
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)
    for _ in range(120):
        maps, labels = batch(32)
        optimizer.zero_grad()
        loss: Any = detector_loss(head(maps), labels)
        loss.backward()
        optimizer.step()
    maps, labels = batch(200)
    head.eval()
    with torch.inference_mode():
        right = (probability(head(maps)) >= 0.5) == labels.bool()
    assert right.float().mean() > 0.9


def test_the_loss_is_binary_cross_entropy() -> None:
    logits, labels = torch.tensor([2.0, -1.0]), torch.tensor([True, False])
    by_hand = -(np.log(1 / (1 + np.exp(-2))) + np.log(1 - 1 / (1 + np.exp(1)))) / 2
    assert float(detector_loss(logits, labels)) == pytest.approx(by_hand, rel=1e-5)


def test_generating_the_answer_competes_with_the_whole_vocabulary() -> None:
    torch.manual_seed(0)
    answers, head = torch.randn(3, 50), AnswerHead(yes=7, no=9)
    loss, said = head.generation_loss(answers, torch.tensor([1.0, 0.0, 1.0]))
    expected = torch.nn.functional.cross_entropy(answers, torch.tensor([7, 9, 7]))
    assert float(loss) == pytest.approx(float(expected))
    shares = answers.softmax(-1)
    assert float(said) == pytest.approx(float((shares[:, 7] + shares[:, 9]).mean()))


def test_a_temperature_above_one_makes_the_probability_milder() -> None:
    logits = torch.tensor([3.0, -3.0])
    sharp, mild = probability(logits), probability(logits, 2.0)
    assert sharp[0] > mild[0] > 0.5 > mild[1] > sharp[1]


def test_head_and_settings_survive_saving(tmp_path: Path) -> None:
    head, settings = CnnHead().eval(), DetectorSettings(3, "disambiguate", "cnn", 0.42, 1.5)
    save_head(head, settings, tmp_path, f1=0.9)
    assert load_settings(tmp_path, 6) == settings
    maps = torch.rand(4, 14, 14)
    assert torch.equal(load_head(tmp_path, "cnn", None)(maps), head(maps))


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": 6},
        {"block": -1},
        {"block": "3"},
        {"head": "magic"},
        {"threshold": 2},
        {"threshold": None},
        {"temperature": 0},
        {"temperature": "warm"},
        {"instruction": 7},
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    save_head(CnnHead(), DetectorSettings(**{"block": 3, **wrong}), tmp_path)
    with pytest.raises(ModelError, match=next(iter(wrong))):
        load_settings(tmp_path, 6)


def test_every_registered_head_can_be_built_saved_and_loaded(
    tmp_path: Path, random_model: Path
) -> None:
    tokenizer = load_processor(random_model).tokenizer
    for name, make in HEADS.items():
        save_head(make.make(tokenizer), DetectorSettings(3, head=name), tmp_path / name)
        load_head(tmp_path / name, load_settings(tmp_path / name, 6).head, tokenizer)


@pytest.mark.parametrize("head", HEADS)
def test_the_detector_reads_its_block_with_its_word_through_its_adapter(
    random_model: Path, tmp_path: Path, head: str
) -> None:
    processor = load_processor(random_model)
    folder = Path(shutil.copytree(random_model / "detector", tmp_path / "detector"))
    module = load_head(folder, head, processor.tokenizer) if head == "cnn" else None
    module = module or HEADS[head].make(processor.tokenizer)
    save_head(module, DetectorSettings(1, "clarify", head, temperature=2.0), folder)
    backbone = TorchBackbone(load_model(random_model))
    detector = load_detector(backbone, folder, processor.tokenizer)
    backbone.load_adapter("ivg", random_model / "ivg")
    contexts = ["the red block", "the ball on the left"]
    prompts = detector.prompts(processor, contexts)
    wanted = encode_prompts(processor, "clarify", contexts)
    assert np.array_equal(prompts.input_ids, wanted.input_ids)
    features = backbone.look(np.zeros((1, 3, 64, 64), np.float32))
    chances, maps = detector(features, prompts)
    backbone.peft.use("detector")
    with torch.inference_mode():
        found = module.read(backbone.model, 1, torch.from_numpy(features), prompts.to("cpu"))
    assert np.allclose(chances, probability(found.logits, 2.0), atol=1e-5)
    assert np.allclose(maps, min_max(found.attention), atol=1e-5)
    assert maps.shape == (2, 8, 8)
