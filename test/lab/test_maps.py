"""Maps of blocks and heads against equations 1 and 2, and the pictures as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from clue_ros.cli import main
from clue_ros.engine import Clue
from clue_ros.lab.evaluation import attention_maps
from clue_ros.lab.evaluation.attention_maps import MapReader, block_maps, load_base
from clue_ros.lab.evaluation.options import DetectorModelOptions
from clue_ros.model.attention import image_attention
from clue_ros.model.prompts import encode_prompts

Picture = npt.NDArray[np.uint8]


def on_cpu(model: Path) -> DetectorModelOptions:
    return DetectorModelOptions(model=str(model), device="cpu")


TEXT = "pick up the red block"


def test_all_blocks_at_once_are_what_half_depth_gives_one_by_one(
    random_model: Path, picture: Picture
) -> None:
    reader = MapReader(on_cpu(random_model))
    seen = Clue.load(random_model, device="cpu", dtype="float32", policy="detector")
    estimate = seen.ambiguity(seen.look(picture), TEXT)
    blocks = reader.block_maps(picture, TEXT)
    assert blocks.shape == (reader.blocks, 8, 8)
    # One is transformers' path, the other OpenVINO's: stretching to 0..1 enlarges their rounding.
    np.testing.assert_allclose(blocks[reader.half_depth], estimate.attention, atol=1e-4)
    judged = reader.detector_map(picture, TEXT)
    np.testing.assert_allclose(judged.attention, estimate.attention, atol=1e-4)
    assert f"{estimate.probability:.2f}" in judged.verdict
    assert judged.verdict.startswith("ambiguous" if estimate.is_ambiguous else "clear")
    for found, expected in zip(judged.peaks, estimate.peaks, strict=True):
        assert (found.box, found.point) == (expected.box, expected.point)
        assert found.score == pytest.approx(expected.score, abs=1e-4)


def test_the_base_has_no_adapter(random_model: Path, picture: Picture) -> None:
    adapted = MapReader(on_cpu(random_model))
    base = MapReader(on_cpu(random_model), base=True)
    assert np.abs(base.block_maps(picture, TEXT) - adapted.block_maps(picture, TEXT)).max() > 0.01
    assert base.detector_map(picture, TEXT).verdict == f"block {base.half_depth}, no adapter"


@torch.inference_mode()
def test_the_heads_mean_is_the_map(random_model: Path, picture: Picture) -> None:
    reader = MapReader(on_cpu(random_model), base=True)
    heads = reader.head_maps(picture, TEXT, 1)
    backbone, processor = load_base(on_cpu(random_model))
    assert heads.shape == (backbone.text.num_attention_heads, 8, 8)
    pixels = processor.image_processor(Image.fromarray(picture), return_tensors="pt")
    features = backbone.look(pixels["pixel_values"])
    prompts = encode_prompts(processor, "detect", [TEXT]).to("cpu")
    attention = backbone.attention_at(1, features, prompts)
    parts = [
        image_attention(attention[:, h : h + 1], prompts.query_mask, 8)[0]
        for h in range(len(heads))
    ]
    whole = image_attention(attention, prompts.query_mask, 8)[0]
    torch.testing.assert_close(torch.stack(parts).mean(0), whole)
    for part, head in zip(parts, heads, strict=True):
        stretched = (part - part.min()) / (part.max() - part.min())
        np.testing.assert_allclose(head, stretched.numpy(), atol=1e-4)


@torch.inference_mode()
def test_padding_changes_no_map(random_model: Path, picture: Picture) -> None:
    backbone, processor = load_base(on_cpu(random_model))
    pixels = processor.image_processor(Image.fromarray(picture), return_tensors="pt")
    features = backbone.look(pixels["pixel_values"])
    texts = ["block", "pick up the red block on the left"]
    together = block_maps(backbone, features, encode_prompts(processor, "detect", texts).to("cpu"))
    for text, both in zip(texts, together, strict=True):
        prompts = encode_prompts(processor, "detect", [text]).to("cpu")
        alone = block_maps(backbone, features, prompts)[0]
        torch.testing.assert_close(both, alone, atol=1e-4, rtol=0)


def test_a_conditioning_word_changes_the_map_and_its_own_does_not(
    random_model: Path, picture: Picture
) -> None:
    reader = MapReader(on_cpu(random_model))
    own = reader.detector_map(picture, TEXT)
    same, other = (reader.detector_map(picture, TEXT, w) for w in (reader.word, "disambiguate"))
    assert reader.word == "detect"
    np.testing.assert_array_equal(own.attention, same.attention)
    assert not np.allclose(own.attention, other.attention)


def test_the_command_draws_what_was_asked(
    random_model: Path, picture: Picture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "in.png"
    Image.fromarray(picture).save(image)
    sizes = {}
    for name, words in {
        "two": [],
        "blocks": ["--blocks", "all"],
        "heads": ["--blocks", "1", "--heads", "--base"],
        "words": ["--words", "detect", "disambiguate"],
        "beside": ["--beside", str(random_model / "detector")],
    }.items():
        out = tmp_path / f"{name}.png"
        command = ["eval", "maps", str(image), TEXT, "the ball", "--out", str(out)]
        assert main([*command, "--model", str(random_model), "--device", "cpu", *words]) == 0
        with Image.open(out) as drawn:
            sizes[name] = drawn.size
    assert sizes["two"][0] < sizes["heads"][0] < sizes["blocks"][0]  # 2, 3 and 5 panels a line
    assert sizes["two"][1] < sizes["heads"][1]  # one line, and one a sentence
    assert sizes["words"] == sizes["beside"]  # each sentence twice, in one line
    assert sizes["heads"][0] < sizes["words"][0]
    assert str(tmp_path / "two.png") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--blocks", "7"], "--blocks must be 0 to 3"),
        (["--blocks", "1,2", "--heads"], "--heads shows one block"),
        (["--heads"], "--heads shows one block"),
        (["--blocks", "x"], "'all' or numbers"),
        (["--base", "--detector", "d"], "leave out --detector"),
        (["--words", "detect", "--blocks", "1"], "leave out --blocks"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(
    words: list[str],
    reason: str,
    random_model: Path,
    picture: Picture,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image = tmp_path / "in.png"
    Image.fromarray(picture).save(image)
    command = ["eval", "maps", str(image), TEXT, "--out", str(tmp_path / "out.png"), *words]
    assert main([*command, "--model", str(random_model), "--device", "cpu"]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out.png").exists()


def test_the_examples_are_there() -> None:
    root = Path(__file__).parents[2] / "demo"
    assert all((root / name).is_file() and len(said) == 2 for name, said in attention_maps.EXAMPLES)
