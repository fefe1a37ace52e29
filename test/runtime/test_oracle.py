"""The oracle: what its adapter is asked, and scores of sentences that somebody might say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.full_size import random_adapters
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.checkpoint import Checkpoint, IvgSettings
from clue_ros.model.decoding import Vocabulary
from clue_ros.model.fast_decoder import FastDecoder
from clue_ros.model.loading import EMBEDDED, find_model
from clue_ros.model.oracle import (
    ANSWER,
    DESCRIBE,
    ORACLE,
    SETTINGS_FILE,
    Oracle,
    OracleSettings,
    load_oracle_settings,
    same_tokens,
    save_oracle_settings,
    suffix_log_probs,
)
from clue_ros.model.prompts import load_processor

CONTEXT = "pick up the block assistant: which one ? user: the left one"
SUFFIXES = ["the red one", "", "no", "do you mean the blue ball or the green cylinder ?", "no"]
BOXES = [f"<loc0001><loc{x:04d}><loc0900><loc1000>" for x in (3, 40, 500)]


def random_checkpoint(folder: Path, seed: int) -> Checkpoint:
    """A base and adapters with random weights large enough for errors to show."""
    backbone = load_backbone(folder)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in backbone.model.model.language_model.layers.parameters():
            weight.normal_(std=0.3)
    adapters, processor = random_adapters(backbone, seed=seed), load_processor(folder)
    vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size)
    return Checkpoint(processor, backbone, adapters, None, IvgSettings(), vocabulary)


@pytest.mark.parametrize("seed", range(4))
def test_suffixes_that_share_a_prompt_score_as_each_whole_sequence(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    parts = random_checkpoint(random_model, seed)
    features = torch.randn(1, parts.backbone.grid**2, parts.backbone.text.hidden_size)
    told = [
        (adapter, context, suffixes)
        for adapter in (IVG, DETECTOR)
        for context in (CONTEXT, "the block")
        for suffixes in (SUFFIXES, BOXES, SUFFIXES[:1], [""])
    ]
    shared = [suffix_log_probs(parts, a, features, "clarify", c, s) for a, c, s in told]
    monkeypatch.setattr(FastDecoder, "fits", lambda _self, _length: False)  # each sequence whole
    for (adapter, context, suffixes), (sums, lengths) in zip(told, shared, strict=True):
        expected, count = suffix_log_probs(parts, adapter, features, "clarify", context, suffixes)
        torch.testing.assert_close(sums, expected, rtol=1e-5, atol=1e-4)
        assert torch.equal(lengths, count)
        assert sums.shape == (len(suffixes),)
        alone = torch.cat(
            [
                suffix_log_probs(parts, adapter, features, "clarify", context, [s])[0]
                for s in suffixes
            ]
        )
        torch.testing.assert_close(sums, alone, rtol=1e-5, atol=1e-4)


def test_the_prompt_is_read_once_whatever_the_number_of_suffixes(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = random_checkpoint(random_model, 0)
    features = torch.randn(1, parts.backbone.grid**2, parts.backbone.text.hidden_size)
    sizes: list[tuple[int, ...]] = []
    run = FastDecoder.run

    def counted(self: FastDecoder, hidden: torch.Tensor, *more: object, **named: object) -> object:
        sizes.append(tuple(hidden.shape[:2]))
        return run(self, hidden, *more, **named)  # type: ignore[arg-type]

    def refused(*_: object) -> None:
        raise AssertionError("a whole sequence was read")

    monkeypatch.setattr(FastDecoder, "run", counted)
    monkeypatch.setattr(Backbone, "forward", refused)
    suffix_log_probs(parts, IVG, features, "clarify", "the block", ["the red one"] * 30)
    prompt, suffixes = sizes
    assert prompt[0] == 1
    assert suffixes == (1, 30 * 3)  # <eos> predicts nothing


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_embedded_model_tells_an_answer_from_a_request(name: str) -> None:
    tokenizer = load_processor(find_model(name)).tokenizer
    unknown = tokenizer.unk_token_id
    for word in (ANSWER, DESCRIBE):
        assert unknown not in tokenizer(word, add_special_tokens=False)["input_ids"]
    assert same_tokens(tokenizer, ANSWER, DESCRIBE) == ""


def test_an_adapter_keeps_the_words_that_it_was_trained_with(
    random_model: Path, tmp_path: Path
) -> None:
    parts = random_checkpoint(random_model, 0)
    parts.adapters.save(IVG, tmp_path)
    save_oracle_settings(OracleSettings(5, "left", "right"), tmp_path)
    oracle = Oracle(parts, tmp_path)
    assert ORACLE in parts.adapters.names
    assert oracle.instruction((1, 2, 3, 4)) == "left <loc0001><loc0002><loc0003><loc0004>"
    (tmp_path / SETTINGS_FILE).write_text('{"max_new_tokens": 5}')
    assert load_oracle_settings(tmp_path) == OracleSettings(5, "answer", "describe")
    with pytest.warns(ClueWarning, match="same tokens of 'answer' and 'describe'"):
        Oracle(random_checkpoint(random_model, 0), tmp_path)
    (tmp_path / SETTINGS_FILE).write_text('{"answer": 3}')
    with pytest.raises(ModelError, match="begins with 3"):
        load_oracle_settings(tmp_path)
