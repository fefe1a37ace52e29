"""Constrained decoding keeps its promises; unconstrained, it is transformers' greedy generate."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from clue_ros.model.backbone import Array
from clue_ros.model.decoding import Generation, Mode, Vocabulary, read_prompts, reply_to
from clue_ros.model.location_tokens import is_valid
from clue_ros.model.prompts import IMAGE, SEGMENTS, encode_prompts, load_processor
from clue_ros.model.torch_backbone import State, TorchBackbone, load_model

Change = Callable[[Array], Array]


class Wishful(TorchBackbone):
    """A decoder whose logits (B, V) are changed on the way out."""

    def change(self, logits: Array) -> Array:
        """Nothing, until a test says what."""
        return logits

    def read(self, *arguments: Any) -> tuple[State, Array]:
        """As the decoder, changed."""
        state, logits = super().read(*arguments)
        return state, self.change(logits)

    def step(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """As the decoder, changed."""
        return self.change(super().step(state, tokens))


Make = Callable[[int], tuple[Wishful, Vocabulary]]
Say = Callable[..., list[Generation]]

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

    def build(seed: int) -> tuple[Wishful, Vocabulary]:
        model = load_model(random_model)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in model.model.model.language_model.layers.parameters():
                weight.normal_(std=0.3)
            model.model.lm_head.weight.normal_(std=0.3)
        return Wishful(model), Vocabulary(processor.tokenizer, model.text.vocab_size)

    return build


@pytest.fixture
def say(processor: Any) -> Say:
    """Replies to contexts about random pictures, one for all or one for each."""

    def reply(
        parts: tuple[Wishful, Vocabulary],
        mode: Mode,
        contexts: Sequence[str] = CONTEXTS[:1],
        images: Array | None = None,
        **settings: Any,
    ) -> list[Generation]:
        backbone, vocabulary = parts
        prompts = encode_prompts(processor, "clarify", contexts)
        features = backbone.look(pictures(1) if images is None else images)
        prefill = read_prompts(backbone, features, prompts, None)
        return reply_to(backbone, vocabulary, prefill, mode, **settings)

    return reply


def pictures(count: int) -> Array:
    return np.random.default_rng(3).random((count, 3, 64, 64), np.float32) * 2 - 1


@pytest.mark.parametrize("seed", range(3))
def test_unconstrained_decoding_is_transformers_generate(
    make: Make, processor: Any, say: Say, seed: int
) -> None:
    backbone, vocabulary = make(seed)
    for context in CONTEXTS:
        prompts = encode_prompts(processor, "clarify", [context]).to("cpu")
        theirs = backbone.model.model.generate(
            input_ids=prompts.input_ids,
            attention_mask=prompts.attention_mask,
            token_type_ids=prompts.token_type_ids,
            pixel_values=torch.from_numpy(pictures(1)),
            max_new_tokens=10,
            do_sample=False,
        )[0, prompts.input_ids.shape[1] :].tolist()
        (ours,) = say((backbone, vocabulary), "unconstrained", [context], max_new_tokens=10)
        eos = vocabulary.eos
        expected = theirs[: theirs.index(eos)] if eos in theirs else theirs
        assert list(ours.tokens) == expected


@pytest.mark.parametrize("mode", ["unconstrained", "question", "grounding", "free"])
def test_a_batch_says_what_single_prompts_say(make: Make, say: Say, mode: Mode) -> None:
    parts, images = make(0), pictures(len(CONTEXTS))
    together = say(parts, mode, CONTEXTS, images, max_new_tokens=8)
    for i, context in enumerate(CONTEXTS):
        (single,) = say(parts, mode, [context], images[i : i + 1], max_new_tokens=8)
        assert single.tokens == together[i].tokens
        assert single.score == pytest.approx(together[i].score, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_a_grounding_is_four_locations_that_make_a_box(make: Make, say: Say, seed: int) -> None:
    for said in say(make(seed), "grounding", CONTEXTS, pictures(4)):
        assert said.is_grounding
        assert len(said.tokens) == 4
        assert said.codes is not None
        assert is_valid(said.codes)
        assert 0 < said.score <= 1


@pytest.mark.parametrize("token", ["<loc1023>", "<loc1022>", "<loc0000>"])
def test_a_decoder_that_repeats_one_location_still_makes_a_box(
    make: Make, processor: Any, say: Say, token: str
) -> None:
    parts = make(0)
    favour(parts, processor, {token: 25.0})
    (said,) = say(parts, "grounding")
    assert said.codes is not None
    assert is_valid(said.codes)


@pytest.mark.parametrize("mode", ["grounding", "free"])
def test_a_grounding_may_go_through_other_boxes_and_means_the_last(
    make: Make, say: Say, mode: Mode
) -> None:
    """As many boxes as the decoder wants, whole ones, up to the limit; the score is of the last."""
    parts = backbone, vocabulary = make(0)
    first, eos = vocabulary.first_location, vocabulary.eos
    said: list[int] = []

    def wish(logits: Array) -> Array:
        """Boxes 10 40 20 50 ; 11 41 21 51 and so on; after `wanted` of them rather <eos>."""
        n, side = divmod(len(said), 5)
        out = np.zeros_like(logits)
        out[0, first + (10, 40, 20, 50, 90)[side] + n] = 30.0  # mid-box or after one, where it
        out[0, eos] = 60.0 if n + 1 >= wanted else -60.0  # may not end or no side may come
        said.append(0)
        return out

    hope(backbone, wish)
    for wanted, boxes in ((0, 1), (1, 1), (2, 2), (3, 3), (9, 3)):
        said.clear()
        if mode == "free" and wanted == 0:
            continue  # <eos> first is no reply
        (reply,) = say(parts, mode, max_boxes=3)
        assert len(reply.tokens) == 5 * boxes - 1
        assert {reply.tokens[i] for i in range(4, len(reply.tokens), 5)} <= {vocabulary.between}
        found = [tuple(v + n for v in (10, 40, 20, 50)) for n in range(boxes)]
        assert [*reply.via, reply.codes] == found


def test_boxes_that_nothing_can_part_are_refused(make: Make, say: Say) -> None:
    parts = make(0)
    parts[1].between = None
    with pytest.raises(ValueError, match="no token ';'"):
        say(parts, "grounding", max_boxes=2)


def test_the_score_of_a_grounding_is_of_its_own_box() -> None:
    probabilities = (0.01,) * 5 + (0.5, 1.0, 1.0, 0.5)
    found = Generation(tuple(range(9)), probabilities, (1, 2, 3, 4))
    assert found.score == pytest.approx(0.5**0.5)


def hope(backbone: Wishful, change: Change) -> None:
    """Change its logits."""
    changed: Any = backbone
    changed.change = change


def favour(parts: tuple[Wishful, Vocabulary], processor: Any, wishes: dict[str, float]) -> None:
    """Make the decoder want some tokens, whatever it sees."""
    bonus = np.zeros(len(parts[1].words), np.float32)
    for token, amount in wishes.items():
        bonus[processor.tokenizer.convert_tokens_to_ids(token)] = amount
    hope(parts[0], lambda logits: logits + bonus)


@pytest.mark.parametrize(
    "wish", ["<loc0100>", "<eos>", IMAGE, "<pad>", "<bos>", "<unk>", SEGMENTS[5], "\n", "<mask>"]
)
def test_a_question_opens_with_a_word_whatever_the_decoder_wants(
    make: Make, processor: Any, say: Say, wish: str
) -> None:
    parts = make(0)
    favour(parts, processor, {wish: 1000.0})
    for said in say(parts, "question", CONTEXTS[:2], max_new_tokens=6):
        assert not said.is_grounding
        assert len(said.tokens) >= 1
        tokens = processor.tokenizer.convert_ids_to_tokens(list(said.tokens))
        assert tokens[0] not in ("\n", wish)
        banned = {*processor.tokenizer.all_special_tokens, *SEGMENTS, "<loc0100>"}
        assert not banned & set(tokens)
        # <eos> and a newline may come later.
        assert len(said.tokens) == (1 if wish == "<eos>" else 6)


def test_a_question_ends_at_its_limit(make: Make, processor: Any, say: Say) -> None:
    parts = make(0)
    favour(parts, processor, {"the": 1000.0})
    for limit in (1, 5):
        (said,) = say(parts, "question", max_new_tokens=limit)
        assert processor.tokenizer.convert_ids_to_tokens(list(said.tokens)) == ["the"] * limit


def test_the_first_token_decides_when_decoding_is_free(
    make: Make, processor: Any, say: Say
) -> None:
    parts = make(0)
    favour(parts, processor, {"the": 500.0, "<loc0007>": 100.0})
    assert not say(parts, "free")[0].is_grounding
    favour(parts, processor, {"the": 100.0, "<loc0007>": 500.0, "<eos>": 900.0})
    (said,) = say(parts, "free", max_new_tokens=2)
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
    shares = np.zeros(len(vocabulary.words), np.float32)
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
    make: Make, processor: Any, say: Say
) -> None:
    """Certain of a place to within a few steps is certain, although no single step is likely."""
    parts = make(0)
    likely = processor.tokenizer.convert_tokens_to_ids(
        [f"<loc0{step}>" for step in range(100, 120)]
    )
    wanted = np.zeros((1, len(parts[1].words)), np.float32)
    wanted[:, likely] = 1000.0
    hope(parts[0], lambda _logits: wanted)
    (said,) = say(parts, "grounding")
    assert set(said.tokens) <= set(likely)
    assert said.score == pytest.approx(1, abs=1e-3)


def test_the_score_is_the_geometric_mean() -> None:
    assert Generation((1, 2), (0.25, 1.0), None).score == pytest.approx(0.5)
    assert Generation((), (), None).score == 0
