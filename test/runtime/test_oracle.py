"""The oracle: what its adapter is asked, and scores of sentences that somebody might say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from benchmarks.full_size import random_adapters
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.backbone import DETECTOR, IVG, Array
from clue_ros.model.checkpoint import Checkpoint, IvgSettings
from clue_ros.model.decoding import (
    PLAUSIBLE,
    Prefill,
    Vocabulary,
    pragmatic_reply,
    read_prompts,
    reply_to,
)
from clue_ros.model.loading import DEFAULT_MODEL, find_model
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
from clue_ros.model.prompts import Prompts, decode_text, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchBackbone, TorchModel, load_model

CONTEXT = "pick up the block assistant: which one ? user: the left one"
SUFFIXES = ["the red one", "", "no", "do you mean the blue ball or the green cylinder ?", "no"]
BOXES = [f"<loc0001><loc{x:04d}><loc0900><loc1000>" for x in (3, 40, 500)]


@dataclass
class Parts:
    """A base and adapters whose errors show, with random weights, and features (1, N, D)."""

    checkpoint: Checkpoint
    engine: TorchBackbone
    features: Array

    def log_probs(self, adapter: str, instruction: str, context: str, suffix: str) -> Array:
        """Of a suffix's tokens, by transformers over the whole sequence."""
        prompts = encode_prompts(self.checkpoint.processor, instruction, [context], [suffix])
        told = prompts.to("cpu")
        self.engine.peft.use(adapter)
        with torch.inference_mode():
            hidden, _ = self.engine.model.forward(torch.from_numpy(self.features), told)
            logs = self.engine.model.logits(hidden)[0].log_softmax(-1)
        places = (told.labels[0] >= 0).nonzero()[:, 0]
        found: Array = logs[places - 1, told.labels[0, places]].numpy()
        return found


def random_parts(folder: Path, seed: int) -> Parts:
    """The same for the same seed."""
    model = load_model(folder)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.model.model.language_model.layers.parameters():
            weight.normal_(std=0.3)
    engine, processor = (
        TorchBackbone(model, random_adapters(model, seed=seed)),
        load_processor(folder),
    )
    vocabulary = Vocabulary(processor.tokenizer, model.text.vocab_size)
    checkpoint = Checkpoint(processor, engine, None, IvgSettings(), vocabulary, folder, folder)
    size = 1, model.grid**2, model.text.hidden_size
    return Parts(checkpoint, engine, np.random.default_rng(seed).standard_normal(size, np.float32))


@pytest.mark.parametrize("seed", range(4))
def test_suffixes_that_share_a_prompt_score_as_each_whole_sequence(
    random_model: Path, seed: int
) -> None:
    parts = random_parts(random_model, seed)
    for adapter in (IVG, DETECTOR):
        for context in (CONTEXT, "the block"):
            for suffixes in (SUFFIXES, BOXES, SUFFIXES[:1], [""]):
                sums, lengths = suffix_log_probs(
                    parts.checkpoint, adapter, parts.features, "clarify", context, suffixes
                )
                whole = [parts.log_probs(adapter, "clarify", context, s) for s in suffixes]
                assert sums == pytest.approx([row.sum() for row in whole], rel=1e-5, abs=1e-4)
                assert lengths.tolist() == [len(row) for row in whole]


