"""Masks from RGB alone: GrabCut, and PaliGemma's segment tokens through the mask decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from drawn_scenes import draw_scene
from safetensors.torch import load_file, save_file

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding, Peak
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.ground import run_lengths
from clue_ros.model.decoding import MASK_TOKENS, read_prompts, reply_to
from clue_ros.model.loading import MASK_DECODER
from clue_ros.model.location_tokens import is_valid
from clue_ros.model.mask_decoder import (
    CODEBOOK,
    MASK_SIDE,
    MaskDecoder,
    convert_mask_decoder,
    load_mask_decoder,
)
from clue_ros.model.masks import box_mask, grabcut_mask, peak_object_mask
from clue_ros.model.prompts import encode_prompts

BALL = (40, 50, 100, 110)
SCENE = draw_scene(160, [("ball", "red", BALL), ("block", "blue", (120, 10, 150, 40))])
TRUTH = SCENE.instances == 1


def iou(a: npt.NDArray[np.bool_], b: npt.NDArray[np.bool_]) -> float:
    return float((a & b).sum() / (a | b).sum())


# -------------------------------------------------------------------------------------------------
# GrabCut.


def test_grabcut_cuts_a_ball_out_of_its_box() -> None:
    mask = grabcut_mask(SCENE.image, Box(*BALL))
    assert mask.shape == (160, 160)
    assert mask.dtype == np.bool_
    assert iou(mask, TRUTH) > 0.95 > iou(box_mask(Box(*BALL), 160, 160), TRUTH)
    assert np.array_equal(mask, grabcut_mask(SCENE.image, Box(*BALL)))


def test_grabcut_stays_in_its_box_however_large_the_image_is() -> None:
    large = np.kron(SCENE.image, np.ones((8, 8, 1), np.uint8))
    box = Box(*(8 * side for side in BALL))
    mask = grabcut_mask(large, box)
    assert not (mask & ~box_mask(box, 1280, 1280)).any()
    assert iou(mask, np.kron(TRUTH, np.ones((8, 8), bool))) > 0.95


@pytest.mark.parametrize(
    "box",
    [
        Box(0, 0, 160, 160),  # no background is left
        Box(3.2, 3.4, 3.3, 3.5),  # less than a pixel
        Box(150, 150, 170, 170),  # beyond the edge
        Box(-9, -9, -1, -1),  # outside
        Box(5, 120, 35, 150),  # bare table
    ],
)
def test_a_box_without_an_object_to_cut_out_is_its_own_mask(box: Box) -> None:
    mask = grabcut_mask(SCENE.image, box)
    assert mask.any()
    assert not (mask & ~box_mask(box, 160, 160)).any()


def test_a_peaks_object_may_be_wider_than_the_peak() -> None:
    attention = np.zeros((16, 16), np.float32)
    attention[6:10, 5:9] = 1.0  # cells of 10 px around the ball's middle
    peak = Peak(Box(46, 56, 94, 104), 1.0)
    mask = peak_object_mask(SCENE.image, peak, attention)
    assert iou(mask, TRUTH) > 0.9 > iou(box_mask(peak.box, 160, 160), TRUTH)


def test_run_lengths_go_down_the_columns_and_begin_with_zeros() -> None:
    mask = np.array([[1, 0, 0], [1, 1, 0]], np.bool_)
    assert run_lengths(mask) == {"size": [2, 3], "counts": [0, 2, 1, 1, 2]}
    assert run_lengths(~mask) == {"size": [2, 3], "counts": [2, 1, 1, 2]}
    assert run_lengths(np.zeros((2, 2), np.bool_)) == {"size": [2, 2], "counts": [4]}


# -------------------------------------------------------------------------------------------------
# The mask decoder, with RANDOM weights in the published layout.


def random_weights(seed: int = 0) -> dict[str, npt.NDArray[np.float32]]:
    """The published file's arrays with random numbers, and two that the decoder does not need."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"_vq_vae._embedding": (128, 512)}
    shapes |= {"decoder.0.weight": (128, 512, 1, 1), "decoder.0.bias": (128,)}
    for block in (2, 3):
        for layer, side in ((0, 3), (2, 3), (4, 1)):
            shapes[f"decoder.{block}.net.{layer}.weight"] = (128, 128, side, side)
            shapes[f"decoder.{block}.net.{layer}.bias"] = (128,)
    channels = (128, 128, 64, 32, 16)
    for n in range(4):
        shapes[f"decoder.{4 + 2 * n}.weight"] = (channels[n], channels[n + 1], 4, 4)
        shapes[f"decoder.{4 + 2 * n}.bias"] = (channels[n + 1],)
    shapes |= {"decoder.12.weight": (1, 16, 1, 1), "decoder.12.bias": (1,)}
    shapes |= {"encoder.0.weight": (16, 1, 4, 4), "_vq_vae._ema_w": (128, 512)}
    # Large enough for the tokens to show through twelve layers; both signs in every mask.
    scale = {name: 0.01 if name.endswith("bias") else (3 / shape[0]) ** 0.5 for name, shape in
             shapes.items()}  # fmt: skip
    scale |= {name: (3 / np.prod(s[1:])) ** 0.5 for name, s in shapes.items() if ".net." in name}
    scale |= {"decoder.0.weight": 0.1, CODEBOOK: 1.0}
    return {
        name: (scale[name] * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "vae-oid.npz"
    np.savez(path, **random_weights())  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def converted(published: Path) -> Path:
    out = published.with_name(MASK_DECODER)
    assert main(["data", "mask-decoder", str(published), "--out", str(out)]) == 0
    return out


def convolved(
    x: npt.NDArray[np.float64], weight: npt.NDArray[Any], bias: npt.NDArray[Any], pad: int
) -> npt.NDArray[np.float64]:
    """Cross-correlation of (C, h, w) with (out, C, k, k), written out."""
    side = weight.shape[-1]
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
    out = np.einsum("chwij,ocij->ohw", windows, weight) + bias[:, None, None]
    return np.asarray(out, dtype=np.float64)


def reference(
    weights: dict[str, npt.NDArray[np.float32]], tokens: list[int]
) -> npt.NDArray[np.float64]:
    """The network a second time, in numpy from its description: dilation, padding 2, flipped."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def conv(x: Any, name: str, pad: int = 0) -> Any:
        return convolved(x, w[f"{name}.weight"], w[f"{name}.bias"], pad)

    def relu(x: Any) -> Any:
        return np.maximum(x, 0)

    x = w["_vq_vae._embedding"][tokens].reshape(4, 4, 512).transpose(2, 0, 1)
    x = relu(conv(x, "decoder.0"))
    for name in ("decoder.2.net", "decoder.3.net"):
        inner = relu(conv(relu(conv(x, f"{name}.0", 1)), f"{name}.2", 1))
        x = x + conv(inner, f"{name}.4")
    for name in ("decoder.4", "decoder.6", "decoder.8", "decoder.10"):
        channels, side = x.shape[:2]
        spread = np.zeros((channels, 2 * side - 1, 2 * side - 1))
        spread[:, ::2, ::2] = x
        flipped = w[f"{name}.weight"].transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
        x = relu(convolved(spread, flipped, w[f"{name}.bias"], 2))
    mask: npt.NDArray[np.float64] = conv(x, "decoder.12")[0]
    return mask


def test_the_decoder_computes_what_its_description_says(converted: Path) -> None:
    tokens = np.random.default_rng(1).integers(0, 128, (2, 16))
    ours = load_mask_decoder(converted)(torch.from_numpy(tokens)).numpy()
    assert ours.shape == (2, MASK_SIDE, MASK_SIDE)
    for row, mask in zip(tokens, ours, strict=True):
        expected = reference(random_weights(), row.tolist())
        assert np.abs(mask - expected).max() < 1e-4 * np.abs(expected).max()


def test_only_the_decoder_is_converted(converted: Path) -> None:
    names = load_file(converted).keys()
    assert names == {n for n in random_weights() if n.startswith(("decoder.", CODEBOOK))}


def test_a_mask_is_stretched_over_its_box_and_cut_to_the_image(converted: Path) -> None:
    decoder = load_mask_decoder(converted)
    tokens = list(range(16))
    values = decoder(torch.tensor([tokens]))[0].numpy()
    whole = decoder.mask(tokens, Box(8, 16, 72, 80), 100, 90)
    assert np.array_equal(whole[16:80, 8:72], values > 0)
    assert not whole[:16].any()
    assert not whole[:, 72:].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("decoder.4.bias"), "lacks decoder.4.bias"),
        (lambda w: w.update({CODEBOOK: w[CODEBOOK][:64]}), r"shape \(64, 512\)"),
        (lambda w: w.update({"decoder.12.bias": np.array([np.nan])}), "no number"),
        (lambda w: w.update({"decoder.12.bias": np.array(["x"])}), "floating-point"),
        (lambda w: w.update({"decoder.12.bias": np.array([{}], object)}), "plain arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, change: Any, message: str
) -> None:
    weights: dict[str, Any] = dict(random_weights())
    change(weights)
    path = tmp_path / "vae.npz"
    np.savez(path, **weights)
    with pytest.raises(ModelError, match=message):
        convert_mask_decoder(path, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x80\x04K\x01.", None])
def test_what_is_no_archive_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vae.npz"
    if content is not None:
        path.write_bytes(content)
    assert main(["data", "mask-decoder", str(path), "--out", str(tmp_path / "o.safetensors")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "vae.npz" in error


def test_a_decoder_file_that_cannot_be_used_says_why(tmp_path: Path, published: Path) -> None:
    with pytest.raises(ModelError, match="clue data mask-decoder"):
        load_mask_decoder(published)
    with pytest.raises(ModelError, match="there is no mask decoder"):
        load_mask_decoder(tmp_path / "none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match="cannot read"):
        load_mask_decoder(tmp_path / "broken.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="lacks"):
        load_mask_decoder(tmp_path / "other.safetensors")


# -------------------------------------------------------------------------------------------------
# Segment tokens from a model.


def test_segment_decoding_says_a_box_and_sixteen_parts(clue: Clue) -> None:
    parts = clue.checkpoint
    prompts = encode_prompts(parts.processor, "segment", ["the red block", "the ball"])
    features = parts.look(SCENE.image, SCENE.image[::-1])
    prefill = read_prompts(parts.backbone, features, prompts, None)
    for said in reply_to(parts.backbone, parts.vocabulary, prefill, "segment"):
        assert said.codes is not None
        assert is_valid(said.codes)
        assert len(said.segments) == MASK_TOKENS
        assert all(0 <= part < 128 for part in said.segments)
        assert 0 < said.score <= 1
        text = parts.processor.tokenizer.decode(said.tokens[4:])
        assert text.replace(" ", "") == "".join(f"<seg{part:03d}>" for part in said.segments)


def grounding(box: Box, label: str = "the ball") -> Grounding:
    estimate = AmbiguityEstimate(0.1, 0.5, np.zeros((8, 8), np.float32), (), 0.0)
    return Grounding(box, label, 0.9, estimate)


def test_without_a_mask_decoder_a_groundings_mask_is_grabcuts(clue: Clue) -> None:
    view = clue.look(SCENE.image)
    mask = clue.mask(view, grounding(Box(*BALL)))
    assert np.array_equal(mask, grabcut_mask(SCENE.image, Box(*BALL)))


def test_with_a_mask_decoder_it_is_the_segment_tokens_mask_in_the_same_box(
    random_model: Path, converted: Path
) -> None:
    clue = Clue.load(random_model, device="cpu", mask_decoder=converted)
    view, box = clue.look(SCENE.image), Box(*BALL)
    mask = clue.mask(view, grounding(box))
    decoder, checkpoint = clue.checkpoint.mask_decoder, clue.checkpoint
    assert decoder is not None
    tokens = checkpoint.segment(checkpoint.look(SCENE.image), "the ball", box, 160, 160)
    assert len(tokens) == MASK_TOKENS
    assert np.array_equal(mask, decoder.mask(tokens, box, 160, 160))
    assert not (mask & ~box_mask(box, 160, 160)).any()
    # No adapter takes part, and the next reply has its own again.
    assert clue.ambiguity(view, "the ball").probability == pytest.approx(
        Clue.load(random_model, device="cpu").ambiguity(view, "the ball").probability
    )


def test_an_empty_answer_of_the_decoder_falls_back_to_grabcut(
    random_model: Path, tmp_path: Path
) -> None:
    weights = {name: torch.from_numpy(array) for name, array in random_weights().items()}
    weights["decoder.12.bias"] = torch.tensor([-1e6])
    weights = {name: weights[name] for name in MaskDecoder().published()}
    save_file(weights, tmp_path / "empty.safetensors")
    clue = Clue.load(random_model, device="cpu", mask_decoder=tmp_path / "empty.safetensors")
    mask = clue.mask(clue.look(SCENE.image), grounding(Box(*BALL)))
    assert np.array_equal(mask, grabcut_mask(SCENE.image, Box(*BALL)))


def test_a_mask_decoder_in_the_models_folder_is_taken_by_itself(
    random_model: Path, converted: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in random_model.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / MASK_DECODER).write_bytes(b"broken")
    with pytest.raises(ModelError, match=MASK_DECODER):
        Clue.load(folder, device="cpu")
    (folder / MASK_DECODER).write_bytes(converted.read_bytes())
    clue = Clue.load(folder, device="cpu")
    assert clue.checkpoint.mask_decoder is not None
    assert clue.memory_bytes() - clue.checkpoint.mask_decoder.memory_bytes() == (
        Clue.load(random_model, device="cpu").memory_bytes()
    )


# -------------------------------------------------------------------------------------------------
# On the command line.


def test_the_command_line_gives_masks_where_they_are_asked_for(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    path, drawn = tmp_path / "scene.png", tmp_path / "out.png"
    Image.fromarray(SCENE.image).save(path)
    words = ["ground", str(path), "the ball", "--model", str(random_model), "--device", "cpu"]
    words += ["--max-turns", "0"]
    assert main([*words, "--masks"]) == 2
    assert "--json" in capsys.readouterr().err
    assert main([*words, "--json", "--masks", "--save", str(drawn)]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["mask"]["size"] == [160, 160]
    assert sum(row["mask"]["counts"]) == 160 * 160
    assert main([*words, "--json", "--save", str(tmp_path / "plain.png")]) == 0
    assert "mask" not in json.loads(capsys.readouterr().out)
    assert drawn.read_bytes() != (tmp_path / "plain.png").read_bytes()


def test_a_questions_candidates_come_with_masks_of_the_same_number(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    path = tmp_path / "scene.png"
    Image.fromarray(SCENE.image).save(path)
    words = ["ground", str(path), "the ball", "--model", str(random_model), "--device", "cpu"]
    assert main([*words, "--threshold", "0", "--policy", "detector", "--json", "--masks"]) == 3
    row = json.loads(capsys.readouterr().out)
    assert row["type"] == "question"
    assert len(row["masks"]) == len(row["candidates"]) > 0
