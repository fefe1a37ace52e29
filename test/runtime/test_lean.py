"""Replies without the classes of transformers and peft are theirs: weights, pixels, adapters."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_model import write_random_model

from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.backbone import load_config
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.config import LeanConfig, lean_config
from clue_ros.model.lean import LeanBackbone
from clue_ros.model.loading import DEFAULT_MODEL, find_model, read_json
from clue_ros.model.prompts import (
    IMAGE,
    LeanProcessor,
    LeanTokenizer,
    encode_prompts,
    load_processor,
    open_processor,
)

REQUESTS = ("pick up the red block", "the left one")


def lean(folder: Path, dtype: str = "float32") -> tuple[Checkpoint, LeanBackbone]:
    checkpoint = load_checkpoint(folder, device="cpu", dtype=dtype)
    assert isinstance(checkpoint.backbone, LeanBackbone)
    assert checkpoint.backbone.is_lean
    return checkpoint, checkpoint.backbone


def image(seed: int, height: int = 60, width: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("dtype", ["mixed", "float32"])
def test_paged_out_weights_are_there_when_they_are_asked_for(
    random_model: Path, dtype: str
) -> None:
    checkpoint, backbone = lean(random_model, dtype)
    features = checkpoint.look(image(1))
    merged = checkpoint.judge(features, REQUESTS[0])[0]
    shares = checkpoint.second_opinion(features, REQUESTS[0])[0]
    backbone.page_out()
    assert checkpoint.judge(features, REQUESTS[0])[0] == merged
    assert checkpoint.second_opinion(features, REQUESTS[0])[0] == shares
    other, _ = lean(random_model, dtype)
    plain = []
    for each in (checkpoint, other):
        prompts = encode_prompts(each.processor, "clarify", [REQUESTS[0]])
        each.adapters.use(None)  # merged anew, from the file
        with torch.inference_mode():
            plain.append(each.backbone.read(features, prompts, 1)[0])
    assert torch.equal(*plain)


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-5), ("bfloat16", 0.06)])
@pytest.mark.parametrize("sizes", [{}, {"width": 64, "heads": 8, "kv_heads": 2, "layers": 5}])
def test_features_maps_and_replies_are_those_of_transformers(
    tmp_path: Path, dtype: str, close: float, sizes: dict[str, Any]
) -> None:
    checkpoint, backbone = lean(write_random_model(tmp_path / "m", seed=5, **sizes), dtype)

    def everything() -> tuple[torch.Tensor, list[float], list[np.ndarray], list[tuple[int, ...]]]:
        features = checkpoint.look(image(1), image(2))
        judged = [checkpoint.judge(features[:1], text) for text in REQUESTS]
        shares = [checkpoint.second_opinion(features[1:], text)[0] for text in REQUESTS]
        said = [s.tokens for text in REQUESTS for s in checkpoint.point(features, text)]
        chances = [*(chance for chance, _ in judged), *shares]
        return features, chances, [attention for _, attention in judged], said

    ours = everything()
    assert backbone.is_lean
    assert backbone.model is not None  # transformers' and peft's take over
    assert not backbone.is_lean
    theirs = everything()
    assert torch.allclose(ours[0].float(), theirs[0].float(), atol=close)
    assert ours[1] == pytest.approx(theirs[1], abs=close)
    for mine, their in zip(ours[2], theirs[2], strict=True):
        assert np.abs(mine - their).max() < 10 * close
    if dtype == "float32":  # in 16 bits ties may fall either way
        assert ours[3] == theirs[3]


def test_the_base_alone_and_each_adapter_stay_apart(random_model: Path, fresh_seed: int) -> None:
    checkpoint, backbone = lean(random_model)
    prompts = checkpoint.detector.prompts(checkpoint.processor, REQUESTS[:1])
    features = checkpoint.look(image(fresh_seed))

    def maps() -> list[torch.Tensor]:
        found = []
        for name in (None, DETECTOR, IVG, None):
            checkpoint.adapters.use(name)
            with torch.inference_mode():
                found.append(backbone.word_attention(1, features, prompts)[0])
        return found

    ours, active = maps(), checkpoint.adapters.names
    assert torch.equal(ours[0], ours[3])
    assert not torch.allclose(ours[0], ours[1])
    assert not torch.allclose(ours[1], ours[2])
    checkpoint.adapters.use(IVG)
    assert backbone.model is not None
    assert checkpoint.adapters.names == active
    for mine, their in zip(ours, maps(), strict=True):
        assert torch.allclose(mine, their, atol=1e-5)


@pytest.mark.parametrize("shape", [(60, 80), (300, 200), (31, 7), (1, 1)])
def test_pixels_are_bit_by_bit_those_of_transformers(
    random_model: Path, shape: tuple[int, int], fresh_seed: int
) -> None:
    processor = load_checkpoint(random_model, device="cpu").processor
    assert isinstance(processor, LeanProcessor)
    pixels = image(fresh_seed, *shape)
    theirs = processor.whole.image_processor([Image.fromarray(pixels)], return_tensors="pt")
    assert torch.equal(processor.pixels([pixels]), theirs["pixel_values"])
    assert processor.whole.image_token_id == processor.image_token_id
    assert len(processor.whole.tokenizer) == len(processor.tokenizer)


def random_texts(words: list[str], count: int, seed: int) -> list[str]:
    """Words of a tokenizer, its special tokens, and characters that it lacks, in any order."""
    rng = np.random.default_rng(seed)
    odd = ["", " ", "\n", "Zebra", "éÉ", "\U0001f34c", "a_b", "<loc", "<LOC0007>", "don't", "１２"]
    pieces = [*words, *odd]
    return [
        rng.choice(["", " ", "  "]).join(rng.choice(pieces, rng.integers(0, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("model", [DEFAULT_MODEL, "random"])
def test_texts_get_the_tokens_of_transformers(
    model: str, random_model: Path, fresh_seed: int
) -> None:
    folder = random_model if model == "random" else find_model(model)
    ours, theirs = open_processor(folder).tokenizer, load_processor(folder).tokenizer
    assert isinstance(ours, LeanTokenizer)
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    for name in ("all_special_tokens", "all_special_ids"):
        assert set(getattr(ours, name)) == set(getattr(theirs, name))
    for name in ("bos_token", "eos_token", "pad_token", "unk_token", "image_token"):
        assert getattr(ours, name) == getattr(theirs, name)
        assert getattr(ours, f"{name}_id") == getattr(theirs, f"{name}_id")
    tokens = [IMAGE, "<loc0001>", "\n", "no such token"]
    assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    rng = np.random.default_rng(fresh_seed)
    for text in random_texts(list(ours.get_vocab()), 200, fresh_seed):
        for special in (False, True):
            settings = {"add_special_tokens": special, "return_offsets_mapping": True}
            mine, their = ours(text, **settings), theirs(text, **settings)
            assert mine["input_ids"] == their["input_ids"], text
            assert mine["offset_mapping"] == their["offset_mapping"], text
        ids = rng.integers(0, len(ours), 9).tolist()
        for skip in (False, True):
            said = ours.decode(ids, skip_special_tokens=skip)
            assert said == theirs.decode(ids, skip_special_tokens=skip)
    padded: dict[str, Any] = {"padding": "max_length", "max_length": 9}
    assert ours("pick it up", **padded) == theirs("pick it up", **padded)


@pytest.mark.parametrize(
    "change",
    [{"tokenizer_class": "GemmaTokenizer"}, {"clean_up_tokenization_spaces": True}, {"new": 1}],
)
def test_what_is_no_plain_tokenizer_is_left_to_transformers(
    random_model: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    processor = open_processor(folder)
    assert not isinstance(processor.tokenizer, LeanTokenizer)


@pytest.mark.parametrize("model", [DEFAULT_MODEL, "random"])
def test_sizes_are_those_that_transformers_reads(model: str, random_model: Path) -> None:
    folder = random_model if model == "random" else find_model(model)
    content = read_json(folder / "config.json")
    ours, theirs = lean_config(content), load_config(folder)
    assert isinstance(ours, LeanConfig)
    assert ours.image_token_id == theirs.image_token_id
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    parts = (
        (ours.get_text_config(), theirs.get_text_config()),
        (ours.vision_config, theirs.vision_config),
    )
    for mine, their in parts:
        for name, value in vars(mine).items():
            assert getattr(their, name) == value, name


def test_a_config_that_leaves_something_to_defaults_is_left_to_transformers(
    random_model: Path,
) -> None:
    content = read_json(random_model / "config.json")
    for name in ("text_config", "vision_config"):
        for key in ("hidden_size", "num_attention_heads"):
            part = content[name]
            silent = {other: value for other, value in part.items() if other != key}
            assert lean_config({**content, name: silent}) is None
            assert lean_config({**content, name: {**part, key: str(part[key])}}) is None
    assert lean_config({}) is None


def test_prompts_of_several_lengths_are_masked_as_transformers_masks_them(
    random_model: Path,
) -> None:
    checkpoint, backbone = lean(random_model)
    prompts = checkpoint.detector.prompts(checkpoint.processor, REQUESTS)
    assert not bool(prompts.attention_mask.all())
    features = checkpoint.look(image(6))

    def maps() -> torch.Tensor:
        checkpoint.adapters.use(DETECTOR)
        with torch.inference_mode():
            return backbone.word_attention(1, features, prompts)[0]

    ours = maps()
    assert not bool(ours[1, :, :, prompts.attention_mask[1] == 0].any())
    assert backbone.is_lean
    assert backbone.model is not None
    assert torch.allclose(ours, maps(), atol=1e-5)


def test_a_reply_imports_neither_transformers_nor_peft(random_model: Path) -> None:
    script = (
        "import sys, numpy; from clue_ros.engine import Clue; "
        "from clue_ros.dialogue.types import Dialogue; "
        f"clue = Clue.load({str(random_model)!r}, device='cpu', policy='detector'); "
        "view = clue.look(numpy.zeros((60, 80, 3), numpy.uint8)); "
        "clue.reply(view, Dialogue('the block'), force_grounding=True); "
        "heavy = ('peft', 'transformers', 'huggingface_hub', 'torch.distributed.tensor');"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_is_no_plain_lora_is_left_to_peft(random_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / IVG / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_rslora": True}))
    checkpoint = load_checkpoint(folder, device="cpu")
    assert isinstance(checkpoint.backbone, LeanBackbone)
    assert not checkpoint.backbone.is_lean
    part = checkpoint.backbone.model.model.language_model.layers[0].self_attn.q_proj
    assert part.scaling[IVG] == pytest.approx(32 / 16**0.5)


def test_a_weight_that_is_missing_is_named_as_transformers_path_names_it(
    random_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / "model.safetensors"
    state = load_file(path)
    (name,) = [key for key in state if "layers.1.mlp.fc1.weight" in key]
    save_file({key: weight for key, weight in state.items() if key != name}, path)
    with pytest.raises(ModelError, match=r"lacks .*layers\.1\.mlp\.fc1\.weight"):
        load_checkpoint(folder, device="cpu")
