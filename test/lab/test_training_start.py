"""Where a base starts from: another's weights, words by their text, new blocks as identity."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.training.base import (
    adopt,
    at_other_places,
    blocks_from,
    location_table,
    save_base,
    sizes_of,
)
from clue_ros.model.backbone import load_backbone
from clue_ros.model.config import half_depth_block, tiny_config
from clue_ros.model.prompts import build_tokenizer

SIZES = {
    "image_size": 32,
    "patch_size": 8,
    "width": 32,
    "mlp": 48,
    "heads": 4,
    "kv_heads": 2,
    "layers": 4,
    "vision_layers": 2,
    "vision_heads": 4,
}
TOKENIZER = build_tokenizer(vocabulary())


def new_model(tokenizer: Any = TOKENIZER, **sizes: int) -> Any:
    """An untrained model, which is enough here, of SIZES where `sizes` does not say otherwise."""
    config: Any = tiny_config(len(tokenizer), **{**SIZES, **sizes})
    config.text_config._attn_implementation = "eager"
    return PaliGemmaForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a base whose norms are not all the same."""
    torch.manual_seed(0)
    model = new_model()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.add_(torch.randn_like(p) * 0.1)
    folder = tmp_path_factory.mktemp("start") / "base"
    save_base(model, TOKENIZER, folder)
    return folder


def inputs(tokens: int = 16) -> dict[str, torch.Tensor]:
    image = TOKENIZER.convert_tokens_to_ids("<image>")
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[image] * tokens + [2, 20, 21, 22]])
    return {"input_ids": ids, "pixel_values": pixels}


def test_a_base_can_start_from_another_and_knows_its_words(base: Path) -> None:
    words = build_tokenizer([*vocabulary(), "zebra"])
    model = new_model(words)
    new = model.get_input_embeddings().weight[words.convert_tokens_to_ids("zebra")].clone()
    assert adopt(model, words, str(base)) == len(TOKENIZER)
    source: Any = load_backbone(base).model
    mine, theirs = model.get_input_embeddings().weight, source.get_input_embeddings().weight
    for token in ("block", "<loc0512>", "<image>"):
        row = mine[words.convert_tokens_to_ids(token)]
        assert torch.equal(row, theirs[TOKENIZER.convert_tokens_to_ids(token)])
    assert torch.equal(mine[words.convert_tokens_to_ids("zebra")], new)
    first = TOKENIZER.convert_tokens_to_ids("<loc0000>")
    assert torch.equal(location_table(model, words), theirs[first : first + 1024])
    kept = dict(source.named_parameters())
    for name, p in model.named_parameters():
        assert "embed_tokens" in name or torch.equal(p, kept[name]), name


def test_every_block_has_its_place_and_the_detectors_stays_at_half_depth() -> None:
    assert blocks_from(6, 6) == {i: i for i in range(6)}
    assert blocks_from(6, 10) == {0: 0, 1: 1, 2: 2, 5: 3, 6: 4, 7: 5}
    for there in range(1, 27):
        for here in range(there, 27):
            found = blocks_from(there, here)
            assert sorted(found.values()) == list(range(there))
            assert list(found) == sorted(found)
            assert set(found) <= set(range(here))
            assert found[half_depth_block(here)] == half_depth_block(there)


def test_a_deeper_base_first_computes_what_its_start_did(base: Path) -> None:
    source: Any = load_backbone(base).model
    model = new_model(layers=7, vision_layers=4)
    adopt(model, TOKENIZER, str(base))
    with torch.no_grad():
        out = [m(**inputs(), output_attentions=True) for m in (model, source)]
    torch.testing.assert_close(out[0].logits, out[1].logits)
    half = [half_depth_block(len(o.attentions)) for o in out]
    assert half[0] > half[1]
    for i in (0, 1):  # what the detector reads, and the block that points
        maps = [o.attentions[h + i] for o, h in zip(out, half, strict=True)]
        torch.testing.assert_close(maps[0], maps[1])


def test_the_new_blocks_of_a_deeper_base_learn(base: Path) -> None:
    model = new_model(layers=7, vision_layers=4)
    adopt(model, TOKENIZER, str(base))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for _ in range(3):  # the first step moves what a branch ends in, the next what comes before it
        optimizer.zero_grad()
        model(**inputs()).logits.square().mean().backward()
        optimizer.step()
    still = [n for n, p in model.named_parameters() if torch.equal(p, before[n])]
    # a softmax does not see what is added to all of its keys alike
    assert all(name.endswith("k_proj.bias") for name in still), still


def test_a_larger_picture_keeps_the_positions_of_its_places(base: Path) -> None:
    side = torch.arange(4.0)
    ramp = torch.stack([side.repeat_interleave(4), side.repeat(4), torch.ones(16)], dim=1)
    finer = at_other_places(ramp, 64).view(8, 8, 3)
    expected = (torch.arange(8.0) / 2 - 0.25).clamp(0, 3)
    near: Any = {"atol": 0.15, "rtol": 0.0}  # of a patch: bicubic bends a ramp at its ends
    torch.testing.assert_close(finer[..., 0], expected[:, None].expand(8, 8), **near)
    torch.testing.assert_close(finer[..., 1], expected[None].expand(8, 8), **near)
    torch.testing.assert_close(finer[..., 2], torch.ones(8, 8))
    model = new_model(image_size=64)
    adopt(model, TOKENIZER, str(base))
    with torch.no_grad():
        out = model(**{**inputs(64), "pixel_values": torch.zeros(1, 3, 64, 64)})
    assert out.logits.isfinite().all()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("image_size", 225, "--image-size must be a multiple of 16, not 225"),
        ("image_size", 0, "--image-size must be a multiple of 16, not 0"),
        ("vision_layers", 0, "--vision-layers must be at least 1, not 0"),
    ],
)
def test_a_size_that_cannot_be_is_refused(option: str, value: int, says: str) -> None:
    given = {"layers": None, "vision_layers": None, "image_size": None, option: value}
    with pytest.raises(ClueError, match=says):
        sizes_of(argparse.Namespace(**given))


def test_a_base_with_fewer_blocks_than_its_start_is_refused(base: Path) -> None:
    with pytest.raises(ClueError, match="2 blocks in its vision tower, more than 1 here"):
        adopt(new_model(vision_layers=1), TOKENIZER, str(base))
    with pytest.raises(ClueError, match="4 blocks in its decoder, more than 3 here"):
        adopt(new_model(layers=3), TOKENIZER, str(base))


def test_a_base_of_other_sizes_is_no_start(base: Path) -> None:
    with pytest.raises(ClueError, match=r"--init .*mlp"):
        adopt(new_model(mlp=40), TOKENIZER, str(base))
