"""A model folder that is wrong in any way gives one line that names what is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import write_random_model

from clue_ros.engine import Clue, Image
from clue_ros.errors import ModelError


@pytest.fixture
def folder(random_model: Path, tmp_path: Path) -> Path:
    """A model folder that a test may break."""
    return shutil.copytree(random_model, tmp_path / "model")


def reason(folder: Path) -> str:
    """The one line that loading fails with."""
    with pytest.raises(ModelError) as caught:
        Clue.load(folder)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message.replace(str(folder), "")) < 400  # however long the path is
    assert caught.value.code == "MODEL_ERROR"
    return message


FILES = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "processor_config.json",
    "detector/adapter_config.json",
    "detector/adapter_model.safetensors",
    "detector/head.safetensors",
    "detector/detector.json",
    "ivg/adapter_config.json",
    "ivg/adapter_model.safetensors",
    "ivg/ivg.json",
]


def test_the_whole_folder_loads(folder: Path) -> None:
    assert Clue.load(folder).grid == 8


def attention_of(folder: Path, picture: Image) -> npt.NDArray[np.float32]:
    """What the model in a folder attends to."""
    clue = Clue.load(folder)
    return clue.ambiguity(clue.look(picture), "the red block").attention


def test_published_names_and_shards_load_as_well(folder: Path, picture: Image) -> None:
    expected = attention_of(folder, picture)
    weights = load_file(folder / "model.safetensors")
    # As in google/paligemma2-3b-mix-448: the vision tower one level deeper, no lm_head, shards.
    published = {
        name.replace("vision_tower.", "vision_tower.vision_model."): value
        for name, value in weights.items()
    }
    assert any("vision_tower.vision_model." in name for name in published)
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for i, name in enumerate(sorted(published)):
        weight_map[name] = f"model-0000{1 + i % 2}-of-00002.safetensors"
    for shard in set(weight_map.values()):
        part = {name: published[name] for name in published if weight_map[name] == shard}
        save_file(part, folder / shard, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert (attention_of(folder, picture) == expected).all()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    message = reason(folder)
    assert name.split("/")[-1] in message
    assert str((folder / name).parent) in message


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert str(path.parent) in reason(folder)


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    assert str((folder / name).parent) in reason(folder)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_json_of_the_wrong_kind_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("[1, 2]")
    assert str((folder / name).parent) in reason(folder)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".safetensors")])
def test_a_wrong_shape_is_named(folder: Path, name: str) -> None:
    path = folder / name
    weights = load_file(path)
    key = sorted(weights)[0]
    weights[key] = torch.zeros(3, 5)
    save_file(weights, path, metadata={"format": "pt"})
    message = reason(folder)
    assert "(3, 5)" in message
    assert key.removeprefix("base_model.model.") in message


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".safetensors")])
def test_a_missing_weight_is_named(folder: Path, name: str) -> None:
    path = folder / name
    weights = load_file(path)
    key = sorted(weights)[0]
    del weights[key]
    save_file(weights, path, metadata={"format": "pt"})
    assert key.removeprefix("base_model.model.") in reason(folder)


def test_a_pickle_is_never_loaded(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    message = reason(folder)
    assert "pickle" in message
    assert "pytorch_model.bin" in message


def test_a_pickled_adapter_is_never_loaded(folder: Path) -> None:
    path = folder / "ivg" / "adapter_model.safetensors"
    torch.save(load_file(path), path.with_name("adapter_model.bin"))
    path.unlink()
    assert "adapter_model.safetensors" in reason(folder)


def test_a_shard_that_is_missing_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    message = reason(folder)
    assert "model-00001-of-00001.safetensors" in message
    assert "download the model again" in message


def test_half_a_file_says_to_download_it_again(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    message = reason(folder)
    assert message.startswith(f"{path} is cut short or broken")
    assert "download the model again" in message


def test_a_clone_without_the_weights_is_told_from_a_broken_file(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    (folder / "model.safetensors").write_text(pointer)
    assert "git lfs pull" in reason(folder)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "llama"}, "config.json"),
        ({"text_config": {"model_type": "gemma"}}, "gemma"),
        ({"image_token_index": 3}, "<image>"),
    ],
)
def test_another_kind_of_model_is_refused(folder: Path, change: dict[str, Any], word: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert word in reason(folder)


def test_a_processor_for_another_picture_size_is_refused(folder: Path) -> None:
    path = folder / "processor_config.json"
    content = json.loads(path.read_text())
    content["image_processor"]["size"] = {"height": 32, "width": 32}
    path.write_text(json.dumps(content))
    assert "32x32" in reason(folder)
    content["image_processor"]["image_seq_length"] = 16
    path.write_text(json.dumps(content))
    assert "16 image tokens" in reason(folder)


def test_a_tokenizer_without_location_tokens_in_order_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    text = path.read_text()
    swapped = text.replace("<loc0003>", "<?>").replace("<loc0004>", "<loc0003>")
    path.write_text(swapped.replace("<?>", "<loc0004>"))
    assert "location tokens" in reason(folder)


def test_a_detector_for_a_deeper_model_is_refused(folder: Path) -> None:
    path = folder / "detector" / "detector.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "block": 14}))
    assert "block 14" in reason(folder)


@pytest.mark.parametrize("name", ["max_new_tokens", "max_boxes", "num_views"])
@pytest.mark.parametrize("value", [0, True, 2.5, "5", None])
def test_a_limit_of_replies_that_is_no_number_is_refused(
    folder: Path, name: str, value: object
) -> None:
    path = folder / "ivg" / "ivg.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    assert name in reason(folder)


@pytest.mark.parametrize("name", ["max_new_tokens", "max_boxes"])
def test_a_reply_without_an_end_is_refused(folder: Path, name: str) -> None:
    path = folder / "ivg" / "ivg.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: 10**9}))
    assert f"{name} 1000000000, want 1024 at most" in reason(folder)


def test_more_views_than_there_are_windows_are_refused(folder: Path) -> None:
    path = folder / "ivg" / "ivg.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_views": 6}))
    assert "num_views 6, want 5 at most" in reason(folder)


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "0.5", None])
def test_a_doubtful_score_that_is_no_score_is_refused(folder: Path, value: object) -> None:
    path = folder / "ivg" / "ivg.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "doubtful_score": value}))
    assert "doubtful_score" in reason(folder)


def test_an_adapter_for_another_width_is_refused(folder: Path, tmp_path: Path) -> None:
    other = write_random_model(tmp_path / "other", width=64)
    shutil.rmtree(folder / "ivg")
    shutil.copytree(other / "ivg", folder / "ivg")
    assert "shape" in reason(folder)


def test_weights_that_are_not_numbers_are_found_at_the_first_question(
    folder: Path, picture: Image
) -> None:
    path = folder / "detector" / "head.safetensors"
    weights = {key: torch.full_like(value, torch.nan) for key, value in load_file(path).items()}
    save_file(weights, path)
    clue = Clue.load(folder)
    with pytest.raises(ModelError, match="not a number"):
        clue.ambiguity(clue.look(picture), "the block")


def test_adapters_alone_find_their_base(random_model: Path, tmp_path: Path) -> None:
    for name in ("detector", "ivg"):
        shutil.copytree(random_model / name, tmp_path / name)
    path = tmp_path / "detector" / "adapter_config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "base_model_name_or_path": str(random_model)}))
    assert Clue.load(tmp_path).memory_bytes() == Clue.load(random_model).memory_bytes()
