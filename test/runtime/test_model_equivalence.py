"""The full model's layout, small: our path is transformers' own, and the comparison can fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from benchmarks import equivalence
from benchmarks.equivalence_checks import CLARIFY, CONTEXTS, DETECT, EquivalenceReport, compare
from benchmarks.full_size import (
    full_config,
    random_adapters,
    random_backbone,
    small_config,
    stand_in_processor,
)
from clue_ros.model.config import half_depth_block
from clue_ros.model.prompts import LOCATIONS, SEGMENTS
from clue_ros.model.torch_backbone import TorchModel


@pytest.fixture(scope="module")
def processor() -> Any:
    return stand_in_processor(small_config(), [DETECT, CLARIFY, *CONTEXTS])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ours_is_theirs(processor: Any, dtype: torch.dtype, seed: int) -> None:
    backbone = random_backbone(small_config(), dtype=dtype, seed=seed)
    report = compare(backbone, processor, random_adapters(backbone, seed=seed), seed=seed)
    assert report.holds, [check for check in report.checks if not check.holds]
    names = {(check.name, check.subject) for check in report.checks}
    assert ("block 3 map, 0 to 1", "base") in names
    assert ("block 3 map, 0 to 1", "detector") in names
    assert ("greedy tokens", "base") in names
    assert ("greedy tokens", "ivg") in names
    assert ("positions", "base") in names
    # What the comparison rests on: maps with structure, adapters that matter, no stuck decoder.
    assert report.measured["map: base highest over mean"] > 1.5
    assert report.measured["map: detector from base"] > 0.1
    assert report.measured["tokens: base different ones"] > 2


def _zero_based(plain: Callable[..., Any]) -> Callable[..., Any]:
    def shift(_module: Any, given: Any, named: dict[str, Any]) -> Any:
        return given, {**named, "position_ids": named["position_ids"] - 1}

    def attend(self: TorchModel, *arguments: Any) -> Any:
        first = self.model.model.language_model.layers[0]
        hook = first.register_forward_pre_hook(shift, with_kwargs=True, prepend=True)
        try:
            return plain(self, *arguments)
        finally:
            hook.remove()

    return attend


def _uncapped(plain: Callable[..., Any]) -> Callable[..., Any]:
    def attend(self: TorchModel, *arguments: Any) -> Any:
        for layer in self.model.model.language_model.layers:
            layer.self_attn.attn_logit_softcapping = None
        try:
            return plain(self, *arguments)
        finally:
            for layer in self.model.model.language_model.layers:
                layer.self_attn.attn_logit_softcapping = self.text.attn_logit_softcapping

    return attend


def _one_less(plain: Callable[..., Any]) -> Callable[..., Any]:
    def attend(self: TorchModel, block: int, *arguments: Any) -> Any:
        return plain(self, block - 1, *arguments)

    return attend


@pytest.mark.parametrize(
    ("wrong", "noticed"),
    [
        (_zero_based, "positions"),
        (_uncapped, "block 3 map, 0 to 1"),
        (_one_less, "block 3 map, 0 to 1"),
    ],
)
def test_a_wrong_path_is_noticed(
    processor: Any, monkeypatch: pytest.MonkeyPatch, wrong: Any, noticed: str
) -> None:
    backbone = random_backbone(small_config())
    monkeypatch.setattr(TorchModel, "attention_at", wrong(TorchModel.attention_at))
    report = compare(backbone, processor, random_adapters(backbone), new_tokens=1)
    assert not report.holds
    assert noticed in {check.name for check in report.checks if not check.holds}


def test_nothing_compared_is_nothing_shown() -> None:
    report = EquivalenceReport()
    assert not report.holds
    report.below("map", "base", float("nan"), 1.0)
    assert not report.holds


def test_the_full_configuration_is_the_published_one() -> None:
    config: Any = full_config()
    text, vision = config.text_config, config.vision_config
    assert half_depth_block(text.num_hidden_layers) == 14
    assert (vision.image_size // vision.patch_size) ** 2 == 1024
    assert config.image_token_id == 257152 < text.vocab_size == 257216
    assert text.use_bidirectional_attention
    assert text.layer_types[:2] == ["sliding_attention", "full_attention"]
    with torch.device("meta"):
        model = PaliGemmaForConditionalGeneration(config)
    # "3B" is 3.03 billion parameters.
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(3.03e9, rel=2e-3)


def test_the_stand_in_tokenizer_has_paligemmas_ids(processor: Any) -> None:
    ids = processor.tokenizer.convert_tokens_to_ids
    assert ids(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\n"]) == [0, 1, 2, 3, 4, 108]
    assert ids(list(LOCATIONS)) == list(range(256000, 257024))
    assert ids(list(SEGMENTS)) == list(range(257024, 257152))
    assert processor.image_token_id == 257152
    assert len(processor.tokenizer) == 257153
    words = processor.tokenizer("pick up the red block", add_special_tokens=False).tokens()
    assert words == ["pick", "▁up", "▁the", "▁red", "▁block"]


def test_weights_may_live_in_a_file(tmp_path: Path) -> None:
    there = random_backbone(small_config(), seed=3, file=tmp_path / "weights")
    here = random_backbone(small_config(), seed=3)
    for name, weight in here.model.named_parameters():
        assert torch.equal(weight, there.model.get_parameter(name)), name
    assert there.model.lm_head.weight is there.model.get_input_embeddings().weight
    assert (tmp_path / "weights").stat().st_size == 4 * sum(
        weight.numel() for weight in here.model.parameters()
    )


def test_the_command_prints_json_and_its_status_says_whether_all_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", "tiny", "--tokens", "2", "--dtype", "bfloat16", "--json"]
    assert equivalence.main([*words, "--scratch", str(tmp_path)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["holds"] is True
    assert all(check["holds"] for check in content["checks"])
    assert content["measured"]["map: fused tower from float32"] > 0
    assert list(tmp_path.iterdir()) == []
    assert equivalence.main(["--config", "no-such-folder"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
