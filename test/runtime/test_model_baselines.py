"""Detectors that need no training, and detectors chosen by name, through the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model.backbone import IVG, Array
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.detector import answer_tokens
from clue_ros.model.detector_baselines import BASELINES, CandidateCount, FirstToken, YesNo
from clue_ros.model.detector_variants import VARIANTS
from clue_ros.model.heads import AnswerHead
from clue_ros.model.prompts import build_tokenizer, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchBackbone, load_model

Picture = npt.NDArray[np.uint8]


def pixels(processor: Any, picture: Picture) -> Array:
    """What a backbone looks at (1, 3, S, S)."""
    seen: Array = processor.image_processor(picture, return_tensors="np")["pixel_values"]
    return seen


@pytest.fixture(scope="module")
def parts(random_model: Path) -> tuple[TorchBackbone, Any]:
    """A backbone with adapter B, and the processor."""
    backbone = TorchBackbone(load_model(random_model))
    backbone.load_adapter(IVG, random_model / IVG)
    return backbone, load_processor(random_model)


def test_table_one_has_the_papers_six_variants_and_ours() -> None:
    titles = [variant.title for variant in VARIANTS.values()]
    assert titles == [
        "Half-Last Detect (CNN)",
        "Half-Last Detect (AR)",
        "Half-Last Disambig. (AR)",
        "Half-Full Disambig. (AR)",
        "Full-Last Disambig. (AR)",
        "Full-Full Disambig. (AR)",
        "Half-Full Detect (CNN)",
    ]
    assert list(VARIANTS["half-last-detect-cnn"].adapted(26)) == [14]
    assert list(VARIANTS["half-full-disambig-ar"].adapted(26)) == list(range(15))
    assert list(VARIANTS["full-last-disambig-ar"].adapted(26)) == [25]
    assert list(VARIANTS["full-full-disambig-ar"].adapted(26)) == list(range(26))


def test_an_answer_at_full_depth_is_the_whole_models_next_token(
    parts: tuple[TorchBackbone, Any], picture: Picture
) -> None:
    """Two prompts of different length: the answer is read at each one's own end."""
    backbone, processor = parts
    detector = YesNo(backbone, processor.tokenizer)
    contexts = ["the red block on the left", "the ball"]
    prompts = encode_prompts(processor, "detect", contexts)
    features = backbone.look(pixels(processor, picture))
    chances, maps = detector(features, prompts)
    yes, no = answer_tokens(processor.tokenizer)
    for row, context in enumerate(contexts):
        alone = encode_prompts(processor, "detect", [context])
        _, (logits,) = backbone.read(features, alone, None)
        odds = float(logits[yes] - logits[no])
        assert float(chances[row]) == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-5)
    assert maps.shape == (2, 8, 8)


def test_a_tokenizer_without_yes_and_no_has_no_answers() -> None:
    with pytest.raises(ModelError, match="'yes' and 'no'"):
        AnswerHead.make(build_tokenizer(["pick up the block"]))


@pytest.mark.parametrize(
    ("said", "boxes"),
    [
        ("", 0),
        ("<loc0001><loc0002><loc0003><loc0004> red block", 1),
        ("<loc0001><loc0002><loc0003><loc0004> red ; <loc0001><loc0002><loc0003><loc0004> blue", 2),
        ("<loc0001><loc0002><loc0003> red <loc0004>", 0),
        ("<loc0001><loc0002><loc0003><loc0004><loc0001><loc0002><loc0003><loc0004>", 2),
    ],
)
def test_candidates_are_whole_boxes(
    parts: tuple[TorchBackbone, Any], said: str, boxes: int
) -> None:
    backbone, processor = parts
    detector = CandidateCount(backbone, processor.tokenizer)
    tokens = processor.tokenizer(said, add_special_tokens=False)["input_ids"]
    assert detector.boxes(tokens) == boxes


def test_candidates_are_asked_for_by_name_alone(parts: tuple[TorchBackbone, Any]) -> None:
    backbone, processor = parts
    detector = CandidateCount(backbone, processor.tokenizer)
    context = "pick up the red block assistant: which one user: the left one"
    asked = detector.prompts(processor, [context])
    same = encode_prompts(processor, "detect", ["red block"])
    assert np.array_equal(asked.input_ids, same.input_ids)


def test_the_first_token_is_what_the_decoders_policy_goes_by(
    random_model: Path, parts: tuple[TorchBackbone, Any], picture: Picture
) -> None:
    backbone, processor = parts
    detector = FirstToken(backbone, processor.tokenizer)
    features = backbone.look(pixels(processor, picture))
    context = "pick up the red block"
    chance, maps = detector(features, detector.prompts(processor, [context]))
    _, (logits,) = backbone.read(features, encode_prompts(processor, "clarify", [context]), IVG)
    first = detector.vocabulary.first_location
    shares = torch.from_numpy(logits).softmax(-1)
    assert float(chance[0]) == pytest.approx(
        1 - float(shares[first : first + 1024].sum()), abs=1e-5
    )
    assert maps.shape == (1, 8, 8)
    checkpoint = load_checkpoint(random_model, backend="torch", device="cpu")
    share, _ = checkpoint.second_opinion(features, context)
    assert share == pytest.approx(float(chance[0]), abs=1e-5)


def test_yes_or_no_is_asked_of_the_bare_base(
    parts: tuple[TorchBackbone, Any], random_model: Path, picture: Picture
) -> None:
    backbone, processor = parts
    detector = YesNo(backbone, processor.tokenizer)
    prompts = detector.prompts(processor, ["the block", "the ball"])
    features = backbone.look(pixels(processor, picture))
    backbone.read(features, prompts, IVG)  # which leaves adapter B in use
    bare = YesNo(TorchBackbone(load_model(random_model)), processor.tokenizer)
    for found, expected in zip(detector(features, prompts), bare(features, prompts), strict=True):
        assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", list(BASELINES))
def test_the_engine_takes_a_baseline_by_its_name(
    random_model: Path, picture: Picture, name: str
) -> None:
    chances = []
    for backend in ("openvino", "torch"):
        settings = {"backend": backend, "device": "cpu", "dtype": "float32", "policy": "detector"}
        clue = Clue.load(random_model, detector=name, **settings)
        view = clue.look(picture)
        estimate = clue.ambiguity(view, "pick up the red block")
        assert 0 <= estimate.probability <= 1
        assert estimate.threshold == 0.5
        assert estimate.attention.shape == (8, 8)
        assert clue.reply(view, Dialogue("pick up the red block")).ambiguity.probability == (
            pytest.approx(estimate.probability, abs=1e-5)
        )
        chances.append(estimate.probability)
    assert chances[0] == pytest.approx(chances[1], abs=1e-4)


def test_the_engine_takes_other_folders_and_names_what_is_missing(
    random_model: Path, picture: Picture, tmp_path: Path
) -> None:
    own = Clue.load(random_model, device="cpu")
    other = Clue.load(
        random_model, device="cpu", detector=random_model / "detector", ivg=random_model / "ivg"
    )
    chances = [c.ambiguity(c.look(picture), "the block").probability for c in (own, other)]
    assert chances[0] == chances[1]
    with pytest.raises(ModelError, match=r"no folder .*nowhere with adapter A .or name one of"):
        Clue.load(random_model, device="cpu", detector=tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"there is no folder .*nowhere with adapter B"):
        Clue.load(random_model, device="cpu", ivg=tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"adapter_config\.json|detector\.json"):
        Clue.load(random_model, device="cpu", detector=tmp_path)
