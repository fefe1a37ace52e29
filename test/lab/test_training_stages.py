"""Every stage on a really tiny model: its loss falls, and what it writes is a model that loads."""

import argparse
import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from it2p_files import write_it2p
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_model import SIZES
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.cli import main
from clue_ros.errors import ClueError, ModelError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.training import detector, fusion, ivg, views
from clue_ros.lab.training.augment import ScenePool
from clue_ros.lab.training.base import save_base
from clue_ros.lab.training.datasets import TrainingData, load_photos, load_training_data
from clue_ros.lab.training.decoder import init_decoder, is_alone, train_decoder
from clue_ros.lab.training.ivg import Teaching
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import TrainingOptions
from clue_ros.lab.training.samples import base_samples, one_query_each
from clue_ros.lab.training.vision import VisionTeacher, load_teacher, train_vision, vision_scenes
from clue_ros.model import loading, prompts
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.config import tiny_config
from clue_ros.model.detector_variants import VARIANTS
from clue_ros.model.prompts import build_tokenizer
from clue_ros.model.torch_backbone import TorchBackbone, load_model

CPU = torch.device("cpu")
EMBEDDED_VARIANT = "half-full-detect-cnn"
LONGER_HEAD = (
    "--variant", EMBEDDED_VARIANT, "--look-weight", "1.0", "--head-batches", "8",
    "--head-steps", "60",
)  # fmt: skip
RATES = ("--head-lr", "6e-3", "--final-rate", "0.05")
SIZE = SIZES["image_size"]


@dataclass
class Work:
    """Where a test's training reads and writes."""

    scenes: Path
    run: Path
    model: Path
    data: TrainingData
    tokenizer: Any
    config: Any


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Twelve drawn scenes in shards, two drawn photographs in IT2P's layout, an untrained size."""
    root = tmp_path_factory.mktemp("training")
    for split, count, seed in (("train", 8, 0), ("val", 4, 1)):
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=SIZE))
    pools = [
        ScenePool(shards.read_scenes(root / "scenes", split), SIZE) for split in ("train", "val")
    ]
    photos = load_photos(write_it2p(root / "it2p"), "all", SIZE)
    data = TrainingData(pools[0], photos, pools[1], photos)
    tokenizer = build_tokenizer(vocabulary())
    config: Any = tiny_config(len(tokenizer), **SIZES)
    config.text_config._attn_implementation = "eager"
    return Work(root / "scenes", root / "run", root / "model", data, tokenizer, config)


def log(folder: Path, key: str = "loss") -> list[float]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [row[key] for row in rows if key in row]


# --- the base


@pytest.fixture(scope="module")
def tower(work: Work) -> Path:
    settings = TrainingSettings(steps=80, batch=4, lr=3e-3, save_every=80)
    return train_vision(work.config.vision_config, work.data, settings, work.run / "vision", CPU)


def teacher(work: Work, tower: Path) -> VisionTeacher:
    return load_teacher(tower, work.config.vision_config, work.data)


@pytest.fixture(scope="module")
def base(work: Work, tower: Path) -> Path:
    """The model folder after both stages of `clue train base`."""
    torch.manual_seed(0)
    model = PaliGemmaForConditionalGeneration(work.config)
    init_decoder(model, teacher(work, tower), work.tokenizer)
    settings = TrainingSettings(steps=60, batch=2, lr=3e-3, save_every=40)
    train_decoder(model, work.tokenizer, work.data, settings, work.run / "decoder", CPU)
    save_base(model, work.tokenizer, work.model)
    return work.model


def test_the_vision_stage_learns_and_writes_a_tower(work: Work, tower: Path) -> None:
    losses = log(work.run / "vision")
    assert losses[-1] < 0.9 * losses[0]
    # the colour of a patch is learned in a few steps, on held-out scenes too
    assert log(work.run / "vision", "val_color_right")[-1] > 0.3
    assert log(work.run / "vision", "photo_loss")
    found = teacher(work, tower)
    assert found.heads.table.shape == (1024, SIZES["width"])
    with torch.no_grad():
        seen = found.tower(pixel_values=torch.zeros(1, 3, SIZE, SIZE)).last_hidden_state
    assert seen.shape == (1, 64, SIZES["width"])


