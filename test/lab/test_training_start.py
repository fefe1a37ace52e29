"""Where a base starts from: another's weights, words by their text."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.training.base import BaseOptions, adopt, resize_positions, save_base
from clue_ros.lab.training.decoder import location_table
from clue_ros.model.config import tiny_config
from clue_ros.model.prompts import build_tokenizer
from clue_ros.model.torch_backbone import load_model

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
    source: Any = load_model(base).model
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


def test_a_larger_picture_keeps_the_positions_of_its_places(base: Path) -> None:
    side = torch.arange(4.0)
    ramp = torch.stack([side.repeat_interleave(4), side.repeat(4), torch.ones(16)], dim=1)
    finer = resize_positions(ramp, 64).view(8, 8, 3)
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


@pytest.mark.parametrize("side", [225, 0])
def test_a_size_that_cannot_be_is_refused(side: int) -> None:
    with pytest.raises(ClueError, match=f"--image-size must be a multiple of 16, not {side}"):
        BaseOptions(out=Path("out"), image_size=side)


@pytest.mark.parametrize("sizes", [{"layers": 3}, {"layers": 5}, {"vision_layers": 1}])
def test_a_base_with_other_blocks_than_its_start_is_refused(
    base: Path, sizes: dict[str, int]
) -> None:
    with pytest.raises(ClueError, match=r"--init .*layers.* is .*nothing"):
        adopt(new_model(**sizes), TOKENIZER, str(base))


def test_a_base_of_other_sizes_is_no_start(base: Path) -> None:
    with pytest.raises(ClueError, match=r"--init .*mlp"):
        adopt(new_model(mlp=40), TOKENIZER, str(base))
