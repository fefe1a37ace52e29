"""Detectors that need no training, and detectors chosen by name, through the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model import detector_baselines
from clue_ros.model.adapters import IVG, Adapters
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.detector import answer_head
from clue_ros.model.detector_baselines import BASELINES, CandidateCount, FirstToken, YesNo
from clue_ros.model.detector_variants import VARIANTS
from clue_ros.model.prompts import build_tokenizer, encode_prompts, load_processor

Picture = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def parts(random_model: Path) -> tuple[Backbone, Adapters, Any]:
    """Backbone with adapter B, and the processor."""
    backbone = load_backbone(random_model)
    adapters = Adapters(backbone)
    adapters.load(IVG, random_model / IVG)
    return backbone, adapters, load_processor(random_model)


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
    parts: tuple[Backbone, Adapters, Any],
) -> None:
    """Two prompts of different length: the answer is read at each one's own end."""
    backbone, adapters, processor = parts
    adapters.use(None)
    prompts = encode_prompts(processor, "detect", ["the red block on the left", "the ball"])
    features = backbone.look(torch.rand(1, 3, 64, 64))
    head = answer_head(processor.tokenizer)
    with torch.inference_mode():
        reading = head.read(backbone, backbone.blocks - 1, features, prompts)
        for row, context in enumerate(["the red block on the left", "the ball"]):
            alone = encode_prompts(processor, "detect", [context])
            hidden, _ = backbone.forward(features, alone)
            logits = backbone.logits(hidden[0, -1])
            assert float(reading.logits[row]) == pytest.approx(
                float(logits[head.yes] - logits[head.no]), abs=1e-4
            )
    assert reading.attention.sum((1, 2)) == pytest.approx(1, abs=1e-4)


def test_a_tokenizer_without_yes_and_no_has_no_answers() -> None:
    with pytest.raises(ModelError, match="'yes' and 'no'"):
        answer_head(build_tokenizer(["pick up the block"]))


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
def test_whole_boxes_are_counted_and_one_is_clear(
    parts: tuple[Backbone, Adapters, Any], monkeypatch: pytest.MonkeyPatch, said: str, boxes: int
) -> None:
    backbone, adapters, processor = parts
    detector = CandidateCount(backbone, adapters, processor.tokenizer)
    tokens = processor.tokenizer(said, add_special_tokens=False)["input_ids"]
    spoken = [SimpleNamespace(tokens=tokens)]
    monkeypatch.setattr(detector_baselines, "generate", lambda *_, **__: spoken)
    prompts = detector.prompts(processor, ["the red block"])
    assert detector.chance(torch.empty(0), prompts).tolist() == [float(boxes != 1)]


def test_candidates_are_asked_for_by_name_alone(parts: tuple[Backbone, Adapters, Any]) -> None:
    backbone, adapters, processor = parts
    detector = CandidateCount(backbone, adapters, processor.tokenizer)
    context = "pick up the red block assistant: which one user: the left one"
    asked = detector.prompts(processor, [context])
    same = encode_prompts(processor, "detect", ["red block"])
    assert torch.equal(asked.input_ids, same.input_ids)


def test_the_first_token_is_what_the_decoders_policy_goes_by(
    random_model: Path, parts: tuple[Backbone, Adapters, Any], picture: Picture
) -> None:
    backbone, adapters, processor = parts
    detector = FirstToken(backbone, adapters, processor.tokenizer)
    checkpoint = load_checkpoint(random_model, device="cpu", dtype="float32")
    features = checkpoint.look(picture)
    context = "pick up the red block"
    with torch.inference_mode():
        chance, maps = detector(features, detector.prompts(processor, [context]))
    checkpoint.adapters.use(IVG)
    prompts = encode_prompts(processor, "clarify", [context])
    with torch.inference_mode():
        hidden, _ = checkpoint.backbone.forward(features, prompts)
        logits = checkpoint.backbone.logits(hidden[0, -1])
    first = detector.vocabulary.first_location
    by_hand = 1 - float(logits.softmax(-1)[first : first + 1024].sum())
    assert float(chance[0]) == pytest.approx(by_hand, abs=1e-5)
    assert maps.shape == (1, 8, 8)


def test_yes_or_no_is_asked_of_the_bare_base(parts: tuple[Backbone, Adapters, Any]) -> None:
    backbone, adapters, processor = parts
    detector = YesNo(backbone, adapters, processor.tokenizer)
    prompts = detector.prompts(processor, ["the block", "the ball"])
    features = backbone.look(torch.rand(1, 3, 64, 64))
    with torch.inference_mode():
        adapters.use(IVG)
        chance, maps = detector(features, prompts)
        adapters.use(None)
        reading = detector.head.read(backbone, backbone.blocks - 1, features, prompts)
    assert torch.allclose(chance, torch.sigmoid(reading.logits), atol=1e-6)
    assert maps.shape == (2, 8, 8)


@pytest.mark.parametrize("name", list(BASELINES))
def test_the_engine_takes_a_baseline_by_its_name(
    random_model: Path, picture: Picture, name: str
) -> None:
    clue = Clue.load(random_model, device="cpu", detector=name)
    view = clue.look(picture)
    estimate = clue.ambiguity(view, "pick up the red block")
    assert 0 <= estimate.probability <= 1
    assert estimate.threshold == 0.5
    assert estimate.attention.shape == (8, 8)
    assert clue.reply(view, Dialogue("pick up the red block")).ambiguity.probability == (
        pytest.approx(estimate.probability, abs=1e-5)
    )


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