def test_a_finished_vision_stage_is_not_run_again(work: Work, tower: Path) -> None:
    before = tower.stat().st_mtime_ns
    settings = TrainingSettings(steps=80, batch=4, lr=3e-3, save_every=80)
    again = train_vision(work.config.vision_config, work.data, settings, work.run / "vision", CPU)
    assert (again, again.stat().st_mtime_ns) == (tower, before)
    other = TrainingSettings(steps=80, batch=4, lr=3e-3, save_every=80, seed=1)
    with pytest.raises(ClueError, match=r"vision holds a run with other settings \(seed 0, now 1"):
        train_vision(work.config.vision_config, work.data, other, work.run / "vision", CPU)


def test_a_tower_of_other_sizes_is_not_taken_for_this_one(work: Work, tower: Path) -> None:
    config: Any = tiny_config(len(work.tokenizer), **{**SIZES, "vision_layers": 3})
    with pytest.raises(ClueError, match="a tower of other sizes; give another --run"):
        load_teacher(tower, config.vision_config, work.data)
    config.vision_config = work.config.vision_config
    others = replace(work.data, kinds=("mug",))
    with pytest.raises(ClueError, match="a tower of other sizes; give another --run"):
        load_teacher(tower, config.vision_config, others)


def test_the_vision_stage_goes_on_from_a_tower(work: Work, tower: Path) -> None:
    found = teacher(work, tower)
    losses = {}
    for name, begin in (("fresh", None), ("started", (found.tower, found.heads.table))):
        settings = TrainingSettings(steps=1, batch=4, lr=1e-6, save_every=1)
        folder = work.run / f"vision_{name}"
        train_vision(work.config.vision_config, work.data, settings, folder, CPU, begin)
        losses[name] = log(folder, "val_side_error")[0]
    assert losses["started"] != losses["fresh"]


def test_the_decoder_stage_learns_on_the_frozen_tower(work: Work, base: Path, tower: Path) -> None:
    losses = log(work.run / "decoder")
    assert losses[-1] < 0.9 * losses[0]
    assert log(work.run / "decoder", "word_right")[-1] > 0.2
    assert log(work.run / "decoder", "val_loss")
    assert log(work.run / "decoder", "photo_loss")
    backbone = load_model(base)
    kept = backbone.model.model.vision_tower.state_dict()
    for name, weight in teacher(work, tower).tower.state_dict().items():
        assert torch.equal(kept[name], weight), name


def test_the_tower_can_learn_on_with_the_decoder(work: Work, base: Path, tower: Path) -> None:
    moved = {}
    for share in (0.1, 0.2):
        model: Any = load_model(base).model
        before = {n: p.detach().clone() for n, p in model.model.vision_tower.named_parameters()}
        settings = TrainingSettings(steps=1, batch=2, lr=1e-3, save_every=1)
        folder = work.run / f"joint_{share}"
        train_decoder(model, work.tokenizer, work.data, settings, folder, CPU, tower_rate=share)
        after = dict(model.model.vision_tower.named_parameters())
        moved[share] = {n: float((after[n].detach() - p).abs().sum()) for n, p in before.items()}
    still = [n for n, distance in moved[0.2].items() if not distance]
    # a softmax does not see what is added to all of its keys alike
    assert all(n.endswith("k_proj.bias") for n in still), still
    total = [sum(m.values()) for m in moved.values()]
    assert total[1] == pytest.approx(2 * total[0], rel=0.05)


def test_a_run_with_another_tower_rate_is_refused(work: Work, base: Path) -> None:
    settings = TrainingSettings(steps=2, batch=2, lr=1e-3, save_every=1)
    model: Any = load_model(base).model
    run = partial(
        train_decoder, model, work.tokenizer, work.data, settings, work.run / "rates", CPU
    )
    run(tower_rate=0.1)
    with pytest.raises(ClueError, match=r"tower_rate 0\.1, now 0\.2"):
        run(tower_rate=0.2)


def test_a_base_can_be_taught_without_masks_and_wide_locations(work: Work, base: Path) -> None:
    rows = {}
    for teaching in (Teaching(), Teaching(0, 0, 0)):
        model: Any = load_model(base).model
        settings = TrainingSettings(steps=2, batch=2, lr=1e-3, save_every=2)
        folder = work.run / f"taught_{teaching.sigma}"
        train_decoder(model, work.tokenizer, work.data, settings, folder, CPU, teaching=teaching)
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        rows[teaching.sigma] = {name for line in lines for name in line}
    assert {"look", "point"} <= rows[1.5]
    assert not {"look", "point"} & rows[0]
    assert {"val_look", "val_point"} <= rows[0], "held-out figures are of the same losses"


