"""Constrained decoding keeps its promises; unconstrained, it is transformers' greedy generate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clue_ros.model.decoding import Generation, Mode, Vocabulary, generate
from clue_ros.model.location_tokens import is_valid
from clue_ros.model.prompts import IMAGE, SEGMENTS, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model

Make = Callable[[int], tuple[TorchModel, Vocabulary]]

CONTEXTS = [
    "the red block",
    "pick up the block assistant: which one ? user: the left one",
    "the ball",
    "green",
]


@pytest.fixture(scope="module")
def processor(random_model: Path) -> Any:
    return load_processor(random_model)


@pytest.fixture(scope="module")
def make(random_model: Path, processor: Any) -> Make:
    """A backbone with its own random weights, and its vocabulary."""

    def build(seed: int) -> tuple[TorchModel, Vocabulary]:
        backbone = load_model(random_model)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in backbone.model.model.language_model.layers.parameters():
                weight.normal_(std=0.3)
            backbone.model.lm_head.weight.normal_(std=0.3)
        return backbone, Vocabulary(processor.tokenizer, backbone.text.vocab_size)

    return build


def pictures(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(3)) * 2 - 1


@pytest.mark.parametrize("seed", range(3))
def test_unconstrained_decoding_is_transformers_generate(
    make: Make, processor: Any, seed: int
) -> None:
    backbone, vocabulary = make(seed)
    for context in CONTEXTS:
        prompts = encode_prompts(processor, "clarify", [context])
        theirs = backbone.model.generate(
            input_ids=prompts.input_ids,
            attention_mask=prompts.attention_mask,
            token_type_ids=prompts.token_type_ids,
            pixel_values=pictures(1),
            max_new_tokens=10,
            do_sample=False,
        )[0, prompts.input_ids.shape[1] :].tolist()
        features = backbone.look(pictures(1))
        ours = generate(
            backbone, vocabulary, features, prompts, "unconstrained", max_new_tokens=10
        )[0]
        eos = vocabulary.eos
        expected = theirs[: theirs.index(eos)] if eos in theirs else theirs
        assert list(ours.tokens) == expected


@pytest.mark.parametrize("mode", ["unconstrained", "question", "grounding", "free"])
def test_a_batch_says_what_single_prompts_say(make: Make, processor: Any, mode: Mode) -> None:
    backbone, vocabulary = make(0)
    features = backbone.look(pictures(len(CONTEXTS)))
    prompts = encode_prompts(processor, "clarify", CONTEXTS)
    together = generate(backbone, vocabulary, features, prompts, mode, max_new_tokens=8)
    for i, context in enumerate(CONTEXTS):
        alone = encode_prompts(processor, "clarify", [context])
        single = generate(backbone, vocabulary, features[i : i + 1], alone, mode, max_new_tokens=8)[
            0
        ]
        assert single.tokens == together[i].tokens
        assert single.score == pytest.approx(together[i].score, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_a_grounding_is_four_locations_that_make_a_box(
    make: Make, processor: Any, seed: int
) -> None:
    backbone, vocabulary = make(seed)
    prompts = encode_prompts(processor, "clarify", CONTEXTS)
    for said in generate(backbone, vocabulary, backbone.look(pictures(4)), prompts, "grounding"):
        assert said.is_grounding
        assert len(said.tokens) == 4
        assert said.codes is not None
        assert is_valid(said.codes)
        assert 0 < said.score <= 1


@pytest.mark.parametrize("token", ["<loc1023>", "<loc1022>", "<loc0000>"])
def test_a_decoder_that_repeats_one_location_still_makes_a_box(
    make: Make, processor: Any, token: str
) -> None:
    backbone, vocabulary = make(0)
    favour(backbone, processor, {token: 25.0})
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    said = generate(backbone, vocabulary, backbone.look(pictures(1)), prompts, "grounding")[0]
    assert said.codes is not None
    assert is_valid(said.codes)


@pytest.mark.parametrize("mode", ["grounding", "free"])
def test_a_grounding_may_go_through_other_boxes_and_means_the_last(
    make: Make, processor: Any, mode: Mode
) -> None:
    """As many boxes as the decoder wants, whole ones, up to the limit; the score is of the last."""
    backbone, vocabulary = make(0)
    first, eos = vocabulary.first_location, vocabulary.eos
    said: list[int] = []

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        """Boxes 10 40 20 50 ; 11 41 21 51 and so on; after `wanted` of them rather <eos>."""
        n, side = divmod(len(said), 5)
        out = torch.zeros(1, backbone.text.vocab_size)
        out[0, first + (10, 40, 20, 50, 90)[side] + n] = 30.0  # mid-box or after one, where it
        out[0, eos] = 60.0 if n + 1 >= wanted else -60.0  # may not end or no side may come
        said.append(0)
        return out

    patched: Any = backbone
    patched.logits = logits
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    features = backbone.look(pictures(1))
    for wanted, boxes in ((0, 1), (1, 1), (2, 2), (3, 3), (9, 3)):
        said.clear()
        if mode == "free" and wanted == 0:
            continue  # <eos> first is no reply
        reply = generate(backbone, vocabulary, features, prompts, mode, max_boxes=3)[0]
        assert len(reply.tokens) == 5 * boxes - 1
        assert {reply.tokens[i] for i in range(4, len(reply.tokens), 5)} <= {vocabulary.between}
        found = [tuple(v + n for v in (10, 40, 20, 50)) for n in range(boxes)]
        assert [*reply.via, reply.codes] == found


def test_boxes_that_nothing_can_part_are_refused(make: Make, processor: Any) -> None:
    backbone, vocabulary = make(0)
    vocabulary.between = None
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    with pytest.raises(ValueError, match="no token ';'"):
        generate(
            backbone, vocabulary, backbone.look(pictures(1)), prompts, "grounding", max_boxes=2
        )


def test_the_score_of_a_grounding_is_of_its_own_box() -> None:
    probabilities = (0.01,) * 5 + (0.5, 1.0, 1.0, 0.5)
    found = Generation(tuple(range(9)), probabilities, (1, 2, 3, 4))
    assert found.score == pytest.approx(0.5**0.5)


def favour(backbone: TorchModel, processor: Any, wishes: dict[str, float]) -> None:
    """Make the decoder want some tokens, whatever it sees."""
    bonus = torch.zeros(backbone.text.vocab_size)
    for token, amount in wishes.items():
        bonus[processor.tokenizer.convert_tokens_to_ids(token)] = amount
    plain = backbone.logits
    patched: Any = backbone
    patched.logits = lambda hidden: plain(hidden) + bonus


@pytest.mark.parametrize(
    "wish", ["<loc0100>", "<eos>", IMAGE, "<pad>", "<bos>", "<unk>", SEGMENTS[5], "\n", "<mask>"]
)
def test_a_question_opens_with_a_word_whatever_the_decoder_wants(
    make: Make, processor: Any, wish: str
) -> None:
    backbone, vocabulary = make(0)
    favour(backbone, processor, {wish: 1000.0})
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:2])
    for said in generate(
        backbone, vocabulary, backbone.look(pictures(1)), prompts, "question", max_new_tokens=6
    ):
        assert not said.is_grounding
        assert len(said.tokens) >= 1
        tokens = processor.tokenizer.convert_ids_to_tokens(list(said.tokens))
        assert tokens[0] not in ("\n", wish)
        banned = {*processor.tokenizer.all_special_tokens, *SEGMENTS, "<loc0100>"}
        assert not banned & set(tokens)
        # <eos> and a newline may come later.
        assert len(said.tokens) == (1 if wish == "<eos>" else 6)


def test_a_question_ends_at_its_limit(make: Make, processor: Any) -> None:
    backbone, vocabulary = make(0)
    favour(backbone, processor, {"the": 1000.0})
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    for limit in (1, 5):
        said = generate(
            backbone,
            vocabulary,
            backbone.look(pictures(1)),
            prompts,
            "question",
            max_new_tokens=limit,
        )[0]
        assert processor.tokenizer.convert_ids_to_tokens(list(said.tokens)) == ["the"] * limit


def test_the_first_token_decides_when_decoding_is_free(make: Make, processor: Any) -> None:
    backbone, vocabulary = make(0)
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    features = backbone.look(pictures(1))
    plain = backbone.logits
    favour(backbone, processor, {"the": 500.0, "<loc0007>": 100.0})
    assert not generate(backbone, vocabulary, features, prompts, "free")[0].is_grounding
    patched: Any = backbone
    patched.logits = plain
    favour(backbone, processor, {"the": 100.0, "<loc0007>": 500.0, "<eos>": 900.0})
    said = generate(backbone, vocabulary, features, prompts, "free", max_new_tokens=2)[0]
    assert said.codes is not None
    assert said.codes[0] == 7
    assert is_valid(said.codes)


@pytest.mark.parametrize(
    ("center", "low", "high"), [(500, 480, 520), (3, 0, 23), (1023, 1003, 1023)]
)
def test_the_score_of_a_location_counts_what_is_near_it(
    make: Make, center: int, low: int, high: int
) -> None:
    _, vocabulary = make(0)
    shares = torch.zeros(len(vocabulary.words))
    first = vocabulary.first_location
    # One step beyond the window on each side, and a word beside the locations, count for nothing.
    shares[[first - 1, vocabulary.eos]] = 0.05
    outside = [step for step in (low - 1, high + 1) if 0 <= step < 1024]
    shares[[first + step for step in outside]] = 0.1
    inside = 0.9 - 0.1 * len(outside)
    shares[first + center] = inside / 2
    shares[[first + low, first + high]] += inside / 4
    assert shares.sum() == pytest.approx(1)
    assert vocabulary.probability(shares, first + center) == pytest.approx(inside)
    assert vocabulary.probability(shares, first - 1) == pytest.approx(0.05)


def test_a_grounding_reports_the_probability_near_each_of_its_sides(
    make: Make, processor: Any
) -> None:
    """Certain of a place to within a few steps is certain, although no single step is likely."""
    backbone, vocabulary = make(0)
    first = vocabulary.first_location
    spread = {f"<loc{step:04d}>": 1000.0 for step in range(100, 120)}
    patched: Any = backbone
    patched.logits = lambda hidden: torch.zeros(len(hidden), backbone.text.vocab_size)
    favour(backbone, processor, spread)
    prompts = encode_prompts(processor, "clarify", CONTEXTS[:1])
    said = generate(backbone, vocabulary, backbone.look(pictures(1)), prompts, "grounding")[0]
    assert all(100 <= token - first < 120 for token in said.tokens)
    assert said.score == pytest.approx(1, abs=1e-3)


def test_the_score_is_the_geometric_mean() -> None:
    assert Generation((1, 2), (0.25, 1.0), None).score == pytest.approx(0.5)
    assert Generation((), (), None).score == 0
