"""The backbone is transformers' PaliGemma 2, run half way, whole, or one token at a time."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import SIZES
from transformers.cache_utils import DynamicCache
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.model.config import half_depth_block, tiny_config
from clue_ros.model.prompts import Prompts, build_processor, build_tokenizer, encode_prompts
from clue_ros.model.torch_backbone import ATTENTION, TorchModel, load_model

CONTEXTS = ["the red block", "the block assistant: which one ? user: the left one", "cup"]


@pytest.fixture(scope="module")
def processor() -> Any:
    return build_processor(build_tokenizer([*CONTEXTS, "detect"]), 64, 64)


def make_backbone(processor: Any, **changes: int) -> TorchModel:
    torch.manual_seed(0)
    config = tiny_config(len(processor.tokenizer), **{**SIZES, **changes})
    # Larger weights than the default start, so that attention is not flat and errors show.
    config.text_config.initializer_range = 0.3
    model = PaliGemmaForConditionalGeneration._from_config(config, attn_implementation=ATTENTION)
    return TorchModel(model.eval())


@pytest.fixture(scope="module")
def backbone(processor: Any) -> TorchModel:
    return make_backbone(processor)


def pictures(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1


def reference(backbone: TorchModel, prompts: Prompts, pixels: torch.Tensor) -> Any:
    """Transformers' own full-depth forward, from pixels."""
    with torch.inference_mode():
        return backbone.model(
            input_ids=prompts.input_ids,
            attention_mask=prompts.attention_mask,
            token_type_ids=prompts.token_type_ids,
            pixel_values=pixels,
            output_attentions=True,
        )


