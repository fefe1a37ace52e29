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
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.lean import LeanBackbone
from clue_ros.model.prompts import LeanProcessor

REQUESTS = ("pick up the red block", "the left one")


def lean(folder: Path, dtype: str = "float32") -> tuple[Checkpoint, LeanBackbone]:
    checkpoint = load_checkpoint(folder, "cpu", dtype)
    assert isinstance(checkpoint.backbone, LeanBackbone)
    assert checkpoint.backbone.is_lean
    return checkpoint, checkpoint.backbone


def image(seed: int, height: int = 60, width: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


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


def test_the_base_alone_and_each_adapter_stay_apart(random_model: Path) -> None:
    checkpoint, backbone = lean(random_model)
    prompts = checkpoint.detector.prompts(checkpoint.processor, REQUESTS[:1])
    features = checkpoint.look(image(3))

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
    random_model: Path, shape: tuple[int, int]
) -> None:
    processor = load_checkpoint(random_model, "cpu").processor
    assert isinstance(processor, LeanProcessor)
    pixels = image(4, *shape)
    theirs = processor.whole.image_processor([Image.fromarray(pixels)], return_tensors="pt")
    assert torch.equal(processor.pixels([pixels]), theirs["pixel_values"])
    assert processor.whole.image_token_id == processor.image_token_id
    assert len(processor.whole.tokenizer) == len(processor.tokenizer)


def test_a_reply_imports_neither_the_model_classes_nor_peft(random_model: Path) -> None:
    script = (
        "import sys, numpy; from clue_ros.engine import Clue; "
        "from clue_ros.dialogue.types import Dialogue; "
        f"clue = Clue.load({str(random_model)!r}, device='cpu', policy='detector'); "
        "view = clue.look(numpy.zeros((60, 80, 3), numpy.uint8)); "
        "clue.reply(view, Dialogue('the block'), force_grounding=True); "
        "heavy = ('peft', 'transformers.modeling_utils', 'torch.distributed.tensor', 'accelerate');"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_is_no_plain_lora_is_left_to_peft(random_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / IVG / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_rslora": True}))
    checkpoint = load_checkpoint(folder, "cpu")
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
        load_checkpoint(folder, "cpu")
