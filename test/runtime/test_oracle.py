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
from clue_ros.model.decoding import (
    PLAUSIBLE,
    Prefill,
    Vocabulary,
    generate,
    pragmatic_reply,
)
from clue_ros.model.fast_decoder import FastDecoder
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
from clue_ros.model.prompts import decode_text, encode_prompts, load_processor

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


@pytest.fixture
def oracle(random_model: Path, tmp_path: Path) -> tuple[Oracle, Checkpoint, torch.Tensor]:
    """An oracle with random weights, its model, and features of no picture."""
    parts = random_checkpoint(random_model, 1)
    parts.adapters.save(IVG, tmp_path)
    save_oracle_settings(OracleSettings(6, "left", "right"), tmp_path)
    features = torch.randn(1, parts.backbone.grid**2, parts.backbone.text.hidden_size)
    return Oracle(parts, tmp_path), parts, features


OWN, OTHERS = (1, 3, 900, 1000), ((5, 40, 700, 800), (300, 500, 600, 900))


def test_without_others_or_rationality_an_answer_is_greedy(
    oracle: tuple[Oracle, Checkpoint, torch.Tensor],
) -> None:
    person, parts, features = oracle
    likeliest = person.answer(features, OWN, CONTEXT)
    prompts = encode_prompts(parts.processor, person.instruction(OWN), [CONTEXT])
    (said,) = generate(
        parts.backbone, parts.vocabulary, features, prompts, "question", max_new_tokens=6
    )
    assert parts.words(said) == likeliest != ""
    assert person.answer(features, OWN, CONTEXT, OTHERS, 0.0) == likeliest
    assert person.answer(features, OWN, CONTEXT, (), 4.0) == likeliest


@pytest.mark.parametrize("rationality", [0.5, 4.0])
def test_each_token_of_a_pragmatic_answer_is_what_whole_sequences_give(
    oracle: tuple[Oracle, Checkpoint, torch.Tensor], rationality: float
) -> None:
    person, parts, features = oracle
    said = person.answer(features, OWN, CONTEXT, OTHERS, rationality)
    backbone, vocabulary = parts.backbone, parts.vocabulary
    expected: list[int] = []
    while len(expected) < 6 and vocabulary.eos not in expected:
        logs = []
        for box in (OWN, *OTHERS):
            prompt = encode_prompts(parts.processor, person.instruction(box), [CONTEXT])
            told = torch.tensor([expected], dtype=torch.long)
            whole = {name: tensor.clone() for name, tensor in vars(prompt).items()}
            for name, fill in (
                ("input_ids", told),
                ("attention_mask", torch.ones_like(told)),
                ("token_type_ids", torch.ones_like(told)),
                ("labels", told),
                ("query_mask", torch.zeros_like(told, dtype=torch.bool)),
            ):
                whole[name] = torch.cat([whole[name], fill], 1)
            with torch.inference_mode():
                hidden, _ = backbone.forward(features, type(prompt)(**whole))
                logits = backbone.logits(hidden[:, -1])[0]
            allowed = vocabulary.later if expected else vocabulary.opening
            logs.append(logits.masked_fill(~allowed, -torch.inf).log_softmax(-1))
        own, mean = logs[0], torch.stack(logs).exp().mean(0).log()
        scores = own + rationality * (own - mean)
        scores[own.exp() < PLAUSIBLE * own.exp().max()] = -torch.inf
        expected.append(int(scores.argmax()))
    ids = [token for token in expected if token != vocabulary.eos]
    assert said == decode_text(parts.processor.tokenizer, ids)


class FakeBackbone:
    """Says "small" or "left", then the end; a step's hidden state is its logits."""

    def __init__(self, end: torch.Tensor) -> None:
        self._end = end

    def step(self, chosen: torch.Tensor, *_: object) -> torch.Tensor:
        """The end after every token."""
        return self._end.expand(len(chosen), -1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The hidden states."""
        return hidden


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
    shares = torch.full((2, len(tokenizer)), 1e-9)
    for row, (first, second) in zip(shares, ((0.6, 0.3), other), strict=True):
        row[small], row[left] = first, second
    end = torch.full((len(tokenizer),), -50.0)
    end[vocabulary.eos] = 0.0
    mask = torch.ones(2, 3, dtype=torch.long)
    prefill = Prefill(shares.log(), mask.sum(1), mask, None)
    said = pragmatic_reply(
        FakeBackbone(end),  # type: ignore[arg-type]
        vocabulary,
        prefill,
        rationality,
    )
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