@pytest.mark.parametrize("suffixes", [None, ["the cup", "<loc0001><loc0002>", "yes ?"]])
def test_half_depth_attention_is_transformers_own(
    backbone: TorchModel, processor: Any, suffixes: list[str] | None
) -> None:
    prompts = encode_prompts(processor, "detect", CONTEXTS, suffixes).to("cpu")
    pixels = pictures(3)
    full = reference(backbone, prompts, pixels)
    with torch.inference_mode():
        features = backbone.look(pixels)
        for block in range(backbone.blocks):
            attention = backbone.attention_at(block, features, prompts)
            assert attention.shape == full.attentions[block].shape
            torch.testing.assert_close(attention, full.attentions[block], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 7, "heads": 4, "kv_heads": 4},
        {"image_size": 32, "patch_size": 16, "width": 48, "heads": 6, "kv_heads": 3},
    ],
)
def test_other_sizes_need_no_other_code(changes: dict[str, int]) -> None:
    image_size, patch = changes.get("image_size", 64), changes.get("patch_size", 8)
    processor = build_processor(build_tokenizer(CONTEXTS), image_size, (image_size // patch) ** 2)
    backbone = make_backbone(processor, **changes)
    prompts = encode_prompts(processor, "detect", CONTEXTS[:1]).to("cpu")
    pixels = torch.zeros(1, 3, image_size, image_size)
    full = reference(backbone, prompts, pixels)
    block = half_depth_block(backbone.blocks)
    with torch.inference_mode():
        attention = backbone.attention_at(block, backbone.look(pixels), prompts)
    torch.testing.assert_close(attention, full.attentions[block], rtol=1e-5, atol=1e-7)


def test_a_sliding_window_shorter_than_the_prompt_is_kept(processor: Any) -> None:
    backbone = make_backbone(processor)
    backbone.text.sliding_window = 16
    prompts = encode_prompts(processor, "detect", CONTEXTS, ["a b c d"] * 3).to("cpu")
    full = reference(backbone, prompts, pictures(3))
    with torch.inference_mode():
        attention = backbone.attention_at(2, backbone.look(pictures(3)), prompts)
    torch.testing.assert_close(attention, full.attentions[2], rtol=1e-5, atol=1e-7)


def test_the_prefix_sees_itself_and_the_suffix_looks_back(
    backbone: TorchModel, processor: Any
) -> None:
    prompts = encode_prompts(processor, "detect", ["the red block"], ["the cup"]).to("cpu")
    with torch.inference_mode():
        attention = backbone.attention_at(0, backbone.look(pictures(1)), prompts)[0, 0]
    prefix = int((prompts.token_type_ids == 0).sum())
    assert (attention[:prefix, :prefix] > 0).all()
    assert (attention[:prefix, prefix:] == 0).all()
    suffix = attention[prefix:, prefix:]
    assert (suffix.triu(1) == 0).all()
    assert (suffix.tril() > 0).sum() == suffix.tril().count_nonzero()


def test_the_blocks_above_are_never_run(backbone: TorchModel, processor: Any) -> None:
    broken = copy.deepcopy(backbone)
    half = half_depth_block(backbone.blocks)
    for layer in broken.model.model.language_model.layers[half + 1 :]:
        layer.forward = None
    broken.model.model.language_model.layers[half].mlp.forward = None
    prompts = encode_prompts(processor, "detect", CONTEXTS[:1]).to("cpu")
    features = backbone.look(pictures(1))
    expected = backbone.attention_at(half, features, prompts)
    assert torch.equal(broken.attention_at(half, features, prompts), expected)
    with pytest.raises(ValueError, match="block"):
        backbone.attention_at(backbone.blocks, features, prompts)


def test_padding_changes_nothing(backbone: TorchModel, processor: Any) -> None:
    features = backbone.look(pictures(1))
    together = encode_prompts(processor, "detect", CONTEXTS).to("cpu")
    with torch.inference_mode():
        batch = backbone.attention_at(2, features, together)
        for i, context in enumerate(CONTEXTS):
            alone = encode_prompts(processor, "detect", [context]).to("cpu")
            length = alone.input_ids.shape[1]
            single = backbone.attention_at(2, features, alone)[0]
            torch.testing.assert_close(batch[i, :, :length, :length], single, rtol=1e-4, atol=1e-6)


def test_gradients_reach_the_lower_blocks_only(processor: Any) -> None:
    backbone = make_backbone(processor)
    prompts = encode_prompts(processor, "detect", CONTEXTS[:1]).to("cpu")
    features = backbone.look(pictures(1)).detach()
    # Each row of A sums to 1: look at part of it.
    total: Any = backbone.attention_at(2, features, prompts)[..., :5].sum()
    total.backward()
    layers = backbone.model.model.language_model.layers
    assert layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
    assert layers[2].self_attn.q_proj.weight.grad.abs().sum() > 0
    assert layers[3].self_attn.q_proj.weight.grad is None


def test_cached_features_give_the_logits_that_pixels_give(
    backbone: TorchModel, processor: Any
) -> None:
    prompts = encode_prompts(processor, "detect", CONTEXTS, ["the cup"] * 3).to("cpu")
    full = reference(backbone, prompts, pictures(3))
    with torch.inference_mode():
        hidden, attentions = backbone.forward(
            backbone.look(pictures(3)), prompts, output_attentions=True
        )
        raw = backbone.model.lm_head(hidden)
        capped = torch.tanh(raw / 30) * 30
        torch.testing.assert_close(backbone.logits(hidden), capped)
        # transformers before 5.21 leaves Gemma 2's final softcap out of PaliGemma.
        theirs = capped if torch.allclose(full.logits, capped, rtol=1e-4, atol=1e-5) else raw
        torch.testing.assert_close(full.logits, theirs)
    assert attentions is not None
    assert len(attentions) == backbone.blocks


def test_one_step_with_a_cache_equals_the_whole_prompt(
    backbone: TorchModel, processor: Any
) -> None:
    prefix = encode_prompts(processor, "detect", CONTEXTS[:1]).to("cpu")
    whole = encode_prompts(processor, "detect", CONTEXTS[:1], ["cup"]).to("cpu")  # cup <eos>
    length = prefix.input_ids.shape[1]
    features = backbone.look(pictures(1))
    with torch.inference_mode():
        expected, _ = backbone.forward(features, whole)
        cache = DynamicCache(config=backbone.text)
        backbone.forward(features, prefix, cache=cache)
        stepped = backbone.step(
            whole.input_ids[:, length],
            torch.tensor([length + 1]),
            torch.ones(1, length + 1, dtype=torch.long),
            cache,
        )
    torch.testing.assert_close(stepped, expected[:, length], rtol=1e-4, atol=1e-5)


def test_features_must_fit_the_image_tokens(backbone: TorchModel, processor: Any) -> None:
    prompts = encode_prompts(processor, "detect", CONTEXTS).to("cpu")
    with pytest.raises(ValueError, match="image tokens"):
        backbone.embed(prompts.input_ids, torch.zeros(1, 5, 32))


def test_the_block_of_the_paper() -> None:
    assert half_depth_block(26) == 14
    assert half_depth_block(6) == 3
    assert all(0 <= half_depth_block(n) < n for n in range(1, 60))


def test_loading_keeps_every_weight_and_counts_memory_once(processor: Any, tmp_path: Path) -> None:
    before = make_backbone(processor)
    before.model.save_pretrained(tmp_path)
    after = load_model(tmp_path)
    for (name, one), (_, two) in zip(
        before.model.named_parameters(), after.model.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name
    assert after.model.lm_head.weight is after.model.get_input_embeddings().weight
    assert not after.model.training
    weights = sum(p.numel() * 4 for p in after.model.parameters())
    assert weights <= after.memory_bytes() < weights + 10_000
    half = load_model(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert half.memory_bytes() < 0.51 * after.memory_bytes()
