"""Stored features: versions of scenes on disk, and every stage on them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import RGB, draw_scene, random_scenes
from it2p_files import write_it2p
from tiny_model import DETAILED_STEM, SIZES, SMALL_STEM, write_random_model

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.options import read_options
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.augment import LARGEST_ZOOM, cropped, zoomed
from clue_ros.lab.training.base import BaseOptions, add_arguments, adopt, drop_patches
from clue_ros.lab.training.datasets import TrainingData, load_training_data
from clue_ros.lab.training.decoder import decoder_groups, train_decoder
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.packing import PackedDecoder
from clue_ros.lab.training.stored import StoredPool, drawn, stem_features
from clue_ros.lab.training.vision import VisionTeacher, batch_tensor, load_teacher, train_vision
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.config import tiny_config
from clue_ros.model.openvino_backbone import OpenVinoBackbone
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

CPU = torch.device("cpu")
HALF_A_STEP = 1 / 32  # of the features' int8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose stem reads details, scenes, photographs, and two versions of their features."""
    root = tmp_path_factory.mktemp("stored")
    write_random_model(root / "model", vocabulary(), seed=4, conv_stem=DETAILED_STEM)
    for split, count, seed in (("train", 8, 0), ("val", 4, 1)):
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=96))
    write_it2p(root / "it2p")
    store(root, "--versions", "2")
    store(root, "--split", "val")
    store(root, "--photos")
    return root


def store(root: Path, *more: str) -> None:
    where = ["--tabletop", str(root / "scenes"), "--it2p", str(root / "it2p")]
    out = ["--out", str(root / "features"), "--device", "cpu"]
    assert main(["data", "features", "--model", str(root / "model"), *where, *out, *more]) == 0


def options(root: Path, *more: str) -> BaseOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    where = ["--tabletop", str(root / "scenes"), "--it2p", str(root / "it2p")]
    words = [*where, "--features", str(root / "features"), "--out", str(root / "out"), *more]
    return read_options(BaseOptions, parser.parse_args(words))


@pytest.fixture(scope="module")
def data(root: Path) -> TrainingData:
    return load_training_data(options(root), 64)


def test_each_version_is_a_file_and_finished_files_are_kept(root: Path) -> None:
    found = {path.name: path.stat().st_mtime_ns for path in (root / "features").iterdir()}
    assert {*found} >= {
        "rich-train-0-0000-v0.safetensors",
        "rich-train-0-0000-v1.safetensors",
        "rich-val-0-0000-v0.safetensors",
        "it2p-train-v0.safetensors",
    }
    store(root, "--versions", "2")
    assert {path.name: path.stat().st_mtime_ns for path in (root / "features").iterdir()} == found


def test_stored_features_are_those_of_the_pictures(root: Path) -> None:
    pool = StoredPool([root / "features" / "rich-val-0-0000-v0.safetensors"])
    original = list(shards.read_scenes(root / "scenes", "val"))
    assert len(pool) == len(original)
    backbone = load_checkpoint(root / "model", backend="openvino").backbone
    assert isinstance(backbone, OpenVinoBackbone)
    for i, scene in enumerate(original):
        kept = pool[i]
        assert kept.objects == scene.objects
        assert np.array_equal(kept.instances, scene.instances)
        assert kept.image.shape == (64, 64, 3)
        features = stem_features([kept], CPU)
        assert features is not None
        pixels = batch_tensor([kept], CPU).numpy()
        found = backbone.stem_features(pixels, [scene_pixels(scene)])
        off = np.abs(features.numpy() - found)
        assert off.max() < HALF_A_STEP + 1e-3


def scene_pixels(scene: Scene) -> Any:
    from clue_ros.model.details import detailed_picture

    return detailed_picture(scene.image, 128)


