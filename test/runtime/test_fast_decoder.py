"""The decoder for inference gives what the plain one gives, on fresh random inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import write_random_model

from benchmarks.full_size import random_adapters
from clue_ros.model import fast_decoder, products
from clue_ros.model.adapters import Adapters
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.decoding import (
    Mode,
    Vocabulary,
    generate,
    question_share,
    read_prompts,
    reply_to,
)
from clue_ros.model.fast_decoder import FastDecoder, KeyValues
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model

CONTEXTS = ["the red block", "pick up the block assistant: which one ? user: the left one", "cup"]


@pytest.fixture(scope="module")
def processor(random_model: Path) -> Any:
    return load_processor(random_model)


def parts(random_model: Path, seed: int) -> tuple[TorchModel, Adapters]:
    """A base and two adapters, with random weights large enough for errors to show."""
    backbone = load_model(random_model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in backbone.model.model.language_model.layers.parameters():
            weight.normal_(std=0.3)
    return backbone, random_adapters(backbone, seed=seed)


@contextmanager
def plain() -> Iterator[None]:
    """Replies by transformers' own modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastDecoder, "fits", lambda _self, _length: False)
        yield


def attended(backbone: TorchModel, block: int, features: torch.Tensor, prompts: Prompts) -> Any:
    with torch.inference_mode():
        weights, words = backbone.word_attention(block, features, prompts)
    return weights.masked_fill(~words[:, None, :, None], 0.0)


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("_draw", range(3))
def test_attention_and_hidden_states_are_the_plain_ones(
    random_model: Path,
    processor: Any,
    monkeypatch: pytest.MonkeyPatch,
    fresh_seed: int,
    _draw: int,
    merged: bool,
) -> None:
    if not merged:
        monkeypatch.setattr(fast_decoder, "MERGED_BYTES", 0)
    backbone, adapters = parts(random_model, fresh_seed)
    for contexts in ([CONTEXTS[1]], [CONTEXTS[0]] * 3, CONTEXTS):  # the last ones are padded
        prompts = encode_prompts(processor, "detect", contexts)
        features = torch.randn(len(contexts), backbone.grid**2, backbone.text.hidden_size)
        for name in (None, DETECTOR, IVG):
            adapters.use(name)
            for block in range(backbone.blocks):
                fast = attended(backbone, block, features, prompts)
                with plain():
                    expected = attended(backbone, block, features, prompts)
                torch.testing.assert_close(fast, expected, rtol=1e-4, atol=1e-5)
            prefill = read_prompts(backbone, features, prompts)
            assert isinstance(prefill.cache, KeyValues)
            with plain():
                slow = read_prompts(backbone, features, prompts)
            assert not isinstance(slow.cache, KeyValues)
            torch.testing.assert_close(prefill.logits, slow.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cached", [0, products.CACHED])
def test_groups_of_heads_are_the_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_seed: int, cached: int
) -> None:
    """At once, and one after the other."""
    monkeypatch.setattr(fast_decoder, "CACHED", cached)
    folder = write_random_model(tmp_path / "grouped", width=64, heads=8, kv_heads=4)
    processor, (backbone, adapters) = load_processor(folder), parts(folder, fresh_seed)
    adapters.use(IVG)
    for contexts in (CONTEXTS[:1], CONTEXTS):
        prompts = encode_prompts(processor, "clarify", contexts)
        features = torch.randn(len(contexts), backbone.grid**2, backbone.text.hidden_size)
        fast = read_prompts(backbone, features, prompts)
        assert isinstance(fast.cache, KeyValues)
        with plain():
            slow = read_prompts(backbone, features, prompts)
        torch.testing.assert_close(fast.logits, slow.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("_draw", range(3))
def test_replies_are_the_plain_ones(
    random_model: Path, processor: Any, fresh_seed: int, _draw: int
) -> None:
    """Longer ones than a cache has room for at first, and those of padded prompts."""
    backbone, adapters = parts(random_model, fresh_seed)
    vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size)
    adapters.use(IVG)
    prompts = encode_prompts(processor, "clarify", CONTEXTS)
    features = torch.randn(len(CONTEXTS), backbone.grid**2, backbone.text.hidden_size)
    modes: tuple[Mode, ...] = ("unconstrained", "question", "grounding")
    for mode in modes:
        fast = generate(backbone, vocabulary, features, prompts, mode, max_new_tokens=48)
        with plain():
            expected = generate(backbone, vocabulary, features, prompts, mode, max_new_tokens=48)
        for one, other in zip(fast, expected, strict=True):
            assert one.tokens == other.tokens
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


def test_changed_weights_are_noticed(random_model: Path, processor: Any) -> None:
    """Merged copies are made anew where training, or a loaded file, has written to a weight."""
    backbone, adapters = parts(random_model, 0)
    prompts = encode_prompts(processor, "detect", CONTEXTS[:1])
    features = torch.randn(1, backbone.grid**2, backbone.text.hidden_size)
    adapters.use(DETECTOR)
    before = attended(backbone, 2, features, prompts)
    with torch.no_grad():
        for weight in adapters.parameters(DETECTOR):
            weight.mul_(2.0)
    after = attended(backbone, 2, features, prompts)
    assert not torch.allclose(before, after, atol=1e-3)
    with plain():
        torch.testing.assert_close(after, attended(backbone, 2, features, prompts))


def test_a_window_shorter_than_the_prompt_takes_the_plain_path(
    random_model: Path, processor: Any
) -> None:
    backbone, _ = parts(random_model, 0)
    backbone.text.sliding_window = 8
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    features = torch.randn(1, backbone.grid**2, backbone.text.hidden_size)
    assert not isinstance(read_prompts(backbone, features, prompts).cache, KeyValues)


def test_the_head_runs_once_for_each_token(
    random_model: Path, processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits that policy "both" reads whether to ask from are those of the first token."""
    backbone, adapters = parts(random_model, 1)
    vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size)
    adapters.use(IVG)
    calls = []
    logits = TorchModel.logits

    def counted(self: TorchModel, hidden: torch.Tensor) -> torch.Tensor:
        calls.append(len(hidden))
        return logits(self, hidden)

    monkeypatch.setattr(TorchModel, "logits", counted)
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    features = torch.randn(1, backbone.grid**2, backbone.text.hidden_size)
    prefill = read_prompts(backbone, features, prompts)
    share = question_share(vocabulary, prefill)
    (said,) = reply_to(backbone, vocabulary, prefill, "grounding")
    assert 0 <= float(share) <= 1
    assert len(calls) == len(said.tokens) == 4