def test_plain_locations_leave_the_patches_lessons_theirs(
    work: Work, base: Path, tower: Path
) -> None:
    """Whose sides are Gaussian bins whatever the words' locations are."""
    model: Any = load_model(base).model
    settings = TrainingSettings(steps=2, batch=2, lr=1e-3, save_every=2)
    taught, folder = Teaching(sigma=0, dense=0.3), work.run / "plain_and_dense"
    train_decoder(
        *(model, work.tokenizer, work.data, settings, folder, CPU),
        tower_rate=0.5,
        teaching=taught,
        heads=teacher(work, tower).heads,
    )
    assert all(np.isfinite(log(folder, "dense")))


def test_the_heads_of_the_vision_stage_go_on_with_what_they_learned(
    work: Work, base: Path, tower: Path
) -> None:
    settings = TrainingSettings(steps=1, batch=4, lr=1e-6, save_every=1)
    first = {}
    for name, heads in (
        ("taught", teacher(work, tower).heads),
        ("new", VisionTeacher(work.config.vision_config, work.data.kinds, work.data.colors).heads),
    ):
        model: Any = load_model(base).model
        folder = work.run / f"heads_{name}"
        train_decoder(
            *(model, work.tokenizer, work.data, settings, folder, CPU),
            tower_rate=0.5,
            teaching=Teaching(dense=0.3),
            heads=heads,
        )
        first[name] = log(folder, "dense")[0]
    assert first["taught"] < 0.9 * first["new"]


def test_batches_follow_from_seed_and_step(work: Work) -> None:
    settings = TrainingSettings(steps=10, batch=3, lr=1.0, seed=5)
    pictures = [
        [s.image.tobytes() for s in vision_scenes(work.data, settings, i)] for i in (3, 3, 4)
    ]
    assert pictures[0] == pictures[1] != pictures[2]
    queries = [
        [q for _, qs in base_samples(work.data, settings, i, 4) for q in qs] for i in (3, 3, 4)
    ]
    assert queries[0] == queries[1] != queries[2]


def test_steps_of_one_query_a_sequence_are_spread_and_end_the_stage() -> None:
    spread = [is_alone(step, 100, 0.25) for step in range(100)]
    assert sum(spread[:40]) == 10
    assert not any(a and b for a, b in pairwise(spread[:90]))
    assert all(spread[90:])
    assert [is_alone(step, 100, 0.0) for step in range(100)] == [False] * 90 + [True] * 10
    assert all(is_alone(step, 100, 1.0) for step in range(100))


def test_one_query_a_sequence_keeps_each_pictures_row(work: Work) -> None:
    samples = base_samples(work.data, TrainingSettings(steps=1, batch=2, lr=1.0), 0, 3)
    single, rows = one_query_each(samples)
    assert [len(queries) for _, queries in single] == [1] * len(rows)
    assert set(rows) == {0, 1}
    for (scene, (query,)), row in zip(single, rows, strict=True):
        assert scene is samples[row][0]
        assert query in samples[row][1]


# --- the adapters


def options(module: ModuleType, work: Work, *more: object) -> argparse.Namespace:
    """The command's options as a person gives them."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    words = ["--tabletop", work.scenes, "--model", work.model, *more, "--device", "cpu"]
    if module not in (fusion, views):  # which draw nothing and keep no state
        words += ["--run", work.run, "--seed", "1"]
    return parser.parse_args([str(word) for word in words])


@pytest.fixture(scope="module")
def whole(work: Work, base: Path) -> Path:
    """The model folder after `clue train detector` and `clue train ivg`, simulated scenes alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CLUE_IT2P", raising=False)
        quick = ("--steps", "40", "--batch", "2")
        weight = (*LONGER_HEAD, "--lr", "3e-3", *RATES)
        assert detector.run(options(detector, work, *quick, *weight)) == 0
        taught = ("--look-weight", "0.15", "--point-weight", "0.15", "--location-sigma", "1.5")
        more = ("--average", "token", "--lr", "3e-3")
        longer = ("--steps", "60", "--batch", "2")  # augmented pictures differ much
        assert ivg.run(options(ivg, work, *longer, *taught, *more)) == 0
    return base