def test_pools_of_features_take_the_place_of_scenes(data: TrainingData) -> None:
    assert (len(data.scenes), len(data.held_out)) == (16, 4)
    rng = np.random.default_rng(0)
    picture = data.draw(rng, 0.0)
    assert picture.record is None
    assert picture.scene.features is not None
    assert picture.scene.features.dtype == np.int8
    photo = data.draw(rng, 1.0)
    assert photo.record is not None
    assert len(photo.record.blocks) == len(photo.scene.objects)


def test_features_that_were_not_made_are_asked_for(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="clue data features --model MODEL --world blocks"):
        load_training_data(options(root, "--world", "blocks"), 64)


def test_a_model_that_reads_no_details_is_refused(root: Path, tmp_path: Path) -> None:
    write_random_model(tmp_path / "plain", conv_stem=SMALL_STEM)
    words = ["data", "features", "--model", str(tmp_path / "plain"), "--out", str(tmp_path / "f")]
    assert main([*words, "--tabletop", str(root / "scenes")]) == 2


def test_a_decoder_sees_what_the_model_sees(root: Path, data: TrainingData) -> None:
    """The features that a stage trains on are those of inference, to the int8's steps."""
    model = load_model(root / "model")
    decoder = PackedDecoder(
        model.model, load_processor(root / "model").tokenizer, CPU, precision="float32"
    )
    original = list(shards.read_scenes(root / "scenes", "val"))
    with torch.no_grad():
        seen = decoder.features([data.held_out[i] for i in range(4)])
        projected = model.model.model.multi_modal_projector(seen).numpy()
    checkpoint = load_checkpoint(root / "model", backend="torch", device="cpu")
    expected = np.concatenate([checkpoint.look(scene.image) for scene in original])
    # The processor resizes by another filter than the pools; the scenes are smooth.
    assert np.abs(projected - expected).mean() < 0.1 * np.abs(expected).mean()