def test_the_prompt_is_read_once_whatever_the_number_of_suffixes(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = random_parts(random_model, 0)
    read, rows = TorchModel.forward, []

    def counted(self: TorchModel, features: Any, prompts: Any, **settings: Any) -> Any:
        rows.append(len(prompts.input_ids))
        return read(self, features, prompts, **settings)

    monkeypatch.setattr(TorchModel, "forward", counted)
    suffixes = ["the red one"] * 30
    suffix_log_probs(parts.checkpoint, IVG, parts.features, "clarify", "the block", suffixes)
    assert rows == [1]


@pytest.fixture
def oracle(random_model: Path, tmp_path: Path) -> tuple[Oracle, Parts]:
    """An oracle with random weights, and its model."""
    parts = random_parts(random_model, 1)
    parts.engine.peft.save(IVG, tmp_path)
    save_oracle_settings(OracleSettings(6, "left", "right"), tmp_path)
    return Oracle(parts.checkpoint, tmp_path), parts


OWN, OTHERS = (1, 3, 900, 1000), ((5, 40, 700, 800), (300, 500, 600, 900))


def test_without_others_or_rationality_an_answer_is_greedy(oracle: tuple[Oracle, Parts]) -> None:
    person, parts = oracle
    model, features = parts.checkpoint, parts.features
    likeliest = person.answer(features, OWN, CONTEXT)
    prompts = encode_prompts(model.processor, person.prompt(OWN, CONTEXT)[0], [CONTEXT])
    prefill = read_prompts(parts.engine, features, prompts, ORACLE)
    (said,) = reply_to(parts.engine, model.vocabulary, prefill, "question", max_new_tokens=6)
    assert model.words(said) == likeliest != ""
    assert person.answer(features, OWN, CONTEXT, OTHERS, 0.0) == likeliest
    assert person.answer(features, OWN, CONTEXT, (), 4.0) == likeliest


@pytest.mark.parametrize("rationality", [0.5, 4.0])
def test_each_token_of_a_pragmatic_answer_is_what_whole_sequences_give(
    oracle: tuple[Oracle, Parts], rationality: float
) -> None:
    person, parts = oracle
    processor, vocabulary = parts.checkpoint.processor, parts.checkpoint.vocabulary
    said = person.answer(parts.features, OWN, CONTEXT, OTHERS, rationality)
    expected: list[int] = []
    while len(expected) < 6 and vocabulary.eos not in expected:
        logs = []
        for box in (OWN, *OTHERS):
            prompt = encode_prompts(processor, person.prompt(box, CONTEXT)[0], [CONTEXT])
            told = np.array([expected], np.int64)
            fills = {
                "input_ids": told, "attention_mask": np.ones_like(told),
                "token_type_ids": np.ones_like(told), "labels": told,
                "query_mask": np.zeros_like(told, np.bool_),
            }  # fmt: skip
            whole = {
                name: np.concatenate([array, fills[name]], 1)
                for name, array in vars(prompt).items()
            }
            with torch.inference_mode():
                hidden, _ = parts.engine.model.forward(
                    torch.from_numpy(parts.features), Prompts(**whole).to("cpu")
                )
                logits = parts.engine.model.logits(hidden[:, -1])[0]
            allowed = torch.from_numpy(vocabulary.later if expected else vocabulary.opening)
            logs.append(logits.masked_fill(~allowed, -torch.inf).log_softmax(-1))
        own, mean = logs[0], torch.stack(logs).exp().mean(0).log()
        scores = own + rationality * (own - mean)
        scores[own.exp() < PLAUSIBLE * own.exp().max()] = -torch.inf
        expected.append(int(scores.argmax()))
    ids = [token for token in expected if token != vocabulary.eos]
    assert said == decode_text(processor.tokenizer, ids)


class FakeBackbone:
    """Says the end after every token."""

    def __init__(self, end: Array) -> None:
        self._end = end

    def step(self, _state: None, tokens: npt.NDArray[np.int64]) -> Array:
        """The end's logits (V,) for each row."""
        return np.repeat(self._end[None], len(tokens), 0)


@pytest.mark.parametrize(
    ("other", "rationality", "expected"),
    [
        ((0.6, 0.1), 0.0, "small"),
        ((0.6, 0.1), 1.0, "small"),  # 0.3 (0.3 / 0.2) = 0.45 is less than 0.6 (0.6 / 0.6)
        ((0.6, 0.1), 2.0, "left"),  # 0.3 (0.3 / 0.2)^2 = 0.675
        ((0.1, 0.6), 2.0, "small"),  # the other box is more on the left than small
        ((0.6, 0.29), 2.0, "small"),  # neither tells much
    ],
)
def test_what_fits_another_object_as_well_is_not_said(
    other: tuple[float, float], rationality: float, expected: str
) -> None:
    tokenizer = load_processor(find_model(DEFAULT_MODEL)).tokenizer
    vocabulary = Vocabulary(tokenizer, len(tokenizer))
    small, left = tokenizer.convert_tokens_to_ids(["small", "left"])
    shares = np.full((2, len(tokenizer)), 1e-9, np.float32)
    shares[0, [small, left]], shares[1, [small, left]] = (0.6, 0.3), other
    end = np.full(len(tokenizer), -50.0, np.float32)
    end[vocabulary.eos] = 0.0
    fake: Any = FakeBackbone(end)
    said = pragmatic_reply(fake, vocabulary, Prefill(np.log(shares), None), rationality)
    assert decode_text(tokenizer, said.tokens) == expected
    assert said.probabilities == pytest.approx((0.6 if expected == "small" else 0.3,), rel=0.2)


def test_the_embedded_model_tells_an_answer_from_a_request() -> None:
    tokenizer = load_processor(find_model(DEFAULT_MODEL)).tokenizer
    unknown = tokenizer.unk_token_id
    for word in (ANSWER, DESCRIBE):
        assert unknown not in tokenizer(word, add_special_tokens=False)["input_ids"]
    assert same_tokens(tokenizer, ANSWER, DESCRIBE) == ""


def test_an_adapter_keeps_the_words_that_it_was_trained_with(
    random_model: Path, tmp_path: Path
) -> None:
    parts = random_parts(random_model, 0)
    parts.engine.peft.save(IVG, tmp_path)
    save_oracle_settings(OracleSettings(5, "left", "right"), tmp_path)
    oracle = Oracle(parts.checkpoint, tmp_path)
    assert ORACLE in parts.engine.adapters
    assert oracle.prompt((1, 2, 3, 4), "")[0] == "left <loc0001><loc0002><loc0003><loc0004>"
    (tmp_path / SETTINGS_FILE).write_text('{"max_new_tokens": 5}')
    assert load_oracle_settings(tmp_path) == OracleSettings(5, "answer", "describe")
    with pytest.warns(ClueWarning, match="same tokens of 'answer' and 'describe'"):
        Oracle(random_parts(random_model, 0).checkpoint, tmp_path)
    (tmp_path / SETTINGS_FILE).write_text('{"answer": 3}')
    with pytest.raises(ModelError, match="begins with 3"):
        load_oracle_settings(tmp_path)