def test_the_detector_learns_and_leaves_the_base_alone(work: Work, whole: Path) -> None:
    losses = log(work.run / "detector-half-full-detect-cnn")
    assert losses[-1] < 0.95 * losses[0]
    notes = json.loads((whole / "detector" / "detector.json").read_text())
    assert notes["variant"] == "half-full-detect-cnn"
    assert notes["block"] == 2
    assert notes["training"]["look_weight"] == 1.0
    assert 0.05 <= notes["threshold"] <= 0.95
    assert 0 <= notes["validation"]["val_f1"] <= 1
    assert notes["validation"]["n"] > 0
    adapter = load_file(whole / "detector" / "adapter_model.safetensors")
    blocks = {int(name.split("layers.")[1].split(".")[0]) for name in adapter}
    assert blocks == {0, 1, 2}, "half depth: no adapter above the block that is read"
    # what is read there is the attention: q and k of that block learn, its MLP has no gradient
    changed = {
        name.split(".lora_B")[0] for name, w in adapter.items() if "lora_B" in name and w.any()
    }
    assert any("layers.2.self_attn.q_proj" in name for name in changed)
    assert not any("layers.2.mlp" in name for name in changed)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != EMBEDDED_VARIANT])
def test_every_variant_of_the_table_trains_and_loads(
    work: Work, whole: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    variant = VARIANTS[name]
    quick = ("--steps", "4", "--batch", "2", "--lr", "3e-3", "--head-batches", "2",
             "--head-steps", "4")  # fmt: skip
    args = options(detector, work, *quick, "--variant", name, "--out", tmp_path / name)
    args.run = tmp_path / "run"
    words: set[str] = set()
    encode = prompts.encode_prompts

    def noting(tokenizes: Any, instruction: str, *rest: Any) -> Any:
        words.add(instruction)
        return encode(tokenizes, instruction, *rest)

    monkeypatch.setattr(detector, "encode_prompts", noting)
    assert detector.run(args) == 0
    assert words == {variant.instruction}, "trained and calibrated with the word it is used with"
    notes = json.loads((tmp_path / name / "detector.json").read_text())
    assert notes["block"] == variant.block(4)
    assert (notes["instruction"], notes["head"]) == (variant.instruction, variant.head)
    assert notes["training"]["look_weight"] == 0
    rows = (args.run / f"detector-{name}" / "log.jsonl").read_text()
    assert ('"yes_or_no"' in rows) == (variant.head == "ar"), "generated among the vocabulary"
    adapter = load_file(tmp_path / name / "adapter_model.safetensors")
    blocks = {int(key.split("layers.")[1].split(".")[0]) for key in adapter}
    assert blocks == set(variant.adapted(4))
    assert any(weight.any() for key, weight in adapter.items() if "lora_B" in key)
    assert variant.title in (tmp_path / name / "README.md").read_text()
    model = load_checkpoint(whole, device="cpu", dtype="float32", detector=tmp_path / name)
    features = model.look(work.data.held_out[0].image)
    chance, attention = model.judge(features, "pick up the red block")
    assert 0 < chance < 1
    assert attention.max() == pytest.approx(1, abs=1e-3)


def test_a_base_on_the_hub_is_named_by_the_detector_trained_on_it(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    asked: list[tuple[str, str | None]] = []

    def download(name: str, revision: str | None = None) -> Path:
        asked.append((name, revision))
        return whole

    monkeypatch.setattr(loading, "download", download)
    quick = ("--steps", "2", "--batch", "2", "--head-batches", "2", "--base-dtype", "bfloat16",
             "--head-steps", "4")  # fmt: skip
    args = options(detector, work, *quick)
    args.model, args.run = "owner/base@v1", tmp_path / "run"
    with pytest.raises(ClueError, match="--out"):
        detector.run(args)
    args.out = tmp_path / "adapters" / "detector"
    assert detector.run(args) == 0
    config = json.loads((args.out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "owner/base@v1"
    load_checkpoint(tmp_path / "adapters", device="cpu", dtype="bfloat16", ivg=whole / "ivg")
    assert asked == [("owner/base", "v1")] * 2


def test_the_ivg_learns_and_is_saved_with_its_figures(work: Work, whole: Path) -> None:
    losses = log(work.run / "ivg")
    assert losses[-1] < 0.99 * losses[0]
    assert log(work.run / "ivg", "point")[-1] < 0.95 * log(work.run / "ivg", "point")[0]
    notes = json.loads((whole / "ivg" / "ivg.json").read_text())
    assert notes["instruction"] == "clarify"
    assert notes["validation"]["val_loss"] > 0
    adapter = load_file(whole / "ivg" / "adapter_model.safetensors")
    blocks = {int(name.split("layers.")[1].split(".")[0]) for name in adapter}
    assert blocks == set(range(SIZES["layers"]))
    assert all(weight.any() for weight in adapter.values()), "every part of the adapter learned"


def test_the_whole_folder_is_a_model_that_runs(work: Work, whole: Path) -> None:
    model = load_checkpoint(whole, device="cpu", dtype="float32")
    features = model.look(work.data.held_out[0].image)
    chance, attention = model.judge(features, "pick up the red block")
    assert 0 <= chance <= 1
    assert attention.shape == (8, 8)
    assert attention.max() == pytest.approx(1, abs=1e-3)
    assert model.speak(features, "pick up the red block", "grounding").tokens


def test_the_policy_is_fitted_to_the_pair(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    model = Path(shutil.copytree(whole, tmp_path / "model"))
    before = {path: path.read_bytes() for path in sorted(model.rglob("*")) if path.is_file()}
    assert fusion.run(options(fusion, work, "--model", model)) == 0
    found = json.loads((model / "detector" / "fusion.json").read_text())
    assert found["validation"]["n"] > 8
    assert 0 <= found["validation"]["val_f1"] <= 1
    joint = load_checkpoint(model).fusion
    assert joint is not None
    assert joint.threshold == found["threshold"]
    assert joint.fits(model / "detector", model / "ivg")
    assert all(path.read_bytes() == content for path, content in before.items())
    world = found["world"]
    assert fusion.run(options(fusion, work, "--model", model, "--also", world)) == 0
    both = json.loads((model / "detector" / "fusion.json").read_text())
    assert both["world"] == f"{world}, {world}"
    assert both["validation"]["n"] == 2 * found["validation"]["n"]


def test_the_score_that_needs_no_further_views_is_written_beside_the_settings(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    model = Path(shutil.copytree(whole, tmp_path / "model"))
    path = model / "ivg" / "ivg.json"
    before = {**json.loads(path.read_text()), "num_views": 3}
    path.write_text(json.dumps(before))
    assert views.run(options(views, work, "--model", model)) == 0
    after = json.loads(path.read_text())
    assert {name: after[name] for name in before} == {
        **before,
        "doubtful_score": after["doubtful_score"],
    }
    figures = after["views_validation"]["val"]
    assert figures["n"] > 4
    assert figures["views_in_doubt"] >= figures["all_views"]
    assert load_checkpoint(model).ivg.doubtful_score == after["doubtful_score"]


def test_a_score_is_kept_that_loses_no_box() -> None:
    seen = [
        views.Found(0.9, one=True, doubt=True, all=True),
        views.Found(0.7, one=True, doubt=True, all=True),
        views.Found(0.6, one=False, doubt=True, all=True),
        views.Found(0.3, one=True, doubt=False, all=False),
    ]
    assert views.fit(seen[:3]) == 0.8, "the middle of 0.6 to 1"
    assert views.fit(seen) == 0.8, "not below 0.3, although one view makes as many right there"
    assert views.fit([*seen[:3], views.Found(0.97, one=False, doubt=True, all=True)]) == 0.98
    assert views.fit([*seen[:3], views.Found(1.0, one=False, doubt=True, all=True)]) == 1.0
    assert views.fit(seen[:2]) == 0.5
    assert views.fit([*seen[:3], views.Found(0.2, one=False, doubt=False, all=True)]) == 1.0, (
        "two views lose a box, so all views for every box"
    )


def test_a_policy_without_validation_scenes_says_what_to_make(
    work: Work, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="clue data tabletop"):
        fusion.run(options(fusion, work, "--model", whole, "--tabletop", tmp_path))


def test_a_run_folder_of_other_settings_is_refused(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written."""
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    args = options(ivg, work, "--steps", "40", "--batch", "2", "--lr", "1e-3")
    before = (whole / "ivg" / "adapter_model.safetensors").read_bytes()
    with pytest.raises(ClueError, match="other settings"):
        ivg.run(args)
    assert (whole / "ivg" / "adapter_model.safetensors").read_bytes() == before


def test_a_detector_that_was_trained_otherwise_is_no_run_to_go_on_with(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    quick = ("--steps", "40", "--batch", "2", "--lr", "3e-3", "--out", tmp_path / "out")
    weight = (*LONGER_HEAD, *RATES)
    for other, says in (
        (("--look-weight", "0"), "look_weight 1.0, now 0.0"),
        (("--scenes", "5"), "scenes 8, now 5"),
        (("--base-dtype", "bfloat16"), "base_dtype float32, now bfloat16"),
        (("--head-batches", "9"), "head_batches 8, now 9"),
        (("--head-lr", "1e-4"), "head_lr 0.006, now 0.0001"),
    ):
        with pytest.raises(ClueError, match=f"other settings .*{says}"):
            detector.run(options(detector, work, *quick, *weight, *other))
        assert not (tmp_path / "out").exists()
    assert detector.run(options(detector, work, *quick, *weight)) == 0, "it goes on"


def test_a_detector_goes_on_from_another_one(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    first, quick = whole / "detector", ("--steps", "1", "--batch", "2", "--lr", "1e-9")
    more = (*quick, "--head-lr", "1e-9", "--init", first)
    args = options(detector, work, *more, "--out", tmp_path / "out")  # the variant is the file's
    args.run = tmp_path / "run"
    assert detector.run(args) == 0
    for name in ("adapter_model.safetensors", "head.safetensors"):
        before, after = load_file(first / name), load_file(tmp_path / "out" / name)
        assert before.keys() == after.keys()
        for key, weight in before.items():
            torch.testing.assert_close(after[key], weight, atol=1e-6, rtol=1e-4)
    notes = json.loads((tmp_path / "out" / "detector.json").read_text())
    assert notes["training"]["init"] == str(first)
    assert notes["variant"] == EMBEDDED_VARIANT
    with pytest.raises(ClueError, match=f"variant {EMBEDDED_VARIANT}: give it as --variant"):
        detector.run(options(detector, work, *more, "--variant", "half-last-detect-cnn"))
    with pytest.raises(ClueError, match=r"there is no folder .*nowhere with a detector"):
        detector.run(options(detector, work, *quick, "--init", tmp_path / "nowhere"))


@pytest.fixture
def own_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The example's code can be imported, and there are photographs for its rows."""
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    photos = tmp_path / "photos"
    photos.mkdir()
    lines = []
    for n in range(60):  # the pictures decide the splits
        pixels = np.random.default_rng(n).integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(photos / f"{n}.png")
        lines.append(f"{n}.png,the block,{'yes' if n % 2 else 'no'}\n")
    (photos / "labels.csv").write_text("".join(lines))
    monkeypatch.setenv("PHOTOS", str(photos))
    return photos


def test_a_head_a_loss_and_data_of_ones_own_train_and_load(
    work: Work, whole: Path, own_code: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, mine = tmp_path / "out", ("--head", "own_head:Mlp")
    quick = ("--steps", "2", "--batch", "2", "--head-batches", "2", "--head-steps", "2")
    more = ("--loss", "own_head:focal", "--data", "tabletop", "own_head:rows", "--out", out)
    args = options(detector, work, *mine, *quick, *more)
    args.run = tmp_path / "run"
    assert detector.run(args) == 0
    assert "validation" in capsys.readouterr().err.split("rows: ")[1]
    notes = json.loads((out / "detector.json").read_text())
    assert (notes["head"], notes["training"]["loss"]) == ("own_head:Mlp", "own_head:focal")
    assert "decide.3.weight" not in load_file(out / "head.safetensors")
    # A folder alone runs no code, and not that of another head.
    for head in (None, "own_head:focal"):
        with pytest.raises(ModelError, match="its head is code, own_head:Mlp: if you trust it"):
            load_checkpoint(whole, detector=out, head=head, device="cpu")
    with pytest.raises(ModelError, match="own_head:focal is no head"):
        detector.run(options(detector, work, *quick, "--head", "own_head:focal"))
    assert main(["eval", "maps", "--model", str(whole), "--detector", str(out), "--head",
                 "own_head:Mlp", "--out", str(tmp_path / "maps.png")]) == 0  # fmt: skip
    judged = load_checkpoint(whole, detector=out, head="own_head:Mlp", device="cpu")
    image = np.zeros((64, 64, 3), np.uint8)
    chance, _ = judged.judge(judged.look(image), "the block")
    assert 0 < chance < 1
    # Training goes on from it where it is named.
    further = ("--init", out, *quick, "--out", tmp_path / "further")
    args = options(detector, work, *mine, *further)
    args.run = tmp_path / "further-run"
    assert detector.run(args) == 0


def test_losses_that_cannot_be_are_refused(work: Work, whole: Path, own_code: Path) -> None:
    for loss, says in (
        ("vocabulary", "is of AR variants"),
        ("squared", "want binary, vocabulary or MODULE:FUNCTION"),
        ("own_head:nothing", "no function 'nothing'"),
        ("operator:is_not", "want a tensor of one number"),
    ):
        args = options(detector, work, "--steps", "1", "--batch", "1", "--loss", loss)
        args.run = own_code / loss.replace(":", "-")
        with pytest.raises(ClueError, match=says):
            detector.run(args)


@pytest.mark.parametrize("name", ["half-last-disambig-ar", "half-last-detect-cnn"])
def test_a_conditioning_word_is_learned_as_a_new_token(
    work: Work, whole: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    out = tmp_path / "out"
    words = ("--variant", name, "--new-word", "--steps", "2", "--batch", "2", "--out", out)
    args = options(detector, work, *words, "--head-lr", "1e-2")
    args.run = tmp_path / "run"
    assert detector.run(args) == 0
    word = load_file(out / "head.safetensors")["word"]
    checkpoint = load_checkpoint(whole, detector=out, device="cpu")  # torch reads it by itself
    prompts = checkpoint.detector.prompts(checkpoint.processor, ["the block"])
    features = checkpoint.look(np.zeros((64, 64, 3), np.uint8))
    _, maps = checkpoint.detector(features, prompts)
    assert isinstance(checkpoint.backbone, TorchBackbone)
    model = checkpoint.backbone.model
    start = model.grid**2 + 1
    own = model.embed_tokens(torch.from_numpy(prompts.input_ids[:, start : start + len(word)]))
    assert (own[0] - word).abs().max() > 1e-3, "it was learned"
    with torch.no_grad():
        checkpoint.detector.reader.head.word.copy_(own[0] * -1)
    assert not np.allclose(maps, checkpoint.detector(features, prompts)[1]), "it is read"
    with pytest.raises(ModelError, match="choose backend 'torch'"):
        load_checkpoint(whole, detector=out, backend="openvino").detector(features, prompts)


def test_an_adapter_of_another_base_is_no_run_to_go_on_with(
    work: Work, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base of the same sizes, trained anew into the same folder, say."""
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    other = tmp_path / "other"
    shutil.copytree(whole, other)
    weights = load_file(other / "model.safetensors")
    name = next(key for key in weights if key.endswith("q_proj.weight"))
    save_file(
        {**weights, name: weights[name] + 0.01}, other / "model.safetensors", {"format": "pt"}
    )
    quick = ("--steps", "40", "--batch", "2", "--lr", "3e-3", "--out", tmp_path / "out")
    weight = (*LONGER_HEAD, *RATES)
    for module, more in ((detector, weight), (ivg, ())):
        args = options(module, work, *quick, *more)
        args.model = str(other)
        with pytest.raises(ClueError, match=r"other settings .*fingerprint"):
            module.run(args)


# --- what the commands read


def test_missing_and_damaged_scenes_are_named(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)
    sources = TrainingOptions(tabletop=tmp_path)
    with pytest.raises(FileNotFoundError, match="clue data tabletop"):
        load_training_data(sources, SIZE)
    shards.shard_path(tmp_path, "train", 0, 0).write_bytes(b"nothing")
    with pytest.raises(ClueError, match="delete it and make it again"):
        load_training_data(sources, SIZE)


def test_pictures_drawn_ahead_are_the_same(work: Work) -> None:
    losses = []
    for workers in (0, 3):
        settings = TrainingSettings(steps=3, batch=2, lr=1e-3, save_every=3)
        folder = work.run / f"ahead_{workers}"
        vision = work.config.vision_config
        train_vision(vision, work.data, settings, folder, CPU, workers=workers)
        losses.append(log(folder))
    assert losses[0] == losses[1]