def test_both_stages_learn_on_stored_features(root: Path, data: TrainingData) -> None:
    model: Any = load_model(root / "model").model
    tokenizer = load_processor(root / "model").tokenizer
    settings = TrainingSettings(steps=8, batch=4, lr=3e-3, save_every=8)
    start = (model.model.vision_tower, torch.zeros(1024, 32))
    tower = train_vision(
        model.config.vision_config, data, settings, root / "run" / "vision", CPU, start
    )
    teacher = load_teacher(tower, model.config.vision_config, data)
    assert not torch.equal(
        teacher.tower.embeddings.patch_embedding.weight,
        model.model.vision_tower.embeddings.patch_embedding.weight,
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train_decoder(
        *(model, tokenizer, data, settings, root / "run" / "decoder", CPU),
        tower_rate=1.0,
        decoder_rate=0.0,
    )
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert all("vision_tower" in name for name in changed)


def test_a_trained_towers_new_heads_learn_first_and_alone(root: Path, data: TrainingData) -> None:
    model: Any = load_model(root / "model").model
    config = model.config.vision_config
    start = (model.model.vision_tower, torch.zeros(1024, 32))
    settings = TrainingSettings(steps=4, batch=2, lr=1e-3, save_every=4)
    out = train_vision(config, data, settings, root / "run" / "first", CPU, start)
    torch.manual_seed(settings.seed)
    fresh = VisionTeacher(config, data.kinds, data.colors)
    heads = load_teacher(out, config, data).heads
    assert not torch.equal(heads.kind.weight, fresh.heads.kind.weight)


def test_a_frozen_decoder_needs_a_tower_that_learns(root: Path) -> None:
    with pytest.raises(ClueError, match="--decoder-rate 0 needs a --tower-rate"):
        options(root, "--decoder-rate", "0")
    model = load_model(root / "model").model
    groups = decoder_groups(model, 0.5, 0.0)
    assert {group.lr_scale for group in groups} == {0.5}


def wide(*things: tuple[str, str, tuple[int, int, int, int]]) -> Scene:
    """A drawn scene, stretched to 160x120."""
    import cv2

    scene = draw_scene(120, things)
    image = np.asarray(cv2.resize(scene.image, (160, 120)), np.uint8)
    return Scene(image, scene.objects, scene.instances)


def test_zooming_shows_whole_objects_larger() -> None:
    scene = wide(
        ("block", "red", (10, 10, 22, 30)),
        ("ball", "blue", (40, 15, 60, 30)),
        ("block", "green", (70, 80, 110, 95)),
    )
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        part = zoomed(scene, rng)
        if part is None:
            continue
        found.append(part)
        height, width = part.image.shape[:2]
        assert max(height, width) == 160
        for k, o in enumerate(part.objects, 1):
            x0, y0, x1, y1 = (round(v * n) for v, n in zip(o.box, (width, height) * 2, strict=True))
            assert 0 <= x0 < x1 <= width
            assert 0 <= y0 < y1 <= height
            middle = part.image[(y0 + y1) // 2, (x0 + x1) // 2]
            assert np.abs(middle.astype(int) - RGB[o.color]).max() < 12
            ys, xs = np.nonzero(part.instances == k)
            assert xs.min() / 120 == pytest.approx(o.box[0], abs=0.03)
            assert (ys.max() + 1) / 120 == pytest.approx(o.box[3], abs=0.03)
    assert len(found) > 20
    sizes = [o.box[2] - o.box[0] for part in found for o in part.objects if o.color == "red"]
    assert max(sizes) > 0.12 / LARGEST_ZOOM
    assert zoomed(Scene(scene.image, (), scene.instances), rng) is None


def test_a_crop_at_its_own_aspect_is_not_stretched() -> None:
    scene = wide(("block", "red", (20, 50, 100, 60)))
    rng = np.random.default_rng(1)
    shapes = []
    for _ in range(20):
        found = cropped(scene, 0, rng, keeps_aspect=True)
        assert found is not None
        shapes.append(found[0].image.shape[:2])
    assert all(max(shape) == 160 for shape in shapes)
    assert min(h / w for h, w in shapes) < 0.35


def test_versions_are_mirrored_zoomed_and_cropped() -> None:
    (scene,) = random_scenes(1, 3, size=96)
    rng = np.random.default_rng(0)
    made = [drawn(scene, rng, is_photo=False) for _ in range(80)]
    assert {picture.mirror for picture in made} == {(False, False), (True, False)}
    assert 2 <= sum(picture.subject is not None for picture in made) <= 25
    assert len({len(picture.scene.objects) for picture in made}) > 1


def test_features_take_over_what_they_can_of_the_patches(root: Path, data: TrainingData) -> None:
    """A base without patches: the rest of --init is kept, and the projection stands in for them."""
    plain: Any = load_model(root / "model").model
    tokenizer = load_processor(root / "model").tokenizer
    sizes = {**DETAILED_STEM, "patches": False}
    config = tiny_config(len(tokenizer), **SIZES, conv_stem=sizes)
    model: Any = paligemma_class(config)(config)
    assert adopt(model, tokenizer, str(root / "model")) == len(tokenizer)
    old = plain.model.vision_tower.embeddings.patch_embedding
    stem = model.model.vision_tower.embeddings.patch_embedding
    assert stem.patches is None
    assert torch.equal(stem.weight, old.weight)
    scenes = [data.held_out[i] for i in range(4)]
    pixels, features = batch_tensor(scenes, CPU), stem_features(scenes, CPU)
    with torch.no_grad(), stem.holding(features), old.holding(features):
        before = (stem(pixels) - old(pixels)).square().mean()
        drop_patches(model, str(root / "model"), data, seed=0)
        after = (stem(pixels) - old(pixels)).square().mean()
    assert after < 0.5 * before


def test_dropping_patches_needs_pictures_with_features(root: Path) -> None:
    with pytest.raises(ClueError, match="--no-patches needs --init"):
        options(root, "--no-patches")
